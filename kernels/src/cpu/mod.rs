//! What computes on the CPU? The thread pool and instruction set that every operation here takes.

pub(crate) mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod float;
pub(crate) mod matmul;
pub(crate) mod pack;
mod portable;
pub(crate) mod small;

use crate::{Isa, Pool};

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

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Threads that compute, counting the caller.
    pub fn threads(&self) -> usize {
        self.pool.threads()
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
                Isa::Avx2 => unsafe { narrow($($arg),*) },
                _ => $name($($arg),*),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        $name($($arg),*)
    }};
}
pub(crate) use vectorised;
