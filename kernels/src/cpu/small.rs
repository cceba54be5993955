//! What lies between the matrix products? Norms and the functions of single numbers, row by row.

use super::activations::{Activations, Forms};
use super::{Compute, vectorised};
use crate::Isa;
use crate::pool::Shards;
use crate::reference;

const LANES: usize = 16;

/// Sum over `x` of `f`, in 16 running sums so that it vectorises; the order is fixed by the length alone.
#[inline(always)]
fn lane_sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut sums = [0f32; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            sums[lane] += f(chunk[lane]);
        }
    }
    sums.iter().sum::<f32>() + rest.iter().map(|x| f(*x)).sum::<f32>()
}

/// e^x for x clamped to +-87, relative error under 2e-7; exact at 0. Cephes' range reduction and polynomial.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const POLY: [f32; 6] = [1.987_569_1e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: what is added to it is rounded, and stands in its low bits
    let x = x.clamp(-87.0, 87.0);
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    // ln 2 in two parts, so that the subtraction is exact.
    let r = n.mul_add(2.121_944_4e-4, n.mul_add(-0.693_359_4, x));
    let mut p = POLY[0];
    for c in &POLY[1..] {
        p = p.mul_add(r, *c);
    }
    let y = p.mul_add(r * r, r + 1.0);
    // Times 2^n: n is added to the exponent. A NaN stays one unless its exponent overflows, so it is let through apart.
    let scaled = f32::from_bits(y.to_bits().wrapping_add(shifted.to_bits() << 23));
    if x.is_nan() { x } else { scaled }
}

/// `x / rms(x) * weight` for each row of `weight.len()` numbers, ready for the next product.
pub fn rms_norm(
    compute: &mut Compute,
    forms: Forms,
    x: &[f32],
    weight: &[f32],
    eps: f32,
    out: &mut Activations,
) {
    let (isa, width) = (compute.isa, weight.len());
    let rows = x.len() / width.max(1);
    assert_eq!(x.len(), rows * width, "no whole rows of {width}");
    if isa == Isa::Reference {
        let mut normed = vec![0.0; x.len()];
        reference::rms_norm(x, weight, eps, &mut normed);
        return out.fill(compute, forms, &normed, rows);
    }
    let to = out.prepare(forms, rows, width);
    compute.rows(rows, width, &|row| {
        let mut normed = [0f32; PIECE];
        let x = &x[row * width..(row + 1) * width];
        let scale = rms_scale(isa, x, eps);
        for from in (0..width).step_by(PIECE) {
            let len = PIECE.min(width - from);
            scaled(isa, &x[from..from + len], &weight[from..from + len], scale, &mut normed[..len]);
            // SAFETY: each row belongs to one call.
            unsafe { to.put(isa, row, from, &normed[..len]) };
        }
    });
}

/// Numbers that are normalised and quantised while they are in registers and the nearest cache: whole units.
const PIECE: usize = 256;

fn rms_scale(isa: Isa, x: &[f32], eps: f32) -> f32 {
    let mut scale = 0.0;
    let out = &mut scale;
    vectorised!(
        isa,
        fn body(x: &[f32], eps: f32, out: &mut f32) {
            *out = 1.0 / (lane_sum(x, |x| x * x) / x.len() as f32 + eps).sqrt();
        }
    );
    scale
}

fn scaled(isa: Isa, x: &[f32], weight: &[f32], scale: f32, out: &mut [f32]) {
    vectorised!(
        isa,
        fn body(x: &[f32], weight: &[f32], scale: f32, out: &mut [f32]) {
            for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
                *out = x * scale * weight;
            }
        }
    );
}

/// `x = (x - mean) / deviation * weight + bias`, in place, for each row of `weight.len()` numbers, and the same ready for
/// the next product.
pub fn layer_norm(
    compute: &mut Compute,
    forms: Forms,
    x: &mut [f32],
    (weight, bias): (&[f32], &[f32]),
    eps: f32,
    out: &mut Activations,
) {
    assert_eq!(weight.len(), bias.len());
    let (isa, width) = (compute.isa, weight.len());
    let rows = x.len() / width.max(1);
    assert_eq!(x.len(), rows * width, "no whole rows of {width}");
    let to = out.prepare(forms, rows, width);
    let x = Shards::new(x);
    compute.rows(rows, width, &|row| {
        // SAFETY: each row belongs to one call.
        let x = unsafe { x.part(row * width, width) };
        centred(isa, x, weight, bias, eps);
        // SAFETY: as above.
        unsafe { to.put(isa, row, 0, x) };
    });
}

fn centred(isa: Isa, x: &mut [f32], weight: &[f32], bias: &[f32], eps: f32) {
    vectorised!(
        isa,
        fn body(x: &mut [f32], weight: &[f32], bias: &[f32], eps: f32) {
            let n = x.len() as f32;
            let mean = lane_sum(x, |x| x) / n;
            let variance = lane_sum(x, |x| (x - mean) * (x - mean)) / n;
            let scale = 1.0 / (variance + eps).sqrt();
            for ((x, weight), bias) in x.iter_mut().zip(weight).zip(bias) {
                *x = (*x - mean) * scale * weight + bias;
            }
        }
    );
}

/// `x * Phi(x)` with the normal distribution by Abramowitz and Stegun 7.1.26 (error under 2e-7).
#[inline(always)]
pub(crate) fn gelu_of(x: f32) -> f32 {
    const A: [f32; 5] = [1.061_405_4, -1.453_152, 1.421_413_8, -0.284_496_74, 0.254_829_6];
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / 0.327_591_1f32.mul_add(z, 1.0);
    let mut p = A[0];
    for a in &A[1..] {
        p = p.mul_add(t, *a);
    }
    let tail = p * t * exp(-z * z) * 0.5; // upper tail of the normal distribution at |x|
    x * if x >= 0.0 { 1.0 - tail } else { tail }
}

/// Logarithm of the sum of exponentials, and the largest number, of `x`; NaN when one is NaN or plus infinity. Summed in
/// f64 over fixed runs, so that a long vector loses nothing.
pub fn log_sum_exp(isa: Isa, x: &[f32]) -> (f64, f32) {
    let mut out = (f64::NAN, f32::NEG_INFINITY);
    let to = &mut out;
    vectorised!(
        isa,
        fn body(x: &[f32], to: &mut (f64, f32)) {
            let (chunks, rest) = x.as_chunks::<LANES>();
            let mut tops = [f32::NEG_INFINITY; LANES];
            let mut bad = [false; LANES];
            for chunk in chunks {
                for lane in 0..LANES {
                    tops[lane] = if chunk[lane] > tops[lane] { chunk[lane] } else { tops[lane] };
                    bad[lane] |= chunk[lane].is_nan() || chunk[lane] == f32::INFINITY;
                }
            }
            let largest = |top: f32, x: &f32| if *x > top { *x } else { top };
            let top = rest.iter().fold(tops.iter().fold(f32::NEG_INFINITY, largest), largest);
            if bad.contains(&true) || rest.iter().any(|x| x.is_nan() || *x == f32::INFINITY) {
                return;
            }
            let mut sum = 0f64;
            for run in x.chunks(64 * LANES) {
                sum += f64::from(lane_sum(run, |x| exp(x - top)));
            }
            *to = (f64::from(top) + sum.ln(), top);
        }
    );
    out
}

/// `out = e^((x - top) / temperature)`, and 0 where that is below e^-87. `top` is the largest of `x`, `temperature` above 0.
///
/// # Panics
/// When the lengths differ.
pub fn exponentials(isa: Isa, x: &[f32], top: f32, temperature: f32, out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "numbers and places differ");
    vectorised!(
        isa,
        fn body(x: &[f32], top: f32, temperature: f32, out: &mut [f32]) {
            for (out, x) in out.iter_mut().zip(x) {
                let exponent = (x - top) / temperature;
                let value = exp(exponent);
                *out = if exponent > -87.0 { value } else { 0.0 };
            }
        }
    );
}
