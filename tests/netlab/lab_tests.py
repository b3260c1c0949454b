"""lab_tests.py - what must hold of the laboratory itself; see netlab.py."""
import hashlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading

from lab import PORT, Lab, check, wait_for
from measure import Stream, ping
from registry import test

ANYWHERE = ("0.0.0.0", 0)


def pair(lab, **options):
    """Two hosts and the link between them."""
    a, b = lab.host("a"), lab.host("b")
    lab.link("a", "b", **options)
    return a, b


def udp(space, address=ANYWHERE):
    s = space.socket(socket.SOCK_DGRAM)
    s.settimeout(20)
    s.bind(address)
    return s


# ---- links ------------------------------------------------------------------


@test("100 Mbit/s and 25 ms carry one TCP stream at 94 to 97 % of the rate")
def goodput():
    with Lab() as lab:
        a, b = pair(lab, rate="100mbit", delay="25ms")
        with Stream(a, b) as stream:
            print(f"{stream.settled(94, 97):.2f} Mbit/s")


@test("a ping over 25 ms takes 50 ms and at most 2 more, on IPv4 and IPv6")
def round_trip():
    with Lab() as lab:
        a, b = pair(lab, rate="100mbit", delay="25ms")
        for v6 in (False, True):
            trips = ping(a, b, v6=v6)
            middle = statistics.median(trips)
            print(f"{min(trips):.2f} {middle:.2f} {max(trips):.2f} ms")
            check(len(trips) == 20, f"{20 - len(trips)} pings were lost")
            check(min(trips) >= 50, f"one took only {min(trips)} ms")
            check(middle <= 52, f"they take {middle} ms")


@test("a link may be slower one way than the other")
def asymmetric():
    with Lab() as lab:
        a, b = pair(lab, delay="1ms")
        lab.wire("a", "b", rate="20mbit")
        lab.wire("b", "a", rate="5mbit")
        with Stream(a, b) as stream:
            stream.settled(18.8, 19.4)
        with Stream(b, a) as stream:
            stream.settled(4.7, 4.85)


def numbers_seen(a, b, count):
    """Numbers as they arrive at b when a sends 0, 1, 2, ... at once."""
    with udp(b) as sink, udp(a) as source:
        for number in range(count):
            source.sendto(number.to_bytes(4, "big"),
                          (b.address, sink.getsockname()[1]))
        return [int.from_bytes(sink.recv(64), "big") for _ in range(count)]


@test("jitter changes no order, unless asked to")
def jitter():
    with Lab() as lab:
        a, b = pair(lab, jitter="20ms")
        trips = ping(a, b)
        check(max(trips) - min(trips) > 5, f"that is no jitter: {trips}")
        check(numbers_seen(a, b, 100) == list(range(100)), "out of order")
        lab.link("a", "b", reorder=True)
        seen = numbers_seen(a, b, 100)
        check(seen != list(range(100)), "still in order")
        check(sorted(seen) == list(range(100)), "not all, or one twice")


@test("a cut link carries nothing either way, and carries again when healed")
def cut():
    with Lab() as lab:
        a, b = pair(lab, delay="1ms")
        with udp(a, (a.address, 7)) as left, udp(b, (b.address, 7)) as right:
            lab.link("a", "b", cut=True)
            left.sendto(b"lost", (b.address, 7))
            right.sendto(b"lost", (a.address, 7))
            wait_for(lambda: all(lab.stats(x, y)["dropped_cut"] == 1
                                 for x, y in ("ab", "ba")),
                     "both are counted")
            lab.link("a", "b", cut=False)
            left.sendto(b"heals", (b.address, 7))
            right.sendto(b"heals", (a.address, 7))
            check((left.recv(9), right.recv(9)) == (b"heals", b"heals"),
                  "what was lost has arrived")


@test("a wire that is cut one way still carries the other way")
def cut_one_way():
    with Lab() as lab:
        a, b = pair(lab)
        lab.wire("a", "b", cut=True)
        with udp(a, (a.address, 7)) as left, udp(b, (b.address, 7)) as right:
            left.sendto(b"lost", (b.address, 7))
            right.sendto(b"comes", (a.address, 7))
            check(left.recv(9) == b"comes", "something else came")
            check(lab.stats("a", "b")["packets"] == 0, "it is not cut")


@test("a loss of 1 % is 1 % of the packets, also of TCP's")
def loss():
    with Lab() as lab:
        a, b = pair(lab, loss=0.01, delay="5ms")
        with udp(b) as sink, udp(a) as source:
            for number in range(20000):
                source.sendto(b"n", (b.address, sink.getsockname()[1]))
                if number % 500 == 499:  # no queue on the way is this long
                    wait_for(lambda: passed(lab)[0] > number - 100, "sent")
        wait_for(lambda: passed(lab)[0] >= 20000, "all packets are sent")
        all_udp, lost_udp = passed(lab)
        # Binomial: 5 standard deviations of 20,000 tries at 1 % are 70.
        check(130 <= lost_udp <= 270, f"{lost_udp} of {all_udp} were lost")
        data = os.urandom(8 << 20)
        check(transfer(a, b, data) == hashlib.sha256(data).digest(),
              "TCP has delivered other bytes")
        n, k = passed(lab)
        n, k = n - all_udp, k - lost_udp
        check(n >= len(data) // 1448, f"{n} packets are too few")
        spread = 5 * (n * 0.01 * 0.99) ** 0.5
        check(abs(k - n * 0.01) <= spread, f"{k} of {n} of TCP were lost")


def passed(lab):
    """Packets that entered the wire from a to b, and those lost on it."""
    wire = lab.stats("a", "b")
    return wire["packets"] + wire["dropped_loss"], wire["dropped_loss"]


def transfer(a, b, data):
    """Hash of what arrives."""
    with b.listener(5002) as listener, a.socket() as source:
        source.settimeout(30)
        source.connect((b.address, 5002))
        sink = listener.accept()[0]
        sink.settimeout(30)
        sender = threading.Thread(
            target=lambda: (source.sendall(data),
                            source.shutdown(socket.SHUT_WR)), daemon=True)
        sender.start()
        seen = hashlib.sha256()
        with sink:
            while part := sink.recv(1 << 20):
                seen.update(part)
        sender.join(30)
    return seen.digest()


@test("a full queue drops what comes last, and only that")
def queue():
    with Lab() as lab:
        a, b = pair(lab)
        # Ten packets of 28 + 972 bytes and the one on the interface.
        lab.wire("a", "b", rate="80kbit", queue="10kb", overhead=0)
        with udp(b) as sink, udp(a) as source:
            for number in range(40):
                source.sendto(number.to_bytes(972, "big"),
                              (b.address, sink.getsockname()[1]))
            wait_for(lambda: lab.stats("a", "b")["dropped_queue"] >= 29,
                     "the queue is full")
            lab.wire("a", "b", rate=0)
            seen = [int.from_bytes(sink.recv(1000), "big") for _ in range(3)]
            check(seen == [0, 1, 2], f"{seen} came first")
            check(lab.stats("a", "b")["dropped_queue"] <= 30,
                  "the queue is shorter than it is said to be")


@test("a laboratory that is killed leaves no process and no namespace behind")
def crash():
    code = ("import sys; sys.path[:0] = sys.argv[1:]\n"
            "from lab import Lab\n"
            "with Lab() as lab:\n"
            "    h = lab.host('h')\n"
            "    c = lab.start(h, 'sleep', '1000')\n"
            "    print(lab.router.pid, c.pid, flush=True)\n"
            "    c.wait()\n")
    child = subprocess.Popen(
        [sys.executable, "-c", code, os.path.dirname(__file__)],
        stdout=subprocess.PIPE, text=True)
    pids = [int(word) for word in child.stdout.readline().split()]
    check(len(pids) == 2, "it did not start")
    check(os.readlink(f"/proc/{pids[1]}/ns/net") !=
          os.readlink("/proc/self/ns/net"), "that is no other namespace")
    child.send_signal(signal.SIGKILL)
    child.wait(30)
    child.stdout.close()
    for pid in pids:
        wait_for(lambda: gone(pid), f"process {pid} has ended")


def gone(pid):
    """Whether a process has ended, also one that nobody has waited for."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


# ---- home routers -----------------------------------------------------------


class Home:
    """A PC in a home behind NAT, and three strangers on the internet."""

    def __init__(self, lab, nat, layers=1):
        lab.hub("net")
        self.site = lab.site("box", "net", nat=nat, lan="100.64.0"
                             if layers == 2 else None)
        self.address = self.site.box.address  # what the world sees
        inner = self.site
        if layers == 2:
            inner = self.site.site("inner", nat)
        self.pc = inner.host("pc")
        self.strangers = [lab.host(name, "net") for name in "xyz"]

    def seen_from(self, inside, stranger, port):
        """Where `inside` seems to send from, for a stranger's port that
        answers. (The answer proves that the way back is open.)"""
        with udp(stranger, (stranger.address, port)) as s:
            inside.sendto(b"hello", (stranger.address, port))
            source = s.recvfrom(64)[1]
            s.sendto(b"answer", source)
            check(inside.recv(64) == b"answer", "something else came")
        return source


def check_restricted(home):
    """Nobody gets in who was not asked, from that very port."""
    x, y, _ = home.strangers
    with udp(home.pc, ("0.0.0.0", 7000)) as inside:
        first = home.seen_from(inside, x, 9)
        check(first[0] == home.address, f"it is seen as {first}")
        with udp(y, (y.address, 9)) as s:
            s.sendto(b"unasked", first)
        with udp(x, (x.address, 10)) as s:
            s.sendto(b"from another port", first)
        # What came through would arrive before this answer, by the same way.
        home.seen_from(inside, x, 9)


@test("a port-restricted NAT keeps one outer port and lets in only the asked")
def restricted():
    with Lab() as lab:
        home = Home(lab, "restricted")
        check_restricted(home)
        with udp(home.pc, ("0.0.0.0", 7001)) as inside:
            ports = {home.seen_from(inside, s, 9) for s in home.strangers}
            check(len(ports) == 1, f"it has many outer ports: {ports}")


@test("a resetting NAT keeps one outer port and answers strangers with a reset")
def resetting():
    with Lab() as lab:
        home = Home(lab, "resetting")
        check_restricted(home)
        with home.strangers[0].socket() as s:
            s.settimeout(20)
            try:
                s.connect((home.address, 4000))
                check(False, "somebody answered")
            except ConnectionRefusedError:
                pass


@test("a full-cone NAT lets anybody in on its mapped port, and on no other")
def full_cone():
    with Lab() as lab:
        home = Home(lab, "full-cone")
        with home.pc.listener(PORT) as listener:
            for stranger in home.strangers:
                with stranger.socket() as s:
                    s.settimeout(20)
                    s.connect((home.address, PORT))
                    inside, source = listener.accept()
                    inside.close()
                    check(source[0] == stranger.address,
                          f"the PC sees {source}")
        check_restricted(home)


@test("a symmetric NAT takes another outer port for each destination")
def symmetric():
    with Lab() as lab:
        home = Home(lab, "symmetric")
        with udp(home.pc, ("0.0.0.0", 7000)) as inside:
            # Four random ports are all different but for once in 5,000.
            ports = {home.seen_from(inside, s, 9)[1]
                     for s in home.strangers}
            check(len(ports) > 1, f"only {ports}")
        check_restricted(home)


@test("two layers of NAT are seen as the outer one and let nobody in")
def two_layers():
    with Lab() as lab:
        check_restricted(Home(lab, "restricted", layers=2))


@test("a LAN behind a router without NAT is reached at its own addresses")
def routed():
    with Lab() as lab:
        home = Home(lab, "none")
        with home.pc.listener(PORT) as listener, \
                home.strangers[0].socket() as s:
            s.settimeout(20)
            s.connect((home.pc.address, PORT))
            inside, source = listener.accept()
            inside.close()
            check(source[0] == home.strangers[0].address, f"it sees {source}")


@test("a real miniupnpd opens a port for who asks it", program="miniupnpd")
def natpmp():
    with Lab() as lab:
        home = Home(lab, "restricted")
        daemon = lab.miniupnpd(home.site)
        # NAT-PMP (RFC 6886, 3.3): map TCP 7700 for an hour.
        request = b"\0\2\0\0" + 2 * PORT.to_bytes(2, "big") + \
            (3600).to_bytes(4, "big")
        with udp(home.pc) as s:
            s.settimeout(0.3)

            def answered():
                check(daemon.poll() is None, "miniupnpd has ended")
                s.sendto(request, (f"{home.site.lan}.254", 5351))
                try:
                    return s.recv(64)
                except (TimeoutError, ConnectionRefusedError):
                    return None
            answer = wait_for(answered, "miniupnpd answers")
        check(answer[:4] == b"\0\x82\0\0", f"it refuses: {answer.hex()}")
        with home.pc.listener(PORT) as listener, \
                home.strangers[0].socket() as s:
            s.settimeout(20)
            s.connect((home.address, int.from_bytes(answer[10:12], "big")))
            listener.settimeout(20)
            listener.accept()[0].close()
