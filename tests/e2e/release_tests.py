"""release_tests.py - loco upgrade: real programs of two versions, signed.

A release is made of the programs of this build: in the next version only the
text of the version differs, which has the same length. So both train.
"""
import contextlib
import functools
import http.server
import io
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import threading

from e2e_registry import Skipped, test
from swarm import LOCO, LOCOD, PACED, ROOT, SCALE, Swarm, check, run, wait_for

ARCH = platform.machine()
PAGES = ("man/man1/loco.1", "man/man3/libloco.3", "man/man5/locod.yaml.5",
         "man/man8/locod.8")
ENDS = '#!/bin/sh\n[ "$1" != --version ] || exec echo locod %s\nexit 1\n'
# One that holds its lock and answers as it is told to: state, peers, seconds.
ANSWERS = """#!/usr/bin/env python3
import http.server, json, os, sys, threading
if sys.argv[1] == "--version":
    print("locod %s")
    sys.exit(0)
state = sys.argv[sys.argv.index("--state") + 1]
lock = open(os.path.join(state, "lock"), "w")
lock.write(str(os.getpid()) + " {3}" + chr(10))
lock.flush()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(dict(
            version="%s", state="{0}", peers_alive={1},
            pid=os.getpid())).encode())
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
with open(os.path.join(state, "control"), "w") as f:
    f.write("127.0.0.1:" + str(server.server_port) + chr(10))
threading.Timer({2}, lambda: os._exit(0)).start()
server.serve_forever()
"""
# One that takes the lock and ends.
DIES = ('#!/bin/sh\n[ "$1" != --version ] || exec echo locod %s\n'
        'while [ "$1" != --state ]; do shift; done\n'
        'echo "$$ %s" >"$2/lock"\nexit 1\n')
# One that hears that it is to restart, and is the next program, which ends,
# before its answer is out.
HEARS = """
import http.server, json, os, sys
state, version = sys.argv[1:]
lock = open(os.path.join(state, "lock"), "r+b")
def say(word):
    lock.seek(0)
    lock.write(f"{os.getpid()} {word}".ljust(63).encode() + bytes([10]))
    lock.flush()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(dict(
            version=version, state="training", peers_alive=1,
            pid=os.getpid())).encode())
    def do_POST(self):
        say("again")
        os._exit(1)
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
with open(os.path.join(state, "control"), "w") as f:
    f.write("127.0.0.1:" + str(server.server_port) + chr(10))
say(version)
print("here", flush=True)
server.serve_forever()
"""
HANGS = ('#!/bin/sh\n[ "$1" != --version ] || exec echo locod %s\n'
         "exec sleep 1000\n")


def version():
    return run(LOCO, "--version").stdout.split()[1]


def next_version(n=1):
    """Of the same length, newer than ours, and than those with a smaller n."""
    first, second, third = version().split(".")
    check(n < 10, "its number needs one character more")
    return f"{'9' * len(first)}.{n:0{len(second)}}.{third}"


def file_name(number):
    return f"loco-{number}-linux-{ARCH}.tar.gz"


def release(folder, number, locod=None, **about):
    """A release file; locod: a script in the place of that program."""
    facts = {"version": number, "arch": ARCH, "glibc": "2.31",
             "protocols": protocols(), "time": "1", **about}
    top = file_name(number)[:-len(".tar.gz")]
    path = os.path.join(folder, file_name(number))
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        def add(name, data, mode=0o644):
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size, info.mode = len(data), mode
            tar.addfile(info, io.BytesIO(data))

        for name, program in (("loco", LOCO), ("locod", LOCOD)):
            with open(program, "rb") as f:
                data = f.read().replace(version().encode(), number.encode())
            add(f"bin/{name}", locod.encode() if locod and name == "locod"
                else data, 0o755)
        for page in PAGES:
            add(f"share/{page}.gz", b"")
        units = "share/systemd/user/"
        for name, where in (("install.sh", ""), ("locod.user.service", units),
                            ("loco-upgrade.user.service", units),
                            ("loco-upgrade.user.timer", units)):
            with open(os.path.join(ROOT, "deploy", name), "rb") as f:
                add(where + name.replace(".user", ""), f.read())
        add("ABOUT", "".join(f"{k} {v}\n" for k, v in facts.items()).encode())
    return path


def protocols():
    """The oldest and the newest that this tree speaks."""
    with open(os.path.join(ROOT, "proto/limits.h"), encoding="ascii") as f:
        words = dict(line.split()[1:3] for line in f
                     if line.startswith("#define PROTO_VERSION ") or
                     line.startswith("#define PROTO_OLDEST "))
    return f"{words['PROTO_OLDEST']} {words['PROTO_VERSION']}"


class Publisher:
    """A key, and a folder that a server shows."""

    def __init__(self, folder):
        if not shutil.which("minisign"):
            raise Skipped("minisign is not installed")
        self.folder = os.path.join(folder, "published")
        self.secret = os.path.join(folder, "publisher.key")
        os.mkdir(self.folder)
        run("minisign", "-G", "-W", "-p", self.secret + ".pub", "-s",
            self.secret)
        with open(self.secret + ".pub", encoding="ascii") as f:
            self.key = f.read().split("\n")[1]

    def publish(self):
        run("sh", os.path.join(ROOT, "deploy/release.sh"), self.folder,
            "--key", self.secret)

    def clear(self):
        """Without its files. The list stays: the next one's serial follows
        from it where both are made in one second."""
        for name in os.listdir(self.folder):
            if name.endswith(".tar.gz"):
                os.remove(self.path(name))

    def path(self, name="releases.json"):
        return os.path.join(self.folder, name)

    @contextlib.contextmanager
    def server(self):
        """Its address, as a URL of the list."""
        quiet = functools.partial(Quiet, directory=self.folder)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), quiet) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}/releases.json"
            finally:
                server.shutdown()
                thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Installed:
    """This version, installed by install.sh under a prefix of its own."""

    def __init__(self, folder, number=None):
        os.mkdir(os.path.join(folder, "disk"))
        os.symlink("disk", os.path.join(folder, "home"))
        self.prefix = os.path.join(folder, "home", "prefix")
        made = os.path.join(folder, "made")
        os.makedirs(made, exist_ok=True)
        self.install(release(made, number or version()))
        self.loco = os.path.join(self.prefix, "bin/loco")
        self.locod = os.path.join(self.prefix, "bin/locod")

    def install(self, *words, code=0):
        return run("sh", os.path.join(ROOT, "deploy/install.sh"), *words,
                   "--prefix", self.prefix, code=code)

    def upgrade(self, state, *words, code=0):
        done = run(self.loco, "upgrade", "--state", state, *words, code=code,
                   timeout=200)
        return done.stdout + done.stderr

    def trees(self):
        lib = os.path.join(self.prefix, "lib")
        return sorted(n for n in os.listdir(lib) if n.startswith("loco-"))

    def says(self):
        return run(self.loco, "--version").stdout.split()[1]


def status_of(peer, condition, what, seconds=60):
    """As peer.wait_status(), of a daemon that need not be our child."""
    def holds():
        status = peer.status()
        return status and condition(status) and status
    return wait_for(holds, lambda: f"{what}; {peer.brief()}: "
                    f"{peer.log()[-500:]}", seconds)


def end(peer):
    """One that was started again is not our child."""
    with open(os.path.join(peer.state, "lock"), encoding="ascii") as f:
        pid = int(f.read().split()[0])
    if pid != peer.process.pid and peer.status():
        os.kill(pid, signal.SIGKILL)


def script(swarm, line):
    """A program of one line of sh."""
    path = swarm.path("starts")
    with open(path, "w", encoding="ascii") as f:
        f.write(f"#!/bin/sh\n{line}\n")
    os.chmod(path, 0o755)
    return path


def files_of(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


@test("loco upgrade: a running peer becomes the next release in its own process, "
      "trains beside the version before, and goes back", 300)
def upgrades():
    with Swarm(peers=2, rounds=100000) as s:
        publisher = Publisher(s.dir)
        here = Installed(s.dir)
        first = s.peer().start("--run", s.yaml, *PACED).wait_up()
        second = s.peer().start("--join", s.uri(), *PACED,
                                program=here.locod).wait_up()
        first.wait_round(2)
        was = second.wait_status(lambda t: t["peers_in_round"] == 2, "both")
        n_files = files_of(was["pid"])
        with publisher.server() as url:
            words = ("--list", url, "--key", publisher.key)
            release(publisher.folder, version())
            publisher.publish()
            said = here.upgrade(second.state, *words)
            check(said.startswith("up to date") and "the list is of 20" in said,
                  said)
            release(publisher.folder, next_version())
            publisher.publish()
            said = here.upgrade(second.state, *words, "--check")
            check(said.startswith("available: ") and next_version() in said, said)
            check(here.says() == version(), "--check has installed it")
            said = json.loads(here.upgrade(second.state, *words, "--yes",
                                           "--json").split("\n")[0])
            check(said["result"] == "upgraded", said)
        now = second.status()
        check((now["version"], now["pid"]) == (next_version(), was["pid"]), now)
        check(not os.path.exists(os.path.join(second.state, "upgrade.tar.gz")),
              "the download was left behind")
        at = first.status()["round"]
        second.wait_round(at + 2)
        first.wait_status(lambda t: t["peers_in_round"] == 2, "both")
        wait_for(lambda: files_of(was["pid"]) <= n_files, "open files are left")
        check(len(here.trees()) == 2, here.trees())
        here.upgrade(second.state, "--back")
        now = second.wait_status(lambda t: t["version"] == version() and
                                 t["state"] in ("training", "averaging"),
                                 "the version before")
        check((now["pid"], len(here.trees())) == (was["pid"], 1), here.trees())
        at = first.status()["round"]
        second.wait_round(at + 2)
        check(not any(p.status()["fork"] for p in s.peers), "a fork")
        second.drain()
        first.drain()
        here.install("--uninstall")
        check(not os.path.exists(os.path.join(here.prefix, "lib")),
              "something is left behind")


@test("loco upgrade: a release that ends, hangs, stands outside of the run or dies "
      "while it syncs is taken back, also when the upgrade itself was killed, "
      "and is not tried twice", 300)
def goes_back():
    with Swarm(peers=2, rounds=100000) as s, contextlib.ExitStack() as stack:
        publisher = Publisher(s.dir)
        here = Installed(s.dir)
        first = s.peer().start("--run", s.yaml, *PACED).wait_up()
        # Its folder and its log go away, as a terminal's do.
        second = s.peer()
        gone = s.path("gone")
        os.mkdir(gone)
        starts = script(s, f'cd {gone} && exec {here.locod} "$@" >log')
        second.start("--join", s.uri(), *PACED, program=starts).wait_up()
        stack.callback(end, second)
        shutil.rmtree(gone)
        words = ("--list", publisher.path(), "--key", publisher.key, "--yes",
                 "--patience", str(2 * SCALE))

        def offer(number, script):
            release(publisher.folder, number,
                    locod=script.replace("%s", number))
            publisher.publish()

        def is_back():
            check(here.says() == version(), "the new version is in use")
            status_of(second, lambda t: t["version"] == version() and
                      t["peers_in_round"] == 2, "it takes part again")

        first.wait_round(2)
        offer(next_version(1), ENDS)
        said = here.upgrade(second.state, *words, code=1)
        check("did not come up, and the version before is in use" in said, said)
        is_back()
        said = here.upgrade(second.state, *words, code=1)
        check("did not come up here before" in said, said)
        offer(next_version(2), HANGS)
        here.upgrade(second.state, *words, code=1)
        is_back()
        offer(next_version(4), ANSWERS.format("waiting", 1, 1000, "%s"))
        said = here.upgrade(second.state, *words, code=1)
        check("the new version answers" in said, said)
        is_back()
        offer(next_version(5), ANSWERS.format("syncing", 2, 3, "%s"))
        said = here.upgrade(second.state, *words, code=1)
        check("fetches the state" in said, said)
        is_back()
        offer(next_version(6), DIES)
        here.upgrade(second.state, *words, code=1)
        is_back()
        # Killed in the middle: the next one ends what was begun.
        offer(next_version(7), HANGS)
        broken = subprocess.Popen(
            [here.loco, "upgrade", "--state", second.state, *words[:-1],
             "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: here.says() == next_version(7) and
                 not second.status(), "the new version hangs")
        broken.kill()
        broken.wait()
        said = here.upgrade(second.state, *words, "--check", code=1)
        check("loco upgrade without --check ends it" in said, said)
        said = here.upgrade(second.state, *words, code=1)
        check("was broken off" in said and "did not come up" in said, said)
        is_back()
        # Somebody ends the new version: that is no fault of it.
        offer(next_version(8), ANSWERS.format("syncing", 2, 3, "ending"))
        said = here.upgrade(second.state, *words)
        check("the daemon ended meanwhile" in said, said)
        check(here.says() == next_version(8) and not second.status(), said)


@test("loco upgrade: a daemon in an emulator, of which /proc tells the emulator's "
      "program, is upgraded and goes back like any other", 300)
def emulated():
    emulator = shutil.which(f"qemu-{ARCH}") or shutil.which(f"qemu-{ARCH}-static")
    if not emulator:
        raise Skipped(f"qemu-{ARCH} (qemu-user) is not installed")
    with Swarm(peers=2, rounds=100000) as s, contextlib.ExitStack() as stack:
        publisher = Publisher(s.dir)
        here = Installed(s.dir)
        first = s.peer().start("--run", s.yaml, *PACED).wait_up()
        second = s.peer()
        starts = script(s, f'exec {emulator} {here.locod} "$@"')
        second.start("--join", s.uri(), *PACED, program=starts).wait_up()
        stack.callback(end, second)
        was = second.wait_status(lambda t: t["peers_in_round"] == 2, "both")
        told = os.readlink(f"/proc/{was['pid']}/exe")
        check(os.path.basename(told).startswith("qemu-"), told)
        words = ("--list", publisher.path(), "--key", publisher.key, "--yes")
        release(publisher.folder, next_version(1),
                locod=ENDS.replace("%s", next_version(1)))
        publisher.publish()
        said = here.upgrade(second.state, *words, code=1)
        check("did not come up, and the version before is in use" in said, said)
        status_of(second, lambda t: t["version"] == version() and
                  t["peers_in_round"] == 2, "the version before")
        end(second)
        wait_for(lambda: not second.status(), "it is gone")
        second.start("--join", s.uri(), *PACED, program=starts).wait_up()
        was = second.wait_status(lambda t: t["peers_in_round"] == 2, "both")
        told = os.readlink(f"/proc/{was['pid']}/exe")
        check(os.path.basename(told).startswith("qemu-"), told)
        release(publisher.folder, next_version(2))
        publisher.publish()
        here.upgrade(second.state, *words)
        now = second.status()
        check((now["version"], now["pid"]) == (next_version(2), was["pid"]), now)
        first.wait_status(lambda t: t["peers_in_round"] == 2, "both")
        here.upgrade(second.state, "--back")
        second.wait_status(lambda t: t["version"] == version() and
                           t["peers_in_round"] == 2, "the version before")
        second.drain()
        first.drain()


@test("loco upgrade: a daemon that heard it and whose answer was lost went on to "
      "the new version, and goes back from one that ends", 120)
def answer_lost():
    with Swarm(peers=1, rounds=100000) as s, contextlib.ExitStack() as stack:
        publisher = Publisher(s.dir)
        here = Installed(s.dir)
        release(publisher.folder, next_version(),
                locod=ENDS.replace("%s", next_version()))
        publisher.publish()
        one = s.peer().start("--run", s.yaml, program=here.locod).wait_up()
        stack.callback(end, one)
        one.kill()  # what it ran stays in STATE/lock
        with subprocess.Popen([sys.executable, "-c", HEARS, one.state,
                               version()], stdout=subprocess.PIPE) as hears:
            stack.callback(hears.kill)
            check(hears.stdout.readline() == b"here\n", "no daemon")
            said = here.upgrade(one.state, "--list", publisher.path(), "--key",
                                publisher.key, "--yes", code=1)
        check("did not come up, and the version before is in use" in said, said)
        check(here.says() == version(), "the new version is in use")
        status_of(one, lambda t: t["version"] == version(),
                  "the version before")


@test("loco upgrade believes no address that a killed daemon left behind, and a "
      "daemon that is to stop does not start again", 120)
def nobody_there():
    with Swarm(peers=1, rounds=100000) as s:
        publisher = Publisher(s.dir)
        here = Installed(s.dir)
        release(publisher.folder, next_version())
        publisher.publish()
        one = s.peer().start("--run", s.yaml, program=here.locod).wait_up()
        run(LOCO, "drain", "--restart", "--state", one.state)
        one.signal(signal.SIGTERM)
        one.wait_exit(0)
        one.start("--run", s.yaml, program=here.locod).wait_up()
        # One that does not hear stays as it is.
        words = ("--list", publisher.path(), "--key", publisher.key, "--yes")
        one.signal(signal.SIGSTOP)
        said = here.upgrade(one.state, *words, code=6)
        check("does not answer; it stays as it is" in said, said)
        check(here.says() == version(), "the new version is in use")
        one.signal(signal.SIGCONT)
        wait_for(lambda: (one.status() or {}).get("version") == version(),
                 "it answers")
        one.kill()
        # Somebody else has the port by now.
        asked = []

        class Handler(Quiet):
            def do_GET(self):
                asked.append(self.path)
                self.send_error(404)
            do_POST = do_GET

        with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever).start()
            with open(os.path.join(one.state, "control"), "w",
                      encoding="ascii") as f:
                f.write(f"127.0.0.1:{server.server_port}\n")
            said = here.upgrade(one.state, *words)
            server.shutdown()
        check("no daemon runs here" in said and not asked, f"{said} {asked}")
        check(here.says() == next_version(), "it is not installed")


@test("loco upgrade refuses an altered list or file, half a download, another "
      "key, an older list or version, another protocol", 120)
def refuses():
    with Swarm(peers=1) as s:
        publisher = Publisher(s.dir)
        here = Installed(s.dir)
        state = s.path("state")
        os.mkdir(state)
        new = publisher.path(file_name(next_version()))

        def refused(words, *sentence, key=publisher.key, url=publisher.path()):
            trees = here.trees()
            said = here.upgrade(state, "--list", url, "--key", key, "--yes",
                                *words, code=sentence[0])
            check(sentence[1] in said, f"not '{sentence[1]}': {said}")
            check(here.trees() == trees and here.says() == version(),
                  "something was installed")

        def rewrite(path, change):
            with open(path, "rb") as f:
                data = f.read()
            with open(path, "wb") as f:
                f.write(change(data))
            return data

        off = here.upgrade(state, "--yes", code=2)
        check("no list of releases is named" in off, off)
        release(publisher.folder, next_version())
        publisher.publish()
        first_list = rewrite(publisher.path(), lambda b: b)
        first_signature = rewrite(publisher.path("releases.json.minisig"),
                                  lambda b: b)
        with publisher.server() as url:
            good = rewrite(new, lambda b: b[:5000] + b"altered!" + b[5008:])
            refused((), 1, "is not the file of the list")
            refused((), 1, "do not have the hash of the file", url=url)
            rewrite(new, lambda b: good[:len(good) // 2])
            refused((), 1, "is not the file of the list")
            refused((), 6, file_name(next_version()), url=url)
            rewrite(new, lambda b: good)
        rewrite(publisher.path(), lambda b: b.replace(b'"2.31"', b'"2.30"'))
        refused((), 1, "it was altered or is damaged")
        rewrite(publisher.path(), lambda b: first_list)
        stranger = Publisher(s.data)
        refused((), 1, "signed with another key", key=stranger.key)
        refused((), 1, "no public key of minisign", key="RWnone")
        os.remove(publisher.path("releases.json.minisig"))
        refused((), 1, "releases.json.minisig")
        publisher.publish()
        here.upgrade(state, "--list", publisher.path(), "--key", publisher.key,
                     "--check")
        # The first list was a true one, and is played back.
        rewrite(publisher.path(), lambda b: first_list)
        rewrite(publisher.path("releases.json.minisig"),
                lambda b: first_signature)
        refused((), 1, "it is an older list")
        os.remove(new)
        release(publisher.folder, "0.0.9")
        publisher.publish()
        refused((), 1, "older than this loco")
        release(publisher.folder, next_version(), protocols="200 201")
        publisher.publish()
        with open(os.path.join(state, "run.manifest"), "wb"):
            pass
        refused((), 1, "its peers would refuse it")
        publisher.clear()
        release(publisher.folder, next_version(), glibc="2.99")
        publisher.publish()
        refused((), 1, "with glibc")
        # A daemon that another program is.
        publisher.clear()
        release(publisher.folder, next_version())
        publisher.publish()
        os.remove(os.path.join(state, "run.manifest"))
        other = s.peer().start("--run", s.yaml).wait_up()
        state = other.state
        refused((), 1, "which is not of " + os.path.realpath(here.prefix))
        # A program that nobody installed so.
        done = run(LOCO, "upgrade", "--state", state, "--list", "x", "--key",
                   "y", code=1)
        check("was not installed by install.sh" in done.stderr, done.stderr)


@test("install.sh checks the signature of its file, with minisign and with "
      "openssl, and goes back to the version before", 120)
def signed_file():
    with Swarm(peers=1) as s:
        publisher = Publisher(s.dir)
        here = Installed(s.dir)
        new = release(publisher.folder, next_version())
        publisher.publish()
        stranger = Publisher(s.data)
        # The programs that are found: all, and all but minisign.
        without = s.path("programs")
        os.mkdir(without)
        for folder in os.environ["PATH"].split(":"):
            for name in os.listdir(folder) if os.path.isdir(folder) else ():
                if name != "minisign" and not os.path.lexists(
                        os.path.join(without, name)):
                    os.symlink(os.path.join(folder, name),
                               os.path.join(without, name))

        def install(key, code, sentence, **env):
            done = subprocess.run(
                ["sh", os.path.join(ROOT, "deploy/install.sh"), new, "--key",
                 key, "--prefix", here.prefix], capture_output=True, text=True,
                timeout=60 * SCALE, check=False, env={**os.environ, **env})
            said = done.stdout + done.stderr
            check(done.returncode == code and sentence in said, said)
            check(here.says() == (version() if code else next_version()),
                  "another version is in use")

        for env in ({}, {"PATH": without}):
            install(stranger.key, 1, "is not signed with the key", **env)
            install("RWnone", 1, "no public key of minisign", **env)
            with open(new, "rb") as f:
                good = f.read()
            with open(new, "wb") as f:
                f.write(good + b"\0")
            install(publisher.key, 1, "is not signed with the key", **env)
            with open(new, "wb") as f:
                f.write(good)
            install(publisher.key, 0, "has the signature of", **env)
            install(publisher.secret + ".pub", 0, "has the signature of", **env)
            here.install("--back")
            check(here.says() == version() and len(here.trees()) == 1,
                  here.trees())
        here.install("--back", code=1)
