//! A NIC as a file in TOML describes it.
//!
//! ```toml
//! name = "..."
//! ports = 2                  # that the server has, each with a link of its own
//! link = "infiniband"        # or "roce" (version 2): what a packet has beside its data
//!
//! [port]                     # of one port; rates in millions of verbs a second, of small ones
//! gbit_s = 100               # bandwidth, each way
//! mtu_bytes = 4096           # most data of a packet
//! reads_in_m_s = 150         # READs that it answers
//! writes_in_m_s = 150        # WRITEs that it takes
//! reads_out_m_s = 150        # READs that it begins, as the NIC of a client
//! writes_out_m_s = 150       # WRITEs that it begins
//!
//! [latency]                  # of small verbs when nothing else is done, from program to program
//! read_us = 1.8              # a READ, there and back (what ib_read_lat prints)
//! write_us = 0.9             # a WRITE, one way (what ib_write_lat prints)
//! byte_ns = 0.7              # what each byte of a READ or WRITE adds
//!
//! [cpu]                      # may be left out, and so may either of its keys
//! post_ns = 50               # to post a verb
//! poll_ns = 50               # to take a completion
//! ```
//!
//! Unknown keys are mistakes, and so is a number that is not above zero; each is told with its line.

use std::path::Path;

use serde::Deserialize;

use crate::Error;

/// What posting and polling take where a file says nothing: a write to the NIC's memory and a look at a cache
/// line, with what the library does around them. A guess on the careful side.
const POST_NS: f64 = 50.0;
const POLL_NS: f64 = 50.0;

/// The NICs that come with the program, by the names of their files.
pub(super) const CONNECTX_3: &str = include_str!("../../nics/connectx3.toml");
pub(super) const CONNECTX_4_TWICE: &str = include_str!("../../nics/connectx4-100g-x2.toml");

/// A number above zero.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(try_from = "f64")]
struct Positive(f64);

impl TryFrom<f64> for Positive {
    type Error = String;

    fn try_from(value: f64) -> Result<Positive, String> {
        match value.is_finite() && value > 0.0 {
            true => Ok(Positive(value)),
            false => Err(format!("{value} is not above zero")),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    ports: Positive,
    link: Link,
    port: PortSection,
    latency: LatencySection,
    #[serde(default)]
    cpu: CpuSection,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PortSection {
    gbit_s: Positive,
    mtu_bytes: Positive,
    reads_in_m_s: Positive,
    writes_in_m_s: Positive,
    reads_out_m_s: Positive,
    writes_out_m_s: Positive,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LatencySection {
    read_us: Positive,
    write_us: Positive,
    byte_ns: Positive,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct CpuSection {
    post_ns: Option<Positive>,
    poll_ns: Option<Positive>,
}

/// What a packet has beside its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Link {
    /// Local route header 8, base transport header 12, checksums 4 and 2.
    Infiniband,
    /// Version 2: preamble and gap 20, Ethernet 14 and 4, IPv4 20, UDP 8, base transport header 12, checksum
    /// 4.
    Roce,
}

impl Link {
    /// Bytes of every packet.
    pub fn packet_bytes(self) -> f64 {
        match self {
            Link::Infiniband => 26.0,
            Link::Roce => 82.0,
        }
    }
}

/// A NIC. Rates are in millions a second, which is operations a microsecond.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Nic {
    pub name: String,
    pub ports: f64,
    pub link: Link,
    pub gbit_s: f64,
    pub mtu_bytes: f64,
    pub reads_in_m_s: f64,
    pub writes_in_m_s: f64,
    pub reads_out_m_s: f64,
    pub writes_out_m_s: f64,
    pub read_us: f64,
    pub write_us: f64,
    pub byte_ns: f64,
    pub post_ns: f64,
    pub poll_ns: f64,
}

impl Nic {
    /// Reads a file.
    pub fn read(file: &Path) -> Result<Nic, Error> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        Nic::parse(&text).map_err(|error| Error::Usage(format!("{}, {error}", file.display())))
    }

    /// Reads the text of one. An error begins with its line.
    pub fn parse(text: &str) -> Result<Nic, String> {
        let file: File = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            format!("line {}: {}", text[..at].matches('\n').count() + 1, error.message())
        })?;
        let File { name, ports, link, port, latency, cpu } = file;
        if ports.0.fract() != 0.0 {
            return Err(format!("ports = {}: they are whole", ports.0));
        }
        Ok(Nic {
            name,
            ports: ports.0,
            link,
            gbit_s: port.gbit_s.0,
            mtu_bytes: port.mtu_bytes.0,
            reads_in_m_s: port.reads_in_m_s.0,
            writes_in_m_s: port.writes_in_m_s.0,
            reads_out_m_s: port.reads_out_m_s.0,
            writes_out_m_s: port.writes_out_m_s.0,
            read_us: latency.read_us.0,
            write_us: latency.write_us.0,
            byte_ns: latency.byte_ns.0,
            post_ns: cpu.post_ns.map_or(POST_NS, |post| post.0),
            poll_ns: cpu.poll_ns.map_or(POLL_NS, |poll| poll.0),
        })
    }

    /// Bytes that a port carries in a microsecond, each way.
    pub fn bytes_a_us(&self) -> f64 {
        self.gbit_s * 125.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_that_come_with_it_are_read() {
        let [old, new] = [CONNECTX_3, CONNECTX_4_TWICE].map(|text| Nic::parse(text).unwrap());
        assert_eq!((old.ports, old.gbit_s, old.link), (1.0, 32.0, Link::Infiniband));
        assert_eq!((new.ports, new.gbit_s, new.bytes_a_us()), (2.0, 100.0, 12_500.0));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let good = "name = \"x\"\nports = 1\nlink = \"roce\"\n[port]\ngbit_s = 25\nmtu_bytes = 1024\n\
                    reads_in_m_s = 10\nwrites_in_m_s = 20\nreads_out_m_s = 10\nwrites_out_m_s = 20\n\
                    [latency]\nread_us = 3\nwrite_us = 1.5\nbyte_ns = 1\n";
        let nic = Nic::parse(good).unwrap();
        assert_eq!((nic.link, nic.post_ns, nic.poll_ns), (Link::Roce, POST_NS, POLL_NS));
        assert_eq!(Nic::parse(&format!("{good}[cpu]\npoll_ns = 7\n")).unwrap().poll_ns, 7.0);
        for (wrong, line, said) in [
            (good.replace("gbit_s", "gbits"), "line 5", "unknown field `gbits`"),
            (good.replace("[latency]", "[latencies]"), "line 11", "unknown field `latencies`"),
            (good.replace("read_us = 3\n", ""), "line 11", "missing field `read_us`"),
            (good.replace("ports = 1\n", ""), "line 1", "missing field `ports`"),
            (good.replace("= 1024", "= 0"), "line 6", "0 is not above zero"),
            (good.replace("= 1.5", "= -1"), "line 13", "-1 is not above zero"),
            (good.replace("= 1.5", "= inf"), "line 13", "inf is not above zero"),
            (good.replace("\"roce\"", "\"iwarp\""), "line 3", "unknown variant `iwarp`"),
            (good.replace("= 25", "= \"25\""), "line 5", "invalid type"),
            (good.replace("[port]", "[port"), "line 4", ""),
            (good.replace("ports = 1\n", "ports = 1.5\n"), "", "they are whole"),
        ] {
            let error = Nic::parse(&wrong).expect_err("a wrong file");
            assert!(error.contains(line) && error.contains(said), "{wrong}\n{error}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Nic::read(Path::new("/nowhere/nic.toml")).unwrap_err();
        assert!(matches!(&error, Error::Other(text) if text.contains("/nowhere/nic.toml: ")), "{error:?}");
    }
}
