//! How are keys and values kept? In blocks of 16 positions, as integers that the attention multiplies as they lie.
//!
//! Each position's key and value of a head is a vector of integers with one f32 scale. In 16 bits a key is as long
//! (in the Euclidean norm) as 32,767 allows and a value's largest element is 32,767; in 8 bits each one's largest
//! element is 127. Queries get the length of a 16-bit key, so a product of both is below 2^31 for any head dimension
//! (Cauchy and Schwarz), and its error is about that of f16: both is checked in tests.

use super::pack::LANES;
use super::vectorised;
use crate::Isa;
use crate::buffer::{Buffer, OutOfMemory, view, view_mut};
use crate::pool::Shards;

/// Positions in a KV block: the lanes of a 512-bit register, so that a block's scores are one vector.
pub(crate) const BLOCK: usize = LANES;

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
    /// Positions in a block; the layout is made for this number.
    pub const BLOCK_TOKENS: usize = BLOCK;

    /// Dimensions with padding to whole registers; what pads is zero.
    pub(crate) fn padded(self) -> usize {
        self.head_dim.next_multiple_of(LANES)
    }

    /// Width of a row that holds queries, keys and values.
    pub fn qkv_width(self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }
}

/// In how many bits an element of a key or value is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// 16 bits: no loss that shows beside f16.
    #[default]
    Bits16,
    /// 8 bits: half the memory and half the bytes that a decode reads, with a loss to be measured for each model.
    Bits8,
}

impl KvFormat {
    pub(crate) fn bytes(self) -> usize {
        match self {
            KvFormat::Bits16 => 2,
            KvFormat::Bits8 => 1,
        }
    }

    /// Bits of an element.
    pub fn bits(self) -> usize {
        8 * self.bytes()
    }

    /// Bytes of a block of 16 positions in one layer.
    pub fn block_bytes(self, shape: AttentionShape) -> usize {
        shape.kv_heads * self.head_bytes(shape)
    }

    /// One head of a block: keys `[dim / 2][position][dim % 2]`, values `[position / 2][dim][position % 2]`, then 16
    /// scales of keys and 16 of values, f32.
    fn head_bytes(self, shape: AttentionShape) -> usize {
        2 * BLOCK * shape.padded() * self.bytes() + 2 * BLOCK * size_of::<f32>()
    }
}

/// The keys and values of all layers: `[layer][block][kv head]`.
pub struct KvPool {
    shape: AttentionShape,
    format: KvFormat,
    layers: usize,
    blocks: usize,
    bytes: Buffer,
}

impl KvPool {
    /// Room for `blocks` blocks in each of `layers` layers. Pages are taken from the system as they are written.
    ///
    /// # Errors
    /// When memory is short.
    pub fn new(
        shape: AttentionShape,
        format: KvFormat,
        layers: usize,
        blocks: usize,
    ) -> Result<Self, OutOfMemory> {
        let bytes = [layers, blocks]
            .iter()
            .try_fold(format.block_bytes(shape), |product, n| product.checked_mul(*n))
            .ok_or(OutOfMemory { bytes: usize::MAX })?;
        Ok(Self { shape, format, layers, blocks, bytes: Buffer::zeroed(bytes)? })
    }

    /// Its heads.
    pub fn shape(&self) -> AttentionShape {
        self.shape
    }

    /// Makes room for at least `blocks` blocks, and forgets what was in them.
    ///
    /// # Errors
    /// When memory is short.
    pub fn reserve(&mut self, blocks: usize) -> Result<(), OutOfMemory> {
        if blocks > self.blocks {
            *self = Self::new(self.shape, self.format, self.layers, blocks)?;
        }
        Ok(())
    }

    fn layer_bytes(&self) -> usize {
        self.blocks * self.format.block_bytes(self.shape)
    }

    /// One layer, to read.
    ///
    /// # Panics
    /// When there is no such layer.
    pub fn layer(&self, layer: usize) -> KvLayer<'_> {
        assert!(layer < self.layers, "layer {layer} of {}", self.layers);
        let bytes = &self.bytes.bytes()[layer * self.layer_bytes()..][..self.layer_bytes()];
        KvLayer { shape: self.shape, format: self.format, bytes }
    }

    /// One layer's blocks, to write from several threads.
    pub(crate) fn layer_mut(&mut self, layer: usize) -> BlocksMut {
        assert!(layer < self.layers, "layer {layer} of {}", self.layers);
        let (from, len) = (layer * self.layer_bytes(), self.layer_bytes());
        let bytes = Shards::new(&mut self.bytes.bytes_mut()[from..from + len]);
        BlocksMut { shape: self.shape, format: self.format, bytes }
    }

    /// Copies a whole block over another, in every layer.
    ///
    /// # Panics
    /// When the pool has no such block: a defect in the caller, which checks its plan.
    pub fn copy(&mut self, from: u32, to: u32) {
        let (block, layer) = (self.format.block_bytes(self.shape), self.layer_bytes());
        let last = from.max(to) as usize;
        assert!(last < self.blocks, "block {last} of {}", self.blocks);
        for part in self.bytes.bytes_mut().chunks_exact_mut(layer) {
            let from = from as usize * block;
            part.copy_within(from..from + block, to as usize * block);
        }
    }

    /// Writes the key and value (`[kv head][dim]`) of one position.
    ///
    /// # Panics
    /// When the pool has no such place.
    pub fn store(&mut self, layer: usize, block: u32, slot: usize, k: &[f32], v: &[f32]) {
        let blocks = self.layer_mut(layer);
        // SAFETY: `self` is borrowed mutably, so nobody else reads or writes.
        unsafe { blocks.block(block) }.store(Isa::Portable, slot, k, v);
    }
}

/// One layer's blocks, each to be written by one thread at a time.
#[derive(Clone, Copy)]
pub(crate) struct BlocksMut {
    shape: AttentionShape,
    format: KvFormat,
    bytes: Shards<u8>,
}

impl BlocksMut {
    /// Block `block`.
    ///
    /// # Safety
    /// The pool lives, and no other thread reads or writes this block meanwhile.
    pub(crate) unsafe fn block(&self, block: u32) -> BlockMut<'_> {
        let len = self.format.block_bytes(self.shape);
        // SAFETY: the caller's contract.
        let bytes = unsafe { self.bytes.part(block as usize * len, len) };
        BlockMut { shape: self.shape, format: self.format, bytes }
    }
}

pub(crate) struct BlockMut<'a> {
    shape: AttentionShape,
    format: KvFormat,
    bytes: &'a mut [u8],
}

impl BlockMut<'_> {
    /// Writes the key and value (`[kv head][dim]`) of the position at `slot` (0 to 15).
    pub(crate) fn store(&mut self, isa: Isa, slot: usize, k: &[f32], v: &[f32]) {
        let dim = self.shape.head_dim;
        assert!(slot < BLOCK && k.len() == self.shape.kv_heads * dim && v.len() == k.len());
        let heads = self.bytes.chunks_exact_mut(self.format.head_bytes(self.shape));
        for (bytes, (k, v)) in heads.zip(k.chunks_exact(dim).zip(v.chunks_exact(dim))) {
            let (padded, format) = (self.shape.padded(), self.format);
            vectorised!(
                isa,
                fn body(
                    bytes: &mut [u8],
                    padded: usize,
                    format: KvFormat,
                    slot: usize,
                    k: &[f32],
                    v: &[f32],
                ) {
                    let (keys, rest) = bytes.split_at_mut(BLOCK * padded * format.bytes());
                    let (values, scales) = rest.split_at_mut(keys.len());
                    let scales: &mut [f32] = view_mut(scales);
                    (scales[slot], scales[BLOCK + slot]) = match format {
                        KvFormat::Bits16 => {
                            let (keys, values) = (view_mut::<i16>(keys), view_mut::<i16>(values));
                            let sizes = [(norm(k), 32_767.0), (largest(v), 32_767.0)];
                            put((keys, values), (k, v), sizes, padded, slot)
                        }
                        KvFormat::Bits8 => {
                            let (keys, values) = (view_mut::<i8>(keys), view_mut::<i8>(values));
                            let sizes = [(largest(k), 127.0), (largest(v), 127.0)];
                            put((keys, values), (k, v), sizes, padded, slot)
                        }
                    };
                }
            );
        }
    }
}

/// An element of a key or value.
trait Element: Copy {
    fn of(value: i32) -> Self;
}

impl Element for i16 {
    fn of(value: i32) -> Self {
        value as i16
    }
}

impl Element for i8 {
    fn of(value: i32) -> Self {
        value as i8
    }
}

/// `x * factor`, rounded, for magnitudes below 2^22; what is no number becomes some number.
#[inline(always)]
pub(crate) fn rounded(x: f32, factor: f32) -> i32 {
    // Adding 1.5 * 2^23 leaves the rounded number in the low bits of the mantissa.
    (x.mul_add(factor, 12_582_912.0).to_bits() as i32).wrapping_sub(0x4b40_0000)
}

/// By what a vector of size `size` is multiplied to have size `top`; a vector that is too small to be told from zero
/// becomes zero.
pub(crate) fn inverse(size: f32, top: f32) -> f32 {
    if size > 1e-30 { top / size } else { 0.0 }
}

/// Writes a key and a value, of sizes `sizes.0`, as integers of sizes `sizes.1`; returns what one step of each is worth. A
/// number that is not finite makes the step so.
#[inline(always)]
fn put<T: Element>(
    (keys, values): (&mut [T], &mut [T]),
    (k, v): (&[f32], &[f32]),
    sizes: [(f32, f32); 2],
    padded: usize,
    slot: usize,
) -> (f32, f32) {
    let [k_factor, v_factor] = sizes.map(|(size, top)| inverse(size, top));
    let pairs = keys.chunks_exact_mut(2 * BLOCK).zip(k.chunks(2));
    for (pair, k) in pairs {
        for (to, k) in pair[2 * slot..2 * slot + 2].iter_mut().zip(k) {
            *to = T::of(rounded(*k, k_factor));
        }
    }
    let row = &mut values[slot / 2 * padded * 2..][..padded * 2];
    for (pair, v) in row.as_chunks_mut::<2>().0.iter_mut().zip(v) {
        pair[slot % 2] = T::of(rounded(*v, v_factor));
    }
    let [k_step, v_step] = sizes.map(|(size, top)| size / top);
    (k_step, v_step)
}

/// Euclidean length; NaN and infinity show in it.
#[inline(always)]
pub(crate) fn norm(x: &[f32]) -> f32 {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut sums = [0f32; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            sums[lane] += chunk[lane] * chunk[lane];
        }
    }
    (sums.iter().sum::<f32>() + rest.iter().map(|x| x * x).sum::<f32>()).sqrt()
}

/// Largest magnitude; NaN and infinity show in it.
#[inline(always)]
fn largest(x: &[f32]) -> f32 {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut tops = [0f32; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            let x = chunk[lane].abs();
            // Not less rather than greater, so that a NaN is taken, and stays.
            tops[lane] = if x < tops[lane] || tops[lane].is_nan() { tops[lane] } else { x };
        }
    }
    tops.iter().chain(rest).fold(0.0, |top, x| if x.abs() < top || top.is_nan() { top } else { x.abs() })
}

/// One layer's keys and values, to read.
#[derive(Clone, Copy)]
pub struct KvLayer<'a> {
    pub(crate) shape: AttentionShape,
    pub(crate) format: KvFormat,
    bytes: &'a [u8],
}

/// One head of one block.
#[derive(Clone, Copy)]
pub(crate) struct HeadBlock<'a> {
    /// `[dim / 2][position][dim % 2]`.
    pub(crate) keys: &'a [u8],
    /// `[position / 2][dim][position % 2]`.
    pub(crate) values: &'a [u8],
    pub(crate) key_scales: &'a [f32],
    pub(crate) value_scales: &'a [f32],
}

impl<'a> KvLayer<'a> {
    pub(crate) fn head(&self, block: u32, head: usize) -> HeadBlock<'a> {
        let len = self.format.head_bytes(self.shape);
        let from = (block as usize * self.shape.kv_heads + head) * len;
        let (keys, rest) =
            self.bytes[from..from + len].split_at(BLOCK * self.shape.padded() * self.format.bytes());
        let (values, scales) = rest.split_at(keys.len());
        let (key_scales, value_scales) = view(scales).split_at(BLOCK);
        HeadBlock { keys, values, key_scales, value_scales }
    }

    fn element(&self, bytes: &[u8], at: usize) -> f32 {
        match self.format {
            KvFormat::Bits16 => f32::from(view::<i16>(bytes)[at]),
            KvFormat::Bits8 => f32::from(view::<i8>(bytes)[at]),
        }
    }

    /// Key `dim` of `position` (counted in `blocks`).
    pub fn key(&self, blocks: &[u32], position: usize, head: usize, dim: usize) -> f32 {
        let (block, slot) = (self.head(blocks[position / BLOCK], head), position % BLOCK);
        self.element(block.keys, (dim / 2 * BLOCK + slot) * 2 + dim % 2) * block.key_scales[slot]
    }

    /// Value `dim` of `position`.
    pub fn value(&self, blocks: &[u32], position: usize, head: usize, dim: usize) -> f32 {
        let (block, slot) = (self.head(blocks[position / BLOCK], head), position % BLOCK);
        let at = (slot / 2 * self.shape.padded() + dim) * 2 + slot % 2;
        self.element(block.values, at) * block.value_scales[slot]
    }
}
