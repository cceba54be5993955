//! Which source bears each sentence? Checks citations and adds missing ones while the answer streams.
//!
//! Text goes out as soon as nothing can change it any more. What follows a citation waits for the end of its sentence,
//! because only then is it known whether the source bears the sentence; a sentence without one waits for nothing but
//! its full stop.

use crate::marks::{Mark, MarkReader, Piece};
use crate::prompt::is_refusal;
use crate::sentences::{Kind, Next, Unit, next_unit};
use crate::support::{Bearing, SUPPORT_MIN};
use crate::{CitationReport, SentenceReport};
use std::ops::Range;

/// The checked answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checked {
    /// Its text.
    pub text: String,
    /// Its sentences.
    pub sentences: Vec<SentenceReport>,
    /// Citations taken out.
    pub removed: usize,
    /// Citations put in.
    pub added: usize,
    /// The answer opens with the sentence that says that the documents do not answer.
    pub refused: bool,
}

/// Takes the model's text piece by piece and gives the checked text.
pub struct Citer {
    bearing: Bearing,
    reader: MarkReader,
    /// The present unit as the model wrote it, after the text that is settled.
    unit: String,
    marks: Vec<(Range<usize>, Mark)>,
    /// Bytes of `unit` that were given out already.
    shown: usize,
    checked: Checked,
}

impl Citer {
    /// Checks against the passages of `bearing`.
    pub fn new(bearing: Bearing) -> Self {
        Self {
            bearing,
            reader: MarkReader::default(),
            unit: String::new(),
            marks: Vec::new(),
            shown: 0,
            checked: Checked::default(),
        }
    }

    /// Takes the next piece and returns what may be shown of the answer; may be empty.
    pub fn push(&mut self, delta: &str) -> String {
        let pieces = self.reader.push(delta);
        let from = self.checked.text.len();
        self.take(pieces);
        self.settle(false);
        self.checked.text[from..].to_string()
    }

    /// The model has ended: returns the rest of the text and the whole.
    pub fn finish(mut self) -> (String, Checked) {
        let pieces = std::mem::take(&mut self.reader).finish();
        let from = self.checked.text.len();
        self.take(pieces);
        self.settle(true);
        (self.checked.text[from..].to_string(), self.checked)
    }

    fn take(&mut self, pieces: Vec<Piece>) {
        for piece in pieces {
            match piece {
                Piece::Text(text) => self.unit.push_str(&text),
                Piece::Mark(mark) => {
                    let start = self.unit.len();
                    self.unit.push_str(&mark.raw);
                    // `item[7]` without a passage 7 is code, not a citation.
                    if !mark.attached || mark.numbers.iter().all(|number| self.exists(*number)) {
                        self.marks.push((start..self.unit.len(), mark));
                    }
                }
            }
        }
    }

    /// Gives out whatever has become certain.
    fn settle(&mut self, complete: bool) {
        loop {
            if self.shown == 0 {
                let visible = self.unit.len() - self.unit.trim_start().len();
                if visible == self.unit.len() {
                    return;
                }
                if !self.checked.text.is_empty() {
                    self.checked.text.push_str(&self.unit[..visible]);
                }
                self.drop_front(visible);
            }
            let places: Vec<Range<usize>> = self.marks.iter().map(|(place, _)| place.clone()).collect();
            match next_unit(&self.unit, &places, complete) {
                Next::Open { safe } => {
                    let held = places.first().map_or(safe, |mark| self.unit[..mark.start].trim_end().len());
                    let until = safe.min(held).max(self.shown);
                    self.checked.text.push_str(&self.unit[self.shown..until]);
                    self.shown = until;
                    return;
                }
                Next::Ended(unit) => self.end_unit(unit),
            }
        }
    }

    /// Checks a finished unit and gives out what is left of it.
    fn end_unit(&mut self, unit: Unit) {
        let raw: String = self.unit[..unit.end].to_string();
        let marks: Vec<(Range<usize>, Mark)> =
            self.marks.iter().filter(|(place, _)| place.end <= unit.end).cloned().collect();
        let text = match unit.kind {
            Kind::Code => raw,
            Kind::Prose => self.check(&raw, &marks, unit.body),
        };
        let rest = text.get(self.shown..).unwrap_or_default();
        self.checked.text.push_str(rest);
        self.drop_front(unit.end);
        self.shown = 0;
    }

    /// Decides on the citations of a sentence, records it and returns it as it is to be shown.
    fn check(&mut self, raw: &str, marks: &[(Range<usize>, Mark)], body: usize) -> String {
        let bare = without(raw, marks);
        let content = strip_list_marker(&bare);
        let refusal = is_refusal(content);
        let support = self.bearing.support(content);
        let opening = if content.is_empty() { 0 } else { opening_marks(raw, marks) };
        let (mut replacements, mut moved, mut cited) =
            (Vec::with_capacity(marks.len()), Vec::new(), Vec::new());
        for (nth, (_, mark)) in marks.iter().enumerate() {
            let borne =
                |number: &usize| !refusal && support.of(*number).is_some_and(|score| score >= SUPPORT_MIN);
            let kept: Vec<usize> = mark.numbers.iter().copied().filter(borne).collect();
            if mark.attached && kept.len() < mark.numbers.len() {
                // It may be code after all, so it stays as it is and counts as no citation.
                replacements.push(mark.raw.clone());
                continue;
            }
            self.checked.removed += mark.numbers.len() - kept.len();
            replacements.push(if nth < opening { String::new() } else { brackets(&kept) });
            if nth < opening { &mut moved } else { &mut cited }.extend(kept);
        }
        moved.retain(|number| !cited.contains(number));
        cited.splice(0..0, moved.iter().copied());
        let attributed = cited.is_empty() && !refusal && is_claim(content) && support.clear().is_some();
        if attributed {
            moved.extend(support.clear());
            cited.extend(support.clear());
            self.checked.added += 1;
        }
        let text = rewrite(raw, marks, &replacements, (body, &once_each(moved)));
        self.checked.refused |= refusal && self.checked.sentences.is_empty();
        if !text.is_empty() {
            let start = self.checked.text.len() - self.shown;
            let report = |number| CitationReport { number, support: support.of(number).unwrap_or_default() };
            self.checked.sentences.push(SentenceReport {
                text: text.clone(),
                start,
                end: start + text.len(),
                citations: once_each(cited).into_iter().map(report).collect(),
                attributed,
            });
        }
        text
    }

    fn drop_front(&mut self, bytes: usize) {
        self.unit.drain(..bytes);
        self.marks.retain(|(place, _)| place.start >= bytes);
        for (place, _) in &mut self.marks {
            *place = place.start - bytes..place.end - bytes;
        }
    }

    fn exists(&self, number: usize) -> bool {
        (1..=self.bearing.len()).contains(&number)
    }
}

/// `[1][2]`; nothing for no number.
fn brackets(numbers: &[usize]) -> String {
    numbers.iter().map(|number| format!("[{number}]")).collect()
}

fn once_each(mut numbers: Vec<usize>) -> Vec<usize> {
    let mut seen = std::collections::BTreeSet::new();
    numbers.retain(|number| seen.insert(*number));
    numbers
}

/// How many marks stand before the sentence's first word. A small model opens lines with "[1] " as a label; it is a
/// citation like any other and is moved to where citations stand.
fn opening_marks(raw: &str, marks: &[(Range<usize>, Mark)]) -> usize {
    let mut end = 0;
    let opens = |place: &Range<usize>| {
        let between = raw[end..place.start].trim().is_empty();
        end = place.end;
        between
    };
    marks.iter().map(|(place, _)| place).map(opens).take_while(|opens| *opens).count()
}

/// `raw` with each mark replaced and the citations of `put` put in at its place. A mark that is replaced by nothing
/// takes the space before it along, or the one behind it at the start.
fn rewrite(
    raw: &str,
    marks: &[(Range<usize>, Mark)],
    replacements: &[String],
    put: (usize, &[usize]),
) -> String {
    let mut out = String::with_capacity(raw.len() + 8);
    let mut at = 0;
    let mut pending = if put.1.is_empty() { None } else { Some(put) };
    for ((place, _), replacement) in marks.iter().zip(replacements) {
        copy_and_put(raw, at..place.start, &mut pending, &mut out);
        at = place.end;
        if replacement.is_empty() {
            out.truncate(out.trim_end().len());
            if out.is_empty() {
                at = raw.len() - raw[at..].trim_start().len();
            }
        } else {
            out.push_str(replacement);
        }
    }
    copy_and_put(raw, at..raw.len(), &mut pending, &mut out);
    if let Some((_, numbers)) = pending {
        push_citations(&mut out, numbers);
    }
    out
}

/// Copies `part` of `raw`; when the place of the pending citations lies in it, puts them in.
fn copy_and_put(raw: &str, part: Range<usize>, pending: &mut Option<(usize, &[usize])>, out: &mut String) {
    match *pending {
        Some((place, numbers)) if part.contains(&place) => {
            out.push_str(&raw[part.start..place]);
            push_citations(out, numbers);
            out.push_str(&raw[place..part.end]);
            *pending = None;
        }
        _ => out.push_str(&raw[part]),
    }
}

fn push_citations(out: &mut String, numbers: &[usize]) {
    out.truncate(out.trim_end().len());
    if !out.is_empty() {
        out.push(' ');
    }
    out.push_str(&brackets(numbers));
}

/// The sentence without its citations, for judging.
fn without(raw: &str, marks: &[(Range<usize>, Mark)]) -> String {
    let mut bare = String::with_capacity(raw.len());
    let mut at = 0;
    for (place, _) in marks {
        bare.push_str(&raw[at..place.start]);
        bare.push(' ');
        at = place.end;
    }
    bare.push_str(&raw[at..]);
    bare
}

/// "2. Rest" claims nothing about the number 2.
fn strip_list_marker(sentence: &str) -> &str {
    let sentence = sentence.trim();
    let bare = sentence.trim_start_matches(|c: char| c.is_ascii_digit());
    match bare.strip_prefix(['.', ')']).filter(|rest| bare.len() < sentence.len() && rest.starts_with(' ')) {
        Some(rest) => rest.trim_start(),
        None => sentence.trim_start_matches(['-', '*', '+']).trim_start(),
    }
}

/// Headings, lines of tables, introductions of lists and questions claim nothing that a source could bear.
fn is_claim(sentence: &str) -> bool {
    !sentence.starts_with(['#', '|']) && !sentence.trim_end_matches(['*', '_']).ends_with([':', '?'])
}

#[cfg(test)]
#[path = "citer_tests.rs"]
mod tests;
