//! How does a token read what came before it? One pass over the blocks of its table with an online softmax
//! (Milakov and Gimelshein, arXiv 1805.02867), for prefill chunks and decodes alike.

use super::small::exp;
use super::{Compute, vectorised};
use crate::Isa;
use crate::pool::Shards;
use crate::reference;
use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

/// Positions in a KV block: the lanes of a 512-bit register, so that a block's scores are one vector.
pub(crate) const BLOCK: usize = 16;

/// Queries that share one conversion of a block to f32.
const TILE: usize = 16;

/// Heads of an attention layer. `heads` is a multiple of `kv_heads`; queries of one group share keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
}

impl AttentionShape {
    /// Positions in a block; the layout below is made for this number.
    pub const BLOCK_TOKENS: usize = BLOCK;

    /// f16 elements of one block in one layer: keys and values of 16 positions.
    pub fn block_elements(&self) -> usize {
        self.kv_heads * 2 * BLOCK * self.head_dim
    }

    /// Where the keys of `head` in `block` begin; `[dim][position]`, so that a dimension's 16 keys are one vector.
    fn keys(&self, block: u32, head: usize) -> usize {
        block as usize * self.block_elements() + head * 2 * BLOCK * self.head_dim
    }

    /// Where the values begin; `[position][dim]`.
    fn values(&self, block: u32, head: usize) -> usize {
        self.keys(block, head) + BLOCK * self.head_dim
    }
}

/// One layer's KV pool, as bits of f16.
#[derive(Clone, Copy)]
pub struct KvView<'a> {
    /// `[block][kv head][keys, values]`; see [`AttentionShape`].
    pub bits: &'a [u16],
    /// Its heads.
    pub shape: AttentionShape,
}

impl KvView<'_> {
    /// Key `dim` of `position` (counted in `blocks`).
    pub fn key(&self, blocks: &[u32], position: usize, head: usize, dim: usize) -> f32 {
        let at = self.shape.keys(blocks[position / BLOCK], head) + dim * BLOCK + position % BLOCK;
        f16::from_bits(self.bits[at]).to_f32()
    }

    /// Value `dim` of `position`.
    pub fn value(&self, blocks: &[u32], position: usize, head: usize, dim: usize) -> f32 {
        let at =
            self.shape.values(blocks[position / BLOCK], head) + position % BLOCK * self.shape.head_dim + dim;
        f16::from_bits(self.bits[at]).to_f32()
    }
}

/// A sequence's tokens in this call: `tokens` queries at positions `start..`, rows `first..` of the query matrix.
#[derive(Clone, Copy, Debug)]
pub struct QueryRow<'a> {
    /// The sequence's block table; holds positions `0..start + tokens`.
    pub blocks: &'a [u32],
    /// Position of the first query.
    pub start: usize,
    /// Queries.
    pub tokens: usize,
    /// Row of the first query.
    pub first: usize,
    /// A query sees the positions up to its own; otherwise all `start + tokens` (an encoder's attention).
    pub causal: bool,
}

/// Writes one position's keys and values (`[kv head][dim]`) into `block` at `slot` (0 to 15).
pub fn kv_store(bits: &mut [u16], shape: AttentionShape, block: u32, slot: usize, k: &[f32], v: &[f32]) {
    assert!(slot < BLOCK, "slot {slot}");
    for head in 0..shape.kv_heads {
        let (keys, values) = (shape.keys(block, head), shape.values(block, head));
        let from = head * shape.head_dim;
        for dim in 0..shape.head_dim {
            bits[keys + dim * BLOCK + slot] = f16::from_f32(k[from + dim]).to_bits();
            bits[values + slot * shape.head_dim + dim] = f16::from_f32(v[from + dim]).to_bits();
        }
    }
}

/// Copies a whole block of one layer, keys and values of all 16 positions, over another.
///
/// # Panics
/// When a block lies outside `bits`: a defect in the caller, which checks its plan.
pub fn kv_copy(bits: &mut [u16], shape: AttentionShape, from: u32, to: u32) {
    let (len, from) = (shape.block_elements(), shape.keys(from, 0));
    bits.copy_within(from..from + len, shape.keys(to, 0));
}

/// `out = softmax(q k / sqrt(head_dim)) v` for every row. `q` and `out` are `[token][head][dim]`.
///
/// A query's result depends on its own blocks alone, in their order: not on the chunk it came in, nor on the batch.
///
/// # Panics
/// When a row reaches outside its blocks or the matrices: a defect in the caller, which checks its plan.
pub fn attention(compute: &mut Compute, kv: KvView<'_>, rows: &[QueryRow<'_>], q: &[f32], out: &mut [f32]) {
    let shape = kv.shape;
    if compute.isa == Isa::Reference {
        return reference::attention(kv, rows, q, out);
    }
    let group = shape.heads / shape.kv_heads;
    // (row, kv head, first and last query of the group's tokens x heads): one item for one thread.
    let mut items = Vec::new();
    for (r, row) in rows.iter().enumerate() {
        assert!(row.blocks.len() * BLOCK >= row.start + row.tokens, "row {r} reads past its blocks");
        for head in 0..shape.kv_heads {
            let queries = row.tokens * group;
            items.extend((0..queries).step_by(TILE).map(|from| (r, head, from, queries.min(from + TILE))));
        }
    }
    // Long items first, so that the threads end together.
    items.sort_by_key(|(r, _, from, _)| std::cmp::Reverse(rows[*r].start + from / group));
    let isa = compute.isa;
    let out = Shards::new(out);
    compute.pool.run(items.len(), &|at| {
        let (r, head, from, to) = items[at];
        let tile = Tile::new(kv, &rows[r], head, from..to, q);
        tile.run(isa, &out);
    });
}

/// The scratch of one work item.
struct Tile<'a> {
    kv: KvView<'a>,
    row: &'a QueryRow<'a>,
    head: usize,
    queries: std::ops::Range<usize>,
    /// `[query][dim]`, scaled.
    q: Vec<f32>,
}

impl<'a> Tile<'a> {
    fn new(
        kv: KvView<'a>,
        row: &'a QueryRow<'a>,
        head: usize,
        queries: std::ops::Range<usize>,
        q: &[f32],
    ) -> Self {
        let scale = 1.0 / (kv.shape.head_dim as f32).sqrt();
        let mut tile = Tile { kv, row, head, queries: queries.clone(), q: Vec::new() };
        for query in queries {
            let at = tile.offset(query);
            tile.q.extend(q[at..at + kv.shape.head_dim].iter().map(|q| q * scale));
        }
        tile
    }

    fn group(&self) -> usize {
        self.kv.shape.heads / self.kv.shape.kv_heads
    }

    /// Where a query's head begins in the query matrix.
    fn offset(&self, query: usize) -> usize {
        let (token, head) =
            (self.row.first + query / self.group(), self.head * self.group() + query % self.group());
        (token * self.kv.shape.heads + head) * self.kv.shape.head_dim
    }

    /// Positions that a query sees.
    fn limit(&self, query: usize) -> usize {
        self.row.start + if self.row.causal { query / self.group() + 1 } else { self.row.tokens }
    }

    fn run(&self, isa: Isa, out: &Shards<f32>) {
        let dim = self.kv.shape.head_dim;
        let count = self.queries.len();
        let (mut keys, mut values) = (vec![0f32; BLOCK * dim], vec![0f32; BLOCK * dim]);
        let mut acc = vec![0f32; count * dim];
        let (mut top, mut sum) = ([f32::NEG_INFINITY; TILE], [0f32; TILE]);
        let mut valid = [0usize; TILE];
        let positions = self.limit(self.queries.end - 1);
        for (b, block) in self.row.blocks.iter().enumerate().take(positions.div_ceil(BLOCK)) {
            let (k, v) = (self.kv.shape.keys(*block, self.head), self.kv.shape.values(*block, self.head));
            self.kv.bits[k..k + BLOCK * dim].reinterpret_cast::<f16>().convert_to_f32_slice(&mut keys);
            self.kv.bits[v..v + BLOCK * dim].reinterpret_cast::<f16>().convert_to_f32_slice(&mut values);
            for (valid, query) in valid.iter_mut().zip(self.queries.clone()) {
                *valid = self.limit(query).saturating_sub(b * BLOCK).min(BLOCK);
            }
            let mut state = State { acc: &mut acc, top: &mut top[..count], sum: &mut sum[..count] };
            block_step(isa, &self.q, dim, &keys, &values, &valid[..count], &mut state);
        }
        for (at, query) in self.queries.clone().enumerate() {
            // SAFETY: one item owns a (token, head), and each query of it is written once.
            let out = unsafe { out.part(self.offset(query), dim) };
            for (out, acc) in out.iter_mut().zip(&acc[at * dim..]) {
                *out = acc / sum[at];
            }
        }
    }
}

struct State<'a> {
    acc: &'a mut [f32],
    top: &'a mut [f32],
    sum: &'a mut [f32],
}

fn block_step(
    isa: Isa,
    q: &[f32],
    dim: usize,
    keys: &[f32],
    values: &[f32],
    valid: &[usize],
    state: &mut State<'_>,
) {
    vectorised!(
        isa,
        fn body(q: &[f32], dim: usize, keys: &[f32], values: &[f32], valid: &[usize], state: &mut State<'_>) {
            let (keys, _) = keys.as_chunks::<BLOCK>();
            let mut scores = [[0f32; BLOCK]; TILE];
            for (four, scores) in q.chunks(4 * dim).zip(scores.chunks_mut(4)) {
                if four.len() == 4 * dim {
                    let mut sums = [[0f32; BLOCK]; 4];
                    for (d, k) in keys.iter().enumerate() {
                        for i in 0..4 {
                            let q = four[i * dim + d];
                            for lane in 0..BLOCK {
                                sums[i][lane] = q.mul_add(k[lane], sums[i][lane]);
                            }
                        }
                    }
                    scores.copy_from_slice(&sums);
                } else {
                    for (q, score) in four.chunks_exact(dim).zip(scores) {
                        let mut sum = [0f32; BLOCK];
                        for (q, k) in q.iter().zip(keys) {
                            for lane in 0..BLOCK {
                                sum[lane] = q.mul_add(k[lane], sum[lane]);
                            }
                        }
                        *score = sum;
                    }
                }
            }
            for (i, valid) in valid.iter().enumerate().filter(|(_, valid)| **valid > 0) {
                let score = &mut scores[i];
                for (lane, score) in score.iter_mut().enumerate() {
                    *score = if lane < *valid { *score } else { f32::NEG_INFINITY };
                }
                let top = fold(*score, |a, b| if b > a { b } else { a }).max(state.top[i]);
                let shrink = if state.top[i] == f32::NEG_INFINITY { 0.0 } else { exp(state.top[i] - top) };
                for (lane, score) in score.iter_mut().enumerate() {
                    *score = if lane < *valid { exp(*score - top) } else { 0.0 };
                }
                state.top[i] = top;
                state.sum[i] = state.sum[i] * shrink + fold(*score, |a, b| a + b);
                let (acc, p) = (&mut state.acc[i * dim..(i + 1) * dim], &score[..*valid]);
                let mut from = 0;
                while from < dim {
                    // Four registers at a time keep four chains of additions in flight.
                    from += match dim - from {
                        64.. => mix::<64>(&mut acc[from..], shrink, p, values, dim, from),
                        16.. => mix::<16>(&mut acc[from..], shrink, p, values, dim, from),
                        _ => mix::<1>(&mut acc[from..], shrink, p, values, dim, from),
                    };
                }
            }
        }
    );
}

/// Reduces 16 lanes by halves: a fixed order that is a few shuffles, not a chain of sixteen.
#[inline(always)]
fn fold(mut lanes: [f32; BLOCK], join: impl Fn(f32, f32) -> f32) -> f32 {
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            lanes[lane] = join(lanes[lane], lanes[lane + half]);
        }
    }
    lanes[0]
}

/// `acc = acc * shrink + sum over positions of p * values[position]` for the `N` dimensions from `from` on; returns N.
#[inline(always)]
fn mix<const N: usize>(
    acc: &mut [f32],
    shrink: f32,
    p: &[f32],
    values: &[f32],
    dim: usize,
    from: usize,
) -> usize {
    let acc = &mut acc[..N];
    let mut out = [0f32; N];
    for lane in 0..N {
        out[lane] = acc[lane] * shrink;
    }
    for (p, value) in p.iter().zip(values.chunks_exact(dim)) {
        let value = &value[from..from + N];
        for lane in 0..N {
            out[lane] = p.mul_add(value[lane], out[lane]);
        }
    }
    acc.copy_from_slice(&out);
    N
}
