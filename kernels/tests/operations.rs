//! Does every instruction set compute what the reference defines, and the same for a row whatever surrounds it?
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

mod common;

use common::{Noise, QUANTISED, bits, fast_paths, filled, relative_error, run, weights};
use kernels::{
    Activations, Compute, Format, Forms, Isa, Linear, Matrix, log_sum_exp, product, product_add,
    product_gelu, product_swiglu, rms_norm,
};

#[test]
fn products_match_the_reference_on_every_path() {
    let mut noise = Noise(1);
    for format in QUANTISED {
        // 40 outputs leave the last panel half filled.
        let (outputs, cols) = (40, 512);
        let w = weights(format, outputs, cols, &mut noise);
        for rows in [1, 2, 5, 7, 13] {
            let x = noise.values(rows * cols);
            let wanted = run(Isa::Reference, 1, &w, &x, rows);
            let portable = run(Isa::Portable, 1, &w, &x, rows);
            for isa in fast_paths() {
                let got = run(isa, 3, &w, &x, rows);
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
    let w = Linear::new(Matrix::pack_f32(outputs, cols, &noise.values(outputs * cols)).unwrap());
    for rows in [1, 3, 9, 17] {
        let x = noise.values(rows * cols);
        let wanted = run(Isa::Reference, 1, &w, &x, rows);
        for isa in fast_paths() {
            let error = relative_error(&run(isa, 2, &w, &x, rows), &wanted);
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
            let together = run(isa, 4, &w, &x, rows);
            for row in 0..rows {
                let alone = run(isa, 1, &w, &x[row * cols..(row + 1) * cols], 1);
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
            assert!(run(isa, 1, &w, &x, 1).iter().all(|y| !y.is_finite()), "{isa} hid {poison}");
        }
    }
}

/// A plain product of f32 rows.
fn dense(w: &Linear, x: &[f32], rows: usize) -> Vec<f32> {
    run(Isa::Reference, 1, w, x, rows)
}

fn read(activations: &Activations, compute: &mut Compute, width: usize) -> Vec<f32> {
    // The identity reads the activations back, as the next product sees them.
    let mut identity = vec![0f32; width * width];
    (0..width).for_each(|i| identity[i * width + i] = 1.0);
    let bytes: Vec<u8> = match compute.isa() {
        Isa::Reference => identity.iter().flat_map(|x| x.to_le_bytes()).collect(),
        // Q8_0 with a scale of 1 holds the identity exactly.
        _ => identity
            .chunks_exact(32)
            .flat_map(|block| {
                let scale = half::f16::ONE.to_le_bytes();
                scale.into_iter().chain(block.iter().map(|x| *x as u8)).collect::<Vec<u8>>()
            })
            .collect(),
    };
    let format = if compute.isa() == Isa::Reference { Format::F32 } else { Format::Q8_0 };
    let identity = Linear::new(Matrix::pack(format, width, width, &bytes).unwrap());
    let mut out = vec![0.0; activations.rows() * width];
    product(compute, &[&identity], activations, &mut out);
    out
}

#[test]
fn products_of_several_matrices_stand_side_by_side_with_their_biases() {
    let mut noise = Noise(11);
    let (rows, cols) = (9, 256);
    let mut parts = [
        weights(Format::Q5_0, 40, cols, &mut noise),
        weights(Format::Q8_0, 32, cols, &mut noise),
        Linear::new(Matrix::pack_f32(24, cols, &noise.values(24 * cols)).unwrap()),
    ];
    parts[1].bias = Some(noise.values(32));
    parts[2].bias = Some(noise.values(24));
    let x = noise.values(rows * cols);
    for isa in fast_paths() {
        let mut compute = Compute::new(3, isa);
        let all = parts.each_ref();
        let input = filled(&mut compute, &all, &x, rows);
        let mut out = vec![f32::NAN; rows * 96];
        product(&mut compute, &all, &input, &mut out);
        let mut from = 0;
        for part in all {
            let width = part.weights.rows();
            let alone = run(isa, 1, part, &x, rows);
            let bias = part.bias.as_deref().unwrap_or(&[]);
            let wanted = dense(part, &x, rows);
            assert!(relative_error(&alone, &wanted) < 0.012, "{isa}: bias of {}", bias.len());
            for row in 0..rows {
                assert_eq!(
                    bits(&out[row * 96 + from..][..width]),
                    bits(&alone[row * width..][..width]),
                    "{isa}: part at {from}, row {row}"
                );
            }
            from += width;
        }
        // Adding twice to zeros is twice the product.
        let mut sum = vec![0.0; rows * 32];
        product_add(&mut compute, all[1], &input, &mut sum);
        product_add(&mut compute, all[1], &input, &mut sum);
        let twice: Vec<f32> = run(isa, 2, all[1], &x, rows).iter().map(|y| y * 2.0).collect();
        assert!(relative_error(&sum, &twice) < 1e-6, "{isa}");
    }
}

#[test]
fn gates_come_out_ready_for_the_next_product() {
    let mut noise = Noise(12);
    for (outputs, rows) in [(96, 7), (40, 3)] {
        let cols = 256;
        let mut gate = weights(Format::Q4K, outputs, cols, &mut noise);
        gate.bias = Some(noise.values(outputs));
        let up = weights(Format::Q6K, outputs, cols, &mut noise);
        let x = noise.values(rows * cols);
        let (g, u) = (dense(&gate, &x, rows), dense(&up, &x, rows));
        let swiglu: Vec<f32> =
            g.iter().zip(&u).map(|(g, u)| (f64::from(*g) / (1.0 + f64::from(-g).exp())) as f32 * u).collect();
        let gelu: Vec<f32> = g
            .iter()
            .map(|g| {
                let g = f64::from(*g);
                (0.5 * g * (1.0 + libm::erf(g / std::f64::consts::SQRT_2))) as f32
            })
            .collect();
        for isa in [vec![Isa::Reference], fast_paths()].concat() {
            let mut compute = Compute::new(2, isa);
            let input = filled(&mut compute, &[&gate, &up], &x, rows);
            // 40 outputs are no whole units, so that the next product must be one of floats.
            let ragged = !outputs.is_multiple_of(32);
            let next = Matrix::pack_f32(1, outputs, &vec![0.0; outputs]).unwrap();
            let eights = (!ragged).then(|| weights(Format::Q8_0, 32, outputs, &mut Noise(1)).weights);
            let forms = Forms::of(&compute, [eights.as_ref().unwrap_or(&next)]);
            let mut out = Activations::default();
            for (wanted, name) in [(&swiglu, "swiglu"), (&gelu, "gelu")] {
                if name == "swiglu" {
                    product_swiglu(&mut compute, [&gate, &up], &input, forms, &mut out);
                } else {
                    product_gelu(&mut compute, &gate, &input, forms, &mut out);
                }
                if ragged {
                    let mut back = vec![0.0; rows];
                    let ones = Linear::new(Matrix::pack_f32(1, outputs, &vec![1.0; outputs]).unwrap());
                    product(&mut compute, &[&ones], &out, &mut back);
                    let sums: Vec<f32> = wanted.chunks_exact(outputs).map(|row| row.iter().sum()).collect();
                    assert!(relative_error(&back, &sums) < 0.03, "{isa} {name} {outputs}");
                } else {
                    let got = read(&out, &mut compute, outputs);
                    let error = relative_error(&got, wanted);
                    assert!(error < 0.02, "{isa} {name} {outputs}: {error}");
                }
            }
        }
    }
}

#[test]
fn norms_match_the_reference() {
    let mut noise = Noise(6);
    let (width, rows) = (320, 33);
    let x: Vec<f32> = noise.values(width * rows).iter().map(|x| x * 9.0).collect();
    let weight = noise.values(width);
    let next = weights(Format::Q8_0, 32, width, &mut noise).weights;
    let mut wanted = vec![0.0; x.len()];
    kernels::reference::rms_norm(&x, &weight, 1e-5, &mut wanted);
    for isa in [vec![Isa::Reference], fast_paths()].concat() {
        let mut compute = Compute::new(2, isa);
        let forms = Forms::of(&compute, [&next]);
        let mut out = Activations::default();
        rms_norm(&mut compute, forms, &x, &weight, 1e-5, &mut out);
        let error = relative_error(&read(&out, &mut compute, width), &wanted);
        assert!(error < 0.006, "{isa}: {error}");
    }
}

#[test]
fn the_sum_of_exponentials_is_that_of_f64() {
    let mut noise = Noise(8);
    for len in [1usize, 15, 16, 1_000, 152_064] {
        let x: Vec<f32> = noise.values(len).iter().map(|x| x * 20.0).collect();
        let wanted = x.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
        for isa in fast_paths() {
            let (got, top) = log_sum_exp(isa, &x);
            assert!((got - wanted).abs() < 1e-6 * wanted.abs().max(1.0), "{isa} {len}: {got} {wanted}");
            assert_eq!(top, x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        }
        for poison in [f32::NAN, f32::INFINITY] {
            let mut bad = x.clone();
            bad[len / 2] = poison;
            assert!(fast_paths().into_iter().all(|isa| log_sum_exp(isa, &bad).0.is_nan()), "{poison}");
        }
        let nothing = vec![f32::NEG_INFINITY; len];
        assert!(fast_paths().into_iter().all(|isa| log_sum_exp(isa, &nothing).1 == f32::NEG_INFINITY));
    }
}
