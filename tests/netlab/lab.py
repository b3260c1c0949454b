"""lab.py - a small internet on one machine: namespaces, links, home routers.

A *Lab* runs one router process (router.h), which makes the namespaces and
carries the packets between them. A *Space* is one namespace; a *Host* is one
with an address on the lab's internet; a *Site* is a box with one leg on the
internet and a LAN behind it, with or without NAT. Everything dies with the
lab, also when the lab itself is killed: the namespaces have no names and no
mounts, the router ends with its input, daemons end with their parent.

    with Lab() as lab:
        lab.hub("net")
        a = lab.host("a", "net", rate="100mbit", delay="12.5ms")
        home = lab.site("home", "net", nat="restricted")
        b = home.host("b")
        lab.link("a", "net", cut=True)

Addresses: host or box number N of the lab has 11.0.N.1 and 2001:db8:N::1; a
home's LAN is 192.168.1.0/24, the same in every home, a carrier's 100.64.0.0/24.
"""
import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))), "e2e"))
from swarm import (BUILD, LOCO, LOCOD, SCALE, Failed, Peer, Swarm,  # noqa: E402
                   check, wait_for)

ROUTER = os.path.join(BUILD, "tests", "loco_netlab")
PORT = 7700  # where locod listens by default
# Congestion control of TCP, whatever this machine's own default is.
CONGESTION = os.environ.get("LOCO_NETLAB_CONGESTION", "cubic")
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


PROBE = """set -e
ip tuntap add dev probe mode tun
ip link add name left type veth peer name right
ip link add name lan type bridge
nft add table inet t
nft add chain inet t c '{ type nat hook postrouting priority srcnat; }'
nft add rule inet t c ct state new masquerade fully-random
"""


def missing():
    """Why there can be no laboratory here, or None."""
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    if not os.path.exists("/dev/net/tun"):
        return "no /dev/net/tun in this system"
    for program in ("ip", "nft", "nsenter", "unshare"):
        if shutil.which(program) is None:
            return f"the program '{program}' is not installed"
    # Without a part of ours: what is broken here must fail, not be skipped.
    probe = subprocess.run(
        ["unshare", "--net", "sh", "-c", PROBE], capture_output=True,
        text=True, timeout=60 * SCALE)
    if probe.returncode != 0:
        return f"no network namespace with TUN and NAT: {probe.stderr.strip()}"
    return None


def not_built():
    """The first program that a laboratory needs and finds not built."""
    for path in (ROUTER, LOCO, LOCOD):
        if not os.access(path, os.X_OK):
            return path
    return None


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def set_namespace(path):
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if LIBC.setns(fd, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {path}")
    finally:
        os.close(fd)


class Space:
    """One network namespace."""

    def __init__(self, lab, name, fd):
        self.lab = lab
        self.name = name
        self.path = f"/proc/{lab.router.pid}/fd/{fd}"
        self.address = None

    @contextlib.contextmanager
    def inside(self):
        """This thread is in the namespace. A socket stays where it was
        made, so one process can hold sockets of every namespace."""
        set_namespace(self.path)
        try:
            yield
        finally:
            set_namespace(self.lab.home)

    def socket(self, kind=socket.SOCK_STREAM, family=socket.AF_INET, proto=0):
        with self.inside():
            return socket.socket(family, kind, proto)

    def listener(self, port=0):
        s = self.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("0.0.0.0", port))
        s.listen(16)
        return s

    def enter(self):
        """For a child process, between fork and exec."""
        set_namespace(self.path)
        die_with_parent()

    def command(self, *words):
        """The words of a command that runs in here."""
        return ["nsenter", f"--net={self.path}", "--", *map(str, words)]

    def run(self, *words, **options):
        done = subprocess.run(self.command(*words), capture_output=True,
                              text=True, timeout=60 * SCALE, **options)
        check(done.returncode == 0, f"{self.name}: {' '.join(map(str, words))}"
              f": {done.stdout}{done.stderr}")
        return done.stdout

    def ip(self, *lines):
        self.run("ip", "-batch", "-", input="\n".join(lines) + "\n")

    def write(self, path, text):
        """To a file of /proc/sys/net, of which each namespace has its own."""
        with self.inside(), open(path, "w", encoding="ascii") as f:
            f.write(text)


class Host(Space):
    """A namespace with an address on the lab's internet."""

    def __init__(self, lab, name, mtu):
        super().__init__(lab, name, lab.tell(f"host {name} {mtu}"))
        self.number = lab.next_number()
        self.address = f"11.0.{self.number}.1"
        self.address6 = f"2001:db8:{self.number:x}::1"
        lab.tell(f"address {name} 11.0.{self.number}.0/24")
        lab.tell(f"address {name} 2001:db8:{self.number:x}::/48")
        self.ip(f"address add {self.address}/32 dev net0",
                f"address add {self.address6}/128 dev net0 nodad",
                f"route add default dev net0 congctl {CONGESTION}",
                f"route add ::/0 dev net0 congctl {CONGESTION}")


# What a box lets in and how it rewrites. {wan} is its outer interface. Home
# routers drop what nobody asked for; they do not answer it, but for one kind.
NFT = """
table inet nat {{
    chain prerouting {{
        type nat hook prerouting priority dstnat;
        {dnat}
    }}
    chain postrouting {{
        type nat hook postrouting priority srcnat;
        {masquerade}
    }}
}}
table inet filter {{
    chain input {{
        type filter hook input priority filter;
        iifname "{wan}" ct state new {answer}
    }}
    chain forward {{
        type filter hook forward priority filter;
        iifname "{wan}" ct state new ct status dnat accept
        iifname "{wan}" ct state new {stranger}
    }}
}}
"""
# Its own chains, which miniupnpd fills, and what it is told.
MINIUPNPD_NFT = """
table inet filter {
    chain miniupnpd { }
}
table inet nat {
    chain prerouting_miniupnpd { }
    chain postrouting_miniupnpd { }
}
add rule inet nat prerouting jump prerouting_miniupnpd
add rule inet nat postrouting jump postrouting_miniupnpd
"""
MINIUPNPD = """
ext_ifname={wan}
listening_ip=lan0
enable_natpmp={natpmp}
enable_upnp=yes
secure_mode=yes
uuid=00000000-0000-0000-0000-000000000001
upnp_table_name=filter
upnp_nat_table_name=nat
upnp_forward_chain=miniupnpd
upnp_nat_chain=prerouting_miniupnpd
upnp_nat_postrouting_chain=postrouting_miniupnpd
allow 1024-65535 0.0.0.0/0 1024-65535
deny 0-65535 0.0.0.0/0 0-65535
"""
NATPMP_PORT = 5351  # PCP's, too
SSDP_PORT = 1900
NAT_KINDS = ("none", "restricted", "resetting", "full-cone", "symmetric")


def wait_bound(space, port):
    """A daemon asks its router once at its start, and again after a minute: the
    router has to be there first."""
    end = f":{port:04X} "
    wait_for(lambda: end in space.run("cat", "/proc/net/udp", "/proc/net/udp6"),
             f"a program of the router is on its UDP port {port}")


class Site:
    """A box and the LAN behind it.

    nat: "none" routes a public prefix and lets everybody in; "restricted"
    keeps the port that the host used (port-restricted cone); "resetting" does,
    and answers what nobody asked for with a TCP reset; "full-cone" is
    the same with PORT of the first host open to all; "symmetric" takes a
    random port for every destination.
    """

    def __init__(self, box, wan, nat, lan):
        check(nat in NAT_KINDS, f"no NAT is called {nat}")
        self.box = box
        self.nat = nat
        self.lan = lan  # "192.168.1": its first three numbers
        self.wan = wan
        self.hosts = []
        box.ip("link add lan0 type bridge", "link set lan0 up",
               f"address add {lan}.254/24 dev lan0")
        box.write("/proc/sys/net/ipv4/ip_forward", "1")
        self.filter()

    def filter(self):
        out = f'oifname "{self.wan}" masquerade'
        masquerade = {"none": "", "restricted": out, "resetting": out,
                      "full-cone": out,
                      "symmetric": out + " fully-random"}[self.nat]
        dnat = (f'iifname "{self.wan}" tcp dport {PORT} '
                f"dnat ip to {self.lan}.11:{PORT}"
                if self.nat == "full-cone" else "")
        stranger = "accept" if self.nat == "none" else "drop"
        self.box.run("nft", "-f", "-", input=NFT.format(
            wan=self.wan, dnat=dnat, masquerade=masquerade,
            stranger=stranger, answer="reject with tcp reset"
            if self.nat == "resetting" else "drop"))

    def host(self, name):
        """A namespace with a cable to the LAN, its interface is "eth0"."""
        lab = self.box.lab
        space = Space(lab, name, lab.tell(f"space {name}"))
        number = len(self.hosts) + 1
        self.hosts.append(space)
        space.address = f"{self.lan}.{10 + number}"
        self.box.ip(f"link add port{number} type veth peer name eth0 "
                    f"netns {space.path}",
                    f"link set port{number} master lan0 up")
        space.ip("link set eth0 up",
                 f"address add {space.address}/24 dev eth0",
                 f"route add default via {self.lan}.254 "
                 f"congctl {CONGESTION}")
        return space

    def site(self, name, nat, lan="192.168.1"):
        """A second box behind this one: two layers."""
        return Site(self.host(name), "eth0", nat, lan)


class Lab:
    def __init__(self, seed=1):
        self.seed = seed
        self.router = None
        self.home = None  # the namespace that we come from
        self.numbers = 0
        self.children = []
        self.boxes = []  # of the sites, in order
        self.dir = None  # of what a daemon in here needs

    def __enter__(self):
        fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.home_fd = fd
        self.home = f"/proc/{os.getpid()}/fd/{fd}"
        self.router = subprocess.Popen(
            [ROUTER, "--seed", str(self.seed)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, bufsize=1,
            preexec_fn=die_with_parent)
        return self

    def __exit__(self, kind, value, trace):
        for child in self.children:
            if child.poll() is None:
                child.kill()
                child.wait(30)
        self.router.stdin.close()
        try:
            self.router.wait(10)
        except subprocess.TimeoutExpired:
            self.router.kill()
            self.router.wait(10)
        self.router.stdout.close()
        os.close(self.home_fd)
        if self.dir is not None:
            shutil.rmtree(self.dir, ignore_errors=True)

    def tell(self, line):
        """One line to the router (control.h); what it answers after "ok"."""
        self.router.stdin.write(line + "\n")
        answer = self.router.stdout.readline().strip()
        check(answer.split(" ")[0] == "ok", f"router: {line}: {answer}")
        return answer[3:]

    def next_number(self):
        self.numbers += 1
        return self.numbers

    def hub(self, name):
        self.tell(f"hub {name}")

    def link(self, a, b, verb="link", **options):
        """Make or change a link: rate="100mbit", delay="25ms", loss=0.01,
        cut=True, ...; see control.h."""
        words = [f"{k} {('off', 'on')[v] if isinstance(v, bool) else v}"
                 for k, v in options.items()]
        self.tell(" ".join([verb, a, b, *words]))

    def wire(self, a, b, **options):
        """The same, from a to b alone."""
        self.link(a, b, verb="wire", **options)

    def host(self, name, hub=None, mtu=1500, **options):
        host = Host(self, name, mtu)
        if hub is not None:
            self.link(name, hub, **options)
        return host

    def site(self, name, hub, nat="none", lan=None, **options):
        box = self.host(name, hub, **options)
        self.boxes.append(box)
        return Site(box, "net0", nat, lan or (
            f"11.0.{box.number}" if nat == "none" else "192.168.1"))

    def stats(self, a=None, b=None):
        """All counters, or those of the wire from a to b."""
        found = json.loads(self.tell("stats"))
        if a is None:
            return found
        for wire in found["wires"]:
            if (wire["from"], wire["to"]) == (a, b):
                return wire
        raise Failed(f"no link joins {a} and {b}")

    def cpu_s(self):
        """CPU seconds that the router has used."""
        with open(f"/proc/{self.router.pid}/stat", encoding="ascii") as f:
            words = f.read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def start(self, space, *words, **options):
        """A program in a namespace; it ends with the lab."""
        child = subprocess.Popen(
            [str(w) for w in words], stdin=subprocess.DEVNULL,
            preexec_fn=space.enter, **options)
        self.children.append(child)
        return child

    def miniupnpd(self, site, natpmp=True):
        """A real miniupnpd on the site's box: UPnP, NAT-PMP and PCP."""
        self.dir = self.dir or tempfile.mkdtemp(prefix="loco-netlab-")
        path = os.path.join(self.dir, f"miniupnpd-{site.box.name}")
        with open(path + ".conf", "w", encoding="ascii") as f:
            f.write(MINIUPNPD.format(wan=site.wan,
                                     natpmp="yes" if natpmp else "no"))
        site.box.run("nft", "-f", "-", input=MINIUPNPD_NFT)
        with open(path + ".log", "wb") as log:
            child = self.start(site.box, "miniupnpd", "-d", "-f",
                               path + ".conf", "-P", path + ".pid",
                               stdout=log, stderr=log)
        wait_bound(site.box, NATPMP_PORT if natpmp else SSDP_PORT)
        return child

    def natpmp(self, site):
        """A router that speaks NAT-PMP alone, on the site's box."""
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                              "natpmp.py")
        child = self.start(site.box, sys.executable, script, site.wan,
                           site.box.address)
        wait_bound(site.box, NATPMP_PORT)
        return child


# ---- loco in the laboratory -------------------------------------------------


class LabPeer(Peer):
    """A locod in a namespace. Its control server is on that loopback."""

    def __init__(self, swarm, name, space):
        super().__init__(swarm, name)
        self.space = space
        self.port = PORT

    def start(self, *arguments, listen=None, before=None, env=None):
        def enter():
            self.space.enter()
            if before is not None:
                before()
        return super().start(*arguments, listen=listen or f"0.0.0.0:{PORT}",
                             before=enter, env=env)

    def status(self):
        done = subprocess.run(
            self.space.command(LOCO, "status", "--state", self.state,
                               "--json"),
            capture_output=True, text=True, timeout=30 * SCALE)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def rounds(self, *explain):
        """The newest first; of one round its attempts in order."""
        done = subprocess.run(
            self.space.command(LOCO, "rounds",
                               *(("explain", *explain) if explain else ()),
                               "--state", self.state, "--json"),
            capture_output=True, text=True, timeout=30 * SCALE)
        return json.loads(done.stdout)["rounds"] if done.returncode == 0 \
            else []


class LabSwarm(Swarm):
    """with LabSwarm([a, b, c, d], rounds=20) as s: one peer in each space."""

    def __init__(self, spaces, **options):
        super().__init__(peers=len(spaces), **options)
        self.spaces = spaces

    def peer(self, space=None):
        number = len(self.peers)
        space = space or self.spaces[number]
        self.peers.append(LabPeer(self, f"peer-{number + 1}-{space.name}",
                                  space))
        return self.peers[-1]

    def uri(self, to=None):
        space = (to or self.peers[0]).space
        return f"loco://{space.address}:{PORT}/{self.run_id}"
