//! For how long a thread that waits looks without giving its core away.

use std::time::Duration;

/// The least.
const LEAST: Duration = Duration::from_micros(1);

/// Where more threads want cores than there are, who is waited for may have none, and gets one the later the longer
/// others look in vain. So who looked in vain looks for half as long the next time, and who did not for twice as long
/// again.
#[derive(Clone, Copy, Debug)]
pub struct Spin {
    time: Duration,
    most: Duration,
}

impl Spin {
    /// So long at first, and at most.
    pub const fn new(most: Duration) -> Spin {
        Spin { time: most, most }
    }

    /// For how long to look.
    #[inline]
    pub fn time(&self) -> Duration {
        self.time
    }

    /// Notes whether nothing came while it was looked.
    pub fn note(&mut self, in_vain: bool) {
        let next = if in_vain { self.time / 2 } else { self.time * 2 };
        self.time = next.clamp(LEAST, self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_in_vain_soon_hardly_looks_and_who_does_not_looks_again() {
        let most = Duration::from_micros(40);
        let mut spin = Spin::new(most);
        assert_eq!(spin.time(), most);
        (0..6).for_each(|_| spin.note(true));
        assert_eq!(spin.time(), LEAST);
        spin.note(false);
        assert_eq!(spin.time(), 2 * LEAST);
        (0..6).for_each(|_| spin.note(false));
        assert_eq!(spin.time(), most);
    }
}
