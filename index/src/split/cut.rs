//! Where may a text that is too long be cut?

use super::{Counter, TOKEN_BYTES_MAX};
use crate::ingest::BlockKind;
use std::ops::Range;
use unicode_segmentation::UnicodeSegmentation;

/// Parts of `text`, each of at most `tokens_max` tokens and as few as that allows, in order; together they hold all of
/// `text` but the white space between them.
pub(super) fn cut(
    text: &str,
    kind: BlockKind,
    tokens_max: usize,
    counter: &Counter<'_>,
) -> Vec<Range<usize>> {
    let whole = 0..text.len();
    let units = match kind {
        BlockKind::Lines => lines(text),
        BlockKind::Prose | BlockKind::Item => sentences(text),
    };
    let mut parts = Vec::new();
    join(text, units, tokens_max, counter, &mut parts);
    parts
        .into_iter()
        .map(|part| trim(text, part, kind))
        .filter(|part| part.start < part.end && whole.end > 0)
        .collect()
}

/// Joins neighbouring units up to the bound; a unit that is too long by itself is cut into smaller ones first.
fn join(
    text: &str,
    units: Vec<Range<usize>>,
    tokens_max: usize,
    counter: &Counter<'_>,
    out: &mut Vec<Range<usize>>,
) {
    let mut open: Option<(Range<usize>, usize)> = None;
    for unit in units {
        let tokens = counter.count(&text[unit.clone()]);
        if tokens > tokens_max {
            out.extend(open.take().map(|(part, _)| part));
            out.extend(cut_unit(text, unit, tokens_max, counter));
            continue;
        }
        open = match open.take() {
            Some((part, sum)) if sum + tokens <= tokens_max => Some((part.start..unit.end, sum + tokens)),
            full => {
                out.extend(full.map(|(part, _)| part));
                Some((unit, tokens))
            }
        };
    }
    out.extend(open.map(|(part, _)| part));
}

/// A sentence or line that is too long: between words, and a word that is too long between characters.
fn cut_unit(text: &str, unit: Range<usize>, tokens_max: usize, counter: &Counter<'_>) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut open: Option<(Range<usize>, usize)> = None;
    for word in words(text, unit, tokens_max, counter) {
        let tokens = counter.count(&text[word.clone()]);
        open = match open.take() {
            Some((part, sum)) if sum + tokens <= tokens_max => Some((part.start..word.end, sum + tokens)),
            full => {
                parts.extend(full.map(|(part, _)| part));
                Some((word, tokens))
            }
        };
    }
    parts.extend(open.map(|(part, _)| part));
    parts
}

/// Words with the white space behind them, none longer than the bound.
fn words(text: &str, unit: Range<usize>, tokens_max: usize, counter: &Counter<'_>) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let mut at = unit.start;
    for word in text[unit].split_inclusive(char::is_whitespace) {
        let range = at..at + word.len();
        at = range.end;
        if counter.count(word) <= tokens_max {
            out.push(range);
        } else {
            halve(text, range, tokens_max, counter, &mut out);
        }
    }
    out
}

/// Cuts a word until its pieces fit; a piece of a single character fits by decree.
fn halve(
    text: &str,
    word: Range<usize>,
    tokens_max: usize,
    counter: &Counter<'_>,
    out: &mut Vec<Range<usize>>,
) {
    // Long words first in steps that can fit, so that a file without white space costs time in its length only.
    let step = (tokens_max * TOKEN_BYTES_MAX).max(4);
    let mut todo = vec![word];
    while let Some(range) = todo.pop() {
        let fits = range.len() <= step && counter.count(&text[range.clone()]) <= tokens_max;
        let goal = range.start + if range.len() > step { step } else { range.len() / 2 };
        let middle = (goal..range.end).find(|at| text.is_char_boundary(*at) && *at > range.start);
        match middle {
            Some(middle) if !fits => {
                todo.push(middle..range.end);
                todo.push(range.start..middle);
            }
            _ => out.push(range),
        }
    }
}

fn sentences(text: &str) -> Vec<Range<usize>> {
    text.split_sentence_bound_indices().map(|(at, sentence)| at..at + sentence.len()).collect()
}

fn lines(text: &str) -> Vec<Range<usize>> {
    let mut at = 0;
    text.split_inclusive('\n')
        .map(|line| {
            at += line.len();
            at - line.len()..at
        })
        .collect()
}

/// Drops white space at the ends; the indentation of a first line of code stays.
fn trim(text: &str, part: Range<usize>, kind: BlockKind) -> Range<usize> {
    let shown = &text[part.clone()];
    let start = match kind {
        BlockKind::Lines => shown.len() - shown.trim_start_matches(['\n', '\r']).len(),
        BlockKind::Prose | BlockKind::Item => shown.len() - shown.trim_start().len(),
    };
    let end = shown.trim_end().len();
    part.start + start.min(end)..part.start + end
}
