
// Asking the server, once a second, also when it is gone.

function choices(now) {
  const names = now.namespaces ?? [now.namespace], select = $("namespace");
  $("choice").hidden = names.length < 2;
  if ([...select.options].map((option) => option.value).join("/") === names.join("/")) return;
  select.replaceChildren(...names.map((name) => new Option(name, name)));
  select.value = now.namespace;
}

function show(now) {
  // Another server: its counters began anew.
  if (before && (before.term !== now.term || before.pid !== now.pid || before.namespace !== now.namespace)) {
    if (before.namespace !== now.namespace) past = [];
    before = null;
    past.push(null);
  }
  // Nothing is new before the server's clock has gone on.
  if (before && now.uptime_s <= before.uptime_s) return;
  const rates = sample(before, now);
  past.push(rates);
  while (past.length > 0 && (past[0] === null || past[0].when < Date.now() - WINDOW_MS)) past.shift();
  facts(now);
  choices(now);
  cluster(now);
  mirror(before, now);
  mirrors(before, now);
  answers(now, rates);
  shards(before, now);
  memory(now);
  clients(before, now);
  ordered(now);
  generations(now);
  document.title = "Kelix: " + now.namespace;
  before = now;
  shown.term = now.term;
}

function present() {
  document.body.classList.remove("away");
  $("gone").hidden = true;
  $("state").textContent = "live";
  lastSeen = new Date();
}

function away(why) {
  if (past.at(-1) !== null) past.push(null);
  document.body.classList.add("away");
  $("state").textContent = "server gone";
  const since = lastSeen ? "since " + lastSeen.toLocaleTimeString() : "so far";
  $("gone").textContent = "The server is gone: no answer " + since + " (" + why + "). What is shown is its last. This page goes on as soon as a server answers here.";
  $("gone").hidden = false;
}

async function look() {
  const wanted = $("namespace").value;
  try {
    const answer = await fetch("stat.json" + (wanted ? "?namespace=" + encodeURIComponent(wanted) : ""),
      { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    if (answer.status === 404 && wanted) {
      // Another server, which has no such namespace.
      $("namespace").replaceChildren();
      return;
    }
    if (!answer.ok) throw new Error(await answer.text());
    const now = await answer.json();
    // One may have been chosen meanwhile.
    if (wanted && $("namespace").value !== wanted) return;
    present();
    show(now);
  } catch (error) {
    away(error.message);
  } finally {
    charts.forEach(draw);
    shown.looks++;
  }
}

async function live() {
  for (;;) {
    await look();
    await new Promise((resolve) => setTimeout(resolve, EACH_MS));
  }
}

$("namespace").addEventListener("change", look);
live();
