//! How are documents put, read, listed and deleted over HTTP?

mod bulk;
mod form;
mod intake;
mod jobs;

pub(crate) use bulk::{__path_post_many, post_many};
pub(crate) use intake::Intake;
pub(crate) use jobs::{__path_job, job};

use crate::context::Context;
use crate::convert;
use crate::error::ApiError;
use crate::error_table as table;
use crate::extract::{PathId, UrlQuery};
use crate::openapi::{DocumentFailures, ListFailures};
use crate::state::Shared;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use index::{DocumentInfo, Origin, Outcome, full_id, parse_id};
use serde::Deserialize;
use std::sync::Arc;
use utoipa::IntoParams;

/// Documents of a list when the caller names no number, and most of them.
const LISTED: usize = 100;
const LISTED_MAX: usize = 1_000;

/// Puts a document: on disk, and found by the next search, once this has answered.
///
/// The body is a file as it is, its kind told by `format`, by its content type or by the id's ending; or, as
/// `application/json`, a text with what is said about it. A document of the same name is replaced.
#[utoipa::path(
    put, path = "/v1/documents/{id}", tag = "documents",
    params(("id" = String, Path, description = "Name of the document; may hold slashes"), form::Labels),
    request_body(
        description = "A file as it is, or a text with what is said about it",
        content((wire::DocumentBody = "application/json"), (Vec<u8> = "application/octet-stream")),
    ),
    responses(
        (status = 200, description = "Replaced, or there already", body = wire::PutResponse),
        (status = 201, description = "Created", body = wire::PutResponse),
        DocumentFailures,
    ),
)]
pub(crate) async fn put(
    State(shared): State<Arc<Shared>>,
    Extension(context): Extension<Context>,
    PathId(id): PathId,
    UrlQuery(labels): UrlQuery<form::Labels>,
    headers: HeaderMap,
    request: axum::extract::Request,
) -> Result<(StatusCode, Json<wire::PutResponse>), ApiError> {
    shared.check_open()?;
    let id = full_id(context.owner()?, &id).map_err(form::bad_id)?;
    // Taken before the body is read, so that the bodies held at once are few.
    let place = shared.intake.place()?;
    let body: Bytes = crate::extract::body(request, &shared).await?;
    let document = form::document(id, labels, &headers, &body)?;
    drop(body);
    let (outcome, info) = shared.intake.put(document, place).await?;
    shared.metrics.document(put_outcome(outcome));
    let status = if outcome == Outcome::Created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(wire::PutResponse { outcome: wire_outcome(outcome), document: document_of(info) })))
}

/// Deletes a document: no search finds it any more once this has answered.
#[utoipa::path(
    delete, path = "/v1/documents/{id}", tag = "documents",
    params(("id" = String, Path, description = "Name of the document")),
    responses((status = 200, description = "Deleted", body = wire::DeleteResponse), DocumentFailures),
)]
pub(crate) async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(context): Extension<Context>,
    PathId(id): PathId,
) -> Result<Json<wire::DeleteResponse>, ApiError> {
    shared.check_open()?;
    let full = full_id(context.owner()?, &id).map_err(|_| not_found(&id))?;
    if !shared.intake.delete(full).await? {
        return Err(not_found(&id));
    }
    shared.metrics.document("deleted");
    Ok(Json(wire::DeleteResponse { id, deleted: true }))
}

/// What is to be known of one document.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct Detail {
    /// Show its passages too.
    passages: bool,
}

/// Shows a document, and with `passages=true` how it was cut.
#[utoipa::path(
    get, path = "/v1/documents/{id}", tag = "documents",
    params(("id" = String, Path, description = "Name of the document"), Detail),
    responses((status = 200, description = "The document", body = wire::DocumentDetail), ListFailures),
)]
pub(crate) async fn get(
    State(shared): State<Arc<Shared>>,
    Extension(context): Extension<Context>,
    PathId(id): PathId,
    UrlQuery(detail): UrlQuery<Detail>,
) -> Result<Json<wire::DocumentDetail>, ApiError> {
    let index = &shared.api.index;
    let tenant = context.caller.as_ref().and_then(|caller| caller.tenant.as_deref());
    // The caller's own first.
    let owners = [tenant.map(Some), Some(None)].into_iter().flatten();
    let info = owners
        .filter_map(|owner| full_id(owner, &id).ok())
        .find_map(|name| index.document(&name))
        .ok_or_else(|| not_found(&id))?;
    let passages = detail.passages.then(|| index.passages_of(&info.id));
    let passages = passages.unwrap_or_default().iter().map(|passage| convert::passage(passage)).collect();
    Ok(Json(wire::DocumentDetail { document: document_of(info), passages }))
}

/// Which documents are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct Listing {
    /// In this collection.
    collection: Option<String>,
    /// With each of these tags; commas between them.
    tags: Option<String>,
    /// Of this day or later.
    from: Option<String>,
    /// Of this day or earlier.
    to: Option<String>,
    /// With a source that begins so.
    source: Option<String>,
    /// After the document of this name.
    after: Option<String>,
    /// Most documents to list; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Lists documents by name.
#[utoipa::path(
    get, path = "/v1/documents", tag = "documents", params(Listing),
    responses((status = 200, description = "The documents", body = wire::DocumentList), ListFailures),
)]
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(context): Extension<Context>,
    UrlQuery(listing): UrlQuery<Listing>,
) -> Result<Json<wire::DocumentList>, ApiError> {
    let Listing { collection, tags, from, to, source, after, limit } = listing;
    let limit = convert::count("limit", limit, LISTED, LISTED_MAX)?;
    let tags = form::split(tags.as_deref());
    let asked = wire::Filter { collections: collection.into_iter().collect(), tags, from, to, source };
    let filter = context.filter(Some(asked))?;
    // A walk over all documents; not on a thread that serves.
    let index = Arc::clone(&shared.api.index);
    let walk = move || index.documents(&filter.as_filter(), after.as_deref(), limit + 1);
    let mut found = tokio::task::spawn_blocking(walk)
        .await
        .map_err(|error| ApiError::of(table::INTERNAL, error.to_string()))?;
    let more = found.len() > limit;
    found.truncate(limit);
    // The whole id, so that a caller's own documents and shared ones of the same name are told apart.
    let next = found.last().filter(|_| more).map(|info| info.id.clone());
    Ok(Json(wire::DocumentList { data: found.into_iter().map(document_of).collect(), next }))
}

/// Lists the collections and how many documents the caller sees in each.
#[utoipa::path(
    get, path = "/v1/collections", tag = "documents",
    responses((status = 200, description = "The collections", body = wire::CollectionList), ListFailures),
)]
pub(crate) async fn collections(
    State(shared): State<Arc<Shared>>,
    Extension(context): Extension<Context>,
) -> Result<Json<wire::CollectionList>, ApiError> {
    let filter = context.filter(None)?;
    let index = Arc::clone(&shared.api.index);
    let walk = move || index.collections(&filter.as_filter());
    let found = tokio::task::spawn_blocking(walk)
        .await
        .map_err(|error| ApiError::of(table::INTERNAL, error.to_string()))?;
    let data = found.into_iter().map(|one| wire::Collection {
        name: one.name,
        documents: one.documents,
        passages: one.passages,
    });
    Ok(Json(wire::CollectionList { data: data.collect() }))
}

fn not_found(id: &str) -> ApiError {
    ApiError::of(table::DOCUMENT_NOT_FOUND, format!("there is no document {id:?} of this caller")).param("id")
}

fn document_of(info: DocumentInfo) -> wire::Document {
    let (owner, id) = parse_id(&info.id);
    wire::Document {
        id: id.to_string(),
        shared: owner.is_none(),
        title: info.title,
        source: info.source,
        format: info.format,
        collection: info.meta.collection,
        tags: info.meta.tags,
        date: info.meta.date.map(|date| date.to_string()),
        from_folder: info.origin == Origin::Folder,
        sha256: info.sha256,
        bytes: info.bytes,
        passages: info.passages,
        lossy: info.lossy,
    }
}

fn wire_outcome(outcome: Outcome) -> wire::PutOutcome {
    match outcome {
        Outcome::Created => wire::PutOutcome::Created,
        Outcome::Replaced => wire::PutOutcome::Replaced,
        Outcome::Unchanged => wire::PutOutcome::Unchanged,
    }
}

/// The label of a put in the figures.
fn put_outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Created => "created",
        Outcome::Replaced => "replaced",
        Outcome::Unchanged => "unchanged",
    }
}
