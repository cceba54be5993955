//! Does paged attention equal dense attention, whatever the chunks, the batch and the threads?
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

mod common;

use common::{Noise, bits, relative_error};
use kernels::{
    Angles, AttentionShape, Compute, Isa, KvFormat, KvPool, QueryRow, RopeStyle, attention, rope_and_store,
};

const SHAPES: [(usize, usize, usize); 5] = [(14, 2, 64), (9, 3, 64), (4, 4, 32), (8, 1, 128), (2, 1, 24)];

fn fast_paths() -> Vec<Isa> {
    Isa::available().into_iter().filter(|isa| *isa != Isa::Reference).collect()
}

fn shape((heads, kv_heads, head_dim): (usize, usize, usize)) -> AttentionShape {
    AttentionShape { heads, kv_heads, head_dim }
}

/// A pool in which each sequence's table is scattered, and what was put there: `[sequence][position][kv head][dim]`.
struct Cache {
    pool: KvPool,
    tables: Vec<Vec<u32>>,
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

fn cache(shape: AttentionShape, format: KvFormat, lengths: &[usize], noise: &mut Noise) -> Cache {
    let blocks: usize = lengths.iter().map(|len| len.div_ceil(16)).sum();
    let mut pool = KvPool::new(shape, format, 2, blocks).unwrap();
    let width = shape.kv_heads * shape.head_dim;
    // Unwritten places hold what a computation may leave there; reading one would show.
    for (block, slot) in (0..blocks as u32).flat_map(|block| (0..16).map(move |slot| (block, slot))) {
        pool.store(1, block, slot, &vec![f32::NAN; width], &vec![f32::NAN; width]);
    }
    let mut free: Vec<u32> = (0..blocks as u32).collect();
    let (mut tables, mut keys, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for len in lengths {
        let table: Vec<u32> =
            (0..len.div_ceil(16)).map(|_| free.swap_remove(noise.bits() as usize % free.len())).collect();
        let (k, v) = (noise.values(len * width), noise.values(len * width));
        for (position, (k, v)) in k.chunks_exact(width).zip(v.chunks_exact(width)).enumerate() {
            pool.store(1, table[position / 16], position % 16, k, v);
        }
        tables.push(table);
        keys.push(k);
        values.push(v);
    }
    Cache { pool, tables, keys, values }
}

/// (start, tokens, causal): a long chunk with history over several spans, decodes short and long, a fresh prompt, one
/// token alone, an encoder's text.
const SPANS: [(usize, usize, bool); 7] = [
    (1_037, 21, true),
    (90, 1, true),
    (1_600, 1, true),
    (511, 2, true),
    (0, 33, true),
    (0, 1, true),
    (0, 19, false),
];

fn rows<'a>(cache: &'a Cache) -> Vec<QueryRow<'a>> {
    let mut first = 0;
    SPANS
        .iter()
        .zip(&cache.tables)
        .map(|((start, tokens, causal), blocks)| {
            first += tokens;
            QueryRow { blocks, start: *start, tokens: *tokens, first: first - tokens, causal: *causal }
        })
        .collect()
}

fn lengths() -> Vec<usize> {
    SPANS.iter().map(|(start, tokens, _)| start + tokens).collect()
}

fn run(cache: &Cache, isa: Isa, threads: usize, rows: &[QueryRow<'_>], q: &[f32]) -> Vec<f32> {
    let mut out = vec![0f32; q.len()];
    let shape = cache.pool.shape();
    let width = shape.heads * shape.head_dim;
    attention(&mut Compute::new(threads, isa), cache.pool.layer(1), rows, q, width, &mut out);
    out
}

/// Attention in f64 over the numbers as they were before they were stored.
fn dense(cache: &Cache, rows: &[QueryRow<'_>], q: &[f32]) -> Vec<f32> {
    let AttentionShape { heads, kv_heads, head_dim } = cache.pool.shape();
    let mut out = vec![0f32; q.len()];
    for (s, row) in rows.iter().enumerate() {
        for (token, head) in (0..row.tokens).flat_map(|t| (0..heads).map(move |h| (t, h))) {
            let at = ((row.first + token) * heads + head) * head_dim;
            let seen = row.start + if row.causal { token + 1 } else { row.tokens };
            let of = |all: &'_ [f32], position: usize, d: usize| {
                f64::from(all[(position * kv_heads + head / (heads / kv_heads)) * head_dim + d])
            };
            let score = |position| {
                let dot = |d| f64::from(q[at + d]) * of(&cache.keys[s], position, d);
                (0..head_dim).map(dot).sum::<f64>() / (head_dim as f64).sqrt()
            };
            let scores: Vec<f64> = (0..seen).map(score).collect();
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|s| (s - top).exp()).sum();
            for d in 0..head_dim {
                let mixed: f64 = scores
                    .iter()
                    .enumerate()
                    .map(|(position, score)| (score - top).exp() / sum * of(&cache.values[s], position, d))
                    .sum();
                out[at + d] = mixed as f32;
            }
        }
    }
    out
}

#[test]
fn attention_equals_dense_attention() {
    for heads in SHAPES {
        for (format, stored, lost) in [(KvFormat::Bits16, 2e-4, 2e-4), (KvFormat::Bits8, 2e-4, 8e-3)] {
            let mut noise = Noise(5);
            let cache = cache(shape(heads), format, &lengths(), &mut noise);
            let rows = rows(&cache);
            let total: usize = SPANS.iter().map(|(_, tokens, _)| tokens).sum();
            let q: Vec<f32> = noise.values(total * heads.0 * heads.2).iter().map(|q| q * 4.0).collect();
            // By the plain definition over what is stored: what the arithmetic loses.
            let wanted = run(&cache, Isa::Reference, 1, &rows, &q);
            // By an independent one over what was given: what storing loses, too.
            let given = dense(&cache, &rows, &q);
            for isa in fast_paths() {
                let got = run(&cache, isa, 2, &rows, &q);
                let errors = [relative_error(&got, &wanted), relative_error(&got, &given)];
                assert!(errors[0] < stored && errors[1] < lost, "{isa} {heads:?} {format:?}: {errors:?}");
            }
        }
    }
}

#[test]
fn a_query_does_not_depend_on_its_chunk_its_neighbours_or_the_threads() {
    for heads in SHAPES {
        for format in [KvFormat::Bits16, KvFormat::Bits8] {
            let mut noise = Noise(5);
            let cache = cache(shape(heads), format, &lengths(), &mut noise);
            let rows = rows(&cache);
            let total: usize = SPANS.iter().map(|(_, tokens, _)| tokens).sum();
            let width = heads.0 * heads.2;
            let q = noise.values(total * width);
            for isa in fast_paths() {
                let together = run(&cache, isa, 1, &rows, &q);
                assert_eq!(
                    bits(&run(&cache, isa, 3, &rows, &q)),
                    bits(&together),
                    "{isa} {heads:?}: threads"
                );
                for row in rows.iter().filter(|row| row.causal) {
                    for token in 0..row.tokens {
                        // Alone in its call, so that its context is shared among the threads.
                        let first = row.first + token;
                        let single = QueryRow { start: row.start + token, tokens: 1, first, ..*row };
                        let got = run(&cache, isa, 3, &[single], &q);
                        let range = first * width..(first + 1) * width;
                        assert_eq!(
                            bits(&got[range.clone()]),
                            bits(&together[range]),
                            "{isa} {heads:?} {format:?}: position {}",
                            row.start + token
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn extreme_numbers_neither_overflow_nor_hide() {
    let shape = AttentionShape { heads: 2, kv_heads: 1, head_dim: 128 };
    let width = 128;
    for (format, isa) in [KvFormat::Bits16, KvFormat::Bits8]
        .iter()
        .flat_map(|f| fast_paths().into_iter().map(move |i| (*f, i)))
    {
        let mut pool = KvPool::new(shape, format, 1, 8).unwrap();
        let table: Vec<u32> = (0..8).collect();
        // All elements at their limit, keys and queries along each other: every integer sum is as large as it gets.
        for position in 0..128 {
            pool.store(0, position / 16, position as usize % 16, &vec![3e4; width], &vec![-7e4; width]);
        }
        let q = vec![1e-4f32; 2 * width];
        let row = QueryRow { blocks: &table, start: 127, tokens: 1, first: 0, causal: true };
        let run = |pool: &KvPool, q: &[f32]| {
            let mut out = vec![0f32; 2 * width];
            attention(&mut Compute::new(2, isa), pool.layer(0), &[row], q, 2 * width, &mut out);
            out
        };
        // Equal scores: the mean of equal values.
        assert!(run(&pool, &q).iter().all(|x| (x / -7e4 - 1.0).abs() < 1e-3), "{isa} {format:?}");
        // Keys of zero length, and a query of zero length.
        pool.store(0, 2, 5, &vec![0.0; width], &vec![0.0; width]);
        assert!(run(&pool, &vec![0.0; 2 * width]).iter().all(|x| x.is_finite()), "{isa} {format:?}");
        for poison in [f32::NAN, f32::INFINITY] {
            let mut q = q.clone();
            q[77] = poison;
            assert!(run(&pool, &q)[..width].iter().all(|x| !x.is_finite()), "{isa} {format:?} hid {poison}");
        }
        pool.store(0, 7, 3, &vec![f32::NAN; width], &vec![1.0; width]);
        assert!(run(&pool, &q).iter().all(|x| x.is_nan()), "{isa} {format:?} hid a NaN key");
    }
}

#[test]
fn sixteen_bits_are_no_worse_than_half_precision_allows() {
    // The error of a stored vector against that of f16 and bf16 on the same numbers.
    let mut noise = Noise(21);
    let shape = AttentionShape { heads: 1, kv_heads: 1, head_dim: 64 };
    let mut pool = KvPool::new(shape, KvFormat::Bits16, 1, 1).unwrap();
    let (mut ours, mut wanted) = (Vec::new(), Vec::new());
    for slot in 0..16 {
        // One dimension stands out, as the keys of models with biases do.
        let mut x = noise.values(64);
        x[11] *= 20.0;
        pool.store(0, 0, slot, &x, &x);
        let layer = pool.layer(0);
        ours.extend((0..64).map(|d| layer.key(&[0], slot, 0, d)));
        ours.extend((0..64).map(|d| layer.value(&[0], slot, 0, d)));
        wanted.extend(x.iter().chain(&x));
    }
    let brain: Vec<f32> = wanted.iter().map(|x| half::bf16::from_f32(*x).to_f32()).collect();
    let half: Vec<f32> = wanted.iter().map(|x| half::f16::from_f32(*x).to_f32()).collect();
    let [ours, half, brain] = [ours, half, brain].map(|got| relative_error(&got, &wanted));
    assert!(ours < half && half < brain / 4.0, "{ours} {half} {brain}");
}

#[test]
fn a_copied_block_reads_as_the_one_it_came_from_and_no_other_changes() {
    let shape = AttentionShape { heads: 4, kv_heads: 2, head_dim: 24 };
    let mut noise = Noise(9);
    for format in [KvFormat::Bits16, KvFormat::Bits8] {
        let Cache { mut pool, .. } = cache(shape, format, &[16, 16, 16], &mut noise);
        let all = |pool: &KvPool| -> Vec<[u32; 2]> {
            (0..3u32)
                .flat_map(|b| {
                    (0..16).flat_map(move |p| (0..2).flat_map(move |h| (0..24).map(move |d| (b, p, h, d))))
                })
                .map(|(block, position, head, dim)| {
                    let layer = pool.layer(1);
                    let key = layer.key(&[block], position, head, dim).to_bits();
                    [key, layer.value(&[block], position, head, dim).to_bits()]
                })
                .collect()
        };
        let before = all(&pool);
        pool.copy(2, 0);
        pool.copy(1, 1);
        let (after, len) = (all(&pool), before.len() / 3);
        assert_eq!(after[..len], before[2 * len..], "block 0 is not block 2");
        assert_eq!(after[len..], before[len..], "another block changed");
    }
}

#[test]
fn stored_keys_are_rotated_and_queries_too() {
    let shape = AttentionShape { heads: 2, kv_heads: 1, head_dim: 16 };
    let (width, tokens) = (shape.qkv_width(), 20);
    let mut noise = Noise(31);
    let before = noise.values(tokens * width);
    for style in [RopeStyle::Interleaved, RopeStyle::Halves] {
        let mut angles = Angles::new(10_000.0, 12, style);
        angles.reach(40);
        let mut pool = KvPool::new(shape, KvFormat::Bits16, 1, 3).unwrap();
        let table = [2, 0, 1];
        let row = QueryRow { blocks: &table, start: 13, tokens, first: 0, causal: true };
        let mut qkv = before.clone();
        rope_and_store(&mut Compute::new(2, Isa::detect()), Some(&angles), &mut pool, 0, &[row], &mut qkv);
        for token in 0..tokens {
            let position = 13 + token;
            for head in 0..3 {
                for i in 0..6 {
                    let (a, b) = match style {
                        RopeStyle::Interleaved => (2 * i, 2 * i + 1),
                        RopeStyle::Halves => (i, i + 6),
                    };
                    let at = |d: usize| token * width + head * 16 + d;
                    let angle = position as f64 * 10_000f64.powf(-2.0 * i as f64 / 12.0);
                    let (u, v) = (f64::from(before[at(a)]), f64::from(before[at(b)]));
                    let wanted = [u * angle.cos() - v * angle.sin(), u * angle.sin() + v * angle.cos()];
                    for (d, wanted) in [(a, wanted[0]), (b, wanted[1])] {
                        let got =
                            if head < 2 { qkv[at(d)] } else { pool.layer(0).key(&table, position, 0, d) };
                        assert!((f64::from(got) - wanted).abs() < 1e-4, "{style:?} {position} {head} {d}");
                    }
                }
            }
            // Dimensions past the rotated ones, and values, stay.
            for d in 0..16 {
                let value = pool.layer(0).value(&table, position, 0, d);
                assert!((value - before[token * width + 48 + d]).abs() < 1e-4, "value {position} {d}");
            }
            assert_eq!(
                qkv[token * width + 12..token * width + 16],
                before[token * width + 12..token * width + 16]
            );
        }
    }
}
