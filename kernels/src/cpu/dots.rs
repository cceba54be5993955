//! How are queries multiplied with keys, and weights with values? Integers in pairs, with sums of 32 bits that are
//! exact on every path.
//!
//! A chunk is 64 positions: four blocks, whose scores are four registers.

use super::kv::{BLOCK, HeadBlock, KvFormat};
use super::pack::LANES;
use super::vectorised;
use crate::Isa;
use crate::buffer::view;

/// Blocks of a chunk.
pub(crate) const BLOCKS: usize = 4;

/// Positions of a chunk.
pub(crate) const CHUNK: usize = BLOCKS * BLOCK;

/// Some blocks' keys and values, and those that come next, which are asked for on the way.
#[derive(Clone, Copy)]
pub(crate) struct Chunk<'a> {
    pub(crate) blocks: [HeadBlock<'a>; BLOCKS],
    pub(crate) next: [HeadBlock<'a>; BLOCKS],
}

/// Queries of a full tile: their sums and the operands fill the registers.
pub(crate) const QUERIES: usize = 6;

/// `out[query][position] = sum over dim of q[query][dim] * key[position][dim]`, up to 6 queries of `q`, each `padded`
/// long.
pub(crate) fn scores(
    isa: Isa,
    format: KvFormat,
    q: &[i16],
    padded: usize,
    chunk: &Chunk<'_>,
    out: &mut [[i32; CHUNK]],
) {
    let len = BLOCK * padded * format.bytes();
    assert!(q.len() == out.len() * padded && chunk.blocks.iter().all(|block| block.keys.len() == len));
    #[cfg(target_arch = "x86_64")]
    match isa {
        Isa::Avx512Vnni => return avx512::scores(format, q, padded, chunk, out),
        Isa::AvxVnni => return super::avx2::vnni::scores(format, q, padded, chunk, out),
        Isa::Avx2 => return super::avx2::plain::scores(format, q, padded, chunk, out),
        _ => {}
    }
    #[cfg(target_arch = "aarch64")]
    if isa == Isa::Neon {
        return super::neon::scores(format, q, padded, chunk, out);
    }
    for (q, out) in q.chunks_exact(padded).zip(out) {
        for (block, out) in chunk.blocks.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
            *out = [0; BLOCK];
            match format {
                KvFormat::Bits16 => pairs(isa, q, view::<i16>(block.keys), out),
                KvFormat::Bits8 => pairs8(isa, q, view::<i8>(block.keys), out),
            }
        }
    }
}

/// `out[query][dim] = sum over position of w[query][position] * value[position][dim]`, up to 6 queries.
pub(crate) fn mix(
    isa: Isa,
    format: KvFormat,
    w: &[[i16; CHUNK]],
    padded: usize,
    chunk: &Chunk<'_>,
    out: &mut [i32],
) {
    let len = BLOCK * padded * format.bytes();
    assert!(out.len() == w.len() * padded && chunk.blocks.iter().all(|block| block.values.len() == len));
    #[cfg(target_arch = "x86_64")]
    match isa {
        Isa::Avx512Vnni => return avx512::mix(format, w, padded, chunk, out),
        Isa::AvxVnni => return super::avx2::vnni::mix(format, w, padded, chunk, out),
        Isa::Avx2 => return super::avx2::plain::mix(format, w, padded, chunk, out),
        _ => {}
    }
    #[cfg(target_arch = "aarch64")]
    if isa == Isa::Neon {
        return super::neon::mix(format, w, padded, chunk, out);
    }
    for (w, out) in w.iter().zip(out.chunks_exact_mut(padded)) {
        out.fill(0);
        for (block, w) in chunk.blocks.iter().zip(w.as_chunks::<BLOCK>().0) {
            // 16 dimensions at a time, of all pairs of positions.
            for (at, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                for pair in 0..BLOCK / 2 {
                    let (w, from) = (&w[2 * pair..2 * pair + 2], (pair * padded + at * LANES) * 2);
                    match format {
                        KvFormat::Bits16 => {
                            pairs(isa, w, &view::<i16>(block.values)[from..from + 2 * LANES], out);
                        }
                        KvFormat::Bits8 => {
                            pairs8(isa, w, &view::<i8>(block.values)[from..from + 2 * LANES], out);
                        }
                    }
                }
            }
        }
    }
}

/// `out[lane] += sum over pairs of x[2 i] * y[i][lane][0] + x[2 i + 1] * y[i][lane][1]`.
fn pairs(isa: Isa, x: &[i16], y: &[i16], out: &mut [i32; LANES]) {
    vectorised!(
        isa,
        fn body(x: &[i16], y: &[i16], out: &mut [i32; LANES]) {
            for (x, y) in x.as_chunks::<2>().0.iter().zip(y.as_chunks::<{ 2 * LANES }>().0) {
                for lane in 0..LANES {
                    let products = [0, 1].map(|i| i32::from(x[i]) * i32::from(y[2 * lane + i]));
                    out[lane] = out[lane].wrapping_add(products[0].wrapping_add(products[1]));
                }
            }
        }
    );
}

fn pairs8(isa: Isa, x: &[i16], y: &[i8], out: &mut [i32; LANES]) {
    vectorised!(
        isa,
        fn body(x: &[i16], y: &[i8], out: &mut [i32; LANES]) {
            for (x, y) in x.as_chunks::<2>().0.iter().zip(y.as_chunks::<{ 2 * LANES }>().0) {
                for lane in 0..LANES {
                    let products = [0, 1].map(|i| i32::from(x[i]) * i32::from(y[2 * lane + i]));
                    out[lane] = out[lane].wrapping_add(products[0].wrapping_add(products[1]));
                }
            }
        }
    );
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    //! With AVX-512 VNNI: one instruction multiplies 32 pairs and adds each two.
    use super::super::ask;
    use super::{BLOCK, BLOCKS, CHUNK, Chunk, KvFormat, LANES, QUERIES};
    use std::arch::x86_64::*;

    pub(super) fn scores(
        format: KvFormat,
        q: &[i16],
        padded: usize,
        chunk: &Chunk<'_>,
        out: &mut [[i32; CHUNK]],
    ) {
        let keys = chunk.blocks.map(|block| block.keys.as_ptr());
        let next = chunk.next.map(|block| block.keys.as_ptr());
        for (q, out) in q.chunks(QUERIES * padded).zip(out.chunks_mut(QUERIES)) {
            // SAFETY: only called where the processor has these instructions; lengths are asserted by the caller.
            unsafe {
                match (out.len(), format) {
                    (6, KvFormat::Bits16) => score::<6, false>(q, padded, (keys, next), out),
                    (5, KvFormat::Bits16) => score::<5, false>(q, padded, (keys, next), out),
                    (4, KvFormat::Bits16) => score::<4, false>(q, padded, (keys, next), out),
                    (3, KvFormat::Bits16) => score::<3, false>(q, padded, (keys, next), out),
                    (2, KvFormat::Bits16) => score::<2, false>(q, padded, (keys, next), out),
                    (_, KvFormat::Bits16) => score::<1, false>(q, padded, (keys, next), out),
                    (6, KvFormat::Bits8) => score::<6, true>(q, padded, (keys, next), out),
                    (5, KvFormat::Bits8) => score::<5, true>(q, padded, (keys, next), out),
                    (4, KvFormat::Bits8) => score::<4, true>(q, padded, (keys, next), out),
                    (3, KvFormat::Bits8) => score::<3, true>(q, padded, (keys, next), out),
                    (2, KvFormat::Bits8) => score::<2, true>(q, padded, (keys, next), out),
                    (_, KvFormat::Bits8) => score::<1, true>(q, padded, (keys, next), out),
                }
            }
        }
    }

    /// 16 pairs: 64 bytes of i16, or 32 of i8 widened.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn load<const EIGHT: bool>(from: *const u8, at: usize) -> __m512i {
        // SAFETY: the callers stay inside the block, whose length was asserted.
        unsafe {
            if EIGHT {
                _mm512_cvtepi8_epi16(_mm256_loadu_si256(from.add(at * 32).cast()))
            } else {
                _mm512_loadu_si512(from.add(at * 64).cast())
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn score<const R: usize, const EIGHT: bool>(
        q: &[i16],
        padded: usize,
        (keys, next): ([*const u8; BLOCKS], [*const u8; BLOCKS]),
        out: &mut [[i32; CHUNK]],
    ) {
        let mut sums = [[_mm512_setzero_si512(); BLOCKS]; R];
        let q = q.as_ptr();
        for pair in 0..padded / 2 {
            let mut key = [_mm512_setzero_si512(); BLOCKS];
            for b in 0..BLOCKS {
                key[b] = load::<EIGHT>(keys[b], pair);
                ask(next[b].wrapping_add(pair * if EIGHT { 32 } else { 64 }));
            }
            for r in 0..R {
                // SAFETY: R queries of `padded` elements, as the caller asserted.
                let two = unsafe { q.add(r * padded + pair * 2).cast::<i32>().read_unaligned() };
                let two = _mm512_set1_epi32(two);
                for b in 0..BLOCKS {
                    sums[r][b] = _mm512_dpwssd_epi32(sums[r][b], two, key[b]);
                }
            }
        }
        for r in 0..R {
            for b in 0..BLOCKS {
                // SAFETY: 16 of a row's 64 elements.
                unsafe { _mm512_storeu_si512(out[r].as_mut_ptr().add(b * BLOCK).cast(), sums[r][b]) };
            }
        }
    }

    pub(super) fn mix(
        format: KvFormat,
        w: &[[i16; CHUNK]],
        padded: usize,
        chunk: &Chunk<'_>,
        out: &mut [i32],
    ) {
        let values = chunk.blocks.map(|block| block.values.as_ptr());
        let next = chunk.next.map(|block| block.values.as_ptr());
        // Scales stand behind the values.
        for block in &chunk.next {
            ask(block.key_scales.as_ptr());
            ask(block.value_scales.as_ptr());
        }
        for (w, out) in w.chunks(QUERIES).zip(out.chunks_mut(QUERIES * padded)) {
            // SAFETY: only called where the processor has these instructions; lengths are asserted by the caller.
            unsafe {
                match (w.len(), format) {
                    (6, KvFormat::Bits16) => by_width::<6, false>(w, padded, (values, next), out),
                    (5, KvFormat::Bits16) => by_width::<5, false>(w, padded, (values, next), out),
                    (4, KvFormat::Bits16) => by_width::<4, false>(w, padded, (values, next), out),
                    (3, KvFormat::Bits16) => by_width::<3, false>(w, padded, (values, next), out),
                    (2, KvFormat::Bits16) => by_width::<2, false>(w, padded, (values, next), out),
                    (_, KvFormat::Bits16) => by_width::<1, false>(w, padded, (values, next), out),
                    (6, KvFormat::Bits8) => by_width::<6, true>(w, padded, (values, next), out),
                    (5, KvFormat::Bits8) => by_width::<5, true>(w, padded, (values, next), out),
                    (4, KvFormat::Bits8) => by_width::<4, true>(w, padded, (values, next), out),
                    (3, KvFormat::Bits8) => by_width::<3, true>(w, padded, (values, next), out),
                    (2, KvFormat::Bits8) => by_width::<2, true>(w, padded, (values, next), out),
                    (_, KvFormat::Bits8) => by_width::<1, true>(w, padded, (values, next), out),
                }
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn by_width<const R: usize, const EIGHT: bool>(
        w: &[[i16; CHUNK]],
        padded: usize,
        (values, next): ([*const u8; BLOCKS], [*const u8; BLOCKS]),
        out: &mut [i32],
    ) {
        let mut from = 0;
        while from < padded / LANES {
            from += match padded / LANES - from {
                4.. => some::<R, 4, EIGHT>(w, padded, (values, next), from, out),
                2.. => some::<R, 2, EIGHT>(w, padded, (values, next), from, out),
                _ => some::<R, 1, EIGHT>(w, padded, (values, next), from, out),
            };
        }
    }

    /// `N` registers of dimensions from register `from` on.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn some<const R: usize, const N: usize, const EIGHT: bool>(
        w: &[[i16; CHUNK]],
        padded: usize,
        (values, next): ([*const u8; BLOCKS], [*const u8; BLOCKS]),
        from: usize,
        out: &mut [i32],
    ) -> usize {
        let mut sums = [[_mm512_setzero_si512(); N]; R];
        for (b, (values, next)) in values.into_iter().zip(next).enumerate() {
            for pair in 0..BLOCK / 2 {
                let mut value = [_mm512_setzero_si512(); N];
                for n in 0..N {
                    let at = pair * (padded / LANES) + from + n;
                    value[n] = load::<EIGHT>(values, at);
                    ask(next.wrapping_add(at * if EIGHT { 32 } else { 64 }));
                }
                for r in 0..R {
                    // SAFETY: a pair of a row's 64 elements.
                    let two =
                        unsafe { w[r].as_ptr().add(b * BLOCK + pair * 2).cast::<i32>().read_unaligned() };
                    let two = _mm512_set1_epi32(two);
                    for n in 0..N {
                        sums[r][n] = _mm512_dpwssd_epi32(sums[r][n], two, value[n]);
                    }
                }
            }
        }
        for r in 0..R {
            for n in 0..N {
                // SAFETY: R rows of `padded` elements, of which from + N registers exist.
                unsafe {
                    let to = out.as_mut_ptr().add(r * padded + (from + n) * LANES);
                    _mm512_storeu_si512(to.cast(), sums[r][n]);
                }
            }
        }
        N
    }
}
