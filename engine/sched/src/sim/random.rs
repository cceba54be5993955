//! What happens next, reproducibly? The one random number generator of simulations, tests and benches.

use std::time::Duration;

/// Splitmix64 (Steele, Lea and Flood, 2014): every seed is a good one, and the same seed gives the same run anywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator; equal seeds give equal numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `least` to `most`, both included.
    pub fn between(&mut self, least: usize, most: usize) -> usize {
        let width = most.saturating_sub(least) as u64;
        // The bias of the remainder is below 2^-40 for every width used here.
        least + width.checked_add(1).map_or(self.bits(), |width| self.bits() % width) as usize
    }

    /// One of `choices`, which are not empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.between(0, choices.len() - 1)]
    }

    /// From 0 to 1, 1 excluded.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True in a share `probability` of all cases.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// The time to the next of independent events that are `mean` apart on average (exponential).
    pub fn gap(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.unit()).ln())
    }

    /// Close to the standard normal distribution: the sum of twelve uniform numbers, less 6; never beyond 6.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_are_those_of_the_published_generator() {
        // From the reference implementation in C (prng.di.unimi.it/splitmix64.c), seed 1234567.
        let mut random = Random::new(1_234_567);
        let want = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([random.bits(), random.bits(), random.bits()], want);
    }

    #[test]
    fn gaps_and_normals_have_the_right_means() {
        let mut random = Random::new(1);
        let mean = Duration::from_millis(100);
        let gaps: Duration = (0..10_000).map(|_| random.gap(mean)).sum();
        assert!((gaps.as_secs_f64() - 1_000.0).abs() < 40.0, "{gaps:?}");
        let squares: f64 = (0..10_000).map(|_| random.normal().powi(2)).sum();
        assert!((squares / 10_000.0 - 1.0).abs() < 0.05, "{squares}");
    }
}
