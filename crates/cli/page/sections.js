
// What each section of the page shows.

function facts(now) {
  const all = [
    ["version", now.version, "The release of the server."],
    ["process", now.pid, "The number of the server's process."],
    ["term", now.term, "Each server that takes the run directory over serves in a term of its own."],
    ["up", lasting(now.uptime_s), "Time since the server started."],
    ["items", count(sum(now.shards, "items")), "Items in the store, of all shards of this namespace."],
    ["clients", count(sum(fabricsOf(now), "connected")), "Sessions that are connected now."],
    ["pages", size(now.page_bytes), "Length of the system's pages that shared memory is made of."],
    ["tcp", now.tcp, "Where clients connect over TCP."],
    ["verbs", now.rdma?.join(" "), "Where clients connect by RDMA."],
    ["snapshot", snapshot(now.snapshots), "How old the newest snapshot is, and how many could not be taken since the server started."],
  ];
  const known = all.filter(([, value]) => value != null && value !== "");
  $("facts").replaceChildren(...known.map(([name, value, explained]) => {
    const term = make("dt", { title: explained }, name);
    return make("div", {}, term, make("dd", { fact: name }, String(value)));
  }));
}

function snapshot(of) {
  if (!of) return null;
  const newest = of.age_seconds == null ? "none yet" : lasting(of.age_seconds) + " old";
  return newest + (of.failed > 0 ? ", " + count(of.failed) + " failed" : "");
}

function answers(now, rates) {
  const fabrics = fabricsOf(now);
  const reads = sum(fabrics, "reads"), gets = sum(now.shards, "gets");
  bar("answered", [["one", reads, "one-sided reads"], ["two", gets, "gets answered by message"]]);
  const rows = [
    [key("one", "one-sided reads"), "reads", "READs of the server's memory; a get takes one or two.", reads, share(reads, reads + gets)],
    [key("two", "gets by message"), "gets", "Gets that a shard answered.", gets, share(gets, reads + gets)],
    [key("three", "fallbacks"), "fallbacks", "Reads that led nowhere, so that the shard was asked.", sum(fabrics, "fallbacks"), share(sum(fabrics, "fallbacks"), reads)],
    [key("four", "reads done again"), "retries", "Reads that met a change of what they read.", sum(fabrics, "retries"), share(sum(fabrics, "retries"), reads)],
  ];
  table("answers", [
    ["what", "How a get was answered, and what it took.", ([label, , explained]) => { label.title = explained; return label; }, "words"],
    ["now", "A second's worth, since the last look.", ([, name]) => rate(rates[name])],
    ["in all", "Since the server started, clients that have gone included.", ([, name, , total]) => make("span", { total: name }, count(total))],
    ["share", "Of one-sided reads and gets by message together; of fallbacks and reads done again, of one-sided reads.", ([, , , , part]) => part],
  ], rows, "nothing yet");
}

function shards(old, now) {
  const grown = growth(old, now);
  const then = (row) => row.all ? old && totals(old) : old?.shards[row.shard];
  const totals = (statistics) => {
    const all = { all: true, shard: "all", memory: {} };
    for (const name of ["items", "requests", "gets", "scans", "puts", "deletes", "expired", "evicted", "cpu_s", "sleeps",
      "writes_waiting", "writes_waited", "writes_refused"]) all[name] = sum(statistics.shards, name);
    return all;
  };
  const per = (name) => (row) => rate(grown(then(row)?.[name], row[name]));
  table("shards", [
    ["shard", "Its number.", (row) => String(row.shard)],
    ["items", "Items that it has.", (row) => count(row.items)],
    ["requests", "Requests that it takes, a second.", per("requests")],
    ["gets", "Gets that it answers, a second.", per("gets")],
    ["scans", "Pages of scans that it answers, a second.", per("scans")],
    ["puts", "Items put, a second.", per("puts")],
    ["deletes", "Keys deleted, a second.", per("deletes")],
    ["puts in all", "Items put since the server started.", (row) => count(row.puts)],
    ["deletes in all", "Keys deleted since the server started.", (row) => count(row.deletes)],
    ["evicted", "Items that a cache let go, since the server started.", (row) => count(row.evicted)],
    ["expired", "Items whose time was over, since the server started.", (row) => count(row.expired)],
    ["processor", "Share of one core that its thread takes; it sleeps when nothing is to be done.",
      (row) => { const part = grown(then(row)?.cpu_s, row.cpu_s); return part == null ? "-" : [share(part, 1), part > 0.9 && !row.all ? "hot" : ""]; }],
    ["sleeps", "How often its thread went to sleep, a second.", per("sleeps")],
    ["waiting", "Writes that wait for memory now.", (row) => [count(row.writes_waiting), row.writes_waiting > 0 ? "hot" : ""]],
    ["waited", "Writes that had to wait for memory, since the server started.", (row) => count(row.writes_waited)],
    ["refused", "Writes refused for lack of memory, since the server started.", (row) => [count(row.writes_refused), row.writes_refused > 0 ? "hot" : ""]],
  ], now.shards, "none", totals(now));
}

function memory(now) {
  const all = (name) => sum(now.shards, "memory." + name);
  const [limit, taken, used, live, resting] =
    ["limit_bytes", "segment_bytes", "used_bytes", "live_bytes", "quarantined_bytes"].map(all);
  const free = Math.max(0, used - live - resting);
  bar("use", [["one", live, "live"], ["two", resting, "resting"], ["three", free, "free in slabs"],
    ["four", Math.max(0, taken - used), "free pages"], ["rest", Math.max(0, limit - taken), "not taken"]]);
  const rows = [
    [key("one", "live"), "live", "What items and the index fill.", live],
    [key("two", "resting"), "quarantined", "Quarantine: what was freed, and waits until no reader can meet it.", resting],
    [key("three", "free in slabs"), "free", "Slots of slabs that may be given out again, or never were.", free],
    [key("four", "free pages"), "pages", "Pages of segments that are given to nothing.", Math.max(0, taken - used)],
    [key("rest", "not taken"), "rest", "What the limit allows and the server has not taken from the system.", Math.max(0, limit - taken)],
    ["segments", "segments", "All memory that the server has taken from the system.", taken],
    ["in reserved 2 MiB pages", "reserved", "What of the segments of all namespaces is in pages that the host has reserved (vm.nr_hugepages).", now.huge_pages?.reserved_bytes ?? 0],
    ["in granted 2 MiB pages", "granted", "What of the segments of all namespaces is in pages that the system granted.", now.huge_pages?.granted_bytes ?? 0],
    ["limit", "limit", "What --memory allows, of all shards of this namespace.", limit],
  ];
  const named = ([label, , explained]) => {
    const cell = typeof label === "string" ? make("span", {}, label) : label;
    cell.title = explained;
    return cell;
  };
  table("memory", [
    ["what", "What memory is used for.", named, "words"],
    ["bytes", "How much of it.", ([, name, , bytes]) => make("span", { memory: name, bytes }, size(bytes))],
    ["share", "Of the limit.", ([, , , bytes]) => share(bytes, limit)],
  ], rows, "none");
  table("kinds", [
    ["what", "What the slots hold: items, or parts of indexes.", (row) => row.what, "words"],
    ["slot", "Length of a slot.", (row) => size(row.slot_bytes)],
    ["slots in use", "Slots that hold something.", (row) => count(row.slots)],
    ["live", "Bytes of slots in use.", (row) => size(row.live_bytes)],
    ["slabs", "Bytes of all slabs of this kind.", (row) => size(row.used_bytes)],
    ["filled", "Share of the slabs that is in use; the rest is resting or free.", (row) => share(row.live_bytes, row.used_bytes)],
  ], now.memory_by_kind ?? [], "nothing yet");
}

const CLIENTS_SHOWN = 100;

function clients(old, now) {
  const grown = growth(old, now);
  const known = new Map((old?.clients ?? []).map((client) => [client.connection, client]));
  const per = (client, name) => grown(known.get(client.connection)?.[name], client[name]);
  const rows = now.clients.map((client) => ({ ...client, reads_s: per(client, "reads"), messages_s: per(client, "messages") }));
  rows.sort((a, b) => (b.reads_s ?? 0) + (b.messages_s ?? 0) - (a.reads_s ?? 0) - (a.messages_s ?? 0) || a.connection - b.connection);
  const more = rows.length - CLIENTS_SHOWN + now.clients_not_listed;
  table("clients", [
    ["fabric", "How it reaches the server: shm is shared memory, verbs is RDMA.", (row) => row.fabric],
    ["namespace", "The namespace that it uses.", () => now.namespace, "words"],
    ["who", "Its process and user on this host, or the address that it connects from.",
      (row) => row.address ?? "process " + row.pid + ", user " + row.uid, "words"],
    ["reads", "One-sided reads, a second.", (row) => rate(row.reads_s)],
    ["messages", "Messages to shards, a second.", (row) => rate(row.messages_s)],
    ["reads in all", "One-sided reads since it connected.", (row) => count(row.reads)],
    ["bytes", "Bytes that it has read.", (row) => size(row.read_bytes)],
    ["messages in all", "Messages since it connected.", (row) => count(row.messages)],
    ["again", "Reads that it did again because they met a change.", (row) => count(row.retries)],
    ["fallbacks", "Reads that ended in a message.", (row) => count(row.fallbacks)],
    ["models", "Bytes of models of ordered tables that it keeps.", (row) => size(row.model_bytes)],
  ], rows.slice(0, CLIENTS_SHOWN), "no clients");
  const place = $("clients").querySelector(".table");
  place.querySelectorAll(".more").forEach((note) => note.remove());
  if (more > 0) place.append(make("p", { className: "none more" }, "and " + count(more) + " more"));
}

function ordered(now) {
  const rows = now.shards.flatMap((shard) => (shard.ordered ?? []).map((table) => ({ ...table, shard: shard.shard })));
  $("ordered").hidden = rows.length === 0;
  table("ordered", [
    ["table", "Its name, or its number where that is not known.", (row) => row.name ?? "#" + row.table, "words"],
    ["shard", "The shard that has this part of it.", (row) => String(row.shard)],
    ["keys", "Keys in it.", (row) => count(row.keys)],
    ["leaves", "Leaves that its keys stand in.", (row) => count(row.leaves)],
    ["splits", "Leaves that became two.", (row) => count(row.splits)],
    ["merges", "Pairs of leaves that became one.", (row) => count(row.merges)],
    ["models", "Sub-models that lead clients to leaves.", (row) => count(row.sub_models)],
    ["error", "Mean error of the sub-models, in leaves.", (row) => row.model_error?.toFixed(2) ?? "-"],
    ["models' memory", "Bytes of its models.", (row) => size(row.model_bytes)],
    ["tables' memory", "Bytes of its translation tables.", (row) => size(row.table_bytes)],
  ], rows, "none");
}

function generations(now) {
  const rows = now.generations ?? [];
  $("generations").hidden = rows.length === 0;
  table("generations", [
    ["dataset", "Its name.", (row) => row.dataset, "words"],
    ["generation", "Its number, which grows with each load.", (row) => String(row.generation)],
    ["stage", "Whether it is being built, in force, or on its way out.", (row) => row.stage, "words"],
    ["tables", "Tables of it.", (row) => count(row.tables)],
    ["held by", "Clients whose views read it.", (row) => row.holders.join(", ") || "nobody", "words"],
  ], rows, "none");
}

const milliseconds = (value) => value == null ? "-" : value < 9.95 ? value.toFixed(1) + " ms" : count(value) + " ms";

function cluster(now) {
  const of = now.cluster;
  $("cluster").hidden = !of;
  if (!of) return;
  const refused = $("cluster").querySelector(".lost"), few = of.in_sync < of.min_in_sync;
  refused.hidden = of.accepts_writes !== false;
  refused.textContent = few ? "No writes are taken: " + of.in_sync + " in sync, and " + of.min_in_sync + " have to be."
    : "No writes are taken: the register of the cluster has not answered for as long as the lease lasts.";
  const followed = (row) => now.mirrors?.find((mirror) => mirror.name === row.node) ?? (row.node === of.node ? now.mirror : null);
  const role = (row) => row.role + (row.node === of.node ? ", this one" : "");
  table("cluster", [
    ["node", "Its name.", (row) => row.node, "words"],
    ["role", "Whether writes go there, or it has what the primary has; of the view that this node knows, number " + count(of.view) + ".", role, "words"],
    ["in sync", "Whether it has all that counts, and could go on in the primary's place. At least " + count(of.min_in_sync) + " have to be for writes.",
      (row) => [row.in_sync ? "yes" : "no", row.in_sync ? "" : "hot"]],
    ["address", "Where nodes and clients over TCP find it.", (row) => row.address, "words"],
    ["records behind", "Records that were told to it, and that it has not applied yet, as the primary knows.", (row) => count(followed(row)?.lag_records)],
    ["lag", "How old what it has was when it last said.", (row) => milliseconds(followed(row)?.lag_ms)],
    ["lease", "How long the primary counts without asking its register again.", (row) => row.node === of.node && of.lease_left_seconds != null ? milliseconds(1000 * of.lease_left_seconds) : "-"],
  ], of.nodes, "none");
}

function mirror(old, now) {
  const of = now.mirror, grown = growth(old, now);
  $("mirror").hidden = !of;
  if (!of) return;
  const lost = $("mirror").querySelector(".lost");
  lost.hidden = of.lost == null;
  lost.textContent = of.lost == null ? "" : "Its primary is lost, and it shows what there was: " + of.lost;
  table("mirror", [
    ["primary", "The server whose memory this one shows, and to which writes go.", (row) => row.primary, "words"],
    ["state", "Whether it follows its primary, or has lost it.", (row) => [row.state, row.lost == null ? "" : "hot"]],
    ["lag", "How long ago it is known to have had all that its primary had.", (row) => milliseconds(row.lag_ms)],
    ["record", "The last record that it has applied, of all shards together.", (row) => count(row.applied.reduce((all, record) => all + record, 0))],
    ["applied in all", "Records that it has applied since it was copied.", (row) => count(row.records)],
    ["records", "Records that it applies, a second.", (row) => rate(grown(old?.mirror?.records, row.records))],
    ["bytes", "Bytes of records that it applies, a second.", (row) => size(Math.round(row.applied_bytes_per_second)) + "/s"],
  ], [of], "none");
}

function mirrors(old, now) {
  const rows = now.mirrors ?? [], grown = growth(old, now);
  $("mirrors").hidden = rows.length === 0;
  const then = (row) => old?.mirrors?.find((known) => known.address === row.address);
  table("mirrors", [
    ["mirror", "What it calls itself.", (row) => row.name, "words"],
    ["address", "Where it connects from.", (row) => row.address, "words"],
    ["state", "Whether memory is still copied to it, and how much of it was, or it follows.",
      (row) => row.state === "copying" ? "copying, " + share(Math.min(row.copied_bytes, row.of_bytes), row.of_bytes) : row.state, "words"],
    ["lag", "How old what it has was when it last said.", (row) => milliseconds(row.lag_ms)],
    ["records behind", "Records that were told to it, and that it has not applied yet.", (row) => count(row.lag_records)],
    ["memory", "Bytes of its memory.", (row) => size(row.bytes)],
    ["sent", "Bytes that were sent to it.", (row) => size(row.sent_bytes)],
    ["reads", "One-sided reads of its clients, a second.", (row) => rate(grown(then(row)?.reads, row.reads))],
    ["reads in all", "One-sided reads of its clients.", (row) => count(row.reads)],
    ["for", "How long it has followed.", (row) => lasting(row.since_seconds)],
  ], rows, "none");
}
