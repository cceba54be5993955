//! How are few rows multiplied with AVX-512 VNNI? Weights go from memory to registers and into the product in one pass, so
//! that memory never waits for arithmetic: a decode is bound by the bytes it reads.

use super::activations::Activations;
use super::avx512_unpack::step_bytes;
use super::pack::{LANES, PANEL, PackedInt, UNIT};
use super::unpack::{ACT_OFFSET, Lanes};
use crate::buffer::LINE;
use std::arch::x86_64::*;

/// Rows that one pass serves: their sums fill the registers.
pub(crate) const ROWS: usize = 6;

/// Bytes between the weights at work and those that are asked for; panels follow one another in memory, so this reaches
/// into the next one.
const AHEAD: usize = 4096;

/// The product of panel `panel` with the rows `row..` of `x`, as many as `out` is long (at most [`ROWS`]).
pub(crate) fn multiply(w: &PackedInt, panel: usize, x: &Activations, row: usize, out: &mut [Lanes<f32>]) {
    let records = w.panel(panel);
    assert!(w.units * UNIT == x.cols && (row + out.len()) * x.cols <= x.q.len());
    assert!(x.scales.len() * UNIT == x.q.len() && x.sums.len() == x.scales.len());
    assert!(records.len() == w.units * w.record.len && out.len() <= ROWS);
    // SAFETY: only called where the processor has these instructions; the assertions above bound every access.
    unsafe {
        match out.len() {
            ROWS.. => by_format::<ROWS>(w, records, x, row, out),
            5 => by_format::<5>(w, records, x, row, out),
            4 => by_format::<4>(w, records, x, row, out),
            3 => by_format::<3>(w, records, x, row, out),
            2 => by_format::<2>(w, records, x, row, out),
            _ => by_format::<1>(w, records, x, row, out),
        }
    }
}

/// The formats that there are: bits, offset or none, parts of a unit, minimums or none.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn by_format<const R: usize>(
    w: &PackedInt,
    records: &[u8],
    x: &Activations,
    row: usize,
    out: &mut [Lanes<f32>],
) {
    match (w.bits, w.shape.has_min) {
        (4, false) => tile::<R, 4, true, 1, false>(w, records, x, row, out),
        (4, true) => tile::<R, 4, false, 1, true>(w, records, x, row, out),
        (5, false) => tile::<R, 5, true, 1, false>(w, records, x, row, out),
        (5, true) => tile::<R, 5, false, 1, true>(w, records, x, row, out),
        (6, _) => tile::<R, 6, true, 2, false>(w, records, x, row, out),
        _ => tile::<R, 8, false, 1, false>(w, records, x, row, out),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn tile<const R: usize, const BITS: usize, const SIGNED: bool, const PARTS: usize, const MIN: bool>(
    w: &PackedInt,
    records: &[u8],
    x: &Activations,
    row: usize,
    out: &mut [Lanes<f32>],
) {
    let (record, cols) = (w.record, x.cols);
    let factor = _mm512_set1_ps(1.0 / w.scale_factor);
    let offset = _mm512_set1_epi8(ACT_OFFSET as i8);
    let steps = UNIT / 4 / PARTS;
    let mut acc = [[_mm512_setzero_ps(); 2]; R];
    // SAFETY: `multiply` asserted that the records hold the panel, and `x` the rows. Asking ahead touches nothing.
    unsafe {
        let mut unit = records.as_ptr();
        let mut q = x.q.as_ptr().add(row * cols);
        let (mut x_scale, mut x_sum) =
            (x.scales.as_ptr().add(row * cols / UNIT), x.sums.as_ptr().add(row * cols / UNIT));
        for _ in 0..w.units {
            for line in 0..record.len / LINE {
                _mm_prefetch::<_MM_HINT_T0>(unit.wrapping_add(AHEAD + line * LINE).cast());
            }
            for part in 0..PARTS {
                let mut dot = [[_mm512_setzero_si512(); 2]; R];
                // What the offset of the activations adds, to be taken off again.
                let mut extra = [_mm512_setzero_si512(); 2];
                for step in 0..steps {
                    let weights =
                        step_bytes::<BITS, SIGNED>(unit, unit.add(record.high), part * steps + step);
                    for half in 0..2 {
                        extra[half] = _mm512_dpbusd_epi32(extra[half], offset, weights[half]);
                    }
                    for r in 0..R {
                        let four = q.add(r * cols + (part * steps + step) * 4).cast::<i32>();
                        let four = _mm512_set1_epi32(four.read_unaligned());
                        for half in 0..2 {
                            dot[r][half] = _mm512_dpbusd_epi32(dot[r][half], four, weights[half]);
                        }
                    }
                }
                for half in 0..2 {
                    let at = (part * PANEL + half * LANES) * 2;
                    let number = |from: usize| {
                        let halves = _mm256_loadu_si256(unit.add(from + at).cast());
                        _mm512_mul_ps(_mm512_cvtph_ps(halves), factor)
                    };
                    let scale = number(record.scales);
                    let min = if MIN { number(record.mins) } else { scale };
                    for r in 0..R {
                        let at = r * (cols / UNIT);
                        let both = _mm512_mul_ps(scale, _mm512_set1_ps(*x_scale.add(at)));
                        let dot = _mm512_cvtepi32_ps(_mm512_sub_epi32(dot[r][half], extra[half]));
                        acc[r][half] = _mm512_fmadd_ps(both, dot, acc[r][half]);
                        if MIN {
                            let sum = _mm512_set1_ps(*x_sum.add(at));
                            acc[r][half] = _mm512_fmadd_ps(min, sum, acc[r][half]);
                        }
                    }
                }
            }
            (unit, q) = (unit.add(record.len), q.add(UNIT));
            (x_scale, x_sum) = (x_scale.add(1), x_sum.add(1));
        }
        for r in 0..R {
            let to = out.get_unchecked_mut(r).0.as_mut_ptr();
            _mm512_store_ps(to, acc[r][0]);
            _mm512_store_ps(to.add(LANES), acc[r][1]);
        }
    }
}
