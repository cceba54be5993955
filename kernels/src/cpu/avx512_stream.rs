//! How are few rows multiplied with AVX-512 VNNI? Weights go from memory to registers and into the product in one pass, so
//! that memory never waits for arithmetic: a decode is bound by the bytes it reads.

use super::activations::Activations;
use super::avx512_unpack::step_bytes;
use super::pack::{LANES, PANEL, PackedInt, UNIT};
use super::unpack::{ACT_OFFSET, Lanes};
use crate::buffer::LINE;
use std::arch::x86_64::*;

/// Up to so many rows, all sums stay in registers while the panel passes by.
const IN_REGISTERS: usize = 4;

/// Up to so many rows, sums stay in the first-level cache while the panel passes by once; for more, pieces of the panel
/// stay there instead.
pub(crate) const ROWS_MAX: usize = 64;

/// Bytes between the weights at work and those that are asked for; panels follow one another in memory, so this reaches
/// into the next one.
const AHEAD: usize = 4096;

/// The product of panel `panel` with the rows `row..` of `x`, as many as `out` is long.
pub(crate) fn multiply(w: &PackedInt, panel: usize, x: &Activations, row: usize, out: &mut [Lanes<f32>]) {
    let records = w.panel(panel);
    assert!(w.units * UNIT == x.cols && (row + out.len()) * x.cols <= x.q.len());
    assert!(x.scales.len() * UNIT == x.q.len() && x.sums.len() == x.scales.len());
    assert!(records.len() == w.units * w.record.len);
    // SAFETY: only called where the processor has these instructions; the assertions above bound every access.
    unsafe {
        match out.len() {
            0 => {}
            1 => by_format::<1>(w, records, x, row, out),
            2 => by_format::<2>(w, records, x, row, out),
            3 => by_format::<3>(w, records, x, row, out),
            IN_REGISTERS => by_format::<IN_REGISTERS>(w, records, x, row, out),
            _ => by_format::<MANY>(w, records, x, row, out),
        }
    }
}

/// Stands for more rows than registers can serve.
const MANY: usize = 0;

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
        (4, false) => pass::<R, 4, true, 1, false>(w, records, x, row, out),
        (4, true) => pass::<R, 4, false, 1, true>(w, records, x, row, out),
        (5, false) => pass::<R, 5, true, 1, false>(w, records, x, row, out),
        (5, true) => pass::<R, 5, false, 1, true>(w, records, x, row, out),
        (6, _) => pass::<R, 6, true, 2, false>(w, records, x, row, out),
        _ => pass::<R, 8, false, 1, false>(w, records, x, row, out),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn pass<const R: usize, const BITS: usize, const SIGNED: bool, const PARTS: usize, const MIN: bool>(
    w: &PackedInt,
    records: &[u8],
    x: &Activations,
    row: usize,
    out: &mut [Lanes<f32>],
) {
    if R == MANY {
        many::<BITS, SIGNED, PARTS, MIN>(w, records, x, row, out);
    } else {
        tile::<R, BITS, SIGNED, PARTS, MIN>(w, records, x, row, out);
    }
}

/// A unit, widened.
struct Unit<const PARTS: usize> {
    /// `[step][register]`.
    weights: [[__m512i; 2]; UNIT / 4],
    /// What the offset of the activations adds, taken off.
    starts: [[__m512i; 2]; PARTS],
    scales: [[__m512; 2]; PARTS],
    mins: [__m512; 2],
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn many<const BITS: usize, const SIGNED: bool, const PARTS: usize, const MIN: bool>(
    w: &PackedInt,
    records: &[u8],
    x: &Activations,
    row: usize,
    out: &mut [Lanes<f32>],
) {
    out.fill(Lanes([0.0; PANEL]));
    let rows = out.len();
    let out = out.as_mut_ptr().cast::<f32>();
    for unit in 0..w.units {
        // SAFETY: `multiply` asserted that the records hold the panel, and `x` the rows.
        unsafe {
            let wide = widen::<BITS, SIGNED, PARTS, MIN>(w, records.as_ptr().add(unit * w.record.len));
            let mut at = 0;
            while at < rows {
                let to = out.add(at * PANEL);
                at += match rows - at {
                    8.. => add::<8, PARTS, MIN>(&wide, x, row + at, unit, to),
                    4.. => add::<4, PARTS, MIN>(&wide, x, row + at, unit, to),
                    2.. => add::<2, PARTS, MIN>(&wide, x, row + at, unit, to),
                    _ => add::<1, PARTS, MIN>(&wide, x, row + at, unit, to),
                };
            }
        }
    }
}

/// Widens the unit whose record begins at `unit`, and asks for one further on.
///
/// # Safety
/// The record may be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn widen<const BITS: usize, const SIGNED: bool, const PARTS: usize, const MIN: bool>(
    w: &PackedInt,
    unit: *const u8,
) -> Unit<PARTS> {
    let (record, steps) = (w.record, UNIT / 4 / PARTS);
    let factor = _mm512_set1_ps(1.0 / w.scale_factor);
    let offset = _mm512_set1_epi8(ACT_OFFSET as i8);
    let none = _mm512_setzero_si512();
    let mut wide = Unit {
        weights: [[none; 2]; UNIT / 4],
        starts: [[none; 2]; PARTS],
        scales: [[_mm512_setzero_ps(); 2]; PARTS],
        mins: [_mm512_setzero_ps(); 2],
    };
    // SAFETY: the caller's contract. Asking ahead touches nothing.
    unsafe {
        for line in 0..record.len / LINE {
            _mm_prefetch::<_MM_HINT_T1>(unit.wrapping_add(AHEAD + line * LINE).cast());
        }
        let number = |from: usize, at: usize| {
            _mm512_mul_ps(_mm512_cvtph_ps(_mm256_loadu_si256(unit.add(from + at).cast())), factor)
        };
        for part in 0..PARTS {
            let mut extra = [none; 2];
            for step in part * steps..(part + 1) * steps {
                wide.weights[step] = step_bytes::<BITS, SIGNED>(unit, unit.add(record.high), step);
                for half in 0..2 {
                    extra[half] = _mm512_dpbusd_epi32(extra[half], offset, wide.weights[step][half]);
                }
            }
            for half in 0..2 {
                wide.starts[part][half] = _mm512_sub_epi32(none, extra[half]);
                wide.scales[part][half] = number(record.scales, (part * PANEL + half * LANES) * 2);
            }
        }
        if MIN {
            for half in 0..2 {
                wide.mins[half] = number(record.mins, half * LANES * 2);
            }
        }
    }
    wide
}

/// Adds a unit's part to the sums of `R` rows at `to`; returns `R`.
///
/// # Safety
/// Rows and sums are there.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn add<const R: usize, const PARTS: usize, const MIN: bool>(
    wide: &Unit<PARTS>,
    x: &Activations,
    row: usize,
    unit: usize,
    to: *mut f32,
) -> usize {
    let (cols, units) = (x.cols, x.cols / UNIT);
    let steps = UNIT / 4 / PARTS;
    // SAFETY: the caller's contract.
    unsafe {
        let q = x.q.as_ptr().add(row * cols + unit * UNIT);
        let (x_scale, x_sum) =
            (x.scales.as_ptr().add(row * units + unit), x.sums.as_ptr().add(row * units + unit));
        for part in 0..PARTS {
            let mut dot = [wide.starts[part]; R];
            for step in part * steps..(part + 1) * steps {
                let weights = wide.weights[step];
                for r in 0..R {
                    let four = _mm512_set1_epi32(q.add(r * cols + step * 4).cast::<i32>().read_unaligned());
                    for half in 0..2 {
                        dot[r][half] = _mm512_dpbusd_epi32(dot[r][half], four, weights[half]);
                    }
                }
            }
            for r in 0..R {
                let scale = _mm512_set1_ps(*x_scale.add(r * units));
                let sum = if MIN { _mm512_set1_ps(*x_sum.add(r * units)) } else { scale };
                for half in 0..2 {
                    let to = to.add(r * PANEL + half * LANES);
                    let both = _mm512_mul_ps(wide.scales[part][half], scale);
                    let mut acc = _mm512_fmadd_ps(both, _mm512_cvtepi32_ps(dot[r][half]), _mm512_load_ps(to));
                    if MIN {
                        acc = _mm512_fmadd_ps(wide.mins[half], sum, acc);
                    }
                    _mm512_store_ps(to, acc);
                }
            }
        }
    }
    R
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
                _mm_prefetch::<_MM_HINT_T1>(unit.wrapping_add(AHEAD + line * LINE).cast());
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
