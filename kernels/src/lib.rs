//! How is the arithmetic done? Matrix products, attention and the small operations of a transformer, per instruction
//! set, each with its plain definition in [`mod@reference`].
//!
//! The only crate with `unsafe`: SIMD intrinsics, the thread pool's shared slices and the GPU driver.
#![allow(unsafe_code)]
#![allow(
    clippy::needless_range_loop,
    reason = "lanes and registers are counted, as in the instructions they stand for"
)]

mod buffer;
mod cpu;
pub mod cuda;
mod format;
mod isa;
pub mod peak;
mod pool;
pub mod reference;

pub use buffer::OutOfMemory;
pub use cpu::Compute;
pub use cpu::activations::{Activations, Forms};
pub use cpu::attention::{QueryRow, attention};
pub use cpu::kv::{AttentionShape, KvFormat, KvLayer, KvPool};
pub use cpu::pack::Matrix;
pub use cpu::product::{Linear, product, product_add, product_gelu, product_swiglu};
pub use cpu::rope::{Angles, RopeStyle, rope_and_store};
pub use cpu::small::{exponentials, layer_norm, log_sum_exp, rms_norm};
pub use format::{Format, FormatError, dequantize_row};
pub use isa::Isa;
pub use pool::Pool;
