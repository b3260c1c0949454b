"""share_tests.py - the line for others and its QR code, read back by zbar.

The code is drawn as a terminal or a browser would show it, and decoded by
zbarimg (Debian: zbar-tools); without it these tests are skipped.
"""
import os
import re
import shutil
import subprocess

import browser
from command_tests import Terminal
from dashboard_tests import need_browser, page_of, wait_page
from e2e_registry import Skipped, test
from swarm import LOCO, Swarm, check, run, wait_for

SCALE = 4  # pixels a module


def need_zbar():
    if not shutil.which("zbarimg"):
        raise Skipped("zbarimg is not installed (apt-get install zbar-tools)")


def decoded(picture):
    """What zbar reads in a picture; "": nothing."""
    done = subprocess.run(["zbarimg", "--quiet", "--raw", picture], text=True,
                          capture_output=True, timeout=60)
    return done.stdout.strip()


def picture_of(said, path, paper):
    """What a terminal of that background (grey, 0 to 255) shows, as a file."""
    dark = {" ": (0, 0), "\u2584": (0, 1), "\u2580": (1, 0), "\u2588": (1, 1)}
    rows = []
    for line in said.split("\n"):
        found = re.search(r"\033\[30;47m([^\033]*)\033\[0m", line)
        for half in (0, 1) if found else ():
            rows.append([0 if dark[c][half] else 255 for c in found[1]])
    check(rows, f"there is no code: {said!r}")
    wide = len(rows[0]) + 40
    edge = [[paper] * wide for _ in range(20)]
    rows = edge + [[paper] * 20 + r + [paper] * 20 for r in rows] + edge
    with open(path, "wb") as f:
        f.write(b"P5 %d %d 255\n" % (SCALE * wide, SCALE * len(rows)))
        for row in rows:
            f.write(bytes(v for v in row for _ in range(SCALE)) * SCALE)


def on_terminal(s, *settings):
    """loco run share on a terminal of 100 columns: what it says, exit code."""
    t = Terminal("/usr/bin/env", "-u", "LC_ALL", "-u", "LC_CTYPE", *settings,
                 LOCO, "run", "share", "--state", s.peers[0].state)
    try:
        while True:
            t.seen += os.read(t.fd, 1 << 16).decode()
    except OSError:  # its end is closed
        pass
    return t.seen.replace("\r", ""), t.end()


def everywhere(s, *arguments):
    """One peer that listens on all addresses, with its line."""
    s.peer().start("--run", s.yaml, "--mapping", "off", *arguments,
                   listen="0.0.0.0:0").wait_up()
    status = s.peers[0].wait_status(lambda t: t["share"]["uri"],
                                    "it has a line for others")
    return status["share"]["uri"]


@test("loco run share shows a line with which another peer joins, and a QR "
      "code that zbar reads on dark and on light terminals", 120)
def share():
    need_zbar()
    with Swarm(peers=2, rounds=100000) as s:
        uri = everywhere(s)
        check(f":{s.peers[0].port}" in uri and uri.endswith("/" + s.run_id) and
              "127.0.0.1" not in uri and "0.0.0.0" not in uri, uri)
        said, code = on_terminal(s, "LANG=C.UTF-8")
        check(code == 0 and f"loco join {uri}\n" in said, said)
        for paper in (0, 255):
            picture_of(said, s.path("code.pgm"), paper)
            read = decoded(s.path("code.pgm"))
            check(read == uri, f"on {paper} it reads {read!r}, not {uri}")
        # Whoever joins with it is in, and hands on the address that it used.
        s.peer().start("--join", uri, listen="127.0.0.1:0").wait_up()
        s.wait_training()
        second = s.peers[1].wait_status(lambda t: t["share"]["uri"],
                                        "it has a line, too")
        check(second["share"]["uri"].split(",")[0].split("/")[2] ==
              uri.split("/")[2].split(",")[0], f"{second['share']} {uri}")


@test("the line for others has no host of the joined line that nobody answered "
      "at", 120)
def dead_hosts():
    with Swarm(peers=2, rounds=100000) as s:
        uri = everywhere(s)
        live = uri.split("/")[2].split(",")[0]
        at = live.rsplit(":", 1)[0]
        dead = [f"{at}:{port}" for port in (1, 2, 3)]
        s.peer().start("--join", f"loco://{','.join(dead)},{live}/{s.run_id}",
                       "--mapping", "off", listen="127.0.0.1:0").wait_up()
        s.wait_training()
        shown = s.peers[1].wait_status(lambda t: t["share"]["uri"],
                                       "it has a line")["share"]["uri"]
        hosts = shown.split("/")[2].split(",")
        check(live in hosts and not set(dead) & set(hosts), shown)


@test("loco run share prints a bare line where no code could be seen", 120)
def bare():
    with Swarm(peers=1, rounds=100000) as s:
        uri = everywhere(s)
        done = run(LOCO, "run", "share", "--state", s.peers[0].state)
        check(done.stdout == f"loco join {uri}\n", done.stdout)
        for settings, why in ((("LANG=C",), "UTF-8"),
                              (("LANG=C.UTF-8", "TERM=dumb"), "colours"),
                              (("LANG=C.UTF-8", "NO_COLOR=1"), "colours")):
            said, code = on_terminal(s, *settings)
            check(code == 0 and f"loco join {uri}\n" in said and why in said and
                  "\033" not in said, f"{settings}: {said!r}")


@test("loco run share says why where there is no line for others", 120)
def none_known():
    with Swarm(peers=1, rounds=100000) as s:
        s.start()  # on loopback
        s.wait_training()
        said = run(LOCO, "run", "share", "--state", s.peers[0].state,
                   code=2).stderr
        check("no address is known at which other machines can" in said, said)
    with Swarm(peers=1, rounds=100000, settings={"invited": "true"}) as s:
        s.peer().start("--run", s.yaml, "--mapping", "off",
                       listen="0.0.0.0:0").wait_up()
        s.wait_training()
        said = run(LOCO, "run", "share", "--state", s.peers[0].state,
                   code=2).stderr
        check("loco run invite" in said and "loco://" not in said, said)


@test("the page shows the line for others and a QR code that zbar reads, dark "
      "and light", 120)
def on_page():
    need_browser()
    need_zbar()
    with Swarm(peers=1, rounds=100000) as s:
        uri = everywhere(s)
        with browser.Page(900, 1000) as page:
            page.open(page_of(s.peers[0]))
            wait_page(page, "document.querySelectorAll('#share-qr path').length"
                      " === 1", "the code is drawn")
            check(page.text("#share-uri") == f"loco join {uri}",
                  page.text("#share-uri"))
            for scheme in ("light", "dark"):
                page.colours(scheme)
                page.ask("document.getElementById('share-qr')"
                         ".scrollIntoView({block: 'center'})")
                picture = s.path(scheme + ".png")

                def reads(picture=picture):
                    page.screenshot(picture)
                    return decoded(picture) == uri
                wait_for(reads, f"zbar reads the code, {scheme}")
    with Swarm(peers=1, rounds=100000) as s:
        s.start()
        with browser.Page(900, 1000) as page:
            page.open(page_of(s.peers[0]))
            wait_page(page, "document.getElementById('share-why').textContent"
                      ".includes('no address is known')", "it says why not")
            check(page.ask("document.getElementById('share-qr')"
                           ".getBoundingClientRect().height === 0"),
                  "an empty code is there")
