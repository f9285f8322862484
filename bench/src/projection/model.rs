//! The arithmetic: from what an operation costs, as counted, to what a NIC allows.
//!
//! The server's NIC is what is looked at: there are as many clients as it takes, on other machines.
//!
//! ```text
//! by message rate   ports / (READs / reads_in + WRITEs in / writes_in + WRITEs out / writes_out)
//! by bandwidth      ports * bytes a us / the larger of: bytes in, bytes out, with what packets have beside data
//! by server CPU     cores / processor time of the shard, with what it takes to post its WRITEs
//! ceiling           the smallest of them
//! latency           READ rounds * READ, message rounds * (two WRITEs and the shard), bytes, the client
//! N in a loop       throughput min(ceiling, N / latency), so latency max(latency, N / ceiling)
//! ```
//!
//! What a NIC does is taken to be one row of work after the other, so that shares of its rates add up.
//! Nothing waits for anything else but where it must, so all of these are bounds: a real NIC stays below the
//! ceiling and above the latency. Caches of a NIC that overflow (many connections, many pages) are not in it.

use super::nic::Nic;

/// Bytes of a packet beside those of every packet: where a READ or WRITE is to go, and what an answer says.
const ADDRESS_BYTES: f64 = 16.0;
const ANSWER_BYTES: f64 = 4.0;

/// What one operation costs on average.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Work {
    /// READs by the client, and the bytes that they bring.
    pub reads: f64,
    pub read_bytes: f64,
    /// WRITEs to the server, and their bytes.
    pub writes_in: f64,
    pub write_in_bytes: f64,
    /// WRITEs from the server, and their bytes.
    pub writes_out: f64,
    pub write_out_bytes: f64,
    /// How often the client waits for READs, none of which it could post before, and for a reply.
    pub read_rounds: f64,
    pub message_rounds: f64,
    /// Processor time of the shard and of the client, without what verbs take.
    pub server_ns: f64,
    pub client_ns: f64,
}

impl Work {
    /// This so many times over.
    pub fn times(self, times: f64) -> Work {
        self.joined(self, |one, _| one * times)
    }

    /// A share of this and the rest of another.
    pub fn mixed(self, share: f64, other: Work) -> Work {
        self.joined(other, |one, other| one * share + other * (1.0 - share))
    }

    fn joined(self, other: Work, mix: impl Fn(f64, f64) -> f64) -> Work {
        Work {
            reads: mix(self.reads, other.reads),
            read_bytes: mix(self.read_bytes, other.read_bytes),
            writes_in: mix(self.writes_in, other.writes_in),
            write_in_bytes: mix(self.write_in_bytes, other.write_in_bytes),
            writes_out: mix(self.writes_out, other.writes_out),
            write_out_bytes: mix(self.write_out_bytes, other.write_out_bytes),
            read_rounds: mix(self.read_rounds, other.read_rounds),
            message_rounds: mix(self.message_rounds, other.message_rounds),
            server_ns: mix(self.server_ns, other.server_ns),
            client_ns: mix(self.client_ns, other.client_ns),
        }
    }

    /// Bytes that come into the server's ports, and that leave them.
    fn bytes_on_links(&self, nic: &Nic) -> (f64, f64) {
        let packet = nic.link.packet_bytes();
        // Of verbs of this many bytes together, all alike.
        let headers = |verbs: f64, bytes: f64| {
            let packets = if verbs > 0.0 { (bytes / verbs / nic.mtu_bytes).ceil().max(1.0) } else { 0.0 };
            verbs * packets * packet
        };
        let answers = |verbs: f64| verbs * (packet + ANSWER_BYTES);
        let write = |verbs: f64, bytes: f64| headers(verbs, bytes) + verbs * ADDRESS_BYTES + bytes;
        let inwards = self.reads * (packet + ADDRESS_BYTES)
            + write(self.writes_in, self.write_in_bytes)
            + answers(self.writes_out);
        let outwards = headers(self.reads, self.read_bytes)
            + self.reads * ANSWER_BYTES
            + self.read_bytes
            + write(self.writes_out, self.write_out_bytes)
            + answers(self.writes_in);
        (inwards, outwards)
    }

    /// Processor time of the shard for an operation.
    pub fn server_cpu_ns(&self, nic: &Nic) -> f64 {
        self.server_ns + self.writes_out * (nic.post_ns + nic.poll_ns)
    }

    /// How long an operation takes when nothing else is done.
    fn latency_us(&self, nic: &Nic) -> f64 {
        // The first READ of a round takes its whole way. The others are on theirs behind it.
        let size = if self.reads > 0.0 { self.read_bytes / self.reads } else { 0.0 };
        let first = self.read_rounds.min(self.reads);
        let behind = if self.read_rounds > 0.0 { self.reads - first } else { 0.0 };
        let reads = self.read_rounds * nic.read_us
            + first * size * nic.byte_ns * 1e-3
            + behind * (size / nic.bytes_a_us() + 1.0 / nic.reads_out_m_s);
        let bytes = (self.write_in_bytes + self.write_out_bytes) * nic.byte_ns * 1e-3;
        let messages = match self.message_rounds > 0.0 {
            true => self.message_rounds * 2.0 * nic.write_us + bytes + self.server_cpu_ns(nic) * 1e-3,
            false => 0.0,
        };
        let verbs = (self.reads + self.writes_in) * (nic.post_ns + nic.poll_ns);
        reads + messages + (self.client_ns + verbs) * 1e-3
    }
}

/// What limits throughput.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Limit {
    MessageRate,
    Bandwidth,
    ServerCpu,
}

impl Limit {
    pub fn words(self) -> &'static str {
        match self {
            Limit::MessageRate => "message rate",
            Limit::Bandwidth => "bandwidth",
            Limit::ServerCpu => "server CPU",
        }
    }
}

/// What a NIC allows. Rates are in millions of operations a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Projected {
    pub by_message_rate: f64,
    pub by_bandwidth: f64,
    /// Infinite where the shard does nothing.
    pub by_server_cpu: f64,
    pub latency_us: f64,
}

impl Projected {
    /// What a NIC allows of some work, with so many cores of the server that run a shard each. The latency is
    /// that of so many operations that are one call.
    pub fn of_batch(work: &Work, batch: usize, nic: &Nic, cores: f64) -> Projected {
        Projected { latency_us: work.times(batch as f64).latency_us(nic), ..Projected::of(work, nic, cores) }
    }

    /// The same of one operation.
    pub fn of(work: &Work, nic: &Nic, cores: f64) -> Projected {
        let busy = work.reads / nic.reads_in_m_s
            + work.writes_in / nic.writes_in_m_s
            + work.writes_out / nic.writes_out_m_s;
        let (inwards, outwards) = work.bytes_on_links(nic);
        Projected {
            by_message_rate: nic.ports / busy,
            by_bandwidth: nic.ports * nic.bytes_a_us() / inwards.max(outwards),
            by_server_cpu: cores * 1e3 / work.server_cpu_ns(nic),
            latency_us: work.latency_us(nic),
        }
    }

    /// The throughput that is never exceeded, and why.
    pub fn ceiling(&self) -> (f64, Limit) {
        [(self.by_bandwidth, Limit::Bandwidth), (self.by_server_cpu, Limit::ServerCpu)].into_iter().fold(
            (self.by_message_rate, Limit::MessageRate),
            |least, other| {
                if other.0 < least.0 { other } else { least }
            },
        )
    }

    /// Throughput and latency of so many clients, each of which begins a call of so many operations when its
    /// last one has ended.
    pub fn in_a_loop(&self, clients: usize, batch: usize) -> (f64, f64) {
        let (ceiling, _) = self.ceiling();
        let at_once = (clients * batch) as f64;
        (ceiling.min(at_once / self.latency_us), self.latency_us.max(at_once / ceiling))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::projection::nic::Link;

    fn nic() -> Nic {
        Nic {
            name: "round numbers".into(),
            ports: 2.0,
            link: Link::Infiniband,
            gbit_s: 80.0,
            mtu_bytes: 1024.0,
            reads_in_m_s: 50.0,
            writes_in_m_s: 100.0,
            reads_out_m_s: 25.0,
            writes_out_m_s: 40.0,
            read_us: 2.0,
            write_us: 1.0,
            byte_ns: 1.0,
            post_ns: 30.0,
            poll_ns: 20.0,
        }
    }

    fn close(one: f64, other: f64) {
        assert!((one - other).abs() < 1e-9 * other.abs(), "{one}, {other}");
    }

    /// A get of 74 bytes by one READ: request 26 + 16 bytes, answer 26 + 4 + 70.
    #[test]
    fn one_read_by_hand() {
        let work =
            Work { reads: 1.0, read_bytes: 70.0, read_rounds: 1.0, client_ns: 150.0, ..Work::default() };
        let nic = nic();
        assert_eq!(work.bytes_on_links(&nic), (42.0, 100.0));
        let projected = Projected::of(&work, &nic, 1.0);
        close(projected.by_message_rate, 100.0);
        close(projected.by_bandwidth, 200.0);
        assert_eq!(projected.by_server_cpu, f64::INFINITY);
        assert_eq!(projected.ceiling(), (100.0, Limit::MessageRate));
        // READ 2, 70 bytes 0.07, client 0.15, posted and polled 0.05.
        close(projected.latency_us, 2.27);
        close(projected.in_a_loop(10, 1).0, 10.0 / 2.27);
        assert_eq!(projected.in_a_loop(1000, 1), (100.0, 10.0));
        assert_eq!(projected.in_a_loop(10, 100), (100.0, 10.0));
    }

    /// A message: WRITE of 58 bytes, READ of 8 beside it, WRITE of 100 back.
    #[test]
    fn a_message_by_hand() {
        let work = Work {
            reads: 1.0,
            read_bytes: 8.0,
            writes_in: 1.0,
            write_in_bytes: 58.0,
            writes_out: 1.0,
            write_out_bytes: 100.0,
            message_rounds: 1.0,
            server_ns: 350.0,
            client_ns: 200.0,
            ..Work::default()
        };
        let nic = nic();
        // In: 42 of the READ, 26 + 16 + 58 of the WRITE, 30 of an answer. Out: 26 + 4 + 8, 26 + 16 + 100, 30.
        assert_eq!(work.bytes_on_links(&nic), (172.0, 210.0));
        let projected = Projected::of(&work, &nic, 4.0);
        close(projected.by_message_rate, 2.0 / (0.02 + 0.01 + 0.025));
        close(projected.by_bandwidth, 20_000.0 / 210.0);
        close(projected.by_server_cpu, 10.0);
        assert_eq!(projected.ceiling().1, Limit::ServerCpu);
        // Two WRITEs 2, their bytes 0.158, the shard 0.4, the client 0.2 and its two verbs 0.1.
        close(projected.latency_us, 2.858);
    }

    /// Ten READs of 2000 bytes, which are two packets each, posted at once.
    #[test]
    fn reads_at_once_wait_once() {
        let work = Work { reads: 10.0, read_bytes: 20_000.0, read_rounds: 1.0, ..Work::default() };
        let nic = nic();
        assert_eq!(work.bytes_on_links(&nic).1, 10.0 * (2.0 * 26.0 + 4.0 + 2000.0));
        let projected = Projected::of(&work, &nic, 1.0);
        assert_eq!(projected.ceiling().1, Limit::Bandwidth);
        // READ 2, the first one's bytes 2, nine more by the link 0.2 and as they are begun 0.04, ten verbs of
        // 0.05.
        close(projected.latency_us, 2.0 + 2.0 + 9.0 * 0.24 + 0.5);
        // The same told as what each of them costs.
        let each = Projected::of_batch(&work.times(0.1), 10, &nic, 1.0);
        close(each.latency_us, projected.latency_us);
        close(each.by_bandwidth, 10.0 * projected.by_bandwidth);
    }

    #[test]
    fn a_mix_is_between() {
        let one = Work { reads: 1.0, read_bytes: 64.0, ..Work::default() };
        let other = Work { writes_in: 2.0, server_ns: 400.0, ..Work::default() };
        let mixed = one.mixed(0.25, other);
        assert_eq!(
            (mixed.reads, mixed.read_bytes, mixed.writes_in, mixed.server_ns),
            (0.25, 16.0, 1.5, 300.0)
        );
    }
}
