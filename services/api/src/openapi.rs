//! What does the API look like to a machine? The OpenAPI document, made from the handlers and the wire types.

use utoipa::{IntoResponses, OpenApi};

/// What can go wrong with an answer. The variants are read by the derive alone.
#[derive(IntoResponses)]
#[allow(dead_code)]
pub(crate) enum AnswerFailures {
    /// Not JSON, a wrong type, an unknown field, a value out of range, an empty or overlong question.
    #[response(status = 400)]
    Invalid(wire::ErrorBody),
    /// The body did not arrive in time.
    #[response(status = 408)]
    SlowBody(wire::ErrorBody),
    /// The body is too large.
    #[response(status = 413)]
    TooLarge(wire::ErrorBody),
    /// The body is not `application/json`.
    #[response(status = 415)]
    NotJson(wire::ErrorBody),
    /// Cancelled by `POST /v1/cancel/{id}`.
    #[response(status = 499)]
    Cancelled(wire::ErrorBody),
    /// A part of the service failed; `stage` names it where it is known.
    #[response(status = 500)]
    Internal(wire::ErrorBody),
    /// The queue is full or the server is shutting down; see `Retry-After`.
    #[response(status = 503)]
    Busy(wire::ErrorBody),
    /// The deadline passed; `stage` says where.
    #[response(status = 504)]
    Expired(wire::ErrorBody),
}

/// What can go wrong with a search.
#[derive(IntoResponses)]
#[allow(dead_code)]
pub(crate) enum SearchFailures {
    /// Not JSON, a wrong type, an unknown field, a value out of range, an empty or overlong query.
    #[response(status = 400)]
    Invalid(wire::ErrorBody),
    /// The body did not arrive in time.
    #[response(status = 408)]
    SlowBody(wire::ErrorBody),
    /// The body is too large.
    #[response(status = 413)]
    TooLarge(wire::ErrorBody),
    /// The body is not `application/json`.
    #[response(status = 415)]
    NotJson(wire::ErrorBody),
    /// A part of the service failed; `stage` names it where it is known.
    #[response(status = 500)]
    Internal(wire::ErrorBody),
    /// Too many searches and questions are under way, or the server is shutting down; see `Retry-After`.
    #[response(status = 503)]
    Busy(wire::ErrorBody),
    /// The deadline passed; `stage` says where.
    #[response(status = 504)]
    Expired(wire::ErrorBody),
}

/// What can go wrong with putting or deleting documents.
#[derive(IntoResponses)]
#[allow(dead_code)]
pub(crate) enum DocumentFailures {
    /// A bad name, a value out of range, a body that cannot be read, a file without text or of an unknown kind.
    #[response(status = 400)]
    Invalid(wire::ErrorBody),
    /// The key is missing or unknown.
    #[response(status = 401)]
    UnknownKey(wire::ErrorBody),
    /// The caller may not change documents.
    #[response(status = 403)]
    ReadOnly(wire::ErrorBody),
    /// There is no document of that name.
    #[response(status = 404)]
    NotFound(wire::ErrorBody),
    /// The body did not arrive in time.
    #[response(status = 408)]
    SlowBody(wire::ErrorBody),
    /// The body is too large.
    #[response(status = 413)]
    TooLarge(wire::ErrorBody),
    /// Files of that type are not read.
    #[response(status = 415)]
    UnknownType(wire::ErrorBody),
    /// The index could not take the change; nothing was changed.
    #[response(status = 500)]
    Failed(wire::ErrorBody),
    /// Too many documents are on their way, the index is rebuilding, or the server is shutting down; see `Retry-After`.
    #[response(status = 503)]
    Busy(wire::ErrorBody),
}

/// What can go wrong with looking at documents.
#[derive(IntoResponses)]
#[allow(dead_code)]
pub(crate) enum ListFailures {
    /// A value out of range.
    #[response(status = 400)]
    Invalid(wire::ErrorBody),
    /// The key is missing or unknown.
    #[response(status = 401)]
    UnknownKey(wire::ErrorBody),
    /// There is nothing of that name that the caller may see.
    #[response(status = 404)]
    NotFound(wire::ErrorBody),
    /// Looking failed.
    #[response(status = 500)]
    Failed(wire::ErrorBody),
}

/// What can go wrong with a chat completion.
#[derive(IntoResponses)]
#[allow(dead_code)]
pub(crate) enum ChatFailures {
    /// Not JSON, a wrong type, a value out of range, a conversation that cannot be read or does not fit.
    #[response(status = 400)]
    Invalid(wire::ErrorBody),
    /// The model is not served here.
    #[response(status = 404)]
    UnknownModel(wire::ErrorBody),
    /// The body did not arrive in time.
    #[response(status = 408)]
    SlowBody(wire::ErrorBody),
    /// The body is too large.
    #[response(status = 413)]
    TooLarge(wire::ErrorBody),
    /// The body is not `application/json`.
    #[response(status = 415)]
    NotJson(wire::ErrorBody),
    /// Cancelled by `POST /v1/cancel/{id}`.
    #[response(status = 499)]
    Cancelled(wire::ErrorBody),
    /// The engine failed.
    #[response(status = 500)]
    Internal(wire::ErrorBody),
    /// The queue is full or the server is shutting down; see `Retry-After`.
    #[response(status = 503)]
    Busy(wire::ErrorBody),
    /// The deadline passed before there was text; `stage` says where.
    #[response(status = 504)]
    Expired(wire::ErrorBody),
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Riposte",
        description = "Answers questions from a body of documents, with citations, inside a latency budget that the \
                       caller can set. Every response carries `x-request-id`; every failure is an ErrorBody.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    paths(
        crate::answers::answer,
        crate::search::search,
        crate::cancel::cancel,
        crate::documents::list,
        crate::documents::post_many,
        crate::documents::put,
        crate::documents::get,
        crate::documents::delete,
        crate::documents::collections,
        crate::documents::job,
        crate::chat::chat,
        crate::ops::models,
        crate::ops::model,
        crate::ops::healthz,
        crate::ops::readyz,
        crate::ops::metrics,
        crate::ops::openapi,
    ),
    components(schemas(wire::SourcesEvent, wire::DeltaEvent, wire::FinalEvent, wire::ChatChunk)),
    tags(
        (name = "answers", description = "Questions, search and cancelling"),
        (name = "documents", description = "What is searched: putting, listing and deleting it"),
        (name = "openai", description = "The shape that OpenAI clients speak"),
        (name = "operations", description = "Probes and figures"),
    ),
)]
struct Document;

/// The OpenAPI document of the service.
pub fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}
