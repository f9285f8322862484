//! Shapes of real products and reviews: of 1,547 gift cards and 2,972 reviews of 148 of them in Amazon Review
//! Data 2018 (`meta_Gift_Cards.json.gz`, `Gift_Cards_5.json.gz`), counted once. A table has the 0th, 5th,
//! 10th ... 100th percentile.

/// Percentiles of something that was counted.
pub(crate) type Shape = [u32; 21];

/// Bytes of a product's title.
pub(crate) const TITLE_BYTES: Shape =
    [7, 18, 18, 18, 21, 25, 30, 33, 35, 38, 41, 43, 46, 49, 53, 56, 60, 65, 68, 75, 233];
/// Bytes of its description. Half of them have none.
pub(crate) const DESCRIPTION_BYTES: Shape =
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 102, 138, 150, 217, 276, 303, 335, 415, 687, 1277, 3108];
/// Links to what buyers bought too. Most have none.
pub(crate) const BOUGHT: Shape = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 44, 89, 93, 98];
/// How many of these links lead to a product: few products have nearly all.
pub(crate) const BOUGHT_WITH: Shape = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11, 247];
/// Prices in cents, of the 358 products that have one.
pub(crate) const PRICE_CENTS: Shape = [
    399, 1000, 2000, 2500, 2500, 2500, 2500, 2500, 2500, 2500, 2500, 3000, 4500, 5000, 5000, 5000, 5000,
    8000, 10_000, 20_000, 125_000,
];
/// Reviews of a product, of those that have some.
pub(crate) const REVIEWS: Shape =
    [4, 5, 5, 6, 7, 8, 9, 9, 10, 11, 12, 12, 14, 18, 20, 27, 30, 37, 49, 65, 94];
/// Reviews by a user.
pub(crate) const REVIEWS_BY: Shape = [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 7, 7, 8, 9, 11, 32];
/// Bytes of a review.
pub(crate) const TEXT_BYTES: Shape =
    [0, 4, 6, 9, 10, 12, 15, 18, 21, 25, 29, 33, 37, 46, 56, 72, 91, 117, 152, 243, 2409];
/// Bytes of its summary.
pub(crate) const SUMMARY_BYTES: Shape =
    [2, 7, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 12, 15, 18, 22, 30, 47, 109];
/// How many of the reviews give one to five stars.
pub(crate) const STARS: [u32; 5] = [22, 11, 33, 154, 2752];
/// When they were written, in seconds since 1970.
pub(crate) const TIMES: (i64, i64) = (1_327_968_000, 1_534_896_000);

/// Numbers that look random and are the same in every run (splitmix64).
pub(crate) struct Numbers(pub u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// One below this one.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// One of these.
    pub fn one_of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }

    /// As many as something of this shape has: evenly between two percentiles, but between the last two
    /// steeply, since few have very much. So the mean is nearly that of the real ones, too.
    pub fn of(&mut self, shape: &Shape) -> usize {
        let at = self.below(20 << 16);
        let (part, share) = (at >> 16, (at & 0xffff) as f64 / 65_536.0);
        let (low, high) = (f64::from(shape[part]), f64::from(shape[part + 1]));
        let share = if part == 19 { share.powi(5) } else { share };
        (low + (high - low) * share) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_has_the_shape() {
        let mut numbers = Numbers(1);
        let mut drawn: Vec<usize> = (0..40_000).map(|_| numbers.of(&TEXT_BYTES)).collect();
        drawn.sort_unstable();
        for (part, wanted) in TEXT_BYTES.iter().enumerate().take(20) {
            let got = drawn[drawn.len() * part / 20];
            assert!(
                got.abs_diff(*wanted as usize) <= 2 + *wanted as usize / 10,
                "{part}: {got}, not {wanted}"
            );
        }
        // The real ones have 67.3 bytes.
        let mean = drawn.iter().sum::<usize>() as f64 / drawn.len() as f64;
        assert!((60.0..75.0).contains(&mean), "{mean}");
    }
}
