"""logits_torch.py - logits of a model by Hugging Face transformers.

use: PYTHON-WITH-TORCH logits_torch.py MODEL PROMPTS OUT [--tokenizer TEXT]

The files are those of logits.c, but each prompt's logits stand there once.
With --tokenizer, AutoTokenizer must make TEXT's bytes its ids.
"""
import array
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(model_dir, prompts, out, *rest):
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    model.eval()
    figures = array.array("f")
    with open(prompts, encoding="ascii") as f, torch.no_grad():
        for line in f:
            ids = torch.tensor([[int(t) for t in line.split()]])
            figures.extend(model(ids).logits[0, -1].tolist())
    with open(out, "wb") as f:
        figures.tofile(f)
    if rest:
        text = rest[1]
        ids = AutoTokenizer.from_pretrained(model_dir)(text)["input_ids"]
        assert ids == list(text.encode()), ids


if __name__ == "__main__":
    main(*sys.argv[1:])
