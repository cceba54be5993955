//! Is there a GPU? Asked through cudarc's dynamic loading, so that one binary runs with and without a driver.

use cudarc::driver::{CudaContext, result, sys};

/// A usable CUDA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// Its name.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
    /// Memory in bytes.
    pub memory_bytes: usize,
}

/// Looks for the first CUDA device.
///
/// # Errors
/// One calm sentence that says why there is none.
pub fn probe() -> Result<GpuInfo, String> {
    // Every driver call panics when the library is missing, so nothing may come before this check.
    // SAFETY: only tries to load the driver's shared library by its fixed names.
    if !unsafe { sys::is_culib_present() } {
        return Err("no NVIDIA driver".to_string());
    }
    let count = result::init()
        .and_then(|()| result::device::get_count())
        .map_err(|error| format!("NVIDIA driver present but unusable ({error:?})"))?;
    if count == 0 {
        return Err("NVIDIA driver present, no device".to_string());
    }
    let context = CudaContext::new(0).map_err(|error| format!("device 0 cannot be opened ({error:?})"))?;
    let describe = |error| format!("device 0 cannot be read ({error:?})");
    let name = context.name().map_err(describe)?;
    let capability = context.compute_capability().map_err(describe)?;
    let (_, memory_bytes) = context.mem_get_info().map_err(describe)?;
    Ok(GpuInfo { name, capability, memory_bytes })
}
