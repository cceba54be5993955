//! How is a file damaged in tests? By a few edits of its bytes, such as disks, programs and people make.

use proptest::prelude::*;

/// One edit; places and lengths are shares of the file.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// A byte is another.
    Flip(f64, u8),
    /// A run is gone.
    Cut(f64, f64),
    /// A run comes twice.
    Twice(f64, f64),
    /// A run is zeros.
    Zero(f64, f64),
    /// Bytes come in between.
    Insert(f64, Vec<u8>),
    /// A digit is another, so that what can be read still says something else.
    Digit(f64, u8),
}

/// A few edits; short runs more often than long ones.
pub(crate) fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let at = || 0.0..1.0f64;
    let len = || (0.0..1.0f64).prop_map(|share| share.powi(4));
    let one = prop_oneof![
        (at(), 1u8..).prop_map(|(at, bits)| Edit::Flip(at, bits)),
        (at(), len()).prop_map(|(at, len)| Edit::Cut(at, len)),
        (at(), len()).prop_map(|(at, len)| Edit::Twice(at, len)),
        (at(), len()).prop_map(|(at, len)| Edit::Zero(at, len)),
        (at(), prop::collection::vec(any::<u8>(), 1..40)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (at(), b'0'..=b'9').prop_map(|(at, digit)| Edit::Digit(at, digit)),
    ];
    prop::collection::vec(one, 1..4)
}

/// The bytes after the edits.
pub(crate) fn mutate(bytes: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for edit in edits {
        let place = |share: f64| ((out.len() as f64 * share) as usize).min(out.len());
        let run = |at: f64, len: f64| place(at)..(place(at) + 1 + place(len)).min(out.len());
        match edit {
            Edit::Flip(at, bits) => {
                let at = place(*at);
                out.get_mut(at).into_iter().for_each(|byte| *byte ^= bits);
            }
            Edit::Cut(at, len) => drop(out.drain(run(*at, *len))),
            Edit::Twice(at, len) => {
                let run = run(*at, *len);
                let copy = out[run.clone()].to_vec();
                out.splice(run.end..run.end, copy);
            }
            Edit::Zero(at, len) => {
                let run = run(*at, *len);
                out[run].fill(0);
            }
            Edit::Insert(at, bytes) => {
                let at = place(*at);
                out.splice(at..at, bytes.iter().copied());
            }
            Edit::Digit(at, digit) => {
                let at = place(*at);
                let found = out.iter_mut().skip(at).find(|byte| byte.is_ascii_digit());
                found.into_iter().for_each(|byte| *byte = *digit);
            }
        }
    }
    out
}
