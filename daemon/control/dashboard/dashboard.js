// dashboard.js - the daemon's page: asks once for the status and the history,
// then follows the server-sent events (/api/v1/events). Nothing comes from elsewhere.
"use strict";

const SAMPLES_MAX = 1024; // beyond that every second one goes
const EVENTS_MAX = 128;
const ROUNDS_SHOWN = 24;
const ROUNDS_MS = 2000; // between two looks at the rounds
const PHASES = ["train", "wait", "plan", "reduce", "hash", "vote", "apply"];
const PHASE_COLOURS = ["#4c9be8", "#c98a1b", "#8d6cc9", "#2e9d6b", "#7a8794",
  "#c2589a", "#4aa7a7"];

const now = { status: null, peers: { peers: [], links: [] }, samples: [],
  rounds: [], newest: 0 };
const charts = {};
let offline = false, roundsAt = 0, roundsTimer = 0;

// ---- status ----------------------------------------------------------------

/* Links of peers that are no members; by network, what was refused and why. */
function showStrangers(o) {
  const sum = (counts) => Object.values(counts).reduce((a, b) => a + b, 0);

  say("strangers", `${plural(o.links, "link")}, ${integer.format(sum(o.refused))} refused`);
  $("strangers").title = o.groups.map((g) =>
    `${g.network}: ${g.links} links, ${g.overdrawn} over budget` +
    (g.waits_s ? `, waits ${g.waits_s} s` : "") +
    Object.entries(g.refused).filter(([, n]) => n > 0)
      .map(([why, n]) => `, ${why} ${n}`).join("")).join("\n");
}

// Of a newcomer to a run that anybody may join.
function showProbation(p) {
  $("probation").hidden = !p;
  if (p) {
    say("probation", `On probation: ${p.offered} of ${p.of} rounds offered, then the work of this ` +
      `peer counts${p.left_s ? `, in about ${duration(1000 * p.left_s)}` : ""}.`);
  }
}

function showStatus(s) {
  const running = !["draining", "finished"].includes(s.state);
  now.status = s;
  say("run", s.run_name || "a run that is not known yet");
  document.title = `${s.state} - ${s.run_name || "locod"}`;
  say("peer", s.peer_id.slice(0, 16));
  say("version", s.version);
  say("state", s.fork ? s.state + " (fork)" : s.state);
  $("state").dataset.state = s.state;
  say("reason", reasonOf(s));
  say("round", integer.format(s.round));
  say("loss", fixed(s.loss, 3));
  say("bits", fixed(s.bits_per_byte, 3));
  say("speed", short(s.tokens_per_s));
  say("tokens", short(s.tokens));
  say("alive", `${s.peers_alive}, ${s.peers_in_round} in the round` +
    (s.peers_on_probation ? `, ${s.peers_on_probation} on probation` : ""));
  say("bytes", `${bytes(s.bytes_sent)}, ${bytes(s.bytes_received)}`);
  say("reach", s.reachability);
  $("reach").title = s.reachability_reason || "";
  showStrangers(s.strangers);
  showProbation(s.probation);
  if (s.progress === null) {
    $("progress").removeAttribute("value");
    say("progress-text", "no end is set");
  } else {
    $("progress").value = s.progress;
    say("progress-text", `${(100 * s.progress).toFixed(1)} %` +
      (s.eta_s ? `, ${duration(1000 * s.eta_s)} left` : ""));
  }
  showLimits(s.caps);
  if (s.share) { showShare(s.share); }
  $("pause").disabled = !running;
  $("drain").disabled = !running;
  say("pause", s.state === "paused" ? "Resume" : "Pause");
}

// ---- the line for others -----------------------------------------------------

const QUIET = 4; // modules of light around a QR code
let shared; // the uri whose code is shown; null: there is none
let sharing; // the one that is being fetched

// Black on white in either colour scheme: readers want it so.
function drawCode(rows) {
  const side = rows.length + 2 * QUIET, dark = [];
  rows.forEach((row, y) => [...row].forEach((m, x) => {
    if (m === "1") { dark.push(`M${x + QUIET} ${y + QUIET}h1v1h-1z`); }
  }));
  $("share-qr").setAttribute("viewBox", `0 0 ${side} ${side}`);
  $("share-qr").replaceChildren(
    svg("rect", { width: side, height: side, fill: "#fff" }),
    svg("path", { d: dark.join(""), fill: "#000", "shape-rendering": "crispEdges" }));
}

async function showShare(share) {
  say("share-why", share.reason);
  const uri = share.uri;
  if (uri === shared || uri === sharing) { return; }
  sharing = uri;
  say("share-uri", `loco join ${uri}`);
  $("share-line").hidden = uri === null;
  $("share-copy").hidden = uri === null || !navigator.clipboard;
  let rows = null, done = uri === null;
  try {
    const answer = uri === null ? null : await fetch(here("/api/v1/share"));
    const got = answer && answer.ok ? await answer.json() : null;
    done = done || (got !== null && got.uri === uri);
    rows = done && got ? got.qr : null;
  } catch { /* the stream says that the daemon is away */ }
  if (sharing !== uri) { return; } // another line came meanwhile
  shared = done ? uri : undefined; // undefined: the next status asks again
  sharing = undefined;
  if (rows) { drawCode(rows); }
  $("share-qr").toggleAttribute("hidden", !rows);
}

// ---- charts ----------------------------------------------------------------

const colour = (name) => getComputedStyle(document.documentElement)
  .getPropertyValue(name).trim();

function axis(title, more) {
  return Object.assign({ title: { display: true, text: title, color: colour("--dim") },
    ticks: { color: colour("--dim"), maxTicksLimit: 6 },
    grid: { color: colour("--line") } }, more);
}

function lineChart(id, xTitle, tick) {
  const ticks = { color: colour("--dim"), maxTicksLimit: 5, callback: tick };
  charts[id] = new Chart($(id), { type: "line",
    data: { datasets: [{ data: [], borderColor: colour("--accent"), borderWidth: 2,
      pointRadius: 0, pointHitRadius: 12, spanGaps: true }] },
    options: { animation: false, parsing: false, normalized: true,
      maintainAspectRatio: false, interaction: { mode: "nearest", intersect: false },
      plugins: { legend: { display: false },
        tooltip: { callbacks: { title: (items) => tick(items[0].parsed.x) } } },
      scales: { x: axis(xTitle, { type: "linear", ticks }), y: axis("") } } });
}

function roundsChart() {
  charts["chart-rounds"] = new Chart($("chart-rounds"), { type: "bar",
    data: { labels: [], datasets: PHASES.map((p, i) => ({ label: p, data: [],
      backgroundColor: PHASE_COLOURS[i], barPercentage: 0.95, categoryPercentage: 0.95 })) },
    options: { animation: false, indexAxis: "y", maintainAspectRatio: false,
      interaction: { mode: "index", axis: "y", intersect: false },
      plugins: { legend: { position: "bottom", labels: { boxWidth: 10, color: colour("--ink") } },
        tooltip: { callbacks: {
          label: (c) => `${c.dataset.label}: ${duration(1000 * c.raw)}`,
          footer: (items) => roundNote(now.rounds[items[0].dataIndex]) } } },
      scales: { x: axis("seconds", { stacked: true }),
        y: axis("round", { stacked: true, grid: { display: false } }) } } });
}

function makeCharts() {
  if (typeof Chart === "undefined") {
    document.body.classList.add("no-charts");
    $("no-charts").hidden = false;
    for (const d of document.querySelectorAll("#curves details")) { d.open = true; }
    return;
  }
  for (const id of Object.keys(charts)) { charts[id].destroy(); delete charts[id]; }
  lineChart("chart-loss", "tokens of this peer", short);
  lineChart("chart-bits", "tokens of the run", short);
  lineChart("chart-speed", "time", clock);
  roundsChart();
}

const CURVES = [
  { id: "loss", x: "tokens", y: "loss", head: "Tokens", name: "Loss", word: short },
  { id: "bits", x: "run_tokens", y: "bits_per_byte", head: "Tokens of the run",
    name: "Bits per byte", word: short },
  { id: "speed", x: "at_s", y: "tokens_per_s", head: "Time", name: "Tokens/s", word: clock },
];

// The last rows of a curve, at most ten, evenly spaced.
function curveTable(curve, points) {
  const step = Math.max(1, Math.ceil(points.length / 10));
  const table = element("table"), head = table.createTHead().insertRow();
  head.append(element("th", curve.head, { scope: "col" }),
    element("th", curve.name, { scope: "col", class: "n" }));
  const body = table.createTBody();
  for (let i = points.length - 1; i >= 0; i -= step) {
    const row = body.insertRow();
    row.append(element("td", curve.word(points[i].x)),
      element("td", fixed(points[i].y, curve.id === "speed" ? 0 : 4), { class: "n" }));
  }
  $("table-" + curve.id).replaceChildren(table);
}

function showCurves() {
  for (const curve of CURVES) {
    // Where x stands still (a paused peer) the newest value counts.
    const points = [];
    for (const s of now.samples) {
      const p = { x: s[curve.x], y: s[curve.y] }, last = points[points.length - 1];
      // Bits per byte are a point where they were evaluated, not until the next time.
      if (p.y === null || (curve.id === "bits" && last && last.y === p.y)) { continue; }
      if (last && last.x === p.x) { points.pop(); }
      points.push(p);
    }
    const chart = charts["chart-" + curve.id];
    if (chart) {
      chart.data.datasets[0].data = points;
      chart.data.datasets[0].pointRadius = points.length < 20 ? 3 : 0;
      chart.update("none");
    }
    const last = points[points.length - 1];
    $("chart-" + curve.id).setAttribute("aria-label", last ? `${curve.name}: ` +
      `${fixed(points[0].y, 3)} at first, ${fixed(last.y, 3)} now` : `${curve.name}: nothing yet`);
    if ($("table-" + curve.id).parentElement.open) { curveTable(curve, points); }
  }
}

function addSample(s) {
  now.samples.push(s);
  if (now.samples.length > SAMPLES_MAX) {
    now.samples = now.samples.filter((_, i) => i % 2 === 0);
  }
  showCurves();
}

// ---- rounds ----------------------------------------------------------------

const brief = (id) => {
  const p = now.peers.peers.find((q) => q.peer_id === id);
  return p ? p.short : id.slice(0, 8);
};

function roundNote(r) {
  if (r.reason) { return r.reason; }
  return r.waited_for ? `waited ${duration(r.waited_for.ms)} for ${brief(r.waited_for.peer_id)}` : "";
}

function roundsTable() {
  const table = element("table"), head = table.createTHead().insertRow();
  for (const h of ["Round", "Outcome", "Members", ...PHASES, "Note"]) {
    head.append(element("th", h, { scope: "col" }));
  }
  const body = table.createTBody();
  for (const r of now.rounds) {
    const row = body.insertRow();
    row.append(element("td", String(r.round)), element("td", r.outcome),
      element("td", `${r.members_in_plan ?? "-"} of ${r.members_in_view}`));
    for (const p of PHASES) { row.append(element("td", duration(r.phase_ms[p]), { class: "n" })); }
    row.append(element("td", roundNote(r), { class: "why" }));
  }
  $("table-rounds").replaceChildren(table);
}

function showRounds(list) {
  now.rounds = list;
  const chart = charts["chart-rounds"];
  if (chart) {
    chart.data.labels = list.map((r) => r.reason ? `${r.round} failed` : String(r.round));
    PHASES.forEach((p, i) => {
      chart.data.datasets[i].data = list.map((r) => (r.phase_ms[p] || 0) / 1000);
    });
    chart.update("none");
  }
  const done = list.filter((r) => r.outcome === "committed").length;
  $("chart-rounds").setAttribute("aria-label",
    `The last ${list.length} attempts at rounds, ${done} of them committed`);
  if ($("table-rounds").parentElement.open) { roundsTable(); }
  const running = list.find((r) => r.outcome === "running");
  say("waiting", running && running.waited_for ?
    `Round ${running.round} waits for ${brief(running.waited_for.peer_id)}.` : "");
}

async function lookAtRounds() {
  clearTimeout(roundsTimer);
  roundsTimer = 0;
  const wait = roundsAt + ROUNDS_MS - Date.now();
  if (wait > 0) { roundsTimer = setTimeout(lookAtRounds, wait); return; }
  roundsAt = Date.now();
  try {
    const answer = await fetch(here(`/api/v1/rounds?last=${ROUNDS_SHOWN}`));
    if (answer.ok) { showRounds((await answer.json()).rounds); }
  } catch { /* the stream says that the daemon is away */ }
}

// ---- swarm -----------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes, text) {
  const e = document.createElementNS(SVG, name);
  for (const [k, v] of Object.entries(attributes)) { e.setAttribute(k, v); }
  if (text !== undefined) { e.textContent = text; }
  return e;
}

function place(i, n) {
  const angle = 2 * Math.PI * i / n - Math.PI / 2;
  return n === 1 ? [200, 200] : [200 + 140 * Math.cos(angle), 200 + 140 * Math.sin(angle)];
}

function drawGraph(peers, links) {
  const n = peers.length, at = peers.map((_, i) => place(i, n)), parts = [];
  const pairs = new Map();
  for (const [from, to, rate] of links) {
    const key = Math.min(from, to) * n + Math.max(from, to);
    const p = pairs.get(key) || { a: Math.min(from, to), b: Math.max(from, to), rate: 0 };
    p.rate = Math.max(p.rate, rate);
    pairs.set(key, p);
  }
  peers.forEach((p, i) => {
    if (i > 0 && p.link && !pairs.has(i)) {
      parts.push(svg("line", { x1: at[0][0], y1: at[0][1], x2: at[i][0], y2: at[i][1], class: "link" }));
    }
  });
  for (const p of pairs.values()) {
    const width = Math.max(1, Math.min(8, Math.log10(Math.max(p.rate, 1000)) - 2));
    parts.push(svg("line", { x1: at[p.a][0], y1: at[p.a][1], x2: at[p.b][0], y2: at[p.b][1],
      "stroke-width": width.toFixed(1),
      class: p.a === 0 && peers[p.b].link === "relayed" ? "relayed" : "" }));
  }
  if (pairs.size <= 15) {
    for (const p of pairs.values()) {
      parts.push(svg("text", { x: at[p.a][0] * 0.6 + at[p.b][0] * 0.4,
        y: at[p.a][1] * 0.6 + at[p.b][1] * 0.4, class: "rate" }, bits(p.rate)));
    }
  }
  peers.forEach((p, i) => {
    const g = svg("g", { class: `${p.state}${p.self ? " self" : ""}${p.in_view ? "" : " outside"}` });
    g.append(svg("circle", { cx: at[i][0], cy: at[i][1], r: n > 24 ? 6 : 11 }));
    if (n <= 24) {
      g.append(svg("text", { x: at[i][0], y: at[i][1] + (at[i][1] > 200 ? 26 : -17) },
        p.self ? "this peer" : p.short));
    }
    parts.push(g);
  });
  $("graph").classList.toggle("many", n > 8);
  $("graph").replaceChildren(...parts);
}

function showPeers(data) {
  now.peers = data;
  drawGraph(data.peers, data.links);
  const rate = new Map(data.links.map(([a, b, v]) => [`${a} ${b}`, v]));
  const all = data.peers.reduce((sum, p) => sum + p.tokens, 0);
  const rows = data.peers.map((p, i) => {
    const row = element("tr", undefined, { class: p.state, "data-peer": p.peer_id });
    const to = rate.get(`0 ${i}`), from = rate.get(`${i} 0`), share = all ? p.tokens / all : 0;
    const name = element("th", undefined, { scope: "row" });
    name.append(element("span", p.short, { class: "short" }), p.self ? " (this peer)" : "");
    row.append(name,
      element("td", p.state + (p.convicted ? ", convicted" : p.in_view ? "" : ", not in the view"),
        { class: "state-cell" }),
      element("td", p.self ? "" : p.link || "none"), element("td", p.reachability),
      element("td", short(p.tokens_per_s), { class: "n" }),
      element("td", to ? bits(to) : "-", { class: "n" }),
      element("td", from ? bits(from) : "-", { class: "n" }),
      element("td", integer.format(p.rounds), { class: "n" }),
      element("td", short(p.tokens), { class: "n" }));
    const cell = element("td");
    cell.append(element("meter", `${(100 * share).toFixed(0)} %`,
      { min: 0, max: 1, value: share.toFixed(3), title: `${(100 * share).toFixed(1)} %`,
        "aria-label": `share of ${p.short}` }));
    row.append(cell);
    return row;
  });
  $("peers").tBodies[0].replaceChildren(...rows);
}

// ---- events ----------------------------------------------------------------

function addEvent(e) {
  if (e.number <= now.newest) { return false; }
  now.newest = e.number;
  const item = element("li", undefined, { "data-kind": e.kind });
  item.append(element("time", clock(e.at_s), { datetime: new Date(1000 * e.at_s).toISOString() }),
    element("span", e.text));
  $("events").prepend(item);
  while ($("events").childElementCount > EVENTS_MAX) { $("events").lastElementChild.remove(); }
  if (e.kind === "round_failed") { lookAtRounds(); }
  return true;
}

// ---- commands --------------------------------------------------------------

function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = text === "";
}

async function command(name) {
  for (const id of ["pause", "drain"]) { $(id).disabled = true; } // until the next status
  try {
    const answer = await fetch(here("/api/v1/" + name), { method: "POST" });
    notice(answer.ok ? "" : `The daemon refused to ${name}: ${(await answer.text()).trim()}`);
  } catch {
    notice("The daemon does not answer.");
  }
}

// ---- limits ----------------------------------------------------------------

// Field, setting, label, the field's attributes, from the status to what is shown
// and back ("": no limit), and what it is about, as it is now; the state's reason
// says which limit holds.
const NUMBER = { type: "number", min: 0, step: "any", placeholder: "no cap" };
const LIMITS = [
  { id: "upload", name: "upload_bytes_per_s", label: "Upload, MB/s", field: NUMBER,
    read: (c) => per(c.upload_bytes_per_s, 1e6), write: (v) => whole(v, 1e6),
    use: () => rate("bytes_sent") },
  { id: "download", name: "download_bytes_per_s", label: "Download, MB/s", field: NUMBER,
    read: (c) => per(c.download_bytes_per_s, 1e6), write: (v) => whole(v, 1e6),
    use: () => rate("bytes_received") },
  { id: "quota", name: "quota", label: "Traffic a month, GB", field: { ...NUMBER, step: 1 },
    read: (c) => per(c.bytes_per_month, 1e9), write: (v) => whole(v, 1),
    use: (c) => `${bytes(c.bytes_this_month || 0)} so far` },
  { id: "disk", name: "disk_bytes", label: "Disk, GB", field: NUMBER,
    read: (c) => per(c.disk_bytes, 1e9), write: (v) => whole(v, 1e9),
    use: (c) => `${bytes(c.disk_bytes_used || 0)} in use` },
  { id: "memory", name: "memory_bytes", label: "Memory, GB", field: NUMBER,
    read: (c) => per(c.memory_bytes, 1e9), write: (v) => whole(v, 1e9),
    use: (c) => c.memory_bytes_needed ? `the run needs ${bytes(c.memory_bytes_needed)}` : "" },
  { id: "cpu", name: "cpu_percent", label: "Processor time, %",
    field: { ...NUMBER, min: 5, max: 100, step: 1, placeholder: "100" },
    read: (c) => c.cpu_percent === 100 ? "" : String(c.cpu_percent),
    write: (v) => whole(v || 100, 1),
    use: (c) => c.cpu_percent === 100 ? "all of it" : `rests ${100 - c.cpu_percent} %` },
  { id: "schedule", name: "schedule", label: "Hours",
    field: { type: "text", maxlength: 120, placeholder: "always" },
    read: (c) => c.schedule === "always" ? "" : c.schedule || "",
    write: (v) => v.trim() || "always",
    use: (c) => c.schedule && c.schedule !== "always" ? c.schedule : "at any hour" },
  { id: "idle", name: "idle_minutes", label: "Keep still after use, minutes",
    field: { ...NUMBER, max: 1440, step: 1, placeholder: "go on" },
    read: (c) => per(c.idle_minutes, 1), write: (v) => whole(v, 1),
    use: (c) => !c.idle_minutes ? "goes on while in use" : c.in_use ? "in use" : "not in use" },
  { id: "battery", name: "battery", label: "On battery", choice: ["pause", "train"],
    read: (c) => c.battery || "pause", write: (v) => v,
    use: (c) => c.on_battery ? "on battery now" : "on mains now" },
];
const per = (v, unit) => v === null || v === undefined ? "" : String(v / unit);
const whole = (v, unit) => String(Math.round(Number(v || 0) * unit));
const shown = {}; // what the daemon said last, by field

function rate(name) {
  const p = now.samples[now.samples.length - 1], q = now.samples[now.samples.length - 2];
  return p && q && p.at_s > q.at_s ?
    `${bytes(Math.max(0, Math.round((p[name] - q[name]) / (p.at_s - q.at_s))))}/s now` : "";
}

function makeLimits() {
  for (const { id, label, field, choice } of LIMITS) {
    const row = element("div"), names = { id: "cap-" + id, "aria-describedby": "now-" + id };
    const input = element(choice ? "select" : "input", undefined, { ...names, ...field });
    for (const value of choice || []) { input.append(element("option", value, { value })); }
    row.append(element("label", label, { for: "cap-" + id }), input,
      element("small", "-", { id: "now-" + id }));
    $("apply").before(row);
  }
}

function showLimits(caps) {
  for (const { id, read, use } of LIMITS) {
    const field = $("cap-" + id), value = read(caps);
    say("now-" + id, use(caps));
    // What a person is at is left alone.
    if (shown[id] === undefined || field.value === shown[id]) { field.value = value; }
    shown[id] = value;
  }
  limitsChanged();
}

function limitsChanged() {
  $("apply").disabled = offline || LIMITS.every(({ id }) => $("cap-" + id).value === shown[id]);
}

async function setLimits(event) {
  event.preventDefault();
  notice("");
  for (const { id, name, write } of LIMITS) {
    const value = $("cap-" + id).value;
    if (value === shown[id]) { continue; }
    try {
      const answer = await fetch(here(`/api/v1/set?name=${name}&value=` +
        encodeURIComponent(write(value))), { method: "POST" });
      if (!answer.ok) { notice(`Refused: ${(await answer.text()).trim()}`); return; }
      shown[id] = value;
    } catch {
      notice("The daemon does not answer.");
      return;
    }
  }
  limitsChanged();
}

// ---- life ------------------------------------------------------------------

async function loadStatus() {
  const answer = await fetch(here("/api/v1/status"));
  if (answer.ok) { showStatus(await answer.json()); }
}

async function loadHistory() {
  const answer = await fetch(here("/api/v1/history"));
  if (!answer.ok) { return; }
  const h = await answer.json(), names = Object.keys(h.samples);
  now.samples = h.samples.at_s.map((_, i) =>
    Object.fromEntries(names.map((k) => [k, h.samples[k][i]])));
  now.newest = 0;
  $("events").replaceChildren();
  h.events.forEach(addEvent);
  showCurves();
}

function listen() {
  const source = new EventSource(here("/api/v1/events"));
  const on = (name, handle) => source.addEventListener(name, (e) => handle(JSON.parse(e.data)));
  let round = "";
  source.onopen = () => {
    notice("");
    if (offline) { loadHistory().catch(() => {}); } // perhaps another process
    offline = false;
  };
  source.onerror = () => {
    offline = true;
    $("state").dataset.state = "offline";
    say("state", "no connection");
    notice("The daemon does not answer; this page tries again by itself.");
    for (const id of ["pause", "drain", "apply"]) { $(id).disabled = true; }
    if (source.readyState === EventSource.CLOSED) { setTimeout(listen, 3000); }
  };
  on("status", (s) => {
    const key = `${s.round} ${s.rounds_aborted} ${s.state}`;
    showStatus(s);
    if (key !== round) { round = key; lookAtRounds(); }
  });
  on("peers", showPeers);
  on("sample", addSample);
  on("event", (e) => {
    // It was taken, and then found not to fit this run. The stream begins with
    // what was before: that is known already.
    if (addEvent(e) && e.kind === "setting_refused") { notice(`Refused: ${e.text}`); }
  });
}

$("pause").addEventListener("click", () =>
  command(now.status.state === "paused" ? "resume" : "pause"));
$("drain").addEventListener("click", () => $("sure").showModal());
$("sure").addEventListener("close", () => {
  if ($("sure").returnValue === "yes") { command("drain"); }
  $("sure").returnValue = "";
});
$("share-copy").addEventListener("click", () =>
  navigator.clipboard.writeText($("share-uri").textContent)
    .then(() => notice(""), () => notice("The browser does not allow copying.")));
$("caps").addEventListener("submit", setLimits);
$("caps").addEventListener("input", limitsChanged);
for (const d of document.querySelectorAll("#curves details")) {
  d.addEventListener("toggle", () => { showCurves(); showRounds(now.rounds); });
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  makeCharts();
  showCurves();
  showRounds(now.rounds);
});

makeLimits();
makeCharts();
// One after the other, so that no older status comes after an event's.
loadStatus().catch(() => {}).then(loadHistory).catch(() => {}).finally(listen);
