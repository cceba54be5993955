//! How do packed weights become the operands of a multiply instruction? Widened to signed bytes, a piece of a panel at a
//! time, into memory that stays in the first-level cache.

use super::activations::Activations;
use super::pack::{PANEL, PackedFloat, PackedInt, UNIT};
use super::vectorised;
use crate::Isa;
use crate::buffer::{LINE, view};
use crate::format::Format;
use std::ops::Range;

/// Units of a piece: with their scales and a few rows of activations they fill a first-level cache of 48 KiB.
pub(crate) const UNITS_MAX: usize = 28;

/// Bytes of a unit's signed weights: `[step][register][output][input % 4]`.
const UNIT_BYTES: usize = UNIT * PANEL;

/// What activations are offset by to be unsigned bytes.
pub(crate) const ACT_OFFSET: i32 = 128;

type Line = [i8; LINE];

#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct Lanes<T>(pub(crate) [T; PANEL]);

/// One thread's scratch memory for pieces.
pub(crate) struct Scratch {
    weights: Vec<Lanes<i8>>,
    starts: Vec<Lanes<i32>>,
    scales: Vec<Lanes<f32>>,
    mins: Vec<Lanes<f32>>,
    floats: Vec<Lanes<f32>>,
}

/// A piece of a panel: some units of its 32 outputs.
pub(crate) struct Piece<'a> {
    /// `[unit][step][register][output][input % 4]`.
    pub(crate) weights: &'a [i8],
    /// Are all weights of at most 6 bits? Then the sum of two products with bytes fits 16 bits.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "asked by AVX2 alone"))]
    pub(crate) small: bool,
    /// `[unit][part of the unit]`: minus [`ACT_OFFSET`] times the sum of the part's weights, which the offset of the
    /// activations adds.
    pub(crate) starts: &'a [Lanes<i32>],
    /// As `starts`.
    pub(crate) scales: &'a [Lanes<f32>],
    /// As `starts`; empty when the format has no minimums.
    pub(crate) mins: &'a [Lanes<f32>],
    /// Inputs that share a scale: 16 or 32.
    pub(crate) group: usize,
    /// First unit and units.
    pub(crate) units: Range<usize>,
}

impl Piece<'_> {
    /// Asserts that the lengths fit together and to `rows` rows of `x` from `row` on: what every path relies on.
    pub(crate) fn check(&self, x: &Activations, row: usize, rows: usize) {
        let (units, parts) = (self.units.len(), UNIT / self.group);
        assert!(self.group * parts == UNIT && self.weights.len() == units * UNIT_BYTES);
        assert!(self.starts.len() == units * parts && self.scales.len() == self.starts.len());
        assert!(self.mins.is_empty() || self.mins.len() == self.scales.len());
        assert!(self.units.end * UNIT <= x.cols && (row + rows) * x.cols <= x.q.len());
        assert!(x.scales.len() * UNIT == x.q.len() && x.sums.len() == x.scales.len());
    }
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let lanes = |n| vec![Lanes([0f32; PANEL]); n];
        Self {
            weights: vec![Lanes([0; PANEL]); UNITS_MAX * UNIT],
            starts: vec![Lanes([0; PANEL]); UNITS_MAX * 2],
            scales: lanes(UNITS_MAX * 2),
            mins: lanes(UNITS_MAX * 2),
            floats: Vec::new(),
        }
    }

    /// Unpacks `units` (at most [`UNITS_MAX`]) of panel `panel`.
    pub(crate) fn unpack<'a>(
        &'a mut self,
        isa: Isa,
        w: &'a PackedInt,
        panel: usize,
        units: Range<usize>,
    ) -> Piece<'a> {
        assert!(units.len() <= UNITS_MAX && units.end <= w.units, "units {units:?} of {}", w.units);
        let (record, parts) = (w.record, UNIT / w.shape.len);
        let records = &w.panel(panel)[units.start * record.len..units.end * record.len];
        let factor = 1.0 / w.scale_factor;
        for (u, unit) in records.chunks_exact(record.len).enumerate() {
            // The same place of the next panel, so that memory works while this one is multiplied.
            ahead(isa, unit, w.units * record.len);
            let (low, high) = (as_lines(&unit[..record.high]), as_lines(&unit[record.high..record.scales]));
            let out = &mut lines(&mut self.weights)[u * UNIT_BYTES / LINE..][..UNIT_BYTES / LINE];
            if w.bits == 8 {
                // Copied, so that a piece lies closely packed in the nearest cache.
                out.as_flattened_mut().copy_from_slice(view(&unit[..record.high]));
            } else {
                widen(isa, w.bits, w.shape.offset as i8, low, high, out);
            }
            let weights: &[i8] = out.as_flattened();
            let part = u * parts..(u + 1) * parts;
            starts(isa, weights, w.shape.len, &mut self.starts[part.clone()]);
            floats(isa, view(&unit[record.scales..record.mins]), factor, &mut self.scales[part.clone()]);
            if w.shape.has_min {
                floats(isa, view(&unit[record.mins..]), factor, &mut self.mins[part]);
            }
        }
        let count = units.len() * parts;
        let weights = &lines(&mut self.weights).as_flattened()[..units.len() * UNIT_BYTES];
        Piece {
            weights,
            small: w.bits <= 6,
            starts: &self.starts[..count],
            scales: &self.scales[..count],
            mins: if w.shape.has_min { &self.mins[..count] } else { &[] },
            group: w.shape.len,
            units,
        }
    }

    /// The inputs `inputs` of a float panel as `[input][output]`; `total` is the number of inputs of an output.
    pub(crate) fn float<'a>(
        &'a mut self,
        isa: Isa,
        w: &'a PackedFloat,
        panel: usize,
        inputs: Range<usize>,
        total: usize,
    ) -> &'a [Lanes<f32>] {
        let size = w.format.block().1;
        let from = (panel * total + inputs.start) * PANEL * size;
        let bytes = &w.bytes.bytes()[from..from + inputs.len() * PANEL * size];
        self.floats.resize(inputs.len().max(self.floats.len()), Lanes([0.0; PANEL]));
        let out = &mut self.floats[..inputs.len()];
        match w.format {
            Format::F16 => floats(isa, view(bytes), 1.0, out),
            Format::Bf16 => {
                for (out, bits) in out.iter_mut().zip(view::<u16>(bytes).as_chunks::<PANEL>().0) {
                    for (out, bits) in out.0.iter_mut().zip(bits) {
                        *out = f32::from_bits(u32::from(*bits) << 16);
                    }
                }
            }
            _ => {
                for (out, values) in out.iter_mut().zip(view::<f32>(bytes).as_chunks::<PANEL>().0) {
                    out.0 = *values;
                }
            }
        }
        out
    }
}

fn lines(weights: &mut [Lanes<i8>]) -> &mut [Line] {
    // SAFETY: two runs of 32 bytes after one another are a line, and the vector begins on one; bytes are plain.
    unsafe { std::slice::from_raw_parts_mut(weights.as_mut_ptr().cast::<Line>(), weights.len() / 2) }
}

fn as_lines(bytes: &[u8]) -> &[[u8; LINE]] {
    bytes.as_chunks().0
}

/// Asks for the memory `distance` bytes after `unit`, if the processor can.
fn ahead(isa: Isa, unit: &[u8], distance: usize) {
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512Vnni {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        for line in 0..unit.len() / LINE {
            let at = unit.as_ptr().wrapping_add(distance + line * LINE);
            // SAFETY: asking for memory touches nothing, wherever it lies.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
        }
    }
}

/// One unit's low and high bits to signed bytes, two registers a step.
fn widen(isa: Isa, bits: usize, offset: i8, low: &[[u8; LINE]], high: &[[u8; LINE]], out: &mut [Line]) {
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512Vnni {
        return super::avx512_unpack::widen(bits, offset, low, high, out);
    }
    vectorised!(
        isa,
        fn body(bits: usize, offset: i8, low: &[[u8; LINE]], high: &[[u8; LINE]], out: &mut [Line]) {
            const NONE: [u8; LINE] = [0; LINE];
            for (step, (low, out)) in low.iter().zip(out.as_chunks_mut::<2>().0).enumerate() {
                for (register, out) in out.iter_mut().enumerate() {
                    // The line, the shift and the mask of the bits above the nibble.
                    let (high, shift, mask) = match bits {
                        5 => (&high[register], step, 1),
                        6 => (&high[register * 2 + step / 4], 2 * (step % 4), 3),
                        _ => (&NONE, 0, 0),
                    };
                    for i in 0..LINE {
                        let nibble = low[i] >> (4 * register) & 15;
                        let top = (high[i] >> shift & mask) << 4;
                        out[i] = ((nibble | top) as i8).wrapping_sub(offset);
                    }
                }
            }
        }
    );
}

/// See [`Piece::starts`].
fn starts(isa: Isa, weights: &[i8], group: usize, out: &mut [Lanes<i32>]) {
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512Vnni {
        return super::avx512_unpack::starts(weights, group, out);
    }
    vectorised!(
        isa,
        fn body(weights: &[i8], group: usize, out: &mut [Lanes<i32>]) {
            for (out, weights) in out.iter_mut().zip(weights.chunks_exact(group * PANEL)) {
                let mut sums = [0i32; PANEL];
                for step in weights.as_chunks::<{ 4 * PANEL }>().0 {
                    for (sum, four) in sums.iter_mut().zip(step.as_chunks::<4>().0) {
                        *sum += four.iter().map(|w| i32::from(*w)).sum::<i32>();
                    }
                }
                out.0 = sums.map(|sum| -ACT_OFFSET * sum);
            }
        }
    );
}

/// Bits of f16 to f32, times `factor`, a power of two: by arithmetic on bits, which vectorises everywhere. Every finite
/// f16 is met exactly; packing refuses others.
fn floats(isa: Isa, halves: &[u16], factor: f32, out: &mut [Lanes<f32>]) {
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512Vnni {
        return super::avx512_unpack::floats(halves, factor, out);
    }
    // The exponent's bias is 15 in f16 and 127 in f32.
    let factor = factor * 112f32.exp2();
    vectorised!(
        isa,
        fn body(halves: &[u16], factor: f32, out: &mut [Lanes<f32>]) {
            for (out, halves) in out.iter_mut().zip(halves.as_chunks::<PANEL>().0) {
                for i in 0..PANEL {
                    let half = u32::from(halves[i]);
                    let magnitude = f32::from_bits((half & 0x7fff) << 13) * factor;
                    out.0[i] = f32::from_bits(magnitude.to_bits() | (half & 0x8000) << 16);
                }
            }
        }
    );
}
