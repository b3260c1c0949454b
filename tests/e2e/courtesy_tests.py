"""courtesy_tests.py - schedule, battery, quota, nice: live, with reasons."""
import json
import os
import time

from e2e_registry import test
from swarm import LOCO, Swarm, check, run, wait_for


def set_live(peer, path, name, value):
    run(LOCO, "config", "set", name, value, "--config", path)
    run(LOCO, "reload", "--state", peer.state)


def paused_because(peer, words):
    return peer.wait_status(lambda s: s["state"] == "paused"
                            and words in s["reason"], f"paused: {words}")


@test("schedule, battery and quota pause it live, each with its reason", 240)
def live():
    with Swarm(peers=2, rounds=100000) as s:
        path = s.path("locod.yaml")
        supply = s.path("sys/class/power_supply/BAT0")
        os.makedirs(supply)

        def battery(status):
            for name, text in (("type", "Battery"), ("status", status)):
                with open(os.path.join(supply, name), "w",
                          encoding="ascii") as f:
                    f.write(text + "\n")

        battery("Charging")
        run(LOCO, "config", "set", "log", "info", "--config", path)
        two = s.peer().start("--run", s.yaml).wait_up()
        one = s.peer().start("--join", s.uri(), "--config", path,
                             env={"LOCO_SYSFS": s.path("sys")}).wait_up()
        one.wait_state("training", "averaging")
        battery("Discharging")
        status = paused_because(one, "on battery")
        check(status["caps"]["on_battery"] is True, "caps do not show it")
        check(two.wait_state("training", "averaging"), "the other one, too")
        set_live(one, path, "battery", "train")
        one.wait_state("training", "averaging")
        # Never open today: a day that is not today, nor tomorrow.
        day = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"][
            (time.localtime().tm_wday + 3) % 7]
        set_live(one, path, "schedule", f"{day} 3-4")
        paused_because(one, f"outside of the schedule until {day} 03:00")
        check(one.status()["caps"]["schedule"] == f"{day} 3-4", "not shown")
        # By hand comes first and stays when the schedule opens.
        run(LOCO, "pause", "--state", one.state)
        paused_because(one, "by hand")
        set_live(one, path, "schedule", "always")
        wait_for(lambda: "schedule is always now" in one.log(), "it was read")
        paused_because(one, "by hand")
        run(LOCO, "resume", "--state", one.state)
        one.wait_state("training", "averaging")
        # A wrong value changes nothing and says so.
        with open(path, "a", encoding="ascii") as f:
            f.write("schedule: never\n")
        run(LOCO, "reload", "--state", one.state)
        wait_for(lambda: "the settings stay as they are" in one.log(),
                 "the mistake is named")
        check(one.process.poll() is None, "a mistake ended it")


@test("a month's quota of traffic pauses it, over restarts too", 180)
def quota():
    with Swarm(peers=2, rounds=100000) as s:
        s.start("--quota", "1")
        s.wait_training()
        one = s.peers[1]
        sent = one.wait_status(lambda st: st["caps"]["bytes_this_month"] > 0,
                               "traffic is counted"
                               )["caps"]["bytes_this_month"]
        check(one.status()["caps"]["bytes_per_month"] == 10 ** 9, "the cap")
        one.drain()
        path = os.path.join(one.state, "traffic")
        with open(path, encoding="ascii") as f:
            month, count = f.read().split()
        check(int(count) >= sent > 0, f"{count} after {sent}")
        with open(path, "w", encoding="ascii") as f:
            f.write(f"{month} {10 ** 9}\n")
        one.start("--join", s.uri(), "--quota", "1").wait_up()
        paused_because(one, "quota of 1.0 GB is used up")
        peer = json.loads(run(LOCO, "status", "--state", one.state,
                              "--json").stdout)
        check(peer["caps"]["bytes_this_month"] >= 10 ** 9, "not counted on")


@test("nice and idle_io lower its share, all threads of it, live", 120)
def nice():
    with Swarm(peers=1, rounds=100000) as s:
        path = s.path("locod.yaml")
        run(LOCO, "config", "set", "nice", "5", "--config", path)
        one = s.peer().start("--run", s.yaml, "--config", path).wait_up()
        one.wait_state("training", "averaging")

        def shares():
            found = set()
            for tid in os.listdir(f"/proc/{one.process.pid}/task"):
                try:
                    found.add(os.getpriority(os.PRIO_PROCESS, int(tid)))
                except ProcessLookupError:
                    pass  # a thread that has ended since
            return found

        wait_for(lambda: shares() == {5}, "nice 5")
        set_live(one, path, "nice", "7")
        wait_for(lambda: shares() == {7}, "nice 7")
        check(one.status()["caps"]["idle_io"] is False, "not asked for")
        set_live(one, path, "idle_io", "on")
        one.wait_status(lambda t: t["caps"]["nice"] == 7 and
                        t["caps"]["idle_io"] is True, "both are shown")


@test("upload caps change live, up, down and off, and rounds go on", 240)
def caps():
    with Swarm(peers=2, rounds=100000) as s:
        path = s.path("locod.yaml")
        run(LOCO, "config", "set", "upload_bytes_per_s", "400000", "--config",
            path)
        s.start("--config", path)
        s.wait_training()
        one = s.peers[0]

        def rate_of_last():
            """Bytes a millisecond of the newest whole round."""
            done = json.loads(run(LOCO, "rounds", "--state", one.state,
                                  "--json").stdout)["rounds"]
            return next((r["bytes_sent"] / max(1, r["phase_ms"]["reduce"])
                         for r in done if r["outcome"] == "committed"
                         and r["phase_ms"]["hash"] is not None), None)

        def three_more():
            ahead = one.status()["round"] + 3
            one.wait_round(ahead)
            return rate_of_last()

        for cap in ("40000", "0", "80000"):
            run(LOCO, "config", "set", "upload_bytes_per_s", cap, "--config",
                path)
            for peer in s.peers:
                run(LOCO, "reload", "--state", peer.state)
            one.wait_status(lambda st, cap=cap: st["caps"][
                "upload_bytes_per_s"] == (int(cap) or None), f"cap {cap}")
            rate = three_more()  # bytes a millisecond
            if cap != "0":
                check(rate <= 1.5 * int(cap) / 1000,
                      f"{1000 * rate:.0f} bytes a second with {cap}")
            else:
                check(rate > 200, f"{1000 * rate:.0f} bytes a second, no cap")
        run(LOCO, "config", "set", "upload_bytes_per_s", "1000", "--config",
            path)
        run(LOCO, "reload", "--state", one.state)
        wait_for(lambda: "the settings stay as they are" in one.log(),
                 "a cap below the floor of the run is refused")
        check(one.status()["caps"]["upload_bytes_per_s"] == 80000, "taken")


@test("it pauses while somebody types, and caps on processor time and memory "
      "change live", 240)
def used():
    with Swarm(peers=1, rounds=100000) as s:
        path = s.path("locod.yaml")
        terminal = s.path("root/dev/pts/7")
        os.makedirs(os.path.dirname(terminal))

        def typed(ago_s):
            with open(terminal, "w", encoding="ascii"):
                pass
            os.utime(terminal, (time.time() - ago_s, time.time()))

        typed(60)
        run(LOCO, "config", "set", "log", "info", "--config", path)
        one = s.peer().start("--run", s.yaml, "--config", path,
                             env={"LOCO_ROOT": s.path("root")}).wait_up()
        one.wait_state("training", "averaging")
        check(one.status()["caps"]["in_use"] is False, "nobody asked for it")
        set_live(one, path, "idle_minutes", "10")
        paused_because(one, "somebody uses this machine (/dev/pts/7")
        status = one.status()["caps"]
        check(status["in_use"] is True and status["idle_minutes"] == 10, status)
        typed(601)
        one.wait_state("training", "averaging")
        typed(1)
        paused_because(one, "somebody uses this machine")
        set_live(one, path, "idle_minutes", "0")
        one.wait_state("training", "averaging")

        check(one.status()["caps"]["cpu_percent"] == 100, one.status())
        fast = one.wait_status(lambda t: t["tokens_per_s"] > 0,
                               "it has a speed")["tokens_per_s"]
        set_live(one, path, "cpu_percent", "5")
        slow = one.wait_status(lambda t: t["tokens_per_s"] < fast / 3,
                               "it rests most of the time")
        check(slow["caps"]["cpu_percent"] == 5, slow["caps"])
        set_live(one, path, "cpu_percent", "100")
        one.wait_status(lambda t: t["tokens_per_s"] > fast / 3, "and no more")

        need = one.status()["caps"]["memory_bytes_needed"]
        check(need > 0, "what the run needs is not said")
        set_live(one, path, "memory_bytes", str(need))
        one.wait_status(lambda t: t["caps"]["memory_bytes"] == need, "a cap")
        set_live(one, path, "memory_bytes", str(need - 1))
        wait_for(lambda: "more than memory_bytes" in one.log(), "it is refused")
        one.wait_state("training", "averaging")
        one.drain()
        # After a restart it does with less, and not with as little as that.
        one.start("--run", s.yaml, "--config", path).wait_up()
        one.wait_state("training", "averaging")
        check("the backward pass recomputes" in one.log(), one.log())
        one.drain()
        run(LOCO, "config", "set", "memory_bytes", "1000000", "--config", path)
        one.start("--run", s.yaml, "--config", path)
        one.wait_exit(9)
        check("the setting memory_bytes has" in one.log(), one.log())
