//! What becomes of a panel's results before the next product? The functions between the two halves of a feed-forward
//! layer, on all rows at once.

use super::pack::PANEL;
use super::small::{exp, gelu_of};
use super::unpack::Lanes;
use super::vectorised;
use crate::Isa;
use crate::reference;

/// `gate = silu(gate + bias) * (up + bias)`, row by row.
pub(crate) fn swiglu(isa: Isa, up: &[Lanes<f32>], gate: &mut [Lanes<f32>], biases: [&Lanes<f32>; 2]) {
    if isa == Isa::Reference {
        for (gate, up) in gate.iter_mut().zip(up) {
            gate.0 = std::array::from_fn(|i| {
                reference::swiglu(gate.0[i] + biases[0].0[i], up.0[i] + biases[1].0[i])
            });
        }
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512Vnni {
        return super::avx512_small::swiglu(up, gate, biases);
    }
    vectorised!(
        isa,
        fn body(up: &[Lanes<f32>], gate: &mut [Lanes<f32>], biases: [&Lanes<f32>; 2]) {
            for (gate, up) in gate.iter_mut().zip(up) {
                for i in 0..PANEL {
                    let (g, u) = (gate.0[i] + biases[0].0[i], up.0[i] + biases[1].0[i]);
                    gate.0[i] = g / (1.0 + exp(-g)) * u;
                }
            }
        }
    );
}

/// `x = gelu(x + bias)`, row by row.
pub(crate) fn gelu(isa: Isa, x: &mut [Lanes<f32>], biases: [&Lanes<f32>; 2]) {
    if isa == Isa::Reference {
        for x in x {
            x.0 = std::array::from_fn(|i| reference::gelu(x.0[i] + biases[0].0[i]));
        }
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512Vnni {
        return super::avx512_small::gelu(x, biases[0]);
    }
    vectorised!(
        isa,
        fn body(x: &mut [Lanes<f32>], biases: [&Lanes<f32>; 2]) {
            for x in x {
                for i in 0..PANEL {
                    x.0[i] = gelu_of(x.0[i] + biases[0].0[i]);
                }
            }
        }
    );
}
