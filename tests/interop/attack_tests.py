"""attack_tests.py - strangers and members that lie to real daemons; see
interop.py. What attacker.py says is made by the tables of PROTOCOL.md.
"""
import os
import time

from e2e_registry import test
from swarm import PACED, SCALE, Failed, Swarm, check, wait_for


def alone(attacker, beat, epoch):
    """VIEW of an attacker that founded it alone, as a fork."""
    from messages import sign, view_hash
    me = attacker.maker.identity
    body = [attacker.run_id, epoch, bytes(32), 1, False, 0, beat["round"] + 9,
            beat["tokens"] + 10**6, bytes([7]) * 32,
            [[me.public, [bytes(16), 0], epoch, epoch, 0]], [], [], 0]
    ballot = [1, view_hash(body)]
    return body, [body, 1, [[me.public, sign(me, "ballot_body", ballot)]], []]


def heartbeat_of(attacker):
    from messages import MESSAGES
    names = [name for name, _ in MESSAGES["HEARTBEAT"][1]]
    wait_for(lambda: "HEARTBEAT" in attacker.heard, "no heartbeat came")
    return dict(zip(names, attacker.heard["HEARTBEAT"]))


def asked_after(attacker, beat):
    """The other side asks for the view that this heartbeat names."""
    before = attacker.n_heard.get("GET_VIEW", 0)
    beat["number"] = (beat["number"] + 1) % 256
    attacker.say("HEARTBEAT", list(beat.values()))
    try:
        wait_for(lambda: attacker.n_heard.get("GET_VIEW", 0) > before, "", 1)
    except Failed:
        return False  # it asked a moment ago
    return True


@test("a stranger that says 'we went on without you' moves nobody", 120)
def left_out():
    from attacker import Attacker
    from messages import view_hash
    with Swarm(peers=3, rounds=400) as s:
        s.start(*PACED)
        s.wait_training()
        run_id = bytes.fromhex(s.run_id)
        attackers = [Attacker(p.port, run_id, seed=i)
                     for i, p in enumerate(s.peers)]
        try:
            for a in attackers:
                a.dial()
            before = s.peers[0].status()["rounds_committed"]
            for turn in range(5):
                for a in attackers:
                    beat = heartbeat_of(a)
                    body, cert = alone(a, beat, beat["epoch"] + 1 + turn)
                    said = dict(beat, life=a.life, has_view=True,
                                epoch=body[1], view=view_hash(body))
                    wait_for(lambda: asked_after(a, said),
                             "nobody asks for the view that is named")
                    a.say("VIEW", cert)
                    a.say("LINEAGE", [beat["epoch"], [beat["view"]]])
            s.peers[0].wait_round(before + 3)
            for p in s.peers:
                check("leaving view" not in p.log() and "view 2" not in p.log(),
                      f"{p.name} left its view")
        finally:
            for a in attackers:
                a.hang_up()


def key_of(p):
    """The identity of a daemon, PROTOCOL.md, section 2."""
    from peer import Identity
    with open(os.path.join(p.state, "identity.key"), encoding="ascii") as f:
        return Identity(bytes.fromhex(f.read().split()[1]))


def join_of(attacker, beat, members):
    """JOIN as a peer that holds what that heartbeat says would ask, but for
    the proof, which is a hash of what is public."""
    from messages import hash_in, sign
    me = attacker.maker.identity
    proof = hash_in(b"loco-join-1", bytes(32) + attacker.run_id +
                    beat["view"] + beat["commit"] + me.id)
    body = [attacker.run_id, beat["view"], beat["round"], beat["commit"],
            beat["state_hash"], proof, [bytes(16), 0],
            [int.from_bytes(m[4:8], "little") for m in members]]
    return [body, sign(me, "join_body", body)]


def closed_out(p):
    return p.status()["strangers"]["refused"]["forged"] > 0


@test("a stranger that knows all that is public and holds no state does not "
      "join", 120)
def no_state():
    import peer
    from attacker import Attacker
    with Swarm(peers=3, rounds=400) as s:
        s.start(*PACED)
        s.wait_training()
        members = [key_of(p).id for p in s.peers]
        me = peer.Identity()
        attackers = [Attacker(p.port, bytes.fromhex(s.run_id), 5, identity=me)
                     for p in s.peers]
        for a in attackers:
            a.life = attackers[0].life
        try:
            for a in attackers:
                a.dial()

            def ask():
                for a in attackers:
                    try:
                        a.say("PULSE", [5, 0, 0, 0, 0])  # HEARTBEAT, please
                        a.say("JOIN", join_of(a, heartbeat_of(a), members))
                    except OSError:
                        pass  # closed out
                for p in s.peers:
                    check("view 2" not in p.log(), f"{p.name} let it in")
                return all(map(closed_out, s.peers))

            wait_for(ask, "somebody goes on with who proves nothing")
            before = s.peers[0].status()["rounds_committed"]
            s.peers[0].wait_round(before + 3)
            for p in s.peers:
                check("view 2" not in p.log(), f"{p.name} let it in")
        finally:
            for a in attackers:
                a.hang_up()


def attacked(identity_of=None):
    """Any message, of the schema, for LOCO_ATTACK_S seconds: the others go on,
    and memory is bounded."""
    from attacker import Attacker
    with Swarm(peers=4, rounds=4000) as s:
        s.start(*PACED)
        s.wait_training()
        victim = s.peers[0]
        identity = identity_of(s) if identity_of else None
        before = victim.status()["rounds_committed"]
        grown = victim.memory_anon_bytes()
        end = time.monotonic() + float(os.environ.get("LOCO_ATTACK_S", "8"))
        with Attacker(victim.port, bytes.fromhex(s.run_id), seed=3,
                      identity=identity) as a:
            heartbeat_of(a)
            closed = 0
            while time.monotonic() < end:
                closed += a.press(200)
            print(f"{a.n_said} messages, closed {closed} times, heard "
                  f"{sorted(a.n_heard)}")
        after = victim.wait_round(before + 2)
        grown = victim.memory_anon_bytes() - grown
        print(f"rounds {before} to {after['rounds_committed']}, memory "
              f"+{grown >> 20} MiB, refused {after['refused']}")
        check(grown < (64 << 20) * SCALE, f"memory grew by {grown >> 20} MiB")
        for p in s.peers[:3]:
            check(p.process.poll() is None, f"{p.name} is gone")


@test("any message of a stranger, and the run goes on", 180)
def stranger():
    attacked()


@test("any message of a member that lies, and the run goes on", 180)
def member():
    """A fourth daemon stops, and the attacker comes with its key."""
    def taken(s):
        s.peers[3].kill()
        return key_of(s.peers[3])

    attacked(taken)


def ask_and_do_not_read(port, run_id, n, seconds, look):
    """n links that ask for whatever is long, for so long; their number in the
    end. A link that was closed is opened again."""
    from attacker import Attacker
    crowd = [Attacker(port, run_id, seed=i) for i in range(n)]
    end = time.monotonic() + seconds
    closed = 0
    try:
        while time.monotonic() < end:
            for a in crowd:
                try:
                    if a.link is None:
                        a.dial(reads=False)
                    a.say("GET_MANIFEST", [0], 1000)
                    a.say("GET_VIEW", [True], 1000)
                except OSError:
                    closed += 1
                    a.hang_up()
                except Exception:  # pylint: disable=broad-except
                    a.hang_up()  # refused before it was up
            look()
        return closed
    finally:
        for a in crowd:
            a.hang_up()


@test("250 strangers that ask and do not read cost little memory", 240)
def crowd():
    with Swarm(peers=3, rounds=4000) as s:
        s.start(*PACED)
        s.wait_training()
        victim = s.peers[0]
        before = victim.status()["rounds_committed"]
        least = victim.memory_anon_bytes()
        seen = [0]

        def look():
            seen.append(victim.memory_anon_bytes() - least)

        closed = ask_and_do_not_read(
            victim.port, bytes.fromhex(s.run_id), 250,
            float(os.environ.get("LOCO_CROWD_S", "20")), look)
        most = max(seen)
        print(f"closed {closed} times, memory {least >> 20} MiB, at most "
              f"+{most >> 20} MiB")
        check(most < (64 << 20) * SCALE, f"memory grew by {most >> 20} MiB")
        wait_for(lambda: victim.memory_anon_bytes() - least < (8 << 20) * SCALE,
                 "memory does not come back", 30)
        print(f"then +{(victim.memory_anon_bytes() - least) >> 20} MiB")
        victim.wait_round(before + 2)
