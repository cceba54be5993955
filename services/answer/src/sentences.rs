//! Where does a sentence end? Decided on a growing text, so that a sentence can be checked as soon as it stands.
//!
//! UAX 29 (unicode-segmentation) may look ahead without bound before it places a sentence boundary, and knows neither
//! abbreviations nor lists. A stream cannot wait for that: here a decision needs the next visible character at most.

use std::ops::Range;

/// Words that a full stop follows without ending the sentence.
const ABBREVIATIONS: &[&str] = &[
    "approx", "ca", "cf", "dr", "e.g", "eq", "fig", "figs", "gen", "i.e", "mr", "mrs", "ms", "mt", "pp",
    "prof", "resp", "sec", "sr", "st", "viz", "vs",
];
/// Words that a full stop follows without ending the sentence when a digit comes next: "No. 5".
const ABBREVIATIONS_OF_NUMBERS: &[&str] = &["ch", "no", "nos", "p", "sect", "tab", "v", "vol"];
/// May stand between the full stop and the space.
const CLOSERS: &[char] =
    &['"', '\'', '\u{201d}', '\u{2019}', ')', ']', '\u{bb}', '*', '_', '\u{300d}', '\u{300f}', '\u{ff09}'];

/// What a unit of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A sentence, a list item, a heading or a line of a table.
    Prose,
    /// A fenced block; never changed.
    Code,
}

/// A finished unit at the start of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// What it is.
    pub kind: Kind,
    /// Where a citation belongs that is added: before the full stop, or behind a closing quote.
    pub body: usize,
    /// One past its last byte, citations behind the full stop included.
    pub end: usize,
}

/// How far the first unit of a text is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It goes on; whatever follows, its body will not end before `safe`.
    Open {
        /// Bytes that may be shown.
        safe: usize,
    },
    /// It has ended.
    Ended(Unit),
}

/// Finds the end of the first unit of `text`, which starts with a visible character. `marks` are the places of
/// citations in it, in order; `complete` says that nothing follows.
pub fn next_unit(text: &str, marks: &[Range<usize>], complete: bool) -> Next {
    if text.starts_with("```") {
        return fenced(text, complete);
    }
    if !complete && text.bytes().all(|byte| byte == b'`') {
        return Next::Open { safe: 0 };
    }
    let reader = Reader { text, marks, complete };
    let mut at = 0;
    let mut code_ticks = 0;
    while let Some(c) = text[at..].chars().next() {
        if let Some(mark) = reader.mark_at(at) {
            at = mark.end;
        } else if c == '\n' {
            let end = text[..at].trim_end().len();
            return Next::Ended(Unit { kind: Kind::Prose, body: end, end });
        } else if c == '`' {
            let run = text[at..].len() - text[at..].trim_start_matches('`').len();
            code_ticks = match code_ticks {
                0 => run,
                open if open == run => 0,
                open => open,
            };
            at += run;
        } else if code_ticks == 0 && is_terminator(c) {
            match reader.terminal(at) {
                Terminal::Ends(unit) => return Next::Ended(unit),
                Terminal::GoesOn(next) => at = next,
                Terminal::Unknown => return Next::Open { safe: text[..at].trim_end().len() },
            }
        } else {
            at += c.len_utf8();
        }
    }
    let end = text.trim_end().len();
    if complete {
        Next::Ended(Unit { kind: Kind::Prose, body: end, end })
    } else {
        // An inline code run at the very end may still grow, but nothing is ever put inside it.
        Next::Open { safe: end }
    }
}

fn fenced(text: &str, complete: bool) -> Next {
    let ticks = text.len() - text.trim_start_matches('`').len();
    let mut at = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        at += line.len();
        let bare = line.trim();
        let closes = number > 0 && bare.len() >= ticks && bare.bytes().all(|byte| byte == b'`');
        if closes && (complete || line.ends_with('\n')) {
            let end = text[..at].trim_end().len();
            return Next::Ended(Unit { kind: Kind::Code, body: end, end });
        }
    }
    let end = text.trim_end().len();
    if complete { Next::Ended(Unit { kind: Kind::Code, body: end, end }) } else { Next::Open { safe: end } }
}

enum Terminal {
    Ends(Unit),
    GoesOn(usize),
    Unknown,
}

struct Reader<'a> {
    text: &'a str,
    marks: &'a [Range<usize>],
    complete: bool,
}

impl Reader<'_> {
    fn mark_at(&self, at: usize) -> Option<&Range<usize>> {
        self.marks.iter().find(|mark| mark.start == at)
    }

    /// Does the terminator at `at` end the sentence?
    fn terminal(&self, at: usize) -> Terminal {
        let stop_end = self.skip(at, is_terminator);
        let run_end = self.skip(stop_end, |c| CLOSERS.contains(&c));
        let wide = self.text[at..stop_end].chars().any(is_wide_terminator);
        let (end, cited) = match self.behind(run_end) {
            Some(found) => found,
            None => return Terminal::Unknown,
        };
        let body = if run_end > stop_end { run_end } else { self.text[..at].trim_end().len() };
        let ends = Terminal::Ends(Unit { kind: Kind::Prose, body, end });
        let rest = &self.text[end..];
        if rest.is_empty() {
            return ends;
        }
        let gap = rest.len() - rest.trim_start_matches(|c: char| c.is_whitespace() && c != '\n').len();
        let Some(next) = rest[gap..].chars().next() else {
            return if self.complete { ends } else { Terminal::Unknown };
        };
        if next == '\n' || wide {
            return ends;
        }
        let abbreviates = &self.text[at..stop_end] == "." && self.is_abbreviation(at, next);
        if abbreviates || (!cited && (gap == 0 || next.is_lowercase())) {
            return Terminal::GoesOn(run_end);
        }
        ends
    }

    /// Citations behind the full stop belong to its sentence: where they end, and whether there are any. `None` while
    /// more of them may come.
    fn behind(&self, from: usize) -> Option<(usize, bool)> {
        let mut end = from;
        let mut cited = false;
        loop {
            let visible = self.skip(end, |c| c == ' ');
            if let Some(mark) = self.mark_at(visible) {
                (end, cited) = (mark.end, true);
            } else if visible == self.text.len() && !self.complete {
                return None;
            } else {
                break;
            }
        }
        // "a capital. [1]." has one full stop too many; it stays with its sentence.
        let last = if cited { self.skip(end, is_terminator) } else { end };
        if last > end && last == self.text.len() && !self.complete {
            return None;
        }
        Some((last, cited))
    }

    fn is_abbreviation(&self, at: usize, next: char) -> bool {
        let before = &self.text[..at];
        let word = before.rsplit(|c: char| c.is_whitespace() || "([{\"*_".contains(c)).next().unwrap_or("");
        let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        let is_letter = word.chars().count() == 1 && word.chars().all(char::is_uppercase);
        let opens_the_unit = before.trim_start_matches(['*', '_', '(']).len() == word.len();
        let lower = word.to_lowercase();
        (is_number && opens_the_unit)
            || is_letter
            || ABBREVIATIONS.contains(&lower.as_str())
            || (next.is_ascii_digit() && ABBREVIATIONS_OF_NUMBERS.contains(&lower.as_str()))
    }

    fn skip(&self, from: usize, belongs: impl Fn(char) -> bool) -> usize {
        self.text.len() - self.text[from..].trim_start_matches(belongs).len()
    }
}

fn is_terminator(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | '\u{2026}') || is_wide_terminator(c)
}

/// Full stops of scripts that put no space behind them.
fn is_wide_terminator(c: char) -> bool {
    matches!(c, '\u{3002}' | '\u{ff01}' | '\u{ff1f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::{MarkReader, Piece};
    use proptest::prelude::*;

    fn marks_of(text: &str) -> Vec<Range<usize>> {
        let mut reader = MarkReader::default();
        let mut pieces = reader.push(text);
        pieces.extend(reader.finish());
        let mut at = 0;
        let mut marks = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) => at += text.len(),
                Piece::Mark(mark) => {
                    marks.push(at..at + mark.raw.len());
                    at += mark.raw.len();
                }
            }
        }
        marks
    }

    /// All units of `text`, each with its kind and where a citation would go, shown as ⟨⟩.
    fn units(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let Next::Ended(unit) = next_unit(rest, &marks_of(rest), true) else { panic!("open at the end") };
            assert!(unit.end > 0 && unit.body <= unit.end, "{rest:?} {unit:?}");
            found.push(match unit.kind {
                Kind::Prose => format!("{}⟨⟩{}", &rest[..unit.body], &rest[unit.body..unit.end]),
                Kind::Code => rest[..unit.end].to_string(),
            });
            rest = rest[unit.end..].trim_start();
        }
        found
    }

    fn check(text: &str, want: &[&str]) {
        assert_eq!(units(text), want, "{text}");
    }

    #[test]
    fn plain_sentences() {
        check("One. Two! Three?", &["One⟨⟩.", "Two⟨⟩!", "Three⟨⟩?"]);
        check("He said \"yes.\" Then left", &["He said \"yes.\"⟨⟩", "Then left⟨⟩"]);
        check("Well... No. (Yes.) Ok", &["Well⟨⟩...", "No⟨⟩.", "(Yes.)⟨⟩", "Ok⟨⟩"]);
        check("东京是首都。很大！", &["东京是首都⟨⟩。", "很大⟨⟩！"]);
        check("  \n ", &[]);
    }

    #[test]
    fn full_stops_that_end_nothing() {
        check(
            "It takes 3.5 ms, e.g. on v1.2 of x.y here.",
            &["It takes 3.5 ms, e.g. on v1.2 of x.y here⟨⟩."],
        );
        check("Dr. Who met J. Smith vs. Others.", &["Dr. Who met J. Smith vs. Others⟨⟩."]);
        check("See Fig. 3 and No. 5. No. Yes", &["See Fig. 3 and No. 5⟨⟩.", "No⟨⟩.", "Yes⟨⟩"]);
        check(
            "Cats, dogs, etc. are pets. Cats etc. Dogs",
            &["Cats, dogs, etc. are pets⟨⟩.", "Cats etc⟨⟩.", "Dogs⟨⟩"],
        );
        check("Call `a. B` now. C", &["Call `a. B` now⟨⟩.", "C⟨⟩"]);
    }

    #[test]
    fn lines_lists_and_code() {
        check(
            "Steps:\n1. Do it.\n2. Rest\n- **End.** Now",
            &["Steps:⟨⟩", "1. Do it⟨⟩.", "2. Rest⟨⟩", "- **End.**⟨⟩", "Now⟨⟩"],
        );
        check("So:\n```rust\nlet a. B\n\n```\nDone.", &["So:⟨⟩", "```rust\nlet a. B\n\n```", "Done⟨⟩."]);
        check("```\nnever closed. A", &["```\nnever closed. A"]);
    }

    #[test]
    fn citations_behind_the_full_stop_belong_to_it() {
        check("One [1]. Two. [2] [3] Three.[1]", &["One [1]⟨⟩.", "Two⟨⟩. [2] [3]", "Three⟨⟩.[1]"]);
        check("One. [1]. Two e.g. [2] here", &["One⟨⟩. [1].", "Two e.g. [2] here⟨⟩"]);
    }

    proptest! {
        #[test]
        fn what_is_safe_stays_and_an_end_stays(text in "[A-Ca-c1-3.!? `\"\n]{1,30}", cut in 1usize..30) {
            let whole = text.trim_start();
            prop_assume!(!whole.is_empty() && cut < whole.len());
            let Next::Ended(unit) = next_unit(whole, &[], true) else { panic!("open at the end") };
            match next_unit(&whole[..cut], &[], false) {
                Next::Open { safe } => prop_assert!(safe <= unit.body),
                Next::Ended(early) => prop_assert_eq!(early, unit),
            }
        }
    }
}
