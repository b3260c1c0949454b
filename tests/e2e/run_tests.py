"""run_tests.py - a whole run, its status and its end; see e2e.py."""
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


@test("status holds every field of the contract")
def status_fields():
    want = set("""version peer_id run_id run_name state fork round inner_step
        tokens tokens_per_s loss bits_per_byte peers_alive peers_in_round
        params_hash replicas_equal bytes_sent bytes_received last_round_ms
        rounds_committed rounds_aborted tokens_dropped peers_lost reachability
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
