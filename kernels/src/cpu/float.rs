//! How is an f32 panel multiplied? Plain Rust in the shape of the registers; the compiler vectorises it per
//! instruction set.

use super::pack::LANES;
use super::vectorised;
use crate::Isa;

/// Rows that share one pass over the panel.
const ROWS: usize = 8;

/// All rows of `x` against one panel (`[input][lane]`); `sink` receives each row's 16 results.
pub(crate) fn panel(
    isa: Isa,
    x: &[f32],
    rows: usize,
    cols: usize,
    w: &[f32],
    sink: &mut dyn FnMut(usize, &[f32; LANES]),
) {
    let mut row = 0;
    while row < rows {
        let take = if rows - row >= ROWS { ROWS } else { 1 };
        let mut acc = [[0f32; LANES]; ROWS];
        let x = &x[row * cols..(row + take) * cols];
        if take == ROWS {
            eight(isa, x, cols, w, &mut acc);
        } else {
            one(isa, x, w, &mut acc[0]);
        }
        for (r, lanes) in acc[..take].iter().enumerate() {
            sink(row + r, lanes);
        }
        row += take;
    }
}

fn eight(isa: Isa, x: &[f32], cols: usize, w: &[f32], acc: &mut [[f32; LANES]; ROWS]) {
    vectorised!(
        isa,
        fn body(x: &[f32], cols: usize, w: &[f32], acc: &mut [[f32; LANES]; ROWS]) {
            let mut sums = [[0f32; LANES]; ROWS];
            let rows: [&[f32]; ROWS] = std::array::from_fn(|r| &x[r * cols..(r + 1) * cols]);
            for (k, w) in w.as_chunks::<LANES>().0.iter().enumerate().take(cols) {
                for r in 0..ROWS {
                    let x = rows[r][k];
                    for lane in 0..LANES {
                        sums[r][lane] = x.mul_add(w[lane], sums[r][lane]);
                    }
                }
            }
            *acc = sums;
        }
    );
}

fn one(isa: Isa, x: &[f32], w: &[f32], acc: &mut [f32; LANES]) {
    vectorised!(
        isa,
        fn body(x: &[f32], w: &[f32], acc: &mut [f32; LANES]) {
            let mut sum = [0f32; LANES];
            for (x, w) in x.iter().zip(w.as_chunks::<LANES>().0) {
                for lane in 0..LANES {
                    sum[lane] = x.mul_add(w[lane], sum[lane]);
                }
            }
            *acc = sum;
        }
    );
}
