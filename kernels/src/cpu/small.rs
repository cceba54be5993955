//! What lies between the matrix products? Norms, rotary positions, gates and sums, row by row.

use super::{Compute, vectorised};
use crate::Isa;
use crate::pool::Shards;
use crate::reference;

const LANES: usize = 16;

/// Below this many elements a loop is cheaper than waking the pool.
const POOL_ELEMENTS_MIN: usize = 1 << 14;

/// How rotary positions pair the dimensions of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// Dimensions 2i and 2i+1, as llama GGUFs are stored.
    Interleaved,
    /// Dimensions i and i + n/2, as qwen2 GGUFs are stored.
    Halves,
}

/// Calls `body(row, row's slice)` for each row of `width` elements, over the pool when that pays.
fn for_rows(
    compute: &mut Compute,
    data: &mut [f32],
    width: usize,
    body: &(dyn Fn(usize, &mut [f32]) + Sync),
) {
    if width == 0 {
        return;
    }
    if data.len() < POOL_ELEMENTS_MIN {
        data.chunks_exact_mut(width).enumerate().for_each(|(row, slice)| body(row, slice));
        return;
    }
    let rows = data.len() / width;
    let batch = (POOL_ELEMENTS_MIN / 4).div_ceil(width).max(1);
    let data = Shards::new(data);
    compute.pool.run(rows.div_ceil(batch), &|item| {
        for row in item * batch..rows.min((item + 1) * batch) {
            // SAFETY: each row belongs to one item.
            body(row, unsafe { data.part(row * width, width) });
        }
    });
}

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
    let x = x.clamp(-87.0, 87.0);
    let n = (x * std::f32::consts::LOG2_E).round_ties_even();
    // ln 2 in two parts, so that the subtraction is exact.
    let r = n.mul_add(2.121_944_4e-4, n.mul_add(-0.693_359_4, x));
    let mut p = POLY[0];
    for c in &POLY[1..] {
        p = p.mul_add(r, *c);
    }
    let y = p.mul_add(r * r, r + 1.0);
    y * f32::from_bits(((n as i32 + 127) << 23) as u32)
}

/// `out = x / rms(x) * weight` for each row of `weight.len()` elements.
pub fn rms_norm(compute: &mut Compute, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert_eq!(x.len(), out.len());
    let (isa, width) = (compute.isa, weight.len());
    if isa == Isa::Reference {
        return reference::rms_norm(x, weight, eps, out);
    }
    for_rows(compute, out, width, &|row, out| {
        let x = &x[row * width..(row + 1) * width];
        vectorised!(
            isa,
            fn body(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
                let scale = 1.0 / (lane_sum(x, |x| x * x) / x.len() as f32 + eps).sqrt();
                for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
                    *out = x * scale * weight;
                }
            }
        );
    });
}

/// `x = (x - mean) / deviation * weight + bias`, in place, for each row of `weight.len()` elements.
pub fn layer_norm(compute: &mut Compute, x: &mut [f32], weight: &[f32], bias: &[f32], eps: f32) {
    assert_eq!(weight.len(), bias.len());
    for_rows(compute, x, weight.len(), &|_, x| {
        let n = x.len() as f32;
        let mean = lane_sum(x, |x| x) / n;
        let variance = lane_sum(x, |x| (x - mean) * (x - mean)) / n;
        let scale = 1.0 / (variance + eps).sqrt();
        for ((x, weight), bias) in x.iter_mut().zip(weight).zip(bias) {
            *x = (*x - mean) * scale * weight + bias;
        }
    });
}

/// `x += y`, elementwise.
pub fn add(x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len());
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

/// Adds `bias` to each row of `bias.len()` elements.
pub fn bias(x: &mut [f32], bias: &[f32]) {
    for row in x.chunks_exact_mut(bias.len().max(1)) {
        add(row, bias);
    }
}

/// `gate = silu(gate) * up`, elementwise, with silu(x) = x / (1 + e^-x).
pub fn swiglu(compute: &mut Compute, gate: &mut [f32], up: &[f32], width: usize) {
    assert_eq!(gate.len(), up.len());
    let isa = compute.isa;
    if isa == Isa::Reference {
        return reference::swiglu(gate, up);
    }
    for_rows(compute, gate, width, &|row, gate| {
        let up = &up[row * width..(row + 1) * width];
        vectorised!(
            isa,
            fn body(gate: &mut [f32], up: &[f32]) {
                for (gate, up) in gate.iter_mut().zip(up) {
                    *gate = *gate / (1.0 + exp(-*gate)) * up;
                }
            }
        );
    });
}

/// `x = x * Phi(x)`, elementwise, with the normal distribution by Abramowitz and Stegun 7.1.26 (error under 2e-7).
pub fn gelu(compute: &mut Compute, x: &mut [f32], width: usize) {
    let isa = compute.isa;
    if isa == Isa::Reference {
        return reference::gelu(x);
    }
    for_rows(compute, x, width, &|_, x| {
        vectorised!(
            isa,
            fn body(x: &mut [f32]) {
                const A: [f32; 5] = [1.061_405_4, -1.453_152, 1.421_413_8, -0.284_496_74, 0.254_829_6];
                for x in x {
                    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
                    let t = 1.0 / 0.327_591_1f32.mul_add(z, 1.0);
                    let mut p = A[0];
                    for a in &A[1..] {
                        p = p.mul_add(t, *a);
                    }
                    let tail = p * t * exp(-z * z) * 0.5; // upper tail of the normal distribution at |x|
                    *x *= if *x >= 0.0 { 1.0 - tail } else { tail };
                }
            }
        );
    });
}

/// Rotates the first `2 * n` dimensions of each head by its position's angles, in place.
///
/// `x` is `[token][head][head_dim]`; `angles` is `[token][n]` of (cos, sin).
pub fn rope(x: &mut [f32], heads: usize, head_dim: usize, angles: &[(f32, f32)], style: RopeStyle) {
    let tokens = x.len() / (heads * head_dim).max(1);
    let n = angles.len() / tokens.max(1);
    assert!(2 * n <= head_dim && angles.len() == n * tokens, "{n} angles for heads of {head_dim}");
    for (x, angles) in x.chunks_exact_mut(heads * head_dim).zip(angles.chunks_exact(n.max(1))) {
        for head in x.chunks_exact_mut(head_dim) {
            for (i, (cos, sin)) in angles.iter().enumerate() {
                let (a, b) = match style {
                    RopeStyle::Interleaved => (2 * i, 2 * i + 1),
                    RopeStyle::Halves => (i, i + n),
                };
                let (u, v) = (head[a], head[b]);
                head[a] = u * cos - v * sin;
                head[b] = u * sin + v * cos;
            }
        }
    }
}
