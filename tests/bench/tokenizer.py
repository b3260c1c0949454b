#!/usr/bin/env python3
"""tokenizer.py - megabytes a second of our tokenizer and of PyPI `tokenizers`.

use: tests/bench/tokenizer.py [--text FILE] [--mb N] [--json]

Needs PyPI `tokenizers` in the Python that runs it and `loco` in LOCO_BUILD.
Both sides get the same text and vocabulary (trained here, 32,000 tokens,
patterns of GPT-2 and Llama 3), one thread each, by turns, five times; the
figure is the median of CPU seconds. Ours is a process: what it takes for an
empty text is subtracted. Theirs is timed around encode() alone, once on the
whole text and once on its lines, which is the faster way for it.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("interop", "e2e"):
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), folder))
import texts  # noqa: E402
from tokenizer_tests import LOCO, train  # noqa: E402

ROUNDS = 5


def ours(path, text):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([LOCO, "data", "tokenize", text, "--tokenizer", path,
                    "--format", "u32", "--out", text + ".ids"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def theirs(tokenizer, text):
    start = time.process_time()
    tokenizer.encode(text, add_special_tokens=False)
    return time.process_time() - start


def theirs_by_line(tokenizer, lines):
    start = time.process_time()
    tokenizer.encode_batch_fast(lines, add_special_tokens=False)
    return time.process_time() - start


def measure(kind, text, vocab_text):
    with tempfile.TemporaryDirectory() as folder:
        path, tokenizer = train(kind, 32000, vocab_text, folder)
        plain, empty = (os.path.join(folder, n) for n in ("text", "empty"))
        with open(plain, "wb") as f:
            f.write(text.encode())
        open(empty, "wb").close()
        lines = text.splitlines(keepends=True)
        figures = {"loco": [], "tokenizers": [], "tokenizers by line": []}
        for _ in range(ROUNDS):
            figures["loco"].append(ours(path, plain) - ours(path, empty))
            figures["tokenizers"].append(theirs(tokenizer, text))
            figures["tokenizers by line"].append(
                theirs_by_line(tokenizer, lines))
        mb = len(text.encode()) / 1e6
        return {name: round(mb / statistics.median(s), 2)
                for name, s in figures.items()}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--text", help="a file of English")
    p.add_argument("--mb", type=int, default=10)
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    size = a.mb * 1000000
    if a.text:
        with open(a.text, encoding="utf-8", errors="ignore") as f:
            english = f.read(size)
    else:
        english = texts.english(size)
    if not english:
        sys.exit("no English text: install sword-comm-tdavid and "
                 "libsword-utils, or name a file with --text")
    out = {"load": os.getloadavg()[0]}
    for kind in ("gpt2", "llama3"):
        out[f"{kind}, English"] = measure(kind, english, english[:size // 3])
    many = texts.words(3, size // 3)
    out["llama3, many scripts"] = measure("llama3", many, many[:size // 10])
    if a.json:
        print(json.dumps(out))
        return
    print(f"load {out.pop('load'):.2f}; MB a CPU second, one thread")
    for name, row in out.items():
        print(f"{name:22} " + "  ".join(f"{k} {v}" for k, v in row.items()))


if __name__ == "__main__":
    main()
