
"use strict";
// What the page shows it makes of text nodes and never of HTML, since names and addresses come from others.

const EACH_MS = 1000, PATIENCE_MS = 5000, WINDOW_MS = 300000, GAP_MS = 5000;
const FABRICS = [["shm", "one", "shared memory"], ["verbs", "three", "RDMA"], ["tcp", "two", "TCP"]];
const $ = (id) => document.getElementById(id);

// Past looks, for the charts; null where there was no server.
let past = [];
let before = null, lastSeen = null;
const shown = { looks: 0, term: null };

function make(tag, properties = {}, ...children) {
  const { className, title, ...data } = properties;
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (title) element.title = title;
  Object.assign(element.dataset, data);
  element.append(...children.filter((child) => child !== null));
  return element;
}

// Numbers in words.
const count = (value) => value == null ? "-" : Math.round(value).toLocaleString("en-US");
const rate = (value) => value == null ? "-" : value > 0 && value < 9.95 ? value.toFixed(1) + "/s" : count(value) + "/s";
const share = (part, whole) => !(whole > 0) ? "-" : (100 * part / whole).toFixed(part > 0 && part < whole / 1000 ? 3 : 1) + " %";
function size(bytes) {
  if (bytes == null) return "-";
  for (const unit of ["bytes", "KiB", "MiB", "GiB"]) {
    if (bytes < 1024) return (Number.isInteger(bytes) ? bytes : bytes.toFixed(1)) + " " + unit;
    bytes /= 1024;
  }
  return bytes.toFixed(1) + " TiB";
}
function lasting(seconds) {
  const [days, hours, minutes] = [86400, 3600, 60].map((unit) => Math.floor(seconds / unit));
  if (days) return days + " d " + hours % 24 + " h";
  if (hours) return hours + " h " + minutes % 60 + " min";
  return minutes ? minutes + " min " + Math.floor(seconds % 60) + " s" : seconds.toFixed(0) + " s";
}

// Sums and rates.
const at = (object, path) => path.split(".").reduce((value, name) => value?.[name], object);
const sum = (parts, path) => parts.reduce((all, part) => all + (at(part, path) ?? 0), 0);
// The function that tells how much a number has grown a second from one look to the next.
function growth(old, now) {
  const seconds = old ? now.uptime_s - old.uptime_s : 0;
  return (then, value) => seconds > 0 && then != null && value != null ? Math.max(0, (value - then) / seconds) : null;
}
const fabricsOf = (statistics) => Object.values(statistics?.fabrics ?? {});

function sample(old, now) {
  const grown = growth(old, now);
  const ofShards = (path) => grown(old && sum(old.shards, path), sum(now.shards, path));
  const ofFabric = (name, path) => grown(old?.fabrics[name]?.[path], now.fabrics[name]?.[path]);
  const ofFabrics = (path) => grown(old && sum(fabricsOf(old), path), sum(fabricsOf(now), path));
  const rates = { when: Date.now(), cpu: ofShards("cpu_s"), bytes: ofFabrics("read_bytes") };
  for (const path of ["gets", "puts", "deletes", "scans", "requests"]) rates[path] = ofShards(path);
  for (const path of ["reads", "messages", "retries", "fallbacks"]) rates[path] = ofFabrics(path);
  for (const [name] of FABRICS) rates["reads " + name] = ofFabric(name, "reads");
  rates.live = sum(now.shards, "memory.live_bytes");
  rates.resting = sum(now.shards, "memory.quarantined_bytes");
  return rates;
}

// Charts: a title, lines by the names of what is sampled, and how a number is written.
const CHARTS = [
  ["One-sided reads", "READs of the server's memory by clients, which no thread of the server takes part in over shared memory and RDMA. A get takes one or two.",
    FABRICS.map(([name, colour]) => ["reads " + name, colour, name]), rate],
  ["Bytes read one-sidedly", "Bytes that these reads brought.", [["bytes", "one", "all"]], (value) => value == null ? "-" : size(Math.round(value)) + "/s"],
  ["Messages", "Requests that clients sent to shards: writes, and gets that were not answered by reading.", [["messages", "one", "sent"], ["requests", "two", "taken"]], rate],
  ["Writes", "Items put and keys deleted by shards.", [["puts", "one", "puts"], ["deletes", "two", "deletes"]], rate],
  ["Gets answered by message", "Gets, and pages of scans, that a shard answered because reading led nowhere or was not wanted.", [["gets", "one", "gets"], ["scans", "two", "scans"]], rate],
  ["Reads done again", "Reads that met a change and were done again, and reads that ended in a message.", [["retries", "one", "again"], ["fallbacks", "two", "message"]], rate],
  ["Processor time of shards", "100 % is one core. Reads take none of it.", [["cpu", "one", "all shards"]], (value) => value == null ? "-" : (100 * value).toFixed(1) + " %"],
  ["Memory", "Bytes of what is live, and of what rests in quarantine.", [["live", "one", "live"], ["resting", "two", "resting"]], size],
];

const charts = CHARTS.map(([title, explained, lines, form]) => {
  const canvas = make("canvas");
  canvas.setAttribute("role", "img");
  const values = lines.map(() => document.createTextNode("-"));
  const legend = make("div", { className: "legend" }, ...lines.map(([name, colour, label], index) =>
    make("span", { rate: name }, make("i", { className: colour }), label + " ", values[index])));
  document.querySelector(".charts").append(
    make("div", { className: "chart" }, make("b", { title: explained }, title), legend, canvas));
  return { title, canvas, values, lines, form };
});

function draw({ title, canvas, values, lines, form }) {
  const newest = past.at(-1);
  lines.forEach(([name], index) => { values[index].data = form(newest?.[name]); });
  canvas.setAttribute("aria-label", title + ": " + lines.map(([, , label], index) => label + " " + values[index].data).join(", "));
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d"), colours = getComputedStyle(document.documentElement);
  pen.scale(scale, scale);
  const top = Math.max(0, ...past.flatMap((look) => lines.map(([name]) => look?.[name] ?? 0)));
  const from = Date.now() - WINDOW_MS;
  const x = (when) => (when - from) / WINDOW_MS * width;
  const y = (value) => height - 3 - (top > 0 ? value / top : 0) * (height - 20);
  pen.fillStyle = colours.getPropertyValue("--soft");
  pen.strokeStyle = colours.getPropertyValue("--line");
  pen.font = "11px system-ui, sans-serif";
  for (let minute = 1; minute < 5; minute++) pen.strokeRect(x(from + minute * 60000), 15, 0, height);
  pen.strokeRect(0, y(0) + 1, width, 0);
  if (top > 0) {
    pen.strokeRect(0, y(top), width, 0);
    pen.fillText(form(top), 0, 11);
  }
  for (const [name, colour] of lines) {
    pen.strokeStyle = colours.getPropertyValue("--" + colour);
    pen.lineWidth = 1.5;
    pen.beginPath();
    let last = null;
    for (const look of past) {
      const value = look?.[name];
      if (value == null) { last = null; continue; }
      if (last !== null && look.when - last < GAP_MS) pen.lineTo(x(look.when), y(value));
      else pen.moveTo(x(look.when), y(value));
      last = look.when;
    }
    pen.stroke();
  }
}

// A table: columns are [title, explanation, cell]; a cell makes of a row a text, an element, or [text, class].
function table(id, columns, rows, none, all) {
  const place = $(id).querySelector(".table");
  if (rows.length === 0) return place.replaceChildren(make("p", { className: "none" }, none));
  let body = place.querySelector("tbody");
  if (!body) {
    const head = columns.map(([title, explained, , className]) => {
      const cell = make("th", { className }, make("span", { title: explained }, title));
      cell.scope = "col";
      return cell;
    });
    body = make("tbody");
    place.replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ...head)), body));
  }
  const line = (row, className) => make("tr", { className }, ...columns.map(([title, , cell, kind]) => {
    const made = cell(row);
    const [text, more] = Array.isArray(made) ? made : [made, ""];
    const td = make("td", { className: [kind, more].filter(Boolean).join(" "), column: title }, text);
    if (kind === "words" && typeof text === "string") td.title = text;
    return td;
  }));
  body.replaceChildren(...rows.map((row) => line(row)), ...(all && rows.length > 1 ? [line(all, "all")] : []));
}

function bar(id, parts) {
  const whole = parts.reduce((all, [, part]) => all + Math.max(0, part), 0);
  $(id).replaceChildren(...parts.map(([colour, part, explained]) => {
    const piece = make("i", { className: colour, title: explained + ": " + share(part, whole) });
    piece.style.width = whole > 0 ? 100 * Math.max(0, part) / whole + "%" : "0";
    return piece;
  }));
}

const key = (colour, label) => make("span", {}, make("i", { className: "key " + colour }), label);
