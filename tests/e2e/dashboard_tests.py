"""dashboard_tests.py - the daemon's page in a real browser.

Skipped where no Chromium is installed: it is too large for a short run to
fetch (Debian: chromium-headless-shell). pictures.py takes the pictures of the
pages.
"""
import json
import os
import re
import signal
import time

import browser
from command_tests import Terminal
from e2e_registry import Skipped, test
from swarm import LOCO, PACED, SCALE, Swarm, check, run, wait_for

DEATH_S = 5  # a peer's death is on the page by then
UPLOAD = 80_000  # bytes a second: so slow that the links' speed is measured


def page_of(peer):
    with open(os.path.join(peer.state, "control"), encoding="ascii") as f:
        return "http://" + f.read().strip() + "/"


def need_browser():
    if not browser.find():
        raise Skipped("no chromium is installed "
                      "(apt-get install chromium-headless-shell)")


def wait_page(page, expression, what, seconds=60):
    def holds():
        return page.ask(expression)
    try:
        return wait_for(holds, what, seconds)
    finally:
        check(not page.errors, f"the page complains: {page.errors}")


def row_class(peer_id):
    return ("document.querySelector('tr[data-peer=\"%s\"]')?.className"
            % peer_id)


@test("the dashboard follows the run and names a killed peer in a browser",
      300)
def dashboard():
    need_browser()
    with Swarm(peers=3, rounds=100000, period=20,
               settings={"eval.every_rounds": 2}) as s:
        s.start("--upload-bytes-per-s", str(UPLOAD))
        s.wait_training()
        watched, victim = s.peers[0], s.peers[2]
        with browser.Page() as page:
            page.open(page_of(watched))
            wait_page(page, "document.readyState === 'complete' && "
                      "document.querySelectorAll('#peers tbody tr').length "
                      "=== 3", "three peers are in the table")
            has_charts = page.ask("typeof Chart !== 'undefined'")
            check(page.text("#run") == "e2e", "the run's name is not shown")
            first = int(page.text("#round").replace(",", ""))
            wait_page(page, "+document.getElementById('round').textContent"
                      f".replaceAll(',', '') > {first + 1}",
                      "the round moves without a reload")
            wait_page(page, "now.samples.filter(p => p.bits_per_byte).length "
                      "> 2 && now.rounds.length > 3", "the curves have points")
            if has_charts:
                check(page.ask("charts['chart-bits'].data.datasets[0].data"
                               ".length > 0"), "the curve is empty")
                check(page.ask("charts['chart-rounds'].data.labels.length"
                               " > 3"), "the timeline is empty")
            wait_page(page, "document.querySelectorAll('#graph text.rate')"
                      ".length > 0", "the links have speeds")
            wait_page(page, "now.peers.peers.every(p => p.rounds > 0)",
                      "all have a share")
            everything_has_a_name(page)
            nothing_is_cut_off(page)
            for scheme in ("dark", "light"):
                page.colours(scheme)
                contrast_is_enough(page)
            who = victim.peer_id()["peer_id"]
            wait_page(page, f"{row_class(who)} === 'alive'", "alive at first")
            victim.kill()
            began = time.monotonic()
            wait_page(page, f"{row_class(who)} === 'lost'",
                      "the dead peer is marked", DEATH_S)
            wait_page(page, "[...document.querySelectorAll("
                      "'#events [data-kind=peer_lost]')].some(e => "
                      "e.textContent.includes('is lost: '))",
                      "an event tells why", DEATH_S)
            print(f"on the page after {time.monotonic() - began:.1f} s")
            check(page.ask("performance.getEntriesByType('resource').every("
                           "e => e.name.startsWith(location.origin))"),
                  "the page asked somebody else")


@test("the page shows the status although no event arrives", 120)
def status_first():
    need_browser()
    with Swarm(peers=2, rounds=100000) as s:
        s.start()
        s.wait_training()
        with browser.Page() as page:
            page.call("Network.enable")
            page.call("Network.setBlockedURLs", urls=["*/api/v1/events"])
            page.open(page_of(s.peers[0]))
            wait_for(lambda: page.text("#run") == "e2e" and
                     page.text("#alive") == "2, 2 in the round" and
                     page.text("#round") != "-", "the figures are there")


@test("the page and loco top show what is left of a newcomer's probation", 240)
def probation():
    need_browser()
    with Swarm(peers=2, rounds=100000, period=400) as s:
        s.start(*PACED)
        s.wait_training()
        late = s.peer().start("--join", s.uri(), *PACED).wait_up()
        late.wait_status(lambda t: t["probation"], "it is on probation", 90)
        with browser.Page() as page:
            page.open(page_of(late))
            wait_page(page, "/On probation: [0-3] of 3 rounds offered/.test("
                      "document.getElementById('probation').textContent) && "
                      "!document.getElementById('probation').hidden",
                      "the page says so")
            t = Terminal(LOCO, "top", late.state)
            t.until("of 3 rounds offered, then its work counts")
            os.kill(t.pid, signal.SIGINT)
            t.end()
            check(re.search(r"probation  [0-3] of 3 rounds offered",
                            run(LOCO, "status", "--state", late.state).stdout),
                  "loco status does not")
            page.open(page_of(s.peers[0]))
            wait_page(page, says("alive", "1 on probation"),
                      "the others say that one is")
            check(page.ask("document.getElementById('probation').hidden"),
                  "a founder is on none")


def everything_has_a_name(page, there=frozenset(
        ("button", "table", "log", "status", "main"))):
    """What can be operated or looked at has a name for a screen reader; there:
    roles that have to be on the page."""
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "link", "img", "table", "meter", "progressbar",
             "DisclosureTriangle", "image", "combobox"}
    nameless = [n["role"]["value"] for n in tree if not n.get("ignored")
                and n.get("role", {}).get("value") in roles
                and not n.get("name", {}).get("value")]
    check(not nameless, f"without a name: {nameless}")
    seen = {n.get("role", {}).get("value") for n in tree}
    check(there <= seen,
          f"roles: {sorted(r for r in seen if r)}")


def says(element, text):
    return (f"document.getElementById('{element}').textContent"
            f".includes('{text}')")


def fields_have_names(page):
    """Each limit has a name and says what it is about to a screen reader."""
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    fields = [n for n in tree if not n.get("ignored") and n.get("role", {})
              .get("value") in ("spinbutton", "textbox", "combobox")]
    check(len(fields) == len(FIELDS), f"{len(fields)} fields")
    wanting = [n["name"]["value"] for n in fields
               if not n.get("name", {}).get("value")
               or not n.get("description", {}).get("value")]
    check(not wanting, f"without a description: {wanting}")


def by_keyboard(page):
    """Tab goes through the limits as they stand, to the button."""
    page.ask("document.getElementById('cap-upload').focus()")
    seen = []
    for _ in FIELDS:
        seen.append(page.ask("document.activeElement.id"))
        page.press("Tab")
    check(seen == ["cap-" + f for f in FIELDS], f"Tab goes to {seen}")
    check(page.ask("document.activeElement.id") == "apply", "not the button")


# The least contrast of a text with what is behind it (WCAG 2.1, 1.4.3: 4.5 and,
# for large text, 3), and where. What is disabled or hidden does not count.
CONTRAST = """(() => {
  const canvas = document.createElement("canvas").getContext("2d");
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const luminance = (c) => {
    const [r, g, b] = c.map((v) => v / 255).map((v) =>
      v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgba(getComputedStyle(e).backgroundColor);
      if (c[3] === 1) { return c; }
    }
    return [255, 255, 255, 1];
  };
  const bad = [];
  let n = 0;
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((c) => c.nodeType === 3 && c.data.trim());
    if (!own || e.closest("svg, :disabled, [hidden], noscript, option") ||
        !e.checkVisibility()) { continue; }
    const style = getComputedStyle(e), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const [p, q] = [rgba(style.color), behind(e)].map(luminance);
    const ratio = (Math.max(p, q) + 0.05) / (Math.min(p, q) + 0.05);
    n++;
    if (ratio < (large ? 3 : 4.5)) {
      bad.push(`${e.tagName} ${e.id} "${e.textContent.slice(0, 30)}" ${ratio.toFixed(2)}`);
    }
  }
  return { n, bad };
})()"""


def contrast_is_enough(page):
    got = page.ask(CONTRAST)
    check(got["n"] > 20 and not got["bad"],
          f"{got['n']} texts; with too little contrast: {got['bad']}")


def settle(page):
    """Two pictures later what was changed is drawn."""
    page.ask("new Promise(f => requestAnimationFrame(() => "
             "requestAnimationFrame(f)))")


def nothing_is_cut_off(page, narrow=360):
    """Also on a phone, nothing makes the page wider than the screen."""
    for width, phone in ((1200, False), (narrow, True)):
        page.resize(width, 800, phone)
        # The charts follow some frames later.
        wait_page(page, f"document.documentElement.scrollWidth <= {width}",
                  f"it fits on a screen of {width} pixels; too wide are "
                  + str(page.ask(
                      "[...document.body.querySelectorAll('*')].filter(e => "
                      f"e.getBoundingClientRect().right > {width} && "
                      "!e.closest('.scroll')).map(e => e.id || e.tagName)")),
                  10)
    page.resize(1200, 900)


@test("the dashboard's buttons pause, resume and drain by keyboard alone",
      240)
def buttons():
    need_browser()
    with Swarm(peers=2, rounds=100000) as s:
        s.start()
        s.wait_training()
        one = s.peers[0]
        with browser.Page(800, 900) as page:
            page.open(page_of(one))
            for word, state, then in (("Pause", "paused", "Resume"),
                                      ("Resume", "training", "Pause")):
                wait_page(page, "pause.disabled === false && "
                          f"pause.textContent === '{word}'",
                          f"the button says {word}")
                page.ask("pause.focus()")
                page.press("Enter")
                one.wait_state(state, "averaging" if state == "training"
                               else state)
                wait_page(page, f"pause.textContent === '{then}'",
                          f"the button says {then}")
            check("paused" in page.text("#events"), "no event of the pause")
            page.ask("drain.focus()")
            page.press("Enter")
            check(page.ask("sure.open"), "leaving is not asked for")
            check(page.ask("document.activeElement.value") == "no",
                  "the harmless answer has not the focus")
            page.press("Enter")
            check(not page.ask("sure.open"), "the question stays")
            check(one.process.poll() is None, "it left although told to stay")
            page.ask("drain.focus()")
            page.press("Enter")
            page.press("Tab")
            check(page.ask("document.activeElement.value") == "yes", "focus")
            page.press("Enter")
            one.wait_exit(0, 60)
            page.errors.clear()  # the connection is gone now
            wait_for(lambda: page.ask("document.querySelector('#state')"
                                      ".dataset.state") == "offline",
                     "the page says that nobody answers")
            check(json.loads(page.ask("JSON.stringify(pause.disabled)")),
                  "a button without a daemon")


FIELDS = ["upload", "download", "quota", "disk", "memory", "cpu", "schedule",
          "idle", "battery"]


@test("limits that are typed into the page hold at once and are shown", 240)
def limits():
    need_browser()
    with Swarm(peers=2, rounds=100000) as s:
        terminal = s.path("root/dev/pts/7")
        os.makedirs(os.path.dirname(terminal))
        s.peer().start("--run", s.yaml,
                       env={"LOCO_ROOT": s.path("root")}).wait_up()
        s.peer().start("--join", s.uri()).wait_up()
        s.wait_training()
        one = s.peers[0]
        with browser.Page(800, 900) as page:
            page.open(page_of(one))
            wait_page(page, "now.status !== null", "it is connected")
            check(page.ask("apply.disabled"), "nothing was typed")
            wait_page(page, says("now-upload", "/s now"), "it has a speed")
            fields_have_names(page)

            def put(field, value):
                page.ask(f"(e => {{ e.value = '{value}'; e.dispatchEvent("
                         "new Event('input', {bubbles: true})); e.focus(); "
                         f"}})(document.getElementById('{field}'))")

            put("cap-upload", "1.5")
            put("cap-quota", "40")
            check(not page.ask("apply.disabled"), "it cannot be applied")
            by_keyboard(page)
            page.press("Enter")
            one.wait_status(lambda t: t["caps"]["upload_bytes_per_s"] == 1500000
                            and t["caps"]["bytes_per_month"] == 40e9,
                            "the caps are what was typed")
            wait_page(page, "apply.disabled && shown['upload'] === '1.5'",
                      "the page shows what holds")
            put("cap-cpu", "60")
            put("cap-memory", "100")
            put("cap-idle", "10")
            page.press("Enter")
            one.wait_status(lambda t: t["caps"]["cpu_percent"] == 60 and
                            t["caps"]["memory_bytes"] == 100e9 and
                            t["caps"]["idle_minutes"] == 10, "and those")
            wait_page(page, says("now-cpu", "rests 40 %") + " && " +
                      says("now-idle", "not in use") + " && " +
                      says("now-memory", "the run needs") + " && " +
                      says("events", "cpu_percent is 60 now"),
                      "each is shown with what it is about")
            with open(terminal, "w", encoding="ascii"):
                pass  # somebody types there
            wait_page(page, "now.status.state === 'paused' && " +
                      says("now-idle", "in use") + " && " +
                      says("reason", "somebody uses this machine"),
                      "it pauses, and the page says why")
            put("cap-idle", "")
            page.press("Enter")
            wait_page(page, "now.status.state !== 'paused' && " +
                      says("now-idle", "goes on while in use"), "it goes on")
            # The daemon took it, and then this run did not fit.
            put("cap-memory", "0.000001")
            page.press("Enter")
            wait_page(page, says("notice", "more than memory_bytes") +
                      " && document.getElementById('cap-memory').value "
                      "=== '100'", "the reason is on the page, the old one back")
            # Who comes later finds it among the events, not as news.
            page.open(page_of(one))
            wait_page(page, says("events", "more than memory_bytes") +
                      " && now.status !== null", "the page is there again")
            check(not page.text("#notice"), "an old refusal is told as new")
            # Not a schedule: refused with the reason, nothing changes.
            put("cap-schedule", "sometimes")
            page.press("Enter")
            wait_for(lambda: page.ask("document.getElementById('notice')"
                                      ".textContent.includes('sometimes')"),
                     "the reason is on the page")
            page.errors.clear()  # the answer 400 is one of them
            day = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"][
                (time.localtime().tm_wday + 3) % 7]
            put("cap-schedule", f"{day} 3-4")
            page.press("Enter")
            one.wait_status(lambda t: t["state"] == "paused" and
                            "outside of the schedule" in t["reason"],
                            "it pauses for the schedule")
            put("cap-schedule", "")
            page.press("Enter")
            one.wait_state("training", "averaging")
            # A reload of the file keeps what was set by hand.
            run(LOCO, "reload", "--state", one.state)
            check(one.status()["caps"]["upload_bytes_per_s"] == 1500000,
                  "the reload undid it")


@test("a daemon that is watched in a browser is idle all the same", 240)
def idle():
    need_browser()
    with Swarm(peers=2, rounds=100000) as s:
        s.start()
        s.wait_training()
        with browser.Page(800, 900) as page:
            page.open(page_of(s.peers[0]))
            wait_page(page, "pause.disabled === false", "it is connected")
            page.ask("command('pause')")
            s.peers[0].wait_state("paused")
            got = page.ask("now.samples.length")
            began, cpu = time.monotonic(), s.peers[0].cpu_s()
            wait_page(page, f"now.samples.length >= {got + 8}",
                      "eight more samples", 60)
            share = (s.peers[0].cpu_s() - cpu) / (time.monotonic() - began)
            print(f"{100 * share:.2f} % of a core")
            check(share < 0.05 * SCALE, f"{100 * share:.1f} % of a core")
