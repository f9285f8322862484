//! What a copy of a primary's memory costs those who put meanwhile, how long it takes, and how long a mirror
//! that was away takes to have what its primary has.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kelix_report::interleave::{self, compared as between};
use kelix_report::progress;
use kelix_report::report::{Row, compared, figure, told};
use rustix::process::{Pid, Signal, kill_process};

use super::data::{Kind, Marker, Reader, Stream, Tally, Writer};
use super::hosts::{Host, Hosts};
use super::{PATIENCE, Size, text};
use crate::times::Times;

/// Records of 992 bytes: with their keys and heads 1 GB.
const RECORDS: u64 = 1_000_000;
const COPIES: usize = 31;
/// Memory for a record, and at least.
const RECORD_BYTES: u64 = 3 << 10;
const MEMORY_BYTES_MIN: u64 = 512 << 20;
/// Copies that are measured, and times that a mirror is away.
const ROUNDS: (usize, usize) = (5, 2);
const ABSENCES: (usize, usize) = (3, 1);
/// The least time of puts beside nothing, so that one in a thousand is many.
const LEAST: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(20));
const SLOW: f64 = 0.999;
/// Puts a second beside a copy, how much earlier than due they are before nothing is put for a while, and how
/// much later before that is given up. As many as one client can put are more than a mirror can take in
/// beside a copy.
const BESIDE: u32 = 50_000;
const NAP: Duration = Duration::from_millis(1);
const LATE: Duration = Duration::from_millis(20);
/// How long a mirror is away, and how many puts a second it misses.
const AWAY: (Duration, Duration) = (Duration::from_secs(10), Duration::from_millis(300));
const MISSED: u64 = 50_000;
/// Records that are read of a mirror that was copied just now.
const READ_BACK: u64 = 50_000;

/// Puts, one at a time and so many a second, until some work in another thread is done. How long they took,
/// and the work.
fn beside<T: Send>(
    writer: &mut Writer,
    work: impl FnOnce() -> Result<(T, Duration), String> + Send,
) -> Result<(Times, T, Duration), String> {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let working = scope.spawn(|| {
            let done = work();
            // SYNC: only a flag; the thread is joined.
            is_done.store(true, Ordering::Relaxed);
            done
        });
        let mut times = Times::new();
        let mut put = || -> Result<(), String> {
            let mut due = Instant::now();
            while !is_done.load(Ordering::Relaxed) {
                let began = Instant::now();
                writer.put(Kind::Records, 1)?;
                let ended = Instant::now();
                times.note((ended - began).as_nanos() as u64);
                due += Duration::from_secs(1) / BESIDE;
                match due.checked_duration_since(ended) {
                    Some(left) if left > NAP => std::thread::sleep(left),
                    None if ended - due > LATE => due = ended,
                    _ => {}
                }
            }
            Ok(())
        };
        let put = put();
        let done = working.join().expect("it does not panic");
        put?;
        let (done, time) = done?;
        Ok((times, done, time))
    })
}

/// Sends so many bytes to somebody else over loopback, who has never had memory for them.
fn plain_copy(source: &[u8]) -> Result<Duration, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(text)?;
    let address = listener.local_addr().map_err(text)?;
    let began = Instant::now();
    let last = std::thread::scope(|scope| {
        let send = scope.spawn(move || TcpStream::connect(address)?.write_all(source));
        let received = listener.accept().and_then(|(mut stream, _)| {
            let mut into = vec![0; source.len()];
            stream.read_exact(&mut into)?;
            Ok(into.last().copied())
        });
        send.join().expect("it does not panic").and(received)
    });
    let last = last.map_err(text)?;
    let time = began.elapsed();
    if last == source.last().copied() { Ok(time) } else { Err("a plain copy is none".into()) }
}

/// What the rounds have found.
#[derive(Default)]
struct Rounds {
    /// The 999th of a thousand puts beside a copy, beside nothing, and beside a plain copy.
    slow: [Vec<f64>; 3],
    /// Milliseconds of a copy, and of a plain one.
    times: [Vec<f64>; 2],
    bytes: u64,
    puts: [u64; 3],
    longest_ns: [u64; 3],
}

impl Rounds {
    fn note(&mut self, of: usize, times: &Times) {
        self.slow[of].push(times.quantile_ns(SLOW) as f64);
        self.puts[of] += times.count();
        self.longest_ns[of] = self.longest_ns[of].max(times.longest_ns());
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Looks at records of a mirror that was copied just now, some or all.
fn look(mirror: &Host, writer: &Writer, is_last: bool, tally: &mut Tally) -> Result<(), String> {
    let mut reader = Reader::open(mirror, writer, 12)?;
    if is_last {
        reader.read_all(Kind::Records, writer)?;
    } else {
        let mut read = 0;
        while read < READ_BACK.min(writer.records) {
            read += reader.read(Kind::Records)?;
        }
    }
    tally.add(reader.tally);
    Ok(())
}

/// The rows about a copy.
fn attach(hosts: &Hosts, writer: &mut Writer, size: Size, tally: &mut Tally) -> Result<Vec<Row>, String> {
    let rounds = size.choose(ROUNDS.0, ROUNDS.1);
    let mut found = Rounds::default();
    let (mut source, mut marker) = (Vec::new(), Marker::open(hosts)?);
    let let_go = hosts.let_go();
    // The first round does not count.
    for round in 0..=rounds {
        progress::show(&format!("attach {round} of {rounds}"));
        let (puts, mirror, time) = beside(writer, || {
            let began = Instant::now();
            let mirror = hosts.mirror()?;
            Ok((mirror, began.elapsed()))
        })?;
        let bytes = hosts.primary.copied()?.first().copied().unwrap_or(0);
        Reader::open(&mirror, writer, 11)?.wait_for(&mut marker)?;
        look(&mirror, writer, round == rounds, tally)?;
        drop(mirror);
        hosts.wait_until_alone()?;
        let pause = time.max(size.choose(LEAST.0, LEAST.1));
        let (puts_alone, ..) = beside(writer, || {
            std::thread::sleep(pause);
            Ok(((), pause))
        })?;
        source.resize(bytes as usize, 7);
        let (puts_plain, _, plain) = beside(writer, || Ok(((), plain_copy(&source)?)))?;
        if round > 0 {
            [&puts, &puts_alone, &puts_plain].into_iter().enumerate().for_each(|(of, it)| found.note(of, it));
            [time, plain].into_iter().enumerate().for_each(|(of, it)| found.times[of].push(ms(it)));
            found.bytes = bytes;
        }
    }
    let Rounds { slow, times, bytes, puts, longest_ns } = &found;
    let megabytes = figure(*bytes as f64 / 1e6);
    let plain = between(&slow[2], &slow[1]);
    let note = format!(
        "{} puts, {BESIDE} a second, beside copies of {megabytes} MB against {}; the longest {} us against \
         {} us; beside a plain copy {} ns; ",
        puts[0],
        puts[1],
        longest_ns[0] / 1000,
        longest_ns[1] / 1000,
        figure(plain.ours_ns),
    );
    let name = "p99.9 of puts, one at a time, while a mirror is copied / while none is";
    let of_puts = compared("attach_put", name, "ns", 4.0, between(&slow[0], &slow[1]), &note);
    let a_second = |times: &[f64]| figure(*bytes as f64 / 1e3 / interleave::median(times));
    let note = format!(
        "{megabytes} MB, {} MB a second against {}; {} copies failed and were begun again; ",
        a_second(&times[0]),
        a_second(&times[1]),
        hosts.let_go() - let_go
    );
    let name = "a copy beside puts, until the mirror serves / a plain one as large over loopback beside puts";
    let of_time = compared("attach_time", name, "ms", 2.0, between(&times[0], &times[1]), &note);
    Ok(vec![of_puts, of_time])
}

/// The row about a mirror that was away.
fn catch_up(hosts: &mut Hosts, mut writer: Writer, size: Size, tally: &mut Tally) -> Result<Row, String> {
    let (rounds, away) = (size.choose(ABSENCES.0, ABSENCES.1), size.choose(AWAY.0, AWAY.1));
    hosts.attach()?;
    let (mirror, mut marker) = (&hosts.mirrors[0], Marker::open(hosts)?);
    let mut reader = Reader::open(mirror, &writer, 13)?;
    let pid = i32::try_from(mirror.pid()).ok().and_then(Pid::from_raw).ok_or("no process")?;
    let signal = |signal| kill_process(pid, signal).map_err(text);
    let (mut times, mut rates, mut anew, let_go) = (Vec::new(), Vec::new(), 0, hosts.let_go());
    for round in 0..rounds {
        progress::show(&format!("catch_up {} of {rounds}", round + 1));
        let term = mirror.term()?;
        let stream = Stream::start(writer, Kind::Records, MISSED);
        signal(Signal::STOP)?;
        std::thread::sleep(away);
        signal(Signal::CONT)?;
        let began = Instant::now();
        let number = marker.put()?;
        let mut is_seen = false;
        while !is_seen && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
            is_seen = reader.sees(number)?;
        }
        let time = began.elapsed();
        let rate;
        (writer, rate) = stream.end()?;
        if !is_seen {
            return Err("a mirror that was away does not come to what its primary has".into());
        }
        times.push(time.as_secs_f64());
        rates.push(rate);
        reader.wait_for(&mut marker)?;
        reader.read_all(Kind::Records, &writer)?;
        anew += u64::from(mirror.term()? != term);
    }
    tally.add(reader.tally);
    let note = format!(
        "away {} s beside {} puts a second of 992 bytes to a primary with a log, {rounds} times, after {anew} \
         of which it copied all anew, and else was told by the log; let go {} times in all; {} to {} s",
        away.as_secs_f64(),
        figure(interleave::median(&rates)),
        hosts.let_go() - let_go,
        figure(times.iter().copied().fold(f64::INFINITY, f64::min)),
        figure(times.iter().copied().fold(0.0, f64::max)),
    );
    let name = "from the moment that a mirror goes on, which was stopped, until it shows what was put then";
    Ok(Row { note, ..told("catch_up", name, "s", interleave::median(&times), Some(2.0)) })
}

impl Size {
    /// Records of the memory that is copied.
    fn records_copied(self) -> u64 {
        self.choose(RECORDS, self.records)
    }
}

/// The rows.
pub(super) fn rows(size: Size, tally: &mut Tally) -> Result<Vec<Row>, String> {
    progress::show("attach");
    let records = size.records_copied();
    let hosts = Hosts::start("copied", (records * RECORD_BYTES).max(MEMORY_BYTES_MIN))?;
    let mut writer = Writer::open(&hosts, records, COPIES)?;
    writer.load(Kind::Records)?;
    let mut rows = attach(&hosts, &mut writer, size, tally)?;
    drop((writer, hosts));
    let mut hosts = Hosts::start_logged("away", (records * RECORD_BYTES).max(MEMORY_BYTES_MIN))?;
    let mut writer = Writer::open(&hosts, records, COPIES)?;
    writer.load(Kind::Records)?;
    rows.push(catch_up(&mut hosts, writer, size, tally)?);
    Ok(rows)
}
