//! How is a panel of float weights multiplied? Plain Rust in the shape of the registers; the compiler vectorises it per
//! instruction set.

use super::activations::Activations;
use super::pack::{PANEL, PackedFloat};
use super::unpack::{Lanes, Scratch};
use super::vectorised;
use crate::Isa;
use std::ops::Range;

/// Rows that share one pass over the panel.
const ROWS: usize = 6;

/// Inputs of a piece, so that it stays in the first-level cache.
const INPUTS: usize = 256;

/// The rows `rows` of `x` against one panel.
pub(crate) fn panel(
    isa: Isa,
    scratch: &mut Scratch,
    w: &PackedFloat,
    panel: usize,
    x: &Activations,
    rows: Range<usize>,
    block: &mut [Lanes<f32>],
) {
    assert!(rows.end * x.cols <= x.values.len(), "the input has no float form");
    block.iter_mut().for_each(|out| out.0 = [0.0; PANEL]);
    for from in (0..x.cols).step_by(INPUTS) {
        let inputs = from..x.cols.min(from + INPUTS);
        let weights = scratch.float(isa, w, panel, inputs.clone(), x.cols);
        let mut row = rows.start;
        let (full, rest) = block.as_chunks_mut::<ROWS>();
        for out in full {
            tile(isa, std::array::from_fn(|r| part(x, row + r, &inputs)), weights, out);
            row += ROWS;
        }
        for out in rest {
            tile(isa, [part(x, row, &inputs)], weights, std::array::from_mut(out));
            row += 1;
        }
    }
}

fn part<'a>(x: &'a Activations, row: usize, inputs: &Range<usize>) -> &'a [f32] {
    &x.values[row * x.cols + inputs.start..row * x.cols + inputs.end]
}

fn tile<const R: usize>(isa: Isa, x: [&[f32]; R], w: &[Lanes<f32>], out: &mut [Lanes<f32>; R]) {
    match R {
        ROWS => {
            let (x, out): ([&[f32]; ROWS], _) = (std::array::from_fn(|r| x[r]), &mut out[..]);
            vectorised!(
                isa,
                fn body(x: [&[f32]; ROWS], w: &[Lanes<f32>], out: &mut [Lanes<f32>]) {
                    accumulate(x, w, out);
                }
            );
        }
        _ => {
            let (x, out) = (x[0], &mut out[..1]);
            vectorised!(
                isa,
                fn body(x: &[f32], w: &[Lanes<f32>], out: &mut [Lanes<f32>]) {
                    accumulate([x], w, out);
                }
            );
        }
    }
}

#[inline(always)]
fn accumulate<const R: usize>(x: [&[f32]; R], w: &[Lanes<f32>], out: &mut [Lanes<f32>]) {
    let mut sums: [[f32; PANEL]; R] = std::array::from_fn(|r| out[r].0);
    for (k, w) in w.iter().enumerate() {
        for r in 0..R {
            let x = x[r][k];
            for lane in 0..PANEL {
                sums[r][lane] = x.mul_add(w.0[lane], sums[r][lane]);
            }
        }
    }
    for r in 0..R {
        out[r].0 = sums[r];
    }
}
