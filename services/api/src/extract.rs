//! How does a body become a typed request, and what is said when it does not?

use crate::error::ApiError;
use crate::error_table as table;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;
use std::time::Duration;

/// A caller that sends its body more slowly than this is holding a connection, not asking.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// A JSON body. Unlike axum's own, every refusal is a typed error, and the field that is wrong is named.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        // A page of another origin can send forms and plain text without asking first, but not JSON. Insisting on the
        // type is what keeps a foreign page from putting work on a server on this machine.
        if !is_json(request.headers()) {
            return Err(ApiError::of(table::NOT_JSON, "send the body as content-type: application/json"));
        }
        let bytes = match tokio::time::timeout(BODY_TIMEOUT, Bytes::from_request(request, state)).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(rejection)) => return Err(unread(&rejection)),
            Err(_) => return Err(late()),
        };
        parse(&bytes).map(JsonBody)
    }
}

/// The body of a request that brings documents; longer ones may take longer.
pub(crate) const DOCUMENTS_TIMEOUT: Duration = Duration::from_secs(300);

/// Reads the body of a request that brings documents.
pub(crate) async fn body<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, ApiError> {
    match tokio::time::timeout(DOCUMENTS_TIMEOUT, Bytes::from_request(request, state)).await {
        Ok(read) => read.map_err(|rejection| unread(&rejection)),
        Err(_) => Err(late()),
    }
}

pub(crate) fn late() -> ApiError {
    ApiError::of(table::BODY_TIMEOUT, "the body did not arrive in time")
}

/// What stands behind the question mark of an address. Unlike axum's own, every refusal is a typed error.
pub(crate) struct UrlQuery<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for UrlQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(ApiError::of(table::INVALID_VALUE, rejection.body_text())),
        }
    }
}

/// The id in a path. Unlike axum's own, an id that cannot be read is refused with a typed error.
pub(crate) struct PathId(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(id)) => Ok(Self(id)),
            Err(_) => {
                Err(ApiError::of(table::INVALID_VALUE, "the id in the path is not UTF-8 text").param("id"))
            }
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

fn unread(rejection: &BytesRejection) -> ApiError {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        ApiError::of(table::BODY_TOO_LARGE, "the body is larger than this server takes")
    } else {
        ApiError::of(table::INVALID_BODY, "the body could not be read")
    }
}

/// Reads JSON; tells text that is not JSON from JSON of the wrong shape.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    // The derives would take a list of the fields' values too, which nobody means.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(ApiError::of(table::INVALID_BODY, "the body must be a JSON object"));
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let refusal = refusal(error.inner());
        // "." is the body itself, and a question mark stands where the text broke off inside a name.
        if path == "." || path.contains('?') { refusal } else { refusal.param(path) }
    })?;
    reader.end().map_err(|error| refusal(&error))?;
    Ok(value)
}

fn refusal(error: &serde_json::Error) -> ApiError {
    let row = if error.is_data() { table::INVALID_BODY } else { table::MALFORMED_JSON };
    ApiError::of(row, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, code: &str, param: Option<&str>) {
        let error = parse::<wire::AnswerRequest>(body.as_bytes()).unwrap_err().body().error;
        assert_eq!((error.code.as_str(), error.param.as_deref()), (code, param), "{body}: {}", error.message);
    }

    #[test]
    fn a_refusal_names_the_kind_of_mistake_and_the_field() {
        check("", "malformed_json", None);
        check("{\"question\":", "malformed_json", Some("question"));
        check("{", "malformed_json", None);
        check("{\"quest", "malformed_json", None);
        check("{\"question\":\"a\"} x", "malformed_json", None);
        check("{}", "invalid_body", None);
        check("[]", "invalid_body", None);
        check("{\"question\":7}", "invalid_body", Some("question"));
        check("{\"question\":\"a\",\"max_tokens\":-1}", "invalid_body", Some("max_tokens"));
        check("{\"question\":\"a\",\"slo\":{\"total_ms\":\"soon\"}}", "invalid_body", Some("slo.total_ms"));
        check("{\"question\":\"a\",\"slo\":{\"total_ms\":-5}}", "invalid_body", Some("slo.total_ms"));
        check("{\"question\":\"a\",\"surprise\":1}", "invalid_body", Some("surprise"));
    }

    #[test]
    fn json_is_recognised_with_its_parameters() {
        let check = |value: &str| {
            is_json(&HeaderMap::from_iter([(header::CONTENT_TYPE, value.parse().expect("a header value"))]))
        };
        assert!(check("application/json"));
        assert!(check("Application/JSON; charset=utf-8"));
        assert!(check("application/problem+json"));
        assert!(!check("text/plain"));
        assert!(!check("application/x-www-form-urlencoded"));
        assert!(!is_json(&HeaderMap::new()));
    }
}
