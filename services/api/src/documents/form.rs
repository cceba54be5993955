//! What was sent? A body, its headers and what stands in the address become a document to be put.

use crate::convert;
use crate::error::ApiError;
use crate::error_table as table;
use axum::http::{HeaderMap, header};
use index::{COLLECTION_DEFAULT, Meta, NewDocument, Origin, parse_id};
use serde::Deserialize;
use utoipa::IntoParams;

/// Each format's name, content type and file ending; whether its files are text.
const FORMATS: [(&str, &str, &str, bool); 9] = [
    ("markdown", "text/markdown", "md", true),
    ("rst", "text/x-rst", "rst", true),
    ("html", "text/html", "html", true),
    ("text", "text/plain", "txt", true),
    ("csv", "text/csv", "csv", true),
    ("tsv", "text/tab-separated-values", "tsv", true),
    ("jsonl", "application/x-ndjson", "jsonl", true),
    ("pdf", "application/pdf", "pdf", false),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", "docx", false),
];

/// Content types that say nothing of a file: what clients send when nobody told them what it is.
const NO_KINDS: [&str; 3] = ["application/octet-stream", "application/x-www-form-urlencoded", ""];

/// What is said about a document beside its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct Labels {
    /// How to read the file: `markdown`, `rst`, `html`, `text`, `csv`, `tsv`, `jsonl`, `pdf` or `docx`.
    pub(super) format: Option<String>,
    /// Its title; absent, the file's own.
    pub(super) title: Option<String>,
    /// Path or address that citations show; absent, the id.
    pub(super) source: Option<String>,
    /// The collection that holds it; absent, `default`.
    pub(super) collection: Option<String>,
    /// Words to find it by; commas between them.
    pub(super) tags: Option<String>,
    /// The day that it speaks for, as 2026-12-31.
    pub(super) date: Option<String>,
}

/// A name that no document may have.
pub(super) fn bad_id(problem: String) -> ApiError {
    ApiError::of(table::INVALID_DOCUMENT, problem).param("id")
}

/// A document out of a `PUT`: JSON with a text in it, or a file as it is.
pub(super) fn document(
    id: String,
    labels: Labels,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<NewDocument, ApiError> {
    let kind =
        kind(headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default());
    if kind == "application/json" {
        if labels != Labels::default() {
            let message = "with a JSON body, what is said about the document stands in the body";
            return Err(ApiError::of(table::INVALID_VALUE, message));
        }
        let body: wire::DocumentBody = crate::extract::parse(body)?;
        if body.id.is_some() {
            let message = "the document's id stands in the path; `id` is for the lines of JSONL";
            return Err(ApiError::of(table::INVALID_VALUE, message).param("id"));
        }
        return text(id, body);
    }
    file(id, labels, &kind, body.to_vec())
}

/// A document that came as JSON.
pub(super) fn text(id: String, body: wire::DocumentBody) -> Result<NewDocument, ApiError> {
    let wire::DocumentBody { id: _, text, format, title, source, collection, tags, date } = body;
    let ending = match format.as_deref() {
        Some(format) => Some(ending(format, true)?),
        // A text is no PDF, whatever its name.
        None => {
            FORMATS.iter().any(|(.., ending, is_text)| !is_text && has_ending(&id, ending)).then_some("txt")
        }
    };
    let ending = ending.or_else(|| (!index::reads(file_name(&id))).then_some("txt"));
    let labels = Said { title, source, collection, tags, date };
    labels.document(id, ending, text.into_bytes())
}

/// A document that came as a file, of that content type.
pub(super) fn file(id: String, labels: Labels, kind: &str, bytes: Vec<u8>) -> Result<NewDocument, ApiError> {
    let Labels { format, title, source, collection, tags, date } = labels;
    let ending = match format.as_deref() {
        Some(format) => Some(ending(format, false)?),
        None => FORMATS.iter().find(|(_, type_of, ..)| *type_of == kind).map(|(.., ending, _)| *ending),
    };
    if ending.is_none() && !NO_KINDS.contains(&kind) && !index::reads(file_name(&id)) {
        return Err(ApiError::of(table::NOT_JSON, format!("files of type {kind:?} cannot be read")));
    }
    let tags = split(tags.as_deref());
    Said { title, source, collection, tags, date }.document(id, ending, bytes)
}

struct Said {
    title: Option<String>,
    source: Option<String>,
    collection: Option<String>,
    tags: Vec<String>,
    date: Option<String>,
}

impl Said {
    fn document(self, id: String, ending: Option<&str>, bytes: Vec<u8>) -> Result<NewDocument, ApiError> {
        let meta = Meta {
            title: self.title,
            collection: self.collection.unwrap_or_else(|| COLLECTION_DEFAULT.to_string()),
            tags: self.tags,
            date: convert::date("date", self.date.as_deref())?,
        };
        let name = file_name(&id);
        let file_name = ending.map_or_else(|| name.to_string(), |ending| format!("document.{ending}"));
        let source = self.source.unwrap_or_else(|| parse_id(&id).1.to_string());
        if source.len() > SOURCE_BYTES_MAX || source.chars().any(char::is_control) {
            let message = format!("a source has at most {SOURCE_BYTES_MAX} bytes and no control characters");
            return Err(ApiError::of(table::INVALID_VALUE, message).param("source"));
        }
        Ok(NewDocument { id, file_name, source, bytes, meta, origin: Origin::Put })
    }
}

/// Longest source that a document is given.
const SOURCE_BYTES_MAX: usize = 2_048;

/// A content type without its parameters.
pub(super) fn kind(content_type: &str) -> String {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/jsonl" | "application/jsonlines" => "application/x-ndjson".to_string(),
        "text/x-markdown" => "text/markdown".to_string(),
        "text/prs.fallenstein.rst" => "text/x-rst".to_string(),
        _ => essence,
    }
}

/// Names between commas.
pub(super) fn split(names: Option<&str>) -> Vec<String> {
    let names = names.unwrap_or_default().split(',').map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_string).collect()
}

fn ending(format: &str, as_text: bool) -> Result<&'static str, ApiError> {
    let known = FORMATS.iter().filter(|(.., is_text)| *is_text || !as_text);
    known.clone().find(|(name, ..)| *name == format).map(|(_, _, ending, _)| *ending).ok_or_else(|| {
        let names: Vec<&str> = known.map(|(name, ..)| *name).collect();
        let message = format!("format is one of {}, not {format:?}", names.join(", "));
        ApiError::of(table::INVALID_VALUE, message).param("format")
    })
}

fn file_name(id: &str) -> &str {
    let (_, id) = parse_id(id);
    id.rsplit('/').next().unwrap_or(id)
}

fn has_ending(id: &str, ending: &str) -> bool {
    id.rsplit_once('.').is_some_and(|(_, own)| own.eq_ignore_ascii_case(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(id: &str, kind: &str, format: Option<&str>) -> Result<String, String> {
        let labels = Labels { format: format.map(str::to_string), ..Labels::default() };
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, kind.parse().expect("a header value"))]);
        let body: &[u8] = if kind == "application/json" { br#"{"text":"a"}"# } else { b"a" };
        let made = document(id.to_string(), labels, &headers, body);
        made.map(|document| document.file_name).map_err(|error| error.body().error.code)
    }

    #[test]
    fn the_kind_of_a_file_is_told_by_format_then_type_then_name() {
        let ok = |name: &str| Ok(name.to_string());
        assert_eq!(put("a/b.md", "application/octet-stream", None), ok("b.md"));
        assert_eq!(put("a/b.md", "application/x-www-form-urlencoded", None), ok("b.md"));
        assert_eq!(put("a/b.md", "text/html; charset=utf-8", None), ok("document.html"));
        assert_eq!(put("a/b.md", "text/html", Some("pdf")), ok("document.pdf"));
        assert_eq!(put("b", "text/x-markdown", None), ok("document.md"));
        assert_eq!(put("b.rs", "text/x-rust", None), ok("b.rs"));
        assert_eq!(put("b", "image/png", None), Err("unsupported_media_type".into()));
        assert_eq!(put("b", "text/plain", Some("word")), Err("invalid_value".into()));
        assert_eq!(put("\u{1f}acme\u{1f}b.md", "", None), ok("b.md"));
    }

    #[test]
    fn a_text_in_json_is_read_as_text() {
        let ok = |name: &str| Ok(name.to_string());
        assert_eq!(put("b.md", "application/json", None), ok("b.md"));
        assert_eq!(put("b", "application/json", None), ok("document.txt"));
        assert_eq!(put("b.PDF", "application/json", None), ok("document.txt"));
        assert_eq!(
            put("b.md", "application/json", Some("html")),
            Err("invalid_value".into()),
            "in the address"
        );
    }

    #[test]
    fn tags_stand_between_commas() {
        assert_eq!(split(Some("a, b,,c ")), ["a", "b", "c"]);
        assert!(split(None).is_empty() && split(Some(" ,")).is_empty());
    }
}
