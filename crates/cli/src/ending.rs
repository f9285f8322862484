//! Being told to end: SIGINT and SIGTERM.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::Failure;

/// How long whoever was told may take. What waits for another host may take longer, and nothing is lost when
/// it is left so.
const PATIENCE: Duration = Duration::from_secs(2);

/// Watches for the signals that end the program in good order, of which a second one ends it at once, and for
/// others.
pub(crate) fn watch_signals(operation: &str, others: &[c_int]) -> Result<Signals, Failure> {
    let cannot = |source: std::io::Error| Failure::io(operation, "cannot watch for signals", &source);
    let stopping = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // The order makes the first signal set the flag and the second one end the process.
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, stopping.clone())
            .and_then(|_| signal_hook::flag::register(signal, stopping.clone()))
            .map_err(cannot)?;
    }
    Signals::new([SIGTERM, SIGINT].iter().chain(others)).map_err(cannot)
}

/// Whether the program has been told to end. If it does not within [`PATIENCE`], it is ended, as one that
/// did.
pub(crate) struct Ending {
    told: Arc<AtomicBool>,
    news: Receiver<()>,
}

impl Ending {
    /// Watches from here on.
    pub fn watch(operation: &str) -> Result<Ending, Failure> {
        let mut signals = watch_signals(operation, &[])?;
        let told = Arc::new(AtomicBool::new(false));
        let (tell, news) = channel();
        let flag = told.clone();
        let tells = move || {
            if signals.forever().next().is_some() {
                flag.store(true, Ordering::Relaxed);
                let _ = tell.send(());
                std::thread::sleep(PATIENCE);
                std::process::exit(0);
            }
        };
        let thread = std::thread::Builder::new().name("kelix-signals".into()).spawn(tells);
        let cannot =
            |source| Failure::io(operation, "cannot start a thread that watches for signals", &source);
        thread.map_err(cannot)?;
        Ok(Ending { told, news })
    }

    /// Whether it has.
    pub fn is_told(&self) -> bool {
        self.told.load(Ordering::Relaxed)
    }

    /// Waits for so long, or until told; whether it has been.
    pub fn wait(&self, time: Duration) -> bool {
        let _ = self.news.recv_timeout(time);
        self.is_told()
    }
}
