//! How are products and attention's sums made in registers of 256 bits? With AVX2 alone bytes are multiplied in pairs to
//! 16 bits and added to 32; AVX-VNNI does both in one instruction. The rest is the same, so it is written once.

use super::activations::Activations;
use super::dots::{CHUNK, Chunk};
use super::kv::{BLOCK, KvFormat};
use super::pack::{PANEL, UNIT};
use super::unpack::{Lanes, Piece};
use std::arch::x86_64::*;

/// Lanes of a register.
const LANES: usize = 8;

/// Registers of a panel.
const REGISTERS: usize = PANEL / LANES;

/// Kernels for one set of features. `bytes` adds the products of unsigned and signed bytes in fours, `bytes_small` does
/// so for weights of at most 6 bits, `words` adds products of 16-bit numbers in pairs.
macro_rules! kernels {
    ($module:ident, $features:literal, $bytes:ident, $bytes_small:ident, $words:ident) => {
        pub(crate) mod $module {
            use super::*;

            /// Adds a piece's part of the product to `block`, or begins it.
            pub(crate) fn multiply(
                piece: &Piece<'_>,
                x: &Activations,
                row: usize,
                fresh: bool,
                block: &mut [Lanes<f32>],
            ) {
                piece.check(x, row, block.len());
                if fresh {
                    block.fill(Lanes([0.0; PANEL]));
                }
                let (pairs, rest) = block.as_chunks_mut::<2>();
                // SAFETY: only called where the processor has these features; `check` bounds every access.
                unsafe {
                    for (at, out) in pairs.iter_mut().enumerate() {
                        tile::<2>(piece, x, row + 2 * at, out);
                    }
                    for out in rest {
                        tile::<1>(piece, x, row + 2 * pairs.len(), std::array::from_mut(out));
                    }
                }
            }

            #[target_feature(enable = $features)]
            fn tile<const R: usize>(
                piece: &Piece<'_>,
                x: &Activations,
                row: usize,
                out: &mut [Lanes<f32>; R],
            ) {
                for part in 0..piece.starts.len() {
                    let at = row * x.cols + piece.units.start * UNIT + part * piece.group;
                    // SAFETY: the caller checked the lengths; a panel has REGISTERS registers of eight lanes.
                    unsafe {
                        let start = piece.starts[part].0.as_ptr();
                        let mut dot = [[_mm256_setzero_si256(); REGISTERS]; R];
                        for i in 0..REGISTERS {
                            let start = _mm256_load_si256(start.add(i * LANES).cast());
                            dot.iter_mut().for_each(|dot| dot[i] = start);
                        }
                        let weights = piece.weights.as_ptr().add(part * piece.group * PANEL);
                        for step in 0..piece.group / 4 {
                            for r in 0..R {
                                let four = x.q.as_ptr().add(at + r * x.cols + step * 4).cast::<i32>();
                                let four = _mm256_set1_epi32(four.read_unaligned());
                                for i in 0..REGISTERS {
                                    let from = weights.add(step * 4 * PANEL + i * 32);
                                    let w = _mm256_load_si256(from.cast());
                                    dot[r][i] = if piece.small {
                                        $bytes_small(dot[r][i], four, w)
                                    } else {
                                        $bytes(dot[r][i], four, w)
                                    };
                                }
                            }
                        }
                        for r in 0..R {
                            let unit = (at + r * x.cols) / UNIT;
                            finish(piece, part, (x.scales[unit], x.sums[unit]), &dot[r], &mut out[r]);
                        }
                    }
                }
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn finish(
                piece: &Piece<'_>,
                part: usize,
                (x_scale, x_sum): (f32, f32),
                dot: &[__m256i; REGISTERS],
                out: &mut Lanes<f32>,
            ) {
                let (x_scale, x_sum) = (_mm256_set1_ps(x_scale), _mm256_set1_ps(x_sum));
                for i in 0..REGISTERS {
                    // SAFETY: eight of 32 lanes.
                    unsafe {
                        let to = out.0.as_mut_ptr().add(i * LANES);
                        let scale = _mm256_load_ps(piece.scales[part].0.as_ptr().add(i * LANES));
                        let both = _mm256_mul_ps(scale, x_scale);
                        let mut acc = _mm256_fmadd_ps(both, _mm256_cvtepi32_ps(dot[i]), _mm256_load_ps(to));
                        if let Some(mins) = piece.mins.get(part) {
                            acc = _mm256_fmadd_ps(_mm256_load_ps(mins.0.as_ptr().add(i * LANES)), x_sum, acc);
                        }
                        _mm256_store_ps(to, acc);
                    }
                }
            }

            /// See [`super::super::dots::scores`].
            pub(crate) fn scores(
                format: KvFormat,
                q: &[i16],
                padded: usize,
                chunk: &Chunk<'_>,
                out: &mut [[i32; CHUNK]],
            ) {
                for (b, block) in chunk.blocks.iter().enumerate() {
                    for (at, out) in out.chunks_mut(ROWS).enumerate() {
                        let q = &q[at * ROWS * padded..][..out.len() * padded];
                        let q: [&[i16]; ROWS] =
                            std::array::from_fn(|r| &q[r.min(out.len() - 1) * padded..][..padded]);
                        let (len, keys) = (block.keys.len(), block.keys.as_ptr());
                        // SAFETY: only called where the processor has these features; the caller asserted that keys are
                        // BLOCK times `padded` elements long.
                        let sums = unsafe {
                            match format {
                                KvFormat::Bits16 => pairs::<false>(q, keys, BLOCK, 0, len / 64),
                                KvFormat::Bits8 => pairs::<true>(q, keys, BLOCK, 0, len / 32),
                            }
                        };
                        for (out, sums) in out.iter_mut().zip(&sums) {
                            out[b * BLOCK..(b + 1) * BLOCK].copy_from_slice(sums);
                        }
                    }
                }
            }

            /// See [`super::super::dots::mix`].
            pub(crate) fn mix(
                format: KvFormat,
                w: &[[i16; CHUNK]],
                padded: usize,
                chunk: &Chunk<'_>,
                out: &mut [i32],
            ) {
                out.fill(0);
                for (b, block) in chunk.blocks.iter().enumerate() {
                    for (at, w) in w.chunks(ROWS).enumerate() {
                        let rows: [&[i16]; ROWS] =
                            std::array::from_fn(|r| &w[r.min(w.len() - 1)][b * BLOCK..(b + 1) * BLOCK]);
                        for from in (0..padded).step_by(BLOCK) {
                            let values = block.values.as_ptr();
                            // SAFETY: as above, for values: BLOCK / 2 pairs of rows of `padded` pairs.
                            let sums = unsafe {
                                match format {
                                    KvFormat::Bits16 => pairs::<false>(rows, values, padded, from, BLOCK / 2),
                                    KvFormat::Bits8 => pairs::<true>(rows, values, padded, from, BLOCK / 2),
                                }
                            };
                            for (r, sums) in sums.iter().enumerate().take(w.len()) {
                                let to = &mut out[(at * ROWS + r) * padded + from..][..BLOCK];
                                to.iter_mut().zip(sums).for_each(|(to, sum)| *to = to.wrapping_add(*sum));
                            }
                        }
                    }
                }
            }

            /// `sums[row][lane]` of `x[row][2 i] * y[i][from + lane][0] + x[row][2 i + 1] * y[i][from + lane][1]` over
            /// `count` values of i; y is a table of `width` pairs a row.
            ///
            /// # Safety
            /// Each x holds `2 * count` numbers, y `count` rows, and `from + 16` is at most `width`.
            #[target_feature(enable = $features)]
            unsafe fn pairs<const EIGHT: bool>(
                x: [&[i16]; ROWS],
                y: *const u8,
                width: usize,
                from: usize,
                count: usize,
            ) -> [[i32; BLOCK]; ROWS] {
                let mut sums = [[_mm256_setzero_si256(); 2]; ROWS];
                let x = x.map(<[i16]>::as_ptr);
                let size = if EIGHT { 1 } else { 2 };
                for i in 0..count {
                    for half in 0..2 {
                        // SAFETY: the caller's contract.
                        let y = unsafe {
                            let at = y.add((i * width + from + half * LANES) * 2 * size);
                            if EIGHT {
                                _mm256_cvtepi8_epi16(_mm_loadu_si128(at.cast()))
                            } else {
                                _mm256_loadu_si256(at.cast())
                            }
                        };
                        for r in 0..ROWS {
                            // SAFETY: as above.
                            let two = unsafe { x[r].add(2 * i).cast::<i32>().read_unaligned() };
                            sums[r][half] = $words(sums[r][half], _mm256_set1_epi32(two), y);
                        }
                    }
                }
                let mut out = [[0; BLOCK]; ROWS];
                for (out, sums) in out.iter_mut().zip(sums) {
                    for (half, sum) in sums.into_iter().enumerate() {
                        // SAFETY: eight of 16 lanes.
                        unsafe { _mm256_storeu_si256(out.as_mut_ptr().add(half * LANES).cast(), sum) };
                    }
                }
                out
            }
        }
    };
}

/// Queries that share each load of keys or values.
const ROWS: usize = 4;

kernels!(plain, "avx2,fma", bytes, bytes_small, words);
kernels!(vnni, "avx2,fma,avxvnni", bytes_vnni, bytes_vnni, words_vnni);

/// The byte multiply adds pairs with saturation, which 255 * 127 * 2 would reach: odd and even bytes are multiplied apart.
#[inline]
#[target_feature(enable = "avx2")]
fn bytes(sum: __m256i, x: __m256i, w: __m256i) -> __m256i {
    let low = _mm256_set1_epi16(0x00ff);
    let sum = bytes_small(sum, _mm256_and_si256(x, low), w);
    bytes_small(sum, _mm256_andnot_si256(low, x), w)
}

#[inline]
#[target_feature(enable = "avx2")]
fn bytes_small(sum: __m256i, x: __m256i, w: __m256i) -> __m256i {
    let pairs = _mm256_maddubs_epi16(x, w);
    _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

#[inline]
#[target_feature(enable = "avx2,avxvnni")]
fn bytes_vnni(sum: __m256i, x: __m256i, w: __m256i) -> __m256i {
    _mm256_dpbusd_avx_epi32(sum, x, w)
}

#[inline]
#[target_feature(enable = "avx2")]
fn words(sum: __m256i, x: __m256i, y: __m256i) -> __m256i {
    _mm256_add_epi32(sum, _mm256_madd_epi16(x, y))
}

#[inline]
#[target_feature(enable = "avx2,avxvnni")]
fn words_vnni(sum: __m256i, x: __m256i, y: __m256i) -> __m256i {
    _mm256_dpwssd_avx_epi32(sum, x, y)
}
