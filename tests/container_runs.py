"""container_runs.py - deploy/Dockerfile is built, and what it made runs.

Called by containers.py --build. buildah builds, without a registry: the bases
are root file systems of Debian 12 in tar files. podman runs the images as
docker would: process 1, a user without root, a read-only root file system, no
capability. A peer outside of the containers has the run, on loopback. The
daemon keeps its defaults but for what a test on loopback needs. One row for
each thing that was tried, with its seconds.

Of an image for another architecture than this machine's, qemu-user runs the
programs (binfmt_misc, until this ends).
"""
import contextlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("LOCO_BUILD", os.path.join(ROOT, "build")))
BASE = "docker.io/library/debian:12-slim"  # as the Dockerfile names it
MISC = "/proc/sys/fs/binfmt_misc"
MAGIC = (r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:"
         r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff")
HERE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
# crun takes no machine with both hierarchies of control groups.
QUIET = "umount /sys/fs/cgroup/unified 2>/dev/null; exec \"$@\""
CONFINED = ["--network", "host", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL",
            "--security-opt", "no-new-privileges", "--ulimit", "nofile=1024:1024",
            "--ulimit", "nproc=4096:4096", "-e", "LOCO_LISTEN=127.0.0.1:0",
            "-e", "LOCO_LAN=off", "-e", "LOCO_MAPPING=off"]


class Failed(Exception):
    pass


def say(*words, code=0, **more):
    """What a command says; a Failed with that where it ends otherwise."""
    done = subprocess.run(words, cwd=ROOT, text=True, check=False, timeout=3600,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    if done.returncode != code:
        raise Failed(f"{' '.join(words)[-200:]}: exit code {done.returncode}: {done.stdout[-1500:]}")
    return done.stdout.strip()


def wait_for(condition, what, seconds):
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise Failed(f"not within {seconds} s: {what}")
        time.sleep(0.1)
    return found


class Store:
    """Images and containers in a folder of their own."""

    def __init__(self, folder):
        self.where = ["--storage-driver", os.environ.get("LOCO_STORAGE", "vfs"),
                      "--root", folder + "/root", "--runroot", folder + "/run"]

    def buildah(self, *words):
        return say("buildah", *self.where, *words)

    def podman(self, *words, code=0):
        return say("unshare", "-m", "sh", "-c", QUIET, "sh", "podman", *self.where,
                   "--cgroup-manager", "cgroupfs", "--events-backend", "file", *words, code=code)

    def close(self):
        self.podman("rm", "-f", "-t", "0", "-a")
        self.buildah("rm", "-a")
        self.podman("volume", "rm", "-f", "-a")

    def build(self, arch, tar):
        base = BASE if arch == HERE else f"localhost/debian-{arch}:12"
        made = self.buildah("from", "--arch", arch, "scratch")
        self.buildah("add", "--quiet", made, tar, "/")
        self.buildah("config", "--arch", arch, made)
        self.buildah("commit", "--quiet", made, base)
        self.buildah("rm", made)
        self.buildah("build", "--isolation", "chroot", "--pull-never", "--format", "docker",
                     "--platform", f"linux/{arch}", "--build-arg", f"BASE={base}",
                     # These two buildah 1.28 does not know by itself.
                     "--build-arg", f"BUILDPLATFORM=linux/{HERE}",
                     "--build-arg", f"TARGETPLATFORM=linux/{arch}",
                     "--file", "deploy/Dockerfile", "--tag", f"loco-{arch}", ".")
        size = lambda name: int(self.podman("image", "inspect", "--format", "{{.Size}}", name))
        return size(f"loco-{arch}") - size(base)


@contextlib.contextmanager
def emulated(arch):
    """The kernel starts qemu for the other architecture's programs."""
    if arch == HERE:
        yield
        return
    name = f"loco-{os.getpid()}"
    qemu = shutil.which("qemu-aarch64-static")
    if arch != "arm64" or qemu is None:
        raise Failed(f"no emulator for {arch} here (apt-get install qemu-user-static)")
    if not os.path.exists(MISC + "/register"):
        say("mount", "-t", "binfmt_misc", "binfmt_misc", MISC)
    with open(MISC + "/register", "w", encoding="ascii") as f:
        f.write(f":{name}:M::{MAGIC}:{qemu}:F")
    try:
        yield
    finally:
        with open(f"{MISC}/{name}", "w", encoding="ascii") as f:
            f.write("-1")


@contextlib.contextmanager
def peer(folder, rounds):
    """A run of so many rounds, and its first peer: the line to join it."""
    os.makedirs(folder)
    with open(folder + "/text", "w", encoding="ascii") as f:
        f.write("\n".join(str(n) for n in range(60000)))
    with open(folder + "/model.yaml", "w", encoding="ascii") as f:
        f.write("dim: 32\nlayers: 2\nheads: 2\nkv_heads: 2\nffn: 64\nvocab: 256\n"
                "seq: 64\ntied: true\nrope_theta: 10000\nnorm_eps: 1.0e-5\n")
    loco = os.path.join(BUILD, "loco")
    say(loco, "data", "pack", folder + "/text", "--out", folder + "/data",
        "--val-bytes", "8192", "--licence", "CC0-1.0")
    words = ["round.min_peers=2", "sync.period=20", f"stop.rounds={rounds}",
             "inner.steps=10000000", "inner.batch=4", "inner.micro_batch=4",
             "inner.warmup=4", "sync.robust=off", "sync.audit=off", "sync.rollback=0"]
    said = say(loco, "run", "create", "--name", "containers", "--model", folder + "/model.yaml",
               "--data", folder + "/data", "--sync", "opendiloco",
               *(w for word in words for w in ("--set", word)),
               "--out", folder + "/data/run.yaml")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run_id = next(line for line in said.split("\n") if len(line) == 64)
    with open(folder + "/log", "w", encoding="ascii") as log, subprocess.Popen(
            [os.path.join(BUILD, "locod"), "--state", folder + "/state",
             "--run", folder + "/data/run.yaml", "--listen", f"127.0.0.1:{port}",
             "--control", "127.0.0.1:0", "--battery", "train", "--mapping", "off",
             "--cpu-percent", "30"], stdout=log, stderr=log,
            env={**os.environ, "LOCO_LAN": "off"}) as process:
        try:
            yield f"loco://127.0.0.1:{port}/{run_id}"
        finally:
            process.terminate()


class Rows:
    def __init__(self, arch):
        self.arch, self.began = arch, time.monotonic()

    def tell(self, what, seen):
        now = time.monotonic()
        print(f"| {self.arch} | {what} | {seen} | {now - self.began:.1f} |", flush=True)
        self.began = now


def status_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return dict(line.strip().split(":\t", 1) for line in f if ":\t" in line)


def trains(store, name, seconds):
    def state():
        done = store.podman("ps", "-q", "--filter", f"name={name}")
        if not done:
            raise Failed(store.podman("logs", name))
        with contextlib.suppress(Failed):
            return store.podman("exec", name, "loco", "status", "--get",
                                "rounds_committed") not in ("", "0")
        return False
    wait_for(state, f"{name} trains", seconds)


def lives(store, image, rows, folder, slow):
    """Starts at once, is healthy and unhealthy, stops, and comes back."""
    with peer(folder + "/endless", 100000) as uri:
        words = ["run", "-d", "--name", "guest", *CONFINED, "-v", "guest:/var/lib/loco",
                 "-e", f"LOCO_JOIN={uri}"]
        store.podman(*words, image)
        trains(store, "guest", 60 * slow)
        rows.tell("run -e LOCO_JOIN=.. with a read-only root file system, no capability, a volume",
                  "trains")
        pid = int(store.podman("inspect", "--format", "{{.State.Pid}}", "guest"))
        status = status_of(pid)
        if (status["NSpid"].split()[-1], status["Uid"].split()[0]) != ("1", "7700"):
            raise Failed(f"it is not process 1 of user 7700: {status}")
        peer_id = store.podman("exec", "guest", "loco", "status", "--get", "peer_id")
        store.podman("healthcheck", "run", "guest")
        os.kill(pid, 19)  # SIGSTOP
        store.podman("healthcheck", "run", "guest", code=1)
        os.kill(pid, 18)  # SIGCONT
        wait_for(lambda: store.podman("exec", "guest", "loco", "status", "--health") == "ok",
                 "healthy again", 30 * slow)
        store.podman("healthcheck", "run", "guest")
        rows.tell("health check; the same with process 1 stopped (SIGSTOP); and going on",
                  "ok; unhealthy; ok")
        began = time.monotonic()
        store.podman("stop", "-t", "10", "guest")
        took = time.monotonic() - began
        code = store.podman("inspect", "--format", "{{.State.ExitCode}}", "guest")
        log = store.podman("logs", "guest")
        if code != "0" or "drained after round" not in log:
            raise Failed(f"exit code {code}: {log[-500:]}")
        rows.tell("stop", f"drained, exit code 0, after {took:.1f} s of the 10 it has")
        store.podman("start", "guest")
        trains(store, "guest", 60 * slow)
        if store.podman("exec", "guest", "loco", "status", "--get", "peer_id") != peer_id:
            raise Failed("it is another peer now")
        rows.tell("start once more", "the same peer, trains")
        store.podman("rm", "-f", "-t", "10", "guest")


def ends(store, image, rows, folder, _slow):
    """Exits when the run has ended."""
    with peer(folder + "/short", 8) as uri:
        done = store.podman("run", "--rm", *CONFINED, "-e", f"LOCO_JOIN={uri}",
                            "-e", "LOCO_END_GRACE_S=1", image)
        if "round 8 committed" not in done or "the run ended 1 s ago" not in done:
            raise Failed(done[-1000:])
        rows.tell("run --rm -e LOCO_END_GRACE_S=1, a run of 8 rounds", "exit code 0 after round 8")


def refuses(store, image, rows, folder, _slow):
    """Mistakes end it with a code and a sentence."""
    foreign = folder + "/foreign"
    os.mkdir(foreign, 0o755)
    with_join = ["-e", "LOCO_JOIN=loco://127.0.0.1:9/" + "a" * 64]
    for what, words, code, sentence in (
            ("no setting", [], 2, "give one of --run FILE"),
            ("LOCO_THREADS=many", [*with_join, "-e", "LOCO_THREADS=many"], 3, "LOCO_THREADS"),
            ("a volume of root's", [*with_join, "-v", foreign + ":/var/lib/loco"], 4,
             "let user 7700 write there"),
    ):
        done = store.podman("run", "--rm", *CONFINED, *words, image, code=code)
        if sentence not in done:
            raise Failed(f"{what}: {done}")
        rows.tell(what, f"exit code {code}: {done.splitlines()[-1]}")


def starts(store, image, rows, folder, _slow):
    """SIGTERM while it reads its settings: process 1 has no default for it."""
    os.mkfifo(folder + "/settings", 0o644)
    store.podman("run", "-d", "--name", "early", *CONFINED, "-e", "LOCO_CONFIG=/settings",
                 "-v", folder + "/settings:/settings", image)
    pid = int(store.podman("inspect", "--format", "{{.State.Pid}}", "early"))
    wait_for(lambda: int(status_of(pid)["SigCgt"], 16) >> 14 & 1, "SIGTERM is handled", 30)
    began = time.monotonic()
    store.podman("stop", "-t", "30", "early")
    took = time.monotonic() - began
    code = store.podman("inspect", "--format", "{{.State.ExitCode}}", "early")
    log = store.podman("logs", "early")
    if code != "143" or took > 20:
        raise Failed(f"exit code {code} after {took:.1f} s: {log}")
    rows.tell("stop, while it reads its settings", f"exit code 143 after {took:.1f} s")
    store.podman("rm", "-f", "early")


def build(tars):
    for program in ("buildah", "podman", "crun"):
        if shutil.which(program) is None:
            print(f"containers: skipped: no {program}")
            return 0
    if not os.path.exists(os.path.join(BUILD, "locod")):
        print("containers: skipped: no build (LOCO_BUILD=DIR), of which the peer outside is")
        return 0
    with tempfile.TemporaryDirectory(prefix="loco-containers-") as folder:
        store = Store(folder)
        print("| image | tried | seen | seconds |\n|---|---|---|---|")
        try:
            for arch, tar in tars.items():
                rows = Rows(arch)
                with emulated(arch):
                    added = store.build(arch, os.path.abspath(tar))
                    rows.tell("build", f"{added / 1e6:.1f} MB above its base")
                    runs(store, arch, rows, folder)
        except Failed as why:
            print(f"containers: {why}")
            return 1
        finally:
            store.close()
    return 0


def runs(store, arch, rows, folder):
    os.makedirs(f"{folder}/{arch}")
    for check in (refuses, starts, lives, ends):
        check(store, f"loco-{arch}", rows, f"{folder}/{arch}", 1 if arch == HERE else 10)


if __name__ == "__main__":
    sys.exit("see containers.py --build")
