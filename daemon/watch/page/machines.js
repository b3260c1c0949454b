// machines.js - the page for several machines: asks `loco page` once a second. What
// daemons say is text, whatever it looks like: it goes into textContent only.
"use strict";

const ASK_MS = 1000;
const PATIENCE_MS = 5000;
const GOOD = ["training", "averaging", "finished"]; // their badges are green

const rows = []; // of the machines, in the order in which they were named
let order = { key: "", down: false };
let timer = 0;

// ---- words ----------------------------------------------------------------

const known = (v) => v !== null && v !== undefined;
const count = (v) => !known(v) ? "-" : v < 1e9 ? integer.format(v) : short(v);
const size = (v) => known(v) ? bytes(Math.round(v)) : "-";

function when(s) {
  const at = new Date(1000 * s);
  return Date.now() - at < 86400e3 ? at.toLocaleTimeString() : at.toLocaleString();
}

// A machine's state as one word: also of one that does not answer.
function stateOf(m) {
  return !m.asked ? "asking" : !m.answers ? "no answer" : m.status.state;
}

function probation(s) {
  const p = s.probation;
  return p ? `on probation: ${p.offered ?? "?"} of ${p.of ?? "?"} rounds offered` +
    (p.left_s ? `, ${duration(1000 * p.left_s)} left` : "") : "";
}

// The last trouble without the address, which stands in the row already.
function briefly(m) {
  const words = [` at ${m.address}`, `${m.address}/api/v1/status: `, `${m.address}: `];
  return words.reduce((text, w) => text.replace(w, ""), m.trouble);
}

function noteOf(m) {
  if (!m.asked) { return ""; }
  if (!m.answers) { return `no answer since ${when(m.since_s)}: ${briefly(m)}`; }
  const s = m.status;
  return [s.fork ? "in a fork" : "", reasonOf(s), probation(s)].filter((w) => w).join("; ");
}

// ---- columns --------------------------------------------------------------

// Heading, what is shown, and by what it is sorted: a word, or a number (class n).
const status = (m) => m.status || {};
const COLUMNS = [
  { key: "name", head: "Machine", sort: (m) => m.name },
  { key: "run", head: "Run", show: (m) => status(m).run_name || "-", sort: (m) => status(m).run_name },
  { key: "state", head: "State", show: stateOf, sort: stateOf },
  { key: "round", head: "Round", n: true, show: (m) => count(status(m).round), sort: (m) => status(m).round },
  { key: "loss", head: "Loss", n: true, show: (m) => fixed(status(m).loss, 3), sort: (m) => status(m).loss },
  { key: "bits", head: "Held-out", title: "Held-out bits per byte", n: true,
    show: (m) => fixed(status(m).bits_per_byte, 3), sort: (m) => status(m).bits_per_byte },
  { key: "speed", head: "Tokens/s", n: true, show: (m) => short(status(m).tokens_per_s),
    sort: (m) => m.answers ? status(m).tokens_per_s : null },
  { key: "peers", head: "Peers", n: true, show: (m) => count(status(m).peers_alive),
    sort: (m) => status(m).peers_alive },
  { key: "sent", head: "Sent", n: true, show: (m) => size(status(m).bytes_sent),
    sort: (m) => status(m).bytes_sent },
  { key: "received", head: "Received", n: true, show: (m) => size(status(m).bytes_received),
    sort: (m) => status(m).bytes_received },
  { key: "version", head: "Version", show: (m) => status(m).version || "-",
    sort: (m) => status(m).version },
  { key: "note", head: "Note", show: noteOf, sort: noteOf },
];

const totalsOf = (t) => ({
  name: `${t.answering} of ${plural(t.machines, "machine")} answer${t.answering === 1 ? "s" : ""}`,
  round: count(t.round), loss: fixed(t.loss, 3), bits: fixed(t.bits_per_byte, 3),
  speed: short(t.tokens_per_s), peers: count(t.peers_alive), sent: size(t.bytes_sent),
  received: size(t.bytes_received), note: !known(t.progress) ? "" :
    `${(100 * t.progress).toFixed(1)} % of the run` +
    (t.eta_s ? `, ${duration(1000 * t.eta_s)} left` : "") });

// ---- details ---------------------------------------------------------------

// Where this browser can open the machine's own page, or null.
function pageOf(address) {
  const local = (host) => host === "localhost" || host === "[::1]" || host.startsWith("127.");
  let url;
  try { url = new URL(`http://${address}/`); } catch { return null; }
  if (![url.host, `${url.host}:80`].includes(address.toLowerCase())) { return null; }
  if (["0.0.0.0", "[::]"].includes(url.hostname)) { url.hostname = "127.0.0.1"; }
  return local(url.hostname) && !local(location.hostname) ? null : url.href;
}

function lostWords(l) {
  return l ? `${(l.peer_id || "?").slice(0, 8)} after round ${count(l.round)}: ${l.reason || "?"}` : "-";
}

function limitWords(c) {
  const words = [];
  if (c.upload_bytes_per_s) { words.push(`upload ${size(c.upload_bytes_per_s)}/s`); }
  if (c.download_bytes_per_s) { words.push(`download ${size(c.download_bytes_per_s)}/s`); }
  if (c.bytes_per_month) {
    words.push(`${size(c.bytes_this_month)} of ${size(c.bytes_per_month)} this month`);
  }
  if (known(c.cpu_percent) && c.cpu_percent < 100) { words.push(`processor ${c.cpu_percent} %`); }
  return words.join(", ") || "none";
}

function detailsOf(m) {
  const s = m.status;
  const list = [["Asked at", m.address || m.name],
    [m.answers ? "Answers since" : "No answer since", when(m.since_s)]];
  if (m.trouble) { list.push(["Last trouble", `${when(m.trouble_s)}: ${m.trouble}`]); }
  if (!s) { return list; }
  const links = s.links || {}, caps = s.caps || {};
  list.push(["Peer", (s.peer_id || "-").slice(0, 16)], ["Run id", (s.run_id || "-").slice(0, 16)],
    ["Progress", known(s.progress) ? `${(100 * s.progress).toFixed(1)} %` +
      (s.eta_s ? `, ${duration(1000 * s.eta_s)} left` : "") : "no end is set"],
    ["Inner step", count(s.inner_step)], ["Tokens, this peer", short(s.tokens)],
    ["Rounds", `${count(s.rounds_committed)} committed, ${count(s.rounds_aborted)} aborted, ` +
      `${count(s.rollbacks)} taken back`],
    ["Last round", duration(s.last_round_ms)],
    ["Held-out bits per byte", `${fixed(s.bits_per_byte, 3)}, ` +
      `${fixed(s.bits_per_byte_before, 3)} at first`],
    ["Peers", `${count(s.peers_alive)} alive, ${count(s.peers_in_round)} in the round` +
      (s.peers_on_probation ? `, ${s.peers_on_probation} on probation` : "")],
    ["Last lost peer", lostWords(s.lost)],
    ["Reached", `${s.reachability || "-"}${s.reachability_reason ? ": " + s.reachability_reason : ""}`],
    ["Links", `${count(links.dialled)} dialled, ${count(links.accepted)} accepted, ` +
      `${count(links.relayed)} relayed`],
    ["Limits", limitWords(caps)]);
  if (s.stage) { list.push(["Stage", `${count(s.stage.number)} of ${count(s.stage.of)}`]); }
  if (s.fetch) { list.push(["Fetching", `${size(s.fetch.bytes)} of ${size(s.fetch.of_bytes)}`]); }
  if (s.shards && s.shards.here !== s.shards.of) {
    list.push(["Shards", `${count(s.shards.here)} of ${count(s.shards.of)} are here`]);
  }
  if (s.params_hash) { list.push(["Parameters", s.params_hash.slice(0, 16)]); }
  return list;
}

// ---- rows ------------------------------------------------------------------

function set(e, text) {
  if (e.textContent !== text) { e.textContent = text; }
}

// What is there already is written over; nothing is made anew while it stays the same.
function showDetails(row) {
  const list = detailsOf(row.machine), dl = row.details;
  while (dl.childElementCount > list.length) { dl.lastElementChild.remove(); }
  list.forEach(([word, value], i) => {
    if (!dl.children[i]) {
      const one = element("div");
      one.append(element("dt"), element("dd"));
      dl.append(one);
    }
    set(dl.children[i].firstElementChild, word);
    set(dl.children[i].lastElementChild, value);
  });
  const href = row.machine.address ? pageOf(row.machine.address) : null;
  row.link.hidden = href === null;
  if (href !== null && row.link.getAttribute("href") !== href) { row.link.href = href; }
}

function toggle(row) {
  const open = row.open.getAttribute("aria-expanded") !== "true";
  row.open.setAttribute("aria-expanded", String(open));
  row.detail.hidden = !open;
  if (open) { showDetails(row); }
}

function makeRow(i) {
  const body = element("tbody"), line = body.insertRow(), detail = body.insertRow();
  const open = element("button", "", { type: "button", class: "open", "aria-expanded": "false",
    "aria-controls": `detail-${i}` });
  const head = element("th", undefined, { scope: "row" }), cells = {};
  head.append(open);
  line.append(head);
  for (const c of COLUMNS.slice(1)) {
    const cell = line.insertCell();
    cell.dataset.label = c.head;
    cell.className = c.n ? "n" : c.key;
    cells[c.key] = cell;
  }
  cells.badge = element("span", "", { class: "state" });
  cells.state.className = "badge";
  cells.state.append(cells.badge);
  detail.className = "detail";
  detail.id = `detail-${i}`;
  detail.hidden = true;
  const cell = detail.insertCell(), dl = element("dl");
  cell.colSpan = COLUMNS.length;
  const link = element("a", "Open its own page", { rel: "noreferrer noopener", target: "_blank" });
  cell.append(dl, link);
  const row = { i, body, open, cells, detail, details: dl, link, machine: null };
  // Who marks a text with the mouse does not want to open anything.
  line.addEventListener("click", (e) => {
    if (open.contains(e.target) || !getSelection().toString()) { toggle(row); }
  });
  $("totals").parentElement.before(body);
  return row;
}

function showRow(row, m) {
  row.machine = m;
  set(row.open, m.name);
  row.open.title = m.name;
  row.body.className = m.asked && !m.answers ? "silent" : "";
  for (const c of COLUMNS.slice(1)) {
    const text = c.show(m);
    set(c.key === "state" ? row.cells.badge : row.cells[c.key], text);
    row.cells[c.key].classList.toggle("none", text === "-");
  }
  row.cells.run.title = row.cells.run.textContent;
  const state = stateOf(m);
  row.cells.badge.dataset.state = state === "no answer" || status(m).fork ? "offline" :
    GOOD.includes(state) ? "training" : ["paused", "draining", "waiting"].includes(state) ? "paused" : "";
  if (!row.detail.hidden) { showDetails(row); }
}

function showTotals(t) {
  const words = totalsOf(t);
  COLUMNS.forEach((c, i) => {
    const cell = $("totals").children[i];
    set(cell, words[c.key] || "");
    cell.classList.toggle("none", !words[c.key] || words[c.key] === "-");
  });
}

// ---- order -----------------------------------------------------------------

function compare(a, b) {
  const column = COLUMNS.find((c) => c.key === order.key);
  const [p, q] = column ? [column.sort(a.machine), column.sort(b.machine)] : [0, 0];
  const none = (v) => !known(v) || v === "";
  if (none(p) !== none(q)) { return none(p) ? 1 : -1; } // the unknown is last either way
  const way = typeof p === "number" ? p - q : String(p ?? "").localeCompare(String(q ?? ""), "en", { numeric: true });
  return (order.down ? -way : way) || a.i - b.i;
}

// Rows stay where they are while a person is at one of them, unless that person sorts.
function arrange(asked) {
  const at = document.activeElement;
  const busy = rows.some((r) => r.body.contains(at) || r.body.matches(":hover"));
  if (busy && !asked) { return; }
  const sorted = [...rows].sort(compare);
  const bodies = [...$("machines").tBodies];
  if (sorted.every((r, i) => bodies[i] === r.body)) { return; }
  for (const r of sorted) { $("totals").parentElement.before(r.body); }
  if (at && at !== document.activeElement) { at.focus(); }
}

function sortBy(key, down) {
  order = { key, down };
  for (const c of COLUMNS) {
    const head = $(`head-${c.key}`);
    if (c.key === key) {
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
    } else {
      head.removeAttribute("aria-sort");
    }
    set(head.querySelector("span"), c.key !== key ? "" : down ? " \u2193" : " \u2191");
  }
  $("sort-by").value = key;
  $("sort-turn").disabled = key === "";
  arrange(true);
}

// Numbers from the largest down first, words from A; then the other way; then as named.
function nextOrder(c) {
  const first = Boolean(c.n);
  if (order.key !== c.key) { sortBy(c.key, first); }
  else if (order.down === first) { sortBy(c.key, !first); }
  else { sortBy("", false); }
}

function makeHeads() {
  for (const c of COLUMNS) {
    const head = element("th", undefined, { scope: "col", id: `head-${c.key}` });
    const button = element("button", c.head, { type: "button" });
    if (c.n) { head.className = "n"; }
    if (c.title) { button.title = c.title; }
    button.append(element("span", "", { "aria-hidden": "true" }));
    button.addEventListener("click", () => nextOrder(c));
    head.append(button);
    $("heads").append(head);
    $("sort-by").append(element("option", c.title || c.head, { value: c.key }));
    const total = element(c.key === "name" ? "th" : "td", "", c.n ? { class: "n" } : {});
    if (c.key === "name") { total.scope = "row"; } else { total.dataset.label = c.head; }
    if (c.key === "note") { total.className = "note"; }
    $("totals").append(total);
  }
}

// ---- life ------------------------------------------------------------------

function notice(text) {
  set($("notice"), text);
  $("notice").hidden = text === "";
}

function show(all) {
  const t = all.totals, words = `${t.answering} of ${t.machines}`;
  all.machines.forEach((m, i) => {
    rows[i] = rows[i] || makeRow(i);
    showRow(rows[i], m);
  });
  const runs = new Set(all.machines.map((m) => status(m).run_name).filter((w) => w));
  say("run", runs.size === 0 ? "no run is known yet" : t.one_run ? `run ${[...runs][0]}` :
    "several runs");
  say("state", t.answering === t.machines ? "all answer" : `${words} answer`);
  $("state").dataset.state = t.answering === t.machines ? "training" :
    t.answering === 0 ? "offline" : "paused";
  document.title = `${words} answer - loco`;
  showTotals(t);
  arrange(false);
}

async function ask() {
  clearTimeout(timer);
  try {
    const answer = await fetch(here("/api/v1/machines"), { signal: AbortSignal.timeout(PATIENCE_MS) });
    if (answer.ok) { show(await answer.json()); }
    notice(answer.ok || answer.status === 503 ? "" : answer.status === 401 ?
      "loco page was started again and has another password: load this page again." :
      `loco page answers ${answer.status}.`);
  } catch {
    notice("loco page does not answer; this page tries again by itself.");
    $("state").dataset.state = "offline";
    say("state", "no connection");
  }
  if (!document.hidden) { timer = setTimeout(ask, ASK_MS); }
}

// Up and Down go from machine to machine, Home and End to the first and the last.
function step(event) {
  const opens = [...document.querySelectorAll("#machines .open")];
  const at = opens.indexOf(document.activeElement);
  const to = { ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: opens.length - 1 }[event.key];
  if (at < 0 || to === undefined) { return; }
  event.preventDefault();
  opens[Math.max(0, Math.min(opens.length - 1, to))].focus();
}

makeHeads();
$("machines").addEventListener("keydown", step);
$("sort-by").addEventListener("change", () => {
  const c = COLUMNS.find((d) => d.key === $("sort-by").value);
  sortBy(c ? c.key : "", Boolean(c && c.n));
});
$("sort-turn").addEventListener("click", () => sortBy(order.key, !order.down));
$("sorter").addEventListener("submit", (e) => e.preventDefault());
document.addEventListener("visibilitychange", () => { if (!document.hidden) { ask(); } });
ask();
