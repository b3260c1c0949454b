"""eval_tests.py - loco eval --task: multiple choice on a model of a run."""
import json
import os

from e2e_registry import test
from swarm import LOCO, Swarm, check, run

SEQ = 64  # of the model: bytes that it reads


def write_lines(path, questions):
    with open(path, "w", encoding="utf-8") as f:
        for q in questions:
            f.write(json.dumps(q) + "\n")


def trained(s):
    """The state directory of one peer that has finished."""
    s.start()
    s.wait_finished()
    s.peers[0].drain()
    return s.peers[0].state


def nats(s, state, text, source="--state"):
    """-log p of all but the first byte of a text, by --text."""
    path = s.path("scored.txt")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    o = json.loads(run(LOCO, "eval", source, state, "--text", path,
                       "--json").stdout)
    check(o["tokens"] == len(text.encode()) - 1, f"{text!r}: {o}")
    return o["loss"] * o["tokens"]


def task(where, *more):
    """Its figures, and what each line scored."""
    samples = where[-1] + ".samples"
    o = json.loads(run(LOCO, "eval", *where, "--json", "--samples", samples,
                       *more).stdout)
    with open(samples, encoding="ascii") as f:
        return o, [json.loads(line) for line in f]


QUESTIONS = [
    {"context": "the river ran", "choices": ["under", "qzx"], "answer": 0},
    {"context": "we walked  ", "choices": ["zzzz", "along it", "é中"],
     "answer": 1, "id": "other keys are left alone"},
    {"context": "with rain\n", "choices": ["from western hills", "xqj"],
     "answer": 1},
    {"context": "evening", "choices": ["c", "came with rain", "wxq", "the"],
     "answer": 1},
]


@test("eval --task scores a choice as --text scores its bytes, and counts by "
      "characters what it normalises")
def scores():
    with Swarm(peers=1, rounds=10) as s:
        state, file = trained(s), s.path("task.jsonl")
        write_lines(file, QUESTIONS)
        o, lines = task(("--state", state, "--task", file))
        right = norm = 0
        for q, line in zip(QUESTIONS, lines, strict=True):
            # White space at its end is scored with the choice.
            given = nats(s, state, q["context"].rstrip())
            want = [given - nats(s, state, q["context"] + " " + c)
                    for c in q["choices"]]
            for a, b in zip(line["log_likelihoods"], want, strict=True):
                check(abs(a - b) < 1e-4, f"{q}: {line}, by --text {want}")
            each = [w / len(c) for w, c in zip(want, q["choices"])]
            right += want.index(max(want)) == q["answer"]
            norm += each.index(max(each)) == q["answer"]
        check(o["questions"] == 4 and o["acc"] == right / 4
              and o["acc_norm"] == norm / 4, f"{o}, not {right} and {norm} of 4")
        spread = (right / 4 * (1 - right / 4) / 3) ** 0.5
        check(abs(o["acc_stderr"] - spread) < 1e-9, f"{o}, not {spread}")
        # An export is the same model; threads change nothing.
        run(LOCO, "export", "--state", state, "--out", s.path("model"))
        again = task(("--model", s.path("model"), "--task", file),
                     "--threads", 2)
        check(again == (o, lines), f"{again}, of the state {o}, {lines}")
        said = run(LOCO, "eval", "--state", state, "--task", file).stdout
        check(said.startswith(f"acc {right / 4:.4f} (stderr ")
              and said.endswith("over 4 questions\n"), said)


@test("eval --task reads any number of questions, contexts of any length, and "
      "its options say what is between and before")
def lengths():
    with Swarm(peers=1, rounds=2) as s:
        state, file = trained(s), s.path("task.jsonl")
        # More than wait for one another, of lengths that are mixed, with one
        # question at the end and in between of which the figures are known.
        known = QUESTIONS[0]
        many = [{"context": "the " * (i % 40 + 1), "choices": ["a" * (i % 7 + 1),
                 "b"], "answer": 0} for i in range(90)]
        write_lines(file, [known, *many[:45], known, *many[45:], known])
        o, lines = task(("--state", state, "--task", file))
        check(o["questions"] == 93 and [x["line"] for x in lines]
              == list(range(1, 94)), f"{o}")
        first = lines[0]["log_likelihoods"]
        for i in (46, 92):
            for a, b in zip(first, lines[i]["log_likelihoods"]):
                check(abs(a - b) < 1e-4, f"{lines[i]}, alone {first}")
        # A context is cut from the left to what the model reads.
        end = "b" * (SEQ - 5)
        write_lines(file, [{"context": c + end, "choices": ["1234", "5678"],
                            "answer": 0} for c in ("", "x", "yx")])
        _, lines = task(("--state", state, "--task", file))
        seen = [x["log_likelihoods"] for x in lines]
        check(seen[1] == seen[2] != seen[0], f"{seen}")
        # One question has no standard error.
        write_lines(file, [{"context": "the", "choices": [" river", " x"],
                            "answer": 0}])
        o, lines = task(("--state", state, "--task", file), "--delimiter", "")
        check(o["acc_stderr"] is None and o["acc_norm_stderr"] is None, f"{o}")
        check(lines[0]["tokens"] == [6, 2], f"{lines}")
        want = nats(s, state, "the") - nats(s, state, "the river")
        check(abs(lines[0]["log_likelihoods"][0] - want) < 1e-4,
              f"{lines}, by --text {want}")
        # Without a context the token that is named comes first.
        write_lines(file, [{"context": "", "choices": ["ran", "x"],
                            "answer": 0}])
        _, lines = task(("--state", state, "--task", file), "--delimiter", "",
                        "--prefix-token", ord("e"))
        want = -nats(s, state, "eran")
        check(abs(lines[0]["log_likelihoods"][0] - want) < 1e-4,
              f"{lines}, by --text {want}")


@test("what eval --task cannot score it names by file, line and choice, and "
      "it leaves no file of samples")
def mistakes():
    good = json.dumps(QUESTIONS[0]) + "\n"
    with Swarm(peers=1, rounds=1) as s:
        state, file, out = trained(s), s.path("t.jsonl"), s.path("samples")

        def refused(text, *says, code=3, more=()):
            with open(file, "w", encoding="utf-8") as f:
                f.write(text)
            said = run(LOCO, "eval", "--state", state, "--task", file,
                       "--samples", out, *more, code=code).stderr
            for word in says:
                check(word in said, f"{word!r} is not in {said!r}")
            check(not os.path.exists(out), "samples of half a task")

        refused(good + "\n{\"context\": 1}\n", "t.jsonl:3: ", '"context"',
                "[data]")
        refused(good * 40 + "no\n", "t.jsonl:41: line cannot be read: ")
        refused(good.replace('"answer": 0', '"answer": 2'), "t.jsonl:1: ",
                '"answer" is not 0 to 1')
        refused(good.replace("qzx", "x" * SEQ), "t.jsonl:1: choice 1, from 0: ",
                f"has {SEQ + 1} tokens, ", f"the model reads at most {SEQ}")
        refused(good.replace("the river ran", ""), "choice 0, from 0: ",
                "--prefix-token")
        refused(good.replace("the river ran", " "), "only white space")
        refused("\n \n", "has no question")
        refused(good, "tokens 0 to 255", "[usage]", code=2,
                more=("--prefix-token", "256"))
        refused(good, "give either", code=2, more=("--text", file))
        run(LOCO, "eval", "--state", state, "--task", s.path("none"), code=1)
        run(LOCO, "eval", "--state", state, code=2)
        for more in (("--samples", out), ("--delimiter", ""),
                     ("--prefix-token", 10)):
            run(LOCO, "eval", "--state", state, "--text", file, *more, code=2)
        # Samples never go where the questions are, nor does their .tmp.
        write_lines(out + ".tmp", QUESTIONS)
        os.symlink(out + ".tmp", s.path("link"))
        for questions, samples in ((out + ".tmp", out + ".tmp"),
                                   (out + ".tmp", s.path("link")),
                                   (out + ".tmp", out)):
            said = run(LOCO, "eval", "--state", state, "--task", questions,
                       "--samples", samples, code=2).stderr
            check("would overwrite" in said, said)
        # A tokenizer that puts tokens around a text in an unknown way.
        run(LOCO, "export", "--state", state, "--out", s.path("model"))
        path = os.path.join(s.path("model"), "tokenizer.json")
        with open(path, encoding="utf-8") as f:
            o = json.load(f)
        o["post_processor"] = {"type": "BertProcessing"}
        with open(path, "w", encoding="utf-8") as f:
            json.dump(o, f)
        said = run(LOCO, "eval", "--model", s.path("model"), "--task",
                   out + ".tmp", "--tokenizer", path, code=3).stderr
        check("BertProcessing" in said and "[model]" in said, said)


@test("eval --task makes room for a long question only when one comes")
def window():
    with Swarm(peers=1, rounds=2) as s:
        model, file = s.path("model"), s.path("task.jsonl")
        run(LOCO, "export", "--state", trained(s), "--out", model)
        config = os.path.join(model, "config.json")
        with open(config, encoding="utf-8") as f:
            o = json.load(f)
        o["max_position_embeddings"] = 5000
        with open(config, "w", encoding="utf-8") as f:
            json.dump(o, f)
        long = {"context": "the river " * 450, "choices": ["ran", "x"],
                "answer": 0}
        write_lines(file, QUESTIONS)
        _, alone = task(("--model", model, "--task", file))
        write_lines(file, QUESTIONS * 10 + [long] + QUESTIONS * 10)
        _, lines = task(("--model", model, "--task", file))
        lines, of_long = lines[:40] + lines[41:], lines[40]
        for i, line in enumerate(lines):
            for a, b in zip(line["log_likelihoods"],
                            alone[i % 4]["log_likelihoods"], strict=True):
                check(abs(a - b) < 1e-4, f"{line}, alone {alone[i % 4]}")
        given = nats(s, model, long["context"].rstrip(), "--model")
        for a, c in zip(of_long["log_likelihoods"], long["choices"]):
            b = given - nats(s, model, long["context"] + " " + c, "--model")
            check(abs(a - b) < 0.02, f"{a}, by --text {b}")
