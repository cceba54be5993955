//! How is a quantised panel multiplied with AVX-512 VNNI? One instruction multiplies 64 bytes and adds in fours.
//!
//! Six rows by two panels keep 12 integer and 12 float accumulators in registers; each weight load serves six rows
//! and each activation is read as a broadcast operand, so the loop is bound by the multiplier, not by loads.

use super::matmul::{ACT_GROUP, Activations, Sink};
use super::pack::{LANES, PackedInt8};
use std::arch::x86_64::*;

/// `P` panels from `panel` on, all rows.
pub(crate) fn panels<const P: usize>(w: &PackedInt8, x: &Activations<'_>, panel: usize, sink: Sink<'_>) {
    let mut row = 0;
    while row < x.rows {
        let left = x.rows - row;
        // SAFETY: only called where the processor has AVX-512 F, BW, VL and VNNI. Bounds are asserted in `tile`.
        unsafe {
            row += match left {
                6.. => by_shape::<6, P>(w, x, row, panel, sink),
                4.. => by_shape::<4, P>(w, x, row, panel, sink),
                2.. => by_shape::<2, P>(w, x, row, panel, sink),
                _ => by_shape::<1, P>(w, x, row, panel, sink),
            };
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn by_shape<const R: usize, const P: usize>(
    w: &PackedInt8,
    x: &Activations<'_>,
    row: usize,
    panel: usize,
    sink: Sink<'_>,
) -> usize {
    let lanes = match (w.shape.len, w.shape.has_min) {
        (16, false) => tile::<R, P, 16, false>(w, x, row, panel),
        (16, true) => tile::<R, P, 16, true>(w, x, row, panel),
        (_, false) => tile::<R, P, 32, false>(w, x, row, panel),
        (_, true) => tile::<R, P, 32, true>(w, x, row, panel),
    };
    for (r, panels) in lanes.iter().enumerate() {
        for (p, lanes) in panels.iter().enumerate() {
            sink(row + r, panel + p, lanes);
        }
    }
    R
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn tile<const R: usize, const P: usize, const LEN: usize, const MIN: bool>(
    w: &PackedInt8,
    x: &Activations<'_>,
    row: usize,
    panel: usize,
) -> [[[f32; LANES]; P]; R] {
    let cols = x.cols;
    let groups = cols / LEN;
    assert!(w.shape.len == LEN && (row + R) * cols <= x.q.len() && (panel + P) * LANES * cols <= w.q.len());
    assert!((panel + P) * groups * LANES <= w.scales.len() && (!MIN || w.mins.len() == w.scales.len()));
    assert!((row + R) * (cols / ACT_GROUP) <= x.scales.len() && (row + R) * (cols / 16) <= x.sums.len());
    let mut lanes = [[[0f32; LANES]; P]; R];
    // SAFETY: every pointer below stays inside the slices by the assertions above: rows below row + R, panels below
    // panel + P, groups below cols / LEN.
    unsafe {
        let mut acc = [[_mm512_setzero_ps(); P]; R];
        for g in 0..groups {
            let mut dot = [[_mm512_setzero_si512(); P]; R];
            let mut x_sum = [0i32; R];
            for r in 0..R {
                let at = ((row + r) * cols + g * LEN) / 16;
                x_sum[r] = *x.sums.get_unchecked(at);
                if LEN == 32 {
                    x_sum[r] += *x.sums.get_unchecked(at + 1);
                }
                dot[r] = [_mm512_set1_epi32(-w.shape.offset * x_sum[r]); P];
            }
            for step in 0..LEN / 4 {
                let mut q = [_mm512_setzero_si512(); P];
                for p in 0..P {
                    let at = (panel + p) * LANES * cols + (g * LEN / 4 + step) * 4 * LANES;
                    q[p] = _mm512_loadu_si512(w.q.as_ptr().add(at).cast());
                }
                for r in 0..R {
                    let at = (row + r) * cols + g * LEN + step * 4;
                    let four = _mm512_set1_epi32(x.q.as_ptr().add(at).cast::<i32>().read_unaligned());
                    for p in 0..P {
                        dot[r][p] = _mm512_dpbusd_epi32(dot[r][p], q[p], four);
                    }
                }
            }
            for p in 0..P {
                let at = ((panel + p) * groups + g) * LANES;
                let scale = _mm512_loadu_ps(w.scales.as_ptr().add(at));
                for r in 0..R {
                    let x_scale = *x.scales.get_unchecked(((row + r) * cols + g * LEN) / ACT_GROUP);
                    let both = _mm512_mul_ps(scale, _mm512_set1_ps(x_scale));
                    acc[r][p] = _mm512_fmadd_ps(both, _mm512_cvtepi32_ps(dot[r][p]), acc[r][p]);
                    if MIN {
                        let min = _mm512_loadu_ps(w.mins.as_ptr().add(at));
                        acc[r][p] =
                            _mm512_fmadd_ps(min, _mm512_set1_ps(x_scale * x_sum[r] as f32), acc[r][p]);
                    }
                }
            }
        }
        for r in 0..R {
            for p in 0..P {
                _mm512_storeu_ps(lanes[r][p].as_mut_ptr(), acc[r][p]);
            }
        }
    }
    lanes
}
