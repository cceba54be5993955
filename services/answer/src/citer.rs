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
        let mut citations: Vec<CitationReport> = Vec::new();
        let mut replacements = Vec::with_capacity(marks.len());
        for (_, mark) in marks {
            let borne =
                |number: &usize| support.of(*number).is_some_and(|score| score >= SUPPORT_MIN) && !refusal;
            let mut kept: Vec<usize> = mark.numbers.iter().copied().filter(borne).collect();
            if mark.attached && kept.len() < mark.numbers.len() {
                // It may be code after all, so it stays as it is and counts as no citation.
                kept.clear();
                replacements.push(mark.raw.clone());
            } else {
                self.checked.removed += mark.numbers.len() - kept.len();
                replacements.push(brackets(&kept));
            }
            for number in kept {
                if citations.iter().all(|citation| citation.number != number) {
                    let score = support.of(number).unwrap_or_default();
                    citations.push(CitationReport { number, support: score });
                }
            }
        }
        let added = match support.clear() {
            Some(number) if citations.is_empty() && !refusal && is_claim(content) => Some(number),
            _ => None,
        };
        if let Some(number) = added {
            citations.push(CitationReport { number, support: support.of(number).unwrap_or_default() });
            self.checked.added += 1;
        }
        let text = rewrite(raw, marks, &replacements, added.map(|number| (body, number)));
        self.checked.refused |= refusal && self.checked.sentences.is_empty();
        if !text.is_empty() {
            let start = self.checked.text.len() - self.shown;
            let (end, attributed) = (start + text.len(), added.is_some());
            self.checked.sentences.push(SentenceReport {
                text: text.clone(),
                start,
                end,
                citations,
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

/// `raw` with each mark replaced and `[number]` put in at `added`. A mark that is replaced by nothing takes the space
/// before it along, or the one behind it at the start.
fn rewrite(
    raw: &str,
    marks: &[(Range<usize>, Mark)],
    replacements: &[String],
    added: Option<(usize, usize)>,
) -> String {
    let mut out = String::with_capacity(raw.len() + 8);
    let mut at = 0;
    let mut pending = added;
    for ((place, _), replacement) in marks.iter().zip(replacements) {
        copy_with_added(raw, at..place.start, &mut pending, &mut out);
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
    copy_with_added(raw, at..raw.len(), &mut pending, &mut out);
    if let Some((_, number)) = pending {
        push_citation(&mut out, number);
    }
    out
}

/// Copies `part` of `raw`; when the place of the pending citation lies in it, puts that in.
fn copy_with_added(raw: &str, part: Range<usize>, pending: &mut Option<(usize, usize)>, out: &mut String) {
    match *pending {
        Some((place, number)) if part.contains(&place) => {
            out.push_str(&raw[part.start..place]);
            push_citation(out, number);
            out.push_str(&raw[place..part.end]);
            *pending = None;
        }
        _ => out.push_str(&raw[part]),
    }
}

fn push_citation(out: &mut String, number: usize) {
    if !out.is_empty() {
        out.truncate(out.trim_end().len());
        out.push(' ');
    }
    out.push_str(&brackets(&[number]));
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
