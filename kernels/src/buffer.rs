//! Where do large tables lie? Zeroed memory that begins on a cache line, handed out by the system page by page.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

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

/// Bytes of a slab.
const SLAB: usize = 64 << 20;

/// Larger buffers have a slab of their own.
const SHARING_MAX: usize = SLAB / 8;

/// One allocation, handed out piece by piece and never twice. Most matrices are smaller than a large page, and the system
/// gives large pages only to memory that reaches across whole ones; side by side in a slab they get them.
struct Slab {
    allocated: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is owned, and its pieces do not overlap.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

/// The slab that is being handed out, and how much of it is. It goes when its last buffer goes.
static OPEN: Mutex<(Weak<Slab>, usize)> = Mutex::new((Weak::new(), 0));

impl Slab {
    fn new(len: usize) -> Option<Arc<Self>> {
        let layout = Layout::from_size_align(len.checked_add(LINE)?, ALIGN).ok()?;
        // SAFETY: the size is not zero.
        let allocated = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        large_pages(allocated, layout.size());
        Some(Arc::new(Self { allocated, layout }))
    }

    /// Where the piece begins of which `used` bytes were handed out before it.
    fn at(&self, used: usize) -> NonNull<u8> {
        // SAFETY: fewer than LINE bytes further on than the slab's length allows, which has LINE bytes to spare.
        unsafe { self.allocated.add(self.allocated.align_offset(LINE) + used) }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; no buffer is left.
        unsafe { dealloc(self.allocated.as_ptr(), self.layout) };
    }
}

/// Zeroed bytes, aligned to a cache line. Pages that nobody touches cost nothing.
pub(crate) struct Buffer {
    /// Keeps the memory; none when `len` is 0.
    _slab: Option<Arc<Slab>>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is this buffer's alone, and shared only as a slice is.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` zeroed bytes.
    pub(crate) fn zeroed(len: usize) -> Result<Self, OutOfMemory> {
        if len == 0 {
            return Ok(Self { _slab: None, start: NonNull::dangling(), len });
        }
        let (slab, used) = if len <= SHARING_MAX { Self::share(len) } else { None }
            .or_else(|| Some((Slab::new(len)?, 0)))
            .ok_or(OutOfMemory { bytes: len })?;
        Ok(Self { start: slab.at(used), _slab: Some(slab), len })
    }

    /// The open slab with room for `len` bytes, and how much of it was used before; none without memory for a whole slab.
    fn share(len: usize) -> Option<(Arc<Slab>, usize)> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let used = open.1;
        if let Some(slab) = open.0.upgrade().filter(|_| used + len <= SLAB) {
            open.1 = (used + len).next_multiple_of(LINE);
            return Some((slab, used));
        }
        let slab = Slab::new(SLAB)?;
        *open = (Arc::downgrade(&slab), len.next_multiple_of(LINE));
        Some((slab, 0))
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
    fn buffers_share_a_slab_and_never_a_byte() {
        let mut buffers: Vec<Buffer> =
            (0..40).map(|i| Buffer::zeroed(1 + i * i * 4_321 % (SHARING_MAX - 1)).unwrap()).collect();
        for (i, buffer) in buffers.iter_mut().enumerate() {
            buffer.bytes_mut().fill(i as u8 + 1);
        }
        // Half of them go, others come: what is new is zero, what was there is as it was.
        let mut at = 0;
        buffers.retain(|_| {
            at += 1;
            at % 2 == 0
        });
        let new: Vec<Buffer> = (0..20).map(|_| Buffer::zeroed(SHARING_MAX).unwrap()).collect();
        assert!(new.iter().all(|buffer| buffer.bytes().iter().all(|byte| *byte == 0)));
        for (i, buffer) in buffers.iter().enumerate() {
            let wanted = 2 * i as u8 + 2;
            assert!(buffer.bytes().iter().all(|byte| *byte == wanted), "buffer {i}");
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
