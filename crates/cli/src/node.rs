//! `kelix serve --node`: a node of a cluster in the foreground.
//!
//! A node that was deposed, or let go by its primary, has nothing that could be mended: it executes its program
//! again, in the same process, and copies what the primary of then has.

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kelix::FabricChoice;
use kelix_server::{
    ClusterDirectory, FeedFabric, HostsConfig, Node, NodeConfig, NodeEnded, NodeRole, ServerConfig,
};
use serde_json::json;
use signal_hook::consts::{SIGHUP, TERM_SIGNALS};
use signal_hook::flag::{register, register_conditional_shutdown};
use tracing::info;

use crate::cluster::named;
use crate::context::Context;
use crate::ending::watch_signals;
use crate::log::{Log, LogArgs};
use crate::manager::Manager;
use crate::serve::{Metrics, end_on_panic, feed_fabric, watch};
use crate::{Exit, Failure};

/// How to be a node, besides how to serve.
pub(crate) struct Options<'a> {
    pub node: &'a str,
    pub hosts: Option<HostsConfig>,
    pub suspect: Duration,
    pub min_in_sync: Option<usize>,
    pub metrics: Option<SocketAddr>,
}

/// What is said on standard output when clients can connect.
fn ready(context: &Context, cluster: &ClusterDirectory, node: &str, role: NodeRole) -> String {
    let role = match role {
        NodeRole::Primary => "primary",
        NodeRole::Replica => "replica",
    };
    if context.json {
        let (pid, directory) = (std::process::id(), cluster.run().display().to_string());
        return json!({ "node": node, "role": role, "pid": pid, "directory": directory }).to_string();
    }
    format!("node {node}: {role}; clients find the primary in {}", cluster.run().display())
}

/// Runs a node until it ends.
pub(crate) fn run(
    context: &Context,
    Options { node, hosts, suspect, min_in_sync, metrics }: Options<'_>,
    server: ServerConfig,
    log: &LogArgs,
) -> Result<(), Failure> {
    let directory = ClusterDirectory::of(&named(context))?;
    // A node that waits for its primary, copies or begins anew has nothing that would have to be ended in good
    // order.
    let (is_alone, is_told) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    for signal in TERM_SIGNALS {
        register_conditional_shutdown(*signal, 0, is_alone.clone())
            .and_then(|_| register(*signal, is_told.clone()))
            .map_err(|error| Failure::io("serve", "cannot watch for signals", &error))?;
    }
    let signals = watch_signals("serve", &[SIGHUP])?;
    let log = Log::begin(log)?;
    end_on_panic();
    let manager = Manager::of_environment(false);
    kelix_server::prepare_process();
    let fabric = match context.fabric {
        _ if hosts.is_some() => {
            feed_fabric(context, "--fabric shm: nodes on several hosts follow over verbs or tcp")?
        }
        None | Some(FabricChoice::Shm) => None,
        Some(FabricChoice::Tcp) => Some(FeedFabric::Tcp),
        Some(FabricChoice::Verbs) => {
            let context =
                "--fabric verbs: nodes without --zookeeper are on one host, and follow over shm or tcp";
            return Err(Failure::usage("serve", context));
        }
    };
    let metrics = metrics.map(|address| Metrics::reserve(address, None, &directory.run())).transpose()?;
    let config = NodeConfig {
        directory: directory.clone(),
        hosts,
        node: node.into(),
        server,
        fabric,
        suspect,
        min_in_sync,
    };
    let running = Node::start(config)?;
    is_alone.store(false, Ordering::SeqCst);
    let serves = watch(signals, &running.statistics(), &manager, log.file())
        .map_err(|error| Failure::io("serve", "cannot start a thread that watches", &error))?;
    let leaver = running.leaver();
    let _ = serves.send(Box::new(move || leaver.leave()));
    if let Some(metrics) = metrics {
        metrics.serve(running.statistics())?;
    }
    let tell = |role| {
        let text = ready(context, &directory, node, role);
        manager.ready(&text);
        // A reader that has gone is no reason not to serve.
        let _ = writeln!(std::io::stdout(), "{text}");
    };
    tell(running.role());
    match running.run(|| tell(NodeRole::Primary))? {
        NodeEnded::Stopped => {
            running.stopper().stop();
            Ok(())
        }
        NodeEnded::BeginsAnew => {
            // The program that is executed hears nothing of a signal that this one was sent: from here on one ends
            // the process at once.
            is_alone.store(true, Ordering::SeqCst);
            if is_told.load(Ordering::SeqCst) {
                return Ok(());
            }
            info!(node, "this node begins anew");
            let mut words = std::env::args_os();
            let mut again = Command::new("/proc/self/exe");
            if let Some(name) = words.next() {
                again.arg0(name);
            }
            let error = again.args(words).exec();
            Err(Failure::new(Exit::Other, "serve", format!("this node cannot begin anew: {error}")))
        }
    }
}
