//! How do weights lie in memory? Panels of 16 output columns, made for one multiply instruction, lossless.

use crate::format::{Format, FormatError, Group, GroupShape, dequantize_row, split_block};

/// Output columns in a panel: the lanes of a 512-bit register.
pub(crate) const LANES: usize = 16;

/// A weight matrix, ready to be multiplied: `rows` outputs by `cols` inputs.
///
/// Quantised tensors keep every value of their file: `scale * (q - offset) + min`, with q unsigned, since VNNI
/// multiplies unsigned by signed bytes. Float tensors become f32.
pub struct Matrix {
    rows: usize,
    cols: usize,
    pub(crate) data: Packed,
}

pub(crate) enum Packed {
    Int8(PackedInt8),
    Float(PackedFloat),
}

/// Quantised panels. For panel p and group g of `shape.len` inputs, bytes stand as `[input / 4][lane][input % 4]`.
pub(crate) struct PackedInt8 {
    pub(crate) shape: GroupShape,
    pub(crate) q: Vec<u8>,
    /// `[panel][group][lane]`.
    pub(crate) scales: Vec<f32>,
    /// As `scales`; empty when the format has no minimums.
    pub(crate) mins: Vec<f32>,
}

/// f32 panels: `[panel][input][lane]`.
pub(crate) struct PackedFloat {
    pub(crate) values: Vec<f32>,
}

impl Matrix {
    /// Packs `rows` x `cols` elements of `format` (row-major, as in a GGUF tensor).
    ///
    /// # Errors
    /// When the bytes do not hold that shape.
    pub fn pack(format: Format, rows: usize, cols: usize, bytes: &[u8]) -> Result<Self, FormatError> {
        let row_bytes = format.check(rows, cols, bytes.len())?;
        rows.checked_mul(cols).filter(|n| *n < 1 << 40).ok_or(FormatError::BadShape { rows, cols })?;
        let data = match format.groups() {
            Some(shape) => Packed::Int8(pack_int8(format, shape, rows, cols, bytes, row_bytes)),
            None => {
                let mut values = vec![0.0; rows.div_ceil(LANES) * LANES * cols];
                let mut row = vec![0.0; cols];
                for (r, raw) in bytes.chunks_exact(row_bytes).enumerate() {
                    dequantize_row(format, raw, &mut row)?;
                    let panel = &mut values[r / LANES * LANES * cols..];
                    for (k, value) in row.iter().enumerate() {
                        panel[k * LANES + r % LANES] = *value;
                    }
                }
                Packed::Float(PackedFloat { values })
            }
        };
        Ok(Self { rows, cols, data })
    }

    /// Packs `rows` x `cols` f32 values (row-major) without quantising them.
    ///
    /// # Errors
    /// When the values do not hold that shape.
    pub fn pack_f32(rows: usize, cols: usize, values: &[f32]) -> Result<Self, FormatError> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self::pack(Format::F32, rows, cols, &bytes)
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Panels of 16 outputs; the last may be partly filled.
    pub(crate) fn panels(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// Bytes that the packed weights take.
    pub fn bytes(&self) -> usize {
        match &self.data {
            Packed::Int8(w) => w.q.len() + 4 * (w.scales.len() + w.mins.len()),
            Packed::Float(w) => 4 * w.values.len(),
        }
    }

    /// Writes row `row` as f32 to `out` (length `cols`); the reference operations read weights this way.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows && out.len() == self.cols, "row {row} of {} x {}", self.rows, self.cols);
        let (panel, lane) = (row / LANES, row % LANES);
        match &self.data {
            Packed::Float(w) => {
                let from = panel * LANES * self.cols;
                for (k, value) in out.iter_mut().enumerate() {
                    *value = w.values[from + k * LANES + lane];
                }
            }
            Packed::Int8(w) => {
                let groups = self.cols / w.shape.len;
                for (k, value) in out.iter_mut().enumerate() {
                    let q = w.q[panel * LANES * self.cols + k / 4 * 4 * LANES + lane * 4 + k % 4];
                    let at = (panel * groups + k / w.shape.len) * LANES + lane;
                    let min = w.mins.get(at).copied().unwrap_or(0.0);
                    *value = w.scales[at] * (i32::from(q) - w.shape.offset) as f32 + min;
                }
            }
        }
    }
}

fn pack_int8(
    format: Format,
    shape: GroupShape,
    rows: usize,
    cols: usize,
    bytes: &[u8],
    row_bytes: usize,
) -> PackedInt8 {
    let (panels, groups) = (rows.div_ceil(LANES), cols / shape.len);
    let (block, block_bytes) = format.block();
    let mut packed = PackedInt8 {
        shape,
        q: vec![0; panels * LANES * cols],
        scales: vec![0.0; panels * groups * LANES],
        mins: vec![0.0; if shape.has_min { panels * groups * LANES } else { 0 }],
    };
    let (mut q, mut parts): ([u8; 256], Vec<Group>) = ([0; 256], Vec::with_capacity(16));
    for (r, row) in bytes.chunks_exact(row_bytes).enumerate() {
        let (panel, lane) = (r / LANES, r % LANES);
        let panel_q = &mut packed.q[panel * LANES * cols..(panel + 1) * LANES * cols];
        for (b, raw) in row.chunks_exact(block_bytes).enumerate() {
            split_block(format, raw, &mut q, &mut parts);
            for (quad, values) in q[..block].chunks_exact(4).enumerate() {
                let at = (b * block / 4 + quad) * 4 * LANES + lane * 4;
                panel_q[at..at + 4].copy_from_slice(values);
            }
            for (g, part) in parts.iter().enumerate() {
                let at = (panel * groups + b * block / shape.len + g) * LANES + lane;
                packed.scales[at] = part.scale;
                if shape.has_min {
                    packed.mins[at] = part.min;
                }
            }
        }
    }
    packed
}
