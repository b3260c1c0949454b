#!/usr/bin/env python3
"""pictures.py - the pictures of the pages in the docs, taken of real daemons.

use: tests/e2e/pictures.py DIR

Three daemons train a small model, a fourth one joins and is on probation, one
dies; a Chromium takes the pictures (deploy/pictures) of the page of a daemon and
of `loco page`. Needs root, as it all happens in a network of its own, where this
machine is 192.168.1.20, and nothing in a picture is of the machine that took it.
The pictures get 256 colours, so that they are small.
"""
import os
import struct
import subprocess
import sys
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser  # noqa: E402
from dashboard_tests import page_of, settle, wait_page  # noqa: E402
from page_tests import Served, address_of, machines_file  # noqa: E402
from swarm import PACED, Swarm, check, not_built  # noqa: E402

INSIDE = "LOCO_PICTURES_INSIDE"
NETWORK = """ip link set lo up && ip link add lan type veth peer name other &&
ip addr add 192.168.1.20/24 dev lan && ip link set lan up &&
ip link set other up && exec "$@" """
COLOURS = 256


# ---- small files ----------------------------------------------------------------

def rows_of(data, width, height, size):
    """The rows of a PNG's picture, its filters undone (PNG, section 9)."""
    stride, at, last, rows = width * size, 0, bytes(width * size), []
    for _ in range(height):
        kind, row = data[at], bytearray(data[at + 1:at + 1 + stride])
        at += 1 + stride
        for i in range(stride):
            a = row[i - size] if i >= size else 0
            b, c = last[i], last[i - size] if i >= size else 0
            if kind == 1:
                row[i] = (row[i] + a) & 255
            elif kind == 2:
                row[i] = (row[i] + b) & 255
            elif kind == 3:
                row[i] = (row[i] + (a + b) // 2) & 255
            elif kind == 4:
                p = a + b - c
                row[i] = (row[i] + min((abs(p - a), 0, a), (abs(p - b), 1, b),
                                       (abs(p - c), 2, c))[2]) & 255
        rows.append(bytes(row))
        last = row
    return rows


def chunks(png):
    at = 8
    while at < len(png):
        n = struct.unpack(">I", png[at:at + 4])[0]
        yield png[at + 4:at + 8], png[at + 8:at + 8 + n]
        at += n + 12


def chunk(kind, data):
    return (struct.pack(">I", len(data)) + kind + data +
            struct.pack(">I", zlib.crc32(kind + data)))


def shrink(path):
    """The same picture with a palette: its most frequent colours, and for each
    other one the nearest of these."""
    with open(path, "rb") as f:
        png = f.read()
    parts = list(chunks(png))
    width, height, depth, kind = struct.unpack(">IIBB", parts[0][1][:10])
    check(depth == 8 and kind in (2, 6), f"{path}: depth {depth}, kind {kind}")
    size = 3 if kind == 2 else 4
    rows = rows_of(zlib.decompress(b"".join(d for k, d in parts
                                            if k == b"IDAT")),
                   width, height, size)
    pixels = [[row[i:i + 3] for i in range(0, len(row), size)] for row in rows]
    seen = {}
    for row in pixels:
        for p in row:
            seen[p] = seen.get(p, 0) + 1
    palette = sorted(seen, key=lambda p: -seen[p])[:COLOURS]
    index = {p: i for i, p in enumerate(palette)}
    for p in seen:
        if p not in index:
            index[p] = min(range(len(palette)), key=lambda i: sum(
                (x - y) ** 2 for x, y in zip(palette[i], p)))
    data = b"".join(b"\0" + bytes(index[p] for p in row) for row in pixels)
    with open(path, "wb") as f:
        f.write(png[:8] + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height,
                                                     8, 3, 0, 0, 0)) +
                chunk(b"PLTE", b"".join(palette)) +
                chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b""))


def take(page, to, name, scheme, size, phone=False):
    path = os.path.join(to, name + ".png")
    page.resize(*size, phone)
    page.colours(scheme)
    settle(page)
    settle(page)  # the charts follow
    page.screenshot(path)
    shrink(path)
    print(f"{path}: {os.path.getsize(path)} bytes")


# ---- what is on them -------------------------------------------------------------

def page_of_a_daemon(page, to, founder, newcomer):
    page.open(page_of(founder))
    wait_page(page, "now.samples.filter(p => p.bits_per_byte).length > 20 && "
              "now.rounds.length > 8 && now.peers.peers.length === 4 && "
              "document.querySelectorAll('#graph text.rate').length > 2 && "
              "document.querySelectorAll('#share-qr path').length === 1",
              "everything is there", 240)
    take(page, to, "dashboard-light", "light", (1100, 1000))
    page.resize(1100, 1000)
    page.ask("document.getElementById('swarm-title').scrollIntoView()")
    take(page, to, "dashboard-dark", "dark", (1100, 1000))
    page.open(page_of(newcomer))
    wait_page(page, "!document.getElementById('probation').hidden && "
              "now.status.tokens > 0", "it is on probation")
    take(page, to, "dashboard-phone", "light", (390, 844), True)


def page_of_several(page, to, served):
    page.open(served.url)
    wait_page(page, "rows.length === 4 && rows[3].machine.status?.probation && "
              "rows.slice(0, 3).every(r => r.machine.answers)", "all answer")


def main():
    to = os.path.abspath(sys.argv[1])
    with Swarm(peers=3, rounds=1500, period=100, name="evening-rain",
               settings={"eval.every_rounds": 1, "sync.robust": None,
                         "sync.audit": None}) as s:
        s.start("--mapping", "off", "--upload-bytes-per-s", "80000", *PACED,
                listen="0.0.0.0:0")
        s.wait_training()
        s.peers[0].wait_round(25, 600)
        late = s.peer().start(
            "--join", f"loco://192.168.1.20:{s.peers[0].port}/{s.run_id}",
            "--mapping", "off", *PACED, listen="0.0.0.0:0").wait_up()
        names = machines_file(s, *(
            f"{address_of(p)} - {name}" for p, name in
            zip(s.peers, ("attic", "cellar", "library", "laptop"))))
        with browser.Page() as page, Served("--machines", names) as served:
            page_of_a_daemon(page, to, s.peers[0], late)
            page_of_several(page, to, served)
            s.peers[2].kill()
            wait_page(page, "!rows[2].machine.answers", "one is away")
            page.ask("rows[0].open.click()")
            take(page, to, "machines-light", "light", (1216, 820))
            page.ask("rows[0].open.click()")
            take(page, to, "machines-dark", "dark", (1216, 600))
            take(page, to, "machines-phone", "light", (390, 844), True)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not_built():
        sys.exit(f"{__doc__}" if not not_built() else f"no {not_built()}")
    if os.environ.get(INSIDE):
        main()
    else:
        sys.exit(subprocess.call(
            ["unshare", "-n", "sh", "-ec", NETWORK, "sh", sys.executable,
             *sys.argv], env={**os.environ, INSIDE: "1"}))
