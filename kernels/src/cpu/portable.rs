//! How is a quantised panel multiplied in plain Rust? The path for processors without kernels of their own, and the
//! definition of the integer arithmetic that the SIMD paths must reproduce to the last bit.

use super::matmul::{ACT_GROUP, Activations, Sink};
use super::pack::{LANES, PackedInt8};

/// The integer part of one group: `sum of (q_w - offset) * q_x` for 16 lanes.
fn group_dot(q: &[u8], x: &[i8], start: i32) -> [i32; LANES] {
    let mut dot = [start; LANES];
    for (quad, x) in q.chunks_exact(4 * LANES).zip(x.chunks_exact(4)) {
        for (dot, q) in dot.iter_mut().zip(quad.chunks_exact(4)) {
            for (q, x) in q.iter().zip(x) {
                *dot += i32::from(*q) * i32::from(*x);
            }
        }
    }
    dot
}

/// All rows against one panel.
pub(crate) fn panel(w: &PackedInt8, x: &Activations<'_>, panel: usize, sink: Sink<'_>) {
    let (cols, len) = (x.cols, w.shape.len);
    let groups = cols / len;
    let q = &w.q[panel * LANES * cols..(panel + 1) * LANES * cols];
    let scales = &w.scales[panel * groups * LANES..(panel + 1) * groups * LANES];
    for row in 0..x.rows {
        let mut lanes = [0f32; LANES];
        for g in 0..groups {
            let at = row * cols + g * len;
            let x_scale = x.scales[at / ACT_GROUP];
            let sum = x.sums[at / 16] + if len == 32 { x.sums[at / 16 + 1] } else { 0 };
            let q = &q[g * len * LANES..(g + 1) * len * LANES];
            let dot = group_dot(q, &x.q[at..at + len], -w.shape.offset * sum);
            for lane in 0..LANES {
                let scale = scales[g * LANES + lane] * x_scale;
                lanes[lane] = scale.mul_add(dot[lane] as f32, lanes[lane]);
            }
            if w.shape.has_min {
                let mins = &w.mins[(panel * groups + g) * LANES..][..LANES];
                let x_sum = x_scale * sum as f32;
                for lane in 0..LANES {
                    lanes[lane] = mins[lane].mul_add(x_sum, lanes[lane]);
                }
            }
        }
        sink(row, panel, &lanes);
    }
}
