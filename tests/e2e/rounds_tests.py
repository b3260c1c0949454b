"""rounds_tests.py - loco rounds and loco rounds explain on real daemons."""
import json

from e2e_registry import test
from swarm import LOCO, Swarm, check, run, wait_for

PHASES = ("train", "wait", "plan", "reduce", "hash", "vote", "apply")


def rounds(peer, *explain):
    done = run(LOCO, "rounds", *(("explain", *explain) if explain else ()),
               "--state", peer.state, "--json")
    return json.loads(done.stdout)["rounds"]


@test("loco rounds tells phases, bytes and members of every committed round")
def committed():
    with Swarm(peers=3, rounds=6) as s:
        s.start()
        s.wait_finished()
        for peer in s.peers:
            # The last APPLY is shown with the next publication.
            wait_for(lambda p=peer: rounds(p)[0]["phase_ms"]["apply"]
                     is not None, "the last round is applied")
            done = [r for r in rounds(peer) if r["outcome"] == "committed"]
            check([r["round"] for r in done] == [6, 5, 4, 3, 2, 1],
                  f"rounds {[r['round'] for r in done]}")
            for r in done:
                check(r["members_in_plan"] == r["members_in_view"] == 3,
                      f"round {r['round']} had other members: {r}")
                check(r["reason"] is None, f"a reason: {r}")
                check(set(PHASES) < set(r["phase_ms"]), f"phases: {r}")
                check(all(r["phase_ms"][p] is not None
                          for p in ("train", "wait", "reduce", "hash", "vote",
                                    "apply")), f"a phase is missing: {r}")
                check(r["segments_received"] == r["segments_to_receive"] > 0
                      and r["segments_sent"] == r["segments_to_send"] > 0,
                      f"segments: {r}")
                check(r["bytes_sent"] > 0 and r["bytes_received"] > 0,
                      f"bytes: {r}")
            one, = rounds(peer, 4)
            check(len(one["members"]) == 3 and
                  sum(m["self"] for m in one["members"]) == 1, f"{one}")
            for m in one["members"]:
                check(m["in_plan"] and m["tokens"] > 0 and m["lost"] is None
                      and m["ready_ms"] is not None, f"member: {m}")
            # Two of three decide; the third's vote may come after the commit.
            voted = sum(m["voted_ms"] is not None for m in one["members"])
            check(voted >= 2, f"{voted} have voted: {one}")
            text = run(LOCO, "rounds", "--state", peer.state, "--last",
                       3).stdout
            check(len(text.splitlines()) == 4 and " committed " in text, text)
        text = run(LOCO, "rounds", "explain", 4, "--state",
                   s.peers[0].state).stdout
        check("round 4 committed in" in text and "all-gather" in text, text)
        run(LOCO, "rounds", "explain", 99, "--state", s.peers[0].state, code=1)
        run(LOCO, "rounds", "explain", "x", "--state", s.peers[0].state,
            code=2)


def blamed(peer, victim):
    """The attempts that ended and name the victim, newest first."""
    return [r for r in rounds(peer) if r["outcome"] != "running"
            and r["culprit"] and r["culprit"]["peer_id"] == victim]


@test("loco rounds explain names the member that was killed in a round", 240)
def killed():
    # A model whose segments take a while, so that the kill is in a round.
    with Swarm(peers=4, rounds=100000, period=1) as s:
        s.start()
        s.wait_training()
        victim, rest = s.peers[2], [s.peers[i] for i in (0, 1, 3)]
        victim.wait_round(3)
        victim.kill()
        who = victim.peer_id()
        for peer in rest:
            entry = wait_for(lambda p=peer: blamed(p, who["peer_id"]),
                             "the killed peer is blamed")[0]
            check(entry["outcome"] in ("aborted", "renewed", "committed"),
                  f"outcome: {entry}")
            check(entry["culprit"]["known"] is True, f"only suspected: {entry}")
            explained = [r for r in rounds(peer, entry["round"])
                         if r["epoch"] == entry["epoch"]]
            lost = [m for m in explained[0]["members"] if m["lost"]]
            check([m["peer_id"] for m in lost] == [who["peer_id"]],
                  f"lost: {lost}")
            text = run(LOCO, "rounds", "explain", entry["round"], "--state",
                       peer.state).stdout
            check(who["short"] in text, f"it names nobody: {text}")
            if entry["outcome"] != "committed":
                check(who["short"] in entry["reason"], f"reason: {entry}")
        # And the round went on without it.
        ahead = rest[0].status()["round"] + 2
        rest[0].wait_round(ahead)


UPLOAD = 40_000  # bytes a second: above the floor of the run, 32 KiB
PIECE = 4096  # at most, with that cap: the burst, too


@test("an upload cap holds in every round, by the daemon's own times", 240)
def upload_cap():
    with Swarm(peers=2, rounds=3) as s:
        s.start("--upload-bytes-per-s", str(UPLOAD))
        s.wait_finished()
        for peer in s.peers:
            done = [r for r in rounds(peer) if r["outcome"] == "committed"]
            check(len(done) == 3, f"rounds: {done}")
            for r in done:
                least_ms = (r["bytes_sent"] - 2 * PIECE) * 1000 / UPLOAD
                check(r["bytes_sent"] > 10 * PIECE, "too little was sent")
                check(r["phase_ms"]["reduce"] >= least_ms - 2,
                      f"{r['bytes_sent']} bytes in {r['phase_ms']['reduce']} "
                      f"ms, at least {least_ms} ms with the cap")
            check(peer.status()["caps"]["upload_bytes_per_s"] == UPLOAD,
                  "the status does not show the cap")


@test("a cap below the floor of the run is exit code 3 and says which", 60)
def cap_too_low():
    with Swarm(peers=1) as s:
        peer = s.peer().start("--run", s.yaml, "--download-bytes-per-s",
                              "1000")
        peer.wait_exit(3)
        check("download_bytes_per_s=1000, "
              "round.progress_floor_bytes_per_s=32768" in peer.log(), peer.log())


@test("a member killed in the ring is named with the segment it stopped at",
      240)
def killed_in_the_ring():
    with Swarm(peers=3, rounds=100000) as s:
        s.start("--upload-bytes-per-s", str(UPLOAD))
        s.wait_training()
        victim, rest = s.peers[1], [s.peers[0], s.peers[2]]
        # With the cap a ring takes two seconds.
        at = wait_for(lambda: [
            r for r in rounds(victim) if r["outcome"] == "running"
            and r["phase_ms"]["reduce"] is not None
            and r["phase_ms"]["hash"] is None], "a ring runs")[0]
        victim.kill()
        who = victim.peer_id()
        for peer in rest:
            entry = wait_for(lambda p=peer: [
                r for r in blamed(p, who["peer_id"])
                if r["round"] == at["round"]], "the killed peer is blamed")[0]
            check(entry["outcome"] == "aborted", f"outcome: {entry}")
            check(f"peer {who['short']} stopped " in entry["reason"]
                  and " at segment " in entry["reason"],
                  f"reason: {entry['reason']}")
            check(entry["culprit"]["segment"] < entry["culprit"]["segments"],
                  f"segments: {entry['culprit']}")
            check(f"round {at['round']} aborted in" in peer.log(whole=True),
                  "no line in the log")


@test("the bandwidth map shows what a cap lets through, at both ends", 240)
def bandwidth_map():
    with Swarm(peers=2, rounds=100000) as s:
        s.start("--upload-bytes-per-s", str(UPLOAD))
        one, two = (p.peer_id()["peer_id"] for p in s.peers)
        for peer in s.peers:
            for a, b in ((one, two), (two, one)):
                status = peer.wait_status(
                    lambda st, a=a, b=b: [e for e in st["bandwidth"]
                                          if e["from"] == a and e["to"] == b],
                    "both directions are known")
                edge = [e for e in status["bandwidth"] if e["from"] == a][0]
                # Pieces and the burst make it uneven, not another number.
                check(UPLOAD / 2 <= edge["bytes_per_s"] <= UPLOAD * 1.5,
                      f"{edge['bytes_per_s']} bytes a second with {UPLOAD}")
                check(0 < edge["confidence"] <= 100, f"{edge}")
