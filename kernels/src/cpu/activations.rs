//! In which form do activations enter a product? Quantised once per input to unsigned bytes, with one scale per 32
//! inputs, however many products share them.

use super::pack::{Matrix, UNIT};
use super::unpack::{ACT_OFFSET, Lanes};
use super::{Claims, Compute, vectorised};
use crate::Isa;
use crate::pool::Shards;

/// In which forms the products that follow need their input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forms {
    bytes: bool,
    floats: bool,
}

impl Forms {
    /// For products with all of `matrices`.
    pub fn of<'a>(compute: &Compute, matrices: impl IntoIterator<Item = &'a Matrix>) -> Self {
        let mut forms = Self { bytes: false, floats: compute.isa == Isa::Reference };
        for matrix in matrices {
            if compute.isa != Isa::Reference && matrix.is_quantised() {
                forms.bytes = true;
            } else {
                forms.floats = true;
            }
        }
        forms
    }
}

/// Rows of activations. The memory is kept from one use to the next.
#[derive(Default)]
pub struct Activations {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// `[row][input]`, when a product needs them.
    pub(crate) values: Vec<f32>,
    /// `[row][input]`: the quantised value plus [`ACT_OFFSET`].
    pub(crate) q: Vec<u8>,
    /// `[row][unit]`: what one step of q is worth.
    pub(crate) scales: Vec<f32>,
    /// `[row][unit]`: sum of the unit's quantised values times their scale.
    pub(crate) sums: Vec<f32>,
}

/// The parts of [`Activations`], to be written row by row from several threads.
#[derive(Clone, Copy)]
pub(crate) struct RowsOut {
    forms: Forms,
    cols: usize,
    values: Shards<f32>,
    q: Shards<u8>,
    scales: Shards<f32>,
    sums: Shards<f32>,
}

impl Activations {
    /// Quantises `rows` rows of `values`, row-major, over the pool.
    pub fn fill(&mut self, compute: &mut Compute, forms: Forms, values: &[f32], rows: usize) {
        let cols = values.len().checked_div(rows).unwrap_or(0);
        assert_eq!(cols * rows, values.len(), "activations are no whole rows");
        let isa = compute.isa;
        let out = self.prepare(forms, rows, cols);
        compute.rows(rows, cols, &|row| {
            // SAFETY: each row belongs to one call.
            unsafe { out.put(isa, row, 0, &values[row * cols..(row + 1) * cols]) };
        });
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Makes room for `rows` x `cols` in `forms`; every element is to be written through what it returns.
    pub(crate) fn prepare(&mut self, forms: Forms, rows: usize, cols: usize) -> RowsOut {
        assert!(!forms.bytes || cols.is_multiple_of(UNIT), "{cols} columns are no whole units of {UNIT}");
        (self.rows, self.cols) = (rows, cols);
        let (bytes, floats) =
            (rows * cols * usize::from(forms.bytes), rows * cols * usize::from(forms.floats));
        self.values.resize(floats, 0.0);
        self.q.resize(bytes, 0);
        self.scales.resize(bytes / UNIT, 0.0);
        self.sums.resize(bytes / UNIT, 0.0);
        RowsOut {
            forms,
            cols,
            values: Shards::new(&mut self.values),
            q: Shards::new(&mut self.q),
            scales: Shards::new(&mut self.scales),
            sums: Shards::new(&mut self.sums),
        }
    }
}

impl RowsOut {
    /// Writes `values` to row `row` from column `from` on; whole units when quantised.
    ///
    /// # Safety
    /// The memory lives, and no other thread writes or reads these places meanwhile.
    pub(crate) unsafe fn put(&self, isa: Isa, row: usize, from: usize, values: &[f32]) {
        let at = row * self.cols + from;
        if self.forms.floats {
            // SAFETY: the caller's contract.
            unsafe { self.values.part(at, values.len()) }.copy_from_slice(values);
        }
        if self.forms.bytes {
            let units = values.len() / UNIT;
            // SAFETY: the caller's contract.
            let (q, scales, sums) = unsafe {
                (
                    self.q.part(at, values.len()),
                    self.scales.part(at / UNIT, units),
                    self.sums.part(at / UNIT, units),
                )
            };
            quantize(isa, values, q, scales, sums);
        }
    }

    /// Where [`RowsOut::put_panel`] will write the bytes.
    pub(crate) fn places(&self, row: usize, from: usize) -> Claims {
        if !self.forms.bytes {
            return Claims::NONE;
        }
        Claims::new(self.q.reach(row * self.cols + from, UNIT), self.cols, UNIT)
    }

    /// Writes a panel's results: 32 numbers, a whole unit, to each row from `first` on, at column `from`.
    ///
    /// # Safety
    /// As [`RowsOut::put`].
    pub(crate) unsafe fn put_panel(&self, isa: Isa, first: usize, from: usize, block: &[Lanes<f32>]) {
        #[cfg(target_arch = "x86_64")]
        if isa == Isa::Avx512Vnni && self.forms.bytes && !self.forms.floats {
            let (at, units) = (first * self.cols + from, self.cols / UNIT);
            let rows = block.len();
            if rows == 0 {
                return;
            }
            // SAFETY: the caller's contract; the rows' places lie in bounds when the first and the last do.
            return unsafe {
                let q = self.q.reach(at, (rows - 1) * self.cols + UNIT);
                let scales = self.scales.reach(at / UNIT, (rows - 1) * units + 1);
                let sums = self.sums.reach(at / UNIT, (rows - 1) * units + 1);
                super::avx512_small::quantize_panel(block, self.cols, q, scales, sums);
            };
        }
        for (row, values) in block.iter().enumerate() {
            // SAFETY: the caller's contract.
            unsafe { self.put(isa, first + row, from, &values.0) };
        }
    }
}

fn quantize(isa: Isa, values: &[f32], q: &mut [u8], scales: &mut [f32], sums: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512Vnni {
        return super::avx512_small::quantize(values, q, scales, sums);
    }
    vectorised!(
        isa,
        fn body(values: &[f32], q: &mut [u8], scales: &mut [f32], sums: &mut [f32]) {
            let units = values.as_chunks::<UNIT>().0.iter().zip(q.as_chunks_mut::<UNIT>().0);
            for ((values, q), (scale, sum)) in units.zip(scales.iter_mut().zip(sums)) {
                // Halves until one is left, so that lanes work side by side.
                let mut tops = values.map(f32::abs);
                let mut half = UNIT / 2;
                while half > 0 {
                    for i in 0..half {
                        tops[i] = if tops[i + half] > tops[i] { tops[i + half] } else { tops[i] };
                    }
                    half /= 2;
                }
                let top = tops[0];
                // A NaN must poison its outputs; the cast to an integer would hide it. An infinity does so by itself.
                let bad = values.iter().fold(false, |bad, value| bad | value.is_nan());
                *scale = if bad { f32::NAN } else { top / 127.0 };
                // What is too small to be told from zero is zero.
                let inverse = if top > 1e-30 { 127.0 / top } else { 0.0 };
                let mut rounded = [0i32; UNIT];
                for (rounded, value) in rounded.iter_mut().zip(values) {
                    *rounded = super::kv::rounded(*value, inverse);
                }
                let mut total = 0i32;
                for (q, rounded) in q.iter_mut().zip(&rounded) {
                    *q = rounded.wrapping_add(ACT_OFFSET) as u8;
                    total = total.wrapping_add(*rounded);
                }
                *sum = *scale * total as f32;
            }
        }
    );
}
