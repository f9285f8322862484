//! What the nodes of a cluster are doing.

use std::io::Write;
use std::time::Duration;

use kelix::{Address, Client, ConnectOptions};
use kelix_register::View;
use serde_json::{Value, json};

use super::{ANSWERS_WITHIN, Place, view_of};
use crate::Failure;
use crate::columns::{Column, Form, label, table};
use crate::context::{Context, plural};
use crate::ending::Ending;

/// Between two pictures of `status --watch`.
const WATCH_EACH: Duration = Duration::from_millis(500);

/// Asks the primary how its replicas are doing. `Null`: it does not answer.
fn ask_primary(context: &Context, cluster: &Place, view: &View, kept: &mut Option<Client>) -> Value {
    let Some(member) = view.primary_member().filter(|member| cluster.lives(view, member.boot)) else {
        return Value::Null;
    };
    let address = match cluster.zookeeper {
        Some(_) => Address::Tcp(member.address.clone()),
        None => Address::Directory(cluster.directory.run()),
    };
    let options = ConnectOptions::default().timeout(ANSWERS_WITHIN);
    let client = kept.take().map_or_else(|| context.connect_to(&address, options), Ok);
    let statistics = client.and_then(|client| {
        let statistics = client.statistics()?;
        *kept = Some(client);
        Ok(statistics)
    });
    let statistics = statistics.map_or(Value::Null, |statistics| json!(statistics));
    // Whoever answers may have become another thing since.
    let is_it = statistics["cluster"]["term"].as_u64() == Some(view.term);
    if is_it { statistics } else { Value::Null }
}

/// What there is to say of the nodes, with what the primary says.
fn describe(cluster: &Place, view: &View, primary: &Value) -> Value {
    let followers = primary["mirrors"].as_array().map_or(&[][..], Vec::as_slice);
    let follower = |node: &str| followers.iter().find(|of| of["name"].as_str() == Some(node));
    let number = |of: &Value, name: &str| of[name].as_u64().unwrap_or(0);
    let ends = followers.iter().map(|of| number(of, "applied_records") + number(of, "lag_records"));
    let end = ends.max();
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
            let (record, lag) = match follower(node) {
                _ if role == "primary" => (end.map(Value::from), None),
                Some(of) => (of.get("applied_records").cloned(), of.get("lag_records").cloned()),
                None => (None, None),
            };
            let is_behind = lag.as_ref().and_then(Value::as_u64).is_some_and(|records| records > 0);
            let lag_ms = follower(node).filter(|_| is_behind).and_then(|of| of.get("lag_ms"));
            json!({
                "node": node,
                "role": role,
                "record": record,
                "lag_records": lag,
                "lag_ms": lag_ms,
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
        "lease_left_seconds": primary["cluster"]["lease_left_seconds"],
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
    let (mut before, mut client) = (Value::Null, None);
    loop {
        let view = view_of(cluster)?;
        let described = describe(cluster, &view, &ask_primary(context, cluster, &view, &mut client));
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
