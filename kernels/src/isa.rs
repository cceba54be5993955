//! Which instructions may the kernels use here? Found once at run time, never at build time.

use std::fmt;

/// An instruction set that has kernels, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// The plain definition of every operation, in f32 without quantised activations; for tests.
    Reference,
    /// Plain Rust, quantised activations.
    Portable,
    /// aarch64 with the dot product of ARMv8.2.
    Neon,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// The same and AVX-VNNI.
    AvxVnni,
    /// x86-64 with AVX-512 F, BW, VL and VNNI.
    Avx512Vnni,
}

impl Isa {
    /// The best that this processor has.
    pub fn detect() -> Isa {
        Isa::available().last().copied().unwrap_or(Isa::Portable)
    }

    /// All that this processor has, slowest first.
    pub fn available() -> Vec<Isa> {
        let mut found = vec![Isa::Reference, Isa::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
            {
                found.push(Isa::Avx2);
                if is_x86_feature_detected!("avxvnni") {
                    found.push(Isa::AvxVnni);
                }
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
                {
                    found.push(Isa::Avx512Vnni);
                }
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("dotprod") {
            found.push(Isa::Neon);
        }
        found
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::Reference => "reference",
            Isa::Portable => "portable",
            Isa::Neon => "NEON with dot product",
            Isa::Avx2 => "AVX2",
            Isa::AvxVnni => "AVX-VNNI",
            Isa::Avx512Vnni => "AVX-512 VNNI",
        })
    }
}
