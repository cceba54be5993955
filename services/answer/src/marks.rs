//! Where in a stream of text does the model cite? Finds `[n]`, `[n, m]` and `[n-m]`, at any chunking, outside code.

/// A mark with more bytes than this is not a citation; it also bounds what the reader holds back.
const MARK_BYTES_MAX: usize = 48;
/// A range over more numbers than this is an interval that the text speaks of, not a citation.
const RANGE_MAX: usize = 32;
/// Passages are numbered from 1 to at most three digits, so "[2024]" is a year.
const DIGITS_MAX: usize = 3;

/// A piece of the stream; text pieces may be cut anywhere between two characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text without a citation.
    Text(String),
    /// A citation.
    Mark(Mark),
}

/// A citation as the model wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The numbers in order, each once; ranges written out.
    pub numbers: Vec<usize>,
    /// As written.
    pub raw: String,
    /// Stands directly behind a word, as in `item[1]`, and so may be code: never to be removed.
    pub attached: bool,
}

/// What stood before the present character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Other,
    /// Inside a word; `true` while it has only digits ("in 1889[1]" cites, "x1[1]" may index).
    Word(bool),
    /// Behind a mark that was attached, or a bracket that was none: `a[i][1]`.
    Bracket,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    None,
    /// Between runs of that many backticks; ends at a line's end, so that a stray backtick does not hide the rest.
    Span(usize),
    /// Between fences of at least that many backticks.
    Fence(usize),
}

/// Reads a stream. It holds back a bracket that may become a citation, and nothing else.
pub struct MarkReader {
    held: String,
    closed: bool,
    ticks: usize,
    code: Code,
    before: Before,
    text: String,
}

impl Default for MarkReader {
    fn default() -> Self {
        Self {
            held: String::new(),
            closed: false,
            ticks: 0,
            code: Code::None,
            before: Before::Other,
            text: String::new(),
        }
    }
}

impl MarkReader {
    /// Takes the next characters and returns what is known for sure.
    pub fn push(&mut self, delta: &str) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for c in delta.chars() {
            self.take(c, &mut pieces);
        }
        self.flush_text(&mut pieces);
        pieces
    }

    /// The stream has ended: returns what was held back.
    pub fn finish(mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        if self.closed {
            self.emit_mark(&mut pieces);
        } else {
            self.release();
        }
        self.flush_text(&mut pieces);
        pieces
    }

    fn take(&mut self, c: char, pieces: &mut Vec<Piece>) {
        if self.closed {
            // "[1](address)" is a link.
            if c == '(' {
                self.release();
            } else {
                self.emit_mark(pieces);
            }
        } else if !self.held.is_empty() {
            let may_go_on = c.is_ascii_digit() || matches!(c, ' ' | ',' | ';' | '-' | '\u{2013}');
            if may_go_on && self.held.len() < MARK_BYTES_MAX {
                self.held.push(c);
                return;
            }
            if c == ']' && !numbers(&self.held[1..]).is_empty() {
                self.held.push(c);
                self.closed = true;
                return;
            }
            self.release();
        }
        self.take_outside(c);
    }

    /// A character that continues no bracket.
    fn take_outside(&mut self, c: char) {
        if c == '`' {
            self.ticks += 1;
        } else {
            self.end_ticks();
            if c == '\n' && matches!(self.code, Code::Span(_)) {
                self.code = Code::None;
            }
            if c == '[' && self.code == Code::None {
                self.held.push(c);
                return;
            }
        }
        self.put(c);
    }

    fn end_ticks(&mut self) {
        if self.ticks == 0 {
            return;
        }
        let run = std::mem::take(&mut self.ticks);
        self.code = match self.code {
            Code::None if run >= 3 => Code::Fence(run),
            Code::None => Code::Span(run),
            Code::Span(open) if run == open => Code::None,
            Code::Fence(open) if run >= open => Code::None,
            inside => inside,
        };
    }

    /// What was held is text after all.
    fn release(&mut self) {
        self.closed = false;
        for c in std::mem::take(&mut self.held).chars() {
            self.put(c);
        }
    }

    fn put(&mut self, c: char) {
        self.text.push(c);
        self.before = match (c, self.before) {
            (']', _) => Before::Bracket,
            (c, Before::Word(digits)) if is_word(c) => Before::Word(digits && c.is_ascii_digit()),
            (c, _) if is_word(c) => Before::Word(c.is_ascii_digit()),
            _ => Before::Other,
        };
    }

    fn emit_mark(&mut self, pieces: &mut Vec<Piece>) {
        self.flush_text(pieces);
        self.closed = false;
        let raw = std::mem::take(&mut self.held);
        let attached = matches!(self.before, Before::Word(false) | Before::Bracket);
        // "[1][2]": the second stands behind a mark and is attached only if the first was.
        self.before = if attached { Before::Bracket } else { Before::Other };
        pieces.push(Piece::Mark(Mark { numbers: numbers(&raw[1..raw.len() - 1]), raw, attached }));
    }

    fn flush_text(&mut self, pieces: &mut Vec<Piece>) {
        if !self.text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut self.text)));
        }
    }
}

/// The text with its citations taken out, each with the space before it; `keep` stands in for those behind a word.
pub fn without_marks(text: &str) -> String {
    map_marks(text, |mark| if mark.attached { Some(mark.raw.clone()) } else { None })
}

/// The text with each citation replaced by what `replace` says; a `None` also takes the space before it.
pub fn map_marks(text: &str, replace: impl Fn(&Mark) -> Option<String>) -> String {
    let mut reader = MarkReader::default();
    let mut pieces = reader.push(text);
    pieces.extend(reader.finish());
    let mut out = String::with_capacity(text.len());
    for piece in pieces {
        match piece {
            Piece::Text(text) => out.push_str(&text),
            Piece::Mark(mark) => match replace(&mark) {
                Some(other) => out.push_str(&other),
                None => out.truncate(out.trim_end_matches(' ').len()),
            },
        }
    }
    out
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The numbers between the brackets; empty when this is no citation.
fn numbers(inside: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for item in inside.split([',', ';']) {
        let ends = item.split(['-', '\u{2013}']).map(number).collect::<Option<Vec<_>>>();
        match ends.as_deref() {
            Some([one]) => found.push(*one),
            Some([first, last]) if first < last && last - first < RANGE_MAX => found.extend(*first..=*last),
            _ => return Vec::new(),
        }
    }
    // A list or range that starts from 0 is an interval: no passage has the number 0. A lone [0] is a bad citation.
    if found.len() > 1 && found.contains(&0) {
        return Vec::new();
    }
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|number| seen.insert(*number));
    found
}

fn number(written: &str) -> Option<usize> {
    let digits = written.trim_matches(' ');
    if digits.is_empty() || digits.len() > DIGITS_MAX || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(chunks: &[&str]) -> Vec<Piece> {
        let mut reader = MarkReader::default();
        let mut pieces: Vec<Piece> = chunks.iter().flat_map(|chunk| reader.push(chunk)).collect();
        pieces.extend(reader.finish());
        let mut merged: Vec<Piece> = Vec::new();
        for piece in pieces {
            match (merged.last_mut(), piece) {
                (Some(Piece::Text(before)), Piece::Text(text)) => before.push_str(&text),
                (_, piece) => merged.push(piece),
            }
        }
        merged
    }

    /// Writes citations as ⟨1 2⟩ and attached ones as ⟨!1⟩, so that a case reads at a glance.
    fn check(text: &str, want: &str) {
        let shown: String = read(&[text])
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Mark(mark) => {
                    let numbers: Vec<String> = mark.numbers.iter().map(ToString::to_string).collect();
                    format!("⟨{}{}⟩", if mark.attached { "!" } else { "" }, numbers.join(" "))
                }
            })
            .collect();
        assert_eq!(shown, want, "{text}");
    }

    #[test]
    fn finds_citations_in_every_accepted_form() {
        check("Paris [1].", "Paris ⟨1⟩.");
        check("Paris [1, 2] and [3;4]", "Paris ⟨1 2⟩ and ⟨3 4⟩");
        check("Paris [1][2].", "Paris ⟨1⟩⟨2⟩.");
        check("Paris [1-3] [2\u{2013}3]", "Paris ⟨1 2 3⟩ ⟨2 3⟩");
        check("Paris [ 1 ] [2,2]", "Paris ⟨1⟩ ⟨2⟩");
        check("built in 1889[1]", "built in 1889⟨1⟩");
        check("\"big\"[2]", "\"big\"⟨2⟩");
        check("[0] and [99]", "⟨0⟩ and ⟨99⟩");
        check("[[1]]", "[⟨1⟩]");
    }

    #[test]
    fn leaves_everything_else_alone() {
        for text in [
            "[2024]",
            "[0, 1]",
            "[0-9]",
            "[3-1]",
            "[1-300]",
            "[]",
            "[,]",
            "[1,]",
            "[1",
            "[a]",
            "[1](#one)",
            "[x][",
            "[1.5]",
            "[-1]",
            "`[1]`",
            "`a` `[1]`",
            "``a`[1]``",
            "```\n[1]\n```",
            "[1\n]",
            "[é1]",
            "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]",
        ] {
            check(text, text);
        }
    }

    #[test]
    fn a_mark_behind_a_word_may_be_code() {
        check("a[0] x[12] a[i][1] f_1[2] a[1][2]", "a⟨!0⟩ x⟨!12⟩ a[i]⟨!1⟩ f_1⟨!2⟩ a⟨!1⟩⟨!2⟩");
    }

    #[test]
    fn a_stray_backtick_hides_no_later_line() {
        check("a ` b [1]\n[2] c", "a ` b [1]\n⟨2⟩ c");
        check("```\n[1]\n``\n[2]\n```\n[3]", "```\n[1]\n``\n[2]\n```\n⟨3⟩");
    }

    #[test]
    fn marks_can_be_taken_out() {
        assert_eq!(without_marks("Paris [1]. Rome [2][3] too, a[1]."), "Paris. Rome too, a[1].");
    }

    proptest! {
        #[test]
        fn the_chunking_does_not_matter(text in "[\\[\\]0-9, `\nab(é.-]{0,40}", cuts in prop::collection::vec(0usize..60, 0..8)) {
            let mut at: Vec<usize> = cuts.into_iter().filter(|cut| text.is_char_boundary(*cut)).collect();
            at.extend([0, text.len()]);
            at.sort_unstable();
            let chunks: Vec<&str> = at.windows(2).map(|pair| &text[pair[0]..pair[1].max(pair[0])]).collect();
            prop_assert_eq!(read(&chunks), read(&[&text]));
        }

        #[test]
        fn nothing_is_lost(text in "[\\[\\]0-9, `\nab(é.-]{0,40}") {
            let whole: String = read(&[&text]).into_iter().map(|piece| match piece {
                Piece::Text(text) => text,
                Piece::Mark(mark) => mark.raw,
            }).collect();
            prop_assert_eq!(whole, text);
        }
    }
}
