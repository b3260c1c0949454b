"""metrics_tests.py - /metrics, judged by Prometheus itself.

promtool and prometheus come from Debian's package `prometheus`; without them
these tests are skipped.
"""
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import urllib.parse
import urllib.request

from e2e_registry import Skipped, test
from swarm import ROOT, SCALE, Swarm, check, run, wait_for

DEPLOY = os.path.join(ROOT, "deploy")


def need(program):
    path = shutil.which(program)
    if not path:
        raise Skipped(f"no {program} (apt-get install prometheus)")
    return path


def address(peer):
    with open(os.path.join(peer.state, "control"), encoding="ascii") as f:
        return f.read().strip()


def metrics(peer):
    with urllib.request.urlopen(f"http://{address(peer)}/metrics",
                                timeout=30 * SCALE) as answer:
        return answer.read().decode()


def names_of(text):
    return set(re.findall(r"^([a-z_]+)[ {]", text, re.M))


def dashboard_expressions():
    with open(os.path.join(DEPLOY, "grafana.json"), encoding="utf-8") as f:
        board = json.load(f)
    ids = [p["id"] for p in board["panels"]]
    check(len(ids) == len(set(ids)) > 0, "two panels have one id")
    return [t["expr"] for p in board["panels"] for t in p["targets"]]


@test("every metric of the Grafana dashboard and the rules is one of ours")
def board():
    with open(os.path.join(DEPLOY, "prometheus-rules.yml"),
              encoding="utf-8") as f:
        rules = [line.split(":", 1)[1] for line in f if " expr:" in line]
    asked = {n for e in dashboard_expressions() + rules
             for n in re.findall(r"\b((?:loco|process)_[a-z_]+)", e)}
    check(asked and len(rules) > 2, "nothing is asked for")
    with Swarm(peers=2, rounds=4, settings={"eval.every_rounds": 1}) as s:
        s.start("--upload-bytes-per-s", "200000")
        s.wait_finished()

        def missing():
            return sorted(asked - names_of(metrics(s.peers[0])))

        wait_for(lambda: not missing(), lambda: f"somebody says {missing()}")


@test("promtool finds no fault with /metrics, the scrape example and the rules")
def promtool():
    tool = need("promtool")
    with Swarm(peers=2, rounds=4, settings={"eval.every_rounds": 1}) as s:
        s.start("--upload-bytes-per-s", "200000")
        s.wait_finished()
        text = metrics(s.peers[0])
    done = subprocess.run([tool, "check", "metrics"], input=text, text=True,
                          capture_output=True, timeout=60 * SCALE)
    check(done.returncode == 0, done.stdout + done.stderr)
    run(tool, "check", "config", os.path.join(DEPLOY, "prometheus.yml"))
    run(tool, "check", "rules", os.path.join(DEPLOY, "prometheus-rules.yml"))


@test("a real Prometheus scrapes a swarm and answers the dashboard's questions",
      240)
def scraped():
    program = need("prometheus")
    with Swarm(peers=2, rounds=100000) as s, \
            tempfile.TemporaryDirectory() as d:
        s.start("--upload-bytes-per-s", "200000")
        s.wait_training()
        config = os.path.join(d, "prometheus.yml")
        targets = [address(p) for p in s.peers]
        with open(config, "w", encoding="ascii") as f:
            json.dump({"global": {"scrape_interval": "1s"}, "scrape_configs": [
                {"job_name": "loco",
                 "static_configs": [{"targets": targets}]}]}, f)
        log = open(os.path.join(d, "log"), "wb+")
        server = subprocess.Popen(
            [program, f"--config.file={config}", f"--storage.tsdb.path={d}/db",
             f"--web.listen-address=127.0.0.1:{free_port()}"],
            stdout=log, stderr=log)
        try:
            at = wait_for(lambda: listens(server, log), "Prometheus is up")

            def values(expr):
                with urllib.request.urlopen(
                        f"http://{at}/api/v1/query?query="
                        + urllib.parse.quote(expr), timeout=30) as answer:
                    return [float(r["value"][1]) for r in
                            json.load(answer)["data"]["result"]]

            wait_for(lambda: values("up") == [1, 1], "both are scraped")
            wait_for(lambda: values("increase(loco_round[1m])")
                     and min(values("increase(loco_round[1m])")) > 0,
                     "rounds grow")
            wait_for(lambda: sum(values(
                "rate(loco_round_phase_seconds_total[1m])")) > 0, "phases grow")
            for expr in dashboard_expressions():
                values(expr.replace("$instance", ".*").replace(
                    "$__rate_interval", "1m"))  # HTTP 400 would raise
        finally:
            server.terminate()
            server.wait(60)
            log.close()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listens(server, log):
    check(server.poll() is None, "Prometheus ended")
    with open(log.name, encoding="utf-8", errors="replace") as f:
        found = re.search(r"Listening on\" address=(\S+)|"
                          r"msg=\"Listening on\"\s+address=(\S+)", f.read())
    at = found and (found[1] or found[2])
    if not at:
        return None
    try:
        with urllib.request.urlopen(f"http://{at}/-/ready", timeout=5):
            return at
    except OSError:
        return None
