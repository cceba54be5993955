//! How is a search asked and answered?

use crate::{Filter, Slo, Span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Body of `POST /v1/search`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchRequest {
    /// What to look for.
    #[schema(example = "When does speculative decoding pay?")]
    pub query: String,
    /// Most hits to return; 10 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub limit: Option<usize>,
    /// Which documents are searched; all that the caller may see when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// Time limits. Only `total_ms` applies to a search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<Slo>,
}

/// A passage's place in one of the two searches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArmScore {
    /// From 1.
    pub rank: usize,
    /// BM25 or cosine.
    pub score: f32,
}

/// A passage that was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchHit {
    /// Title of the document.
    pub title: String,
    /// Headings above the passage, outermost first.
    pub headings: Vec<String>,
    /// The document's path as it was given at ingest.
    pub source: String,
    /// Where in the document.
    pub span: Span,
    /// The whole passage.
    pub text: String,
    /// Fused score; hits are ordered by it.
    pub score: f32,
    /// Place in the BM25 search, if it found the passage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lexical: Option<ArmScore>,
    /// Place in the nearest-neighbour search, if it found the passage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vector: Option<ArmScore>,
    /// Names the document.
    pub document_id: String,
    /// Names the passage; below 2^53, so that every JSON reader holds it exactly.
    pub passage_id: u64,
}

/// How much of its work each of the two searches did in time, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Coverage {
    /// BM25: share of the query's terms, weighed by their rarity, that were counted.
    #[schema(minimum = 0, maximum = 1)]
    pub lexical: f32,
    /// Nearest neighbours: share of the passages that were compared.
    #[schema(minimum = 0, maximum = 1)]
    pub vector: f32,
}

/// Answer to `POST /v1/search`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchResponse {
    /// Names the request.
    pub id: String,
    /// Best first.
    pub hits: Vec<SearchHit>,
    /// How far each search came.
    pub coverage: Coverage,
    /// Snapshot of the index that was searched.
    pub generation: u64,
    /// From arrival to result, milliseconds.
    pub took_ms: f64,
    /// Milliseconds by stage; stages may overlap.
    pub stages_ms: BTreeMap<String, f64>,
}
