//! What is kept of a softmax that has seen only some of its scores? The largest score, the sum of exponentials relative
//! to it, and the sum of values weighed so.

use super::dots::CHUNK;
use super::pack::LANES;
use super::small::exp;
use super::vectorised;
use crate::Isa;

/// What one step of a chunk's keys and values is worth, by position.
pub(crate) struct Scales {
    pub(crate) keys: [f32; CHUNK],
    pub(crate) values: [f32; CHUNK],
}

/// Running sums of several queries.
#[derive(Default)]
pub(crate) struct Softmax {
    padded: usize,
    /// Largest score so far; minus infinity before the first.
    top: Vec<f32>,
    /// Sum of exponentials.
    sum: Vec<f32>,
    /// `[query][dim]`: sum of weighed values.
    acc: Vec<f32>,
    /// What the last [`Softmax::weigh`] left for [`Softmax::add`]: by what the sums so far shrink, and what a step of
    /// the integer sums is worth.
    shrink: Vec<f32>,
    step: Vec<f32>,
}

impl Softmax {
    pub(crate) fn clear(&mut self, queries: usize, padded: usize) {
        self.padded = padded;
        for (vector, value, len) in [
            (&mut self.top, f32::NEG_INFINITY, queries),
            (&mut self.sum, 0.0, queries),
            (&mut self.acc, 0.0, queries * padded),
            (&mut self.shrink, 0.0, queries),
            (&mut self.step, 0.0, queries),
        ] {
            vector.clear();
            vector.resize(len, value);
        }
    }

    /// Scores of a chunk, as integer products, to integer weights. `seen` positions count.
    /// The weights hold the value's scale, and are as large as their sum being 32,767 allows, so
    /// that their products with values of 16 bits stay below 2^31.
    pub(crate) fn weigh(
        &mut self,
        isa: Isa,
        query: usize,
        (dots, q_scale): (&[i32; CHUNK], f32),
        scales: &Scales,
        seen: usize,
        weights: &mut [i16; CHUNK],
    ) {
        let mut state = [self.top[query], self.sum[query], 0.0, 0.0];
        weigh(isa, (dots, q_scale), scales, seen, &mut state, weights);
        [self.top[query], self.sum[query], self.shrink[query], self.step[query]] = state;
    }

    /// Adds a chunk's integer sums (`[dim]`), made with the weights of the last [`Softmax::weigh`].
    pub(crate) fn add(&mut self, isa: Isa, query: usize, sums: &[i32]) {
        let acc = &mut self.acc[query * self.padded..(query + 1) * self.padded];
        let (shrink, step) = (self.shrink[query], self.step[query]);
        vectorised!(
            isa,
            fn body(acc: &mut [f32], sums: &[i32], shrink: f32, step: f32) {
                for (acc, sums) in acc.as_chunks_mut::<LANES>().0.iter_mut().zip(sums.as_chunks::<LANES>().0)
                {
                    for lane in 0..LANES {
                        acc[lane] = (sums[lane] as f32).mul_add(step, acc[lane] * shrink);
                    }
                }
            }
        );
    }

    /// Numbers that [`Softmax::write`] writes.
    pub(crate) fn numbers(queries: usize, padded: usize) -> usize {
        queries * (padded + 2)
    }

    pub(crate) fn write(&self, out: &mut [f32]) {
        let (top, rest) = out.split_at_mut(self.top.len());
        let (sum, acc) = rest.split_at_mut(self.sum.len());
        top.copy_from_slice(&self.top);
        sum.copy_from_slice(&self.sum);
        acc.copy_from_slice(&self.acc);
    }

    /// What [`Softmax::write`] wrote.
    pub(crate) fn load(&mut self, queries: usize, padded: usize, from: &[f32]) {
        self.clear(queries, padded);
        let (top, rest) = from.split_at(queries);
        let (sum, acc) = rest.split_at(queries);
        self.top.copy_from_slice(top);
        self.sum.copy_from_slice(sum);
        self.acc.copy_from_slice(acc);
    }

    /// The mean of the values, weighed.
    pub(crate) fn read(&self, query: usize, out: &mut [f32]) {
        let sum = self.sum[query];
        for (out, acc) in out.iter_mut().zip(&self.acc[query * self.padded..]) {
            *out = acc / sum;
        }
    }
}

/// Joins what a later span summed to what came before it.
pub(crate) fn join(isa: Isa, total: &mut Softmax, span: &Softmax) {
    for query in 0..total.top.len() {
        let (before, new) = (total.top[query], span.top[query]);
        if span.sum[query] == 0.0 {
            // The query's positions ended before this span.
            continue;
        }
        let top = if new > before { new } else { before };
        let keep = if before == f32::NEG_INFINITY { 0.0 } else { exp(before - top) };
        let take = exp(new - top);
        total.top[query] = top;
        total.sum[query] = total.sum[query] * keep + span.sum[query] * take;
        let range = query * total.padded..(query + 1) * total.padded;
        let (acc, other) = (&mut total.acc[range.clone()], &span.acc[range]);
        vectorised!(
            isa,
            fn body(acc: &mut [f32], other: &[f32], keep: f32, take: f32) {
                for (acc, other) in acc.iter_mut().zip(other) {
                    *acc = *acc * keep + other * take;
                }
            }
        );
    }
}

/// See [`Softmax::weigh`]; `state` is largest score, sum, and out: shrink and step.
fn weigh(
    isa: Isa,
    (dots, q_scale): (&[i32; CHUNK], f32),
    scales: &Scales,
    seen: usize,
    state: &mut [f32; 4],
    weights: &mut [i16; CHUNK],
) {
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512Vnni {
        return super::avx512_small::weigh((dots, q_scale), scales, seen, state, weights);
    }
    vectorised!(
        isa,
        fn body(
            dots: &[i32; CHUNK],
            q_scale: f32,
            scales: &Scales,
            seen: usize,
            state: &mut [f32; 4],
            weights: &mut [i16; CHUNK],
        ) {
            let mut scores = [0f32; CHUNK];
            for i in 0..CHUNK {
                scores[i] = dots[i] as f32 * (scales.keys[i] * q_scale);
            }
            if seen < CHUNK {
                for (i, score) in scores.iter_mut().enumerate() {
                    *score = if i < seen { *score } else { f32::NEG_INFINITY };
                }
            }
            let most = fold(&scores, |a, b| if b > a { b } else { a });
            let top = if most > state[0] { most } else { state[0] };
            let mut worth = [0f32; CHUNK];
            for i in 0..CHUNK {
                scores[i] = exp(scores[i] - top);
                worth[i] = scores[i] * scales.values[i];
            }
            if seen < CHUNK {
                for i in 0..CHUNK {
                    // Unwritten places may hold any scale.
                    (scores[i], worth[i]) = if i < seen { (scores[i], worth[i]) } else { (0.0, 0.0) };
                }
            }
            let (sum, whole) = (fold(&scores, |a, b| a + b), fold(&worth, |a, b| a + b));
            let shrink = if state[0] == f32::NEG_INFINITY { 0.0 } else { exp(state[0] - top) };
            let scale = if whole > 1e-30 { 32_767.0 / whole } else { 0.0 };
            for i in 0..CHUNK {
                // Adding 1.5 * 2^23 leaves the rounded number in the low bits of the mantissa.
                weights[i] = worth[i].mul_add(scale, 12_582_912.0).to_bits() as i16;
            }
            *state = [top, state[1] * shrink + sum, shrink, whole / 32_767.0];
        }
    );
}

/// Reduces by halves: a fixed order that works on whole registers as long as it can.
#[inline(always)]
fn fold(values: &[f32; CHUNK], join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = *values;
    let mut half = CHUNK / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = join(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}
