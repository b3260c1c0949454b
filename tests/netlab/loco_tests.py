"""loco_tests.py - what must hold of loco over real links; see netlab.py.

A star is four hosts at a hub: 100 Mbit/s each way and 50 ms to each other.
"""
import json
import re
import subprocess

import sites
from lab import LOCO, SCALE, Failed, Lab, LabSwarm, check, wait_for
from registry import test
from swarm import DETECT_MS, lost_entry

ACCESS = {"rate": "100mbit", "delay": "12.5ms"}
# A run without an end, of rounds that last longer than to fetch the state of
# one: who comes back would stay a round behind otherwise (README).
ENDLESS = {"rounds": 100000, "period": 300}


def star(lab, names="abcd"):
    lab.hub("net")
    return [lab.host(name, "net", **ACCESS) for name in names]


@test("four peers 50 ms and 100 Mbit/s apart train and end with equal hashes")
def main_job():
    with Lab() as lab, LabSwarm(star(lab), rounds=8) as s:
        s.start()
        for status in s.wait_finished():
            check(status["rounds_committed"] == 8, "a round was missed")
            check(status["fork"] is False, "a fork without a cut")
            check(status["replicas_equal"] is True, "replicas_equal is false")
        for peer in s.peers:
            peer.drain()


def wait_together(s, after):
    """Until all are in one view at one round later than `after`; their
    parameters must be equal then."""
    def together():
        found = [p.status() for p in s.peers]
        return None not in found and all(
            x["peers_in_round"] == len(found) and not x["fork"]
            and x["round"] == found[0]["round"] > after
            for x in found) and found
    found = wait_for(together, "all are together again; " + ", ".join(
        f"{p.name} {p.brief()}" for p in s.peers), seconds=90)
    check(len({x["params_hash"] for x in found}) == 1,
          f"the parameters differ: {[x['params_hash'] for x in found]}")


@test("a peer whose line is cut is named in 3 s, and catches up when it heals",
      150)
def cut_off():
    with Lab() as lab, LabSwarm(star(lab), **ENDLESS) as s:
        s.start()
        s.wait_training()
        victim, rest = s.peers[3], s.peers[:3]
        victim.wait_round(1)
        lab.link(victim.space.name, "net", cut=True)
        who = victim.peer_id()["peer_id"]
        for peer in rest:
            status = peer.wait_status(lambda x: lost_entry(x, who),
                                      "the peer that was cut off is named")
            entry = lost_entry(status, who)
            check(entry["detected_ms"] <= DETECT_MS * SCALE,
                  f"{peer.name} noticed after {entry['detected_ms']} ms")
            check(entry["reason"], f"{peer.name} gives no reason")
        ahead = rest[0].status()["round"] + 2
        for peer in rest:
            peer.wait_round(ahead)
        lab.link(victim.space.name, "net", cut=False)
        wait_together(s, ahead)


# 8.4 million parameters and next to no compute: a round is its transfer, seven
# seconds over SLOW lines, two stripes (p2p/exchange/ring.h).
SLOW = {"rate": "30mbit", "delay": "5ms"}
LARGE = {"model.vocab": 65536, "model.dim": 128,
         "model.layers": 1, "model.seq": 64,
         "inner.seq": 64, "inner.batch": 1, "inner.micro_batch": 1,
         "inner.warmup": 0,
         # A step of this model on a busy machine: nobody is left out for it.
         "round.grace_ms": 20000}
SENT = 2 * 3 / 4 * 2 * 65536 * 128  # bytes that a member sends in a round


@test("a death late in a round costs the unfinished part of the transfer", 200)
def inherited():
    with Lab() as lab:
        lab.hub("net")
        hosts = [lab.host(name, "net", **SLOW) for name in "abcd"]
        with LabSwarm(hosts, rounds=4, period=1, settings=LARGE) as s:
            s.start()
            victim, rest = s.peers[3], s.peers[:3]
            victim.wait_round(1)
            began = victim.status()

            def late_in_a_round():
                nonlocal began
                now = victim.status()
                if now["round"] != began["round"]:
                    began = now
                return now["state"] == "averaging" and \
                    now["bytes_sent"] - began["bytes_sent"] > 0.9 * SENT
            wait_for(late_in_a_round, "90 % of a round are with the kernel", 60)
            victim.kill()
            for status in s.wait_finished(rest):
                check(status["elements_inherited"] > 0,
                      "what was finished was reduced again")


@test("two sites of three hosts send each other the vector once each way", 120)
def two_levels():
    with Lab() as lab:
        hosts = sites.two_sites(lab, 3, "50mbit", 30)
        found = sites.allreduce(lab, hosts, 2 << 20, 3, 1, "--sites", 2)
        vectors = found["bytes"] / (2 * (2 << 20))
        check(found["aborted"] == 0, "a round was aborted")
        check(vectors < 2.2,
              f"{vectors:.2f} vectors a round between two sites; 2 is least")


@test("sites are found by their round trips, and outlive a gateway", 180)
def measured_sites():
    with Lab() as lab:
        hosts = sites.two_sites(lab, 3, "50mbit", 30)
        with LabSwarm(hosts, sync="opendiloco",
                      settings={"sites": 4, "site_rtt_ms": 5},
                      **ENDLESS) as s:
            s.start()
            s.wait_training()

            def gateways(peer, members):
                """Of the newest round that was committed with so many."""
                for a in peer.rounds():
                    if a["outcome"] == "committed" and \
                            a["members_in_plan"] == members:
                        full = peer.rounds(a["round"])[-1]["members"]
                        return [m["peer_id"] for m in full if m["gateway"]]
                return []

            def of_each_site(peer, members):
                def found():
                    ids = gateways(peer, members)
                    at = [n for n, who in enumerate(names) if who in ids]
                    return [min(at), max(at)] if len(at) == 2 and \
                        min(at) < 3 <= max(at) else None
                return found
            names = [p.peer_id()["peer_id"] for p in s.peers]
            first = wait_for(of_each_site(s.peers[0], 6),
                             "a gateway of each site", 60)
            s.peers[first[1]].kill()
            wait_for(of_each_site(s.peers[first[0]], 5),
                     "another gateway of that site", 60)


@test("two and two, cut apart and healed, end in one branch", 150)
def two_two():
    with Lab() as lab:
        lab.hub("west")
        lab.hub("east")
        hosts = [lab.host(name, hub, **ACCESS) for name, hub in
                 zip("abcd", ("west", "west", "east", "east"))]
        lab.link("west", "east", delay="5ms")
        with LabSwarm(hosts, settings={"round.fork_after_ms": 1500},
                      **ENDLESS) as s:
            s.start()
            s.wait_training()
            s.peers[0].wait_round(1)
            lab.link("west", "east", cut=True)
            # One half has the lowest id and is the run; the other half waits
            # round.fork_after_ms and goes on as a fork.
            halves = [[p.wait_status(lambda x: x["peers_in_round"] == 2
                                     and x["round"] > 1,
                                     "its half goes on by itself")
                       for p in half] for half in (s.peers[:2], s.peers[2:])]
            forks = [[x["fork"] for x in half] for half in halves]
            check(forks in ([[True] * 2, [False] * 2],
                            [[False] * 2, [True] * 2]),
                  f"no half, or not one half, is a fork: {forks}")
            lab.link("west", "east", cut=False)
            wait_together(s, max(x["round"] for h in halves for x in h))


# ---- home routers -----------------------------------------------------------


def three_and_one_at_home(lab, nat):
    return star(lab, "abc") + [
        lab.site("box", "net", nat=nat, **ACCESS).host("pc")]


def check_class(peer, wanted):
    """Until it has found out; says why otherwise."""
    def found():
        now = peer.status()
        return now["reachability"] == wanted and now
    try:
        status = wait_for(found, wanted, 20)
    except Failed:
        now = peer.status()
        raise Failed(f"{peer.name} is {now['reachability']}, not {wanted}: "
                     f"{now['reachability_reason']}") from None
    check(status["reachability_reason"], f"{peer.name} gives no reason")
    return status


@test("a peer behind a port-restricted NAT trains with peers that are not",
      150)
def restricted():
    with Lab() as lab, LabSwarm(three_and_one_at_home(lab, "restricted"),
                                rounds=3) as s:
        s.start()
        for status in s.wait_finished(seconds=140):
            check(status["rounds_committed"] == 3, "a round was missed")
            check(status["rounds_aborted"] == 0, "a round failed at first")
        check_class(s.peers[3], "restricted")
        check_class(s.peers[0], "public")


@test("a peer behind a full-cone NAT is dialled like any other")
def full_cone():
    with Lab() as lab, LabSwarm(three_and_one_at_home(lab, "full-cone"),
                                rounds=6) as s:
        s.start()
        for status in s.wait_finished():
            check(status["rounds_committed"] == 6, "a round was missed")
        for peer in s.peers:
            check("connection failed" not in peer.log(),
                  f"{peer.name} could not reach somebody")


# Routers that map a port for whoever asks, and how a daemon names the way.
MAPPING = {"upnp": "UPnP", "nat-pmp": "NAT-PMP", "pcp": "PCP"}


def homes(lab, *kinds):
    """A public host, and one PC behind a box of each kind."""
    spaces = star(lab, "a")
    for number, kind in enumerate(kinds):
        asked = kind in MAPPING
        site = lab.site(f"box{number}", "net",
                        nat="restricted" if asked else kind, **ACCESS)
        if kind == "nat-pmp":
            lab.natpmp(site)
        elif asked:
            lab.miniupnpd(site, natpmp=kind == "pcp")
        spaces.append(site.host(f"pc{number}"))
    return spaces


def check_doctor(peer, wanted):
    """`loco doctor` beside a daemon that nobody can dial: why, and what to
    do."""
    done = subprocess.run(
        peer.space.command(LOCO, "doctor", "--state", peer.state, "--json"),
        capture_output=True, text=True, timeout=60 * SCALE)
    lines = {x["check"]: x for x in json.loads(done.stdout)["checks"]}
    nat = lines["nat"]
    check(nat["level"] == "warning" and wanted in nat["what"]
          and "could not reach" in nat["what"],
          f"doctor does not say why it is {wanted}: {nat}")
    check("Forward TCP port 7700" in nat["fix"], f"doctor has no fix: {nat}")
    check(lines["port"]["level"] == "ok", f"the port: {lines['port']}")


@test("two peers behind symmetric NATs train through the relay of a third")
def symmetric_pair():
    with Lab() as lab, LabSwarm(homes(lab, "symmetric", "symmetric"),
                                rounds=6) as s:
        s.start()
        for status in s.wait_finished():
            check(status["rounds_committed"] == 6, "a round was missed")
        for peer in s.peers[1:]:
            status = check_class(peer, "relayed")
            check("forward TCP port 7700" in status["reachability_reason"],
                  f"no advice: {status['reachability_reason']}")
            check(status["links"]["relayed"] == 1, "the pair has no link")
            check_doctor(peer, "relayed")
        carried = s.peers[0].status()["bytes_relayed"]
        # A hop of the ring carries 2 * 2 / 3 of the vector, 6 times.
        check(carried > 6 * 4 / 3 * 30000 * 2 / 2,
              f"the relay carried {carried} bytes")


def wait_unused(relay, rounds):
    """Until it has carried nothing for so many rounds, which is longer than the
    second after which it counts what it carries: its status then."""
    last = relay.status()

    def unused():
        nonlocal last
        now = relay.status()
        if now["bytes_relayed"] != last["bytes_relayed"]:
            last = now
        return now["round"] >= last["round"] + rounds and now
    return wait_for(unused, "the relay carries nothing", 40)


def punched(kind, other, late=None, loss=0):
    """Two behind such routers get a direct link, and then all their data goes
    over direct connections: the relay, which is there, carries nothing. late:
    what the relay says comes to the second one so much later than the packets of
    the first one."""
    with Lab() as lab:
        spaces = homes(lab, kind, other)
        lab.link("box1", "net", loss=loss)
        first, second = lab.boxes
        second.run("nft", "insert", "rule", "inet", "filter", "input", "ip",
                   "saddr", first.address, "tcp", "flags", "syn", "counter")
        if late:  # a way of its own: by a hub the packets always cross
            lab.link("a", "box1", delay=late)
        with LabSwarm(spaces, rounds=100000) as s:
            s.start("--log", "debug")
            s.wait_training()
            for peer in s.peers[1:]:
                peer.wait_status(lambda x: x["links"]["punched"] == 1
                                 and x["links"]["relayed"] == 0
                                 and x["reachability"] == "restricted",
                                 "the link is direct")
            # Which of the two sends to the other, the ring's order says.
            ways = [(s.peers[i].log, s.peers[3 - i].peer_id()["short"])
                    for i in (1, 2)]
            wait_for(lambda: any(f"data to {short}: punched" in log()
                                 for log, short in ways),
                     "data goes over a direct connection")
            before = wait_unused(s.peers[0], 8)
            s.peers[0].wait_round(before["round"] + 8)
            now = [x.status() for x in s.peers]
            carried = now[0]["bytes_relayed"] - before["bytes_relayed"]
            check(carried == 0, f"the relay carried {carried} bytes more")
            check(all(x["rounds_aborted"] == 0 for x in now), "a round failed")
            check(all(x["peers_in_round"] == 3 for x in now), "not all three")
        early = int(re.search(r"counter packets (\d+)", second.run(
            "nft", "list", "chain", "inet", "filter", "input"))[1])
        check(not late or early > 0, "no packet came early: nothing is shown")


@test("two peers behind port-restricted NATs dial each other at once", 150)
def hole():
    punched("restricted", "restricted")


@test("so do two whose routers answer what nobody asked for with a reset, of "
      "which one begins late", 150)
def hole_reset():
    punched("resetting", "resetting", late="250ms")


@test("so do two of which one has a router with a reset, on a line with loss",
      150)
def hole_mixed():
    punched("restricted", "resetting", loss=0.02)


@test("behind a symmetric NAT and a port-restricted one the relay stays")
def no_hole():
    with Lab() as lab, LabSwarm(homes(lab, "restricted", "symmetric"),
                                rounds=8) as s:
        s.start("--log", "debug")
        for status in s.wait_finished():
            check(status["rounds_committed"] == 8, "a round was missed")
            check(status["rounds_aborted"] == 0, "a round failed")
        for peer in s.peers[1:]:
            links = peer.status()["links"]
            check((links["relayed"], links["punched"]) == (1, 0),
                  f"links: {links}")
            check("punched" not in peer.log(), "a hole through that NAT")


@test("two that nobody can dial, and no relay, say so and what to do")
def no_relay():
    with Lab() as lab, LabSwarm(homes(lab, "symmetric", "symmetric"),
                                **ENDLESS) as s:
        s.start("--relay", "0")
        for peer in s.peers[1:]:
            status = peer.wait_status(
                lambda x: "no peer relays" in x["reachability_reason"],
                "it says that there is no relay")
            check("forward TCP port 7700" in status["reachability_reason"],
                  f"no advice: {status['reachability_reason']}")


def maps_a_port(kind):
    with Lab() as lab:
        spaces = homes(lab, kind, "symmetric")
        with LabSwarm(spaces, rounds=6) as s:
            s.start()
            for status in s.wait_finished():
                check(status["rounds_committed"] == 6, "a round was missed")
            check_class(s.peers[1], "mapped")
            check(f"to us ({MAPPING[kind]})" in s.peers[1].log(),
                  f"the port was not mapped by {MAPPING[kind]}")
            check(s.peers[2].status()["links"]["relayed"] == 0,
                  "the other one needs a relay")
            rules = lab.boxes[0].run("nft", "list", "ruleset")
            check("dnat ip to" in rules, "the router maps nothing")
            s.peers[1].drain()
            rules = lab.boxes[0].run("nft", "list", "ruleset")
            check("dnat ip to" not in rules, "the mapping is still there")


@test("a peer behind a router that speaks UPnP maps a port and is dialled",
      program="miniupnpd")
def upnp():
    maps_a_port("upnp")


@test("a peer behind a router that speaks NAT-PMP maps a port and is dialled")
def nat_pmp():
    maps_a_port("nat-pmp")


@test("a peer behind a router that speaks PCP maps a port and is dialled",
      program="miniupnpd")
def pcp():
    maps_a_port("pcp")


@test("a run that starts behind a router is joined by the outer address in its "
      "log")
def outer_address():
    with Lab() as lab:
        outside, home = homes(lab, "nat-pmp")
        with LabSwarm([home, outside], **ENDLESS) as s:
            first = s.peer().start("--run", s.yaml).wait_up()
            check("outer address, which is not known yet" in first.log(),
                  first.log())
            said = wait_for(lambda: re.search(
                r"others elsewhere join with: loco join (loco://\S+)",
                first.log()), "it tells the outer address")
            first.wait_status(lambda t: t["share"]["uri"] == said[1] and
                              t["share"]["scope"] == "internet",
                              "the line for others has that address alone")
            second = s.peer().start("--join", said[1]).wait_up()
            second.wait_round(1)


@test("a peer without any reachable port joins a running quick start")
def late_home():
    with Lab() as lab:
        lab.hub("net")
        spaces = [lab.host(n, "net", **ACCESS) for n in "abc"]
        inner = lab.site("carrier", "net", nat="symmetric", lan="100.64.0",
                         **ACCESS).site("home", "symmetric").host("pc")
        with LabSwarm(spaces, **ENDLESS) as s:
            s.start()
            s.wait_training()
            s.peers[0].wait_round(1)
            late = s.peer(inner).start("--join", s.uri())
            late.wait_status(lambda x: x["rounds_committed"] > 0,
                             "it contributed to a round")
            check_class(late, "restricted")
            check_doctor(late, "restricted")
            # Nobody can dial it: it hands on those whom it reached.
            late.wait_status(lambda x: (x["share"]["uri"] or "").startswith(
                s.uri().rpartition("/")[0]) and x["share"]["scope"] ==
                "internet" and not re.search(
                    r"192\.168\.|100\.64\.", x["share"]["uri"]),
                "its line for others has addresses that can be dialled")


@test("two peers on one LAN find each other with no address at all")
def same_lan():
    with Lab() as lab:
        lab.hub("net")
        home = lab.site("box", "net", nat="restricted", **ACCESS)
        with LabSwarm([home.host("pc"), home.host("pc2")], rounds=3) as s:
            for _ in s.spaces:
                s.peer().start("--run", s.yaml)
            for peer in s.peers:
                peer.wait_up()
            s.wait_finished()


@test("two peers on a LAN that has IPv6 alone find each other")
def same_lan6():
    with Lab() as lab:
        lab.hub("net")
        home = lab.site("box", "net", nat="restricted", **ACCESS)
        spaces = [home.host("pc"), home.host("pc2")]
        for space in spaces:
            last = space.address.rsplit(".", 1)[1]
            space.ip(f"address del {space.address}/24 dev eth0",
                     f"address add fd00:77::{last}/64 dev eth0 nodad")
        with LabSwarm(spaces, rounds=3) as s:
            for _ in s.spaces:
                s.peer().start("--run", s.yaml, listen="[::]:7700")
            for peer in s.peers:
                peer.wait_up()
            s.wait_finished()


@test("heartbeats keep a NAT's memory of an idle connection alive")
def idle():
    with Lab() as lab:
        lab.hub("net")
        a = lab.host("a", "net", **ACCESS)
        site = lab.site("box", "net", nat="restricted", **ACCESS)
        pc = site.host("pc")
        # It forgets after 2 s what others forget after hours.
        site.box.write("/proc/sys/net/netfilter/"
                       "nf_conntrack_tcp_timeout_established", "2")
        with LabSwarm([a, pc], min_peers=3) as s:
            s.start()
            first = s.peers[1].wait_status(lambda x: x["peers_alive"] == 2,
                                           "the two are linked")
            last = s.peers[1].wait_status(
                lambda x: x["bytes_received"] > first["bytes_received"] + 8000,
                "some twenty heartbeats have come")
            check(last["peers_alive"] == 2, "the link was lost")
            check("linked" not in s.peers[0].log().split("linked", 2)[-1],
                  "it had to be made anew")
