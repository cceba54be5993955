//! What else may a chat request ask of the engine? Probabilities, biases and the form of the reply.

use crate::error::ApiError;
use crate::error_table as table;
use engine::{Constraint, Delta, TokenId, TokenLogprob};

/// `{}` describes any JSON; an object is what OpenAI's `json_object` promises.
const ANY_OBJECT: &str = r#"{"type": "object"}"#;

/// The number of likeliest tokens to report, if probabilities were asked for.
pub(crate) fn top_logprobs(request: &wire::ChatRequest) -> Result<Option<usize>, ApiError> {
    match (request.logprobs.unwrap_or(false), request.top_logprobs) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => {
            Err(ApiError::of(table::INVALID_VALUE, "top_logprobs needs logprobs: true").param("top_logprobs"))
        }
    }
}

/// The biases, by token. Their range is the engine's to check.
pub(crate) fn logit_bias(request: &wire::ChatRequest) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let biases = request.logit_bias.iter().flatten();
    let bias = |(token, bias): (&String, &f32)| match token.parse::<TokenId>() {
        Ok(token) => Ok((token, *bias)),
        Err(_) => {
            let message = format!("logit_bias: {token:?} is no token id; ids are whole numbers from 0");
            Err(ApiError::of(table::INVALID_VALUE, message).param("logit_bias"))
        }
    };
    biases.map(bias).collect()
}

/// What the reply must conform to, and the field that said so.
pub(crate) fn constraint(
    request: &wire::ChatRequest,
) -> Result<Option<(Constraint, &'static str)>, ApiError> {
    let format = request.response_format.as_ref().and_then(|format| match format {
        wire::ResponseFormat::Text => None,
        wire::ResponseFormat::JsonObject => Some(Constraint::JsonSchema(ANY_OBJECT.to_string())),
        wire::ResponseFormat::JsonSchema { json_schema } => {
            let schema = json_schema.schema.as_ref().map_or("{}".to_string(), ToString::to_string);
            Some(Constraint::JsonSchema(schema))
        }
    });
    let structured = request.structured_outputs.clone().unwrap_or_default();
    let given = [
        format.map(|constraint| (constraint, "response_format")),
        structured.regex.map(|regex| (Constraint::Regex(regex), "structured_outputs.regex")),
        structured.json.map(|json| (Constraint::JsonSchema(json.to_string()), "structured_outputs.json")),
        structured.choice.map(|choice| (Constraint::Regex(one_of(&choice)), "structured_outputs.choice")),
    ];
    let mut given = given.into_iter().flatten();
    let first = given.next();
    match given.next() {
        None => Ok(first),
        Some((_, other)) => {
            let message = format!("a reply has one form: {other} comes on top of another");
            Err(ApiError::of(table::INVALID_VALUE, message).param(other))
        }
    }
}

/// The regular expression of a choice between plain texts.
fn one_of(texts: &[String]) -> String {
    let plain = |text: &String| {
        let mut escaped = String::new();
        for letter in text.chars() {
            if letter.is_ascii_punctuation() {
                escaped.push('\\');
            }
            escaped.push(letter);
        }
        escaped
    };
    format!("({})", texts.iter().map(plain).collect::<Vec<_>>().join("|"))
}

/// The probabilities that came with a piece of text, if they were asked for.
pub(crate) fn logprobs(delta: &Delta) -> Option<wire::ChatLogprobs> {
    let content: Vec<_> = delta.tokens.iter().map(token).collect();
    (!content.is_empty()).then_some(wire::ChatLogprobs { content })
}

fn token(token: &TokenLogprob) -> wire::TokenLogprob {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let top = token.top.iter().map(|(_, bytes, logprob)| wire::TopLogprob {
        token: text(bytes),
        logprob: finite(*logprob),
        bytes: bytes.clone(),
    });
    wire::TokenLogprob {
        token: text(&token.bytes),
        logprob: finite(token.logprob),
        bytes: token.bytes.clone(),
        top_logprobs: top.collect(),
    }
}

/// JSON has no infinity: a token that could not come at all has OpenAI's stand-in for it.
fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { -9_999.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(json: &str) -> wire::ChatRequest {
        serde_json::from_str(&format!(r#"{{"messages": [], {json}}}"#)).unwrap()
    }

    /// The constraint's text, or the parameter of the refusal.
    fn check(json: &str, want: Result<Option<Constraint>, &str>) {
        let got = constraint(&request(json)).map(|found| found.map(|(constraint, _)| constraint));
        match (got, want) {
            (Ok(got), Ok(want)) => assert_eq!(got, want, "{json}"),
            (Err(error), Err(param)) => {
                assert_eq!(error.body().error.param.as_deref(), Some(param), "{json}");
            }
            (got, want) => panic!("{json}: {} and not {want:?}", got.is_ok()),
        }
    }

    #[test]
    fn each_form_becomes_a_constraint_and_two_are_refused() {
        let schema = |text: &str| Ok(Some(Constraint::JsonSchema(text.to_string())));
        check(r#""response_format": {"type": "text"}"#, Ok(None));
        check(r#""response_format": {"type": "json_object"}"#, schema(ANY_OBJECT));
        check(
            r#""response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type":"null"}}}"#,
            schema(r#"{"type":"null"}"#),
        );
        check(r#""structured_outputs": {"regex": "a+"}"#, Ok(Some(Constraint::Regex("a+".to_string()))));
        let choice = Constraint::Regex(r"(yes|no\.|a\|b)".to_string());
        check(r#""structured_outputs": {"choice": ["yes", "no.", "a|b"]}"#, Ok(Some(choice)));
        check(r#""structured_outputs": {"regex": "a", "json": {}}"#, Err("structured_outputs.json"));
        check(
            r#""response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}"#,
            Err("structured_outputs.regex"),
        );
    }

    #[test]
    fn probabilities_and_biases_are_read() {
        assert_eq!(top_logprobs(&request(r#""n": 1"#)).ok(), Some(None));
        assert_eq!(top_logprobs(&request(r#""logprobs": true"#)).ok(), Some(Some(0)));
        assert_eq!(top_logprobs(&request(r#""logprobs": true, "top_logprobs": 5"#)).ok(), Some(Some(5)));
        assert!(top_logprobs(&request(r#""top_logprobs": 5"#)).is_err());
        assert_eq!(logit_bias(&request(r#""logit_bias": {"7": -100}"#)).ok(), Some(vec![(7, -100.0)]));
        assert!(logit_bias(&request(r#""logit_bias": {"seven": 1}"#)).is_err());
    }
}
