"""tokenizer_tests.py - our tokenizer against PyPI `tokenizers`.

Vocabularies are trained here, by the other implementation, with the patterns
of GPT-2 and Llama 3; then both sides tokenize the same text and every id must
be the same, and the ids must give the text back. --full takes 12 MB for each
of them, else it is half a megabyte.
"""
import array
import json
import os
import subprocess
import tempfile

import texts
from e2e_registry import test
from swarm import BUILD, check

LOCO = os.path.join(BUILD, "loco")
FULL = os.environ.get("LOCO_INTEROP_FULL") == "1"
MB = 1 << 20
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
SPECIALS = ["<|begin_of_text|>", "<|end_of_text|>", "<|end|>", "<|end"]


def corpus(size):
    prose = texts.english(size // 3)
    rest = size - len(prose or "")
    return ((prose or "") + texts.words(1, rest * 3 // 4) +
            texts.anything(2, rest // 4))


def pre_tokenizer(kind):
    from tokenizers import Regex, pre_tokenizers as pre
    if kind == "gpt2":
        return pre.ByteLevel(add_prefix_space=False, use_regex=True)
    if kind == "prefix":
        return pre.ByteLevel(add_prefix_space=True, use_regex=True)
    if kind == "digits":
        return pre.Sequence([pre.Digits(individual_digits=True),
                             pre.ByteLevel(add_prefix_space=False)])
    return pre.Sequence([
        pre.Split(Regex(LLAMA3 if kind == "llama3" else QWEN2), "isolated"),
        pre.ByteLevel(add_prefix_space=False, use_regex=False)])


def train(kind, vocab, text, folder):
    """A tokenizer.json by PyPI `tokenizers`; its path and the object."""
    from tokenizers import Tokenizer, decoders, models, trainers
    from tokenizers.pre_tokenizers import ByteLevel
    t = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    t.pre_tokenizer = pre_tokenizer(kind)
    t.decoder = decoders.ByteLevel()
    lines = text.splitlines(keepends=True)
    t.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=SPECIALS, show_progress=False,
        initial_alphabet=ByteLevel.alphabet()))
    path = os.path.join(folder, f"{kind}.json")
    t.save(path)
    if kind == "qwen2":  # the older way to write merges
        with open(path, encoding="utf-8") as f:
            o = json.load(f)
        o["model"]["merges"] = [" ".join(m) if isinstance(m, list) else m
                                for m in o["model"]["merges"]]
        with open(path, "w", encoding="utf-8") as f:
            json.dump(o, f, ensure_ascii=False)
    return path, Tokenizer.from_file(path)


def tokenize(path, text, folder):
    """Our ids of the text, and the bytes that they give back."""
    plain, ids, back = (os.path.join(folder, n) for n in ("t", "t.u32", "t.back"))
    with open(plain, "wb") as f:
        f.write(text)
    for words in (["tokenize", plain, "--out", ids],
                  ["detokenize", ids, "--out", back]):
        done = subprocess.run([LOCO, "data", *words, "--tokenizer", path,
                               "--format", "u32"], capture_output=True, text=True)
        check(done.returncode == 0, f"loco data {words[0]}: {done.stderr}")
    with open(ids, "rb") as f, open(back, "rb") as g:
        return array.array("I", f.read()), g.read()


def first_difference(a, b):
    n = min(len(a), len(b))
    return next((i for i in range(n) if a[i] != b[i]), n)


def compare(kind, vocab, size):
    text = corpus(size)
    for special in SPECIALS:  # some stand in the text
        at = len(text) // 2
        text = text[:at] + special + text[at:]
    check(len(text.encode()) >= size * 9 // 10, "too little text")
    with tempfile.TemporaryDirectory() as folder:
        path, theirs = train(kind, vocab, text[: len(text) // 4], folder)
        want = array.array("I", theirs.encode(text, add_special_tokens=False).ids)
        got, back = tokenize(path, text.encode(), folder)
        if want != got:
            i = first_difference(want, got)
            tell = [theirs.id_to_token(t) for t in want[max(0, i - 3):i + 4]]
            ours = [theirs.id_to_token(t) for t in got[max(0, i - 3):i + 4]]
            check(False, f"{kind}: id {i} of {len(want)}: theirs {tell}, "
                         f"ours {ours}")
        check(kind == "prefix" or back == text.encode(),
              f"{kind}: the text does not come back")


def register(kind, vocab, what):
    size = 12 * MB if FULL else MB // 2

    @test(f"{what}: every id of {size / MB:g} MB in many scripts is that of "
          "PyPI tokenizers", 1200 if FULL else 120)
    def one():
        compare(kind, vocab, size)


register("gpt2", 6000, "GPT-2's pattern")
register("llama3", 6000, "Llama 3's pattern with ignore_merges")
register("qwen2", 3000, "Qwen 2's pattern with merges as strings")
register("prefix", 2000, "a prefix space")
register("digits", 2000, "digits one by one")


def golden(folder):
    """Write what unit/train/tokenizer_golden compares with: two vocabularies,
    one text, and its ids."""
    text = (texts.words(5, 2500) + "".join(SPECIALS) + texts.anything(6, 500)
            + "It's   the END, we'LL see.\n\n  12345 ")
    with open(os.path.join(folder, "text"), "wb") as f:
        f.write(text.encode())
    for kind in ("gpt2", "llama3"):
        path, t = train(kind, 420, texts.words(4, 60000), folder)
        with open(path[:-len("json")] + "ids", "w", encoding="ascii") as f:
            ids = t.encode(text, add_special_tokens=False).ids
            f.write("\n".join(map(str, ids)) + "\n")


if __name__ == "__main__":
    import sys
    golden(sys.argv[1])
