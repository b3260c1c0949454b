"""model_tests.py - our models in other people's hands, and theirs in ours.

Every tensor of an export through PyPI `safetensors`. With --full: logits of a
random and of a trained model on 64 prompts through Hugging Face transformers,
within 1e-4 of ours; and a model that transformers wrote, in bf16 and in
several files, imported by us. That needs a Python with TORCH_PACKAGES:
LOCO_TORCH_PYTHON names one, else a virtual environment is made in the build
directory (some GB), else the tests are skipped.

`model_tests.py --golden PYTHON` writes unit/daemon/golden_logits.bin.
"""
import array
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
from e2e_registry import Skipped, test  # noqa: E402
from swarm import BUILD, Swarm, check, run  # noqa: E402

LOCO = os.path.join(BUILD, "loco")
LOGITS = os.path.join(BUILD, "tests", "loco_logits")
GOLDEN_TEST = os.path.join(BUILD, "tests", "test_daemon_model_golden")
FULL = os.environ.get("LOCO_INTEROP_FULL") == "1"
TORCH_PACKAGES = ("torch", "transformers", "accelerate", "scikit-learn",
                  "numpy")
PROMPTS = 64
CLOSE = 1e-4
MADE_S = 3600  # the first of them makes the virtual environment


def torch_python():
    """A Python with TORCH_PACKAGES."""
    if not FULL:
        raise Skipped("only with --full: it needs torch and transformers")
    named = os.environ.get("LOCO_TORCH_PYTHON")
    venv = os.path.join(BUILD, "interop-torch-venv")
    python = named or os.path.join(venv, "bin", "python")
    if not named and not os.path.exists(os.path.join(venv, "ready")):
        shutil.rmtree(venv, ignore_errors=True)
        for command in ([sys.executable, "-m", "venv", venv],
                        [python, "-m", "pip", "install", "--quiet",
                         *TORCH_PACKAGES]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise Skipped(f"{command[2]}: {done.stderr.strip()[-160:]}")
        open(os.path.join(venv, "ready"), "w", encoding="ascii").close()
    modules = [p.replace("scikit-learn", "sklearn") for p in TORCH_PACKAGES]
    done = subprocess.run([python, "-c", "import " + ", ".join(modules)],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise Skipped(f"{python}: {done.stderr.strip()[-160:]}")
    return python


def floats(path):
    figures = array.array("f")
    with open(path, "rb") as f:
        figures.frombytes(f.read())
    return figures


def theirs(python, model, prompts, out, *more):
    done = subprocess.run([python, os.path.join(HERE, "logits_torch.py"), model,
                           prompts, out, *more], capture_output=True, text=True,
                          env={**os.environ, "HF_HUB_OFFLINE": "1"})
    check(done.returncode == 0, f"transformers: {done.stderr[-1500:]}")
    return floats(out)


def compare(model, files, prompts, vocab, folder, *more):
    """Our logits of `files` and theirs of `model`; the largest difference."""
    want = theirs(torch_python(), model, prompts,
                  os.path.join(folder, "theirs"), *more)
    ours = os.path.join(folder, "ours")
    run(LOGITS, files, prompts, ours)
    got = floats(ours)
    check(len(want) == PROMPTS * vocab and len(got) == 2 * len(want),
          f"{len(want)} and {len(got)} logits")
    worst = 0.0
    for p in range(PROMPTS):
        for v in range(vocab):
            w = want[p * vocab + v]
            for way in (0, 1):  # the whole window, the cache
                g = got[(2 * p + way) * vocab + v]
                worst = max(worst, abs(g - w))
    check(worst <= CLOSE, f"logits differ by {worst}")
    check(max(map(abs, want)) > 0.5, "logits of no size compare nothing")
    return worst


def write_prompts(path, vocab, seq):
    rng = random.Random(8)
    with open(path, "w", encoding="ascii") as f:
        for _ in range(PROMPTS):
            n = rng.randint(1, seq)
            f.write(" ".join(str(rng.randrange(vocab)) for _ in range(n)) + "\n")


@test("PyPI safetensors reads every tensor of an export bit for bit")
def tensors():
    import safetensors
    with tempfile.TemporaryDirectory() as folder:
        whole, parts, narrow = (os.path.join(folder, n) for n in "abc")
        run(GOLDEN_TEST, "--write", whole)
        run(LOCO, "export", "--model", whole, "--out", parts,
            "--max-shard-bytes", 20000)
        run(LOCO, "export", "--model", whole, "--out", narrow, "--dtype", "bf16")

        def read(path):
            with open(path, "rb") as f:
                return {n: (t["dtype"], tuple(t["shape"]), bytes(t["data"]))
                        for n, t in safetensors.deserialize(f.read())}
        one = read(os.path.join(whole, "model.safetensors"))
        check(one["model.embed_tokens.weight"][:2] == ("F32", (64, 32)),
              f"embedding: {one['model.embed_tokens.weight'][:2]}")
        check(len(one) == 2 * 9 + 3, f"{len(one)} tensors")
        with open(os.path.join(parts, "model.safetensors.index.json"),
                  encoding="utf-8") as f:
            index = json.load(f)
        together = {}
        for name in set(index["weight_map"].values()):
            part = read(os.path.join(parts, name))
            check(all(index["weight_map"][t] == name for t in part),
                  f"{name} has tensors that the index does not name")
            together.update(part)
        check(together == one, "the parts are not the whole")
        check(index["metadata"]["total_size"]
              == sum(len(t[2]) for t in one.values()), "total_size")
        for name, (dtype, shape, data) in read(
                os.path.join(narrow, "model.safetensors")).items():
            check(dtype == "BF16" and shape == one[name][1], name)
            check(len(data) * 2 == len(one[name][2]), name)


@test("transformers computes our logits of a random model",
      MADE_S)
def random_model():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "m")
        run(GOLDEN_TEST, "--write", model)
        compare(model, model, os.path.join(model, "prompts.txt"), 64, folder)


@test("transformers computes our logits of a trained model and its tokens",
      MADE_S)
def trained_model():
    torch_python()
    with Swarm(peers=2, rounds=10) as s, tempfile.TemporaryDirectory() as folder:
        s.start()
        s.wait_finished()
        for peer in s.peers:
            peer.drain()
        model = os.path.join(folder, "m")
        run(LOCO, "export", "--state", s.peers[0].state, "--out", model)
        prompts = os.path.join(folder, "prompts")
        write_prompts(prompts, 256, 64)
        compare(model, model, prompts, 256, folder, "--tokenizer",
                "Every byte, \u00e9\u4e2d, is a token.")
        with open(os.path.join(model, "README.md"), encoding="utf-8") as f:
            check(s.run_id in f.read(), "no run id in the model card")


MAKE = """
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(5)
tied = sys.argv[2] == "tied"
c = LlamaConfig(hidden_size=48, intermediate_size=80, num_hidden_layers=3,
                num_attention_heads=6, num_key_value_heads=2, vocab_size=97,
                max_position_embeddings=40, tie_word_embeddings=tied,
                rms_norm_eps=1e-6, initializer_range=0.2)
if hasattr(c, "rope_parameters"):
    c.rope_parameters = {"rope_type": "default", "rope_theta": 777.0}
else:
    c.rope_theta = 777.0
m = LlamaForCausalLM(c)
m = m.to(torch.bfloat16 if tied else torch.float16)
m.save_pretrained(sys.argv[1], max_shard_size="60KB")
"""


@test("a model that transformers wrote is imported and has its logits",
      MADE_S)
def imported_model():
    python = torch_python()
    with tempfile.TemporaryDirectory() as folder:
        prompts = os.path.join(folder, "prompts")
        write_prompts(prompts, 97, 40)
        for kind in ("tied", "own"):
            model, file = (os.path.join(folder, f"{kind}{end}")
                           for end in ("", ".safetensors"))
            done = subprocess.run([python, "-c", MAKE, model, kind],
                                  capture_output=True, text=True)
            check(done.returncode == 0, done.stderr[-1500:])
            check(os.path.exists(os.path.join(
                model, "model.safetensors.index.json")), "one file only")
            run(LOCO, "import", model, "--out", file)
            compare(model, file, prompts, 97, folder)
            back = os.path.join(folder, f"{kind}-back")
            run(LOCO, "export", "--model", file, "--out", back)
            compare(back, model, prompts, 97, folder)


def golden(python):
    with tempfile.TemporaryDirectory() as folder:
        run(GOLDEN_TEST, "--write", folder)
        out = os.path.join(HERE, "..", "unit", "daemon", "golden_logits.bin")
        theirs(python, folder, os.path.join(folder, "prompts.txt"), out)


if __name__ == "__main__" and sys.argv[1:2] == ["--golden"]:
    golden(sys.argv[2])
