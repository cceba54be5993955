//! How is a piece of quantised weights multiplied in plain Rust? The path for processors without kernels of their own,
//! and the definition of the arithmetic that the SIMD paths must reproduce to the last bit.

use super::activations::Activations;
use super::pack::{PANEL, UNIT};
use super::unpack::{Lanes, Piece};

/// Adds a piece's part of the product to `block`, or begins it.
pub(crate) fn multiply(
    piece: &Piece<'_>,
    x: &Activations,
    row: usize,
    fresh: bool,
    block: &mut [Lanes<f32>],
) {
    for (r, out) in block.iter_mut().enumerate() {
        let mut lanes = if fresh { [0f32; PANEL] } else { out.0 };
        for (part, weights) in piece.weights.chunks_exact(piece.group * PANEL).enumerate() {
            let at = (row + r) * x.cols + piece.units.start * UNIT + part * piece.group;
            let (x_scale, x_sum) = (x.scales[at / UNIT], x.sums[at / UNIT]);
            let dot = dot(weights, &x.q[at..at + piece.group], piece.starts[part].0);
            for lane in 0..PANEL {
                let both = piece.scales[part].0[lane] * x_scale;
                lanes[lane] = both.mul_add(dot[lane] as f32, lanes[lane]);
            }
            if let Some(mins) = piece.mins.get(part) {
                for lane in 0..PANEL {
                    lanes[lane] = mins.0[lane].mul_add(x_sum, lanes[lane]);
                }
            }
        }
        out.0 = lanes;
    }
}

/// `start` plus the sum of weight times activation (offset included) for 32 outputs.
fn dot(weights: &[i8], x: &[u8], start: [i32; PANEL]) -> [i32; PANEL] {
    let mut dot = start;
    for (step, x) in weights.as_chunks::<{ 4 * PANEL }>().0.iter().zip(x.as_chunks::<4>().0) {
        for (dot, weights) in dot.iter_mut().zip(step.as_chunks::<4>().0) {
            for (w, x) in weights.iter().zip(x) {
                *dot += i32::from(*w) * i32::from(*x);
            }
        }
    }
    dot
}
