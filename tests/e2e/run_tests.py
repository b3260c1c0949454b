"""run_tests.py - a whole run, its status and its end; see e2e.py."""
import json
import os
import signal

from e2e_registry import test
from swarm import LOCO, Swarm, check, run, wait_for


@test("four peers of which three know only the URI end with equal hashes",
      smoke=True)
def main_job():
    with Swarm(rounds=10) as s:
        s.start()
        done = s.wait_finished()
        for status in done:
            check(status["rounds_committed"] == 10, "a round was missed")
            check(status["fork"] is False, "a fork without a cut")
            check(status["replicas_equal"] is True, "replicas_equal is false")
            check(status["progress"] == 1, "progress is not 1")
        for peer in s.peers:
            peer.drain()


@test("an open run averages around a centre, by a butterfly, and audits sums: "
      "three of four learn on after kill -9, without another setting", smoke=True)
def open_run():
    with Swarm(rounds=15, settings={"sync.robust": None,
                                    "sync.audit": None}) as s:
        text = run(LOCO, "run", "show", s.yaml, "--json").stdout
        sync = json.loads(text)["sync"]
        check(sync["robust"] == "centred" and sync["topology"] == "butterfly",
              f"an open run has {sync}")
        check(sync["audit"] == "sums", f"an open run has {sync}")
        s.start()
        s.wait_training()
        s.peers[0].wait_round(3)
        s.peers[2].kill()
        for status in s.wait_finished(s.peers[:2] + s.peers[3:]):
            check(status["bits_per_byte"] < 7, "nothing was learnt")


@test("run create: a robust mean for open runs, not for invited peers; --set "
      "counts; where a run cannot have one, a sentence names one that can")
def robust_by_default():
    with Swarm(peers=1) as s:
        path = s.path("robust.yaml")

        def create(*sets, sync="opendiloco", code=0):
            sets = [w for v in sets for w in ("--set", v)]
            said = run(LOCO, "run", "create", "--name", "x", "--model",
                       s.path("model.yaml"), "--data", s.data, "--sync", sync,
                       *sets, "--out", path, code=code).stderr
            if code != 0:
                return None, said
            got = json.loads(run(LOCO, "run", "show", path, "--json").stdout)
            got = got["sync"]
            return (got["topology"], got["norm_clip"],
                    got.get("robust", "")), said

        centred = ("butterfly", 1, "centred")
        for sync in ("opendiloco", "muon-avg", "favg-keep", "eager"):
            got, said = create(sync=sync)
            check(got == centred and "--set sync.robust=off" in said,
                  f"{sync}: {got} {said}")
        for sets, want, word in (
                (["invited=true"], ("ring", 0, ""), None),
                (["invited=true", "sync.robust=centred"], centred, None),
                (["sync.robust=off"], ("ring", 0, "off"), None),
                (["sync.robust=centred"], centred, None),
                (["sync.topology=butterfly"], centred, "robust=off"),
                (["sync.robust=clip", "sync.norm_clip=2",
                  "sync.topology=butterfly"], ("butterfly", 2, "clip"), None),
                (["sync.topology=ring"], ("ring", 0, ""),
                 "--set sync.topology=butterfly"),
                (["sites=4"], ("ring", 0, ""), "--set sites=0"),
                (["stages=2", "model.tied=false"], ("ring", 0, ""),
                 "--set stages=1")):
            got, said = create(*sets)
            check(got == want, f"{sets}: {got}, not {want}")
            check(word in said if word else "robust" not in said,
                  f"{sets}: {said}")
        for sync, nearest in (("noloco", "opendiloco"),
                              ("async-dn", "opendiloco"),
                              ("desloc", "favg-keep"),
                              ("adloco", "localsgd")):
            got, said = create(sync=sync)
            check(got == ("ring", 0, "") and f"--sync {nearest}" in said,
                  f"{sync}: {got} {said}")
        _, said = create("sync.robust=off", "sync.norm_clip=1",
                         "sync.topology=butterfly", code=3)
        check("sync.robust=clip" in said, said)


@test("run create: an audit of sums for open runs with a robust mean; --set "
      "counts; where a run cannot have one, a sentence names one that can")
def audit_by_default():
    turned_off, warned = "--set sync.audit=off", "nobody makes the sums"
    work = "with --set sync.audit=work members make some of each other's work"
    no_work = ("the nearest run that can: --set sync.error_feedback=false")
    with Swarm(peers=1) as s:
        path = s.path("audit.yaml")

        def create(sync, *sets, code=0):
            sets = [w for v in sets for w in ("--set", v)]
            return run(LOCO, "run", "create", "--name", "x", "--model",
                       s.path("model.yaml"), "--data", s.data, "--sync", sync,
                       *sets, "--out", path, code=code).stderr

        for sync, sets, want, word in (
                ("opendiloco", [], "sums", turned_off),
                ("muon-avg", [], "sums", turned_off),
                ("opendiloco", ["sync.robust=centred"], "sums", turned_off),
                ("opendiloco", ["sync.audit=off"], "off", None),
                ("opendiloco", ["sync.robust=off"], "", None),
                ("opendiloco", ["sync.topology=ring"], "", None),
                ("opendiloco", ["invited=true"], "", None),
                ("opendiloco", ["invited=true", "sync.audit=sums"], "sums",
                 None),
                ("opendiloco", ["sync.audit=work"], "work", None),
                ("opendiloco", ["invited=true", "sync.audit=work"], "work",
                 None),
                ("eager", [], "", warned),
                ("streaming", ["sync.fragments=2"], "", warned),
                ("eager", ["sync.audit=off"], "off", None),
                ("noloco", [], "", None)):
            said = create(sync, *sets)
            got = json.loads(run(LOCO, "run", "show", path, "--json").stdout)
            got = got["sync"]
            check(got.get("audit", "") == want, f"{sync} {sets}: {got}")
            check(want not in ("sums", "work") or
                  got["topology"] == "butterfly", f"{sync} {sets}: {got}")
            check(want != "work" or (got["robust"] == "centred") ==
                  ("invited=true" not in sets), f"{sync} {sets}: {got}")
            for w in (turned_off, warned):
                check((w in said) == (w == word), f"{sync} {sets}: {said}")
            # Whoever is not asked for audits of work is told of them.
            feedback = sync == "muon-avg"
            check((work in said) == (word == turned_off and not feedback),
                  f"{sync} {sets}: {said}")
            check((no_work in said) == feedback, f"{sync} {sets}: {said}")
            check(word != warned or "with an audit of sums: --sync opendiloco"
                  in said, f"{sync} {sets}: {said}")
        for sync, sets, nearest in (
                ("noloco", [], "sync.preset=diloco"),
                ("eager", [], "sync.overlap=0"),
                ("desloc", [], "sync.period_u=0"),
                ("opendiloco", ["sites=4"], "sites=0"),
                ("opendiloco", ["stages=2", "model.tied=false"], "stages=1"),
                ("opendiloco", ["sync.topology=ring"],
                 "sync.topology=butterfly")):
            said = create(sync, "sync.audit=sums", *sets, code=3)
            check("sync.audit=off" in said and nearest in said,
                  f"{sync} {sets}: {said}")


@test("run create: an open run takes back rounds that ruin the model, if its "
      "rounds are long enough; --set counts")
def rollback_by_default():
    with Swarm(peers=1) as s:
        path = s.path("rollback.yaml")
        for sets, sync, want in (
                ([], "opendiloco", 0.5), (["sync.rollback=0"], "diloco", 0),
                (["sync.rollback=2"], "diloco", 2), ([], "noloco", 0),
                (["invited=true"], "opendiloco", 0), ([], "ddp", 0),
                (["sync.period=5"], "diloco", 0), ([], "eager", 0)):
            said = run(LOCO, "run", "create", "--name", "x", "--model",
                       s.path("model.yaml"), "--data", s.data, "--sync", sync,
                       *(w for v in sets for w in ("--set", v)),
                       "--out", path).stderr
            got = json.loads(run(LOCO, "run", "show", path, "--json").stdout)
            got = got["sync"].get("rollback", 0)
            check(got == want, f"{sync} {sets}: {got}, not {want}")
            check(("--set sync.rollback=0" in said) == (want == 0.5), said)
            check(("is not taken back" in said) == (want == 0 and sets in
                  ([], ["sync.period=5"])), f"{sync} {sets}: {said}")


@test("status holds every field of the contract")
def status_fields():
    want = set("""version peer_id run_id run_name state fork round inner_step
        tokens tokens_per_s loss bits_per_byte peers_alive peers_in_round
        params_hash replicas_equal bytes_sent bytes_received last_round_ms
        rounds_committed rounds_aborted rollbacks tokens_dropped peers_lost
        reachability
        reason progress eta_s caps""".split())
    with Swarm(peers=2, rounds=4) as s:
        s.start()
        for status in s.wait_finished():
            check(want <= set(status), f"missing: {want - set(status)}")
            check(status["run_id"] == s.run_id, "another run id")
            check(status["run_name"] == "e2e", "another name")
            check(status["bits_per_byte"] < 8, "nothing was learnt")
            check(status["loss"] < 5.5, "nothing was learnt")
            check(status["bytes_sent"] > 0, "nothing was sent")


@test("a finished run can be verified, evaluated, exported and sampled",
      smoke=True)
def after_the_run():
    with Swarm(peers=2, rounds=6) as s:
        s.start()
        s.wait_finished()
        for peer in s.peers:
            peer.drain()
        state, out = s.peers[1].state, s.path("model")
        run(LOCO, "verify", "--state", state)
        first = run(LOCO, "eval", "--state", state, "--text",
                    s.path("text.txt")).stdout
        check(float(first.split()[0]) < 6, f"nothing was learnt: {first}")
        run(LOCO, "export", "--state", state, "--out", out)
        again = run(LOCO, "eval", "--model", out, "--text",
                    s.path("text.txt")).stdout
        check(first == again, "the export is another model")
        run(LOCO, "export", "--state", s.peers[0].state, "--out", out + "2")
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            with open(os.path.join(out, name), "rb") as a, \
                    open(os.path.join(out + "2", name), "rb") as b:
                check(a.read() == b.read(), f"{name} differs between peers")
        run(LOCO, "generate", "--model", out, "--prompt", "the ",
            "--max-tokens", 16)


@test("a run of one long round shows its progress, and the time left, in it")
def progress_within_a_round():
    with Swarm(peers=1, rounds=1, period=20000, sync="localsgd") as s:
        s.start()
        status = s.peers[0].wait_status(
            lambda t: t["eta_s"] is not None and 0 < t["progress"] < 1,
            "it shows progress and the time left")
        check(status["round"] == 0, "that round is over")


@test("SIGTERM drains with exit code 0 and the others finish")
def sigterm_drains():
    with Swarm(peers=3, rounds=30) as s:
        s.start()
        s.wait_training()
        s.peers[2].drain()
        s.wait_finished(s.peers[:2])


@test("a second SIGTERM stops at once")
def second_sigterm():
    with Swarm(peers=2, rounds=100000) as s:
        s.start()
        s.wait_training()
        # A frozen partner keeps the round open, so that draining must wait.
        s.peers[1].signal(signal.SIGSTOP)
        s.peers[0].signal(signal.SIGTERM)
        wait_for(lambda: "drain" in s.peers[0].log(), "it drains")
        s.peers[0].signal(signal.SIGTERM)
        s.peers[0].wait_exit(0, seconds=5)


@test("--rounds drains and exits 0 after that round")
def rounds_flag():
    with Swarm(peers=2, rounds=100000) as s:
        s.start("--rounds", "3")
        for peer in s.peers:
            peer.wait_exit(0, seconds=60)


@test("pause stops training and resume takes it up")
def pause_resume():
    with Swarm(peers=2, rounds=100000) as s:
        s.start()
        s.wait_training()
        for peer in s.peers:
            run(LOCO, "pause", "--state", peer.state)
        for peer in s.peers:
            peer.wait_state("paused")
        before = s.peers[0].status()["round"]
        for peer in s.peers:
            run(LOCO, "resume", "--state", peer.state)
        s.peers[0].wait_round(before + 2)
        run(LOCO, "drain", "--state", s.peers[0].state)
        s.peers[0].wait_exit(0)


@test("--end-grace-s ends a daemon with exit code 0 after the end of the run, "
      "also when it starts after that end", smoke=True)
def end_grace():
    with Swarm(peers=2, rounds=4) as s:
        first = s.peer().start("--run", s.yaml).wait_up()
        second = s.peer().start("--join", s.uri(),
                                env={"LOCO_END_GRACE_S": "2"}).wait_up()
        first.wait_state("finished")
        second.wait_exit(0)
        check("the run ended 2 s ago" in second.log(), second.log()[-300:])
        # The other serves the result for ever, until it is told otherwise.
        check(first.status()["state"] == "finished", first.brief())
        second.start("--join", s.uri(), "--end-grace-s", "1")
        second.wait_exit(0)
        first.drain()
        first.start("--run", s.yaml, "--end-grace-s", "1")  # nobody is there
        first.wait_exit(0)
