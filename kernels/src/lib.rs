//! How is the arithmetic done? Matrix products, attention and the small operations of a transformer, per instruction
//! set, each with its plain definition in [`mod@reference`].
//!
//! The only crate with `unsafe`: SIMD intrinsics, the thread pool's shared slices and the GPU driver.
#![allow(unsafe_code)]
#![allow(
    clippy::needless_range_loop,
    reason = "lanes and registers are counted, as in the instructions they stand for"
)]

mod cpu;
pub mod cuda;
mod format;
mod isa;
mod pool;
pub mod reference;

pub use cpu::attention::{AttentionShape, KvView, QueryRow, attention, kv_copy, kv_store};
pub use cpu::matmul::{Activations, matmul};
pub use cpu::pack::Matrix;
pub use cpu::small::{add, bias, gelu, layer_norm, rms_norm, rope, swiglu};
pub use format::{Format, FormatError, dequantize_row};
pub use isa::Isa;
pub use pool::Pool;

pub use cpu::Compute;
pub use cpu::small::RopeStyle;
