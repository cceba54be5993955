//! What do all kernel tests need? Seeded noise and a look at errors.
#![allow(dead_code, missing_docs, reason = "each test file uses its own part")]

use kernels::{Activations, Compute, Format, Forms, Isa, Linear, Matrix, product};

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

pub const QUANTISED: [Format; 8] = [
    Format::Q4_0,
    Format::Q4_1,
    Format::Q5_0,
    Format::Q5_1,
    Format::Q8_0,
    Format::Q4K,
    Format::Q5K,
    Format::Q6K,
];

pub fn fast_paths() -> Vec<Isa> {
    Isa::available().into_iter().filter(|isa| *isa != Isa::Reference).collect()
}

/// Random weights of a format; every f16 scale is set to something small.
pub fn weights(format: Format, rows: usize, cols: usize, noise: &mut Noise) -> Linear {
    let (_, bytes) = format.block();
    let mut raw = noise.bytes(rows * format.row_bytes(cols).unwrap());
    for block in raw.chunks_exact_mut(bytes) {
        let scales: &[usize] = match format {
            Format::Q6K => &[208],
            Format::Q4_1 | Format::Q5_1 | Format::Q4K | Format::Q5K => &[0, 2],
            _ => &[0],
        };
        for at in scales {
            block[*at..*at + 2].copy_from_slice(&half::f16::from_f32(noise.value() * 0.01).to_le_bytes());
        }
    }
    Linear::new(Matrix::pack(format, rows, cols, &raw).unwrap())
}

pub fn filled(compute: &mut Compute, parts: &[&Linear], x: &[f32], rows: usize) -> Activations {
    let mut activations = Activations::default();
    let forms = Forms::of(compute, parts.iter().map(|part| &part.weights));
    activations.fill(compute, forms, x, rows);
    activations
}

pub fn run(isa: Isa, threads: usize, w: &Linear, x: &[f32], rows: usize) -> Vec<f32> {
    let mut compute = Compute::new(threads, isa);
    let mut out = vec![f32::NAN; rows * w.weights.rows()];
    let activations = filled(&mut compute, &[w], x, rows);
    product(&mut compute, &[w], &activations, &mut out);
    out
}
