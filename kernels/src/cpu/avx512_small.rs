//! How are exponentials, weights of a softmax and activations made with AVX-512? The same steps as in plain Rust, in
//! whole registers.

use super::claim;
use super::dots::CHUNK;
use super::pack::{LANES, PANEL, UNIT};
use super::product::ROWS_AHEAD;
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

/// Writes a panel's results with their bias to columns of a matrix whose rows are `width` long, or adds them to what
/// stands there.
///
/// # Safety
/// `out` and the rows below it may be written, 32 numbers each; the processor has these instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(crate) unsafe fn finish(block: &[Lanes<f32>], bias: &Lanes<f32>, add: bool, out: *mut f32, width: usize) {
    // SAFETY: a panel is two registers.
    let load = |from: &Lanes<f32>| unsafe {
        let from = from.0.as_ptr();
        [_mm512_loadu_ps(from), _mm512_loadu_ps(from.add(LANES))]
    };
    let bias = load(bias);
    for (row, block) in block.iter().enumerate() {
        let block = load(block);
        for half in 0..2 {
            // SAFETY: the caller's contract.
            unsafe {
                let to = out.add(row * width + half * LANES);
                // Rows lie far apart, where no prefetcher looks.
                claim(to.wrapping_add(ROWS_AHEAD * width));
                let sum = _mm512_add_ps(block[half], bias[half]);
                let sum = if add { _mm512_add_ps(sum, _mm512_loadu_ps(to)) } else { sum };
                _mm512_storeu_ps(to, sum);
            }
        }
    }
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
        // SAFETY: the caller asserted the lengths.
        (*scale, *sum) =
            unsafe { quantize_unit(values.as_ptr().add(unit * UNIT), q.as_mut_ptr().add(unit * UNIT)) };
    }
}

/// Quantises a unit for each row: `q` goes on by `cols` a row, scales and sums by the units of a row.
///
/// # Safety
/// The places of all rows may be written.
pub(crate) unsafe fn quantize_panel(
    block: &[Lanes<f32>],
    cols: usize,
    q: *mut u8,
    scales: *mut f32,
    sums: *mut f32,
) {
    // SAFETY: the caller's contract; only called where the processor has these instructions.
    unsafe { quantize_rows(block, cols, q, scales, sums) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn quantize_rows(block: &[Lanes<f32>], cols: usize, q: *mut u8, scales: *mut f32, sums: *mut f32) {
    for (row, values) in block.iter().enumerate() {
        // SAFETY: the caller's contract.
        unsafe {
            let (scale, sum) = quantize_unit(values.0.as_ptr(), q.add(row * cols));
            scales.add(row * (cols / UNIT)).write(scale);
            sums.add(row * (cols / UNIT)).write(sum);
        }
    }
}

/// One unit's bytes; returns its scale, and the sum times the scale.
///
/// # Safety
/// 32 numbers may be read and 32 bytes written.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn quantize_unit(values: *const f32, q: *mut u8) -> (f32, f32) {
    // SAFETY: the caller's contract.
    let x = unsafe { [_mm512_loadu_ps(values), _mm512_loadu_ps(values.add(LANES))] };
    let top = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(x[0]), _mm512_abs_ps(x[1])));
    // A NaN must poison its outputs; the maximum and the integers would hide it.
    let bad = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x[0], x[1]) != 0;
    let scale = if bad { f32::NAN } else { top / 127.0 };
    let inverse = _mm512_set1_ps(if top > 1e-30 { 127.0 / top } else { 0.0 });
    let round = _mm512_set1_ps(12_582_912.0);
    let bytes = x.map(|x| {
        let shifted = _mm512_castps_si512(_mm512_fmadd_ps(x, inverse, round));
        _mm512_cvtepi32_epi8(_mm512_add_epi32(shifted, _mm512_set1_epi32(ACT_OFFSET - 0x4b40_0000)))
    });
    let bytes = _mm256_set_m128i(bytes[1], bytes[0]);
    // SAFETY: the caller's contract.
    unsafe { _mm256_storeu_si256(q.cast(), bytes) };
    // Sums of eight bytes each.
    let eights = _mm256_sad_epu8(bytes, _mm256_setzero_si256());
    let fours = _mm_add_epi64(_mm256_castsi256_si128(eights), _mm256_extracti128_si256::<1>(eights));
    let total = _mm_cvtsi128_si32(fours) + _mm_extract_epi32::<2>(fours) - ACT_OFFSET * UNIT as i32;
    (scale, scale * total as f32)
}

/// `gate = silu(gate + bias) * (up + bias)`, row by row.
pub(crate) fn swiglu(up: &[Lanes<f32>], gate: &mut [Lanes<f32>], biases: [&Lanes<f32>; 2]) {
    // SAFETY: only called where the processor has these instructions.
    unsafe { swiglu_rows(up, gate, biases) }
}

/// Half a row's numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn half(lanes: &Lanes<f32>, half: usize) -> __m512 {
    // SAFETY: 16 of 32 numbers.
    unsafe { _mm512_load_ps(lanes.0[half * LANES..][..LANES].as_ptr()) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn swiglu_rows(up: &[Lanes<f32>], gate: &mut [Lanes<f32>], biases: [&Lanes<f32>; 2]) {
    let one = _mm512_set1_ps(1.0);
    for (gate, up) in gate.iter_mut().zip(up) {
        for at in 0..PANEL / LANES {
            let g = _mm512_add_ps(half(gate, at), half(biases[0], at));
            let u = _mm512_add_ps(half(up, at), half(biases[1], at));
            let below = _mm512_add_ps(one, exp(_mm512_sub_ps(_mm512_setzero_ps(), g)));
            let product = _mm512_mul_ps(_mm512_div_ps(g, below), u);
            // SAFETY: 16 of 32 numbers.
            unsafe { _mm512_store_ps(gate.0[at * LANES..][..LANES].as_mut_ptr(), product) };
        }
    }
}

/// `x = gelu(x + bias)`, row by row, as [`super::small::gelu_of`].
pub(crate) fn gelu(x: &mut [Lanes<f32>], bias: &Lanes<f32>) {
    // SAFETY: only called where the processor has these instructions.
    unsafe { gelu_rows(x, bias) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn gelu_rows(rows: &mut [Lanes<f32>], bias: &Lanes<f32>) {
    let one = _mm512_set1_ps(1.0);
    for row in rows {
        for at in 0..PANEL / LANES {
            let x = _mm512_add_ps(half(row, at), half(bias, at));
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
            // SAFETY: 16 of 32 numbers.
            unsafe { _mm512_store_ps(row.0[at * LANES..][..LANES].as_mut_ptr(), _mm512_mul_ps(x, share)) };
        }
    }
}
