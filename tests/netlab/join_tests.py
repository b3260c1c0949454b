"""join_tests.py - newcomers over real links; see netlab.py."""
import os
import re
import time

from lab import PORT, Lab, LabSwarm, check, wait_for
from registry import test

ACCESS = {"rate": "100mbit", "delay": "12.5ms"}  # 50 ms to each other
MIB = 1 << 20
# 8.4 million parameters and next to no compute: 34 MB, and as much momentum,
# which is zero before the first round: a new file has it already.
LARGE = {"model.vocab": 65536, "model.dim": 128,
         "model.layers": 1, "model.seq": 64,
         "inner.seq": 64, "inner.batch": 1, "inner.micro_batch": 1,
         "inner.warmup": 0, "eval.every_rounds": 0}


def hosts_of(lab, names):
    lab.hub("net")
    return [lab.host(name, "net", **ACCESS) for name in names]


def invitation(s):
    """It names all four, so that none of them is found late."""
    hosts = ",".join(f"{p.space.address}:{PORT}" for p in s.peers)
    return f"loco://{hosts}/{s.run_id}"


def alter(peer):
    """One bit in every piece of the shards that it serves."""
    folder = os.path.join(peer.state, "shards")
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "r+b") as f:
            size = f.seek(0, os.SEEK_END)
            for at in range(MIB // 2, size, MIB):
                f.seek(at)
                byte = f.read(1)[0]
                f.seek(at)
                f.write(bytes([byte ^ 1]))


@test("a newcomer 50 ms away joins while one of four sources serves altered "
      "pieces", 240)
def bad_source():
    with Lab() as lab:
        hosts = hosts_of(lab, "abcde")
        with LabSwarm(hosts[:4], rounds=100000, period=200,
                      text_bytes=24_000_000) as s:
            s.start()
            s.wait_training()
            s.peers[0].wait_round(1)
            liar = s.peers[2]
            alter(liar)
            uri = invitation(s)
            began = time.monotonic()
            late = s.peer(hosts[4]).start("--join", uri).wait_up()
            late.wait_status(lambda t: t["rounds_committed"] > 0,
                             "a round counted it", 120)
            took = time.monotonic() - began
            named = re.findall(
                r"peer (\S+) served bytes that do not have the hash",
                late.log())
            check(named == [liar.peer_id()["short"]], f"named are {named}")
            print(f"{took:.1f} s from the command to the first counted round")


@test("a newcomer on a 100 Mbit/s line with four sources fills it", 240)
def full_line():
    with Lab() as lab:
        hosts = hosts_of(lab, "abcde")
        # The sources train between two rounds: their lines are free.
        with LabSwarm(hosts[:4], rounds=1000, period=100_000,
                      settings=LARGE) as s:
            s.start()
            s.wait_training()
            late = s.peer(hosts[4]).start("--join", s.uri()).wait_up()

            sources = 0

            def at(megabytes):
                nonlocal sources

                def here():
                    nonlocal sources
                    now = late.status()
                    if now and now["fetch"]:
                        sources = max(sources, now["fetch"]["sources"])
                    return now and now["bytes_received"] > \
                        megabytes * 1e6 and now
                now = wait_for(here, f"{megabytes} MB are here", 60)
                return now["bytes_received"], time.monotonic()

            (n0, t0), (n1, t1) = at(8), at(30)
            share = (n1 - n0) * 8 / (t1 - t0) / 100e6
            print(f"{share:.2f} of the line, {sources} sources")
            check(share >= 0.9, f"{share:.2f} of the line are used")
