//! Numbers that look random and are the same in every run (splitmix64).

/// Where such numbers come from.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Numbers of their own for each seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The next one.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(limit)) >> 64) as u64
    }

    /// One between 0 and 1, neither of them.
    pub fn share(&mut self) -> f64 {
        ((self.number() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Two that are normally distributed around 0, apart from each other (Box and Muller).
    pub fn normal(&mut self) -> (f64, f64) {
        let radius = (-2.0 * self.share().ln()).sqrt();
        let angle = std::f64::consts::TAU * self.share();
        (radius * angle.cos(), radius * angle.sin())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_numbers_are_normal() {
        let mut random = Random::new(1);
        let numbers: Vec<f64> = (0..20_000).flat_map(|_| <[f64; 2]>::from(random.normal())).collect();
        let count = numbers.len() as f64;
        let mean = numbers.iter().sum::<f64>() / count;
        let square = numbers.iter().map(|number| number * number).sum::<f64>() / count;
        let within = numbers.iter().filter(|number| number.abs() < 1.0).count() as f64 / count;
        assert!(mean.abs() < 0.02 && (square - 1.0).abs() < 0.03, "{mean} {square}");
        assert!((within - 0.6827).abs() < 0.01, "{within}");
    }
}
