//! How are weights widened with AVX-512? A register of nibbles becomes two of bytes, and high bits are merged in with one
//! three-operand logic instruction.

use super::pack::{LANES, PANEL, UNIT};
use super::unpack::{ACT_OFFSET, Lanes};
use crate::buffer::LINE;
use std::arch::x86_64::*;

/// Steps of a unit.
const STEPS: usize = UNIT / 4;

/// One unit's low and high bits to signed bytes, two registers a step. Offsets are half the range of the bits, or none.
pub(crate) fn widen(
    bits: usize,
    offset: i8,
    low: &[[u8; LINE]],
    high: &[[u8; LINE]],
    out: &mut [[i8; LINE]],
) {
    let lines = if bits == 4 { 0 } else { (bits - 4) * 2 };
    assert!(low.len() == STEPS && high.len() == lines && out.len() == 2 * STEPS, "no whole unit");
    assert!(offset == 0 || offset == 1 << (bits - 1), "offset {offset} of {bits} bits");
    // SAFETY: only called where the processor has these instructions; lengths are asserted above.
    unsafe {
        match (bits, offset) {
            (4, 0) => unit::<4, false>(low, high, out),
            (4, _) => unit::<4, true>(low, high, out),
            (5, 0) => unit::<5, false>(low, high, out),
            (5, _) => unit::<5, true>(low, high, out),
            (_, 0) => unit::<6, false>(low, high, out),
            (_, _) => unit::<6, true>(low, high, out),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn unit<const BITS: usize, const SIGNED: bool>(
    low: &[[u8; LINE]],
    high: &[[u8; LINE]],
    out: &mut [[i8; LINE]],
) {
    let (low, high, out) = (low.as_ptr().cast(), high.as_ptr().cast(), out.as_mut_ptr());
    for step in 0..STEPS {
        // SAFETY: the caller asserted a whole unit.
        unsafe {
            let bytes = step_bytes::<BITS, SIGNED>(low, high, step);
            _mm512_storeu_si512(out.add(2 * step).cast(), bytes[0]);
            _mm512_storeu_si512(out.add(2 * step + 1).cast(), bytes[1]);
        }
    }
}

/// Both registers of step `step` of a unit, as signed bytes. `step` is a constant wherever loops are unrolled.
///
/// # Safety
/// `low` and `high` point to the parts of a unit's record.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(crate) unsafe fn step_bytes<const BITS: usize, const SIGNED: bool>(
    low: *const u8,
    high: *const u8,
    step: usize,
) -> [__m512i; 2] {
    // SAFETY: the caller's contract; a line is a register.
    let load = |from: *const u8, line: usize| unsafe { _mm512_loadu_si512(from.add(line * LINE).cast()) };
    if BITS == 8 {
        return [load(low, 2 * step), load(low, 2 * step + 1)];
    }
    let nibbles = load(low, step);
    let mask = _mm512_set1_epi8(15);
    let mut bytes =
        [_mm512_and_si512(nibbles, mask), _mm512_and_si512(_mm512_srli_epi16::<4>(nibbles), mask)];
    for (register, bytes) in bytes.iter_mut().enumerate() {
        // Where the high bits stand; they must go to bit 4.
        let (line, from) = match BITS {
            5 => (register, step),
            6 => (register * 2 + step / 4, 2 * (step % 4)),
            _ => continue,
        };
        let line = load(high, line);
        let moved = match from {
            0 => _mm512_slli_epi16::<4>(line),
            1 => _mm512_slli_epi16::<3>(line),
            2 => _mm512_slli_epi16::<2>(line),
            3 => _mm512_slli_epi16::<1>(line),
            4 => line,
            5 => _mm512_srli_epi16::<1>(line),
            6 => _mm512_srli_epi16::<2>(line),
            _ => _mm512_srli_epi16::<3>(line),
        };
        let top = _mm512_set1_epi8(if BITS == 5 { 0x10 } else { 0x30 });
        // a | (b & c)
        *bytes = _mm512_ternarylogic_epi32::<0xf8>(*bytes, moved, top);
    }
    if SIGNED {
        let offset = _mm512_set1_epi8(1 << (BITS - 1));
        bytes = [_mm512_sub_epi8(bytes[0], offset), _mm512_sub_epi8(bytes[1], offset)];
    }
    bytes
}

/// Bits of f16 to f32, times `factor`.
pub(crate) fn floats(halves: &[u16], factor: f32, out: &mut [Lanes<f32>]) {
    assert!(halves.len() == out.len() * PANEL, "halves of another length");
    // SAFETY: only called where the processor has these instructions; lengths are asserted above.
    unsafe { halves_to_floats(halves, factor, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn halves_to_floats(halves: &[u16], factor: f32, out: &mut [Lanes<f32>]) {
    let factor = _mm512_set1_ps(factor);
    for (part, out) in out.iter_mut().enumerate() {
        for register in 0..2 {
            // SAFETY: 16 of a part's 32 numbers; the caller asserted the lengths.
            unsafe {
                let from = halves.as_ptr().add(part * PANEL + register * LANES);
                let floats = _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()));
                let to = out.0.as_mut_ptr().add(register * LANES);
                _mm512_store_ps(to, _mm512_mul_ps(floats, factor));
            }
        }
    }
}

/// See [`super::unpack::Piece::starts`].
pub(crate) fn starts(weights: &[i8], group: usize, out: &mut [Lanes<i32>]) {
    assert!(weights.len() == out.len() * group * PANEL, "weights of another length");
    // SAFETY: only called where the processor has these instructions; bounds are asserted above.
    unsafe { sums(weights, group, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn sums(weights: &[i8], group: usize, out: &mut [Lanes<i32>]) {
    let offset = _mm512_set1_epi8(ACT_OFFSET as i8);
    for (part, out) in out.iter_mut().enumerate() {
        let mut sums = [_mm512_setzero_si512(); 2];
        for step in 0..group / 4 {
            // SAFETY: the caller asserted the lengths.
            unsafe {
                let at = weights.as_ptr().add((part * group + step * 4) * PANEL);
                sums[0] = _mm512_dpbusd_epi32(sums[0], offset, _mm512_load_si512(at.cast()));
                sums[1] = _mm512_dpbusd_epi32(sums[1], offset, _mm512_load_si512(at.add(64).cast()));
            }
        }
        for (half, sum) in sums.into_iter().enumerate() {
            // SAFETY: 16 of the 32 lanes each.
            unsafe {
                let to = out.0.as_mut_ptr().add(half * LANES);
                _mm512_store_si512(to.cast(), _mm512_sub_epi32(_mm512_setzero_si512(), sum));
            }
        }
    }
}
