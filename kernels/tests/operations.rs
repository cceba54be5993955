//! Does every instruction set compute what the reference defines, and the same for a row whatever surrounds it?
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

mod common;

use common::{Noise, bits, relative_error};
use kernels::{
    Activations, AttentionShape, Compute, Format, Isa, KvView, Matrix, QueryRow, attention, gelu, kv_copy,
    kv_store, matmul, rms_norm, swiglu,
};

const QUANTISED: [Format; 8] = [
    Format::Q4_0,
    Format::Q4_1,
    Format::Q5_0,
    Format::Q5_1,
    Format::Q8_0,
    Format::Q4K,
    Format::Q5K,
    Format::Q6K,
];

fn fast_paths() -> Vec<Isa> {
    Isa::available().into_iter().filter(|isa| *isa != Isa::Reference).collect()
}

/// Random weights of a format; every f16 scale is set to something small.
fn weights(format: Format, rows: usize, cols: usize, noise: &mut Noise) -> Matrix {
    let (_, bytes) = format.block();
    let mut raw = noise.bytes(rows * format.row_bytes(cols).unwrap());
    for block in raw.chunks_exact_mut(bytes) {
        let scales: &[usize] = match format {
            Format::Q6K => &[208],
            Format::Q4_1 | Format::Q5_1 | Format::Q4K | Format::Q5K => &[0, 2],
            _ => &[0],
        };
        for at in scales {
            block[*at..*at + 2].copy_from_slice(&half::f16::from_f32(noise.value() * 0.01).to_le_bytes());
        }
    }
    Matrix::pack(format, rows, cols, &raw).unwrap()
}

fn product(isa: Isa, threads: usize, w: &Matrix, x: &[f32], rows: usize) -> Vec<f32> {
    let mut compute = Compute::new(threads, isa);
    let mut out = vec![f32::NAN; rows * w.rows()];
    let activations = Activations::new(&mut compute, x, rows);
    matmul(&mut compute, w, &activations, &mut out);
    out
}

#[test]
fn products_match_the_reference_on_every_path() {
    let mut noise = Noise(1);
    for format in QUANTISED {
        // 40 outputs leave the last panel half filled.
        let (outputs, cols) = (40, 512);
        let w = weights(format, outputs, cols, &mut noise);
        for rows in [1, 2, 5, 7, 13] {
            let x = noise.values(rows * cols);
            let wanted = product(Isa::Reference, 1, &w, &x, rows);
            let portable = product(Isa::Portable, 1, &w, &x, rows);
            for isa in fast_paths() {
                let got = product(isa, 3, &w, &x, rows);
                // Activations in 8 bits: uniform values in -1..1 carry a rounding error of about 0.4%.
                let error = relative_error(&got, &wanted);
                assert!(error < 0.012, "{format:?} {isa} {rows} rows: {error}");
                assert_eq!(bits(&got), bits(&portable), "{format:?} {isa} differs from the portable path");
            }
        }
    }
}

#[test]
fn float_weights_keep_f32_precision() {
    let mut noise = Noise(2);
    let (outputs, cols) = (24, 200);
    let w = Matrix::pack_f32(outputs, cols, &noise.values(outputs * cols)).unwrap();
    for rows in [1, 3, 9, 17] {
        let x = noise.values(rows * cols);
        let wanted = product(Isa::Reference, 1, &w, &x, rows);
        for isa in fast_paths() {
            let error = relative_error(&product(isa, 2, &w, &x, rows), &wanted);
            assert!(error < 1e-6, "{isa}: {error}");
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_neighbours_or_threads() {
    let mut noise = Noise(3);
    for format in [Format::Q5_0, Format::Q4_1, Format::Q6K] {
        let (outputs, cols, rows) = (48, 256, 11);
        let w = weights(format, outputs, cols, &mut noise);
        let x = noise.values(rows * cols);
        for isa in fast_paths() {
            let together = product(isa, 4, &w, &x, rows);
            for row in 0..rows {
                let alone = product(isa, 1, &w, &x[row * cols..(row + 1) * cols], 1);
                assert_eq!(
                    bits(&alone),
                    bits(&together[row * outputs..(row + 1) * outputs]),
                    "{format:?} {isa}"
                );
            }
        }
    }
}

#[test]
fn a_nan_is_not_hidden_by_quantising() {
    let mut noise = Noise(4);
    let w = weights(Format::Q8_0, 16, 64, &mut noise);
    for poison in [f32::NAN, f32::INFINITY] {
        let mut x = noise.values(64);
        x[40] = poison;
        for isa in fast_paths() {
            assert!(product(isa, 1, &w, &x, 1).iter().all(|y| !y.is_finite()), "{isa} hid {poison}");
        }
    }
}

/// A pool of blocks in which each sequence's table is scattered.
struct Cache {
    bits: Vec<u16>,
    tables: Vec<Vec<u32>>,
}

fn cache(shape: AttentionShape, lengths: &[usize], noise: &mut Noise) -> Cache {
    let blocks: usize = lengths.iter().map(|len| len.div_ceil(16)).sum();
    // Unwritten slots hold NaN: reading one would show.
    let mut bits = vec![0x7e00u16; blocks * shape.block_elements()];
    let mut free: Vec<u32> = (0..blocks as u32).collect();
    let tables = lengths
        .iter()
        .map(|len| {
            let table: Vec<u32> =
                (0..len.div_ceil(16)).map(|_| free.swap_remove(noise.bits() as usize % free.len())).collect();
            for position in 0..*len {
                let (k, v) = (
                    noise.values(shape.kv_heads * shape.head_dim),
                    noise.values(shape.kv_heads * shape.head_dim),
                );
                kv_store(&mut bits, shape, table[position / 16], position % 16, &k, &v);
            }
            table
        })
        .collect();
    Cache { bits, tables }
}

#[test]
fn a_copied_block_reads_as_the_one_it_came_from_and_no_other_changes() {
    let shape = AttentionShape { heads: 4, kv_heads: 2, head_dim: 24 };
    let mut noise = Noise(9);
    let Cache { mut bits, .. } = cache(shape, &[16, 16, 16], &mut noise);
    let before = bits.clone();
    kv_copy(&mut bits, shape, 2, 0);
    kv_copy(&mut bits, shape, 1, 1);
    let (was, is) = (KvView { bits: &before, shape }, KvView { bits: &bits, shape });
    for (block, source) in [(0, 2), (1, 1), (2, 2)] {
        for (position, head, dim) in
            (0..16).flat_map(|p| (0..2).flat_map(move |h| (0..24).map(move |d| (p, h, d))))
        {
            let key = |view: &KvView<'_>, block| view.key(&[block], position, head, dim).to_bits();
            let value = |view: &KvView<'_>, block| view.value(&[block], position, head, dim).to_bits();
            assert_eq!(key(&is, block), key(&was, source), "key {block} {position} {head} {dim}");
            assert_eq!(value(&is, block), value(&was, source), "value {block} {position} {head} {dim}");
        }
    }
}

#[test]
fn attention_matches_dense_attention_and_ignores_chunking() {
    for (heads, kv_heads, head_dim) in [(14, 2, 64), (9, 3, 64), (4, 4, 32), (8, 1, 128), (2, 1, 24)] {
        let shape = AttentionShape { heads, kv_heads, head_dim };
        let mut noise = Noise(5);
        // A long chunk with history, a decode, a fresh prompt, one token alone.
        // An encoder's text last: it sees all of itself.
        let spans = [(37, 21, true), (90, 1, true), (0, 33, true), (0, 1, true), (0, 19, false)];
        let lengths: Vec<usize> = spans.iter().map(|(start, tokens, _)| start + tokens).collect();
        let cache = cache(shape, &lengths, &mut noise);
        let view = KvView { bits: &cache.bits, shape };
        let total: usize = spans.iter().map(|(_, tokens, _)| tokens).sum();
        let q = noise.values(total * heads * head_dim);
        let mut first = 0;
        let rows: Vec<QueryRow<'_>> = spans
            .iter()
            .zip(&cache.tables)
            .map(|((start, tokens, causal), blocks)| {
                first += tokens;
                QueryRow { blocks, start: *start, tokens: *tokens, first: first - tokens, causal: *causal }
            })
            .collect();
        let run = |isa: Isa, rows: &[QueryRow<'_>]| {
            let mut out = vec![0f32; q.len()];
            attention(&mut Compute::new(2, isa), view, rows, &q, &mut out);
            out
        };
        let wanted = run(Isa::Reference, &rows);
        for isa in fast_paths() {
            let got = run(isa, &rows);
            let error = relative_error(&got, &wanted);
            assert!(error < 2e-6, "{isa} {shape:?}: {error}");
            // The same queries, one token at a time.
            let single: Vec<QueryRow<'_>> = rows
                .iter()
                .filter(|row| row.causal)
                .flat_map(|row| {
                    (0..row.tokens).map(|t| QueryRow {
                        start: row.start + t,
                        tokens: 1,
                        first: row.first + t,
                        ..*row
                    })
                })
                .collect();
            let causal = (total - 19) * heads * head_dim;
            assert_eq!(
                bits(&run(isa, &single)[..causal]),
                bits(&got[..causal]),
                "{isa} {shape:?}: chunking shows"
            );
        }
    }
}

#[test]
fn small_operations_match_the_reference() {
    let mut noise = Noise(6);
    let x: Vec<f32> = noise.values(96 * 33).iter().map(|x| x * 9.0).collect();
    let y = noise.values(x.len());
    let weight = noise.values(96);
    let run = |isa: Isa| {
        let mut compute = Compute::new(2, isa);
        let mut norm = vec![0.0; x.len()];
        rms_norm(&mut compute, &x, &weight, 1e-5, &mut norm);
        let (mut gate, mut hidden) = (x.clone(), x.clone());
        swiglu(&mut compute, &mut gate, &y, 96);
        gelu(&mut compute, &mut hidden, 96);
        [norm, gate, hidden]
    };
    let wanted = run(Isa::Reference);
    for isa in fast_paths() {
        for (name, (got, wanted)) in ["rms_norm", "swiglu", "gelu"].iter().zip(run(isa).iter().zip(&wanted)) {
            let error = relative_error(got, wanted);
            assert!(error < 1e-6, "{isa} {name}: {error}");
        }
    }
}
