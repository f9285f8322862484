//! What devices there are, and why one cannot be used.

use std::path::Path;

use super::device::Device;
use super::ffi::{self, constant::PORT_ACTIVE};

/// A port of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortReport {
    /// Its number.
    pub number: u8,
    /// Whether it is connected to something.
    pub active: bool,
    /// As the system calls it: `4: ACTIVE`.
    pub state: String,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// `100 Gb/sec (4X EDR)`, say.
    pub rate: String,
    /// Bytes of a packet.
    pub mtu: u32,
    /// Its network interface, where it has one.
    pub interface: Option<String>,
    /// The addresses in its table, without those that are empty.
    pub gids: Vec<String>,
}

/// A device for RDMA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceReport {
    /// Its name.
    pub name: String,
    /// What it speaks: `InfiniBand`, `RoCE` or `iWARP`.
    pub protocol: String,
    /// Whether it is software, which is for tests.
    pub software: bool,
    /// Its ports.
    pub ports: Vec<PortReport>,
    /// Most queue pairs, work requests of a queue, and READs of a queue pair that it works on at once.
    pub queue_pairs: u32,
    /// Of one queue.
    pub requests: u32,
    /// That are answered for a peer.
    pub reads: u32,
    /// Why it cannot be used, if it cannot.
    pub trouble: Option<String>,
}

fn told(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

/// The devices of this host. An error if there can be none, and why.
pub fn report() -> std::io::Result<Vec<DeviceReport>> {
    if !Path::new("/sys/class/infiniband").exists() {
        // Said before the libraries are looked for, since without a device they would be of no use.
        ffi::libraries().map_err(std::io::Error::other)?;
        return Ok(Vec::new());
    }
    Ok(Device::names()?.into_iter().map(device).collect())
}

/// Whether there is a device with a port that is connected to something.
pub fn is_usable() -> bool {
    report().is_ok_and(|devices| {
        devices.iter().any(|device| device.trouble.is_none() && device.ports.iter().any(|port| port.active))
    })
}

fn device(name: String) -> DeviceReport {
    let folder = format!("/sys/class/infiniband/{name}");
    let software = ["rxe", "siw"].iter().any(|kind| name.starts_with(kind))
        || std::fs::canonicalize(&folder).is_ok_and(|path| path.starts_with("/sys/devices/virtual"));
    let mut report = DeviceReport {
        name,
        protocol: String::new(),
        software,
        ports: Vec::new(),
        queue_pairs: 0,
        requests: 0,
        reads: 0,
        trouble: None,
    };
    let device = match Device::open(&report.name) {
        Ok(device) => device,
        Err(error) => {
            report.trouble = Some(match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "you may not open it; see the rights of /dev/infiniband/uverbs*".into()
                }
                _ => error.to_string(),
            });
            return report;
        }
    };
    report.queue_pairs = device.limits.max_qp.max(0) as u32;
    report.requests = device.limits.max_qp_wr.max(0) as u32;
    report.reads = device.limits.max_qp_rd_atom.max(0) as u32;
    report.ports =
        (1..=device.limits.phys_port_cnt).filter_map(|number| port(&device, &folder, number)).collect();
    let ethernet = report.ports.iter().any(|port| port.link_layer == "Ethernet");
    report.protocol = match (device.is_iwarp(), ethernet) {
        (true, _) => "iWARP",
        (false, true) => "RoCE",
        (false, false) => "InfiniBand",
    }
    .into();
    if !Path::new("/dev/infiniband/rdma_cm").exists() {
        report.trouble = Some("the connection manager is missing: load the module rdma_ucm".into());
    } else if !report.ports.iter().any(|port| port.active) {
        report.trouble = Some("no port is active: is the cable in, and its network interface up?".into());
    } else if report.ports.iter().all(|port| port.gids.is_empty()) {
        report.trouble = Some("no port has an address: give its network interface one".into());
    }
    report
}

fn port(device: &Device, folder: &str, number: u8) -> Option<PortReport> {
    let port = device.port(number).ok()?;
    let folder = format!("{folder}/ports/{number}");
    let gids = (0..port.gid_tbl_len).filter_map(|index| {
        let gid = told(format!("{folder}/gids/{index}"))
            .filter(|gid| gid.bytes().any(|byte| !b"0:".contains(&byte)))?;
        let kind = told(format!("{folder}/gid_attrs/types/{index}")).unwrap_or_default();
        Some(format!("{index}: {gid} {kind}").trim_end().to_string())
    });
    Some(PortReport {
        number,
        active: port.state == PORT_ACTIVE,
        state: told(format!("{folder}/state")).unwrap_or_default(),
        link_layer: told(format!("{folder}/link_layer")).unwrap_or_default(),
        rate: told(format!("{folder}/rate")).unwrap_or_default(),
        mtu: 128 << port.active_mtu.clamp(0, 5),
        interface: told(format!("{folder}/gid_attrs/ndevs/0")),
        gids: gids.collect(),
    })
}
