//! How many uses an item is worth that was used so often, and last so long ago: its *hit density*, uses to
//! come for each moment that it takes until then (N. Beckmann, H. Chen, A. Cidon: LHD, NSDI 2018). It is
//! learnt from what was used and what was let go.

use super::marks::Mark;

/// Ages that are told from each other.
pub(super) const AGES: usize = 256;
/// How much of what was seen before counts when there is something new.
const DECAY: f32 = 0.9;
/// Of items that nothing is known of, older ones are worth less.
const UNKNOWN: f32 = 1e-7;

type Table = [[f32; AGES]; Mark::USES_MAX + 1];

/// What was seen, and what follows from it.
pub(super) struct Densities {
    used: Box<Table>,
    let_go: Box<Table>,
    density: Box<Table>,
}

impl Densities {
    /// Before anything was seen: what was used more often, and not long ago, is worth more.
    pub fn new() -> Densities {
        let zero = || Box::new([[0.0; AGES]; Mark::USES_MAX + 1]);
        let mut densities = Densities { used: zero(), let_go: zero(), density: zero() };
        for (uses, row) in densities.density.iter_mut().enumerate() {
            row.iter_mut()
                .enumerate()
                .for_each(|(age, density)| *density = (uses + 1) as f32 / (age + 1) as f32);
        }
        densities
    }

    /// An item was used at this age.
    pub fn note_use(&mut self, uses: usize, age: usize) {
        self.used[uses][age] += 1.0;
    }

    /// An item was let go at this age.
    pub fn note_end(&mut self, uses: usize, age: usize) {
        self.let_go[uses][age] += 1.0;
    }

    /// What an item is worth.
    #[inline]
    pub fn of(&self, uses: usize, age: usize) -> f32 {
        self.density[uses][age] + UNKNOWN / (age + 1) as f32
    }

    /// Learns from what was seen.
    pub fn learn(&mut self) {
        for uses in 0..=Mark::USES_MAX {
            // From an age on: uses, items that came to it, and moments that these spent.
            let (mut hits, mut items, mut moments) = (0.0, 0.0, 0.0);
            for age in (0..AGES).rev() {
                hits += self.used[uses][age];
                items += self.used[uses][age] + self.let_go[uses][age];
                moments += items;
                self.density[uses][age] = if moments > 0.0 { hits / moments } else { 0.0 };
                self.used[uses][age] *= DECAY;
                self.let_go[uses][age] *= DECAY;
            }
        }
    }

    /// From now on a step of age is twice as long.
    pub fn widen(&mut self) {
        for table in [&mut self.used, &mut self.let_go] {
            for row in table.iter_mut() {
                for age in 0..AGES {
                    row[age] = if age < AGES / 2 { row[2 * age] + row[2 * age + 1] } else { 0.0 };
                }
            }
        }
        for row in self.density.iter_mut() {
            for age in 0..AGES {
                row[age] = row[(2 * age).min(AGES - 1)] * 2.0;
            }
        }
    }

    /// From now on a step of age is half as long.
    pub fn narrow(&mut self) {
        for table in [&mut self.used, &mut self.let_go] {
            for row in table.iter_mut() {
                let rest: f32 = row[AGES / 2..].iter().sum();
                for age in (0..AGES).rev() {
                    row[age] = row[age / 2] / 2.0;
                }
                row[AGES - 1] += rest;
            }
        }
        for row in self.density.iter_mut() {
            for age in (0..AGES).rev() {
                row[age] = row[age / 2] / 2.0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_soon_is_worth_more() {
        let mut densities = Densities::new();
        assert!(densities.of(1, 5) > densities.of(0, 5) && densities.of(0, 5) > densities.of(0, 6));
        // Items that were never used are used at age 3 or never; those that were used once, always at age
        // 100.
        for _ in 0..100 {
            densities.note_use(0, 3);
            densities.note_end(0, 9);
            densities.note_use(1, 100);
        }
        densities.learn();
        let of = |uses, age| densities.of(uses, age);
        assert!(of(0, 0) > of(1, 0), "two times 10 moments for one use, against 100");
        assert!(of(0, 10) < of(1, 0) && of(0, 10) < 1e-6, "not used at 3, it never will be");
        assert!(of(1, 99) > of(1, 50) && of(1, 50) > of(1, 0), "its use comes nearer");
    }

    #[test]
    fn a_loop_keeps_what_will_come_first() {
        // All is used again after 50 moments, but only what was kept so long: most was let go at age 30.
        let mut densities = Densities::new();
        for round in 0..100 {
            densities.note_use(0, 50);
            if round % 4 > 0 {
                densities.note_end(0, 30);
            }
        }
        densities.learn();
        assert!(densities.of(0, 10) < densities.of(0, 40));
    }

    #[test]
    fn what_was_learnt_stays_when_steps_change() {
        let mut densities = Densities::new();
        densities.note_use(2, 40);
        densities.note_end(2, 80);
        densities.learn();
        let before = densities.of(2, 20);
        densities.widen();
        assert!((densities.of(2, 10) / before / 2.0 - 1.0).abs() < 0.1);
        densities.learn();
        assert!((densities.of(2, 10) / before / 2.0 - 1.0).abs() < 0.1);
        densities.narrow();
        assert!((densities.of(2, 20) / before - 1.0).abs() < 0.1);
        densities.learn();
        assert!((densities.of(2, 20) / before - 1.0).abs() < 0.1);
    }
}
