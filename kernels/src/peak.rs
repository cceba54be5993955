//! What can this machine do at most? Arithmetic without memory, and memory without arithmetic, measured in place, so that
//! a kernel's speed can be told as a share of it.

use crate::Isa;
use crate::buffer::{Buffer, LINE};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// How long each thread works for one figure.
const TIME: Duration = Duration::from_millis(120);

/// Rounds of the inner loops between two looks at the clock.
const ROUNDS: usize = 20_000;

/// Accumulators: more than the latency of an instruction times its units.
const CHAINS: usize = 16;

/// Operations per second (a multiplication and an addition are two) of bytes multiplied and added to 32-bit sums: with
/// `vpdpbusd` where there is AVX-512 VNNI, else with what the compiler makes of plain loops.
pub fn int8(threads: usize) -> f64 {
    let isa = Isa::detect();
    rate(threads, move || {
        #[cfg(target_arch = "x86_64")]
        if isa == Isa::Avx512Vnni {
            // SAFETY: the instruction set was detected.
            return unsafe { x86::int8(ROUNDS) };
        }
        let _ = isa;
        plain_int8(ROUNDS)
    })
}

/// Operations per second of f32 multiply-adds: with AVX-512 where it is there, else with what the compiler makes of plain
/// loops.
pub fn float(threads: usize) -> f64 {
    let isa = Isa::detect();
    rate(threads, move || {
        #[cfg(target_arch = "x86_64")]
        if isa == Isa::Avx512Vnni {
            // SAFETY: the instruction set was detected.
            return unsafe { x86::float(ROUNDS) };
        }
        let _ = isa;
        plain_float(ROUNDS)
    })
}

/// Bytes per second that `threads` threads together read from a working set of `bytes` (at least a few KiB for each), each
/// its own part, over and over; the best of several passes. Zero when there is no memory for it.
pub fn memory(threads: usize, bytes: usize) -> f64 {
    let part = (bytes / threads.max(1)).max(64 * LINE);
    let Ok(mut buffer) = Buffer::zeroed(part * threads.max(1)) else { return 0.0 };
    // Pages that were never written are one page of zeros.
    buffer.bytes_mut().iter_mut().step_by(1024).for_each(|byte| *byte = 1);
    let parts: Vec<&[u8]> = buffer.bytes().chunks_exact(part).collect();
    let passes = ((64 << 20) / part).max(1);
    let mut best = 0f64;
    for _ in 0..5 {
        let barrier = Barrier::new(parts.len());
        let slowest = std::thread::scope(|scope| {
            let workers: Vec<_> = parts
                .iter()
                .map(|part| {
                    scope.spawn(|| {
                        barrier.wait();
                        let began = Instant::now();
                        for _ in 0..passes {
                            std::hint::black_box(read(part));
                        }
                        began.elapsed()
                    })
                })
                .collect();
            workers.into_iter().filter_map(|worker| worker.join().ok()).max().unwrap_or(Duration::MAX)
        });
        best = best.max((passes * part * parts.len()) as f64 / slowest.as_secs_f64());
    }
    best
}

fn read(bytes: &[u8]) -> u64 {
    // Eight lines at a time, in registers of their own.
    let mut sums = [[0u64; 8]; 8];
    for lines in bytes.as_chunks::<{ 8 * LINE }>().0 {
        for (sums, line) in sums.iter_mut().zip(lines.as_chunks::<LINE>().0) {
            for (sum, eight) in sums.iter_mut().zip(line.as_chunks::<8>().0) {
                *sum ^= u64::from_le_bytes(*eight);
            }
        }
    }
    sums.as_flattened().iter().fold(0, |all, sum| all ^ sum)
}

/// `work` on all threads for a while; its results are operations.
fn rate(threads: usize, work: impl Fn() -> u64 + Sync) -> f64 {
    let barrier = Barrier::new(threads.max(1));
    std::thread::scope(|scope| {
        let one = || {
            barrier.wait();
            let (began, mut done) = (Instant::now(), 0);
            while began.elapsed() < TIME {
                done += work();
            }
            done as f64 / began.elapsed().as_secs_f64()
        };
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(one)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).sum()
    })
}

fn plain_int8(rounds: usize) -> u64 {
    let (x, y) = (std::hint::black_box([3i8; 64]), std::hint::black_box([1i8; 64]));
    let mut sums = [0i32; 64];
    for _ in 0..rounds {
        for i in 0..64 {
            sums[i] = sums[i].wrapping_add(i32::from(x[i]) * i32::from(y[i]));
        }
        std::hint::black_box(&mut sums);
    }
    rounds as u64 * 128
}

fn plain_float(rounds: usize) -> u64 {
    let x = std::hint::black_box([1.000_1f32; 64]);
    let mut sums = [0f32; 64];
    for _ in 0..rounds {
        for i in 0..64 {
            sums[i] += x[i] * x[i];
        }
        std::hint::black_box(&mut sums);
    }
    rounds as u64 * 128
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! With AVX-512.
    use super::CHAINS;
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn int8(rounds: usize) -> u64 {
        let (x, y) = (_mm512_set1_epi8(3), _mm512_set1_epi8(1));
        let mut sums = [_mm512_setzero_si512(); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, x, y);
            }
        }
        std::hint::black_box(sums.map(|sum| _mm512_reduce_add_epi32(sum)));
        // 64 multiplications and as many additions.
        (rounds * CHAINS * 128) as u64
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn float(rounds: usize) -> u64 {
        let x = _mm512_set1_ps(1.000_1);
        let mut sums = [_mm512_setzero_ps(); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(x, x, *sum);
            }
        }
        std::hint::black_box(sums.map(|sum| _mm512_reduce_add_ps(sum)));
        (rounds * CHAINS * 32) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_are_numbers_of_a_machine() {
        for threads in [1, 2] {
            let figures = [int8(threads), float(threads), memory(threads, 1 << 20)];
            // Below a billion a second no machine that runs this can be.
            assert!(figures.iter().all(|figure| (1e8..1e17).contains(figure)), "{figures:?}");
        }
    }

    #[test]
    fn every_line_is_read() {
        let mut bytes = vec![0u8; 4 * 8 * LINE];
        for at in [0, 700, bytes.len() - 1] {
            bytes[at] = 5;
            assert_ne!(read(&bytes), 0, "byte {at}");
            bytes[at] = 0;
        }
    }
}
