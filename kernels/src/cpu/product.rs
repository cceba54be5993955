//! How are activations multiplied with weights? Panel by panel over the pool, each panel's results finished (bias, sum,
//! gate) while they are in the cache.
//!
//! An output element is a fixed sequence of operations over its own row of activations and its own column of weights,
//! so a row's result does not depend on the rows beside it, on their number or on the number of threads.

use super::activations::{Activations, Forms};
use super::pack::{Matrix, PANEL, Packed, UNIT};
use super::unpack::{Lanes, Piece, Scratch, UNITS_MAX};
use super::{Claims, Compute, claim, float, gates, portable, vectorised};
use crate::Isa;
use crate::pool::Shards;
use crate::reference;
use std::cell::RefCell;
use std::ops::Range;

/// Rows that share one unpacking of a panel; their results stay in the second-level cache.
const ROWS_MAX: usize = 512;

/// Rows between those that are written and those that are asked for.
pub(crate) const ROWS_AHEAD: usize = 8;

/// Items of a loop for each thread, so that threads end together; fewer items cost fewer turns.
const ITEMS_PER_THREAD: usize = 6;

/// A matrix with what is added to its product.
pub struct Linear {
    /// The weights.
    pub weights: Matrix,
    /// One number per output.
    pub bias: Option<Vec<f32>>,
}

impl Linear {
    /// Without bias.
    pub fn new(weights: Matrix) -> Self {
        Self { weights, bias: None }
    }

    /// The bias of a panel's outputs, zero past the end.
    fn bias(&self, panel: usize) -> Lanes<f32> {
        let mut lanes = Lanes([0.0; PANEL]);
        if let Some(bias) = &self.bias {
            let part = &bias[panel * PANEL..bias.len().min((panel + 1) * PANEL)];
            lanes.0[..part.len()].copy_from_slice(part);
        }
        lanes
    }

    fn check(&self, x: &Activations) {
        let (cols, outputs) = (self.weights.cols(), self.weights.rows());
        assert_eq!(x.cols, cols, "activations have {} columns, weights {cols}", x.cols);
        assert!(self.bias.as_ref().is_none_or(|bias| bias.len() == outputs), "bias of another length");
    }
}

/// Each row of `out` is the products of the row of `x` with all `parts`, one after another.
///
/// # Panics
/// When the shapes do not fit together: a defect in the caller, whose shapes come from a checked model.
pub fn product(compute: &mut Compute, parts: &[&Linear], x: &Activations, out: &mut [f32]) {
    let width: usize = parts.iter().map(|part| part.weights.rows()).sum();
    assert_eq!(out.len(), x.rows * width, "output of {} x {width}", x.rows);
    write(compute, parts, x, out, width, false);
}

/// `sum += x * weights + bias`, row by row.
///
/// # Panics
/// As [`product`].
pub fn product_add(compute: &mut Compute, part: &Linear, x: &Activations, sum: &mut [f32]) {
    let width = part.weights.rows();
    assert_eq!(sum.len(), x.rows * width, "sum of {} x {width}", x.rows);
    write(compute, &[part], x, sum, width, true);
}

fn write(
    compute: &mut Compute,
    parts: &[&Linear],
    x: &Activations,
    out: &mut [f32],
    width: usize,
    add: bool,
) {
    if x.rows == 0 {
        return;
    }
    let mut first = 0;
    let starts: Vec<usize> = parts
        .iter()
        .map(|part| {
            first += part.weights.rows();
            first - part.weights.rows()
        })
        .collect();
    if compute.isa == Isa::Reference {
        for (part, start) in parts.iter().zip(&starts) {
            let lines = plain(part, x);
            for (out, line) in out.chunks_exact_mut(width).zip(lines.chunks_exact(part.weights.rows())) {
                for (out, value) in out[*start..].iter_mut().zip(line) {
                    *out = if add { *out + value } else { *value };
                }
            }
        }
        return;
    }
    let groups: Vec<[&Linear; 1]> = parts.iter().map(|part| [*part]).collect();
    let groups: Vec<&[&Linear]> = groups.iter().map(<[&Linear; 1]>::as_slice).collect();
    let (isa, out) = (compute.isa, Shards::new(out));
    let window = |group: usize, panel: usize, row: usize| {
        let len = PANEL.min(parts[group].weights.rows() - panel * PANEL);
        Window { out, at: row * width + starts[group] + panel * PANEL, width, len }
    };
    let places = |group: usize, panel: usize, row: usize| {
        let to = window(group, panel, row);
        Claims::new(to.out.reach(to.at, to.len), width, to.len)
    };
    let finish = |group: usize, panel: usize, rows: Range<usize>, blocks: &mut [&mut [Lanes<f32>]]| {
        let part: &Linear = parts[group];
        let bias = part.bias.is_some().then(|| part.bias(panel));
        finish(isa, blocks[0], bias.as_ref(), add, window(group, panel, rows.start));
    };
    each_panel(compute, &groups, x, (&places, &finish));
}

/// Some columns of a matrix of rows of `width`: `len` numbers from `at` on, and below them.
#[derive(Clone, Copy)]
struct Window {
    out: Shards<f32>,
    at: usize,
    width: usize,
    len: usize,
}

fn finish(isa: Isa, block: &[Lanes<f32>], bias: Option<&Lanes<f32>>, add: bool, to: Window) {
    let none = Lanes([0.0; PANEL]);
    let bias = bias.unwrap_or(&none);
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512Vnni && to.len == PANEL && !block.is_empty() {
        let out = to.out.reach(to.at, (block.len() - 1) * to.width + PANEL);
        // SAFETY: in bounds, as was asked; one item owns a panel, and within it each row is written once.
        return unsafe { super::avx512_small::finish(block, bias, add, out, to.width) };
    }
    vectorised!(
        isa,
        fn body(block: &[Lanes<f32>], bias: &Lanes<f32>, add: bool, to: Window) {
            for (row, block) in block.iter().enumerate() {
                // SAFETY: one item owns a panel, and within it each row is written once.
                let out = unsafe { to.out.part(to.at + row * to.width, to.len) };
                // Rows lie far apart, where no prefetcher looks.
                claim(out.as_ptr().wrapping_add(ROWS_AHEAD * to.width));
                claim(out.as_ptr().wrapping_add(ROWS_AHEAD * to.width + PANEL / 2));
                let sums: [f32; PANEL] = std::array::from_fn(|i| block.0[i] + bias.0[i]);
                // The last panel of a matrix may be no whole one.
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out = if add { sum + *out } else { sum };
                }
            }
        }
    );
}

/// `out = silu(gate x) * (up x)` with silu(x) = x / (1 + e^-x), ready for the next product.
///
/// # Panics
/// As [`product`].
pub fn product_swiglu(
    compute: &mut Compute,
    [gate, up]: [&Linear; 2],
    x: &Activations,
    forms: Forms,
    out: &mut Activations,
) {
    assert_eq!(gate.weights.rows(), up.weights.rows(), "gate and up differ in width");
    into_activations(compute, &[gate, up], x, forms, out, gates::swiglu);
}

/// `out = gelu(x * weights + bias)`, ready for the next product.
///
/// # Panics
/// As [`product`].
pub fn product_gelu(
    compute: &mut Compute,
    part: &Linear,
    x: &Activations,
    forms: Forms,
    out: &mut Activations,
) {
    into_activations(compute, &[part], x, forms, out, |isa, _, block, bias| gates::gelu(isa, block, bias));
}

/// Joins the results of a panel for one or two matrices with their biases, for all rows, into those of the first.
type Join = fn(Isa, &[Lanes<f32>], &mut [Lanes<f32>], [&Lanes<f32>; 2]);

fn into_activations(
    compute: &mut Compute,
    parts: &[&Linear],
    x: &Activations,
    forms: Forms,
    out: &mut Activations,
    join: Join,
) {
    let (isa, width) = (compute.isa, parts[0].weights.rows());
    if isa == Isa::Reference || !width.is_multiple_of(PANEL) {
        // A ragged last panel would leave a unit of the next product half written.
        return by_rows(compute, parts, x, forms, out, join);
    }
    let to = out.prepare(forms, x.rows, width);
    if x.rows == 0 {
        return;
    }
    let places = |_, panel: usize, row: usize| to.places(row, panel * PANEL);
    let finish = |_, panel: usize, rows: Range<usize>, blocks: &mut [&mut [Lanes<f32>]]| {
        let biases = [parts[0].bias(panel), parts[parts.len() - 1].bias(panel)];
        if let Some((first, rest)) = blocks.split_first_mut() {
            let other: &[Lanes<f32>] = rest.first().map_or(&[], |block| &**block);
            join(isa, other, first, biases.each_ref());
            // SAFETY: one item owns a panel, and within it each row is written once.
            unsafe { to.put_panel(isa, rows.start, panel * PANEL, first) };
        }
    };
    each_panel(compute, &[parts], x, (&places, &finish));
}

fn by_rows(
    compute: &mut Compute,
    parts: &[&Linear],
    x: &Activations,
    forms: Forms,
    out: &mut Activations,
    join: Join,
) {
    let width = parts[0].weights.rows();
    let mut wide = vec![0.0; x.rows * width * parts.len()];
    write(compute, parts, x, &mut wide, width * parts.len(), false);
    let none = Lanes([0.0; PANEL]);
    let mut joined = Vec::with_capacity(x.rows * width);
    for row in wide.chunks_exact(width * parts.len()) {
        for from in (0..width).step_by(PANEL) {
            let len = PANEL.min(width - from);
            let mut blocks = [none; 2];
            for (part, block) in blocks.iter_mut().take(parts.len()).enumerate() {
                block.0[..len].copy_from_slice(&row[part * width + from..][..len]);
            }
            let [mut first, other] = blocks;
            join(compute.isa, &[other], std::slice::from_mut(&mut first), [&none; 2]);
            joined.extend_from_slice(&first.0[..len]);
        }
    }
    out.fill(compute, forms, &joined, x.rows);
}

/// The product with one matrix by its plain definition.
fn plain(part: &Linear, x: &Activations) -> Vec<f32> {
    part.check(x);
    let mut out = vec![0.0; x.rows * part.weights.rows()];
    reference::matmul(&part.weights, &x.values, x.rows, &mut out);
    if let Some(bias) = &part.bias {
        for row in out.chunks_exact_mut(bias.len()) {
            row.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
        }
    }
    out
}

/// Receives a group's number, a panel, a range of rows, and the rows' results for each matrix of the group.
type Finish<'a> = &'a (dyn Fn(usize, usize, Range<usize>, &mut [&mut [Lanes<f32>]]) + Sync);

/// Where the results of a group's panel will stand, from a row on.
type Places<'a> = &'a (dyn Fn(usize, usize, usize) -> Claims + Sync);

/// Receives a range of rows and their results for each matrix of a group.
type FinishRows<'a> = &'a dyn Fn(Range<usize>, &mut [&mut [Lanes<f32>]]);

/// One thread's memory: unpacked weights, and the results of a panel.
struct Bench {
    scratch: Scratch,
    blocks: Vec<Vec<Lanes<f32>>>,
}

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new(Bench { scratch: Scratch::new(), blocks: Vec::new() });
}

/// Computes every panel of every group; the matrices of a group have one shape, and are computed panel beside panel.
fn each_panel(
    compute: &mut Compute,
    groups: &[&[&Linear]],
    x: &Activations,
    (places, finish): (Places<'_>, Finish<'_>),
) {
    let mut panels = Vec::new();
    for (g, group) in groups.iter().enumerate() {
        group.iter().for_each(|part| part.check(x));
        panels.extend((0..group[0].weights.panels()).map(|panel| (g, panel)));
    }
    // Many rows make a panel long enough by itself.
    let share = if x.rows >= 64 { 1 } else { panels.len() / (compute.threads() * ITEMS_PER_THREAD) };
    let items: Vec<&[(usize, usize)]> = panels.chunks(share.max(1)).collect();
    let isa = compute.isa;
    compute.pool.run(items.len(), &|item| {
        BENCH.with_borrow_mut(|bench| {
            for (g, panel) in items[item] {
                let claims = |row| places(*g, *panel, row);
                let finish = |rows: Range<usize>, blocks: &mut [&mut [Lanes<f32>]]| {
                    finish(*g, *panel, rows, blocks);
                };
                one_panel(isa, bench, groups[*g], x, *panel, (&claims, &finish));
            }
        });
    });
}

fn one_panel(
    isa: Isa,
    bench: &mut Bench,
    group: &[&Linear],
    x: &Activations,
    panel: usize,
    (claims, finish): (&dyn Fn(usize) -> Claims, FinishRows<'_>),
) {
    bench.blocks.resize_with(group.len().max(bench.blocks.len()), Vec::new);
    for first in (0..x.rows).step_by(ROWS_MAX) {
        let rows = first..x.rows.min(first + ROWS_MAX);
        for (part, block) in group.iter().zip(&mut bench.blocks) {
            block.resize(rows.len().max(block.len()), Lanes([0.0; PANEL]));
            let block = &mut block[..rows.len()];
            match &part.weights.data {
                #[cfg(target_arch = "x86_64")]
                Packed::Int(w) if isa == Isa::Avx512Vnni && rows.len() <= super::avx512_stream::ROWS_MAX => {
                    super::avx512_stream::multiply(w, panel, x, rows.start, block);
                }
                Packed::Int(w) => {
                    let units = x.cols / UNIT;
                    // Pieces of nearly equal length: a short last one would waste its unpacking.
                    let pieces = units.div_ceil(UNITS_MAX);
                    let step = units.div_ceil(pieces);
                    for from in (0..units).step_by(step) {
                        let piece = bench.scratch.unpack(isa, w, panel, from..units.min(from + step));
                        let claims = if from + step < units { Claims::NONE } else { claims(rows.start) };
                        multiply(isa, &piece, x, rows.start, (from == 0, claims), block);
                    }
                }
                Packed::Float(w) => float::panel(isa, &mut bench.scratch, w, panel, x, rows.clone(), block),
            }
        }
        let mut blocks = bench.blocks.iter_mut().map(|block| {
            let len = block.len().min(rows.len());
            &mut block[..len]
        });
        let mut blocks = [blocks.next().unwrap_or_default(), blocks.next().unwrap_or_default()];
        finish(rows, &mut blocks[..group.len()]);
    }
}

/// Adds a piece's part of the product to `block`, or begins it.
fn multiply(
    isa: Isa,
    piece: &Piece<'_>,
    x: &Activations,
    row: usize,
    (fresh, claims): (bool, Claims),
    block: &mut [Lanes<f32>],
) {
    assert!((row + block.len()) * x.cols <= x.q.len(), "the input has no quantised form");
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vnni => super::avx512::multiply(piece, x, row, fresh, claims, block),
        #[cfg(target_arch = "x86_64")]
        Isa::AvxVnni => super::avx2::vnni::multiply(piece, x, row, fresh, block),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => super::avx2::plain::multiply(piece, x, row, fresh, block),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => super::neon::multiply(piece, x, row, fresh, block),
        _ => portable::multiply(piece, x, row, fresh, block),
    }
}
