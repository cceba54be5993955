//! How are documents handed over, listed and taken away?

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Which documents are wanted; every part that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// In one of these collections.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub collections: Vec<String>,
    /// With each of these tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub tags: Vec<String>,
    /// Of this day or later; documents without a date are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-01-01")]
    pub from: Option<String>,
    /// Of this day or earlier; documents without a date are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-12-31")]
    pub to: Option<String>,
    /// With a source that begins so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// A document as JSON: body of `PUT /v1/documents/{id}`, and a line of the JSONL body of `POST /v1/documents`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DocumentBody {
    /// Its name; a document of that name is replaced. Only in JSONL: otherwise it stands in the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its text.
    pub text: String,
    /// How to read the text: `markdown`, `rst`, `html`, `text`, `csv` or `jsonl`; absent, as the id's ending tells, else
    /// as plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Its title; absent, the text's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Path or address that citations show; absent, the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The collection that holds it; absent, `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    /// Words to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub tags: Vec<String>,
    /// The day that it speaks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-12-31")]
    pub date: Option<String>,
}

/// What the index knows of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Document {
    /// Its name.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Path or address that citations show.
    pub source: String,
    /// How it was read.
    pub format: String,
    /// The collection that holds it.
    pub collection: String,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// The day that it speaks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// Seen by every caller, not by its owner alone.
    pub shared: bool,
    /// It comes from a folder that was indexed or is watched; absent when it was handed over by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_folder: bool,
    /// SHA-256 of its bytes, in hexadecimal digits.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
    /// Passages that it was cut into.
    pub passages: usize,
    /// Some of its bytes were no character of its encoding; each was read as a question mark.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lossy: bool,
}

/// Answer to `GET /v1/documents/{id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentDetail {
    /// The document.
    pub document: Document,
    /// Its passages in reading order, where they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passages: Vec<DocumentPassage>,
}

/// A passage of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentPassage {
    /// Names the passage, as search hits do.
    pub passage_id: u64,
    /// Headings above it, outermost first.
    pub headings: Vec<String>,
    /// Where in the document.
    pub span: crate::Span,
    /// The whole passage.
    pub text: String,
}

/// Answer to `GET /v1/documents`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentList {
    /// By name.
    pub data: Vec<Document>,
    /// There are more: ask again with `after` set to this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What putting a document did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PutOutcome {
    /// There was none of that name.
    Created,
    /// It took the place of another.
    Replaced,
    /// It stood there already, byte for byte.
    Unchanged,
}

/// Answer to `PUT /v1/documents/{id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PutResponse {
    /// What it did.
    pub outcome: PutOutcome,
    /// The document as it is now found.
    pub document: Document,
}

/// Answer to `DELETE /v1/documents/{id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeleteResponse {
    /// The document's name.
    pub id: String,
    /// Always true; a name that no document has is an error.
    pub deleted: bool,
}

/// A collection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Collection {
    /// Its name.
    pub name: String,
    /// Documents that the caller sees in it.
    pub documents: usize,
    /// Their passages.
    pub passages: usize,
}

/// Answer to `GET /v1/collections`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CollectionList {
    /// By name.
    pub data: Vec<Collection>,
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    /// Documents wait or are being put.
    Running,
    /// Every document was put or failed.
    Done,
    /// The server shut down before all were put; send the rest again.
    Stopped,
}

/// A document that a job could not put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobFailure {
    /// Its name, where that could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its place in what was sent, from 1: the line of JSONL, or the file.
    pub place: usize,
    /// What went wrong.
    pub error: crate::ErrorDetail,
}

/// Answer to `POST /v1/documents` and `GET /v1/jobs/{id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Names the job.
    pub id: String,
    /// How far it is.
    pub status: JobStatus,
    /// Documents that were sent.
    pub total: usize,
    /// Documents that are on disk and found, or have failed.
    pub done: usize,
    /// Of those: new ones.
    pub created: usize,
    /// Of those: ones that took the place of another.
    pub replaced: usize,
    /// Of those: ones that stood there already.
    pub unchanged: usize,
    /// Of those: ones that failed.
    pub failed: usize,
    /// The first 100 that failed.
    pub failures: Vec<JobFailure>,
}
