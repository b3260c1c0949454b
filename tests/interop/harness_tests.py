"""harness_tests.py - EleutherAI's lm-evaluation-harness scores our exports as
loco eval --task does. With --full only.

The same file of questions, by a task of output_type multiple_choice. That needs
a Python with torch, transformers and lm_eval: LOCO_LM_EVAL_PYTHON names one,
else it is that of model_tests.py; without lm_eval 0.4.10 or later the tests are
skipped.
"""
import json
import os
import random
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
from data_tests import tokenizer_json  # noqa: E402
from e2e_registry import Skipped, test  # noqa: E402
from model_tests import FULL, MADE_S, torch_python  # noqa: E402
from swarm import LOCO, Swarm, check, run  # noqa: E402

OLDEST = (0, 4, 10)  # of lm_eval, that does as loco does
QUESTIONS = 200
# Sums of fp32 on their side: of 500 nats the last bit is 3e-5.
CLOSE, CLOSE_RELATIVE = 1e-4, 1e-6
WORDS = ("the river ran under a low bridge and we walked naïve café über 中文 "
         "straße – “quoted” \u00a0x 🌊 don't 1234 A.B").split(" ")
ENDS = ("", "", "", " ", "  ", "\n", ":", "\u00a0", "\u3000 ", "\t", ".\n\n")

TASK = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {file}
test_split: test
output_type: multiple_choice
doc_to_text: context
doc_to_choice: choices
doc_to_target: answer
target_delimiter: "{delimiter}"
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
  - metric: acc_norm
    aggregation: mean
    higher_is_better: true
"""


def harness_python():
    if not FULL:
        raise Skipped("only with --full: it needs torch and lm_eval")
    python = os.environ.get("LOCO_LM_EVAL_PYTHON") or torch_python()
    done = subprocess.run(
        [python, "-c", "import importlib.metadata, lm_eval, torch, transformers"
         "\nprint(importlib.metadata.version('lm_eval'))"],
        capture_output=True, text=True)
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise Skipped(f"{python}: {why} (pip install lm_eval; "
                      "LOCO_LM_EVAL_PYTHON)")
    version = done.stdout.split()[-1]
    if tuple(int(n) for n in re.findall(r"\d+", version)[:3]) < OLDEST:
        raise Skipped(f"{python}: lm_eval {version} is older than 0.4.10, and "
                      "puts tokens around a text in another way")
    return python


def write_questions(path, *more):
    """Contexts from one word to more than the model reads, one in ten empty;
    choices of one to four words, all different."""
    rng = random.Random(6)

    def words(n):
        return " ".join(rng.choice(WORDS) for _ in range(n))

    with open(path, "w", encoding="utf-8") as f:
        for i in range(QUESTIONS):
            context = words(rng.choice((1, 2, 3, 8, 20, 60))) + rng.choice(ENDS)
            choices = set()
            while len(choices) < rng.choice((2, 3, 5)):
                choices.add(words(rng.choice((1, 1, 2, 3)))[:12])
            choices = sorted(choices)
            f.write(json.dumps({
                "id": i, "context": "" if i % 10 == 7 else context,
                "choices": choices, "answer": rng.randrange(len(choices))},
                ensure_ascii=bool(i % 2)) + "\n")
        for q in more:
            f.write(json.dumps(q) + "\n")


def theirs(python, s, model, tasks, *more):
    out = s.path("theirs.json")
    done = subprocess.run(
        [python, os.path.join(HERE, "harness_lm_eval.py"), model, s.dir, out,
         *tasks, *more], capture_output=True, text=True,
        env={**os.environ, "HF_HOME": s.path("hf"), "HF_HUB_OFFLINE": "1",
             "HF_DATASETS_OFFLINE": "1"})
    check(done.returncode == 0, f"lm_eval: {done.stderr[-1500:]}")
    with open(out, encoding="ascii") as f:
        return json.load(f)


def compare(s, model, *more_questions, prefix=None):
    """Both delimiters, on one model."""
    python = harness_python()
    write_questions(s.path("task.jsonl"), *more_questions)
    more = [] if prefix is None else ["--prefix-token", str(prefix)]
    tasks = {"spaced": " ", "joined": ""}
    for name, delimiter in tasks.items():
        with open(s.path(name + ".yaml"), "w", encoding="utf-8") as f:
            f.write(TASK.format(name=name, file=s.path("task.jsonl"),
                                delimiter=delimiter))
    wanted = theirs(python, s, model, tasks, *more)
    for name, delimiter in tasks.items():
        want = wanted[name]
        got = json.loads(run(
            LOCO, "eval", "--model", model, "--task", s.path("task.jsonl"),
            "--json", "--samples", s.path("samples"), "--delimiter", delimiter,
            *more).stdout)
        with open(s.path("samples"), encoding="ascii") as f:
            lines = [json.loads(line) for line in f]
        pairs = [(a, b) for x, y in
                 zip(lines, want["log_likelihoods"], strict=True)
                 for a, b in zip(x["log_likelihoods"], y, strict=True)]
        worst = max(abs(a - b) for a, b in pairs)
        print(f"{name}: acc {got['acc']:.4f} and {want['acc']:.4f}, acc_norm "
              f"{got['acc_norm']:.4f} and {want['acc_norm']:.4f}, "
              f"{len(pairs)} choices differ by {worst:.1e} at most, of "
              f"{max(-b for _, b in pairs):.0f} nats")
        for a, b in pairs:
            check(abs(a - b) <= CLOSE + CLOSE_RELATIVE * abs(b),
                  f"{name}: {a}, theirs {b}")
        for key in ("acc", "acc_stderr", "acc_norm", "acc_norm_stderr"):
            check(abs(got[key] - want[key]) < 1e-9,
                  f"{name}: {key} {got[key]}, theirs {want[key]}")
        check(0.1 < got["acc"] < 0.9 and
              any(x["picked"] != x["picked_norm"] for x in lines),
              f"{name}: {got} compares nothing")


def exported(s):
    s.start()
    s.wait_finished()
    s.peers[0].drain()
    run(LOCO, "export", "--state", s.peers[0].state, "--out", s.path("model"))
    return s.path("model")


@test("lm-evaluation-harness scores a model of bytes as loco eval --task does",
      MADE_S)
def of_bytes():
    harness_python()
    with Swarm(peers=1, rounds=60) as s:
        compare(s, exported(s), prefix=10)


@test("lm-evaluation-harness scores a model with a tokenizer.json as loco eval "
      "--task does", MADE_S)
def of_tokens():
    harness_python()
    with Swarm(peers=1, rounds=60, tokenizer=tokenizer_json, vocab=320) as s:
        compare(s, exported(s), prefix=10)


def with_template(path, text, n_merges):
    """Like Llama 3's: a token begins each text, and two are added."""
    tokenizer_json(path, text, n_merges - 2)
    with open(path, encoding="utf-8") as f:
        o = json.load(f)
    first = len(o["model"]["vocab"])
    o["added_tokens"] = [
        {"id": first + i, "content": content, "single_word": False,
         "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for i, content in enumerate(("<s>", "</s>"))]
    begin = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    o["post_processor"] = {"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False,
         "use_regex": True},
        {"type": "TemplateProcessing",
         "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
         "pair": [begin, {"Sequence": {"id": "A", "type_id": 0}}, begin,
                  {"Sequence": {"id": "B", "type_id": 1}}],
         "special_tokens": {"<s>": {"id": "<s>", "ids": [first],
                                    "tokens": ["<s>"]}}}]}
    with open(path, "w", encoding="utf-8") as f:
        json.dump(o, f)
    return first


@test("lm-evaluation-harness scores a model whose texts begin with a token as "
      "loco eval --task does, and finds that token in the export", MADE_S)
def with_first_token():
    harness_python()
    with Swarm(peers=1, rounds=60, tokenizer=with_template, vocab=320) as s:
        model = exported(s)
        with open(os.path.join(model, "tokenizer.json"), encoding="utf-8") as f:
            ids = [a["id"] for a in json.load(f)["added_tokens"]]
        config = os.path.join(model, "config.json")
        with open(config, encoding="utf-8") as f:
            o = json.load(f)
        o["bos_token_id"], o["eos_token_id"] = ids
        with open(config, "w", encoding="utf-8") as f:
            json.dump(o, f)
        run(LOCO, "import", model, "--out", s.path("one.safetensors"))
        run(LOCO, "export", "--model", s.path("one.safetensors"), "--out",
            s.path("again"))
        compare(s, s.path("again"),
                {"context": "<s>the", "choices": ["river", "</s>"],
                 "answer": 1},
                {"context": "the ", "choices": ["<s>river", "x</s>"],
                 "answer": 0},
                {"context": " \n", "choices": ["river", "low"], "answer": 0},
                {"context": "", "choices": ["<s>river", "low"], "answer": 0})
