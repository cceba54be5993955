//! How do many documents come at once? JSONL or a form with files, put in the background as a job.

use super::form::{self, Labels};
use super::jobs::{self, Sent};
use crate::access::check_origin;
use crate::context::Context;
use crate::error::ApiError;
use crate::error_table as table;
use crate::extract::{self, UrlQuery};
use crate::openapi::DocumentFailures;
use crate::state::Shared;
use axum::extract::multipart::MultipartError;
use axum::extract::{FromRequest, Multipart, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::{Extension, Json};
use index::full_id;
use serde::Deserialize;
use std::sync::Arc;
use utoipa::IntoParams;

/// How a job is asked for.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wish {
    /// Answer when the job has ended instead of at once.
    wait: bool,
}

/// Puts many documents as a job. `done` in the job counts what is on disk and found.
///
/// The body is JSONL (`application/x-ndjson`), one document a line, or a form (`multipart/form-data`) with any number of
/// files, each named by its file name; fields before the files (`collection`, `tags`, `date`, `format`) hold for all.
#[utoipa::path(
    post, path = "/v1/documents", tag = "documents", params(Wish),
    request_body(
        description = "Documents",
        content((wire::DocumentBody = "application/x-ndjson"), (Vec<u8> = "multipart/form-data")),
    ),
    responses(
        (status = 200, description = "The job has ended (`wait=true`)", body = wire::Job),
        (status = 202, description = "The job runs; see GET /v1/jobs/{id}", body = wire::Job),
        DocumentFailures,
    ),
)]
pub(crate) async fn post_many(
    State(shared): State<Arc<Shared>>,
    Extension(context): Extension<Context>,
    UrlQuery(wish): UrlQuery<Wish>,
    headers: HeaderMap,
    request: Request,
) -> Result<(StatusCode, Json<wire::Job>), ApiError> {
    shared.check_open()?;
    check_origin(&headers)?;
    let owner = context.owner()?;
    let place = shared.intake.place()?;
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let sent = match form::kind(kind).as_str() {
        "application/x-ndjson" => lines(owner, &extract::body(request, &shared).await?),
        "multipart/form-data" => {
            let reading = files(owner, request, &shared);
            tokio::time::timeout(extract::DOCUMENTS_TIMEOUT, reading).await.map_err(|_| extract::late())??
        }
        _ => {
            let message = "send JSONL as application/x-ndjson, or files as multipart/form-data";
            return Err(ApiError::of(table::NOT_JSON, message));
        }
    };
    let most = shared.api.limits.bulk_documents_max;
    if sent.is_empty() || sent.len() > most {
        let message = format!("a job takes 1 to {most} documents, not {}", sent.len());
        return Err(ApiError::of(table::INVALID_VALUE, message));
    }
    let (job, running) = jobs::start(&shared, &context, sent, place);
    if !wish.wait {
        return Ok((StatusCode::ACCEPTED, Json(job)));
    }
    // A panic in a job is told by the job itself: it then never ends.
    let _ = running.await;
    let tenant = context.caller.as_ref().and_then(|caller| caller.tenant.as_deref());
    Ok((StatusCode::OK, Json(shared.intake.jobs.get(tenant, &job.id).unwrap_or(job))))
}

/// One document a line; a line that cannot be read costs itself only.
fn lines(owner: Option<&str>, body: &[u8]) -> Vec<Sent> {
    let lines = body.split(|byte| *byte == b'\n').enumerate();
    let written = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    written.map(|(at, line)| one_line(owner, at + 1, line)).collect()
}

fn one_line(owner: Option<&str>, place: usize, line: &[u8]) -> Sent {
    let mut body: wire::DocumentBody = match extract::parse(line) {
        Ok(body) => body,
        Err(error) => return Sent { place, id: None, document: Err(error) },
    };
    let Some(id) = body.id.take() else {
        let error = ApiError::of(table::INVALID_BODY, "each line names its document: \"id\"").param("id");
        return Sent { place, id: None, document: Err(error) };
    };
    let document = full_id(owner, &id).map_err(form::bad_id).and_then(|full| form::text(full, body));
    Sent { place, id: Some(id), document }
}

/// The files of a form.
async fn files(owner: Option<&str>, request: Request, shared: &Arc<Shared>) -> Result<Vec<Sent>, ApiError> {
    let unread = |error: MultipartError| {
        let row = if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
            table::BODY_TOO_LARGE
        } else {
            table::INVALID_BODY
        };
        ApiError::of(row, format!("the form could not be read: {}", error.body_text()))
    };
    let mut form = Multipart::from_request(request, shared)
        .await
        .map_err(|error| ApiError::of(table::INVALID_BODY, error.body_text()))?;
    let (mut labels, mut sent) = (Labels::default(), Vec::new());
    while let Some(field) = form.next_field().await.map_err(unread)? {
        let name = field.name().unwrap_or_default().to_string();
        let Some(file) = field.file_name().map(str::to_string) else {
            let value = field.text().await.map_err(unread)?;
            label(&mut labels, &name, value)?;
            continue;
        };
        let kind = form::kind(field.content_type().unwrap_or_default());
        // Clients guess at the type; a name that says what the file is knows better.
        let kind = if index::reads(&file) { String::new() } else { kind };
        let bytes = field.bytes().await.map_err(unread)?.to_vec();
        let place = sent.len() + 1;
        let full = full_id(owner, &file).map_err(form::bad_id);
        let document = full.and_then(|full| form::file(full, labels.clone(), &kind, bytes));
        sent.push(Sent { place, id: Some(file), document });
    }
    Ok(sent)
}

/// Takes in a field that holds for all files behind it.
fn label(labels: &mut Labels, name: &str, value: String) -> Result<(), ApiError> {
    let field = match name {
        "collection" => &mut labels.collection,
        "tags" => &mut labels.tags,
        "date" => &mut labels.date,
        "format" => &mut labels.format,
        _ => {
            let message =
                format!("a form has files and the fields collection, tags, date, format, not {name:?}");
            return Err(ApiError::of(table::INVALID_BODY, message));
        }
    };
    *field = Some(value);
    Ok(())
}
