//! What do all kernel tests need? Seeded noise and a look at errors.
#![allow(dead_code, missing_docs, reason = "each test file uses its own part")]

/// A small generator (splitmix64), so that the tests are the same on every run.
pub struct Noise(pub u64);

impl Noise {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in -1..1.
    pub fn value(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.value()).collect()
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.bits() as u8).collect()
    }
}

/// Root of the mean squared difference over that of `wanted`.
pub fn relative_error(got: &[f32], wanted: &[f32]) -> f64 {
    assert_eq!(got.len(), wanted.len());
    let square = |x: f64| x * x;
    let error: f64 = got.iter().zip(wanted).map(|(g, w)| square(f64::from(*g) - f64::from(*w))).sum();
    let size: f64 = wanted.iter().map(|w| square(f64::from(*w))).sum();
    (error / size.max(f64::MIN_POSITIVE)).sqrt()
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
