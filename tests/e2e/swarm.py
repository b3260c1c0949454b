"""swarm.py - real daemons on loopback, for end-to-end tests.

A *Swarm* owns a temporary directory, a packed text, a signed run.yaml and any
number of *Peers* (locod processes on free ports). Everything waits on
conditions with a deadline: no test sleeps for a fixed time to wait for one.
Leaving the swarm kills what still runs.

LOCO_BUILD names the build directory (build). LOCO_TIME_SCALE stretches every
deadline here as it does in the daemon.
"""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("LOCO_BUILD",
                                       os.path.join(ROOT, "build")))
LOCO = os.path.join(BUILD, "loco")
LOCOD = os.path.join(BUILD, "locod")
SCALE = max(1, int(os.environ.get("LOCO_TIME_SCALE", "1")))
POLL_S = 0.05
# A round lasts about 0.7 s with it: long enough for a peer to come back, and
# longer on a slower machine. The trainer rests, the line stays free: a peer
# that comes back fetches a round in a fraction of one. (A cap on the upload
# makes two members send it a round as slowly as they make the next.)
PACED = ("--cpu-percent", "5")
DETECT_MS = 3000  # a dead or frozen member is known to the others by then
VAL_BYTES = 4096  # the end of the text is held out
# A daemon pauses on battery: these run on laptops, too.
os.environ.setdefault("LOCO_SYSFS", "/nonexistent")

# About 30,000 parameters: an inner step takes about a millisecond.
MODEL = """# tiny model of the end-to-end tests
dim: 32
layers: 2
heads: 2
kv_heads: 2
ffn: 64
vocab: 256
seq: 64
tied: true
rope_theta: 10000
norm_eps: 1.0e-5
"""


class Failed(Exception):
    """A sentence that had to hold and did not."""


def not_built():
    """The first of the two programs that is not there, or None."""
    return next((p for p in (LOCO, LOCOD) if not os.access(p, os.X_OK)), None)


def check(holds, sentence):
    if not holds:
        raise Failed(sentence)


def wait_for(condition, what, seconds=30):
    """The first true value of condition(), polled until the deadline. what: the
    sentence, or a function that says it at the deadline."""
    end = time.monotonic() + seconds * SCALE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failed(f"after {seconds * SCALE} s still not: "
                         f"{what() if callable(what) else what}")
        time.sleep(POLL_S)


def run(*command, code=0, timeout=60, **options):
    """Run a program; its exit code must be `code`. Returns the result. What a
    model of bytes says need not be UTF-8."""
    done = subprocess.run([str(c) for c in command], capture_output=True,
                          text=True, errors="replace", timeout=timeout * SCALE, **options)
    check(done.returncode == code,
          f"{' '.join(map(str, command))}: exit code {done.returncode}, not "
          f"{code}\n{done.stdout}{done.stderr}")
    return done


def text_of(n_bytes, seed=1):
    """Reproducible text that a model can learn from: words in lines."""
    rng = random.Random(seed)
    words = ("the river ran under a low bridge and we walked along it until "
             "evening came with rain from western hills").split()
    lines, size = [], 0
    while size < n_bytes:
        line = " ".join(rng.choice(words) for _ in range(10)) + ".\n"
        lines.append(line)
        size += len(line)
    return "".join(lines)


def prose(n_bytes):
    """Text that stays new for a small model: many words, some of them often. A
    model that knows all of a text learns nothing but noise from it, and of
    that nobody can say whose it is."""
    rng = random.Random(1)
    words = ["".join(rng.choice("aeioulnrstdmkp") for _ in range(
        rng.randint(2, 9))) for _ in range(4000)]
    share = [1 / (i + 1) for i in range(len(words))]
    return "".join(" ".join(rng.choices(words, share, k=10)) + ".\n"
                   for _ in range(n_bytes // 60))


class Peer:
    def __init__(self, swarm, name):
        self.swarm = swarm
        self.name = name
        self.state = os.path.join(swarm.dir, name)
        self.log_path = os.path.join(swarm.dir, name + ".log")
        self.process = None
        self.port = 0
        self.frozen = False

    def start(self, *arguments, listen=None, before=None, env=None,
              program=LOCOD):
        """Start locod; the port of an earlier life is kept."""
        control = os.path.join(self.state, "control")
        if os.path.exists(control):
            os.remove(control)  # left behind by a SIGKILL
        self.log_from = (os.path.getsize(self.log_path)
                         if os.path.exists(self.log_path) else 0)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [program, "--state", self.state,
                 "--listen", listen or f"127.0.0.1:{self.port}",
                 "--control", "127.0.0.1:0", *arguments],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                preexec_fn=before, env={**os.environ, **(env or {})})
        return self

    def wait_up(self):
        """Until it answers; remembers its port. For a moment after the start
        the control server has nothing to show, and answers 503."""
        def up():
            check(self.process.poll() is None,
                  f"{self.name} ended with {self.process.poll()}: "
                  f"{self.log()[-500:]}")
            found = re.search(r", port (\d+),", self.log())
            return found and os.path.exists(
                os.path.join(self.state, "control")) and self.status() and found
        self.port = int(wait_for(up, f"{self.name} is up").group(1))
        return self

    def log(self, whole=False):
        if not os.path.exists(self.log_path):
            return ""
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            if not whole:
                f.seek(self.log_from)
            return f.read()

    def status(self):
        """The status object, or None while there is no answer."""
        done = subprocess.run(
            [LOCO, "status", "--state", self.state, "--json"],
            capture_output=True, text=True, timeout=30 * SCALE)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def wait_status(self, condition, what, seconds=60):
        def holds():
            check(self.process.poll() is None,
                  f"{self.name} ended with {self.process.poll()} while waiting "
                  f"until {what}: {self.log()[-500:]}")
            status = self.status()
            return status and condition(status) and status
        return wait_for(holds, lambda: f"{self.name}: {what}; status "
                        f"{self.brief()}", seconds)

    def brief(self):
        status = self.status() or {}
        return {k: status.get(k) for k in
                ("state", "round", "fork", "peers_alive", "peers_in_round",
                 "reason")}

    def wait_state(self, *states, seconds=60):
        return self.wait_status(lambda s: s["state"] in states,
                                "state is " + " or ".join(states), seconds)

    def wait_round(self, number, seconds=100):
        return self.wait_status(lambda s: s["round"] >= number,
                                f"round is {number} or later", seconds)

    def wait_exit(self, code=0, seconds=30):
        try:
            got = self.process.wait(seconds * SCALE)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} has not ended after {seconds} s: "
                         f"{self.log()[-500:]}") from None
        check(got == code, f"{self.name}: exit code {got}, not {code}: "
              f"{self.log()[-500:]}")

    def signal(self, number):
        self.process.send_signal(number)
        self.frozen = number == signal.SIGSTOP

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait(30)

    def drain(self):
        self.signal(signal.SIGTERM)
        self.wait_exit(0)

    def peer_id(self):
        """From the key file: works for dead peers, too."""
        done = run(LOCO, "keys", "--state", self.state, "--json")
        return json.loads(done.stdout)

    def memory_anon_bytes(self):
        with open(f"/proc/{self.process.pid}/status",
                  encoding="ascii") as f:
            return 1024 * int(re.search(r"RssAnon:\s+(\d+)", f.read())[1])

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as f:
            words = f.read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


class Swarm:
    """with Swarm(peers=4, rounds=60) as s: ..."""

    def __init__(self, peers=4, rounds=40, period=40, min_peers=None,
                 settings=(), shards=1, sync="opendiloco",
                 text_bytes=100_000, tokenizer=None, vocab=256, text=None,
                 model=None, name="e2e"):
        """model: a function of the swarm that gives the words for `run create`
        in the place of --model."""
        self.dir = tempfile.mkdtemp(prefix="loco-e2e-")
        self.data = os.path.join(self.dir, "data")
        self.yaml = os.path.join(self.data, "run.yaml")
        self.n = peers
        self.rounds = rounds
        self.peers = []
        with open(self.path("text.txt"), "w", encoding="ascii") as f:
            f.write(text or text_of(text_bytes))
        with open(self.path("model.yaml"), "w", encoding="ascii") as f:
            f.write(MODEL.replace("vocab: 256", f"vocab: {vocab}"))
        how = []
        if tokenizer:  # writes one that has `vocab` ids
            how = ["--tokenizer", self.path("tokenizer.json")]
            tokenizer(how[1], text_of(text_bytes), vocab - 256)
        run(LOCO, "data", "pack", self.path("text.txt"), "--out", self.data,
            "--val-bytes", VAL_BYTES, "--shards", shards, "--licence", "CC0-1.0",
            *how)
        values = {
            "seed": 1, "sync.period": period, "stop.rounds": rounds,
            "round.min_peers": min_peers or peers, "inner.batch": 4,
            "inner.micro_batch": 4, "inner.lr": 0.003, "inner.lr_min": 0.0003,
            "inner.warmup": 10, "inner.steps": rounds * period,
            "sync.outer_lr": 1.0, "sync.outer_momentum": 0.0,
            "round.fork_after_ms": 4000, "round.grace_ms": 2000,
            # The ring, which most tests are about. None: what `run create`
            # chooses, for an open run a robust mean in a butterfly, whose sums
            # are audited.
            "sync.robust": "off", "sync.audit": "off",
            **dict(settings)}
        sets = [w for k, v in values.items() if v is not None
                for w in ("--set", f"{k}={v}")]
        which = model(self) if model else ["--model", self.path("model.yaml")]
        self.run_id = run(LOCO, "run", "create", "--name", name, *which,
                          "--data", self.data, "--sync", sync, *sets,
                          "--out", self.yaml).stdout.strip()

    def path(self, name):
        return os.path.join(self.dir, name)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for peer in self.peers:
            if peer.process and peer.process.poll() is None:
                if peer.frozen:
                    peer.signal(signal.SIGCONT)
                peer.kill()
        if kind is not None:
            for peer in self.peers:
                print(f"---- {peer.name}\n{peer.log(whole=True)[-1500:]}")
        if os.environ.get("LOCO_E2E_KEEP"):
            print(f"kept: {self.dir}")
        else:
            shutil.rmtree(self.dir, ignore_errors=True)

    def peer(self):
        """One more peer, not started."""
        self.peers.append(Peer(self, f"peer-{len(self.peers) + 1}"))
        return self.peers[-1]

    def uri(self, to=None):
        return f"loco://127.0.0.1:{(to or self.peers[0]).port}/{self.run_id}"

    def start(self, *arguments, listen=None):
        """The first from run.yaml, the others from its address alone."""
        self.peer().start("--run", self.yaml, *arguments,
                          listen=listen).wait_up()
        for _ in range(self.n - 1):
            self.peer().start("--join", self.uri(), *arguments)
        for peer in self.peers[1:]:
            peer.wait_up()
        return self

    def wait_training(self):
        for peer in self.peers:
            peer.wait_state("training", "averaging")

    def wait_finished(self, peers=None, seconds=120):
        """All report `finished` with one hash and one round; the statuses."""
        peers = self.peers if peers is None else peers
        done = [p.wait_state("finished", seconds=seconds) for p in peers]
        hashes = {s["params_hash"] for s in done}
        check(len(hashes) == 1 and None not in hashes,
              f"the parameters differ: {hashes}")
        check({s["round"] for s in done} == {self.rounds},
              f"rounds {[s['round'] for s in done]}, not {self.rounds}")
        return done


def lost_entry(status, peer_id):
    for entry in status["peers_lost"]:
        if entry["peer_id"] == peer_id:
            return entry
    return None


def check_lost(survivors, victim):
    """Status and log of every survivor name the victim, noticed in time."""
    who = victim.peer_id()
    for peer in survivors:
        status = peer.wait_status(lambda s: lost_entry(s, who["peer_id"]),
                                  "the lost peer is named")
        entry = lost_entry(status, who["peer_id"])
        check(entry["detected_ms"] <= DETECT_MS * SCALE,
              f"{peer.name} noticed after {entry['detected_ms']} ms")
        check(entry["reason"], f"{peer.name} gives no reason")
        log = peer.log(whole=True)
        check(who["peer_id"][:8] in log or who["short"] in log,
              f"the log of {peer.name} does not name the lost peer")
