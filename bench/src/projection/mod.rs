//! `kelix bench projection`: what the counts of this run allow on a NIC that a file describes.
//!
//! It is arithmetic on counts, not a measurement: sessions do each kind of operation over TCP, a tap on the
//! wire counts their verbs, bytes and rounds, the kernel's clocks tell the shard's processor time, and
//! `model` says what a NIC with the rates, bandwidth and latencies of the file allows of that. The rows are
//! the same arithmetic for the machines of HydraDB and XStore, beside what their papers tell in the text,
//! with the error.
//!
//! | file | holds |
//! |---|---|
//! | `nic.rs` | a NIC, as its file says |
//! | `tap.rs` | counts on the wire |
//! | `verbs.rs` | what of that is verbs, and what the verbs fabric adds |
//! | `model.rs` | the arithmetic |
//! | `paths.rs`, `hash.rs`, `ordered.rs` | sessions that do operations, counted |
//! | `replicas.rs` | puts whose replicas are fed by messages |
//! | `processor.rs` | processor times |
//! | `checks.rs` | the papers |

mod checks;
mod hash;
mod model;
mod nic;
mod ordered;
mod paths;
mod processor;
mod replicas;
mod tap;
mod verbs;

use serde_json::{Value, json};

use crate::{Error, Options};
use kelix_report::cores::unpin;
use kelix_report::report::{Detail, figure};
use kelix_report::{Report, progress};
use model::{Projected, Work};
use nic::Nic;
use paths::Way;

/// Records of a run. What is counted is the same with more.
const RECORDS: u64 = 200_000;
pub(crate) const RECORDS_MIN: u64 = 2000;
/// Records of a primary with a replica, at most.
const REPLICATED: u64 = 10_000;

/// What is projected to.
struct Target {
    nic: Nic,
    /// Cores of the server that run a shard each.
    cores: usize,
    /// Clients in a closed loop.
    clients: Option<usize>,
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<Report, Error> {
    let nic = match &options.project {
        Some(file) => Nic::read(file)?,
        None => Nic::parse(nic::CONNECTX_4_TWICE)?,
    };
    let target = Target { nic, cores: options.threads.unwrap_or(1), clients: options.clients };
    let records = options.records.unwrap_or(RECORDS);
    unpin();
    progress::show("counting, hash tables");
    let mut hash = hash::measure(records)?;
    progress::show("counting, ordered tables");
    let ordered = ordered::measure(records)?;
    progress::show("counting, replicas");
    let fed = replicas::bytes_a_put(records.min(REPLICATED))?;
    progress::show("");
    let mut rows = checks::rows(&hash, &ordered)?;
    let put = hash.ways.iter().find(|way| way.id == "put").expect("every way is measured").work;
    let replicated = replicas::ways(put, fed);
    rows.extend(checks::replicated(&put, &replicated, &target.nic));
    hash.ways.extend(replicated);
    hash.ways.push(Way::one("gets_zipf", "gets, Zipf, pointers or messages", hash.zipf.work));
    hash.ways.push(Way::one("gets_uniform", "gets, uniform, pointers or messages", hash.uniform.work));
    let ways: Vec<&Way> = hash.ways.iter().chain(&ordered).collect();
    Ok(Report { detail: Some(target.detail(&ways)), ..Report::new("projection", records, rows) })
}

impl Target {
    fn detail(&self, ways: &[&Way]) -> Detail {
        let heading = [
            "operation",
            "READs",
            "bytes",
            "WRITEs",
            "bytes",
            "rounds",
            "shard ns",
            "by rate",
            "by bandwidth",
        ];
        let heading = heading.into_iter().chain(["by CPU", "M/s", "us"]).map(String::from);
        let at_clients =
            self.clients.map(|clients| [format!("M/s of {clients}"), format!("us of {clients}")]);
        let heading = heading.chain(at_clients.into_iter().flatten()).chain(["limit".into()]).collect();
        let projected: Vec<(&Way, Projected)> = ways
            .iter()
            .map(|way| (*way, Projected::of_batch(&way.work, way.batch, &self.nic, self.cores as f64)))
            .collect();
        let lines = projected.iter().map(|(way, projected)| self.line(way, projected));
        Detail {
            name: "projection",
            json: self.json(&projected),
            words: self.words(),
            lines: std::iter::once(heading).chain(lines).collect(),
        }
    }

    fn words(&self) -> String {
        let cores = match self.cores {
            1 => "one core of the server runs a shard".into(),
            cores => format!("{cores} cores of the server run a shard each"),
        };
        format!(
            "Projected to {}; {cores}. Arithmetic on the counts of this run, not a measurement on this NIC: M/s is a ceiling that is \
             not exceeded however many clients there are, us the latency of a call when nothing else is done.",
            self.nic.name
        )
    }

    fn line(&self, way: &Way, projected: &Projected) -> Vec<String> {
        let Work { reads, read_bytes, writes_in, write_in_bytes, writes_out, write_out_bytes, .. } = way.work;
        let (ceiling, limit) = projected.ceiling();
        let infinite = |value: f64| if value.is_finite() { figure(value) } else { "-".into() };
        let mut line = vec![
            way.name.to_string(),
            figure(reads),
            figure(read_bytes),
            figure(writes_in + writes_out),
            figure(write_in_bytes + write_out_bytes),
            figure(way.work.read_rounds + way.work.message_rounds),
            figure(way.work.server_cpu_ns(&self.nic)),
            figure(projected.by_message_rate),
            figure(projected.by_bandwidth),
            infinite(projected.by_server_cpu),
            figure(ceiling),
            figure(projected.latency_us),
        ];
        if let Some(clients) = self.clients {
            let (rate, latency) = projected.in_a_loop(clients, way.batch);
            line.extend([figure(rate), figure(latency)]);
        }
        line.push(limit.words().into());
        line
    }

    fn json(&self, projected: &[(&Way, Projected)]) -> Value {
        let operation = |(way, projected): &(&Way, Projected)| {
            let (work, (ceiling, limit)) = (&way.work, projected.ceiling());
            let mut json = json!({
                "id": way.id,
                "name": way.name,
                "batch": way.batch,
                "reads": work.reads,
                "read_bytes": work.read_bytes,
                "writes_in": work.writes_in,
                "write_in_bytes": work.write_in_bytes,
                "writes_out": work.writes_out,
                "write_out_bytes": work.write_out_bytes,
                "read_rounds": work.read_rounds,
                "message_rounds": work.message_rounds,
                "server_ns": work.server_cpu_ns(&self.nic),
                "client_ns": work.client_ns,
                "by_message_rate_m_s": projected.by_message_rate,
                "by_bandwidth_m_s": projected.by_bandwidth,
                // Nothing where it is no limit.
                "by_server_cpu_m_s": projected.by_server_cpu,
                "ceiling_m_s": ceiling,
                "limit": limit.words(),
                "latency_us": projected.latency_us,
            });
            if let Some(clients) = self.clients {
                let (rate, latency) = projected.in_a_loop(clients, way.batch);
                json["of_clients"] = json!({ "clients": clients, "m_s": rate, "us": latency });
            }
            json
        };
        json!({
            "nic": self.nic.name,
            "cores": self.cores,
            "measured_on_this_nic": false,
            "operations": projected.iter().map(operation).collect::<Vec<_>>(),
        })
    }
}
