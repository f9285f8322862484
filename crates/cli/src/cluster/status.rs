//! What the nodes of a cluster are doing.

use std::io::Write;
use std::time::Duration;

use kelix::statistics::Statistics;
use kelix::{Address, ConnectOptions};
use kelix_register::View;
use serde_json::{Value, json};

use super::{ANSWERS_WITHIN, Place, view_of};
use crate::Failure;
use crate::columns::{Column, Form, label, table};
use crate::context::{Context, plural};
use crate::ending::Ending;

/// Between two pictures of `status --watch`.
const WATCH_EACH: Duration = Duration::from_millis(500);

/// Asks the primary how its replicas are doing. `None`: it does not answer.
fn ask_primary(context: &Context, cluster: &Place, view: &View) -> Option<Statistics> {
    let member = view.primary_member().filter(|member| cluster.lives(view, member.boot))?;
    let address = match cluster.zookeeper {
        Some(_) => Address::Tcp(member.address.clone()),
        None => Address::Directory(cluster.directory.run()),
    };
    let options = ConnectOptions::default().timeout(ANSWERS_WITHIN);
    let statistics = context.connect_to(&address, options).ok()?.statistics().ok()?;
    // The node at this address may know another view by now.
    let is_of_view = statistics.server.cluster.as_ref().is_some_and(|of| of.term == view.term);
    is_of_view.then_some(statistics)
}

/// What there is to say of the nodes, with what the primary says.
fn describe(cluster: &Place, view: &View, primary: Option<&Statistics>) -> Value {
    let followers = primary.map_or(&[][..], |primary| &primary.mirrors);
    let records = |count: Option<u64>| count.unwrap_or(0);
    let end = followers.iter().map(|of| records(of.applied_records) + records(of.lag_records)).max();
    let mut names = cluster.nodes();
    names.extend(view.members.iter().map(|member| member.node.clone()));
    names.sort();
    names.dedup();
    let nodes: Vec<Value> = names
        .iter()
        .map(|node| {
            let living = cluster.living(node);
            let member = view.members.iter().rev().find(|member| match living {
                Some((_, boot)) => member.boot == boot,
                None => member.node == *node,
            });
            let boot = member.map_or(0, |member| member.boot);
            let role = match () {
                () if living.is_none() => "ended",
                () if view.primary == boot => "primary",
                () if view.leaving.contains(&boot) => "leaving",
                () if view.is_in_sync(boot) => "in sync",
                () if member.is_some_and(|member| view.waiting(member).is_some()) => "waiting",
                () => "copying",
            };
            let is_primary = role == "primary";
            let follower = followers.iter().find(|of| of.name == *node && !is_primary);
            let lag = follower.and_then(|of| of.lag_records);
            json!({
                "node": node,
                "role": role,
                "record": if is_primary { end } else { follower.and_then(|of| of.applied_records) },
                "lag_records": lag,
                "lag_ms": lag.filter(|lag| *lag > 0).and_then(|_| follower?.lag_ms),
                "pid": living.map(|(pid, _)| pid),
                "address": member.filter(|_| living.is_some()).map(|member| &member.address),
            })
        })
        .collect();
    json!({
        "cluster": cluster.name,
        "directory": cluster.directory.0.display().to_string(),
        "run_directory": cluster.directory.run().display().to_string(),
        "view": view.number,
        "term": view.term,
        "in_sync": view.in_sync.len(),
        "min_in_sync": view.min_in_sync,
        "durable": view.durable.name(),
        "lease_left_seconds": primary.and_then(|of| of.server.cluster.as_ref()?.lease_left_seconds),
        "nodes": nodes,
    })
}

const fn text(title: &'static str, pointer: &'static str) -> Column {
    Column { form: Form::Text, ..label(title, pointer) }
}

const COLUMNS: [Column; 7] = [
    text("node", "/node"),
    text("role", "/role"),
    label("record", "/record"),
    label("records behind", "/lag_records"),
    Column { form: Form::Fraction, ..label("ms behind", "/lag_ms") },
    label("pid", "/pid"),
    text("address", "/address"),
];

fn words(described: &Value) -> String {
    let nodes = described["nodes"].as_array().map_or(&[][..], Vec::as_slice);
    let in_sync = described["in_sync"].as_u64().unwrap_or(0);
    let name = described["cluster"].as_str().unwrap_or_default();
    let min = described["min_in_sync"].as_u64().filter(|min| *min > in_sync);
    let refuses = min.map_or(String::new(), |min| format!(", {min} wanted: no writes are accepted"));
    let lease = described["lease_left_seconds"].as_f64();
    let lease = lease.map_or(String::new(), |left| format!(", lease of {left:.1} s left"));
    let in_sync = plural(in_sync, "node");
    let title = format!("cluster {name}, view {}: {in_sync} in sync{refuses}{lease}", described["view"]);
    table(&title, &COLUMNS, nodes)
}

/// Says what the nodes are doing, once or over and over.
pub(super) fn status(context: &Context, cluster: &Place, watch: bool) -> Result<(), Failure> {
    let ending = watch.then(|| Ending::watch("look at cluster")).transpose()?;
    let mut before = Value::Null;
    loop {
        let view = view_of(cluster)?;
        let described = describe(cluster, &view, ask_primary(context, cluster, &view).as_ref());
        if described != before {
            match context.json {
                true if watch => writeln!(std::io::stdout(), "{described}")?,
                true => context.print_json(&described)?,
                false => write!(std::io::stdout(), "{}", words(&described))?,
            }
            std::io::stdout().flush()?;
        }
        before = described;
        match &ending {
            Some(ending) if !ending.wait(WATCH_EACH) => {}
            _ => return Ok(()),
        }
    }
}
