"use strict";
// The map page: streets, points and speeds come from the store, through the server that sent this page.

const KINDS = {
  motorway: ["#5d7ea8", 4], trunk: ["#5d7ea8", 4], primary: ["#56749a", 3.2], secondary: ["#4c6684", 2.6],
  tertiary: ["#43596f", 2.1], residential: ["#3a4b5e", 1.5], unclassified: ["#3a4b5e", 1.5],
};
const OTHER = ["#2f3d4d", 1];
// How long, in seconds of the points' own time, a vehicle is shown after its last point.
const SHOWN_SECONDS = 60;

const element = (id) => document.getElementById(id);
const ask = async (path, query = {}) => {
  const answer = await fetch(path + "?" + new URLSearchParams(query));
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
};
const escaped = (text) => Object.assign(document.createElement("i"), { textContent: text }).innerHTML;

const canvas = L.canvas({ padding: 0.3, tolerance: 6 });
const map = L.map("map", { renderer: canvas, zoomControl: false, zoomSnap: 0.5 });
L.control.zoom({ position: "topright" }).addTo(map);
// Points, places and routes stand above streets and speeds, which are drawn again and again.
map.createPane("above").style.zIndex = 450;
map.getPane("above").style.pointerEvents = "none";
const above = L.canvas({ padding: 0.3, pane: "above" });
const layers = {};
for (const name of ["streets", "speeds", "points", "answer"]) layers[name] = L.layerGroup().addTo(map);

// What is shown, for whoever tests this page.
const shown = { streets: 0, points: 0, matched: 0, speeds: 0, minute: null, route: 0, place: null, events: 0 };
window.shown = shown;

// The western edge of a map on which east meets west: places west of it are shown one turn further east. Places that are asked for are turned back.
let west = -Infinity;
const near = (at) => (Array.isArray(at[0]) ? at.map(near) : [at[0], at[1] < west ? at[1] + 360 : at[1]]);
const polyline = (line, options) => L.polyline(near(line), options);
const turned = (lon) => lon - 360 * Math.floor((lon + 180) / 360);

const latlng = ([lat, lon]) => `${lat.toFixed(7)},${turned(lon).toFixed(7)}`;
const colour = (share) => `hsl(${Math.max(0, Math.min(1, (share - 0.15) / 0.75)) * 130} 80% 54%)`;
const clock = (minute) => new Date(minute * 60000).toISOString().slice(11, 16);
const metres = (n) => (n >= 1000 ? `${(n / 1000).toFixed(2)} km` : `${n.toFixed(1)} m`);

// ---- streets ----

let drawn = null;

async function drawStreets() {
  const view = map.getBounds();
  if (drawn && drawn.contains(view)) return;
  const part = view.pad(0.4);
  const lon = (lng) => (west > -180 ? turned(lng) : Math.max(-180, Math.min(180, lng)));
  const corner = (at) => `${Math.max(-90, Math.min(90, at.lat)).toFixed(6)},${lon(at.lng).toFixed(6)}`;
  let lines;
  try {
    lines = await ask("/streets", { low: corner(part.getSouthWest()), high: corner(part.getNorthEast()) });
  } catch (error) {
    element("news").textContent = error.message;
    return;
  }
  drawn = part;
  layers.streets.clearLayers();
  shown.streets = 0;
  const kinds = Object.entries(lines).sort(([a], [b]) => style(b)[1] - style(a)[1]);
  for (const [kind, list] of kinds) {
    const [color, weight] = style(kind);
    polyline(list, { renderer: canvas, color, weight, interactive: false, smoothFactor: 0.5 }).addTo(layers.streets).bringToBack();
    shown.streets += list.length;
  }
}

function style(kind) {
  return KINDS[kind.replace("_link", "")] || OTHER;
}

// ---- points and speeds ----

const vehicles = new Map();
let minutes = [0, 0], live = true, now = 0;

function dot(at, options) {
  return L.circleMarker(near(at), { renderer: above, pane: "above", interactive: false, stroke: false, fillOpacity: 0.95, ...options });
}

function marks(point) {
  const list = [];
  if (point.place) {
    const [place] = point.place;
    list.push(polyline([point.at, place], { renderer: above, pane: "above", color: "#4cc2ff", weight: 1.2, opacity: 0.7, interactive: false }));
    list.push(dot(point.at, { radius: 2.4, fillColor: "#ffffff" }));
    list.push(dot(place, { radius: 4, fillColor: "#4cc2ff" }));
  } else {
    list.push(dot(point.at, { radius: 3.5, fillColor: "#ff4fa3" }));
  }
  return list;
}

function forget(name) {
  const known = vehicles.get(name);
  if (!known) return;
  known.marks.forEach((mark) => layers.points.removeLayer(mark));
  shown.points -= 1;
  shown.matched -= known.point.place ? 1 : 0;
  vehicles.delete(name);
}

function showPoint(point) {
  forget(point.vehicle);
  const list = marks(point);
  list.forEach((mark) => mark.addTo(layers.points));
  vehicles.set(point.vehicle, { point, marks: list });
  shown.points += 1;
  shown.matched += point.place ? 1 : 0;
}

function showSpeeds(speeds) {
  layers.speeds.clearLayers();
  for (const { line, share } of speeds) {
    polyline(line, { renderer: canvas, color: colour(share), weight: 5, opacity: 0.9, interactive: false }).addTo(layers.speeds);
  }
  shown.speeds = speeds.length;
}

async function showMinute(minute) {
  const { points, speeds } = await ask("/minute", { of: minute });
  if (live || Number(element("slider").value) !== minute) return;
  [...vehicles.keys()].forEach(forget);
  points.forEach(showPoint);
  showSpeeds(speeds);
  tell(minute, points.length);
}

function tell(minute, points) {
  shown.minute = minute;
  element("clock").textContent = clock(minute);
  element("news").textContent = `${points} points, ${shown.speeds} segments`;
}

function note(minute) {
  if (!minutes[1]) minutes = [minute, minute];
  minutes = [Math.min(minutes[0], minute), Math.max(minutes[1], minute)];
  const slider = element("slider");
  [slider.min, slider.max] = minutes;
  if (live) slider.value = minutes[1];
}

function listen() {
  const events = new EventSource("/live");
  events.onmessage = ({ data }) => {
    const news = JSON.parse(data);
    shown.events += 1;
    if (news.point) {
      now = news.point.at_ms;
      note(Math.floor(now / 60000));
      if (live) showPoint(news.point);
    } else if (live) {
      showSpeeds(news.speeds);
      for (const [name, { point }] of vehicles) if (now - point.at_ms > SHOWN_SECONDS * 1000) forget(name);
      tell(news.minute, vehicles.size);
    }
  };
}

function setLive(on) {
  live = on;
  element("now").classList.toggle("on", on);
  if (on) {
    [...vehicles.keys()].forEach(forget);
    element("slider").value = minutes[1];
  }
}

element("now").onclick = () => setLive(true);
element("slider").oninput = ({ target }) => {
  setLive(false);
  showMinute(Number(target.value));
};

// ---- places and routes ----

let mode = "match", by = "time", ends = [];

const cost = (took) =>
  `<p class="cost">${took.microseconds.toFixed(1)} µs, ${took.reads.toLocaleString("en")} reads of the store's memory, ${took.messages} messages</p>`;

async function matchPlace(at) {
  const [found, took] = await ask("/match", { at: latlng(at) });
  layers.answer.clearLayers();
  dot(at, { radius: 5, fillColor: found ? "#ffffff" : "#ff4fa3" }).addTo(layers.answer);
  shown.place = found;
  if (!found) {
    element("answer").innerHTML = `<h2>no street</h2><p class="facts">none within 50 m</p>${cost(took)}`;
    return;
  }
  polyline(found.line, { renderer: above, pane: "above", color: "#ffd34d", weight: 6, interactive: false }).addTo(layers.answer);
  polyline([at, found.place], { renderer: above, pane: "above", color: "#ffffff", weight: 1.5, dashArray: "4 4", interactive: false }).addTo(layers.answer);
  dot(found.place, { radius: 5, fillColor: "#4cc2ff" }).addTo(layers.answer);
  element("answer").innerHTML = `<h2>${escaped(found.street || "a street without a name")}</h2>
    <p class="facts">${escaped(found.kind)}, ${found.maxspeed} km/h<br>
    <b>${metres(found.along)}</b> along segment ${found.segment} of <b>${metres(found.length)}</b><br>
    <b>${metres(found.metres)}</b> to its ${found.side}</p>${cost(took)}`;
}

async function routeTo(at) {
  if (ends.length === 2) ends = [];
  ends.push(at);
  layers.answer.clearLayers();
  ends.forEach((end) => dot(end, { radius: 6, fillColor: "#ffd34d" }).addTo(layers.answer));
  if (ends.length === 2) await showRoute();
  else element("answer").innerHTML = `<p class="hint">Now click where to go.</p>`;
}

async function showRoute() {
  const [route, took] = await ask("/route", { from: latlng(ends[0]), to: latlng(ends[1]), by });
  layers.answer.clearLayers();
  shown.route = route ? route.line.length : 0;
  if (route) {
    polyline(route.line, { renderer: above, pane: "above", color: "#0b2430", weight: 9, opacity: 0.9, interactive: false }).addTo(layers.answer);
    polyline(route.line, { renderer: above, pane: "above", color: "#ffd34d", weight: 5, interactive: false }).addTo(layers.answer);
  }
  ends.forEach((end) => dot(end, { radius: 6, fillColor: "#ffffff" }).addTo(layers.answer));
  element("answer").innerHTML = route
    ? `<h2>${metres(route.length / 1000)}</h2><p class="facts"><b>${(route.time / 60000).toFixed(1)} min</b> at the allowed speed<br>
       <b>${route.segments.length}</b> segments; the search went on from <b>${route.settled}</b> nodes</p>${cost(took)}`
    : `<h2>no route</h2><p class="facts">between these two places</p>${cost(took)}`;
}

function choose(group, id) {
  for (const button of element(group).children) button.classList.toggle("on", button.id === id);
}

function setMode(next) {
  mode = next;
  ends = [];
  choose("modes", `mode-${next}`);
  element("by").hidden = next !== "route";
  layers.answer.clearLayers();
  const hint = next === "route" ? "Click where to begin." : "Click a place on the map to see which street it is on.";
  element("answer").innerHTML = `<p class="hint">${hint}</p>`;
}

function setBy(next) {
  by = next;
  choose("by", `by-${next}`);
  if (ends.length === 2) showRoute();
}

element("mode-match").onclick = () => setMode("match");
element("mode-route").onclick = () => setMode("route");
element("by-time").onclick = () => setBy("time");
element("by-length").onclick = () => setBy("length");
map.on("click", ({ latlng: { lat, lng } }) => (mode === "match" ? matchPlace : routeTo)([lat, lng]));

// ---- begin ----

async function begin() {
  const about = await ask("/about");
  element("title").textContent = about.title;
  const counts = ["nodes", "segments", "streets"];
  element("counts").innerHTML = counts.map((name) => `<div><dt>${name}</dt><dd>${about[name].toLocaleString("en")}</dd></div>`).join("");
  if (about.title.includes("OpenStreetMap")) map.attributionControl.addAttribution("&copy; OpenStreetMap contributors, ODbL");
  map.on("moveend", drawStreets);
  if (about.bounds[1][1] > 180) west = about.bounds[0][1];
  // A very large map is shown from its middle.
  const bounds = L.latLngBounds(about.bounds);
  // The panel stands beside the map on a wide screen, and above it on a telephone.
  const panel = element("panel").getBoundingClientRect();
  const beside = panel.right < map.getSize().x / 2;
  map.fitBounds(bounds, { paddingTopLeft: beside ? [panel.right + 10, 10] : [10, panel.bottom + 10], paddingBottomRight: [10, 90] });
  if (map.getZoom() < 12) map.setView(bounds.getCenter(), 14);
  const known = await ask("/minutes");
  if (known) known.forEach(note);
  listen();
}

window.map = map;
begin();
