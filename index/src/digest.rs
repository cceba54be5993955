//! What does the index keep of a file's bytes? What is said about the document, and its passages; vectors come later.

use crate::change::Content;
use crate::ingest::{self, Format};
use crate::split::{Counter, Named, split};
use crate::{DocumentInfo, Meta, Origin, PassageId};
use budgets::Limits;
use std::sync::Arc;

/// Passage ids stay below this, so that JSON readers which keep numbers as doubles do not change them.
const IDS: u64 = 1 << 53;

/// What is known of a document before its bytes are read.
pub(crate) struct Label<'a> {
    pub(crate) named: Named<'a>,
    pub(crate) format: Format,
    pub(crate) meta: &'a Meta,
    pub(crate) origin: Origin,
    /// SHA-256 of the bytes.
    pub(crate) sha256: &'a str,
}

/// Parses a document and cuts it into passages; the error says in words for people why it is left out.
pub(crate) fn digest(
    label: &Label<'_>,
    bytes: Vec<u8>,
    counter: &Counter<'_>,
    limits: &Limits,
) -> Result<Content, String> {
    let size = bytes.len() as u64;
    let mut document = ingest::read(label.format, bytes, limits)?;
    document.given_title.clone_from(&label.meta.title);
    let lossy = document.lossy;
    let passages = split(document, &label.named, counter);
    let Some(first) = passages.first() else { return Err("no text in it".into()) };
    let info = DocumentInfo {
        id: label.named.document_id.to_string(),
        source: label.named.source.to_string(),
        title: first.title.clone(),
        format: label.format.name().to_string(),
        meta: label.meta.clone(),
        origin: label.origin,
        sha256: label.sha256.to_string(),
        bytes: size,
        passages: passages.len(),
        lossy,
    };
    Ok(Content { info, passages: passages.into_iter().map(Arc::new).collect(), vectors: Vec::new() })
}

/// Gives passages whose name is taken the next free one: two of 2^53 may meet by chance, and the later one moves on.
pub(crate) fn rename_taken(content: &mut Content, mut is_free: impl FnMut(PassageId) -> bool) {
    for passage in &mut content.passages {
        let mut id = passage.id;
        while !is_free(id) {
            id = PassageId((id.0 + 1) % IDS);
        }
        if id != passage.id {
            Arc::make_mut(passage).id = id;
        }
    }
}
