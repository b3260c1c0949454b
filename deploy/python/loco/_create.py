"""A run of any model: its tensors as a safetensors file, and `loco run create`."""
import json
import os
import struct
import subprocess
import tempfile
from typing import Any, Dict, List, Optional

import numpy as np

from . import _bin, _model
from ._lib import Error


def write_safetensors(path: str, model: Any) -> None:
    """The model's tensors, fp32, in their order."""
    source = _model.of(model)
    head: Dict[str, Any] = {}
    at = 0
    for name, shape in source.shapes():
        size = 4 * int(np.prod(shape, dtype=np.int64))
        head[name] = {"dtype": "F32", "shape": list(shape),
                      "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(head).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, shape in source.shapes():
            values = np.empty(shape, dtype="<f4")
            source.put(name, values)
            f.write(values.tobytes())


def create(name: str, model: Any, *, out: str = "run.yaml",
           data: Optional[str] = None, sync: str = "opendiloco",
           settings: Optional[Dict[str, Any]] = None,
           loco: Optional[str] = None) -> str:
    """Make a run of `model`, which begins from the parameters that it has now,
    and write run.yaml, with the run's files beside it. Returns the run's id.

    name      of the run
    model     torch.nn.Module, or dict of name -> numpy array
    data      directory that `loco data pack` wrote; None: loops have their own
    sync      training method (`loco run create --help`)
    settings  keys of run.yaml, as {"sync.period": 100, "inner.batch": 8}
    loco      the command; None: $LOCO_COMMAND, else the wheel's, else loco
    """
    command = loco or os.environ.get("LOCO_COMMAND") or _bin.path("loco")
    with tempfile.TemporaryDirectory(prefix="loco-create-") as folder:
        begin = os.path.join(folder, "begin.safetensors")
        write_safetensors(begin, model)
        words: List[str] = [command, "run", "create", "--name", name, "--model",
                            "tensors", "--init", begin, "--sync", sync,
                            "--out", out]
        if data is not None:
            words += ["--data", data]
        for key, value in (settings or {}).items():
            text = str(value).lower() if isinstance(value, bool) else value
            words += ["--set", f"{key}={text}"]
        done = subprocess.run(words, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise Error(done.stderr.decode(errors="replace").strip())
    return done.stdout.decode().strip()
