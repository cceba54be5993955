//! How is a piece of quantised weights multiplied with AVX2? Bytes in pairs to 16 bits, pairs to 32.

use super::activations::Activations;
use super::pack::{PANEL, UNIT};
use super::unpack::{Lanes, Piece, UNIT_BYTES};
use std::arch::x86_64::*;

/// Registers of 8 lanes in a panel.
const REGISTERS: usize = PANEL / 8;

/// Adds a piece's part of the product to `block`, or begins it.
pub(crate) fn multiply(
    piece: &Piece<'_>,
    x: &Activations,
    row: usize,
    fresh: bool,
    block: &mut [Lanes<f32>],
) {
    let (units, parts) = (piece.units.clone(), UNIT / piece.group);
    assert!(piece.group * parts == UNIT && piece.weights.len() == units.len() * piece.stride);
    assert!(piece.stride >= UNIT_BYTES, "a unit is longer than its stride");
    assert!(piece.starts.len() == units.len() * parts && piece.scales.len() == piece.starts.len());
    assert!(piece.mins.is_empty() || piece.mins.len() == piece.scales.len());
    assert!(units.end * UNIT <= x.cols && (row + block.len()) * x.cols <= x.q.len());
    for (r, out) in block.iter_mut().enumerate() {
        // SAFETY: only called where the processor has AVX2 and FMA; the assertions above bound every access.
        unsafe { one_row(piece, x, row + r, fresh, out) };
    }
}

#[target_feature(enable = "avx2,fma")]
fn one_row(piece: &Piece<'_>, x: &Activations, row: usize, fresh: bool, out: &mut Lanes<f32>) {
    // SAFETY: `multiply` asserted the lengths; a panel has REGISTERS registers of eight lanes.
    unsafe {
        let mut acc = [_mm256_setzero_ps(); REGISTERS];
        if !fresh {
            for (i, acc) in acc.iter_mut().enumerate() {
                *acc = _mm256_load_ps(out.0.as_ptr().add(i * 8));
            }
        }
        for part in 0..piece.starts.len() {
            let at = row * x.cols + piece.units.start * UNIT + part * piece.group;
            let mut dot: [__m256i; REGISTERS] =
                std::array::from_fn(|i| _mm256_load_si256(piece.starts[part].0.as_ptr().add(i * 8).cast()));
            for step in 0..piece.group / 4 {
                let four = x.q.as_ptr().add(at + step * 4).cast::<i32>().read_unaligned();
                let unit = part * piece.group / UNIT;
                let within = part * piece.group % UNIT + step * 4;
                let weights = piece.weights.as_ptr().add(unit * piece.stride + within * PANEL);
                // The byte multiply adds pairs with saturation, which 255 * 127 * 2 would reach: odd and even bytes of
                // the activations are multiplied apart.
                let (even, odd) =
                    (_mm256_set1_epi32(four & 0x00ff_00ff), _mm256_set1_epi32(four & 0xff00_ff00_u32 as i32));
                for (i, dot) in dot.iter_mut().enumerate() {
                    let w = _mm256_load_si256(weights.add(i * 32).cast());
                    let ones = _mm256_set1_epi16(1);
                    *dot = _mm256_add_epi32(*dot, _mm256_madd_epi16(_mm256_maddubs_epi16(even, w), ones));
                    *dot = _mm256_add_epi32(*dot, _mm256_madd_epi16(_mm256_maddubs_epi16(odd, w), ones));
                }
            }
            let (x_scale, x_sum) = (_mm256_set1_ps(x.scales[at / UNIT]), _mm256_set1_ps(x.sums[at / UNIT]));
            for i in 0..REGISTERS {
                let scale = _mm256_load_ps(piece.scales[part].0.as_ptr().add(i * 8));
                let both = _mm256_mul_ps(scale, x_scale);
                acc[i] = _mm256_fmadd_ps(both, _mm256_cvtepi32_ps(dot[i]), acc[i]);
                if let Some(mins) = piece.mins.get(part) {
                    acc[i] = _mm256_fmadd_ps(_mm256_load_ps(mins.0.as_ptr().add(i * 8)), x_sum, acc[i]);
                }
            }
        }
        for (i, acc) in acc.iter().enumerate() {
            _mm256_store_ps(out.0.as_mut_ptr().add(i * 8), *acc);
        }
    }
}
