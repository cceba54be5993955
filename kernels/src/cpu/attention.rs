//! How does a token read what came before it? One pass over the blocks of its table with an online softmax
//! (Milakov and Gimelshein, arXiv 1805.02867), for prefill chunks and decodes alike.
//!
//! A query's positions are cut into spans and these into chunks, always at the same places; spans are summed apart and
//! joined in order. So its result depends on its own blocks alone, not on the chunk that it came in, on the batch, or on
//! who computed which span: a long context of few queries is shared among the threads span by span.

use super::dots::{self, BLOCKS, CHUNK, Chunk, QUERIES};
use super::kv::{BLOCK, KvLayer, inverse, norm, rounded};
use super::softmax::{Scales, Softmax, join};
use super::{Compute, vectorised};
use crate::Isa;
use crate::pool::Shards;
use crate::reference;
use std::cell::RefCell;
use std::ops::Range;

/// Queries of an item: they share each chunk of keys and values while it is in the first-level cache.
const TILE: usize = 8 * QUERIES;

/// Positions that are summed apart.
const SPAN: usize = 4 * CHUNK;

/// Up to so many queries of a KV head, a row's KV heads are one item: a block's keys and values of all heads lie one after
/// another, and memory is fastest when it is read in long runs.
const NARROW: usize = 16;

/// Items for each thread below which long contexts are shared among threads.
const ITEMS_PER_THREAD: usize = 4;

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

/// Some queries of one row and some KV heads, over some of its spans.
#[derive(Clone)]
struct Item {
    row: usize,
    /// KV heads.
    heads: Range<usize>,
    /// Of the row's queries for each KV head, token by token and in it head by head.
    queries: Range<usize>,
    spans: Range<usize>,
    /// Where the spans' sums go when others compute the rest.
    partial: Option<usize>,
}

impl Item {
    /// Softmaxes that it keeps: one for each KV head and query.
    fn states(&self) -> usize {
        self.heads.len() * self.queries.len()
    }

    /// Its KV heads and queries, in the order of their states.
    fn each(&self) -> impl Iterator<Item = (usize, usize)> {
        self.heads.clone().flat_map(|head| self.queries.clone().map(move |query| (head, query)))
    }

    fn work(&self) -> usize {
        self.states() * self.spans.len()
    }
}

/// `out = softmax(q k / sqrt(head_dim)) v` for every row. `q` holds rows of `width` numbers that begin with
/// `[head][dim]`; `out` is `[token][head][dim]`.
///
/// # Panics
/// When a row reaches outside its blocks or the matrices: a defect in the caller, which checks its plan.
pub fn attention(
    compute: &mut Compute,
    kv: KvLayer<'_>,
    rows: &[QueryRow<'_>],
    q: &[f32],
    width: usize,
    out: &mut [f32],
) {
    for (r, row) in rows.iter().enumerate() {
        assert!(row.blocks.len() * BLOCK >= row.start + row.tokens, "row {r} reads past its blocks");
    }
    if compute.isa == Isa::Reference {
        return reference::attention(kv, rows, q, width, out);
    }
    assert_apart(rows);
    let call = Call { isa: compute.isa, kv, rows, q, width, out: Shards::new(out) };
    let (items, partials) = call.items(compute.threads());
    let mut sums = vec![0f32; partials];
    let shared = Shards::new(&mut sums);
    compute.pool.run(items.len(), &|at| {
        TILES.with_borrow_mut(|tile| call.run(&items[at], tile, &shared));
    });
    if partials > 0 {
        call.join(&items, &sums);
    }
}

/// No two rows have a token of the query matrix in common: threads write their results side by side.
pub(crate) fn assert_apart(rows: &[QueryRow<'_>]) {
    let mut tokens: Vec<(usize, usize)> = rows.iter().map(|row| (row.first, row.tokens)).collect();
    tokens.sort_unstable();
    let apart = |pair: &[(usize, usize)]| pair[0].0 + pair[0].1 <= pair[1].0;
    assert!(tokens.windows(2).all(apart), "two rows have a token in common");
}

/// What all items of a call share.
struct Call<'a> {
    isa: Isa,
    kv: KvLayer<'a>,
    rows: &'a [QueryRow<'a>],
    q: &'a [f32],
    width: usize,
    out: Shards<f32>,
}

/// One thread's memory for an item.
#[derive(Default)]
struct Tile {
    /// `[KV head][query][padded dim]` and the worth of a step, with 1 / sqrt(dim) in it.
    q: Vec<i16>,
    q_scales: Vec<f32>,
    /// Positions that each query sees.
    limits: Vec<usize>,
    /// `[query][padded dim]`: the integer sums of one chunk.
    sums: Vec<i32>,
    /// Sums of a span, and of all spans so far, `[KV head][query]`.
    span: Softmax,
    total: Softmax,
}

thread_local! {
    static TILES: RefCell<Tile> = RefCell::default();
}

impl<'a> Call<'a> {
    fn group(&self) -> usize {
        self.kv.shape.heads / self.kv.shape.kv_heads
    }

    /// Positions that a query sees.
    fn limit(&self, row: &QueryRow<'_>, query: usize) -> usize {
        row.start + if row.causal { query / self.group() + 1 } else { row.tokens }
    }

    /// Token row and head of a query.
    fn place(&self, row: &QueryRow<'_>, head: usize, query: usize) -> (usize, usize) {
        (row.first + query / self.group(), head * self.group() + query % self.group())
    }

    /// The work, longest first so that threads end together, and the numbers that partial sums take.
    fn items(&self, threads: usize) -> (Vec<Item>, usize) {
        let heads = self.kv.shape.kv_heads;
        // Enough work for all threads? A narrow row is one item, and then its spans are.
        let enough = threads * ITEMS_PER_THREAD;
        let spans_of = |row: &QueryRow<'_>| (row.start + row.tokens).div_ceil(SPAN);
        let whole = self.rows.len() >= enough || self.rows.iter().map(spans_of).sum::<usize>() >= enough;
        let mut tiles = Vec::new();
        for (r, row) in self.rows.iter().enumerate() {
            let queries = row.tokens * self.group();
            let step = if queries <= NARROW && whole { heads } else { 1 };
            for from in (0..queries).step_by(TILE) {
                let queries = from..queries.min(from + TILE);
                let spans = 0..self.limit(row, queries.end - 1).div_ceil(SPAN);
                tiles.extend((0..heads).step_by(step).map(|head| Item {
                    row: r,
                    heads: head..head + step,
                    queries: queries.clone(),
                    spans: spans.clone(),
                    partial: None,
                }));
            }
        }
        if tiles.len() >= enough || threads == 1 {
            tiles.sort_by_key(|item| std::cmp::Reverse(item.work()));
            return (tiles, 0);
        }
        let (mut items, mut partials) = (Vec::new(), 0);
        for tile in tiles {
            if tile.spans.len() == 1 {
                items.push(tile);
                continue;
            }
            for span in tile.spans.clone() {
                let partial = Some(partials);
                partials += Softmax::numbers(tile.states(), self.kv.shape.padded());
                items.push(Item { spans: span..span + 1, partial, ..tile.clone() });
            }
        }
        // Stable, so that the spans of one tile stay in order.
        items.sort_by_key(|item| std::cmp::Reverse(item.work()));
        (items, partials)
    }

    fn run(&self, item: &Item, tile: &mut Tile, partials: &Shards<f32>) {
        let (row, padded) = (&self.rows[item.row], self.kv.shape.padded());
        self.load_queries(row, item, tile);
        tile.total.clear(item.states(), padded);
        for span in item.spans.clone() {
            tile.span.clear(item.states(), padded);
            let end = self.limit(row, item.queries.end - 1).min((span + 1) * SPAN);
            for from in (span * SPAN..end).step_by(CHUNK) {
                self.chunk(row, item, from, tile);
            }
            if let Some(at) = item.partial {
                // SAFETY: one item owns each part of the sums.
                tile.span.write(unsafe { partials.part(at, Softmax::numbers(item.states(), padded)) });
                return;
            }
            join(self.isa, &mut tile.total, &tile.span);
        }
        self.store(row, item, &tile.total);
    }

    fn load_queries(&self, row: &QueryRow<'_>, item: &Item, tile: &mut Tile) {
        let (dim, padded) = (self.kv.shape.head_dim, self.kv.shape.padded());
        tile.q.clear();
        tile.q.resize(item.states() * padded, 0);
        tile.q_scales.clear();
        tile.limits.clear();
        tile.limits.extend(item.queries.clone().map(|query| self.limit(row, query)));
        for ((kv_head, query), to) in item.each().zip(tile.q.chunks_exact_mut(padded)) {
            let (token, head) = self.place(row, kv_head, query);
            let q = &self.q[token * self.width + head * dim..][..dim];
            let mut size = 0.0;
            let (isa, out) = (self.isa, &mut size);
            vectorised!(
                isa,
                fn body(q: &[f32], to: &mut [i16], out: &mut f32) {
                    *out = norm(q);
                    let factor = inverse(*out, 32_767.0);
                    for (to, q) in to.iter_mut().zip(q) {
                        *to = rounded(*q, factor) as i16;
                    }
                }
            );
            tile.q_scales.push(size / 32_767.0 / (dim as f32).sqrt());
        }
    }

    /// The positions from `from` on, of one chunk.
    fn chunk(&self, row: &QueryRow<'_>, item: &Item, from: usize, tile: &mut Tile) {
        let (padded, first) = (self.kv.shape.padded(), from / BLOCK);
        // Past the end of the table stands its last block, whose scores are masked.
        let block = |b: usize| row.blocks[(first + b).min(row.blocks.len() - 1)];
        // Queries are in order of their position, so those that see nothing here come first.
        let unseeing = tile.limits.partition_point(|limit| *limit <= from);
        tile.sums.resize(QUERIES * padded, 0);
        let blocks = |first: usize, head| std::array::from_fn(|b| self.kv.head(block(first + b), head));
        let narrow = item.queries.len() <= NARROW;
        for (h, head) in item.heads.clone().enumerate() {
            // Few queries wait for memory: what comes next is asked for while this is multiplied.
            let next = match head + 1 {
                _ if !narrow => blocks(0, head),
                next if next < item.heads.end => blocks(0, next),
                _ => blocks(BLOCKS, item.heads.start),
            };
            let chunk = Chunk { blocks: blocks(0, head), next };
            self.head(tile, &chunk, from, (h * item.queries.len(), unseeing..item.queries.len()));
        }
    }

    /// One KV head's part of a chunk, for the queries whose states begin at `base`.
    fn head(&self, tile: &mut Tile, chunk: &Chunk<'a>, from: usize, (base, queries): (usize, Range<usize>)) {
        let (isa, format, padded) = (self.isa, self.kv.format, self.kv.shape.padded());
        let mut scales = Scales { keys: [0.0; CHUNK], values: [0.0; CHUNK] };
        for (b, block) in chunk.blocks.iter().enumerate() {
            scales.keys[b * BLOCK..(b + 1) * BLOCK].copy_from_slice(block.key_scales);
            scales.values[b * BLOCK..(b + 1) * BLOCK].copy_from_slice(block.value_scales);
        }
        let (mut dots, mut weights) = ([[0i32; CHUNK]; QUERIES], [[0i16; CHUNK]; QUERIES]);
        for at in queries.clone().step_by(QUERIES) {
            let n = QUERIES.min(queries.end - at);
            let q = &tile.q[(base + at) * padded..(base + at + n) * padded];
            dots::scores(isa, format, q, padded, chunk, &mut dots[..n]);
            for i in 0..n {
                let seen = tile.limits[at + i].saturating_sub(from).min(CHUNK);
                let query = base + at + i;
                let dots = (&dots[i], tile.q_scales[query]);
                tile.span.weigh(isa, query, dots, &scales, seen, &mut weights[i]);
            }
            let sums = &mut tile.sums[..n * padded];
            dots::mix(isa, format, &weights[..n], padded, chunk, sums);
            for (i, sums) in sums.chunks_exact(padded).enumerate() {
                tile.span.add(isa, base + at + i, sums);
            }
        }
    }

    fn store(&self, row: &QueryRow<'_>, item: &Item, total: &Softmax) {
        let (dim, heads) = (self.kv.shape.head_dim, self.kv.shape.heads);
        for (state, (kv_head, query)) in item.each().enumerate() {
            let (token, head) = self.place(row, kv_head, query);
            // SAFETY: one item owns a (token, head), and each is written once.
            let out = unsafe { self.out.part((token * heads + head) * dim, dim) };
            total.read(state, out);
        }
    }

    /// Joins the spans that were summed apart.
    fn join(&self, items: &[Item], sums: &[f32]) {
        let padded = self.kv.shape.padded();
        let (mut total, mut span) = (Softmax::default(), Softmax::default());
        for item in items {
            let Some(at) = item.partial else { continue };
            let (row, count) = (&self.rows[item.row], item.states());
            if item.spans.start == 0 {
                total.clear(count, padded);
            }
            span.load(count, padded, &sums[at..at + Softmax::numbers(count, padded)]);
            join(self.isa, &mut total, &span);
            if item.spans.end == self.limit(row, item.queries.end - 1).div_ceil(SPAN) {
                self.store(row, item, &total);
            }
        }
    }
}
