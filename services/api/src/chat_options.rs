//! What else may a chat request ask of the engine? Probabilities, biases and the form of the reply.

use crate::error::ApiError;
use crate::error_table as table;
use engine::{Constraint, Delta, LOGIT_BIASES_MAX, TOP_LOGPROBS_MAX, TokenId, TokenLogprob};
use std::collections::BTreeMap;
use std::fmt::Write;

/// `{}` describes any JSON; an object is what OpenAI's `json_object` promises.
const ANY_OBJECT: &str = r#"{"type": "object"}"#;

/// The number of likeliest tokens to report, if probabilities were asked for.
pub(crate) fn top_logprobs(request: &wire::ChatRequest) -> Result<Option<usize>, ApiError> {
    let problem = match (request.logprobs.unwrap_or(false), request.top_logprobs.unwrap_or(0)) {
        (_, top) if top > TOP_LOGPROBS_MAX => format!("top_logprobs must lie from 0 to {TOP_LOGPROBS_MAX}"),
        (true, top) => return Ok(Some(top)),
        (false, 0) => return Ok(None),
        (false, _) => "top_logprobs needs logprobs: true".to_string(),
    };
    Err(ApiError::of(table::INVALID_VALUE, problem).param("top_logprobs"))
}

/// The biases, by token; ids lie below `vocab_tokens`.
pub(crate) fn logit_bias(
    request: &wire::ChatRequest,
    vocab_tokens: usize,
) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let refuse = |problem: String| {
        Err(ApiError::of(table::INVALID_VALUE, format!("logit_bias: {problem}")).param("logit_bias"))
    };
    if request.logit_bias.as_ref().is_some_and(|given| given.len() > LOGIT_BIASES_MAX) {
        return refuse(format!("at most {LOGIT_BIASES_MAX} tokens are taken"));
    }
    let mut biases = BTreeMap::new();
    for (name, bias) in request.logit_bias.iter().flatten() {
        let token = name.parse::<TokenId>().ok().filter(|token| (*token as usize) < vocab_tokens);
        let problem = match token {
            None => format!("{name:?} is no token id; ids are whole numbers below {vocab_tokens}"),
            Some(_) if !(-100.0..=100.0).contains(bias) => format!("{bias} is outside -100 to 100"),
            // "7" and "07" name the same token.
            Some(token) if biases.insert(token, *bias).is_some() => format!("token {token} has two biases"),
            Some(_) => continue,
        };
        return refuse(problem);
    }
    Ok(biases.into_iter().collect())
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
    if structured.choice.as_ref().is_some_and(Vec::is_empty) {
        return Err(ApiError::of(
            table::INVALID_VALUE,
            "structured_outputs.choice has nothing to choose from",
        )
        .param("structured_outputs.choice"));
    }
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
            // Not every mark may be escaped: `\<` is the start of a word.
            if r"\.+*?()|[]{}^$#&-~".contains(letter) {
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
    let top = token.top.iter().map(|(id, bytes, logprob)| wire::TopLogprob {
        token: text(*id, bytes),
        token_id: *id,
        logprob: finite(*logprob),
        bytes: (!bytes.is_empty()).then(|| bytes.clone()),
    });
    wire::TokenLogprob {
        token: text(token.token, &token.bytes),
        token_id: token.token,
        logprob: finite(token.logprob),
        bytes: token.bytes.clone(),
        top_logprobs: top.collect(),
    }
}

/// A token for people. Bytes that are no whole character are written as OpenAI writes them, `\xf0\x9f`; a token without
/// bytes goes by its id.
fn text(token: TokenId, bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return format!("token_id:{token}");
    }
    bytes.utf8_chunks().fold(String::new(), |mut text, chunk| {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
        text
    })
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
        let marks = Constraint::Regex(r#"(<a> "b"/c)"#.to_string());
        check(r#""structured_outputs": {"choice": ["<a> \"b\"/c"]}"#, Ok(Some(marks)));
        check(r#""structured_outputs": {"choice": []}"#, Err("structured_outputs.choice"));
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
        assert_eq!(top_logprobs(&request(r#""logprobs": true, "top_logprobs": 20"#)).ok(), Some(Some(20)));
        assert!(top_logprobs(&request(r#""top_logprobs": 5"#)).is_err());
        let bias = |json: &str| logit_bias(&request(&format!(r#""logit_bias": {json}"#)), 100).ok();
        assert_eq!(bias(r#"{"7": -100, "99": 100}"#), Some(vec![(7, -100.0), (99, 100.0)]));
        for bad in
            [r#"{"seven": 1}"#, r#"{"100": 1}"#, r#"{"7": 101}"#, r#"{"7": 1, "07": 2}"#, r#"{"-1": 1}"#]
        {
            assert_eq!(bias(bad), None, "{bad}");
        }
    }

    #[test]
    fn biases_are_bounded_in_number() {
        let many = |count: usize| {
            let biases = (0..count).map(|token| (token.to_string(), 1.0)).collect();
            let request = wire::ChatRequest { logit_bias: Some(biases), ..wire::ChatRequest::default() };
            logit_bias(&request, 2_000).map(|biases| biases.len()).map_err(|error| error.body().error.param)
        };
        assert_eq!(many(1_024), Ok(1_024));
        assert_eq!(many(1_025), Err(Some("logit_bias".to_string())));
    }

    #[test]
    fn bytes_that_are_no_character_are_spelt_out() {
        let check = |bytes: &[u8], want: &str| assert_eq!(text(7, bytes), want);
        check(b" one", " one");
        check("😀".as_bytes(), "😀");
        check(&[240, 159, 146], r"\xf0\x9f\x92");
        check(&[153, b' ', 0xc3, 0xa9], r"\x99 é");
        check(&[], "token_id:7");
    }
}
