"""nat_table.py - who reaches whom through which home router, measured.

use: python3 tests/netlab/nat_table.py [--json] [KIND...]

For every pair of kinds a lab of three peers that train: a public one, one
behind a box of each kind. Prints how data went from row to column: "direct"
(the row dialled the column), "reversed" (the column was asked to dial the
row), "punched" (both dialled at once), "relayed" (through the public peer), as the daemons' own logs say; then
the class that each kind finds for itself, and the seconds until the three have
committed their first round. Exit 1 when a run did not finish. Root.
"""
import json
import re
import sys
import time

from lab import Failed, Lab, LabSwarm, check, missing, not_built, wait_for
from loco_tests import MAPPING, homes

KINDS = ("none", "full-cone", "upnp", "nat-pmp", "pcp", "restricted",
         "resetting", "symmetric")
ROUNDS = 8  # enough that each of the two orders of a ring of three comes up


def ways_to(log, short):
    """How data went from the writer of this log to a peer, in order."""
    return re.findall(rf"data to {short}: (\w+)", log)


CONES = ("restricted", "resetting")  # through which two can punch a hole


def settled(peers, kinds):
    """The status of each, once it has found out its class for good, and has a
    direct link if there can be one."""
    found = [p.status() for p in peers]
    for status, kind in zip(found, kinds):
        mapped = kind in MAPPING
        if status["reachability"] == "unknown" or \
                mapped and status["reachability"] != "mapped" or \
                set(kinds) <= set(CONES) and status["links"]["relayed"] > 0:
            return None
    return found


def measure(row, column):
    """{"to": how data went from row to column, "back": ..., ...}"""
    with Lab() as lab, LabSwarm(homes(lab, row, column), rounds=100000) as s:
        began = time.monotonic()
        s.start("--log", "debug")
        for peer in s.peers:
            peer.wait_round(1)
        seconds = time.monotonic() - began
        peers = s.peers[1:]
        known = wait_for(lambda: settled(peers, (row, column)),
                         "both know their class", 40)
        shorts = [p.peer_id()["short"] for p in peers]
        s.peers[0].wait_round(max(x["round"] for x in known) + ROUNDS)

        def both_ways():
            found = [ways_to(peers[0].log(), shorts[1]),
                     ways_to(peers[1].log(), shorts[0])]
            return all(found) and found
        # What was tried in vain at first stands before what is used.
        to, back = wait_for(both_ways, f"data between {row} and {column}")
        last = [p.status() for p in s.peers]
        check(all(x["rounds_aborted"] == 0 for x in last), "a round failed")
        return {"to": to[-1], "back": back[-1], "seconds": seconds,
                "classes": [x["reachability"] for x in last[1:]]}


def table(kinds):
    ways, classes, seconds, failed = {}, {}, [], 0
    for i, row in enumerate(kinds):
        for column in kinds[i:]:
            try:
                got = measure(row, column)
            except Failed as why:
                print(f"{row} and {column}: {why}", file=sys.stderr)
                failed += 1
                continue
            ways[row, column], ways[column, row] = got["to"], got["back"]
            for kind, found in zip((row, column), got["classes"]):
                classes.setdefault(kind, set()).add(found)
            seconds.append(got["seconds"])
            print(f"{row} - {column}: {got['to']}, back {got['back']}; "
                  f"{' and '.join(got['classes'])}; "
                  f"first round after {got['seconds']:.1f} s",
                  file=sys.stderr)
    return ways, classes, seconds, failed


def main(words):
    why = missing()
    path = not_built()
    if why or path:
        print(f"nat_table: {why or path + ' is not built'}")
        return 1
    kinds = [w for w in words if not w.startswith("-")] or list(KINDS)
    ways, classes, seconds, failed = table(kinds)
    if "--json" in words:
        print(json.dumps({
            "ways": {f"{a} -> {b}": way for (a, b), way in ways.items()},
            "classes": {k: sorted(v) for k, v in classes.items()},
            "first_round_s": seconds}, indent=1))
        return 1 if failed else 0
    print("| data from \\ to | " + " | ".join(kinds) + " | its class |")
    print("|---" * (len(kinds) + 2) + "|")
    for row in kinds:
        cells = [ways.get((row, column), "?") for column in kinds]
        print(f"| `{row}` | " + " | ".join(cells) + " | "
              + ", ".join(sorted(classes.get(row, []))) + " |")
    if seconds:
        print(f"\nfirst round committed after {min(seconds):.1f} to "
              f"{max(seconds):.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
