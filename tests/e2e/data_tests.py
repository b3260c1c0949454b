"""data_tests.py - data by URL: servers that are good, broken and hostile."""
import json
import os
import re
import shutil
from collections import Counter

from e2e_registry import test
from hostile_http import BAD, Server
from swarm import LOCO, Swarm, check, run, wait_for


def shards_of(s):
    return sorted(n for n in os.listdir(s.data) if n.endswith(".ltk"))


def fetch(s, out, *words, code=0):
    return run(LOCO, "data", "fetch", s.yaml, "--out", out, "--stall-s", 1,
               "--tries", 2, *words, code=code, timeout=60)


def same(s, out):
    for name in shards_of(s):
        with open(os.path.join(s.data, name), "rb") as a, \
                open(os.path.join(out, name), "rb") as b:
            check(a.read() == b.read(), f"{name} is another file")


@test("loco data fetch gets the shards, resumes, and finds them again", 120)
def data_fetch():
    with Server() as http, Swarm(text_bytes=3_000_000) as s:
        http.http.folder = s.data
        out = s.path("out")
        fetch(s, out, "--mirror", http.url + "/good")
        same(s, out)
        n = len(http.requests)
        fetch(s, out, "--mirror", http.url + "/good")
        check(len(http.requests) == n, "what is here was asked for again")
        # The beginning of a file is here.
        name = shards_of(s)[0]
        os.rename(os.path.join(out, name), os.path.join(out, name + ".url"))
        os.truncate(os.path.join(out, name + ".url"), 1_234_567)
        fetch(s, out, "--mirror", http.url + "/good")
        same(s, out)
        check(http.requests[-1] == ("good", name, "bytes=1234567-"),
              f"asked for {http.requests[-1]}")
        for kind in ("noranges", "unavailable"):
            os.rename(os.path.join(out, name), os.path.join(out, name + ".url"))
            os.truncate(os.path.join(out, name + ".url"), 1_234_567)
            fetch(s, out, "--tries", 4, "--mirror", http.url + "/" + kind)
            same(s, out)
        shutil.rmtree(out)
        fetch(s, out, "--mirror", "file://" + s.data)
        same(s, out)
        # The wrong beginning: found by the hash, and fetched anew.
        os.rename(os.path.join(out, name), os.path.join(out, name + ".url"))
        with open(os.path.join(out, name + ".url"), "r+b") as f:
            f.truncate(1_000_000)
            f.write(b"no!")
        fetch(s, out, "--mirror", http.url + "/good")
        same(s, out)


def refused(s, http, kind):
    out = s.path("out-" + kind)
    done = fetch(s, out, "--mirror", f"{http.url}/{kind}",
                 code=3 if kind in ("wrong", "altered") else 6)
    lines = done.stderr.strip().splitlines()
    check(lines[-1].startswith("loco: data fetch: "), f"{kind}: {lines}")
    left = [n for n in os.listdir(out) if not n.endswith(".url")]
    check(not left, f"{kind} has left {left}")
    size = sum(os.path.getsize(os.path.join(out, n)) for n in os.listdir(out))
    most = max(os.path.getsize(os.path.join(s.data, n)) for n in shards_of(s))
    check(size <= most, f"{kind} wrote {size} bytes")
    check(b"root:" not in b"".join(
        open(os.path.join(out, n), "rb").read() for n in os.listdir(out)),
        f"{kind}: a redirect has read a local file")
    return out


@test("a hostile server ends in one sentence, and another mirror mends it", 240)
def hostile():
    with Server() as http, Swarm(
            text_bytes=300_000,
            settings={f"data.shards[{i}].urls[0]": "http://127.0.0.1:1/x"
                      for i in range(2)}) as s:
        http.http.folder = s.data
        for kind in BAD:
            out = refused(s, http, kind)
            # What it left behind does no harm.
            fetch(s, out, "--mirror", http.url + "/good")
            same(s, out)
        done = fetch(s, s.path("private"), code=6)
        check("which a run may not name" in done.stderr, done.stderr)
        done = fetch(s, s.path("private"), "--any", code=6)
        check("onnect" in done.stderr, done.stderr)


def url_swarm(http, kind, **options):
    """A run whose shards are at KIND of that server."""
    s = Swarm(settings={f"data.shards[{i}].urls[0]":
                        f"{http.url}/{kind}/{name}" for i, name in
                        enumerate(("train-0000.ltk", "val.ltk"))}, **options)
    check(shards_of(s) == ["train-0000.ltk", "val.ltk"], f"{shards_of(s)}")
    http.http.folder = s.data
    return s


def alone(s):
    """The run.yaml without its data beside it."""
    os.mkdir(s.path("alone"))
    return shutil.copy(s.yaml, s.path("alone"))


@test("data comes from its URLs, and goes on after SIGKILL where it was", 240)
def urls_resume():
    with Server() as http, url_swarm(http, "slow", peers=2, min_peers=1,
                                     rounds=10, text_bytes=8_000_000) as s:
        yaml = alone(s)
        first = s.peer().start("--run", yaml, "--data-urls", "any").wait_up()
        status = first.wait_status(
            lambda t: t["fetch"] and t["fetch"]["bytes"] > 1_000_000,
            "a part of the data is here")
        check(status["state"] == "syncing", f"it is {status['state']}")
        check(status["fetch"]["from"] == "url", f"{status['fetch']}")
        wait_for(lambda: first.status()["eta_s"] is not None, "there is an ETA")
        text = run(LOCO, "status", "--state", first.state).stdout
        check(re.search(r"fetching .* from its URL.* s left", text), text)
        first.kill()
        n = len(http.requests)
        http.http.hasty = True
        first.start("--run", yaml, "--data-urls", "any").wait_up()
        first.wait_state("training", "averaging", "finished")
        asked = http.requests[n][2]
        check(asked and int(asked[6:-1]) > 1_000_000, f"it asked for {asked}")
        # A newcomer takes the server, too: the peer's uplink is for rounds.
        n = len(http.requests)
        late = s.peer().start("--join", s.uri(first), "--data-urls",
                              "any").wait_up()
        late.wait_state("training", "averaging", "finished")
        check(len(http.requests) >= n + 2, "the newcomer asked peers")
        s.wait_finished()


@test("where the URLs of the data are wrong, peers give it", 240)
def urls_wrong():
    with Server() as http, url_swarm(http, "altered", peers=2, min_peers=1,
                                     rounds=100, text_bytes=3_000_000) as s:
        first = s.peer().start("--run", s.yaml).wait_up()
        first.wait_state("training", "averaging")
        late = s.peer().start("--join", s.uri(first), "--data-urls",
                              "any").wait_up()
        late.wait_state("training", "averaging", "finished")
        check("do not have the hash" in late.log(), late.log()[-800:])
        # The manifest may not lead a daemon into its own network.
        n = len(http.requests)
        shy = s.peer().start("--join", s.uri(first)).wait_up()
        shy.wait_state("training", "averaging", "finished")
        check("which a run may not name" in shy.log(), shy.log()[-800:])
        check(len(http.requests) == n, "it asked all the same")
        # The operator's own mirror may lie anywhere.
        near = s.peer().start("--join", s.uri(first), "--data-mirror",
                              "file://" + s.data).wait_up()
        near.wait_state("training", "averaging", "finished")
        check("by URL" not in near.log(), near.log()[-800:])
        check(not os.path.exists(os.path.join(near.state, "shards",
                                              "val.ltk.part")), "peers gave it")


def alphabet():
    """GPT-2's character for every byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = (b for b in range(256) if b not in plain)
    table = {b: chr(b) for b in plain}
    table.update((b, chr(256 + i)) for i, b in enumerate(rest))
    return table


def tokenizer_json(path, text, n_merges):
    """Byte-level BPE of the most frequent pairs in a text, written by hand."""
    table = alphabet()
    words = Counter(re.findall(r" ?[a-z]+|[^a-z]", text))
    pieces = {w: tuple(table[b] for b in w.encode()) for w in words}
    vocab = {table[b]: b for b in range(256)}
    merges = []
    while len(merges) < n_merges:
        pairs = Counter()
        for word, count in words.items():
            for pair in zip(pieces[word], pieces[word][1:]):
                pairs[pair] += count
        best = max(pairs, key=lambda p: (pairs[p], p))
        merges.append(best)
        vocab[best[0] + best[1]] = len(vocab)
        for word, parts in pieces.items():
            out, i = [], 0
            while i < len(parts):
                if parts[i:i + 2] == best:
                    out.append(best[0] + best[1])
                    i += 2
                else:
                    out.append(parts[i])
                    i += 1
            pieces[word] = tuple(out)
    level = {"type": "ByteLevel", "add_prefix_space": False,
             "trim_offsets": True, "use_regex": True}
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"version": "1.0", "truncation": None, "padding": None,
                   "added_tokens": [], "normalizer": None,
                   "pre_tokenizer": level, "post_processor": None,
                   "decoder": level,
                   "model": {"type": "BPE", "dropout": None, "unk_token": None,
                             "continuing_subword_prefix": None,
                             "end_of_word_suffix": None, "fuse_unk": False,
                             "byte_fallback": False, "ignore_merges": False,
                             "vocab": vocab,
                             "merges": [list(m) for m in merges]}}, f)


@test("a run trains with a tokenizer.json that newcomers get from peers", 240)
def with_tokenizer():
    rounds = 30
    with Swarm(peers=2, min_peers=2, rounds=rounds, tokenizer=tokenizer_json,
               vocab=320, settings={"eval.every_rounds": rounds}) as s:
        s.start()
        done = s.wait_finished()
        late = s.peers[1]
        with open(os.path.join(s.data, "tokenizer.json"), "rb") as f:
            wanted = f.read()
        with open(os.path.join(late.state, "shards", "tokenizer.json"),
                  "rb") as f:
            check(f.read() == wanted, "the newcomer has another tokenizer")
        with open(s.path("text.txt"), "rb") as f:
            f.seek(-4096, os.SEEK_END)
            tail = f.read()
        with open(s.path("tail.txt"), "wb") as f:
            f.write(tail)
        for peer, status in zip(s.peers, done):
            before = status["bits_per_byte_before"]
            # The last commit is evaluated beside the end of the run.
            wait_for(lambda p=peer, b=before: p.status()["bits_per_byte"] != b,
                     "an evaluation of the last commit")
            bits = peer.status()["bits_per_byte"]
            own = json.loads(run(LOCO, "eval", "--state", peer.state, "--text",
                                 s.path("tail.txt"), "--json").stdout)
            check(own["tokens"] < 0.7 * len(tail), f"{own}: not tokenized")
            check(bits < 4, f"{bits} bits per byte: it has learned nothing")
            # Held out is what is behind a line's start near the cut: not the
            # same bytes, the same text.
            check(abs(own["bits_per_byte"] - bits) < 0.1 * bits,
                  f"{bits} per byte, {own} by loco eval")
        model = s.path("model")
        run(LOCO, "export", "--state", late.state, "--format", "hf", "--out",
            model)
        with open(os.path.join(model, "tokenizer.json"), "rb") as f:
            check(f.read() == wanted, "the export has another tokenizer")
        again = json.loads(run(LOCO, "eval", "--model", model, "--text",
                               s.path("tail.txt"), "--json").stdout)
        check(abs(again["bits_per_byte"] - own["bits_per_byte"]) < 1e-6,
              f"{again} from the export, {own} from the state")
        for where in (("--state", late.state), ("--model", model)):
            out = run(LOCO, "generate", *where, "--prompt", "the river",
                      "--max-tokens", 20, "--seed", 1).stdout
            check(len(out) > len("the river") + 25, f"generated {out!r}")
