"""harness_lm_eval.py - lm-evaluation-harness scores tasks on an export.

use: harness_lm_eval.py MODEL FOLDER OUT TASK... [--prefix-token ID]

FOLDER has TASK.yaml. OUT becomes, of each task, its figures and the
log-likelihood of every choice, in the order of the file.
"""
import json
import os
import sys

import lm_eval
import torch
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager


def main(model, folder, out, *tasks):
    torch.set_num_threads(1)
    more = {}
    if "--prefix-token" in tasks:
        at = tasks.index("--prefix-token")
        more["prefix_token_id"] = int(tasks[at + 1])
        tasks = tasks[:at]
    # Its cache (0.4.13) scores the shorter of two continuations at the places of
    # the longer one where both texts are one but for the last token.
    lm = HFLM(pretrained=model, device="cpu", dtype="float32", batch_size=8,
              logits_cache=False, **more)
    got = lm_eval.simple_evaluate(
        model=lm, tasks=list(tasks), log_samples=True, bootstrap_iters=1,
        task_manager=TaskManager(include_path=os.path.abspath(folder),
                                 include_defaults=False))
    found = {}
    for name in tasks:
        figures = got["results"][name]
        lines = sorted(got["samples"][name], key=lambda x: x["doc_id"])
        found[name] = {
            **{k: figures[k + ",none"] for k in
               ("acc", "acc_stderr", "acc_norm", "acc_norm_stderr")},
            "log_likelihoods": [[float(r[0][0]) for r in x["resps"]]
                                for x in lines]}
    with open(out, "w", encoding="ascii") as f:
        json.dump(found, f)


if __name__ == "__main__":
    main(*sys.argv[1:])
