//! Where do large tables lie? Zeroed memory that begins on a cache line, handed out by the system page by page.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Bytes of a cache line and of the widest register.
pub(crate) const LINE: usize = 64;

/// Memory that the system does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes of memory are not to be had")]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub bytes: usize,
}

/// What allocators align to by themselves. Asked for more, they write the zeros instead of taking fresh pages.
const ALIGN: usize = 16;

/// Zeroed bytes, aligned to a cache line. Pages that nobody touches cost nothing.
pub(crate) struct Buffer {
    /// The allocation: `len + LINE` bytes; none when `len` is 0.
    allocated: NonNull<u8>,
    /// The first line boundary in it.
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is owned, and shared only as a slice is.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` zeroed bytes.
    pub(crate) fn zeroed(len: usize) -> Result<Self, OutOfMemory> {
        let failed = OutOfMemory { bytes: len };
        if len == 0 {
            return Ok(Self { allocated: NonNull::dangling(), start: NonNull::dangling(), len });
        }
        let layout = layout(len).ok_or(failed)?;
        // SAFETY: the size is not zero.
        let allocated = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(failed)?;
        // SAFETY: fewer than LINE bytes further on, and the allocation is LINE bytes longer than `len`.
        let start = unsafe { allocated.add(allocated.align_offset(LINE)) };
        large_pages(start, len);
        Ok(Self { allocated, start, len })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes from `start` on belong to this buffer; none when it is empty.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.len > 0
            && let Some(layout) = layout(self.len)
        {
            // SAFETY: allocated in `zeroed` with this layout.
            unsafe { dealloc(self.allocated.as_ptr(), layout) };
        }
    }
}

/// Tells the system that large pages would serve: weights and KV blocks are read in runs that cross many small ones.
fn large_pages(start: NonNull<u8>, len: usize) {
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4096;
        let skip = start.align_offset(PAGE);
        if len >= LARGE && skip < len {
            // SAFETY: whole pages of this allocation, whose contents the advice does not change.
            let advice = unsafe {
                let from = start.as_ptr().add(skip).cast();
                libc::madvise(from, (len - skip) / PAGE * PAGE, libc::MADV_HUGEPAGE)
            };
            // Refused advice costs speed alone.
            let _ = advice;
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, len);
}

/// Memory from which large pages can serve: two of them.
#[cfg(target_os = "linux")]
const LARGE: usize = 4 << 20;

fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len.checked_add(LINE)?, ALIGN).ok()
}

/// A number whose every bit pattern is valid, so that bytes may be read as a run of it.
///
/// # Safety
/// Implemented only for types without padding and without invalid bit patterns.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: integers and floats have neither padding nor invalid patterns.
unsafe impl Plain for i8 {}
// SAFETY: as above.
unsafe impl Plain for i16 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}

/// `bytes` as a run of `T`.
///
/// # Panics
/// When they do not begin or end where a `T` may: a defect in the caller, who owns the layout.
pub(crate) fn view<T: Plain>(bytes: &[u8]) -> &[T] {
    // SAFETY: every bit pattern is a `T`.
    let (head, middle, tail) = unsafe { bytes.align_to::<T>() };
    assert!(head.is_empty() && tail.is_empty(), "bytes are no whole run");
    middle
}

/// As [`view`], to write.
///
/// # Panics
/// As [`view`].
pub(crate) fn view_mut<T: Plain>(bytes: &mut [u8]) -> &mut [T] {
    // SAFETY: every bit pattern is a `T`, and every `T` is bytes.
    let (head, middle, tail) = unsafe { bytes.align_to_mut::<T>() };
    assert!(head.is_empty() && tail.is_empty(), "bytes are no whole run");
    middle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_begins_on_a_line_and_is_zero() {
        for len in [0usize, 1, 64, 1000] {
            let mut buffer = Buffer::zeroed(len).unwrap();
            assert!(buffer.bytes().iter().all(|byte| *byte == 0) && buffer.bytes().len() == len);
            assert!(len == 0 || (buffer.bytes().as_ptr() as usize).is_multiple_of(LINE));
            buffer.bytes_mut().fill(7);
            assert!(buffer.bytes().iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        for len in [1 << 50, 1 << 62, usize::MAX] {
            // Else the optimiser sees that nobody uses the memory, and never asks for it.
            let asked = std::hint::black_box(Buffer::zeroed(len));
            assert_eq!(asked.err(), Some(OutOfMemory { bytes: len }));
        }
    }
}
