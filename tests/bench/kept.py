"""kept.py - cases of `loco sim train` whose results are kept, one JSON each.

methods.py and recipe.py train cases that take hours together. What has run is
not run again, so a script goes on where it was stopped, on another machine too,
and several processes share the cases.
"""
import fcntl
import json
import os
import platform
import random
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def commit():
    """HEAD, or LOCO_COMMIT: that of a binary which was built before it."""
    known = os.environ.get("LOCO_COMMIT")
    if known:
        return known
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"],
                          capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def machine():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        names = [line.split(":", 1)[1].strip() for line in f
                 if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(names)} cores"


def shorter(setting):
    """A period an eighth as long; no warm-up of the learning rate."""
    key, value = setting.split("=")
    if key.startswith("sync.period"):
        value = max(2, int(value) // 8)
    return f"{key}={0 if key == 'inner.warmup' else value}"


def generated_text(n_bytes):
    """Words in lines: enough for a program, not for a claim."""
    rng = random.Random(1)
    words = ("the river ran under a low bridge and we walked along it until "
             "evening came with rain from western hills").split()
    lines, size = [], 0
    while size < n_bytes:
        lines.append(" ".join(rng.choice(words) for _ in range(10)) + ".\n")
        size += len(lines[-1])
    return "".join(lines)


class Room:
    """A folder for what cases read: text, models, lists of peers."""

    def __init__(self, cache, build, short):
        self.cache, self.build, self.short = cache, build, short
        os.makedirs(cache, exist_ok=True)

    def write(self, name, text):
        path = os.path.join(self.cache, name)
        new = f"{path}.{os.getpid()}.{random.random()}"
        with open(new, "w", encoding="ascii") as f:
            f.write(text)
        os.rename(new, path)
        return path

    def data(self):
        """Packed text; made once, by one of the processes that share it."""
        at = os.path.join(self.cache, "data")
        with open(at + ".busy", "w", encoding="ascii") as busy:
            fcntl.flock(busy, fcntl.LOCK_EX)
            if not os.path.exists(os.path.join(at, "data.json")):
                self._pack(at)
        return at

    def _pack(self, at):
        text = os.path.join(self.cache, "text.txt")
        if self.short:
            self.write("text.txt", generated_text(200_000))
        else:
            subprocess.run(["sh", os.path.join(ROOT, "deploy", "text.sh"),
                            text], check=True)
        subprocess.run([os.path.join(self.build, "loco"), "data", "pack",
                        text, "--out", at, "--val-bytes",
                        "8192" if self.short else "131072"],
                       check=True, stdout=subprocess.DEVNULL)


def simulate(build, *words):
    """The JSON of `loco sim train`; None where it failed."""
    done = subprocess.run([os.path.join(build, "loco"), "sim", "train",
                           "--json", *map(str, words)], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        print(done.stderr.strip(), file=sys.stderr)
        return None
    return json.loads(done.stdout)


class Kept:
    """Results by the name of their case."""

    def __init__(self, results, cases):
        self.results, self.cases = results, cases
        self.commit = commit()
        os.makedirs(results, exist_ok=True)
        paths = {self.path(name) for name in cases}
        assert len(paths) == len(cases), "two cases have one file"

    def train(self, c):
        """The result of a case; None where it failed, and says why."""
        raise NotImplementedError

    def path(self, name):
        keep = "".join(c if c.isalnum() else "-" for c in name)
        return os.path.join(self.results, keep + ".json")

    def get(self, name):
        """None: not run, or run with other settings."""
        if not os.path.exists(self.path(name)):
            return None
        with open(self.path(name), encoding="ascii") as f:
            kept = json.load(f)
        # Through JSON, as the kept one went: a tuple is a list there.
        now = json.loads(json.dumps(self.cases[name]))
        return kept if kept["case"] == now else None

    def run(self, name):
        """None: another process is at it; False: it failed."""
        with open(self.path(name) + ".busy", "w", encoding="ascii") as busy:
            try:  # the lock ends with its process
                fcntl.flock(busy, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            done = self.get(name) is not None or self.make(name)
            if os.path.exists(busy.name):
                os.unlink(busy.name)
            return done

    def make(self, name):
        print(f"{name} ...", file=sys.stderr, flush=True)
        result = self.train(self.cases[name])
        if result is None:
            return False
        result.update(case=self.cases[name], commit=self.commit,
                      machine=machine())
        with open(self.path(name) + ".new", "w", encoding="ascii") as f:
            json.dump(result, f, indent=1)
        os.rename(self.path(name) + ".new", self.path(name))
        return True

    def where(self):
        """Machines and commits of what is there."""
        done = [r for r in map(self.get, self.cases) if r]
        machines = {}
        for r in done:
            machines.setdefault(r["machine"], set()).add(r["commit"])
        return f"{len(done)} of {len(self.cases)} cases. " + "; ".join(
            f"{m}, commit {', '.join(sorted(c))}"
            for m, c in sorted(machines.items())) + "."
