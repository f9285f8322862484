//! Stations in a circle, each a thread with a mailbox in memory that all share: messages go on to the next
//! station, and what was taken is reported to the previous one.
//!
//! ```text
//! caller -> dispatcher -> shard -> caller
//! ```

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use kelix_image::Span;
use kelix_wire::{FrameBuffer, MAILBOX_BYTES, RingReader, RingShape, RingWriter, mailbox_word};

use super::caller::Caller;
use super::end::{End, PEER, Way, place_words};
use super::server::{make_shard, serve};
use kelix_report::cores::unpin;

/// Wakes a station's thread.
#[derive(Default)]
struct Bell {
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Bell {
    fn ring(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// What all stations of a circle share.
struct Circle {
    mailboxes: Vec<Span>,
    bells: Vec<Bell>,
    ended: AtomicBool,
}

/// The way from a station to its neighbours.
pub(crate) struct Station {
    circle: Arc<Circle>,
    number: usize,
}

impl Station {
    fn neighbour(&self, distance: usize) -> usize {
        (self.number + distance) % self.circle.bells.len()
    }
}

impl Way for Station {
    fn write(&mut self, first: usize, words: &[u64]) {
        let distance = if first == mailbox_word::CONSUMED { self.circle.bells.len() - 1 } else { 1 };
        place_words(&self.circle.mailboxes[self.neighbour(distance)], first, words);
    }

    fn wake(&mut self) {
        let bell = &self.circle.bells[self.neighbour(1)];
        // SYNC: what was written is seen by who announces its sleep after this look, and the announcement by
        // this look if it came before. Pairs with the fence in `announce_sleep`.
        fence(Ordering::SeqCst);
        if bell.asleep.load(Ordering::Relaxed) {
            bell.ring();
        }
    }

    fn announce_sleep(&mut self) {
        let bell = &self.circle.bells[self.number];
        bell.thread.get_or_init(std::thread::current);
        bell.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn sleep(&mut self, timeout_ns: Option<u64>) {
        match timeout_ns {
            Some(0) => {}
            Some(time) => std::thread::park_timeout(Duration::from_nanos(time)),
            None => std::thread::park(),
        }
        self.circle.bells[self.number].asleep.store(false, Ordering::Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.circle.ended.load(Ordering::Relaxed)
    }

    fn end(&mut self) {
        self.circle.ended.store(true, Ordering::SeqCst);
        self.circle.bells.iter().for_each(Bell::ring);
    }
}

/// The ends of a circle of so many stations, with a core for each or not.
fn circle<const N: usize>(have_cores: bool) -> [End<Station>; N] {
    let circle = Arc::new(Circle {
        mailboxes: (0..N).map(|_| Span::private(MAILBOX_BYTES)).collect(),
        bells: (0..N).map(|_| Bell::default()).collect(),
        ended: AtomicBool::new(false),
    });
    std::array::from_fn(|number| {
        let inbox = circle.mailboxes[number].clone();
        End::new(inbox, Station { circle: circle.clone(), number }, have_cores)
    })
}

/// The dispatcher: takes requests out of its mailbox and hands them on.
fn dispatch(mut end: End<Station>) {
    let (mut reader, mut writer) =
        (RingReader::new(RingShape::of_messages(true)), RingWriter::new(RingShape::of_messages(true)));
    let (mut payload, mut frame) = (Vec::new(), FrameBuffer::default());
    while !end.way.has_ended() {
        let mut handed = 0;
        while reader.pop(&mut end, PEER, &mut payload).expect("a ring of the caller's") {
            frame.clear();
            frame.reserve(payload.len()).copy_from_slice(&payload);
            // A caller has far fewer requests under way than the ring has room for.
            assert!(writer.push(&mut end, PEER, &mut frame).expect("a ring of the shard's"));
            handed += 1;
        }
        if handed > 0 {
            end.way.wake();
        } else {
            end.wait(None, |end| reader.has_news(end, PEER));
        }
    }
}

/// A shard of so much memory whose requests another thread takes in and hands to it, as in HydraDB's figure 5
/// (a), and who asks it. The system places both on the machine's cores, of which there are so many.
pub(crate) fn handed_over(memory_bytes: u64, cores: usize) -> Result<Caller<Station>, String> {
    let shard = make_shard(memory_bytes)?;
    let [caller, dispatcher, worker] = circle(cores >= 3);
    let anywhere = |run: Box<dyn FnOnce() + Send>| {
        std::thread::spawn(move || {
            unpin();
            run();
        })
    };
    let threads =
        vec![anywhere(Box::new(|| dispatch(dispatcher))), anywhere(Box::new(|| serve(shard, worker)))];
    Ok(Caller::new(caller, threads))
}
