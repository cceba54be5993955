//! How are exponentials, weights of a softmax and activations made with AVX-512? The same steps as in plain Rust, in
//! whole registers.

use super::dots::CHUNK;
use super::pack::{LANES, PANEL, UNIT};
use super::softmax::Scales;
use super::unpack::{ACT_OFFSET, Lanes};
use std::arch::x86_64::*;

/// e^x, as [`super::small::exp`]; minus infinity gives e^-87.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn exp(x: __m512) -> __m512 {
    let round = _mm512_set1_ps(12_582_912.0);
    // Of two operands the second is given when one is NaN: a NaN in x stays.
    let x = _mm512_min_ps(_mm512_set1_ps(87.0), _mm512_max_ps(_mm512_set1_ps(-87.0), x));
    let shifted = _mm512_fmadd_ps(x, _mm512_set1_ps(std::f32::consts::LOG2_E), round);
    let n = _mm512_sub_ps(shifted, round);
    let r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0.693_359_4), x);
    let r = _mm512_fmadd_ps(n, _mm512_set1_ps(2.121_944_4e-4), r);
    let mut p = _mm512_set1_ps(1.987_569_1e-4);
    for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
    }
    let y = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0)));
    _mm512_scalef_ps(y, n)
}

/// See [`super::softmax::Softmax::weigh`].
pub(crate) fn weigh(
    (dots, q_scale): (&[i32; CHUNK], f32),
    scales: &Scales,
    seen: usize,
    state: &mut [f32; 4],
    weights: &mut [i16; CHUNK],
) {
    // SAFETY: only called where the processor has these instructions.
    unsafe { weigh_chunk((dots, q_scale), scales, seen, state, weights) }
}

const REGISTERS: usize = CHUNK / LANES;

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn weigh_chunk(
    (dots, q_scale): (&[i32; CHUNK], f32),
    scales: &Scales,
    seen: usize,
    state: &mut [f32; 4],
    weights: &mut [i16; CHUNK],
) {
    let lowest = _mm512_set1_ps(f32::NEG_INFINITY);
    let q_scale = _mm512_set1_ps(q_scale);
    // Bit i: position i counts.
    let seen = if seen >= CHUNK { u64::MAX } else { (1 << seen) - 1 };
    let mask = |i: usize| (seen >> (i * LANES)) as __mmask16;
    // SAFETY: each array holds REGISTERS registers.
    let load = |from: &[f32; CHUNK], i: usize| unsafe { _mm512_loadu_ps(from.as_ptr().add(i * LANES)) };
    let mut scores = [lowest; REGISTERS];
    for i in 0..REGISTERS {
        // SAFETY: as above.
        let dots = _mm512_cvtepi32_ps(unsafe { _mm512_loadu_si512(dots.as_ptr().add(i * LANES).cast()) });
        let score = _mm512_mul_ps(dots, _mm512_mul_ps(load(&scales.keys, i), q_scale));
        scores[i] = _mm512_mask_mov_ps(lowest, mask(i), score);
    }
    let most = _mm512_max_ps(_mm512_max_ps(scores[0], scores[1]), _mm512_max_ps(scores[2], scores[3]));
    let most = _mm512_reduce_max_ps(most);
    let top = if most > state[0] { most } else { state[0] };
    let tops = _mm512_set1_ps(top);
    let (mut shares, mut worth) = ([lowest; REGISTERS], [lowest; REGISTERS]);
    for i in 0..REGISTERS {
        shares[i] = _mm512_maskz_mov_ps(mask(i), exp(_mm512_sub_ps(scores[i], tops)));
        // Unwritten places may hold any scale.
        worth[i] = _mm512_maskz_mul_ps(mask(i), shares[i], load(&scales.values, i));
    }
    let total = |x: [__m512; REGISTERS]| {
        _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(x[0], x[1]), _mm512_add_ps(x[2], x[3])))
    };
    let (sum, whole) = (total(shares), total(worth));
    let shrink = if state[0] == f32::NEG_INFINITY { 0.0 } else { super::small::exp(state[0] - top) };
    let scale = _mm512_set1_ps(if whole > 1e-30 { 32_767.0 / whole } else { 0.0 });
    for i in 0..REGISTERS {
        let rounded = _mm512_cvtps_epi32(_mm512_mul_ps(worth[i], scale));
        // SAFETY: 16 of the 64 weights.
        unsafe {
            let to = weights.as_mut_ptr().add(i * LANES);
            _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(rounded));
        }
    }
    *state = [top, state[1] * shrink + sum, shrink, whole / 32_767.0];
}

/// Quantises whole units; see [`super::activations`].
pub(crate) fn quantize(values: &[f32], q: &mut [u8], scales: &mut [f32], sums: &mut [f32]) {
    let units = scales.len();
    assert!(values.len() == units * UNIT && q.len() == values.len() && sums.len() == units, "no whole units");
    // SAFETY: only called where the processor has these instructions; lengths are asserted above.
    unsafe { quantize_units(values, q, scales, sums) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn quantize_units(values: &[f32], q: &mut [u8], scales: &mut [f32], sums: &mut [f32]) {
    for (unit, (scale, sum)) in scales.iter_mut().zip(sums).enumerate() {
        // SAFETY: a unit is two registers; the caller asserted the lengths.
        let x = unsafe {
            let from = values.as_ptr().add(unit * UNIT);
            [_mm512_loadu_ps(from), _mm512_loadu_ps(from.add(LANES))]
        };
        let top = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(x[0]), _mm512_abs_ps(x[1])));
        // A NaN must poison its outputs; the maximum and the integers would hide it.
        let bad = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x[0], x[1]) != 0;
        *scale = if bad { f32::NAN } else { top / 127.0 };
        let inverse = _mm512_set1_ps(if top > 1e-30 { 127.0 / top } else { 0.0 });
        let round = _mm512_set1_ps(12_582_912.0);
        let mut total = _mm512_setzero_si512();
        for (half, x) in x.into_iter().enumerate() {
            let shifted = _mm512_castps_si512(_mm512_fmadd_ps(x, inverse, round));
            let rounded = _mm512_sub_epi32(shifted, _mm512_set1_epi32(0x4b40_0000));
            total = _mm512_add_epi32(total, rounded);
            let bytes = _mm512_cvtepi32_epi8(_mm512_add_epi32(rounded, _mm512_set1_epi32(ACT_OFFSET)));
            // SAFETY: 16 of the unit's 32 bytes.
            unsafe { _mm_storeu_si128(q.as_mut_ptr().add(unit * UNIT + half * LANES).cast(), bytes) };
        }
        *sum = *scale * _mm512_reduce_add_epi32(total) as f32;
    }
}

/// `silu(gate + bias) * (up + bias)`.
pub(crate) fn swiglu(blocks: [&Lanes<f32>; 2], biases: &[Lanes<f32>; 2], to: &mut [f32; PANEL]) {
    // SAFETY: only called where the processor has these instructions.
    unsafe { swiglu_panel(blocks, biases, to) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn swiglu_panel(blocks: [&Lanes<f32>; 2], biases: &[Lanes<f32>; 2], to: &mut [f32; PANEL]) {
    let one = _mm512_set1_ps(1.0);
    for half in 0..PANEL / LANES {
        // SAFETY: 16 of 32 numbers.
        let [gate, up] = [0, 1].map(|i| unsafe {
            let at = half * LANES;
            _mm512_add_ps(
                _mm512_loadu_ps(blocks[i].0.as_ptr().add(at)),
                _mm512_loadu_ps(biases[i].0.as_ptr().add(at)),
            )
        });
        let below = _mm512_add_ps(one, exp(_mm512_sub_ps(_mm512_setzero_ps(), gate)));
        let product = _mm512_mul_ps(_mm512_div_ps(gate, below), up);
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr().add(half * LANES), product) };
    }
}

/// `gelu(x + bias)`, as [`super::small::gelu_of`].
pub(crate) fn gelu(block: &Lanes<f32>, bias: &Lanes<f32>, to: &mut [f32; PANEL]) {
    // SAFETY: only called where the processor has these instructions.
    unsafe { gelu_panel(block, bias, to) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn gelu_panel(block: &Lanes<f32>, bias: &Lanes<f32>, to: &mut [f32; PANEL]) {
    let one = _mm512_set1_ps(1.0);
    for half in 0..PANEL / LANES {
        let at = half * LANES;
        // SAFETY: 16 of 32 numbers.
        let x = unsafe {
            _mm512_add_ps(_mm512_loadu_ps(block.0.as_ptr().add(at)), _mm512_loadu_ps(bias.0.as_ptr().add(at)))
        };
        let z = _mm512_mul_ps(_mm512_abs_ps(x), _mm512_set1_ps(std::f32::consts::FRAC_1_SQRT_2));
        let t = _mm512_div_ps(one, _mm512_fmadd_ps(z, _mm512_set1_ps(0.327_591_1), one));
        let mut p = _mm512_set1_ps(1.061_405_4);
        for c in [-1.453_152, 1.421_413_8, -0.284_496_74, 0.254_829_6] {
            p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(c));
        }
        let bell = exp(_mm512_sub_ps(_mm512_setzero_ps(), _mm512_mul_ps(z, z)));
        let tail = _mm512_mul_ps(_mm512_mul_ps(p, t), _mm512_mul_ps(bell, _mm512_set1_ps(0.5)));
        let right = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, _mm512_setzero_ps());
        let share = _mm512_mask_sub_ps(tail, right, one, tail);
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr().add(at), _mm512_mul_ps(x, share)) };
    }
}
