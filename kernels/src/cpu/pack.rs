//! How do weights lie in memory? Panels of 32 outputs at the width of their file, in the order in which a multiply
//! instruction takes them.

use crate::buffer::{Buffer, LINE, view};
use crate::format::{Format, FormatError, Group, GroupShape, dequantize_row, split_block};
use half::f16;

/// Lanes of a 512-bit register of f32.
pub(crate) const LANES: usize = 16;

/// Outputs of a panel: two registers, so that each load of an activation serves two multiplications.
pub(crate) const PANEL: usize = 2 * LANES;

/// Inputs of a unit: those that share one scale of the activations.
pub(crate) const UNIT: usize = 32;

/// A weight matrix, ready to be multiplied: `rows` outputs by `cols` inputs.
///
/// Quantised tensors keep every value of their file, `scale * (q - offset) + min`, at its width. Scales and minimums are
/// kept as f16: exact for the formats that store them so; where the file multiplies two numbers (the K formats) the
/// product is rounded to f16, a relative error of at most 2^-11. F16 and BF16 stay as they are.
pub struct Matrix {
    rows: usize,
    cols: usize,
    pub(crate) data: Packed,
}

pub(crate) enum Packed {
    Int(PackedInt),
    Float(PackedFloat),
}

/// Quantised panels. A panel is one record per unit, so that a decode reads memory in one stream: low bits, high bits,
/// scales, minimums.
///
/// A step is four inputs of 32 outputs: two registers of `[output][input % 4]`, for outputs 0..16 and 16..32.
/// - low bits, `[step]`: one register, whose byte holds the first register's nibble low and the second's high;
///   8-bit weights: two registers of two's complement;
/// - high bits: see [`high_lines`];
/// - scales, then minimums: f16, `[part of the unit][output]`.
pub(crate) struct PackedInt {
    pub(crate) shape: GroupShape,
    /// Bits of a weight: 4, 5, 6 or 8.
    pub(crate) bits: usize,
    /// Scales and minimums are kept times this power of two, so that small products of two scales stay precise.
    pub(crate) scale_factor: f32,
    pub(crate) record: Record,
    /// Units of a panel.
    pub(crate) units: usize,
    pub(crate) bytes: Buffer,
}

/// Where the parts of a unit's record begin, in bytes; low bits come first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Record {
    pub(crate) high: usize,
    pub(crate) scales: usize,
    pub(crate) mins: usize,
    pub(crate) len: usize,
}

/// Float panels: `[input][output]` of 2 or 4 bytes each.
pub(crate) struct PackedFloat {
    pub(crate) format: Format,
    pub(crate) bytes: Buffer,
}

impl Matrix {
    /// Packs `rows` x `cols` elements of `format` (row-major, as in a GGUF tensor).
    ///
    /// # Errors
    /// When the bytes do not hold that shape, a scale is not finite, or memory is short.
    pub fn pack(format: Format, rows: usize, cols: usize, bytes: &[u8]) -> Result<Self, FormatError> {
        let row_bytes = format.check(rows, cols, bytes.len())?;
        rows.checked_mul(cols).filter(|n| *n < 1 << 40).ok_or(FormatError::BadShape { rows, cols })?;
        let data = match format.groups() {
            Some(shape) => Packed::Int(PackedInt::pack(format, shape, cols, bytes, row_bytes)?),
            None => Packed::Float(PackedFloat::pack(format, cols, bytes, row_bytes)?),
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

    /// Packs `rows` x `cols` f32 values (row-major) in 8 bits, with one scale for each 32 inputs of an output, as Q8_0 has
    /// it.
    ///
    /// # Errors
    /// When the values do not hold that shape, or are not finite.
    pub fn pack_eight(rows: usize, cols: usize, values: &[f32]) -> Result<Self, FormatError> {
        let mut bytes = Vec::with_capacity(values.len() / UNIT * (UNIT + 2));
        for unit in values.chunks(UNIT) {
            // A maximum would pass over what is no number.
            if !unit.iter().all(|x| x.is_finite()) {
                return Err(FormatError::ScaleNotFinite);
            }
            let top = unit.iter().fold(0f32, |top, x| top.max(x.abs()));
            let scale = f16::from_f32(top / 127.0);
            bytes.extend_from_slice(&half(scale.to_f32())?);
            let inverse = if top > 0.0 { 1.0 / scale.to_f32() } else { 0.0 };
            // A very small scale is rounded by much, so the largest may lie outside.
            bytes.extend(unit.iter().map(|x| super::kv::rounded(*x * inverse, 1.0).clamp(-127, 127) as u8));
        }
        Self::pack(Format::Q8_0, rows, cols, &bytes)
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Does a product with it take quantised activations?
    pub fn is_quantised(&self) -> bool {
        matches!(self.data, Packed::Int(_))
    }

    /// Panels of 32 outputs; the last may be partly filled.
    pub(crate) fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL)
    }

    /// Bytes that the packed weights take.
    pub fn bytes(&self) -> usize {
        match &self.data {
            Packed::Int(w) => w.bytes.bytes().len(),
            Packed::Float(w) => w.bytes.bytes().len(),
        }
    }

    /// Writes row `row` as f32 to `out` (length `cols`); the reference operations read weights this way.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows && out.len() == self.cols, "row {row} of {} x {}", self.rows, self.cols);
        match &self.data {
            Packed::Int(w) => w.row(row, out),
            Packed::Float(w) => {
                for (k, value) in out.iter_mut().enumerate() {
                    *value = w.value((row / PANEL * self.cols + k) * PANEL + row % PANEL);
                }
            }
        }
    }
}

impl PackedFloat {
    fn pack(format: Format, cols: usize, bytes: &[u8], row_bytes: usize) -> Result<Self, FormatError> {
        let size = format.block().1;
        // The paths turn f16 into f32 by arithmetic that holds for numbers alone.
        if format == Format::F16 && bytes.chunks_exact(2).any(|half| half[1] & 0x7c == 0x7c) {
            return Err(FormatError::ScaleNotFinite);
        }
        let panels = (bytes.len() / row_bytes).div_ceil(PANEL);
        let mut packed = Buffer::zeroed(panels * PANEL * cols * size)?;
        let out = packed.bytes_mut();
        for (r, row) in bytes.chunks_exact(row_bytes).enumerate() {
            let first = (r / PANEL * cols * PANEL + r % PANEL) * size;
            for (k, value) in row.chunks_exact(size).enumerate() {
                let at = first + k * PANEL * size;
                out[at..at + size].copy_from_slice(value);
            }
        }
        Ok(Self { format, bytes: packed })
    }

    fn value(&self, at: usize) -> f32 {
        let (size, mut out) = (self.format.block().1, [0.0]);
        let raw = &self.bytes.bytes()[at * size..(at + 1) * size];
        // One element of a float format always fits.
        let _ = dequantize_row(self.format, raw, &mut out);
        out[0]
    }
}

/// Largest magnitude that scales are moved to when they are not f16 in the file.
const SCALE_TOP_LOG2: f32 = 14.0;

impl PackedInt {
    fn pack(
        format: Format,
        shape: GroupShape,
        cols: usize,
        bytes: &[u8],
        row_bytes: usize,
    ) -> Result<Self, FormatError> {
        let panels = (bytes.len() / row_bytes).div_ceil(PANEL);
        let bits = match format {
            Format::Q4_0 | Format::Q4_1 | Format::Q4K => 4,
            Format::Q5_0 | Format::Q5_1 | Format::Q5K => 5,
            Format::Q6K => 6,
            _ => 8,
        };
        let (record, units) = (Record::of(bits, shape), cols / UNIT);
        let bytes_needed = panels * units * record.len;
        let mut new =
            Self { shape, bits, scale_factor: 1.0, record, units, bytes: Buffer::zeroed(bytes_needed)? };
        if matches!(format, Format::Q4K | Format::Q5K | Format::Q6K) {
            let top = largest_scale(format, bytes);
            if top > 0.0 {
                new.scale_factor = (SCALE_TOP_LOG2 - top.log2().floor()).clamp(-60.0, 60.0).exp2();
            }
        }
        for (r, row) in bytes.chunks_exact(row_bytes).enumerate() {
            new.pack_row(format, r, row)?;
        }
        Ok(new)
    }

    fn pack_row(&mut self, format: Format, r: usize, row: &[u8]) -> Result<(), FormatError> {
        let (block, block_bytes) = format.block();
        let (mut q, mut parts): ([u8; 256], Vec<Group>) = ([0; 256], Vec::with_capacity(16));
        let (lane, groups) = (r % PANEL, UNIT / self.shape.len);
        let (bits, record, offset, factor) = (self.bits, self.record, self.shape.offset, self.scale_factor);
        let has_min = self.shape.has_min;
        let mut records = self.panel_mut(r / PANEL).chunks_exact_mut(record.len);
        for raw in row.chunks_exact(block_bytes) {
            split_block(format, raw, &mut q, &mut parts);
            for (q, parts) in q[..block].as_chunks::<UNIT>().0.iter().zip(parts.chunks_exact(groups)) {
                let Some(unit) = records.next() else { break };
                put_low(&mut unit[..record.high], bits, offset, lane, q);
                put_high(&mut unit[record.high..record.scales], bits, lane, q);
                for (g, part) in parts.iter().enumerate() {
                    let at = (g * PANEL + lane) * 2;
                    unit[record.scales + at..][..2].copy_from_slice(&half(part.scale * factor)?);
                    if has_min {
                        unit[record.mins + at..][..2].copy_from_slice(&half(part.min * factor)?);
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn panel(&self, panel: usize) -> &[u8] {
        let len = self.units * self.record.len;
        &self.bytes.bytes()[panel * len..(panel + 1) * len]
    }

    fn panel_mut(&mut self, panel: usize) -> &mut [u8] {
        let len = self.units * self.record.len;
        &mut self.bytes.bytes_mut()[panel * len..(panel + 1) * len]
    }

    fn row(&self, row: usize, out: &mut [f32]) {
        let (lane, record) = (row % PANEL, self.record);
        let units = self.panel(row / PANEL).chunks_exact(record.len);
        for (unit, values) in units.zip(out.as_chunks_mut::<UNIT>().0) {
            for (k, value) in values.iter_mut().enumerate() {
                let q = get(&unit[..record.high], &unit[record.high..record.scales], self.bits, lane, k);
                let q = if self.bits == 8 { i32::from(q as i8) } else { i32::from(q) - self.shape.offset };
                let at = k / self.shape.len * PANEL + lane;
                let number =
                    |halves: &[u8]| f16::from_bits(view::<u16>(halves)[at]).to_f32() / self.scale_factor;
                let min = if self.shape.has_min { number(&unit[record.mins..]) } else { 0.0 };
                *value = number(&unit[record.scales..]) * q as f32 + min;
            }
        }
    }
}

impl Record {
    fn of(bits: usize, shape: GroupShape) -> Self {
        let high = if bits == 8 { UNIT * PANEL } else { UNIT * PANEL / 2 };
        let scales = high + high_lines(bits) * LINE;
        let numbers = UNIT / shape.len * PANEL * 2;
        let mins = scales + numbers;
        Self { high, scales, mins, len: if shape.has_min { mins + numbers } else { mins } }
    }
}

/// Lines of high bits of a unit.
///
/// Fifth bits: a line for each register of the step; bit s of a byte belongs to step s. Fifth and sixth: two lines for each
/// register, for steps 0..4 and 4..8; bits 2s and 2s + 1 of a byte belong to step s % 4.
fn high_lines(bits: usize) -> usize {
    match bits {
        5 => 2,
        6 => 4,
        _ => 0,
    }
}

fn half(value: f32) -> Result<[u8; 2], FormatError> {
    let half = f16::from_f32(value);
    if half.is_finite() { Ok(half.to_le_bytes()) } else { Err(FormatError::ScaleNotFinite) }
}

fn largest_scale(format: Format, bytes: &[u8]) -> f32 {
    let (mut q, mut parts) = ([0; 256], Vec::with_capacity(16));
    bytes.chunks_exact(format.block().1).fold(0.0, |top: f32, raw| {
        split_block(format, raw, &mut q, &mut parts);
        parts.iter().fold(top, |top, part| top.max(part.scale.abs()).max(part.min.abs()))
    })
}

/// A unit's 32 values of one output.
fn put_low(low: &mut [u8], bits: usize, offset: i32, lane: usize, q: &[u8; UNIT]) {
    let (register, lane) = (lane / LANES, lane % LANES);
    for (step, four) in q.chunks_exact(4).enumerate() {
        for (i, q) in four.iter().enumerate() {
            if bits == 8 {
                // Two's complement.
                low[(step * 2 + register) * LINE + lane * 4 + i] = q.wrapping_sub(offset as u8);
            } else {
                low[step * LINE + lane * 4 + i] |= (q & 15) << (4 * register);
            }
        }
    }
}

fn put_high(high: &mut [u8], bits: usize, lane: usize, q: &[u8; UNIT]) {
    if high.is_empty() {
        return;
    }
    let (register, lane) = (lane / LANES, lane % LANES);
    for (k, q) in q.iter().enumerate() {
        let (step, at) = (k / 4, lane * 4 + k % 4);
        match bits {
            5 => high[register * LINE + at] |= (q >> 4 & 1) << step,
            6 => high[(register * 2 + step / 4) * LINE + at] |= (q >> 4 & 3) << (2 * (step % 4)),
            _ => {}
        }
    }
}

/// What [`put_low`] and [`put_high`] wrote.
fn get(low: &[u8], high: &[u8], bits: usize, lane: usize, k: usize) -> u8 {
    let (register, at, step) = (lane / LANES, lane % LANES * 4 + k % 4, k / 4);
    if bits == 8 {
        return low[(step * 2 + register) * LINE + at];
    }
    let top = match bits {
        5 => high[register * LINE + at] >> step & 1,
        6 => high[(register * 2 + step / 4) * LINE + at] >> (2 * (step % 4)) & 3,
        _ => 0,
    };
    (low[step * LINE + at] >> (4 * register) & 15) | top << 4
}
