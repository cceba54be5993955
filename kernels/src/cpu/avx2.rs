//! How is a quantised panel multiplied with AVX2? Bytes widened to 16 bits, since the byte multiply saturates.

use super::matmul::{ACT_GROUP, Activations, Sink};
use super::pack::{LANES, PackedInt8};
use std::arch::x86_64::*;

/// All rows against one panel.
pub(crate) fn panel(w: &PackedInt8, x: &Activations<'_>, panel: usize, sink: Sink<'_>) {
    let mut row = 0;
    while row < x.rows {
        // SAFETY: only called where the processor has AVX2 and FMA. Bounds are asserted in `tile`.
        unsafe {
            if x.rows - row >= 2 {
                let lanes = tile::<2>(w, x, row, panel);
                sink(row, panel, &lanes[0]);
                sink(row + 1, panel, &lanes[1]);
                row += 2;
            } else {
                sink(row, panel, &tile::<1>(w, x, row, panel)[0]);
                row += 1;
            }
        }
    }
}

#[target_feature(enable = "avx2,fma")]
fn tile<const R: usize>(w: &PackedInt8, x: &Activations<'_>, row: usize, panel: usize) -> [[f32; LANES]; R] {
    let (cols, len) = (x.cols, w.shape.len);
    let groups = cols / len;
    assert!((row + R) * cols <= x.q.len() && (panel + 1) * LANES * cols <= w.q.len());
    let q = &w.q[panel * LANES * cols..(panel + 1) * LANES * cols];
    let scales = &w.scales[panel * groups * LANES..(panel + 1) * groups * LANES];
    let mut acc = [[0f32; LANES]; R];
    for g in 0..groups {
        // Four registers of eight 32-bit sums a row: each lane of the panel holds two, added at the end of the group.
        let mut dot = [[_mm256_setzero_si256(); 4]; R];
        for step in 0..len / 4 {
            let quad = &q[(g * len / 4 + step) * 4 * LANES..][..4 * LANES];
            for part in 0..4 {
                // SAFETY: 16 bytes at part * 16 of a 64-byte slice.
                let wide =
                    unsafe { _mm256_cvtepu8_epi16(_mm_loadu_si128(quad.as_ptr().add(part * 16).cast())) };
                for r in 0..R {
                    let at = (row + r) * cols + g * len + step * 4;
                    // SAFETY: four bytes inside row + r by the assertion above.
                    let four = unsafe { x.q.as_ptr().add(at).cast::<i32>().read_unaligned() };
                    let x4 = _mm256_cvtepi8_epi16(_mm_set1_epi32(four));
                    dot[r][part] = _mm256_add_epi32(dot[r][part], _mm256_madd_epi16(wide, x4));
                }
            }
        }
        for r in 0..R {
            let at = (row + r) * cols + g * len;
            let x_scale = x.scales[at / ACT_GROUP];
            let sum = x.sums[at / 16] + if len == 32 { x.sums[at / 16 + 1] } else { 0 };
            let mut pairs = [0i32; 2 * LANES];
            for part in 0..4 {
                // SAFETY: eight values at part * 8 of 32.
                unsafe { _mm256_storeu_si256(pairs.as_mut_ptr().add(part * 8).cast(), dot[r][part]) };
            }
            for lane in 0..LANES {
                let dot = pairs[2 * lane] + pairs[2 * lane + 1] - w.shape.offset * sum;
                acc[r][lane] = (scales[g * LANES + lane] * x_scale).mul_add(dot as f32, acc[r][lane]);
            }
            if w.shape.has_min {
                let mins = &w.mins[(panel * groups + g) * LANES..][..LANES];
                let x_sum = x_scale * sum as f32;
                for lane in 0..LANES {
                    acc[r][lane] = mins[lane].mul_add(x_sum, acc[r][lane]);
                }
            }
        }
    }
    acc
}
