//! Do our decoders read GGUF blocks as candle's own do?
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

mod common;

use candle_core::Device;
use candle_core::quantized::{GgmlDType, ggml_file::qtensor_from_ggml};
use common::Noise;
use kernels::{Format, Matrix, dequantize_row};

/// Random blocks whose f16 scales are small and finite, so that values compare.
fn blocks(format: Format, count: usize, noise: &mut Noise) -> Vec<u8> {
    let (_, bytes) = format.block();
    let mut raw = noise.bytes(count * bytes);
    let scales: &[usize] = match format {
        Format::Q4_0 | Format::Q5_0 | Format::Q8_0 | Format::F16 => &[0],
        Format::Q4_1 | Format::Q5_1 | Format::Q4K | Format::Q5K => &[0, 2],
        Format::Q6K => &[208],
        Format::F32 | Format::Bf16 => &[],
    };
    for block in raw.chunks_exact_mut(bytes) {
        for at in scales {
            let scale = half::f16::from_f32(noise.value() * 0.1).to_le_bytes();
            block[*at..*at + 2].copy_from_slice(&scale);
        }
        match format {
            Format::F32 => block.copy_from_slice(&noise.value().to_le_bytes()),
            Format::Bf16 => block.copy_from_slice(&half::bf16::from_f32(noise.value()).to_le_bytes()),
            _ => {}
        }
    }
    raw
}

fn check(format: Format, theirs: GgmlDType) {
    let mut noise = Noise(7);
    let (rows, cols) = (20, 512);
    let raw = blocks(format, rows * cols / format.block().0, &mut noise);
    let tensor = qtensor_from_ggml(theirs, &raw, vec![rows, cols], &Device::Cpu).unwrap();
    let wanted: Vec<f32> = tensor.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap();
    let matrix = Matrix::pack(format, rows, cols, &raw).unwrap();
    let row_bytes = format.row_bytes(cols).unwrap();
    for row in 0..rows {
        let wanted = &wanted[row * cols..(row + 1) * cols];
        let top = wanted.iter().fold(0f32, |top, x| top.max(x.abs()));
        let (mut plain, mut packed) = (vec![0.0; cols], vec![0.0; cols]);
        dequantize_row(format, &raw[row * row_bytes..(row + 1) * row_bytes], &mut plain).unwrap();
        matrix.row(row, &mut packed);
        for (k, wanted) in wanted.iter().enumerate() {
            // One rounding may fall elsewhere: (d * scale) * q against d * (scale * q).
            let close = |got: f32| (got - wanted).abs() <= 1e-6 * (1.0 + wanted.abs() * 4.0);
            assert!(close(plain[k]), "{format:?} row {row} col {k}: {} against {wanted}", plain[k]);
            // Products of two scales are rounded to f16: scale and minimum each within 2^-11, beside the largest weight.
            let rounded = matches!(format, Format::Q4K | Format::Q5K | Format::Q6K);
            let allowed = if rounded { top * 2.0 / 2048.0 } else { 0.0 };
            let near = close(packed[k]) || (packed[k] - wanted).abs() <= allowed;
            assert!(near, "{format:?} packed row {row} col {k}: {} against {wanted}", packed[k]);
        }
    }
}

#[test]
fn every_format_is_read_as_candle_reads_it() {
    for (ours, theirs) in [
        (Format::F32, GgmlDType::F32),
        (Format::F16, GgmlDType::F16),
        (Format::Bf16, GgmlDType::BF16),
        (Format::Q4_0, GgmlDType::Q4_0),
        (Format::Q4_1, GgmlDType::Q4_1),
        (Format::Q5_0, GgmlDType::Q5_0),
        (Format::Q5_1, GgmlDType::Q5_1),
        (Format::Q8_0, GgmlDType::Q8_0),
        (Format::Q4K, GgmlDType::Q4K),
        (Format::Q5K, GgmlDType::Q5K),
        (Format::Q6K, GgmlDType::Q6K),
    ] {
        check(ours, theirs);
    }
}

#[test]
fn bytes_that_do_not_fit_are_refused() {
    assert!(Matrix::pack(Format::Q4K, 1, 100, &[0; 144]).is_err(), "ragged row");
    assert!(Matrix::pack(Format::Q4K, 2, 256, &[0; 144]).is_err(), "too short");
    assert!(Matrix::pack(Format::Q8_0, 0, 32, &[]).is_err(), "no rows");
    assert!(Matrix::pack(Format::F32, usize::MAX / 2, 1024, &[0; 16]).is_err(), "absurd shape");
}
