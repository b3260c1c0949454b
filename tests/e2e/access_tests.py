"""access_tests.py - tokens of the API, invitations to a run, what locod says
when it cannot run."""
import base64
import http.server
import json
import os
import re
import shutil
import signal
import socket
import tempfile
import threading
import time
import urllib.error
import urllib.request

from e2e_registry import test
from swarm import (LOCO, LOCOD, ROOT, SCALE, Swarm, check, run, wait_for)


def ask(address, path, token=None, method="GET", host=None, user=False):
    """Status code and text of one request to a daemon."""
    headers = {"Host": host} if host else {}
    if token and user:
        words = base64.b64encode(f"me:{token}".encode()).decode()
        headers["Authorization"] = f"Basic {words}"
    elif token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(f"http://{address}{path}", method=method,
                                     headers=headers)
    try:
        with urllib.request.build_opener(
                urllib.request.ProxyHandler({})).open(request, timeout=30) as r:
            return r.status, r.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def tokens_of(peer, *more):
    lines = run(LOCO, "access", "--state", peer.state, *more).stdout.split("\n")
    return dict(line.split() for line in lines if line)


@test("an API beyond loopback answers whoever shows a token, as far as it goes",
      180)
def tokens():
    with Swarm(peers=1, rounds=1000000, period=10) as s:
        one = s.peer()
        one.start("--run", s.yaml, "--control", "0.0.0.0:0",
                  "--control-hosts", "box.example").wait_up()
        with open(os.path.join(one.state, "control"), encoding="ascii") as f:
            port = f.read().strip().rsplit(":", 1)[1]
        at = f"127.0.0.1:{port}"
        mode = os.stat(os.path.join(one.state, "control.tokens")).st_mode
        check(mode & 0o777 == 0o600, f"mode {mode:o}")
        mine = tokens_of(one)
        check(set(mine) == {"read", "control"}, f"{mine}")
        for path in ("/", "/api/v1/status", "/metrics", "/api/v1/history"):
            check(ask(at, path)[0] == 401, f"{path} without a token")
            check(ask(at, path, mine["read"])[0] == 200, f"{path} with one")
            check(ask(at, path, mine["read"], user=True)[0] == 200,
                  f"{path} with a password")
            check(ask(at, path, mine["read"], host="evil.example")[0] == 403,
                  f"{path} under another name")
        check(ask(at, "/healthz")[0] == 200, "/healthz wants a token")
        check(ask(at, "/api/v1/status", mine["read"], host="box.example")[0]
              == 200, "our own name was refused")
        code, said = ask(at, "/api/v1/pause", mine["read"], "POST")
        check(code == 403 and "only allows reading" in said, f"{code} {said}")
        for words, want in (("name=upload_bytes_per_s&value=900000", 202),
                            ("name=upload_bytes_per_s&value=many", 400),
                            ("name=schedule&value=sometimes", 400),
                            ("name=state&value=/tmp", 400),
                            ("name=run&value=x", 400), ("name=quota", 400)):
            path = "/api/v1/set?" + words
            check(ask(at, path, mine["read"], "POST")[0] == 403, path)
            code, said = ask(at, path, mine["control"], "POST")
            check(code == want and len(said) > 5, f"{path}: {code} {said}")
        one.wait_status(lambda t: t["caps"]["upload_bytes_per_s"] == 900000,
                        "the cap holds")
        # The commands find the token in the state directory, or are told it.
        one.wait_state("training", "averaging")
        run(LOCO, "pause", "--state", one.state)
        one.wait_state("paused")
        run(LOCO, "resume", "--control", at, code=6)
        run(LOCO, "resume", "--control", at,
            env={**os.environ, "LOCO_TOKEN": mine["control"]})
        one.wait_state("training", "averaging")
        new = tokens_of(one, "--new")
        check(not set(new.values()) & set(mine.values()), "not new")
        wait_for(lambda: ask(at, "/api/v1/status", mine["control"])[0] == 401,
                 "the old token has ended")
        check(ask(at, "/api/v1/status", new["read"])[0] == 200, "the new one")
        one.drain()


@test("a control socket in a file is for its owner, and all commands find it",
      120)
def unix_socket():
    with Swarm(peers=1, rounds=1000000, period=10) as s:
        one, path = s.peer(), s.path("control.sock")
        one.start("--run", s.yaml, "--control", f"unix:{path}").wait_up()
        mode = os.stat(path).st_mode
        check(mode & 0o077 == 0, f"mode {mode:o}")
        for words in (["--control", f"unix:{path}"], ["--state", one.state]):
            said = json.loads(run(LOCO, "status", "--json", *words).stdout)
            check(said["peer_id"] == one.peer_id()["peer_id"], f"{said}")
        run(LOCO, "peers", "--control", f"unix:{path}")
        one.wait_state("training", "averaging")
        run(LOCO, "pause", "--control", f"unix:{path}")
        one.wait_state("paused")
        one.drain()


@test("a token ends though there is a mistake in the settings",
      120)
def renewed_beside_a_mistake():
    with Swarm(peers=1, rounds=1000000, period=10) as s:
        one = s.peer()
        settings = s.path("locod.yaml")
        with open(settings, "w", encoding="ascii") as f:
            f.write('threads: "1"\n')
        one.start("--run", s.yaml, "--config", settings, "--control-token",
                  "always").wait_up()
        with open(os.path.join(one.state, "control"), encoding="ascii") as f:
            at = f.read().strip()
        old = tokens_of(one)
        check(ask(at, "/api/v1/status", old["read"])[0] == 200, "the token")
        with open(settings, "w", encoding="ascii") as f:
            f.write('thread: "1"\n')
        new = tokens_of(one, "--new")
        wait_for(lambda: ask(at, "/api/v1/status", old["read"])[0] == 401,
                 "the old token has ended")
        check(ask(at, "/api/v1/status", new["read"])[0] == 200, "the new one")
        check("settings stay as they are" in one.log(), one.log())
        one.drain()


@test("SIGHUP at any moment of a start that fails and of an end does no harm",
      120)
def hangups():
    def ignore():  # until locod takes it
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with Swarm(peers=1, rounds=1000000, period=10) as s, \
            socket.create_server(("127.0.0.1", 0)) as held:
        one = s.peer()
        for listen, code in ((held.getsockname()[1], 6), (0, 0)):
            one.start("--run", s.yaml, listen=f"127.0.0.1:{listen}",
                      before=ignore)
            if code == 0:
                one.wait_up()
                one.signal(signal.SIGTERM)
                one.signal(signal.SIGTERM)
            end = time.monotonic() + 60 * SCALE
            while one.process.poll() is None:
                check(time.monotonic() < end, "it does not end")
                one.process.send_signal(signal.SIGHUP)
            check(one.process.returncode == code,
                  f"{one.process.returncode}, not {code}: {one.log()}")


def invite(s, to, *more):
    done = run(LOCO, "run", "invite", s.yaml, "--host",
               f"127.0.0.1:{to.port}", *more)
    number = re.match(r"invitation (\d+)", done.stderr)
    check(number, done.stderr)
    return done.stdout.strip(), number[1]


@test("a settings file with an invitation is its owner's: loco config set keeps its "
      "mode, and locod warns where others can read it", 120)
def secret_settings():
    with Swarm(peers=1, rounds=100000, settings={"invited": "true"}) as s:
        s.start()
        s.wait_training()
        invitation = run(LOCO, "run", "invite", s.yaml, "--host",
                         f"127.0.0.1:{s.peers[0].port}").stdout.strip()
        settings = s.path("locod.yaml")
        old = os.umask(0)
        try:
            run(LOCO, "config", "set", "join", invitation, "--config", settings)
            check(os.stat(settings).st_mode & 0o777 == 0o600, "a new file")
            for mode in (0o640, 0o604):
                os.chmod(settings, mode)
                run(LOCO, "config", "set", "join", invitation, "--config",
                    settings)
                check(os.stat(settings).st_mode & 0o777 == mode, oct(mode))
        finally:
            os.umask(old)
        warning = "holds an invitation, and every account"
        guest = s.peer()
        for mode, uri, warns in ((0o604, None, True), (0o640, None, False),
                                 (0o604, s.uri(), False)):
            if uri:
                run(LOCO, "config", "set", "join", uri, "--config", settings)
            os.chmod(settings, mode)
            guest.start("--config", settings)
            guest.wait_up()
            check((warning in guest.log()) == warns,
                  f"{oct(mode)} {uri}: {guest.log()}")
            guest.kill()


@test("a run for invited peers takes them, refuses others with the reason, and "
      "lets go of who is revoked", 240)
def invited():
    with Swarm(peers=2, rounds=1000000, period=20, min_peers=2,
               settings={"invited": "true"}) as s:
        one = s.peer().start("--run", s.yaml).wait_up()
        wait_for(lambda: f"loco run invite {s.yaml} --host "
                 f"127.0.0.1:{one.port}" in one.log(), "it says how to invite")
        guest, number = invite(s, one, "--note", "the guest")
        other, _ = invite(s, one)
        check("&" not in guest and "?invite=" in guest, guest)
        two = s.peer().start("--join", other).wait_up()
        for peer in (one, two):
            peer.wait_round(1)
        # Without: told why, exit code 7, nothing learned.
        bare = s.peer().start("--join", s.uri())
        bare.wait_exit(7)
        check("invited peers only" in bare.log(), bare.log()[-500:])
        check(not os.path.exists(os.path.join(bare.state, "run.manifest")),
              "it was given the manifest")
        # One whose signature is spoilt.
        at = guest.index("invite=") + 7 + 100
        spoilt = guest[:at] + ("A" if guest[at] != "A" else "B") + \
            guest[at + 1:]
        s.peer().start("--join", spoilt).wait_exit(7)
        said = run(LOCOD, "--state", s.path("cut"), "--join", guest[:-7],
                   code=2).stderr
        check("cut off" in said, said)
        # The guest comes in by any of them, and restarts.
        three = s.peer().start("--join", guest).wait_up()
        three.wait_status(lambda t: t["peers_in_round"] == 3, "three in it")
        three.kill()
        three.start("--join", guest).wait_up()
        three.wait_status(lambda t: t["peers_in_round"] == 3, "and again")
        run(LOCO, "run", "revoke", s.yaml, number, "--state", one.state)
        for peer in (one, two):
            peer.wait_status(lambda t: t["peers_in_round"] == 2,
                             "the guest is out")
            check("revoked" in peer.log(whole=True), "not said")
        three.wait_status(lambda t: "revoked" in t["reason"],
                          "the guest knows why")
        three.kill()
        # Both remember it over a restart.
        two.drain()
        two.start("--join", other).wait_up()
        two.wait_status(lambda t: t["peers_in_round"] == 2, "back")
        four = s.peer().start("--join", guest.replace(
            f":{one.port}/", f":{two.port}/"))
        four.wait_exit(7)
        check("revoked" in four.log(), four.log()[-500:])


def troubles():
    with open(os.path.join(ROOT, "daemon/settings/trouble.def"), encoding="ascii") as f:
        return dict(re.findall(r'TROUBLE\(\w+,\s*"([a-z-]+)",\s*(\w+)\)',
                               f.read()))


EXIT_CODES = {"OK": 0, "FAILURE": 1, "USAGE": 2, "CONFIG": 3, "STATE": 4,
              "IDENTITY": 5, "NETWORK": 6, "INCOMPATIBLE": 7, "DEVICE": 8,
              "RESOURCES": 9}


@test("every trouble of locod and loco is in TROUBLESHOOTING.md with its exit "
      "code", 60)
def troubleshooting():
    with open(os.path.join(ROOT, "deploy/TROUBLESHOOTING.md"),
              encoding="utf-8") as f:
        page = dict(re.findall(r"^\| `([a-z-]+)` \| (\d) \| ..........",
                               f.read(), re.M))
    want = {name: str(EXIT_CODES[code.removeprefix("LOCO_EXIT_")])
            for name, code in troubles().items()}
    check(page == want, f"only in one of them: {page.items() ^ want.items()}")
    # Nothing in the table that no code says.
    source = ""
    for base, _, names in os.walk(os.path.join(ROOT, "daemon")):
        for name in names:
            if name.endswith(".c"):
                with open(os.path.join(base, name), encoding="utf-8") as f:
                    source += f.read()
    with open(os.path.join(ROOT, "daemon/settings/trouble.def"), encoding="ascii") as f:
        rows = re.findall(r"TROUBLE\((\w+),", f.read())
    unused = [r for r in rows if f"TROUBLE_{r}" not in source
              and r not in ("name",)]
    check(not unused, f"never said: {unused}")


@test("what keeps locod from running is said with its id", 120, smoke=True)
def ids():
    with Swarm(peers=1, rounds=1000000, period=10) as s:
        one = s.peer().start("--run", s.yaml).wait_up()
        held = socket.create_server(("127.0.0.1", 0))
        taken = held.getsockname()[1]
        with open(s.path("file"), "w", encoding="ascii") as f:
            f.write("x")
        with open(s.path("bad.yaml"), "w", encoding="ascii") as f:
            f.write("thread: 1\n")
        os.makedirs(s.path("shown"))
        with open(s.path("shown/control.tokens"), "w", encoding="ascii") as f:
            f.write("read " + 40 * "a" + "\n")
        os.chmod(s.path("shown/control.tokens"), 0o644)
        os.makedirs(s.path("key"))
        with open(s.path("key/identity.key"), "w", encoding="ascii") as f:
            f.write("nothing\n")
        os.chmod(s.path("key/identity.key"), 0o600)
        start = ["--listen", "127.0.0.1:0", "--run", s.yaml]
        new = ["--state", s.path("new")]
        for arguments, want in (
                (["--stat", "x"], "usage"), (new, "no-run"),
                (new + ["--join", "loco://x"], "uri"),
                (new + ["--join", f"loco://no.such.invalid:1/{s.run_id}"],
                 "bootstrap-name"),
                (new + start + ["--config", s.path("bad.yaml")], "settings"),
                (new + ["--run", s.path("file")], "manifest"),
                (["--state", s.path("file/x")] + start, "state-dir"),
                (["--state", one.state] + start, "state-in-use"),
                (["--state", s.path("key")] + start, "identity"),
                (new + ["--run", s.yaml, "--listen", "here"], "address"),
                (new + ["--run", s.yaml, "--listen", "192.0.2.1:0"], "listen"),
                (new + ["--run", s.yaml, "--listen", f"127.0.0.1:{taken}"],
                 "port-in-use"),
                (new + start + ["--control", "here"], "control"),
                (new + start + ["--control", f"127.0.0.1:{taken}"],
                 "control-in-use"),
                (["--state", s.path("shown")] + start
                 + ["--control", "0.0.0.0:0"], "tokens"),
                (new + start + ["--device", "cuda", "--gpu-plugin", "/none"],
                 "device")):
            code = EXIT_CODES[troubles()[want].removeprefix("LOCO_EXIT_")]
            said = run(LOCOD, *arguments, code=code).stderr
            check(said.rstrip().endswith(f"[{want}]"),
                  f"{arguments}: {said}, not [{want}]")
        # A copied state directory: the same identity, another lock.
        os.makedirs(s.path("copy"))
        with open(os.path.join(one.state, "identity.key"),
                  encoding="ascii") as f:
            key = f.read()
        with open(s.path("copy/identity.key"), "w", encoding="ascii") as f:
            f.write(key)
        os.chmod(s.path("copy/identity.key"), 0o600)
        said = run(LOCOD, "--state", s.path("copy"), *start, code=5).stderr
        check("[identity-twice]" in said and str(one.process.pid) in said,
              said)
        one.drain()
        again = s.peer()
        again.state = s.path("copy")
        again.start("--run", s.yaml).wait_up()
        again.drain()
        held.close()


def says(want, *words, command=LOCO, env=None):
    """A command that gives up: the row's exit code, its id at the end."""
    code = EXIT_CODES[troubles()[want].removeprefix("LOCO_EXIT_")]
    said = run(command, *words, code=code, env=env).stderr
    last = said.rstrip().split("\n")[-1]
    check(last.startswith("loco: ") and last.endswith(f" [{want}]"), f"loco {' '.join(words)}: {said}, not [{want}]")


class Stranger(http.server.BaseHTTPRequestHandler):
    """Answers, and is no daemon."""

    def do_GET(self):  # noqa: N802
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_):
        pass


@test("what loco says before it gives up ends with its id", 120)
def ids_of_loco():
    with Swarm(peers=1, rounds=1000000, period=10) as s:
        data, empty = os.path.dirname(s.yaml), s.path("empty")
        os.makedirs(empty)

        def write(name, text):
            with open(s.path(name), "w", encoding="ascii") as f:
                f.write(text)
            return s.path(name)

        wrong = write("wrong", "nothing: 1\n")
        with open(s.yaml, encoding="utf-8") as f:
            altered = write("altered.yaml", f.read().replace("e2e", "e2f"))
        alone = shutil.copy(LOCO, s.path("loco"))  # no locod beside it
        other = {**os.environ, "HOME": empty, "XDG_STATE_HOME": empty,
                 "XDG_CONFIG_HOME": empty}
        uri = f"loco://127.0.0.1:9/{s.run_id}"
        create = ["run", "create", "--name", "x", "--model", "quickstart-1m",
                  "--out", s.path("new/run.yaml")]
        server = http.server.HTTPServer(("127.0.0.1", 0), Stranger)
        at = f"127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for want, words in (
                ("usage", ["stauts"]), ("usage", ["status", "--jsn"]),
                ("usage", ["peers", "--control"]), ("usage", ["run", "show"]),
                ("uri", ["join", "loco://x", "--state", empty]),
                ("settings", ["config", "validate", "--config", wrong]),
                ("manifest", ["run", "show", altered]),
                ("manifest", ["verify", wrong]),
                ("run-settings", create + ["--data", data, "--sync", "dilco"]),
                ("run-settings", create + ["--data", data, "--sync", "diloco",
                                           "--set", "sync.peroid=3"]),
                ("data", create + ["--data", empty, "--sync", "diloco"]),
                ("data", ["data", "fetch", s.yaml, "--out", empty]),
                ("download", ["data", "fetch", s.yaml, "--out", empty,
                              "--mirror", "file:///nowhere"]),
                ("model", ["eval", "--model", wrong, "--text", wrong]),
                ("checkpoint", ["verify", "--state", empty]),
                ("usage", ["verify", wrong, "--evidence", wrong]),
                ("evidence", ["verify", "--evidence", wrong]),
                ("file", ["verify", "--evidence", s.path("none")]),
                ("identity", ["keys", "--state", empty]),
                ("no-daemon", ["status", "--state", empty]),
                ("no-daemon", ["pause", "--control", "127.0.0.1:9"]),
                ("answer", ["status", "--control", at]),
                ("answer", ["peers", "--control", at, "--json"]),
                ("answer", ["rounds", "--control", at]),
                ("device", ["bench", "train", "--config", "quickstart-1m",
                            "--device", "cuda"]),
                ("state-dir", ["join", uri, "--state", wrong + "/x"]),
                ("file", ["data", "tokenize", s.path("none"), "--out",
                          s.path("ids")])):
            says(want, *words, env=other)
        says("program", "join", uri, "--state", empty, command=alone)
        says("program", "quickstart", command=alone)
        server.shutdown()
        server.server_close()
        one = s.peer().start("--run", s.yaml).wait_up()
        says("no-round", "rounds", "explain", "999999", "--state", one.state)
        one.drain()


@test("a file of evidence names who lied to anybody, and convicts nobody once a "
      "byte is changed", 30)
def evidence():
    seed = os.path.join(ROOT, "tests/fuzz/corpus/evidence/convicts")
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "evidence")
        with open(seed, "rb") as f:
            whole = f.read()[1:]  # the first byte is for the fuzz target

        def write(data):
            with open(path, "wb") as f:
                f.write(data)

        write(whole)
        said = json.loads(run(LOCO, "verify", "--evidence", path, "--json").stdout)
        check(said["convicts"] is True and said["finding"] == "differs"
              and said["round"] == 12 and said["elements"] == 1024
              and 0 < said["differ"] <= 1024 and said["largest"] > 0, f"{said}")
        text = run(LOCO, "verify", "--evidence", path).stdout
        check(f"convicts peer {said['short']} ({said['peer_id']})" in text
              and f"In run {said['run_id']}, round 12 of epoch 3" in text, text)
        for altered in (whole[:-1], whole + b"x", b"",
                        whole[:-1] + bytes([whole[-1] ^ 1])):
            write(altered)
            done = run(LOCO, "verify", "--evidence", path, code=1)
            check("convicts nobody" in done.stderr and done.stdout == "",
                  f"{done}")


@test("the example of two sites is a run that can be signed, shown and invited "
      "to", 60)
def two_sites():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "two-sites.yaml")
        shutil.copy(os.path.join(ROOT, "deploy/two-sites.yaml"), path)
        run_id = run(LOCO, "run", "sign", path).stdout.strip()
        check(re.fullmatch("[0-9a-f]{64}", run_id), run_id)
        shown = json.loads(run(LOCO, "run", "show", path, "--json").stdout)
        check(shown["run_id"] == run_id and shown["invited"] is True
              and shown["sync"]["period"] == 500
              and (shown["sites"], shown["site_rtt_ms"]) == (8, 5)
              and shown["round"]["min_peers"] == 12, f"{shown}")
        line = run(LOCO, "run", "invite", path, "--host", "[2001:db8::1]:7700",
                   "--days", 0).stdout.strip()
        check(line.startswith(f"loco://[2001:db8::1]:7700/{run_id}?invite="),
              line)
        run(LOCO, "run", "invite", path, "--host", "nowhere", code=2)
        run(LOCO, "run", "invite", path, "--host", "", code=2)
        os.rename(os.path.join(d, "author.key"), os.path.join(d, "away"))
        run(LOCO, "run", "invite", path, "--host", "a:1", code=5)
        with open(os.path.join(d, "run.invitations"), encoding="ascii") as f:
            check([w.split()[0] for w in f] == ["1", "2"], "the list")
