// page.js - what all pages share: elements, and figures as words.
"use strict";

// Absolute, without the name and password of a page's own address: fetch() refuses those.
const here = (path) => location.origin + path;
const $ = (id) => document.getElementById(id);

const GAP = "\u00a0"; // between a number and its unit: no line ends there
const integer = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function short(v) {
  if (v === null || v === undefined) { return "-"; }
  const units = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]];
  for (const [size, unit] of units) {
    if (Math.abs(v) >= size) {
      return (v / (unit === "k" ? 1e3 : size)).toFixed(1) + GAP + unit;
    }
  }
  return integer.format(v);
}

function bytes(v) {
  for (const [size, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (v >= size) { return (v / size).toFixed(1) + GAP + unit; }
  }
  return v + GAP + "B";
}

function bits(bytesPerS) {
  const v = 8 * bytesPerS;
  for (const [size, unit] of [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"]]) {
    if (v >= size) { return (v / size).toPrecision(3) + GAP + unit; }
  }
  return v.toFixed(0) + GAP + "bit/s";
}

function duration(ms) {
  if (ms === null || ms === undefined) { return "-"; }
  if (ms < 1000) { return ms.toFixed(0) + GAP + "ms"; }
  const s = ms / 1000;
  if (s < 120) { return s.toFixed(1) + GAP + "s"; }
  if (s < 7200) { return (s / 60).toFixed(0) + GAP + "min"; }
  return s < 172800 ? (s / 3600).toFixed(1) + GAP + "h" : (s / 86400).toFixed(1) + GAP + "days";
}

const fixed = (v, digits) => v === null || v === undefined ? "-" : v.toFixed(digits);
const clock = (s) => new Date(1000 * s).toLocaleTimeString();

const plural = (n, word) => `${integer.format(n)} ${word}${n === 1 ? "" : "s"}`;

// The reason of a state; of a newcomer's probation the figures are shown instead.
const reasonOf = (s) => s.probation && (s.reason || "").startsWith("on probation") ? "" : s.reason || "";

function say(id, text) {
  if ($(id).textContent !== text) { $(id).textContent = text; }
}

function element(name, text, attributes) {
  const e = document.createElement(name);
  if (text !== undefined) { e.textContent = text; }
  for (const [k, v] of Object.entries(attributes || {})) { e.setAttribute(k, v); }
  return e;
}
