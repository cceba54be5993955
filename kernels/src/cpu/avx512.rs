//! How is a piece of quantised weights multiplied with AVX-512 VNNI? One instruction multiplies 64 bytes and adds in
//! fours.
//!
//! Six rows by two registers keep 12 integer and 12 float accumulators; each load of weights serves six rows and each
//! activation two registers, so the loop is bound by the multiplier, not by loads.

use super::Claims;
use super::activations::Activations;
use super::pack::{LANES, PANEL, UNIT};
use super::unpack::{Lanes, Piece};
use std::arch::x86_64::*;

/// Rows of a full tile.
const ROWS: usize = 6;

/// Adds a piece's part of the product to `block`, or begins it, and claims the places of the rows on the way.
pub(crate) fn multiply(
    piece: &Piece<'_>,
    x: &Activations,
    row: usize,
    fresh: bool,
    claims: Claims,
    block: &mut [Lanes<f32>],
) {
    piece.check(x, row, block.len());
    let mut at = 0;
    while at < block.len() {
        let out = &mut block[at..];
        (at..at + ROWS).for_each(|row| claims.row(row));
        // SAFETY: only called where the processor has these instructions; `check` bounds every access.
        at += unsafe {
            match out.len() {
                ROWS.. => by_format::<ROWS>(piece, x, row + at, fresh, out),
                5 => by_format::<5>(piece, x, row + at, fresh, out),
                4 => by_format::<4>(piece, x, row + at, fresh, out),
                3 => by_format::<3>(piece, x, row + at, fresh, out),
                2 => by_format::<2>(piece, x, row + at, fresh, out),
                _ => by_format::<1>(piece, x, row + at, fresh, out),
            }
        };
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn by_format<const R: usize>(
    piece: &Piece<'_>,
    x: &Activations,
    row: usize,
    fresh: bool,
    out: &mut [Lanes<f32>],
) -> usize {
    match (piece.group, piece.mins.is_empty()) {
        (16, true) => tile::<R, 16, false>(piece, x, row, fresh, out),
        (16, false) => tile::<R, 16, true>(piece, x, row, fresh, out),
        (_, true) => tile::<R, 32, false>(piece, x, row, fresh, out),
        (_, false) => tile::<R, 32, true>(piece, x, row, fresh, out),
    }
    R
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn tile<const R: usize, const GROUP: usize, const MIN: bool>(
    piece: &Piece<'_>,
    x: &Activations,
    row: usize,
    fresh: bool,
    out: &mut [Lanes<f32>],
) {
    let (units, cols) = (piece.units.clone(), x.cols);
    let parts = UNIT / GROUP;
    // SAFETY: `check` asserted that rows below row + R, the piece's units and its parts lie inside their slices.
    unsafe {
        let mut acc = [[_mm512_setzero_ps(); 2]; R];
        if !fresh {
            for r in 0..R {
                let from = out.get_unchecked(r).0.as_ptr();
                acc[r] = [_mm512_load_ps(from), _mm512_load_ps(from.add(LANES))];
            }
        }
        let mut w = piece.weights.as_ptr();
        let (mut start, mut scale, mut min) =
            (piece.starts.as_ptr(), piece.scales.as_ptr(), piece.mins.as_ptr());
        let first = row * cols + units.start * UNIT;
        let mut q = x.q.as_ptr().add(first);
        let (mut x_scale, mut x_sum) =
            (x.scales.as_ptr().add(first / UNIT), x.sums.as_ptr().add(first / UNIT));
        for _ in units {
            for _ in 0..parts {
                let begin = (*start).0.as_ptr();
                let begin = [_mm512_load_si512(begin.cast()), _mm512_load_si512(begin.add(LANES).cast())];
                let mut dot = [begin; R];
                for step in 0..GROUP / 4 {
                    let at = w.add(step * 4 * PANEL);
                    let weights = [_mm512_load_si512(at.cast()), _mm512_load_si512(at.add(64).cast())];
                    for r in 0..R {
                        let four = q.add(r * cols + step * 4).cast::<i32>().read_unaligned();
                        let four = _mm512_set1_epi32(four);
                        dot[r][0] = _mm512_dpbusd_epi32(dot[r][0], four, weights[0]);
                        dot[r][1] = _mm512_dpbusd_epi32(dot[r][1], four, weights[1]);
                    }
                }
                let load = |from: *const Lanes<f32>| {
                    let from = (*from).0.as_ptr();
                    [_mm512_load_ps(from), _mm512_load_ps(from.add(LANES))]
                };
                // Row by row: one broadcast serves both registers, and few are alive at once.
                let scales = load(scale);
                for r in 0..R {
                    let x_scale = _mm512_set1_ps(*x_scale.add(r * (cols / UNIT)));
                    for half in 0..2 {
                        let both = _mm512_mul_ps(scales[half], x_scale);
                        acc[r][half] = _mm512_fmadd_ps(both, _mm512_cvtepi32_ps(dot[r][half]), acc[r][half]);
                    }
                }
                if MIN {
                    let mins = load(min);
                    for r in 0..R {
                        let sum = _mm512_set1_ps(*x_sum.add(r * (cols / UNIT)));
                        for half in 0..2 {
                            acc[r][half] = _mm512_fmadd_ps(mins[half], sum, acc[r][half]);
                        }
                    }
                    min = min.add(1);
                }
                (w, q) = (w.add(GROUP * PANEL), q.add(GROUP));
                (start, scale) = (start.add(1), scale.add(1));
            }
            (x_scale, x_sum) = (x_scale.add(1), x_sum.add(1));
        }
        for r in 0..R {
            let to = out.get_unchecked_mut(r).0.as_mut_ptr();
            _mm512_store_ps(to, acc[r][0]);
            _mm512_store_ps(to.add(LANES), acc[r][1]);
        }
    }
}
