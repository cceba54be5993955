//! Which models are served, and is the server ready?

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One served model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Model {
    /// The name that requests use.
    pub id: String,
    /// Always `model`.
    pub object: String,
    /// When this server began to serve it, seconds since 1970.
    pub created: u64,
    /// Who serves it.
    pub owned_by: String,
    /// Longest sequence, prompt and answer together, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_model_len: Option<usize>,
}

/// Answer to `GET /v1/models`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModelList {
    /// Always `list`.
    pub object: String,
    /// The models.
    pub data: Vec<Model>,
}

/// Answer to `GET /readyz` and `GET /healthz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// `ok` or `draining`.
    pub status: String,
}
