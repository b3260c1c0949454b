"""attack_network_tests.py - strangers that abuse what peers do for each other:
dials, the DHT, relays, stages; see attack_tests.py. What happened and what it
cost is printed; LOCO_ATTACK_S makes the attacks longer.
"""
import os
import socket
import struct
import threading
import time

from attack_tests import heartbeat_of
from e2e_registry import test
from swarm import PACED, SCALE, Swarm, check, wait_for

SECONDS = float(os.environ.get("LOCO_ATTACK_S", "3"))
RELAY = 4  # the kind of a connection
REACH_PUBLIC, REACH_RESTRICTED = 1, 3
MEETS = 1  # a feature of HELLO


def mapped(text):
    return bytes(10) + b"\xff\xff" + socket.inet_aton(text)


class Victim:
    """Whom the strangers point at; it counts who connects."""

    def __init__(self):
        self.times = []
        self.listener = socket.create_server(("0.0.0.0", 0), backlog=1024)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            c, _ = self.listener.accept()
            self.times.append(time.monotonic())
            c.close()


class Cost:
    """What a peer spends between two moments."""

    def __init__(self, p):
        self.p = p
        self.began, self.cpu = time.monotonic(), p.cpu_s()
        self.memory = p.memory_anon_bytes()

    def __str__(self):
        seconds = time.monotonic() - self.began
        memory = self.p.memory_anon_bytes() - self.memory
        return (f"{seconds:.1f} s, {100 * (self.p.cpu_s() - self.cpu) / seconds:.0f}"
                f" % of a core, memory +{memory >> 10} KiB")

    def check(self, mebibytes):
        grown = self.p.memory_anon_bytes() - self.memory
        check(grown < (mebibytes << 20) * SCALE,
              f"memory grew by {grown >> 20} MiB")


def trained(peers=2, **options):
    s = Swarm(peers=peers, rounds=100000, **options)
    s.start(*PACED)
    s.wait_training()
    return s


def says_heartbeat(a, **changes):
    from messages import MESSAGES
    names = [name for name, _ in MESSAGES["HEARTBEAT"][1]]
    beat = dict(zip(names, a.heard["HEARTBEAT"]))
    beat.update(life=a.life, number=a.n_said % 256, **changes)
    a.say("HEARTBEAT", list(beat.values()))


# ---- dials ------------------------------------------------------------------


def read_by_now(a):
    """All that `a` has said is read. A stranger that has used up its budget is
    read slowly, and its questions are dropped: it asks again."""
    asked = 0

    def is_answered():
        nonlocal asked
        if time.monotonic() - asked > 0.5:
            asked = time.monotonic()
            a.say("GET_MANIFEST", [0])
        return "MANIFEST" in a.heard

    wait_for(is_answered, "all of it is read", 60)


@test("a stranger that calls for 2,000 made-up peers causes few connections",
      120)
def called():
    from attacker import Attacker
    with trained() as s:
        p, victim = s.peers[0], Victim()
        with Attacker(p.port, bytes.fromhex(s.run_id), seed=1) as a:
            heartbeat_of(a)
            cost = Cost(p)
            for _ in range(2000):
                a.say("CALLED", [os.urandom(32),
                                 [mapped("127.0.0.1"), victim.port], 0])
            read_by_now(a)
            first = len(victim.times)
        print(f"CALLED: {first} connections for 2,000 messages, {cost}")
        # An address is dialled once a minute for what strangers say.
        check(first <= 4, f"{first} connections")


class Listed:
    """A stranger that peers list in their routing table: it says that it can be
    dialled, answers what it is asked, and names whom it likes."""

    def __init__(self, a, contacts):
        self.a, self.contacts, self.n_asked = a, contacts, 0
        says_heartbeat(a, reach=REACH_PUBLIC)
        a.maker.hear = self.hear

    def hear(self, fields, values):
        names = [name for name, _ in fields]
        if names == ["request", "target"]:
            self.n_asked += 1
            self.a.say("NODES", [values[0], self.contacts()])
        elif names == ["request", "key", "target"]:
            self.n_asked += 1
            self.a.say("VALUES", [values[0], [], self.contacts()])
        elif names == ["request"]:
            self.a.say("PONG", values)


def listed(s, contacts):
    """Dials that a stranger causes which answers so in the DHT."""
    import peer
    from attacker import Attacker
    p = s.peers[0]
    a = Attacker(p.port, bytes.fromhex(s.run_id), seed=2)
    a.link = peer.dial(p.port, a.maker.identity, a.run_id, 20).initiate(
        port=9)
    a.reader = threading.Thread(target=a.read, args=(a.link,), daemon=True)
    a.reader.start()
    a.say("HELLO", [a.life, [mapped("127.0.0.1"), 0], 0, peer.VERSION,
                    peer.VERSION])
    heartbeat_of(a)
    liar = Listed(a, contacts)
    wait_for(lambda: liar.n_asked > 0, "it asks the liar", 40)
    time.sleep(SECONDS)
    a.hang_up()
    return liar.n_asked


@test("a liar of the DHT has few addresses dialled, and one address seldom", 90)
def contacts():
    with trained() as s:
        n = iter(range(1, 1 << 24))
        # An address once a minute; 16 at once, then 4 a second.
        for name, at_once, a_second, address in (
                ("one address", 4, 0, lambda: mapped("127.0.0.1")),
                ("thousands", 20, 4, lambda: bytes(10) + b"\xff\xff\x7f" +
                 struct.pack(">I", next(n))[1:])):
            victim, cost = Victim(), Cost(s.peers[0])
            asked = listed(s, lambda: [  # 20 in each answer
                [os.urandom(32), address(), victim.port] for _ in range(20)])
            spent = time.monotonic() - cost.began
            print(f"{name}: {len(victim.times)} connections, {asked} "
                  f"questions, {cost}")
            check(len(victim.times) <= at_once + a_second * spent,
                  f"{len(victim.times)} connections in {spent:.0f} s")


# ---- the DHT's store ----------------------------------------------------------


def record(run_id, port, expiry_s):
    from messages import msgpack
    import peer
    who = peer.Identity()
    body = [run_id, who.public, mapped("127.0.0.1") + struct.pack("<H", port),
            1, expiry_s]
    return [*body, who.sign(b"loco-record-1",
                            msgpack.packb(body, use_bin_type=True))]


def spam(p, run_id):
    """2,000 STOREs under other keys, most of them forged, of 20 identities."""
    from attacker import Attacker
    before, cost = p.status()["dht"]["rejected"], Cost(p)
    made = [record(os.urandom(32), 1, int(time.time()) + 7000)
            for _ in range(50)]
    for n in range(20):
        with Attacker(p.port, run_id, seed=n) as a:
            for i in range(100):
                a.say("STORE", [i, made[i // 2] if i % 2 else
                                [os.urandom(32), *made[i // 2][1:]]])
            read_by_now(a)
    after = p.status()["dht"]["rejected"]
    print(f"2,000 STOREs: {cost}; refused "
          f"{ {k: after[k] - before[k] for k in after} }")
    check(after["forged"] > before["forged"], "no forged record was looked at")
    cost.check(16)


@test("1,000 providers that do not exist are stored, and a newcomer gets in",
      120)
def providers():
    from attacker import Attacker
    with trained() as s:
        p, victim = s.peers[0], Victim()
        run_id = bytes.fromhex(s.run_id)
        records = [record(run_id, victim.port, int(time.time()) + 7000)
                   for _ in range(1000)]
        cost, kept, said = Cost(p), 0, 0
        for first in range(0, len(records), 40):  # as fast as it answers
            with Attacker(p.port, run_id, seed=first) as a:
                heartbeat_of(a)
                answers = []
                a.maker.hear = lambda f, v, to=answers: to.append(v) \
                    if [n for n, _ in f] == ["request", "kept"] else None
                for i, r in enumerate(records[first:first + 40]):
                    a.say("STORE", [i, r])
                # A stranger's budget is 20 signatures at once: it hears
                # nothing of what is beyond.
                wait_for(lambda: len(answers) >= 10, "STORED")
                kept += sum(1 for x in answers if x[1])
                said += len(answers)
        print(f"STORE: {kept} of {said} kept, {cost}")
        check(0 < kept <= 128, f"{kept} records under one key")
        cost.check(16)
        spam(p, run_id)
        began = time.monotonic()
        late = s.peer().start("--join", s.uri(), *PACED).wait_up()
        late.wait_state("training", "averaging")
        print(f"the newcomer trains after {time.monotonic() - began:.1f} s; "
              f"{len(victim.times)} connections to the invented address")
        check(len(victim.times) <= 4,
              f"{len(victim.times)} connections to an invented address")


# ---- relays -------------------------------------------------------------------


def leg(p, identity, run_id, other, token):
    """A connection of kind 4 and its record; the socket."""
    import peer
    c = peer.dial(p.port, identity, run_id, 20).initiate(kind=RELAY)
    c.send_record(c.noise.encrypt(other + struct.pack("<QQ", token, 0)))
    return c


def is_open(c):
    c.sock.setblocking(False)
    try:
        return c.sock.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


@test("strangers have a part of a relay's pipes, and half-open legs end", 90)
def relay():
    from attacker import Attacker
    import peer
    with trained() as s:
        p, run_id = s.peers[0], bytes.fromhex(s.run_id)
        askers = [peer.Identity() for _ in range(3)]
        callees = [Attacker(p.port, run_id, seed=i) for i in range(3)]
        tokens = []
        for a in callees:
            a.dial()
            heartbeat_of(a)
            a.maker.hear = lambda f, v, a=a: tokens.append((a, v[2])) \
                if [n for n, _ in f] == ["from", "address", "token"] else None
        cost = Cost(p)
        legs = []
        for i in range(90):
            a = callees[i % 3]
            legs.append(leg(p, askers[i // 3 % 3], run_id,
                            a.maker.identity.id, 0))
        closed = lambda: sum(not is_open(c) for c in legs)  # noqa: E731
        wait_for(lambda: len(tokens) + closed() >= len(legs),
                 "each leg is called or refused")
        print(f"90 legs: {len(tokens)} called, {closed()} refused, {cost}")
        check(0 < len(tokens) <= 64, f"{len(tokens)} pipes for strangers")
        wait_for(lambda: closed() == len(legs), "half-open legs end", 20)
        carry(p, run_id, askers[0], callees[0], tokens)
        for a in callees:
            a.hang_up()


def carry(p, run_id, asker, callee, tokens):
    """One pipe in which somebody sends without end."""
    del tokens[:]
    x = leg(p, asker, run_id, callee.maker.identity.id, 0)
    a, token = wait_for(lambda: tokens and tokens[0], "it is called")
    y = leg(p, a.maker.identity, run_id, asker.id, token)
    x.noise.decrypt(x.recv_record())
    y.noise.decrypt(y.recv_record())
    got, cost = 0, Cost(p)
    x.sock.setblocking(False)
    y.sock.setblocking(False)
    end = time.monotonic() + min(SECONDS, 3)
    while time.monotonic() < end:
        try:
            x.sock.send(bytes(65536))
        except BlockingIOError:
            pass
        try:
            got += len(y.sock.recv(1 << 20))
        except BlockingIOError:
            time.sleep(0.002)
    spent = time.monotonic() - cost.began
    print(f"a pipe without end: {got / spent / (1 << 20):.2f} MiB/s, {cost}")
    check(got <= (2 << 20) * (spent + 1), "more than relay_rate allows")
    cost.check(8)
    x.close()
    y.close()


class LyingRelay:
    """A peer that relays, and names whom it likes where two are to meet; a
    second identity of its owner is linked to `p` through it."""

    def __init__(self, p, run_id):
        import peer
        from attacker import Attacker
        self.run_id, self.named, self.n_met = run_id, None, 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.other = Attacker(p.port, run_id, seed=5)
        self.a = Attacker(p.port, run_id, seed=4)
        self.a.link = peer.dial(p.port, self.a.maker.identity, run_id,
                                20).initiate(
                                    port=self.listener.getsockname()[1])
        self.speak(self.a, reach=REACH_PUBLIC, relays=True)
        threading.Thread(target=self.serve, daemon=True).start()
        self.call(0, 1)
        wait_for(lambda: self.other.link is not None, "it is linked")
        self.speak(self.other, reach=REACH_RESTRICTED)

    def speak(self, a, **changes):
        import peer
        threading.Thread(target=a.read, args=(a.link,), daemon=True).start()
        a.say("HELLO", [a.life, [mapped("127.0.0.1"), 0], MEETS, peer.VERSION,
                        peer.VERSION])
        heartbeat_of(a)
        says_heartbeat(a, **changes)

    def call(self, port, token):
        self.a.say("CALLED", [self.other.maker.identity.id,
                              [mapped("127.0.0.1"), port], token])

    def serve(self):
        while True:
            sock, _ = self.listener.accept()
            sock.settimeout(20)
            try:
                self.answer(sock)
            except (OSError, ValueError, ConnectionError):
                sock.close()

    def answer(self, sock):
        import peer
        c = peer.Connection(sock, self.a.maker.identity, self.run_id)
        c.respond(kinds={RELAY})
        meet = struct.unpack("<32sQQ", c.noise.decrypt(c.recv_record()))[2]
        if meet:
            self.n_met += 1
            c.send_record(c.noise.encrypt(mapped("127.0.0.1")
                                          + struct.pack("<H", self.named())
                                          + bytes(6)))
            return
        c.send_record(c.noise.encrypt(bytes(8)))
        self.other.link = peer.Connection(
            sock, self.other.maker.identity, self.run_id).initiate()


@test("a relay that names a victim where two are to meet causes few connections",
      120)
def meetings():
    with trained() as s:
        p, victims = s.peers[0], [Victim() for _ in range(40)]
        liar = LyingRelay(p, bytes.fromhex(s.run_id))
        cost = Cost(p)

        def press(n, named):
            """Called to so many meetings, no faster than calls count."""
            liar.named = named
            for k in range(n):
                before, end = liar.n_met, time.monotonic() + 1
                liar.call(4000, 100 + k)
                while liar.n_met == before and time.monotonic() < end:
                    time.sleep(0.01)
                time.sleep(0.25)
            return sum(len(v.times) for v in victims)
        one = press(12, lambda: victims[0].port)
        ports = iter([v.port for v in victims[1:]])
        many = press(30, lambda: next(ports)) - one
        print(f"{liar.n_met} meetings: {one} connections to one address, then "
              f"{many} to others, {cost}")
        check(liar.n_met > 20, f"only {liar.n_met} meetings")
        # An address once a minute; one stranger names 16 an hour.
        check(one == 1, f"{one} connections to one address")
        check(0 < many <= 15, f"{many} connections to others")


# ---- stages -------------------------------------------------------------------


@test("strangers that say they are hosts of a stage do not slow a run down",
      180)
def stages():
    from attacker import Attacker
    settings = {"stages": 2, "model.tied": "false", "inner.micro_batch": 2,
                "round.grace_ms": 5000}
    with Swarm(peers=4, rounds=100000, period=20,
               settings=settings.items()) as s:
        s.start()
        s.wait_training()
        s.peers[0].wait_round(3)
        attackers = [Attacker(p.port, bytes.fromhex(s.run_id), seed=9)
                     for p in s.peers]
        try:
            for a in attackers:
                a.maker.identity = attackers[0].maker.identity
                a.dial()
                heartbeat_of(a)
            cost, named = Cost(s.peers[0]), set()
            for a in attackers:
                a.maker.hear = lambda f, v: named.add(v[0]) \
                    if [n for n, _ in f][-1] == "hosts" else None
            first = s.peers[0].status()["round"]
            while s.peers[0].status()["round"] < first + 2 * SECONDS:
                for a in attackers:
                    says_heartbeat(a, stage=2, has_view=True, ready=True,
                                   state=4)
                    a.press(3, ("STAGE_HELLO", "STAGE_READY", "STAGE_TAKE",
                                "STAGE_EVAL", "EVAL_TAKE"))
                time.sleep(0.1)
            status = s.peers[0].wait_status(
                lambda x: x["peers_in_round"] == 2, "no host is left out")
            rounds = status["round"] - first
            print(f"{rounds} rounds, the strangers were tried in {len(named)}; "
                  f"{cost}")
            check(len(named) <= 4, f"tried in {len(named)} of {rounds} rounds")
            check(not any("STAGE_TAKE" in a.heard for a in attackers),
                  "a stranger was asked for a micro-batch")
        finally:
            for a in attackers:
                a.hang_up()
