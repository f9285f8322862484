//! A sub-model in a reply: what a client needs to go on by itself, whose copy was old.
//!
//! ```text
//! word 0  guardian of the top model
//!      1  number of the sub-model
//!      2  its entry, 4 words
//!      6  its translation table
//! ```

/// A sub-model as it came in a reply. What it says is a guess, and is checked as such when it is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModelWords<'a> {
    /// Guardian of the top model that it is of.
    pub guardian: u64,
    /// Which sub-model.
    pub index: u64,
    /// Its entry in the top model.
    pub entry: [u64; 4],
    /// Its translation table.
    pub table: &'a [u64],
}

impl<'a> ModelWords<'a> {
    /// Reads one. `None`: it is too short or too long to be one.
    pub fn new(words: &'a [u64]) -> Option<ModelWords<'a>> {
        let (&[guardian, index, e0, e1, e2, e3], table) = words.split_first_chunk()?;
        let leaves = (e1 >> 40 & 255) as usize + 1;
        // Of strings there are bytes behind the entries.
        let whole = (2 + leaves..=2 + 256).contains(&table.len()) && index < 1 << 26;
        whole.then_some(ModelWords { guardian, index, entry: [e0, e1, e2, e3], table })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sub_model_is_as_long_as_it_says() {
        let words = [1 << 63, 5, 100, 1 << 40 | 7, 9, 0, 1 << 63, 100, 11, 12];
        let model = ModelWords::new(&words).unwrap();
        assert_eq!((model.index, model.entry[0], model.table), (5, 100, &words[6..]));
        assert_eq!(ModelWords::new(&words[..9]), None);
        assert_eq!(ModelWords::new(&words[..5]), None);
    }
}
