//! What computes on the CPU? The thread pool and instruction set that every operation here takes.

pub(crate) mod activations;
pub(crate) mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_small;
#[cfg(target_arch = "x86_64")]
mod avx512_stream;
#[cfg(target_arch = "x86_64")]
mod avx512_unpack;
mod dots;
mod float;
mod gates;
pub(crate) mod kv;
#[cfg(target_arch = "aarch64")]
mod neon;
pub(crate) mod pack;
mod portable;
pub(crate) mod product;
pub(crate) mod rope;
pub(crate) mod small;
mod softmax;
mod unpack;

use crate::buffer::LINE;
use crate::pool::Shards;
use crate::{Isa, Pool};

/// Below this many numbers a loop over rows is cheaper than sharing it.
const POOL_NUMBERS_MIN: usize = 1 << 13;

/// A thread pool and the instructions its threads use.
pub struct Compute {
    pub(crate) pool: Pool,
    pub(crate) isa: Isa,
}

impl Compute {
    /// `threads` threads (at least 1, counting the caller) that use `isa`, or the best available set below it.
    pub fn new(threads: usize, isa: Isa) -> Self {
        let isa = Isa::available().into_iter().rfind(|found| *found <= isa).unwrap_or(Isa::Portable);
        Self { pool: Pool::new(threads), isa }
    }

    /// Calls `body(row)` for every row below `rows`, over the pool when rows of `width` numbers make that pay.
    pub(crate) fn rows(&mut self, rows: usize, width: usize, body: &(dyn Fn(usize) + Sync)) {
        if rows * width < POOL_NUMBERS_MIN {
            return (0..rows).for_each(body);
        }
        let batch = (POOL_NUMBERS_MIN / 4).div_ceil(width).max(1);
        self.pool.run(rows.div_ceil(batch), &|item| {
            (item * batch..rows.min((item + 1) * batch)).for_each(body);
        });
    }

    /// Calls `body(i, item i)` for every item, each exactly once, over the pool.
    pub fn each<T: Send>(&mut self, items: &mut [T], body: &(dyn Fn(usize, &mut T) + Sync)) {
        let (count, items) = (items.len(), Shards::new(items));
        self.pool.run(count, &|at| {
            // SAFETY: each item belongs to one call.
            if let [item] = unsafe { items.part(at, 1) } {
                body(at, item);
            }
        });
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Threads that compute, counting the caller.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }
}

/// Asks for the cache line at `at`, if the processor can: memory works while something else is computed.
#[inline(always)]
pub(crate) fn ask<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: asking for memory touches nothing, wherever it lies.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Asks for the cache line at `at` to be written: another core that has it gives it up at once, not at the first write.
#[inline(always)]
pub(crate) fn claim<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // The intrinsic becomes a plain prefetch, because no build for x86-64 in general assumes PREFETCHW; a processor
    // without it takes it for a NOP.
    // SAFETY: asking for memory touches nothing, wherever it lies.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Where results will be written: some cache lines in each of several rows, which are claimed while the results are
/// computed, so that the writes find them near.
#[derive(Clone, Copy)]
pub(crate) struct Claims {
    at: *const u8,
    stride: usize,
    lines: usize,
}

impl Claims {
    /// Nothing to claim.
    pub(crate) const NONE: Claims = Claims { at: std::ptr::null(), stride: 0, lines: 0 };

    /// `len` elements at `at`, and as many `stride` elements further, and so on.
    pub(crate) fn new<T>(at: *const T, stride: usize, len: usize) -> Self {
        let size = size_of::<T>();
        Self { at: at.cast(), stride: stride * size, lines: (len * size).div_ceil(LINE) }
    }

    /// Claims the lines of a row.
    #[inline(always)]
    pub(crate) fn row(self, row: usize) {
        for line in 0..self.lines {
            claim(self.at.wrapping_add(row * self.stride + line * LINE));
        }
    }
}

/// Runs `$body` compiled for the instruction set `$isa`: the same plain Rust, vectorised by the compiler each time.
macro_rules! vectorised {
    ($isa:expr, fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block) => {{
        #[inline(always)]
        fn $name($($arg: $ty),*) $body
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
            fn wide($($arg: $ty),*) { $name($($arg),*) }
            #[target_feature(enable = "avx2,fma,f16c")]
            fn narrow($($arg: $ty),*) { $name($($arg),*) }
            match $isa {
                // SAFETY: `Isa` values above Portable are only made where the processor has these features.
                Isa::Avx512Vnni => unsafe { wide($($arg),*) },
                // SAFETY: as above.
                Isa::Avx2 | Isa::AvxVnni => unsafe { narrow($($arg),*) },
                _ => $name($($arg),*),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            // NEON is part of every build for aarch64.
            let _ = $isa;
            $name($($arg),*)
        }
    }};
}
pub(crate) use vectorised;
