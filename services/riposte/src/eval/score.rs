//! How close does an answer come to the gold answer anywhere inside it? SQuAD's F1 of the stretch that fits best.
//!
//! SQuAD's own measures expect a bare span; this service answers in sentences, whose other words are no mistake.

use answer::score::{f1, normalise};
use answer::without_marks;

/// The best F1 of any stretch of `answer`, without its citations, against any of `golds`; 0 without gold answers.
///
/// Only stretches up to twice as long as the gold answer are tried: a longer one has a precision below one half, and
/// cutting it to the words that match never scores less.
pub fn f1_inside(answer: &str, golds: &[String]) -> f64 {
    let answer = normalise(&without_marks(answer));
    let words: Vec<&str> = answer.split_whitespace().collect();
    let best = |gold: &String| {
        let length = normalise(gold).split_whitespace().count();
        let stretches = (1..=(2 * length).min(words.len())).flat_map(|length| words.windows(length));
        stretches.map(|stretch| f1(&stretch.join(" "), &[gold])).fold(0.0, f64::max)
    };
    golds.iter().map(best).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, golds: &[&str], expected: f64) {
        let golds: Vec<_> = golds.iter().map(|gold| (*gold).to_string()).collect();
        let found = f1_inside(answer, &golds);
        assert!((found - expected).abs() < 1e-9, "{answer:?}: {found}");
    }

    #[test]
    fn worked_by_hand() {
        check("They surrendered 308 points [2].", &["308"], 1.0);
        // "denver" of "denver broncos": P = 1, R = 1/2.
        check("It was Denver.", &["Denver Broncos"], 2.0 / 3.0);
        // "in the year 1066 of our era": the best stretch is "year 1066" against "year of 1066": P = 1, R = 2/3.
        check("It was in the year 1066.", &["year of 1066"], 0.8);
        check("In 13080 games.", &["308"], 0.0);
        check("1990", &["nineteen ninety", "1990"], 1.0);
        check("", &["x"], 0.0);
        check("x", &[], 0.0);
    }
}
