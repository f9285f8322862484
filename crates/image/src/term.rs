//! The term in force, by which everybody knows which server's memory and answers count.

use crate::clock::is_to_come;
use crate::map::SharedWord;

/// The term in force, and until when.
///
/// A server's memory and answers count while the term is the server's. Whoever takes over in the same place
/// raises the word. Whoever takes over elsewhere cannot, so there a server keeps a *lease*: a moment of the
/// host's clock behind which no term is in force (Gray and Cheriton, "Leases", SOSP 1989). The server moves the
/// moment on while it knows that nobody has taken over. Readers look at the clock themselves: a server that
/// stands still could not tell them.
#[derive(Clone)]
pub struct LeasedTerm {
    term: SharedWord,
    /// The moment in nanoseconds; 0 in the word, or no word: the term lasts.
    until: Option<SharedWord>,
}

impl From<SharedWord> for LeasedTerm {
    /// A term that lasts.
    fn from(term: SharedWord) -> LeasedTerm {
        LeasedTerm { term, until: None }
    }
}

impl LeasedTerm {
    /// The term of nobody.
    pub const NONE: u64 = 0;
    /// A moment that has passed.
    pub const OVER: u64 = 1;

    /// A term that lasts until the moment in another word.
    pub fn new(term: SharedWord, until: SharedWord) -> LeasedTerm {
        LeasedTerm { term, until: Some(until) }
    }

    /// The term in force, or [`LeasedTerm::NONE`].
    ///
    /// SYNC: what was loaded before stays before the clock's reading, by the fence of whoever asks: a word that
    /// was stored after the lease was over is not believed. A server without a lease that takes over raises the
    /// term, and then says that it lasts: so whoever finds that loads the raised term behind it.
    #[inline(always)]
    pub fn load(&self) -> u64 {
        let until_ns = self.until.as_ref().map_or(0, |until| until.words().load_acquire(0));
        let term = self.term.words().load_acquire(0);
        if until_ns == 0 || is_to_come(until_ns) { term } else { LeasedTerm::NONE }
    }

    /// Whether the term is in force by a lease.
    pub fn is_leased(&self) -> bool {
        self.until.as_ref().is_some_and(|until| until.words().load_acquire(0) != 0)
    }

    /// The term, whether its lease is over or not: which server's memory is there.
    pub fn term(&self) -> u64 {
        self.term.words().load_acquire(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Span;
    use crate::clock::host_clock_ns;

    #[test]
    fn a_term_is_in_force_until_its_lease_is_over() {
        let page = Span::private(64);
        page.words().publish(0, 7);
        let (lasts, leased) = (LeasedTerm::from(page.word(0)), LeasedTerm::new(page.word(0), page.word(1)));
        assert_eq!((lasts.load(), leased.load()), (7, 7), "there is no lease");
        page.words().publish(1, host_clock_ns(false) + 3_600_000_000_000);
        assert_eq!(leased.load(), 7);
        for until_ns in [LeasedTerm::OVER, host_clock_ns(false)] {
            page.words().publish(1, until_ns);
            assert_eq!((lasts.load(), leased.load(), leased.term()), (7, LeasedTerm::NONE, 7));
        }
    }
}
