//! `kelix fabric`: which fabrics there are here, and why one is not usable.

use std::io::Write;

use kelix_fabric::shm::page_bytes;
use kelix_fabric::verbs::{DeviceReport, PortReport, report};
use serde_json::{Value, json};

use crate::Failure;
use crate::context::Context;
use crate::units::show_size;

/// Tell which fabrics can be used on this host, and why one cannot
///
/// For RDMA it names each device with its ports, addresses and limits. The same program serves with and
/// without RDMA: the libraries are looked for when it runs.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  kelix fabric
  kelix fabric --json")]
pub(crate) struct FabricArgs {}

pub(crate) fn run(context: &Context, _: &FabricArgs) -> Result<(), Failure> {
    let found = report();
    let trouble = match &found {
        Ok(devices) if devices.is_empty() => Some(
            "no RDMA device; a software one for tests: `rdma link add rxe0 type rxe netdev IF`".to_string(),
        ),
        Ok(devices) if devices.iter().all(|device| device.trouble.is_some()) => {
            Some("no device is usable".to_string())
        }
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    };
    let devices = found.unwrap_or_default();
    if context.json {
        let verbs = json!({
            "usable": trouble.is_none(),
            "trouble": trouble,
            "devices": devices.iter().map(device_json).collect::<Vec<_>>(),
        });
        context.print_json(&json!({
            "shm": { "usable": true, "page_bytes": page_bytes() },
            "verbs": verbs,
            "tcp": { "usable": true },
        }))
    } else {
        print(trouble.as_deref(), &devices)
    }
}

fn print(trouble: Option<&str>, devices: &[DeviceReport]) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    writeln!(out, "shm     usable: on this host, in pages of {}", show_size(page_bytes()))?;
    match trouble {
        None => writeln!(out, "verbs   usable: `kelix serve --listen ADDRESS --rdma` lets clients use it")?,
        Some(trouble) => writeln!(out, "verbs   not usable: {trouble}")?,
    }
    for device in devices {
        let kind = if device.software { ", in software: for tests" } else { "" };
        writeln!(out, "  {}  {}{kind}", device.name, device.protocol)?;
        if let Some(trouble) = &device.trouble {
            writeln!(out, "    not usable: {trouble}")?;
        }
        if device.queue_pairs > 0 {
            writeln!(
                out,
                "    at most {} queue pairs, {} requests of one under way, {} READs answered at once",
                device.queue_pairs, device.requests, device.reads
            )?;
        }
        for port in &device.ports {
            let PortReport { number, state, link_layer, rate, mtu, interface, .. } = port;
            let interface = interface.as_ref().map_or(String::new(), |name| format!(", {name}"));
            writeln!(
                out,
                "    port {number}: {state}, {link_layer}{interface}, {rate}, packets of {mtu} bytes"
            )?;
            port.gids.iter().try_for_each(|gid| writeln!(out, "      address {gid}"))?;
        }
    }
    writeln!(out, "tcp     usable: anywhere")?;
    Ok(())
}

fn device_json(device: &DeviceReport) -> Value {
    let port = |port: &PortReport| {
        json!({
            "number": port.number,
            "active": port.active,
            "state": port.state,
            "link_layer": port.link_layer,
            "rate": port.rate,
            "mtu_bytes": port.mtu,
            "interface": port.interface,
            "addresses": port.gids,
        })
    };
    json!({
        "name": device.name,
        "protocol": device.protocol,
        "software": device.software,
        "usable": device.trouble.is_none(),
        "trouble": device.trouble,
        "queue_pairs_max": device.queue_pairs,
        "requests_max": device.requests,
        "reads_answered_max": device.reads,
        "ports": device.ports.iter().map(port).collect::<Vec<_>>(),
    })
}
