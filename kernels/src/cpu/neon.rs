//! How are products and attention's sums made on aarch64? With the dot product of the ARMv8.2 extension for bytes and with
//! widening multiplications for 16 bits.

use super::activations::Activations;
use super::dots::{CHUNK, Chunk};
use super::kv::{BLOCK, KvFormat};
use super::pack::{PANEL, UNIT};
use super::unpack::{Lanes, Piece};
use std::arch::aarch64::*;

/// Lanes of a register.
const LANES: usize = 4;

/// Registers of a panel.
const REGISTERS: usize = PANEL / LANES;

/// Queries that share each load of keys or values.
const ROWS: usize = 4;

/// Adds a piece's part of the product to `block`, or begins it.
pub(crate) fn multiply(
    piece: &Piece<'_>,
    x: &Activations,
    row: usize,
    fresh: bool,
    block: &mut [Lanes<f32>],
) {
    piece.check(x, row, block.len());
    if fresh {
        block.fill(Lanes([0.0; PANEL]));
    }
    let (pairs, rest) = block.as_chunks_mut::<2>();
    // SAFETY: only called where the processor has the dot product; `check` bounds every access.
    unsafe {
        for (at, out) in pairs.iter_mut().enumerate() {
            tile::<2>(piece, x, row + 2 * at, out);
        }
        for out in rest {
            tile::<1>(piece, x, row + 2 * pairs.len(), std::array::from_mut(out));
        }
    }
}

/// Adds to each lane of `sums` the product of its four bytes: SDOT, which the standard library does not offer yet.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot4(mut sums: int32x4_t, x: int8x16_t, y: int8x16_t) -> int32x4_t {
    // SAFETY: touches its registers alone.
    unsafe {
        std::arch::asm!(
            "sdot {sums:v}.4s, {x:v}.16b, {y:v}.16b",
            sums = inout(vreg) sums, x = in(vreg) x, y = in(vreg) y,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

#[target_feature(enable = "neon,dotprod")]
fn tile<const R: usize>(piece: &Piece<'_>, x: &Activations, row: usize, out: &mut [Lanes<f32>; R]) {
    for part in 0..piece.starts.len() {
        let at = row * x.cols + piece.units.start * UNIT + part * piece.group;
        // SAFETY: the caller asserted the lengths; a panel has REGISTERS registers of four lanes.
        unsafe {
            // The activations are taken as signed, so the offset that `piece.starts` takes off is not there.
            let mut dot = [[vdupq_n_s32(0); REGISTERS]; R];
            let weights = piece.weights.as_ptr().add(part * piece.group * PANEL);
            for step in 0..piece.group / 4 {
                let fours: [int8x16_t; R] = std::array::from_fn(|r| {
                    let four = x.q.as_ptr().add(at + r * x.cols + step * 4).cast::<u32>().read_unaligned();
                    vreinterpretq_s8_u32(vdupq_n_u32(four ^ 0x8080_8080))
                });
                for i in 0..REGISTERS {
                    let w = vld1q_s8(weights.add(step * 4 * PANEL + i * 16));
                    for r in 0..R {
                        dot[r][i] = dot4(dot[r][i], w, fours[r]);
                    }
                }
            }
            for r in 0..R {
                let unit = (at + r * x.cols) / UNIT;
                let (x_scale, x_sum) = (vdupq_n_f32(x.scales[unit]), vdupq_n_f32(x.sums[unit]));
                for i in 0..REGISTERS {
                    let to = out[r].0.as_mut_ptr().add(i * LANES);
                    let both = vmulq_f32(vld1q_f32(piece.scales[part].0.as_ptr().add(i * LANES)), x_scale);
                    let mut acc = vfmaq_f32(vld1q_f32(to), both, vcvtq_f32_s32(dot[r][i]));
                    if let Some(mins) = piece.mins.get(part) {
                        acc = vfmaq_f32(acc, vld1q_f32(mins.0.as_ptr().add(i * LANES)), x_sum);
                    }
                    vst1q_f32(to, acc);
                }
            }
        }
    }
}

/// See [`super::dots::scores`].
pub(crate) fn scores(
    format: KvFormat,
    q: &[i16],
    padded: usize,
    chunk: &Chunk<'_>,
    out: &mut [[i32; CHUNK]],
) {
    for (b, block) in chunk.blocks.iter().enumerate() {
        for (at, out) in out.chunks_mut(ROWS).enumerate() {
            let q = &q[at * ROWS * padded..][..out.len() * padded];
            let q = std::array::from_fn(|r| &q[r.min(out.len() - 1) * padded..][..padded]);
            let keys = block.keys.as_ptr();
            // SAFETY: the caller asserted that keys are BLOCK times `padded` elements long.
            let sums = unsafe {
                match format {
                    KvFormat::Bits16 => pairs::<false>(q, keys, BLOCK, 0, padded / 2),
                    KvFormat::Bits8 => pairs::<true>(q, keys, BLOCK, 0, padded / 2),
                }
            };
            for (out, sums) in out.iter_mut().zip(&sums) {
                out[b * BLOCK..(b + 1) * BLOCK].copy_from_slice(sums);
            }
        }
    }
}

/// See [`super::dots::mix`].
pub(crate) fn mix(format: KvFormat, w: &[[i16; CHUNK]], padded: usize, chunk: &Chunk<'_>, out: &mut [i32]) {
    out.fill(0);
    for (b, block) in chunk.blocks.iter().enumerate() {
        for (at, w) in w.chunks(ROWS).enumerate() {
            let rows: [&[i16]; ROWS] =
                std::array::from_fn(|r| &w[r.min(w.len() - 1)][b * BLOCK..(b + 1) * BLOCK]);
            for from in (0..padded).step_by(BLOCK) {
                let values = block.values.as_ptr();
                // SAFETY: the caller asserted BLOCK / 2 rows of `padded` pairs.
                let sums = unsafe {
                    match format {
                        KvFormat::Bits16 => pairs::<false>(rows, values, padded, from, BLOCK / 2),
                        KvFormat::Bits8 => pairs::<true>(rows, values, padded, from, BLOCK / 2),
                    }
                };
                for (r, sums) in sums.iter().enumerate().take(w.len()) {
                    let to = &mut out[(at * ROWS + r) * padded + from..][..BLOCK];
                    to.iter_mut().zip(sums).for_each(|(to, sum)| *to = to.wrapping_add(*sum));
                }
            }
        }
    }
}

/// `sums[row][lane]` of `x[row][2 i] * y[i][from + lane][0] + x[row][2 i + 1] * y[i][from + lane][1]` over `count` values
/// of i; y is a table of `width` pairs a row.
///
/// # Safety
/// Each x holds `2 * count` numbers, y `count` rows, and `from + 16` is at most `width`.
unsafe fn pairs<const EIGHT: bool>(
    x: [&[i16]; ROWS],
    y: *const u8,
    width: usize,
    from: usize,
    count: usize,
) -> [[i32; BLOCK]; ROWS] {
    const QUARTERS: usize = BLOCK / LANES;
    let size = if EIGHT { 1 } else { 2 };
    let mut out = [[0; BLOCK]; ROWS];
    // SAFETY: the caller's contract; NEON is part of every aarch64 processor that Rust supports.
    unsafe {
        let mut sums = [[vdupq_n_s32(0); QUARTERS]; ROWS];
        for i in 0..count {
            let twos: [int16x8_t; ROWS] = std::array::from_fn(|r| {
                let two = x[r].as_ptr().add(2 * i).cast::<u32>().read_unaligned();
                vreinterpretq_s16_u32(vdupq_n_u32(two))
            });
            for quarter in 0..QUARTERS {
                let at = y.add((i * width + from + quarter * LANES) * 2 * size);
                let y = if EIGHT { vmovl_s8(vld1_s8(at.cast())) } else { vld1q_s16(at.cast()) };
                for r in 0..ROWS {
                    let low = vmull_s16(vget_low_s16(y), vget_low_s16(twos[r]));
                    let high = vmull_high_s16(y, twos[r]);
                    sums[r][quarter] = vaddq_s32(sums[r][quarter], vpaddq_s32(low, high));
                }
            }
        }
        for (out, sums) in out.iter_mut().zip(sums) {
            for (quarter, sum) in sums.into_iter().enumerate() {
                vst1q_s32(out.as_mut_ptr().add(quarter * LANES), sum);
            }
        }
    }
    out
}
