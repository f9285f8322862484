//! Measurements on real verbs: what words, orders, errors and costs are like. `./run measure [WHAT...]`.
//!
//! Each prints lines that begin with its name. Counts and statuses are facts about the software device; times
//! are those of an emulated processor and say nothing about any other.

mod costs;
mod failures;
mod order;
mod rig;
mod words;

/// Name, what it tells, how.
type Measurement = (&'static str, &'static str, fn());

const MEASUREMENTS: [Measurement; 13] = [
    (
        "words",
        "READs and WRITEs beside local stores and loads: torn words, mixtures, order of words",
        words::words,
    ),
    ("copies", "the processor's string copy beside local stores; needs no device", words::copies),
    ("order", "WRITE then READ, WRITE then WRITE, READ then READ of one queue pair", order::order),
    ("handshake", "the sleeper's and the waker's: store and look, WRITE and READ", order::handshake),
    ("outside", "a READ that reaches out of a region", failures::outside),
    ("deregistered", "READs of a region that goes", failures::deregistered),
    ("killed", "how long until a killed, a stopped and an idle peer are noticed", failures::killed),
    ("unready", "a wake-up for which the peer has no receive, and the READ behind it", failures::unready),
    ("sleep", "completion queues polled and slept on", costs::sleep),
    ("authority", "what the READ of an authority word adds to a READ", costs::authority),
    ("registration", "what registering memory costs, and which memory", costs::registration),
    ("landing", "what copying out of a registered buffer adds", costs::landing),
    ("limits", "what the device allows", costs::limits),
];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    match wanted.first().map(String::as_str) {
        Some(failures::VICTIM) => return failures::victim(),
        Some(costs::UNPRIVILEGED) => return costs::unprivileged(),
        _ => {}
    }
    let known = |name: &String| MEASUREMENTS.iter().any(|(known, _, _)| known == name);
    if !wanted.iter().all(known) {
        MEASUREMENTS.iter().for_each(|(name, what, _)| println!("{name:14}{what}"));
        return;
    }
    for (name, _, measure) in MEASUREMENTS {
        if wanted.is_empty() || wanted.iter().any(|it| it == name) {
            measure();
        }
    }
}
