"""command_tests.py - loco peers, join, top, config set, completion, manual."""
import glob
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from e2e_registry import Skipped, test
from swarm import BUILD, LOCO, ROOT, SCALE, Failed, Swarm, check, run, wait_for


def commands():
    """Every command, by the overview."""
    return [line[2:18].strip() for line in
            run(LOCO, "--help").stdout.splitlines() if line.startswith("  ")
            and not line.startswith("   ") and line[2].islower()
            and len(line) > 19 and line[18] == " "]


@test("every command has a help with an example, in the manual and in bash", 60)
def every_command():
    names = commands()
    check(len(names) > 25 and "run create" in names, f"{names}")
    page = run(LOCO, "manual", "1").stdout
    script = run(LOCO, "completion", "bash").stdout
    for name in names:
        if name == "quickstart":
            continue  # the script's own, where there is a source tree
        text = run(LOCO, *name.split(), "--help").stdout
        check("use: loco " + name in text and "\nexample:\n  loco" in text,
              f"loco {name} --help: {text[:300]}")
        check(".SS loco " + name.replace("-", "\\-") in page,
              f"{name} is not in the manual")
        check(f"'{name}'" in script, f"{name} is not completed")


@test("a wrong word suggests the right one in commands, options and settings",
      60)
def suggestions():
    for words, right in ((["stauts"], "loco status"),
                         (["run", "crate"], "loco run create"),
                         (["completion", "bsh"], "bash"),
                         (["peers", "--jsn"], "--json")):
        said = run(LOCO, *words, code=2).stderr
        check(right in said, f"{words}: {said}")
    with tempfile.TemporaryDirectory() as d:
        said = run(LOCO, "config", "set", "upload_byts_per_s", "1",
                   "--config", d + "/locod.yaml", code=3).stderr
        check("upload_bytes_per_s" in said, said)
        check(not os.path.exists(d + "/locod.yaml"), "it was written")


@test("config set changes one line and keeps the rest of locod.yaml", 60)
def config_set():
    with tempfile.TemporaryDirectory() as d:
        path = d + "/sub/locod.yaml"
        run(LOCO, "config", "set", "threads", "3", "--config", path)
        with open(path, "a", encoding="ascii") as f:
            f.write("# why\nlog: warn\n")
        run(LOCO, "config", "set", "log", "debug", "--config", path)
        run(LOCO, "config", "set", "lan", "off", "--config", path)
        with open(path, encoding="ascii") as f:
            text = f.read()
        check(text == 'threads: "3"\n# why\nlog: "debug"\nlan: "off"\n', text)
        run(LOCO, "config", "set", "threads", "many", "--config", path, code=3)
        run(LOCO, "config", "set", "log", 'x"y', "--config", path, code=2)
        with open(path, encoding="ascii") as f:
            check(f.read() == text, "a refused value changed the file")
        said = run(LOCO, "config", "sources", "--config", path).stdout
        check('threads: "3"  # file' in said, said)


def completed(words, program="loco"):
    """What bash offers after these words."""
    script = (f"source <({LOCO} completion bash); COMP_WORDS=({program} "
              + " ".join(f"'{w}'" for w in words)
              + f"); COMP_CWORD={len(words)}; _{program}; "
              "printf '%s\\n' \"${COMPREPLY[@]}\"")
    done = subprocess.run(["bash", "-c", script], capture_output=True,
                          text=True, timeout=60 * SCALE)
    check(done.stderr == "", done.stderr)
    return done.stdout.split()


@test("bash completes commands, second words, options and values", 60)
def bash_completion():
    for words, want in ((["st"], {"status"}),
                        (["run", ""], {"create", "show", "sign"}),
                        (["run", "create", "--syn"], {"--sync"}),
                        (["rounds", "ex"], {"explain"}),
                        (["rounds", "--la"], {"--last"}),
                        (["status", "--j"], {"--json"})):
        got = set(completed(words))
        check(want <= got and len(got) < 12, f"{words}: {got}")
    check(set(completed(["--log", ""], "locod"))
          == {"debug", "info", "warn", "error"}, "values of --log")
    check("/usr" in completed(["export", "--state", "/us"]), "a directory")


@test("zsh and fish complete as bash does", 60)
def other_shells():
    if not (shutil.which("zsh") and shutil.which("fish")):
        raise Skipped("no zsh or no fish (apt-get install zsh fish)")
    with tempfile.TemporaryDirectory() as d:
        for shell in ("zsh", "fish"):
            path = f"{d}/_{shell}"
            with open(path, "w", encoding="utf-8") as f:
                f.write(run(LOCO, "completion", shell).stdout)
            run(shell, "-n", path)
        for line, want in (("loco sta", "status"), ("loco run cr", "create"),
                           ("loco run create --syn", "--sync"),
                           ("locod --log in", "info")):
            got = run("fish", "--no-config", "-c",
                      f"source {d}/_fish; complete -C '{line}'").stdout
            check(any(w.split("\t")[0].endswith(want)
                      for w in got.splitlines()), f"fish, {line}: {got!r}")
        # zsh completes only on a terminal.
        os.rename(f"{d}/_zsh", f"{d}/_loco")
        for line, want in (("loco statu\t", "loco status "),
                           ("loco run crea\t", "loco run create "),
                           ("loco run create --syn\t", "--sync ")):
            got = in_zsh(d, line)
            check(want in got, f"zsh, {line!r}: {got!r}")


def in_zsh(functions, keys):
    """What the line editor shows after these keys."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="dumb", PS1="ready> ")
        os.execvp("zsh", ["zsh", "-f", "-i"])
    seen = b""

    def until(mark):
        """What came up to the mark, which goes with it."""
        nonlocal seen
        end = time.monotonic() + 30 * SCALE
        while mark not in seen:
            ready, _, _ = select.select([fd], [], [],
                                        max(0, end - time.monotonic()))
            if not ready:
                raise Failed(f"zsh does not say {mark}: {seen}")
            seen += os.read(fd, 4096)
        before, seen = seen.split(mark, 1)
        return before

    try:
        os.write(fd, f"PS1='ready> '; fpath=({functions} $fpath); autoload -Uz"
                 " compinit; compinit -u -D; echo set''up\n".encode())
        until(b"setup\r\n")
        until(b"ready> ")
        # What is typed after the tab shows that the editor has done with it.
        os.write(fd, keys.encode() + b"END")
        return until(b"END").decode(errors="replace")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)


@test("the man pages are pages that groff accepts", 60)
def manual():
    tool = shutil.which("groff")
    if not tool:
        raise Skipped("no groff (apt-get install groff-base)")
    with open(os.path.join(ROOT, "daemon/client/libloco.3.in"),
              encoding="utf-8") as f:
        library = f.read()
    pages = [library] + [run(LOCO, "manual", s).stdout for s in "158"]
    for page in pages:
        done = subprocess.run([tool, "-man", "-ww", "-Tutf8", "-z"],
                              input=page, text=True, capture_output=True,
                              timeout=60 * SCALE)
        check(done.returncode == 0 and done.stderr == "", done.stderr)
    check("upload_bytes_per_s" in run(LOCO, "manual", "5").stdout, "settings")
    # The library's has the header's functions, as they are.
    with open(os.path.join(ROOT, "daemon/client/loco.h"),
              encoding="utf-8") as f:
        wanted = {" ".join(x.split()) for x in
                  re.findall(r"^LOCO_API ([^;]+;)", f.read(), re.M)}
    found = set(re.findall(r"^\.B ([a-z].*\);)$", library, re.M))
    check(len(wanted) > 10 and found == wanted, str(found ^ wanted))


PROGRAM = r"""
#include <loco.h>
#include <stdio.h>

int trainer_msg_decode = 1; /* a name of the library's inside */

int main(void)
{
    struct loco_options o = {.size = sizeof o, .state = "/nowhere"};
    char why[LOCO_ERRMSG_MAX];
    struct loco *l;
    int rv = loco_open(&l, &o, why);

    rv = rv == 0 ? loco_ready(l, 1000) : rv;
    printf("%d %s\\n", rv, why);
    return rv == LOCO_FAIL_NO_DAEMON ? 0 : trainer_msg_decode;
}
"""


@test("a C program links what is installed of libloco, shared and static", 60)
def links():
    if not shutil.which("pkg-config") or not shutil.which("cc"):
        raise Skipped("no pkg-config, or no cc")
    with tempfile.TemporaryDirectory() as d:
        run("cmake", "--install", BUILD, env=dict(os.environ, DESTDIR=d))
        lib = os.path.dirname(os.path.dirname(
            glob.glob(d + "/**/pkgconfig/loco.pc", recursive=True)[0]))
        env = dict(os.environ, PKG_CONFIG_SYSROOT_DIR=d,
                   PKG_CONFIG_LIBDIR=lib + "/pkgconfig", LD_LIBRARY_PATH=lib)
        with open(d + "/a.c", "w", encoding="ascii") as f:
            f.write(PROGRAM)
        for how, more in (("shared", []), ("static", ["--static"])):
            words = run("pkg-config", *more, "--cflags", "--libs", "loco",
                        env=env).stdout.split()
            if more:
                words = [x if x != "-lloco" else lib + "/libloco.a"
                         for x in words]
            run("cc", "-o", d + "/" + how, d + "/a.c", *words)
            done = run(d + "/" + how, env=env)
            check("locod" in done.stdout, done.stdout)
            needed = run("ldd", d + "/" + how, env=env).stdout
            check(("libloco.so.0" in needed) == (how == "shared"), needed)


@test("loco peers lists who is there with speeds, and marks who died", 240)
def peers():
    with Swarm(peers=3, rounds=100000) as s:
        s.start("--upload-bytes-per-s", "80000")
        s.wait_training()
        one, victim = s.peers[0], s.peers[2]

        def listed():
            return json.loads(run(LOCO, "peers", "--state", one.state,
                                  "--json").stdout)

        got = wait_for(lambda: (lambda o: o["links"] and all(
            p["rounds"] > 1 for p in o["peers"]) and o)(listed()),
            "three peers, each with a share")
        ids = {p.peer_id()["peer_id"] for p in s.peers}
        check({p["peer_id"] for p in got["peers"]} == ids, "other peers")
        check(got["peers"][0]["self"], "the peer itself is not the first")
        tokens = [p["tokens"] for p in got["peers"]]
        check(min(tokens) > 0 and max(tokens) <= 1.5 * min(tokens),
              f"shares: {tokens}")
        text = run(LOCO, "peers", "--state", one.state).stdout
        check(len(text.splitlines()) == 4 and "Mbit/s" in text
              and "this peer" in text, text)
        victim.kill()
        who = victim.peer_id()["peer_id"]

        def state():
            return {p["peer_id"]: p["state"]
                    for p in listed()["peers"]}.get(who)

        wait_for(lambda: state() == "lost",
                 lambda: f"the dead one is lost: {state()}")


class Terminal:
    """A program on a terminal of 100 columns."""

    def __init__(self, *command, rows=40):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm", COLUMNS="100", LINES=str(rows))
            os.environ.pop("NO_COLOR", None)
            os.execv(command[0], list(command))
        self.seen = ""

    def until(self, mark, seconds=60):
        end = time.monotonic() + seconds * SCALE
        while mark not in self.seen:
            left = end - time.monotonic()
            # A live view never stops writing: the clock has to be looked at.
            if left < 0 or not select.select([self.fd], [], [], left)[0]:
                raise Failed(f"'{mark}' is not there: {self.seen[-2000:]!r}")
            try:
                self.seen += os.read(self.fd, 1 << 16).decode(errors="replace")
            except OSError:  # its end is closed
                raise Failed(f"it ended without '{mark}': "
                             f"{self.seen[-2000:]!r}") from None

    def end(self):
        """The exit code."""
        try:
            while os.read(self.fd, 1 << 16):
                pass
        except OSError:
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


@test("loco top shows curve, rounds and peers on a terminal, lines in a pipe",
      240)
def top():
    with Swarm(peers=3, rounds=100000) as s:
        s.start("--upload-bytes-per-s", "80000", "--quota", "40")
        s.wait_training()
        s.peers[0].wait_round(3)
        t = Terminal(LOCO, "top", s.peers[0].state)
        for mark in ("loss", "reduce", "this peer", "bit/s", "tokens/s",
                     "(at most", "of 40.0 GB", "\033["):
            t.until(mark)
        victim = s.peers[2]
        victim.kill()
        t.until("is lost: ")
        os.kill(t.pid, signal.SIGINT)
        t.end()
        line = subprocess.Popen([LOCO, "top", s.peers[0].state], text=True,
                                stdout=subprocess.PIPE)
        first = line.stdout.readline()
        line.terminate()
        line.wait(30)
        check("round" in first and "\033" not in first, first)


@test("loco top watches daemons of other machines and runs by address, with the "
      "tokens of a file that nobody else can read", 180)
def top_machines():
    with Swarm(peers=1, rounds=100000) as s, Swarm(peers=1, rounds=100000) as r:
        s.start("--control-token", "always")
        r.start()
        at = []
        for peer in (s.peers[0], r.peers[0]):
            peer.wait_state("training", "averaging")
            with open(os.path.join(peer.state, "control"),
                      encoding="ascii") as f:
                at.append(f.read().strip())
        token = run(LOCO, "access", "--state", s.peers[0].state).stdout.split()
        names = s.path("machines")
        with open(names, "w", encoding="ascii") as f:
            f.write(f"# mine\n\n {at[0]}\t{token[1]}\n{at[1]}\n")
        os.chmod(names, 0o644)
        done = run(LOCO, "top", "--machines", names, code=1)
        check("chmod 600" in done.stderr, done.stderr)
        os.chmod(names, 0o600)
        t = Terminal(LOCO, "top", "--machines", names)
        for mark in (at[0], at[1], "2 daemons of several runs", "training"):
            t.until(mark)
        r.peers[0].kill()
        t.until(f"{at[1]}: no answer for ")
        t.until(f" s: no daemon answers at {at[1]}")
        os.kill(t.pid, signal.SIGINT)
        t.end()
        # A word is an address, too; without its token nothing is shown.
        done = run(LOCO, "top", at[0], "--patience", "2", code=6)
        check(f"the daemon of {at[0]} has not answered" in done.stderr and
              "HTTP 401" in done.stderr, done.stderr)
        t = Terminal(LOCO, "top", at[0], at[1])
        t.until(f"{at[0]}: no answer yet: {at[0]}/api/v1/status: HTTP 401")
        t.until(f"{at[1]}: no answer yet: no daemon answers at {at[1]}")
        os.kill(t.pid, signal.SIGINT)
        t.end()
        with socket.socket() as mute: # it takes the question, and is silent
            mute.bind(("127.0.0.1", 0))
            mute.listen(8)
            silent = f"127.0.0.1:{mute.getsockname()[1]}"
            t = Terminal(LOCO, "top", silent)
            t.until(f"{silent}: no answer yet: {silent}: Timeout was reached")
            os.kill(t.pid, signal.SIGINT)
            t.end()
        with open(names, "a", encoding="ascii") as f:
            f.write("one two three\n")
        done = run(LOCO, "top", "--machines", names, code=2)
        check("line 5: write ADDRESS" in done.stderr, done.stderr)


@test("loco join asks, takes part with a live view and leaves on Ctrl-C", 240)
def join():
    with Swarm(peers=2, rounds=100000) as s:
        s.start()
        s.wait_training()
        joiner = s.peer()
        t = Terminal(LOCO, "join", s.uri(), "--state", joiner.state,
                     "--listen", "127.0.0.1:0")
        t.until("Join this run? [y/N]")
        check("data" in t.seen and "traffic" in t.seen, t.seen)
        os.write(t.fd, b"n\n")
        check(t.end() == 0, "no is no error")
        t = Terminal(LOCO, "join", s.uri(), "--yes", "--state", joiner.state,
                     "--listen", "127.0.0.1:0")
        t.until("this peer")
        wait_for(lambda: (joiner.status() or {}).get("rounds_committed", 0)
                 > 1, "it commits rounds with the others")
        os.write(t.fd, b"\x03")
        t.until("finishing the current round")
        check(t.end() == 0, "it drained with another code")
        with open(joiner.state + "/locod.log", encoding="utf-8") as f:
            check("draining" in f.read(), "its log does not say so")
        check(s.peers[0].wait_status(lambda st: st["peers_alive"] == 2,
                                     "it left"), "it is still there")
        run(LOCO, "join", "loco://127.0.0.1:1/zz", code=2)


@test("keys backup and restore bring an identity back, by file and by words",
      120)
def keys():
    with Swarm(peers=1, rounds=2) as s, tempfile.TemporaryDirectory() as d:
        s.start()
        s.wait_finished()
        peer = s.peers[0]
        who = peer.peer_id()
        peer.drain()
        run(LOCO, "keys", "backup", "--state", peer.state, "--out", d + "/key")
        check(os.stat(d + "/key").st_mode & 0o777 == 0o600, "others read it")
        run(LOCO, "keys", "backup", "--state", peer.state, "--out", d + "/key",
            code=5)  # never overwritten
        words = run(LOCO, "keys", "backup", "--state", peer.state,
                    "--words").stdout
        check(len(words.split()) == 24, "24 words")
        run(LOCO, "keys", "restore", d + "/key", "--state", d + "/a")
        run(LOCO, "keys", "restore", "--words", "--state", d + "/b",
            input=words)
        for name in ("a", "b"):
            got = json.loads(run(LOCO, "keys", "--state", f"{d}/{name}",
                                 "--json").stdout)
            check(got == who, f"{got} is not {who}")
        said = run(LOCO, "keys", "restore", "--words", "--state", d + "/b",
                   input=words, code=5).stderr
        check("never overwritten" in said, said)
        wrong = words.replace(words.split()[3], "zzz", 1)
        said = run(LOCO, "keys", "restore", "--words", "--state", d + "/c",
                   input=wrong, code=5).stderr
        check("word " in said and not os.path.exists(d + "/c/identity.key"),
              said)
        run(LOCO, "keys", "backup", "--state", peer.state, code=2)
