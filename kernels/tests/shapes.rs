//! Do large shapes, odd shapes and all float formats compute the same on every path? What real models meet and small tests
//! do not: more than 64 rows, several pieces of a panel, more than 512 rows.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

mod common;
use common::{Noise, QUANTISED, bits, fast_paths, relative_error, run, weights};
use kernels::{
    Activations, Angles, AttentionShape, Compute, Format, Forms, Isa, KvFormat, KvPool, Linear, Matrix,
    QueryRow, RopeStyle, attention, product_add, product_swiglu, rope_and_store,
};

#[test]
fn many_rows_many_pieces_equal_portable_and_single_rows() {
    let mut noise = Noise(77);
    for format in QUANTISED {
        let (outputs, cols) = (70, 2048);
        let w = weights(format, outputs, cols, &mut noise);
        for rows in [64, 65, 71, 130, 515] {
            let x = noise.values(rows * cols);
            let portable = if rows < 200 { Some(run(Isa::Portable, 2, &w, &x, rows)) } else { None };
            for isa in fast_paths() {
                if isa == Isa::Portable && rows > 200 {
                    continue;
                }
                let got = run(isa, 2, &w, &x, rows);
                if let Some(p) = &portable {
                    assert_eq!(bits(&got), bits(p), "{format:?} {isa} {rows}");
                }
                for row in [0, 5, rows / 2, rows - 1] {
                    let one = run(isa, 1, &w, &x[row * cols..(row + 1) * cols], 1);
                    assert_eq!(
                        bits(&one),
                        bits(&got[row * outputs..(row + 1) * outputs]),
                        "{format:?} {isa} {rows} row {row}"
                    );
                }
            }
        }
    }
}

#[test]
fn gates_of_many_rows_equal_those_of_one() {
    let mut noise = Noise(78);
    let (outputs, cols, rows) = (96, 1024, 70);
    let gate = weights(Format::Q4K, outputs, cols, &mut noise);
    let up = weights(Format::Q6K, outputs, cols, &mut noise);
    let down = weights(Format::Q8_0, 33, outputs, &mut noise);
    let x = noise.values(rows * cols);
    for isa in fast_paths() {
        let of = |x: &[f32], rows: usize, threads: usize| {
            let mut c = Compute::new(threads, isa);
            let (mut a, mut h) = (Activations::default(), Activations::default());
            let f = Forms::of(&c, [&gate.weights, &up.weights]);
            a.fill(&mut c, f, x, rows);
            let f = Forms::of(&c, [&down.weights]);
            product_swiglu(&mut c, [&gate, &up], &a, f, &mut h);
            let mut out = vec![0.5; rows * 33];
            product_add(&mut c, &down, &h, &mut out);
            out
        };
        let all = of(&x, rows, 2);
        for row in 0..rows {
            assert_eq!(
                bits(&of(&x[row * cols..(row + 1) * cols], 1, 1)),
                bits(&all[row * 33..(row + 1) * 33]),
                "{isa} {row}"
            );
        }
    }
}

#[test]
fn odd_outputs_and_float_formats() {
    let mut noise = Noise(79);
    for outputs in [1, 15, 31, 33, 63] {
        let cols = 300;
        for format in [Format::F16, Format::Bf16, Format::F32] {
            let values = noise.values(outputs * cols);
            let raw: Vec<u8> = values
                .iter()
                .flat_map(|v| match format {
                    Format::F16 => half::f16::from_f32(*v).to_le_bytes().to_vec(),
                    Format::Bf16 => half::bf16::from_f32(*v).to_le_bytes().to_vec(),
                    _ => v.to_le_bytes().to_vec(),
                })
                .collect();
            let w = Linear::new(Matrix::pack(format, outputs, cols, &raw).unwrap());
            for rows in [1, 7, 70] {
                let x = noise.values(rows * cols);
                let wanted = run(Isa::Reference, 1, &w, &x, rows);
                for isa in fast_paths() {
                    let e = relative_error(&run(isa, 2, &w, &x, rows), &wanted);
                    assert!(e < 1e-6, "{format:?} {isa} {outputs} {rows} {e}");
                }
            }
        }
    }
}

#[test]
fn odd_heads() {
    for head_dim in [1, 15, 17, 33] {
        let shape = AttentionShape { heads: 6, kv_heads: 3, head_dim };
        for format in [KvFormat::Bits16, KvFormat::Bits8] {
            let mut noise = Noise(80);
            let (tokens, table) = (300, (0..19).rev().collect::<Vec<u32>>());
            let width = shape.qkv_width();
            let before = noise.values(tokens * width);
            let row = QueryRow { blocks: &table, start: 0, tokens, first: 0, causal: true };
            let go = |isa, threads| {
                let mut c = Compute::new(threads, isa);
                let mut pool = KvPool::new(shape, format, 1, 19).unwrap();
                let mut angles = Angles::new(10_000.0, head_dim / 2 * 2, RopeStyle::Halves);
                angles.reach(tokens);
                let mut qkv = before.clone();
                rope_and_store(&mut c, Some(&angles), &mut pool, 0, &[row], &mut qkv);
                let mut out = vec![f32::NAN; tokens * 6 * head_dim];
                attention(&mut c, pool.layer(0), &[row], &qkv, width, &mut out);
                out
            };
            let wanted = go(Isa::Reference, 1);
            for isa in fast_paths() {
                let got = go(isa, 2);
                let e = relative_error(&got, &wanted);
                assert!(e < 3e-4, "{isa} {format:?} {head_dim} {e}");
                assert_eq!(bits(&got), bits(&go(isa, 1)));
            }
        }
    }
}

// ---- expected to FAIL if the finding is real ----

#[test]
fn what_is_no_number_is_refused() {
    for bad in [f32::NAN, f32::INFINITY] {
        let mut values = vec![0.5; 64];
        values[40] = bad;
        assert!(Matrix::pack_eight(2, 32, &values).is_err());
        let halves: Vec<u8> = values.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect();
        assert!(Matrix::pack(Format::F16, 2, 32, &halves).is_err());
    }
    assert!(Format::F32.row_bytes(1 << 62).is_err());
}

#[test]
fn tiny_weights_keep_their_sign() {
    for at in 1..4_000 {
        let tiny = at as f32 * 2.5e-7;
        let packed = Matrix::pack_eight(1, 32, &[tiny; 32]).unwrap();
        let mut row = vec![0.0; 32];
        packed.row(0, &mut row);
        assert!(row.iter().all(|x| *x >= 0.0), "{tiny} became {}", row[0]);
    }
}
