//! What is each operation, exactly? Plain definitions in f64 sums, against which every fast path is tested.

use crate::cpu::attention::QueryRow;
use crate::cpu::kv::KvLayer;
use crate::cpu::pack::Matrix;

/// `out[row][o] = sum over i of x[row][i] * weights[o][i]`, activations not quantised.
pub fn matmul(weights: &Matrix, x: &[f32], rows: usize, out: &mut [f32]) {
    let (width, cols) = (weights.rows(), weights.cols());
    let mut w = vec![0f32; cols];
    for o in 0..width {
        weights.row(o, &mut w);
        for row in 0..rows {
            let x = &x[row * cols..(row + 1) * cols];
            out[row * width + o] =
                x.iter().zip(&w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum::<f64>() as f32;
        }
    }
}

/// `x / sqrt(mean(x^2) + eps) * weight` for each row.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let width = weight.len();
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / width as f64;
        let scale = 1.0 / (mean + f64::from(eps)).sqrt();
        for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
            *out = (f64::from(*x) * scale * f64::from(*weight)) as f32;
        }
    }
}

/// `gate / (1 + e^-gate) * up`.
pub fn swiglu(gate: f32, up: f32) -> f32 {
    let g = f64::from(gate);
    (g / (1.0 + (-g).exp()) * f64::from(up)) as f32
}

/// `x / 2 * (1 + erf(x / sqrt 2))`.
pub fn gelu(x: f32) -> f32 {
    let v = f64::from(x);
    (0.5 * v * (1.0 + libm::erf(v / std::f64::consts::SQRT_2))) as f32
}

/// Attention with all scores held at once; `q` holds rows of `width` numbers.
pub fn attention(kv: KvLayer<'_>, rows: &[QueryRow<'_>], q: &[f32], width: usize, out: &mut [f32]) {
    let shape = kv.shape;
    let (group, dim) = (shape.heads / shape.kv_heads, shape.head_dim);
    for row in rows {
        for token in 0..row.tokens {
            for head in 0..shape.heads {
                let at = ((row.first + token) * shape.heads + head) * dim;
                let query = &q[(row.first + token) * width + head * dim..][..dim];
                let seen = row.start + if row.causal { token + 1 } else { row.tokens };
                let mut scores: Vec<f64> = (0..seen)
                    .map(|position| {
                        let dot = |d: usize| {
                            f64::from(query[d]) * f64::from(kv.key(row.blocks, position, head / group, d))
                        };
                        (0..dim).map(dot).sum::<f64>() / (dim as f64).sqrt()
                    })
                    .collect();
                let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                scores.iter_mut().for_each(|score| *score = (*score - top).exp());
                let sum: f64 = scores.iter().sum();
                for d in 0..dim {
                    let value = |(position, p): (usize, &f64)| {
                        p * f64::from(kv.value(row.blocks, position, head / group, d))
                    };
                    out[at + d] = (scores.iter().enumerate().map(value).sum::<f64>() / sum) as f32;
                }
            }
        }
    }
}
