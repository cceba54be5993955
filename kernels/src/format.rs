//! What do a GGUF tensor's bytes mean? Block layouts and their exact values.
//!
//! Layouts as in ggml's `ggml-common.h` (MIT); the arithmetic is checked in tests against candle's own decoder.

use crate::buffer::OutOfMemory;
use half::{bf16, f16};
use thiserror::Error;

/// Element type of a GGUF tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are ggml's own")]
pub enum Format {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4K,
    Q5K,
    Q6K,
}

/// Bytes that do not fit their declared format.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// Rows are made of whole blocks.
    #[error("a row of {cols} elements is no multiple of {format:?}'s block of {block}")]
    RaggedRow {
        /// The format.
        format: Format,
        /// Elements in the row.
        cols: usize,
        /// Elements in a block.
        block: usize,
    },
    /// Too few or too many bytes.
    #[error("{format:?} tensor of {rows} x {cols} needs {needed} bytes and has {found}")]
    WrongLength {
        /// The format.
        format: Format,
        /// Rows.
        rows: usize,
        /// Columns.
        cols: usize,
        /// Bytes needed.
        needed: usize,
        /// Bytes found.
        found: usize,
    },
    /// A scale, or a weight itself, that is no number.
    #[error("the tensor holds a scale or a weight that is not a finite number")]
    ScaleNotFinite,
    /// Memory is short.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// A shape that cannot be multiplied.
    #[error("a matrix of {rows} x {cols} is empty or too large")]
    BadShape {
        /// Rows.
        rows: usize,
        /// Columns.
        cols: usize,
    },
}

impl Format {
    /// Elements and bytes of one block.
    pub fn block(self) -> (usize, usize) {
        match self {
            Format::F32 => (1, 4),
            Format::F16 | Format::Bf16 => (1, 2),
            Format::Q4_0 => (32, 18),
            Format::Q4_1 => (32, 20),
            Format::Q5_0 => (32, 22),
            Format::Q5_1 => (32, 24),
            Format::Q8_0 => (32, 34),
            Format::Q4K => (256, 144),
            Format::Q5K => (256, 176),
            Format::Q6K => (256, 210),
        }
    }

    /// Bytes of a row of `cols` elements.
    ///
    /// # Errors
    /// When the row is not made of whole blocks.
    pub fn row_bytes(self, cols: usize) -> Result<usize, FormatError> {
        let (block, bytes) = self.block();
        if cols == 0 || !cols.is_multiple_of(block) {
            return Err(FormatError::RaggedRow { format: self, cols, block });
        }
        (cols / block).checked_mul(bytes).ok_or(FormatError::RaggedRow { format: self, cols, block })
    }

    /// Checks that `found` bytes hold `rows` x `cols` elements; returns the bytes of one row.
    ///
    /// # Errors
    /// When they do not, or the row is ragged.
    pub fn check(self, rows: usize, cols: usize, found: usize) -> Result<usize, FormatError> {
        let row = self.row_bytes(cols)?;
        let needed = row.checked_mul(rows).ok_or(FormatError::BadShape { rows, cols })?;
        if rows == 0 || needed != found {
            return Err(FormatError::WrongLength { format: self, rows, cols, needed, found });
        }
        Ok(row)
    }
}

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// A run of quantised values: `value = scale * (q - offset) + min`.
pub(crate) struct Group {
    pub(crate) scale: f32,
    pub(crate) min: f32,
}

/// Splits one block into unsigned values below 256 and the scale and minimum of each group of `group_len()` values.
/// `q` receives the block's elements in order. Symmetric formats have `min` = 0 and a constant offset.
pub(crate) fn split_block(format: Format, bytes: &[u8], q: &mut [u8], groups: &mut Vec<Group>) {
    groups.clear();
    match format {
        Format::Q4_0 | Format::Q4_1 => {
            let four_one = format == Format::Q4_1;
            let qs = &bytes[if four_one { 4 } else { 2 }..];
            for j in 0..16 {
                q[j] = qs[j] & 15;
                q[j + 16] = qs[j] >> 4;
            }
            groups.push(Group {
                scale: half_at(bytes, 0),
                min: if four_one { half_at(bytes, 2) } else { 0.0 },
            });
        }
        Format::Q5_0 | Format::Q5_1 => {
            let five_one = format == Format::Q5_1;
            let head = if five_one { 4 } else { 2 };
            let high = u32::from_le_bytes([bytes[head], bytes[head + 1], bytes[head + 2], bytes[head + 3]]);
            let qs = &bytes[head + 4..];
            for j in 0..16 {
                q[j] = (qs[j] & 15) | (((high >> j) & 1) as u8) << 4;
                q[j + 16] = (qs[j] >> 4) | (((high >> (j + 16)) & 1) as u8) << 4;
            }
            groups.push(Group {
                scale: half_at(bytes, 0),
                min: if five_one { half_at(bytes, 2) } else { 0.0 },
            });
        }
        Format::Q8_0 => {
            for j in 0..32 {
                q[j] = bytes[2 + j] ^ 0x80; // two's complement to offset 128
            }
            groups.push(Group { scale: half_at(bytes, 0), min: 0.0 });
        }
        Format::Q4K | Format::Q5K => split_k45(format, bytes, q, groups),
        Format::Q6K => split_k6(bytes, q, groups),
        Format::F32 | Format::F16 | Format::Bf16 => {}
    }
}

/// The eight 6-bit scales and minimums that Q4_K and Q5_K pack into 12 bytes.
fn k_scale_min(j: usize, s: &[u8]) -> (f32, f32) {
    let (scale, min) = if j < 4 {
        (s[j] & 63, s[j + 4] & 63)
    } else {
        ((s[j + 4] & 15) | ((s[j - 4] >> 6) << 4), (s[j + 4] >> 4) | ((s[j] >> 6) << 4))
    };
    (f32::from(scale), f32::from(min))
}

fn split_k45(format: Format, bytes: &[u8], q: &mut [u8], groups: &mut Vec<Group>) {
    let (d, dmin) = (half_at(bytes, 0), half_at(bytes, 2));
    let scales = &bytes[4..16];
    let five = format == Format::Q5K;
    let (high, low) = if five { (&bytes[16..48], &bytes[48..176]) } else { (&bytes[..0], &bytes[16..144]) };
    for pair in 0..4 {
        for l in 0..32 {
            let byte = low[pair * 32 + l];
            let bit = |shift: usize| if five { ((high[l] >> shift) & 1) << 4 } else { 0 };
            q[pair * 64 + l] = (byte & 15) | bit(2 * pair);
            q[pair * 64 + 32 + l] = (byte >> 4) | bit(2 * pair + 1);
        }
        for half in 0..2 {
            let (scale, min) = k_scale_min(2 * pair + half, scales);
            groups.push(Group { scale: d * scale, min: -(dmin * min) });
        }
    }
}

fn split_k6(bytes: &[u8], q: &mut [u8], groups: &mut Vec<Group>) {
    let d = half_at(bytes, 208);
    for part in 0..2 {
        let (ql, qh) = (&bytes[part * 64..part * 64 + 64], &bytes[128 + part * 32..160 + part * 32]);
        let out = &mut q[part * 128..part * 128 + 128];
        for l in 0..32 {
            out[l] = (ql[l] & 15) | (qh[l] & 3) << 4;
            out[l + 32] = (ql[l + 32] & 15) | ((qh[l] >> 2) & 3) << 4;
            out[l + 64] = (ql[l] >> 4) | ((qh[l] >> 4) & 3) << 4;
            out[l + 96] = (ql[l + 32] >> 4) | ((qh[l] >> 6) & 3) << 4;
        }
    }
    for scale in &bytes[192..208] {
        groups.push(Group { scale: d * f32::from(*scale as i8), min: 0.0 });
    }
}

/// Shape of a quantised format's groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupShape {
    /// Values that share a scale: 16 or 32.
    pub(crate) len: usize,
    /// What to subtract from the unsigned value.
    pub(crate) offset: i32,
    /// Does each group have a minimum of its own?
    pub(crate) has_min: bool,
}

impl Format {
    /// `None` for float formats.
    pub(crate) fn groups(self) -> Option<GroupShape> {
        let (len, offset, has_min) = match self {
            Format::Q4_0 => (32, 8, false),
            Format::Q5_0 => (32, 16, false),
            Format::Q8_0 => (32, 128, false),
            Format::Q6K => (16, 32, false),
            Format::Q4_1 | Format::Q5_1 | Format::Q4K | Format::Q5K => (32, 0, true),
            Format::F32 | Format::F16 | Format::Bf16 => return None,
        };
        Some(GroupShape { len, offset, has_min })
    }
}

/// Writes the exact values of a row (`bytes` of whole blocks) to `out`.
///
/// # Errors
/// When the lengths do not match.
pub fn dequantize_row(format: Format, bytes: &[u8], out: &mut [f32]) -> Result<(), FormatError> {
    format.check(1, out.len(), bytes.len())?;
    let (block, block_bytes) = format.block();
    let Some(shape) = format.groups() else {
        for (value, raw) in out.iter_mut().zip(bytes.chunks_exact(block_bytes)) {
            *value = match format {
                Format::F16 => half_at(raw, 0),
                Format::Bf16 => bf16::from_le_bytes([raw[0], raw[1]]).to_f32(),
                _ => f32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]),
            };
        }
        return Ok(());
    };
    let (mut q, mut groups) = ([0u8; 256], Vec::with_capacity(16));
    for (values, raw) in out.chunks_exact_mut(block).zip(bytes.chunks_exact(block_bytes)) {
        split_block(format, raw, &mut q, &mut groups);
        for ((value, q), at) in values.iter_mut().zip(&q).zip(0..) {
            let group = &groups[at / shape.len];
            *value = group.scale * (i32::from(*q) - shape.offset) as f32 + group.min;
        }
    }
    Ok(())
}
