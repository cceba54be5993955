//! Which blocks under one heading make a passage together?

use super::cut::cut;
use super::{Counter, PASSAGE_TOKENS_MIN, PASSAGE_TOKENS_TARGET};
use crate::ingest::{Block, BlockKind};
use std::ops::Range;

/// A passage before it has a name.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) text: String,
    pub(super) span: Range<usize>,
    /// What all of its blocks belong to, below the headings.
    pub(super) context: Vec<String>,
    pub(super) page: Option<u32>,
    tokens: usize,
}

/// Gathers blocks into passages of at most `tokens_max` tokens.
pub(super) fn gather(blocks: Vec<Block>, counter: &Counter<'_>, tokens_max: usize) -> Vec<Draft> {
    let mut drafts: Vec<Draft> = Vec::new();
    let mut open: Vec<(Block, usize)> = Vec::new();
    let mut sum = 0;
    for piece in blocks.into_iter().flat_map(|block| pieces(block, counter, tokens_max)) {
        let full = sum + piece.1 > PASSAGE_TOKENS_TARGET.min(tokens_max);
        let tiny = sum.min(piece.1) < PASSAGE_TOKENS_MIN && sum + piece.1 <= tokens_max;
        if full && !tiny {
            close(&mut open, counter, tokens_max, &mut drafts);
            sum = 0;
        }
        sum += piece.1;
        open.push(piece);
    }
    close(&mut open, counter, tokens_max, &mut drafts);
    drafts
}

/// The block itself, or parts of it that fit.
fn pieces(block: Block, counter: &Counter<'_>, tokens_max: usize) -> Vec<(Block, usize)> {
    let bound = tokens_max.saturating_sub(context_tokens(&block, counter)).max(tokens_max / 2);
    let tokens = counter.count(&block.text);
    if tokens <= bound {
        return vec![(block, tokens)];
    }
    let parts = cut(&block.text, block.kind, PASSAGE_TOKENS_TARGET.min(bound), counter);
    let piece = |part: Range<usize>| {
        let text = block.text[part.clone()].to_string();
        let tokens = counter.count(&text);
        let piece = Block { text, span: place(&block, &part), kind: block.kind, ..block.clone() };
        (piece, tokens)
    };
    parts.into_iter().map(piece).collect()
}

/// Names of objects become headings of the passages that continue their text, and take their room there.
fn context_tokens(block: &Block, counter: &Counter<'_>) -> usize {
    block.context.iter().map(|name| counter.count(name) + 1).sum()
}

/// Where a part of a block stands: exact when the source holds the block's text as it is, else the whole block.
fn place(block: &Block, part: &Range<usize>) -> Range<usize> {
    if block.exact { block.span.start + part.start..block.span.start + part.end } else { block.span.clone() }
}

/// Turns the open blocks into a passage; into one each, should their sum deceive (tokens can differ when joined).
fn close(open: &mut Vec<(Block, usize)>, counter: &Counter<'_>, tokens_max: usize, drafts: &mut Vec<Draft>) {
    let blocks = std::mem::take(open);
    let Some(draft) = draft(blocks.iter().map(|(block, _)| block), counter) else { return };
    if blocks.len() > 1 && draft.tokens > tokens_max {
        drafts.extend(blocks.iter().filter_map(|(block, _)| self::draft(std::iter::once(block), counter)));
    } else {
        drafts.push(draft);
    }
}

fn draft<'a>(blocks: impl Iterator<Item = &'a Block>, counter: &Counter<'_>) -> Option<Draft> {
    let mut draft: Option<(Draft, BlockKind)> = None;
    for block in blocks {
        draft = Some(match draft.take() {
            None => {
                let (text, span) = (block.text.clone(), block.span.clone());
                (
                    Draft { text, span, context: block.context.clone(), page: block.page, tokens: 0 },
                    block.kind,
                )
            }
            Some((mut draft, before)) => {
                let close_by = before == BlockKind::Item && block.kind == BlockKind::Item;
                draft.text.push_str(if close_by { "\n" } else { "\n\n" });
                draft.text.push_str(&block.text);
                draft.span = draft.span.start.min(block.span.start)..draft.span.end.max(block.span.end);
                let shared = draft.context.iter().zip(&block.context).take_while(|(a, b)| a == b).count();
                draft.context.truncate(shared);
                (draft, block.kind)
            }
        });
    }
    draft.map(|(draft, _)| Draft { tokens: counter.count(&draft.text), ..draft })
}
