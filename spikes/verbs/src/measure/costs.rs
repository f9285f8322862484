//! What things cost on the software device, and what it allows.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use kelix_fabric::shm::{Memfd, map_file};
use kelix_image::Span;
use kelix_verbs_spike::ffi::constant::ACCESS_REMOTE_READ;
use kelix_verbs_spike::verbs::{Completions, Device, Pair, Region, Work, readable};

use super::rig::{End, median_us, timed};

/// One side wakes the other, which polls or sleeps; and what arming tells.
pub fn sleep() {
    let (this, other) = End::connected();
    let memory = other.region(8);
    (0..200).for_each(|id| other.pair.post_receive(id).expect("a receive"));
    let wake = (Work::Wake, Default::default(), memory.remote());
    let taken = || {
        let mut some = [Default::default(); 32];
        other.receives.poll(&mut some).len()
    };

    this.done(&[wake]);
    other.receives.arm();
    println!("sleep: a completion before arming makes an event: {}", readable(other.receives.fd(), 50));
    this.done(&[wake]);
    println!("sleep: one after arming makes an event: {}", readable(other.receives.fd(), 50));
    this.done(&[wake, wake]);
    let events = std::iter::from_fn(|| other.receives.news().then_some(())).count();
    println!("sleep: three after arming once make {events} event(s) and {} completions", taken() - 1);

    for sleeps in [false, true] {
        let mut times = Vec::new();
        std::thread::scope(|scope| {
            for round in 0..60 {
                if sleeps {
                    other.receives.arm();
                }
                let sender = scope.spawn(|| {
                    if sleeps {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    let begin = Instant::now();
                    this.done(&[wake]);
                    begin
                });
                let end = if sleeps {
                    assert!(readable(other.receives.fd(), 5000), "round {round}");
                    let end = Instant::now();
                    while other.receives.news() {}
                    taken();
                    end
                } else {
                    while taken() == 0 {}
                    Instant::now()
                };
                other.pair.post_receive(0).expect("a receive");
                times.push(end.saturating_duration_since(sender.join().expect("a moment")));
            }
        });
        let how = if sleeps { "slept for" } else { "polled" };
        println!("sleep: from posting to knowing, {how}: {:.0} us (emulated)", median_us(&mut times));
    }
    println!("sleep: to arm costs {:.2} us (emulated)", timed(1000, || other.receives.arm()));
}

/// Check (c) as a READ of the authority word: behind the other READ's completion, and behind it in one doorbell.
pub fn authority() {
    let (this, other) = End::connected();
    let (memory, into) = (other.region(16), this.region(16));
    let item = (Work::Read, into.part(0, 8), memory.remote());
    let authority = (Work::Read, into.part(8, 1), memory.remote().word(8));
    let alone = timed(3000, || this.done(&[item]));
    let after = timed(3000, || {
        this.done(&[item]);
        this.done(&[authority]);
    });
    let behind = timed(3000, || this.done(&[item, authority]));
    println!(
        "authority: a READ of 64 B {alone:.0} us; with the authority READ after it {after:.0} us, behind it with \
         one doorbell {behind:.0} us (emulated)"
    );
}

/// Registration by size, and of the memory that a server really has.
pub fn registration() {
    let device = Device::open().expect("a verbs device");
    for megabytes in [1u64, 4, 16, 64, 256] {
        let (_memfd, span) = Memfd::create("registered", megabytes << 20, true).expect("memory");
        let (mut first, mut again, mut back) = (Duration::ZERO, Vec::new(), Vec::new());
        for round in 0..6 {
            let begin = Instant::now();
            let region =
                Region::register(&device, span.clone(), ACCESS_REMOTE_READ).expect("memory to register");
            let registered = begin.elapsed();
            if round == 0 {
                first = registered
            } else {
                again.push(registered)
            }
            let begin = Instant::now();
            drop(region);
            back.push(begin.elapsed());
        }
        println!(
            "registration: {megabytes:3} MiB, us/MiB: untouched {:.0}, touched {:.0}, taken back {:.0} (emulated)",
            first.as_micros() as f64 / megabytes as f64,
            median_us(&mut again) / megabytes as f64,
            median_us(&mut back) / megabytes as f64
        );
    }
    let (memfd, span) = Memfd::create("sparse", 64 << 20, true).expect("memory");
    let resident = || rustix::fs::fstat(memfd.fd()).expect("a status").st_blocks / 2048;
    let before = resident();
    let _region = Region::register(&device, span, ACCESS_REMOTE_READ).expect("memory to register");
    println!(
        "registration: an untouched memfd of 64 MiB: {before} MiB resident before, {} after",
        resident()
    );

    let program = std::env::current_exe().expect("the name of this program");
    let script = format!("ulimit -l 8192; exec {} {UNPRIVILEGED}", program.display());
    let mut child = Command::new("sh").args(["-c", &script]).uid(1000).gid(1000).spawn().expect("a process");
    child.wait().expect("its end");

    let (memfd, sealed) = Memfd::create("sealed", 1 << 20, true).expect("memory");
    let file =
        File::options().read(true).write(true).create(true).truncate(true).open("/tmp/page").expect("a file");
    file.set_len(4096).expect("a page");
    let tell = |what: &str, span: Span| {
        let result = Region::register(&device, span, ACCESS_REMOTE_READ);
        println!("registration: {what}: {}", result.err().map_or("works".into(), |error| error.to_string()));
    };
    tell("a sealed memfd, mapped writable before the seal", sealed);
    tell("a sealed memfd, mapped read-only", memfd.map(false).expect("a mapping"));
    tell("a page of a file, mapped writable", map_file(&file, 4096, true).expect("a mapping"));
    tell("a page of a file, mapped read-only", map_file(&file, 4096, false).expect("a mapping"));
}

/// First argument of a process without privileges that may lock 8 MiB.
pub const UNPRIVILEGED: &str = "unprivileged";

/// How much it may register.
pub fn unprivileged() {
    let device = Device::open().expect("a verbs device");
    for kilobytes in [4096, 8184, 8192, 16384] {
        let result = Region::register(&device, Span::private(kilobytes << 10), 1);
        let result = result.err().map_or("works".into(), |error| error.to_string());
        println!("registration: {kilobytes} KiB, unprivileged, `ulimit -l` of 8192 KiB: {result}");
    }
}

/// READs end in registered memory of the fabric's; `poll_read` wants them in the caller's.
pub fn landing() {
    let (this, other) = End::connected();
    for count in [8, 512, 131_072] {
        let (memory, into) = (other.region(count), this.region(count));
        let read = timed(100, || this.done(&[(Work::Read, into.part(0, count), memory.remote())]));
        let mut words = vec![0; count];
        let copy = timed(1000, || into.words().copy_out(0, &mut words));
        let register =
            timed(100, || drop(Region::register(&this.device, Span::private(count as u64 * 8), 1)));
        println!(
            "landing: {} B: READ {read:.1} us, copy {copy:.2} us, to register instead {register:.0} us (emulated)",
            count * 8
        );
    }
}

pub fn limits() {
    let device = Device::open().expect("a verbs device");
    let (limits, port) = (device.limits().expect("limits"), device.port().expect("a port"));
    println!(
        "limits: region {} B, message {} B, queue pairs {}, requests of one {}, entries {} (READ {}), completion \
         queues {} of {}, regions {}, READs under way at the responder {} and initiator {}, mtu code {}",
        limits.max_mr_size,
        port.max_msg_sz,
        limits.max_qp,
        limits.max_qp_wr,
        limits.max_sge,
        limits.max_sge_rd,
        limits.max_cq,
        limits.max_cqe,
        limits.max_mr,
        limits.max_qp_rd_atom,
        limits.max_qp_init_rd_atom,
        port.active_mtu
    );
    let completions = Completions::new(&device, 16).expect("a completion queue");
    let pair = |inline| Pair::new(&completions, &completions, (16, 16), inline);
    let most = (0..=4096).filter(|inline| pair(*inline).is_ok()).max().expect("a queue pair");
    println!(
        "limits: inline: {most} B asked for are granted, more are refused ({}); asked for 1, granted {}",
        pair(most + 1).err().expect("too much").kind(),
        pair(1).expect("a queue pair").inline_bytes
    );
    let (this, other) = End::connected();
    for megabytes in [1usize, 16, 64] {
        let count = megabytes << 17;
        let (memory, into) = (other.region(count), this.region(count));
        memory.words().store(count - 1, 7);
        let begin = Instant::now();
        this.done(&[(Work::Read, into.part(0, count), memory.remote())]);
        let last = into.words().load(count - 1);
        println!(
            "limits: one READ of {megabytes} MiB: done in {:?} (emulated), last word {last}",
            begin.elapsed()
        );
    }
}
