//! What goes wrong, and what the other side learns of it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kelix_verbs_spike::ffi::Gid;
use kelix_verbs_spike::verbs::{Address, PATIENCE, Patience, Region, Remote, Work};
use rustix::process::{Pid, Signal, kill_process};

use super::rig::End;

const LONG: Duration = Duration::from_secs(10);

/// READs before, across and after the end of a region, one behind the other, and what else the two ends notice.
pub fn outside() {
    for (what, shift, wrong_key) in
        [("reaches out", -4i64, 0), ("lies outside", 64, 0), ("has a wrong key", -64, 1)]
    {
        let (this, other) = End::connected();
        let (third, fourth) = End::connected();
        let (memory, into) = (other.region(512), this.region(64));
        let (untouched, elsewhere) = (fourth.region(8), third.region(8));
        other.pair.post_receive(0).expect("a receive");
        let place = memory.remote().word((512 + shift) as usize);
        let place = Remote { rkey: place.rkey + wrong_key, ..place };
        let inside = (Work::Read, into.part(0, 8), memory.remote());
        this.post(&[inside, (Work::Read, into.part(8, 8), place), inside, inside]);
        let completions = this.completions(4, LONG);
        println!("outside: a READ that {what}, the second of four: {}", this.names(&completions).join("; "));
        let events = |end: &End| end.device.next_event(100).unwrap_or("nothing".into());
        let receive = other.receives.poll(&mut [Default::default(); 32]).first().map(|one| one.status);
        println!(
            "outside: asynchronous events: reader {}, owner {}; the owner's receive: {}",
            events(&this),
            events(&other),
            receive.map_or("still posted".into(), |status| other.device.status_name(status))
        );
        third.done(&[(Work::Read, elsewhere.part(0, 8), untouched.remote())]);
    }
    println!("outside: another queue pair goes on");
}

/// READs of a region, four at a time, while its owner takes the registration back.
pub fn deregistered() {
    for bytes in [64, 4096, 65536] {
        let (this, other) = End::connected();
        let (memory, into) = (other.region(bytes / 8), this.region(4 * bytes / 8));
        let (rkey, span) = (memory.remote(), bytes / 8);
        std::thread::scope(|scope| {
            let begin = Instant::now();
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                let begin = Instant::now();
                drop(memory);
                println!("deregistered: taking it back under READs lasts {:?}", begin.elapsed());
            });
            let mut reads = 0;
            let completions = loop {
                let work: Vec<_> = (0..4).map(|at| (Work::Read, into.part(at * span, span), rkey)).collect();
                this.post(&work);
                let completions = this.completions(4, LONG);
                reads += completions.iter().filter(|(_, status)| *status == 0).count();
                if completions.len() < 4 || completions.iter().any(|(_, status)| *status != 0) {
                    break completions;
                }
                if begin.elapsed() > LONG {
                    break Vec::new();
                }
            };
            println!(
                "deregistered: READs of {bytes} B: {reads} done, then {}",
                this.names(&completions).join("; ")
            );
        });
    }
}

/// First argument of a process that is to be killed.
pub const VICTIM: &str = "victim";

/// Registers memory, connects to whoever started it, and waits for its end.
pub fn victim() {
    let end = End::new();
    let memory = end.region(1 << 16);
    let (Address { gid, qp_num }, Remote { address, rkey }) = (end.pair.address(), memory.remote());
    println!("{} {qp_num} {address} {rkey}", u128::from_be_bytes(gid.0));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("an address");
    let mut numbers = line.split_whitespace().map(|number| number.parse::<u128>().expect("a number"));
    let mut next = || numbers.next().expect("a number");
    let address = Address { gid: Gid(next().to_be_bytes()), qp_num: next() as u32 };
    end.pair.connect(address, PATIENCE).expect("a connection");
    println!("ready");
    loop {
        std::thread::park();
    }
}

struct Victim {
    process: Child,
    this: End,
    memory: Remote,
    into: Region,
}

impl Victim {
    fn start(patience: Patience) -> Victim {
        let program = std::env::current_exe().expect("the name of this program");
        let mut process = Command::new(program)
            .arg(VICTIM)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let mut line = || lines.next().expect("a line").expect("a line");
        let numbers: Vec<u128> =
            line().split_whitespace().map(|number| number.parse().expect("a number")).collect();
        let this = End::new();
        let address = Address { gid: Gid(numbers[0].to_be_bytes()), qp_num: numbers[1] as u32 };
        let own = this.pair.address();
        this.pair.connect(address, patience).expect("a connection");
        let mut stdin = process.stdin.take().expect("its input");
        writeln!(stdin, "{} {}", u128::from_be_bytes(own.gid.0), own.qp_num).expect("a line written");
        assert_eq!(line(), "ready");
        let into = this.region(64);
        let memory = Remote { address: numbers[2] as u64, rkey: numbers[3] as u32 };
        let victim = Victim { process, this, memory, into };
        victim.this.done(&[victim.read()]);
        victim
    }

    fn read(&self) -> (Work, kelix_verbs_spike::ffi::Sge, Remote) {
        (Work::Read, self.into.part(0, 8), self.memory)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("a signal sent");
    }

    fn end(mut self) -> End {
        self.signal(Signal::KILL);
        self.process.wait().expect("its end");
        self.this
    }
}

pub fn killed() {
    // READs one behind the other, so that some are under way when it ends.
    let (mut outcomes, mut longest) = (BTreeMap::<String, u32>::new(), Duration::ZERO);
    for _ in 0..20 {
        let mut victim = Victim::start(PATIENCE);
        victim.signal(Signal::KILL);
        let begin = Instant::now();
        loop {
            victim.this.post(&[victim.read()]);
            let completions = victim.this.completions(1, LONG);
            let status =
                completions.first().map_or("nothing".into(), |(_, it)| victim.this.device.status_name(*it));
            if status != "success" {
                *outcomes.entry(status).or_default() += 1;
                break;
            }
        }
        longest = longest.max(begin.elapsed());
        victim.process.wait().expect("its end");
    }
    println!("killed: with READs under way, {PATIENCE:?}: {outcomes:?}, all within {longest:?}");

    for (timeout, retries) in
        [(14, 0), (14, 1), (14, 3), (14, 5), (14, 6), (14, 7), (10, 5), (12, 5), (16, 5), (18, 2)]
    {
        let mut victim = Victim::start(Patience { timeout, retries, rnr_retries: 7 });
        victim.signal(Signal::KILL);
        victim.process.wait().expect("its end");
        let begin = Instant::now();
        victim.this.post(&[victim.read(), victim.read()]);
        let completions = victim.this.completions(2, LONG);
        println!(
            "killed: timeout {timeout} ({:.1} ms a try), {retries} retries, READs after its end: {:?} after {:?}",
            4.096e-3 * f64::from(1u32 << timeout),
            victim.this.names(&completions),
            begin.elapsed()
        );
    }
    let this = Victim::start(PATIENCE).end();
    let event = this.device.next_event(3000);
    let completions = this.completions(1, Duration::from_millis(10));
    println!("killed: an idle connection: within 3 s {event:?} and {} completions", completions.len());

    let victim = Victim::start(PATIENCE);
    victim.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(50));
    let begin = Instant::now();
    (0..100).for_each(|_| victim.this.done(&[victim.read()]));
    println!("killed: 100 READs of a stopped peer are done within {:?}", begin.elapsed());
    victim.end();
}

/// A wake-up for which there is no receive, with a READ behind it on the same queue pair.
pub fn unready() {
    for rnr_retries in [0, 3, 7] {
        let (this, other) = End::pair(Patience { rnr_retries, ..PATIENCE });
        let (memory, into) = (other.region(8), this.region(8));
        let wake = (Work::Wake, Default::default(), memory.remote());
        let read = (Work::Read, into.part(0, 8), memory.remote());
        let begin = Instant::now();
        this.post(&[wake, read]);
        let completions = this.completions(2, Duration::from_millis(300));
        println!(
            "unready: {rnr_retries} retries: {} completions after {:?} {:?}",
            completions.len(),
            begin.elapsed(),
            this.names(&completions)
        );
        if completions.is_empty() {
            other.pair.post_receive(0).expect("a receive");
            let begin = Instant::now();
            let completions = this.completions(2, LONG);
            println!(
                "unready: with a receive {} completions after {:?} {:?}",
                completions.len(),
                begin.elapsed(),
                this.names(&completions)
            );
        }
    }
}
