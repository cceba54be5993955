//! Where does a token stand? Its query and key are rotated by its position's angles, and key and value go to their block.

use super::Compute;
use super::attention::{QueryRow, assert_apart};
use super::kv::{AttentionShape, BLOCK, KvPool};
use crate::pool::Shards;

/// How rotary positions pair the dimensions of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// Dimensions 2i and 2i+1, as llama GGUFs are stored.
    Interleaved,
    /// Dimensions i and i + n/2, as qwen2 GGUFs are stored.
    Halves,
}

/// Angles of positions: cosines and sines, `[position][pair]`, made as positions are first met.
pub struct Angles {
    base: f32,
    dims: usize,
    style: RopeStyle,
    table: Vec<(f32, f32)>,
}

impl Angles {
    /// For heads whose first `dims` dimensions rotate with frequencies `base^(-2 i / dims)`.
    pub fn new(base: f32, dims: usize, style: RopeStyle) -> Self {
        Self { base, dims, style, table: Vec::new() }
    }

    /// Makes the angles of all positions below `positions`.
    pub fn reach(&mut self, positions: usize) {
        let half = self.dims / 2;
        let known = self.table.len() / half.max(1);
        for position in known..positions {
            self.table.extend((0..half).map(|i| {
                // In f64: at position 30,000 an f32 angle is off by a thousandth of a turn.
                let exponent = -2.0 * i as f64 / self.dims as f64;
                let angle = position as f64 * f64::from(self.base).powf(exponent);
                (angle.cos() as f32, angle.sin() as f32)
            }));
        }
    }

    fn of(&self, position: usize) -> &[(f32, f32)] {
        let half = self.dims / 2;
        &self.table[position * half..(position + 1) * half]
    }

    /// Rotates every head of `x`.
    fn turn(&self, x: &mut [f32], head_dim: usize, position: usize) {
        let angles = self.of(position);
        for head in x.chunks_exact_mut(head_dim) {
            match self.style {
                RopeStyle::Interleaved => {
                    for (pair, (cos, sin)) in head.as_chunks_mut::<2>().0.iter_mut().zip(angles) {
                        let [u, v] = *pair;
                        *pair = [u * cos - v * sin, u * sin + v * cos];
                    }
                }
                RopeStyle::Halves => {
                    let (first, second) = head.split_at_mut(angles.len());
                    for ((a, b), (cos, sin)) in first.iter_mut().zip(second).zip(angles) {
                        (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
                    }
                }
            }
        }
    }
}

/// Rotates queries and keys in `qkv` (`[token][q heads, k heads, v heads][dim]`), in place, and stores keys and values in
/// the blocks of their rows. Without `angles` nothing is rotated.
///
/// # Panics
/// When a row reaches outside its blocks, `qkv`, or the positions that `angles` reaches: a defect in the caller.
pub fn rope_and_store(
    compute: &mut Compute,
    angles: Option<&Angles>,
    kv: &mut KvPool,
    layer: usize,
    rows: &[QueryRow<'_>],
    qkv: &mut [f32],
) {
    let shape = kv.shape();
    let (q_len, k_len) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    let width = shape.qkv_width();
    // A row's tokens in one block: one item, since a block is written by one thread.
    let mut items: Vec<(&QueryRow<'_>, usize, usize)> = Vec::new();
    for row in rows {
        let (mut from, end) = (row.start, row.start + row.tokens);
        assert!(end <= row.blocks.len() * BLOCK, "a row reaches outside its blocks");
        while from < end {
            let to = end.min((from / BLOCK + 1) * BLOCK);
            items.push((row, from, to));
            from = to;
        }
    }
    let mut written: Vec<u32> = items.iter().map(|(row, from, _)| row.blocks[from / BLOCK]).collect();
    written.sort_unstable();
    assert!(written.windows(2).all(|pair| pair[0] != pair[1]), "two rows write one block");
    assert_apart(rows);
    let isa = compute.isa;
    let (blocks, qkv) = (kv.layer_mut(layer), Shards::new(qkv));
    compute.rows(items.len(), width * AttentionShape::BLOCK_TOKENS, &|at| {
        let (row, from, to) = items[at];
        // SAFETY: no two items write one block, as asserted.
        let mut block = unsafe { blocks.block(row.blocks[from / BLOCK]) };
        for position in from..to {
            // SAFETY: each token belongs to one item, as rows are apart.
            let token = unsafe { qkv.part((row.first + position - row.start) * width, width) };
            let (turning, v) = token.split_at_mut(q_len + k_len);
            if let Some(angles) = angles {
                angles.turn(turning, shape.head_dim, position);
            }
            block.store(isa, position % BLOCK, &turning[q_len..], v);
        }
    });
}
