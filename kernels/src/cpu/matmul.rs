//! How are activations multiplied with weights? Quantised once per input, then panel by panel over the pool.
//!
//! An output element is a fixed sequence of operations over its own row of activations and its own column of weights,
//! so a row's result does not depend on the rows beside it, on their number or on the number of threads.

use super::pack::{LANES, Matrix, Packed, PackedInt8};
use super::{Compute, float, portable};
use crate::Isa;
use crate::pool::Shards;
use crate::reference;

/// Inputs that share one activation scale.
pub(crate) const ACT_GROUP: usize = 32;

/// Rows of activations, as f32 and quantised to signed bytes with one scale per 32 inputs.
///
/// Quantised once, however many products share the input.
pub struct Activations<'a> {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) values: &'a [f32],
    pub(crate) q: Vec<i8>,
    /// `[row][group]`: what one step of q is worth.
    pub(crate) scales: Vec<f32>,
    /// `[row][half group]`: sum of q over 16 inputs.
    pub(crate) sums: Vec<i32>,
}

impl<'a> Activations<'a> {
    /// `rows` rows of `values`, row-major, for weights of any kind. With [`Isa::Reference`] nothing is quantised.
    pub fn new(compute: &mut Compute, values: &'a [f32], rows: usize) -> Self {
        let mut new = Self::float(values, rows);
        let cols = new.cols;
        if compute.isa != Isa::Reference && cols.is_multiple_of(ACT_GROUP) {
            new.quantize(compute);
        }
        new
    }

    /// As `new`, for float weights alone: nothing is quantised.
    pub fn float(values: &'a [f32], rows: usize) -> Self {
        let cols = values.len().checked_div(rows).unwrap_or(0);
        assert_eq!(cols * rows, values.len(), "activations are no whole rows");
        Self { rows, cols, values, q: Vec::new(), scales: Vec::new(), sums: Vec::new() }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    fn quantize(&mut self, compute: &mut Compute) {
        let (rows, cols, isa) = (self.rows, self.cols, compute.isa);
        let groups = cols / ACT_GROUP;
        self.q = vec![0; rows * cols];
        self.scales = vec![0.0; rows * groups];
        self.sums = vec![0; rows * groups * 2];
        let (q, scales, sums) =
            (Shards::new(&mut self.q), Shards::new(&mut self.scales), Shards::new(&mut self.sums));
        let values = self.values;
        let batch = 8;
        compute.pool.run(rows.div_ceil(batch), &|item| {
            for row in item * batch..rows.min((item + 1) * batch) {
                // SAFETY: each row belongs to one item.
                let (q, scales, sums) = unsafe {
                    (
                        q.part(row * cols, cols),
                        scales.part(row * groups, groups),
                        sums.part(row * groups * 2, groups * 2),
                    )
                };
                quantize_row(isa, &values[row * cols..(row + 1) * cols], q, scales, sums);
            }
        });
    }
}

fn quantize_row(isa: Isa, values: &[f32], q: &mut [i8], scales: &mut [f32], sums: &mut [i32]) {
    super::vectorised!(
        isa,
        fn body(values: &[f32], q: &mut [i8], scales: &mut [f32], sums: &mut [i32]) {
            let groups = values.chunks_exact(ACT_GROUP).zip(q.chunks_exact_mut(ACT_GROUP));
            for ((values, q), (scale, sums)) in groups.zip(scales.iter_mut().zip(sums.chunks_exact_mut(2))) {
                let top =
                    values.iter().fold(0f32, |top, value| if value.abs() > top { value.abs() } else { top });
                // A NaN must poison its outputs; the cast to i8 would hide it. An infinity does so by itself.
                let bad = values.iter().fold(false, |bad, value| bad | value.is_nan());
                *scale = if bad { f32::NAN } else { top / 127.0 };
                let inverse = if top > 0.0 { 127.0 / top } else { 0.0 };
                for (q, value) in q.iter_mut().zip(values) {
                    *q = (value * inverse).round_ties_even() as i8;
                }
                for (sum, half) in sums.iter_mut().zip(q.chunks_exact(ACT_GROUP / 2)) {
                    *sum = half.iter().map(|q| i32::from(*q)).sum();
                }
            }
        }
    );
}

/// `out[row][o] = sum over i of activations[row][i] * weights[o][i]`; `out` is row-major, `weights.rows()` wide.
///
/// # Panics
/// When the shapes do not fit together: a defect in the caller, whose shapes come from a checked model.
pub fn matmul(compute: &mut Compute, weights: &Matrix, activations: &Activations<'_>, out: &mut [f32]) {
    let (rows, cols, width) = (activations.rows, activations.cols, weights.rows());
    assert_eq!(out.len(), rows * width, "output of {rows} x {width}");
    if rows == 0 {
        return;
    }
    assert_eq!(cols, weights.cols(), "activations have {cols} columns, weights {}", weights.cols());
    if compute.isa == Isa::Reference {
        return reference::matmul(weights, activations.values, rows, out);
    }
    let isa = compute.isa;
    // Two panels at a time share each load of an activation; enough items that threads end together.
    let items = weights.panels().div_ceil(2);
    let out = Shards::new(out);
    match &weights.data {
        Packed::Float(w) => compute.pool.run(items, &|item| {
            for panel in item * 2..weights.panels().min(item * 2 + 2) {
                let values = &w.values[panel * LANES * cols..(panel + 1) * LANES * cols];
                float::panel(isa, activations.values, rows, cols, values, &mut |row, lanes| {
                    store(&out, width, row, panel, lanes);
                });
            }
        }),
        Packed::Int8(w) => {
            assert!(!activations.q.is_empty(), "{cols} columns are no whole groups of {ACT_GROUP}");
            compute.pool.run(items, &|item| {
                let panels = item * 2..weights.panels().min(item * 2 + 2);
                int8_panels(isa, w, activations, panels, &mut |row, panel, lanes| {
                    store(&out, width, row, panel, lanes);
                });
            });
        }
    }
}

/// Receives a row's 16 results of one panel.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(usize, usize, &[f32; LANES]);

fn store(out: &Shards<f32>, width: usize, row: usize, panel: usize, lanes: &[f32; LANES]) {
    let from = panel * LANES;
    let len = LANES.min(width - from);
    // SAFETY: one item owns a panel, and within it each row is written once.
    unsafe { out.part(row * width + from, len) }.copy_from_slice(&lanes[..len]);
}

fn int8_panels(
    isa: Isa,
    w: &PackedInt8,
    x: &Activations<'_>,
    panels: std::ops::Range<usize>,
    sink: Sink<'_>,
) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vnni => {
            if panels.len() == 2 {
                super::avx512::panels::<2>(w, x, panels.start, sink);
            } else {
                super::avx512::panels::<1>(w, x, panels.start, sink);
            }
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => panels.for_each(|panel| super::avx2::panel(w, x, panel, sink)),
        _ => panels.for_each(|panel| portable::panel(w, x, panel, sink)),
    }
}
