//! Do answers made of allowed tokens conform, and can they end exactly when they do? Judged by serde_json and the
//! regex crate, which had no part in making them.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestCaseResult};
use std::collections::BTreeSet;

/// Tokens of more than one byte: parts of JSON, halves of characters, a character and a half.
const LONGER: [&[u8]; 14] = [
    b"{\"",
    b"\": ",
    b"\", \"",
    b"\"}",
    b"name",
    b"  ",
    b"\n",
    b"12",
    b"true",
    "ż".as_bytes(),
    &[0x9f, 0xa6],
    &[0xf0, 0x9f],
    &[0xbc, 0xc5],
    b"ab",
];
const CONTROL: TokenId = 256 + LONGER.len() as TokenId;
const ENDS: [TokenId; 2] = [CONTROL + 1, CONTROL + 2];

/// The token of a byte is the byte; behind them the longer ones, a control token and two that end an answer, of which
/// one has a text.
fn words() -> Vec<Vec<u8>> {
    let bytes = (0..=255_u8).map(|byte| vec![byte]);
    let longer = LONGER.iter().map(|word| word.to_vec());
    bytes.chain(longer).chain([vec![], vec![], b"}".to_vec()]).collect()
}

fn factory() -> &'static GrammarFactory {
    static FACTORY: std::sync::OnceLock<GrammarFactory> = std::sync::OnceLock::new();
    FACTORY.get_or_init(|| GrammarFactory::new(words(), &ENDS).unwrap())
}

fn set(mask: &TokenMask) -> BTreeSet<TokenId> {
    (0..words().len() as TokenId + 64).filter(|token| mask.allows(*token)).collect()
}

/// Makes an answer out of allowed tokens, `choices` deciding between them, and ends it as soon as it may once they are
/// used up. Checks at every token that it may end exactly where it `conforms`.
fn walk(mut state: GrammarState, choices: &[u16], conforms: &dyn Fn(&str) -> bool) -> TestCaseResult {
    let words = words();
    let mut text: Vec<u8> = Vec::new();
    for step in 0..2_000 {
        let mask = state.allowed().unwrap();
        let allowed = set(&mask);
        let told = String::from_utf8_lossy(&text).into_owned();
        let done = std::str::from_utf8(&text).is_ok_and(conforms);
        let ends = ENDS.iter().filter(|end| allowed.contains(end)).count();
        prop_assert_eq!(ends, if done { 2 } else { 0 }, "may end after {:?}", told);
        prop_assert!(
            !allowed.is_empty() && !allowed.contains(&CONTROL) && !allowed.contains(&999),
            "{}",
            told
        );
        // What is not in the mask is refused, and that changes nothing.
        let other = choices.get(step / 2).map_or(CONTROL, |choice| TokenId::from(choice % 300));
        if !allowed.contains(&other) {
            prop_assert_eq!(state.accept(other), Err(GrammarError::NotAllowed(other)));
            prop_assert_eq!(&state.allowed().unwrap(), &mask);
        }
        let closes = |token: &&TokenId| matches!(words[**token as usize].as_slice(), b"\"" | b"}" | b"]");
        let token = match choices.get(step) {
            Some(choice) => allowed.iter().nth(usize::from(*choice) % allowed.len()),
            None if done => Some(&ENDS[step % 2]),
            None => allowed.iter().find(closes).or_else(|| allowed.first()),
        };
        let token = *token.unwrap();
        state.accept(token).unwrap();
        if ENDS.contains(&token) {
            prop_assert_eq!(set(&state.allowed().unwrap()), ENDS.into());
            prop_assert_eq!(state.accept(ENDS[0]), Ok(()));
            prop_assert_eq!(state.accept(97), Err(GrammarError::NotAllowed(97)));
            return Ok(());
        }
        text.extend(&words[token as usize]);
    }
    Err(TestCaseError::fail(format!("no end after {:?}", String::from_utf8_lossy(&text))))
}

type Judge = fn(&Value) -> bool;

/// Schemas, each with a plain reading of it.
const SCHEMAS: [(&str, Judge); 8] = [
    (r#"{"type": "integer"}"#, |v| v.as_f64().is_some_and(|n| n.fract() == 0.0)),
    (r#"{"type": "integer", "minimum": -7, "maximum": 120}"#, |v| {
        v.as_f64().is_some_and(|n| n.fract() == 0.0 && (-7.0..=120.0).contains(&n))
    }),
    (r#"{"enum": ["zażółć", "日本", "🦀", "🦊", 5, null]}"#, |v| {
        ["zażółć", "日本", "🦀", "🦊"].iter().any(|s| v == s) || v == 5 || v.is_null()
    }),
    (r#"{"type": "string", "minLength": 2, "maxLength": 4}"#, |v| {
        v.as_str().is_some_and(|s| (2..=4).contains(&s.chars().count()))
    }),
    (
        r#"{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}},
            "required": ["name", "age"], "additionalProperties": false}"#,
        |v| {
            let tags = |v: &Value| {
                v.as_array().is_some_and(|a| a.len() <= 3 && a.iter().all(|t| t == "a" || t == "b"))
            };
            v.as_object().is_some_and(|o| {
                o.get("name").is_some_and(Value::is_string)
                    && o.get("age").and_then(Value::as_f64).is_some_and(|n| n.fract() == 0.0)
                    && o.get("tags").is_none_or(tags)
                    && o.keys().all(|k| ["name", "age", "tags"].contains(&k.as_str()))
            })
        },
    ),
    (r#"{"type": "array", "items": {"type": "array", "items": {"type": "boolean"}, "minItems": 1}}"#, |v| {
        let inner =
            |v: &Value| v.as_array().is_some_and(|a| !a.is_empty() && a.iter().all(Value::is_boolean));
        v.as_array().is_some_and(|a| a.iter().all(inner))
    }),
    (
        r##"{"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "required": ["k"],
            "properties": {"k": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]}},
            "additionalProperties": false}}}"##,
        |v| {
            fn tree(v: &Value) -> bool {
                v.as_object()
                    .is_some_and(|o| o.len() == 1 && o.get("k").is_some_and(|k| k.is_null() || tree(k)))
            }
            tree(v)
        },
    ),
    // Settings that would lead out of JSON are not taken from a schema.
    (
        r#"{"type": "array", "items": {"const": 1}, "minItems": 2,
            "x-guidance": {"item_separator": ";", "whitespace_pattern": "x+"}}"#,
        |v| v.as_array().is_some_and(|a| a.len() >= 2 && a.iter().all(|x| x == 1)),
    ),
];

const EXPRESSIONS: [&str; 9] = [
    "[a-c]{2,5}",
    r"^\d{3}-\d{4}$",
    "(yes|no|yes, but no)",
    "a*",
    r#""([^"\\]|\\["\\n])*""#,
    "(?i:ja|nein)/\\$",
    "żó?ł(ć|🦀)+",
    r"[^a]\p{Greek}?",
    r"(0|[1-9]\d*)(\.\d+)?%",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn answers_under_a_schema_are_what_it_describes(choices in prop::collection::vec(any::<u16>(), 0..40)) {
        for (schema, judge) in SCHEMAS {
            let conforms = |text: &str| serde_json::from_str(text).is_ok_and(|value| judge(&value));
            walk(factory().json_schema(schema).unwrap(), &choices, &conforms)?;
        }
        // Not as a value: JSON's numbers go beyond those of float64.
        let conforms = |text: &str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        walk(factory().json_schema("true").unwrap(), &choices, &conforms)?;
    }

    #[test]
    fn answers_under_an_expression_match_it(choices in prop::collection::vec(any::<u16>(), 0..24)) {
        for expression in EXPRESSIONS {
            let judge = regex::Regex::new(&format!("^(?:{expression})$")).unwrap();
            walk(factory().regex(expression).unwrap(), &choices, &|text| judge.is_match(text))?;
        }
    }
}

/// Feeds `text` byte by byte; how many of them were taken, and may it end there?
fn feed(state: &mut GrammarState, text: &str) -> (usize, bool) {
    let taken = text.bytes().take_while(|byte| state.accept(TokenId::from(*byte)).is_ok()).count();
    (taken, state.allowed().unwrap().allows(ENDS[0]))
}

#[test]
fn conforming_texts_are_taken_as_people_write_them() {
    let check = |mut state: GrammarState, text: &str, taken: usize| {
        assert_eq!(feed(&mut state, text), (taken, taken == text.len()), "{text:?}");
    };
    let whole = |state: GrammarState, text: &str| check(state, text, text.len());
    let person = SCHEMAS[4].0;
    for text in [
        "{\n    \"name\": \"\\n \\\"x\\\" 🦀\",\n    \"age\": -3\n}",
        r#"{"name":"","age":0,"tags":["b","a"]}"#,
    ] {
        whole(factory().json_schema(person).unwrap(), text);
    }
    check(factory().json_schema(person).unwrap(), r#"{"age""#, 2);
    whole(factory().json_schema("{}").unwrap(), r#"{"any": [1.5e3, {"t": "ł"}, null, false]}"#);
    // Eight levels of two blanks and a line break fit; endless white space does not.
    let blanks = " ".repeat(40);
    check(factory().json_schema("{}").unwrap(), &format!("[{blanks}"), 18);
    whole(factory().regex("yes, (but )?no").unwrap(), "yes, but no");
    check(factory().regex("yes|no").unwrap(), "nay", 1);
    for (expression, text) in [(r"a\$", "a$"), (r"^a\\$", "a\\"), ("^a|b$", "b"), (r"x/\*y", "x/*y")] {
        whole(factory().regex(expression).unwrap(), text);
    }
}

#[test]
fn where_nothing_may_follow_only_end_tokens_are_allowed() {
    for mut state in
        [factory().regex("[a-c]{2}").unwrap(), factory().json_schema(r#"{"const": 42}"#).unwrap()]
    {
        let first = set(&state.allowed().unwrap());
        assert!(first.is_disjoint(&ENDS.into()));
        let text = if first.contains(&52) { "42" } else { "ac" };
        assert_eq!(feed(&mut state, text), (2, true));
        assert!(set(&state.allowed().unwrap()).is_superset(&ENDS.into()));
        assert_eq!(state.accept(97), Err(GrammarError::NotAllowed(97)));
        assert_eq!(state.accept(ENDS[1]), Ok(()));
        assert_eq!(set(&state.allowed().unwrap()), ENDS.into());
    }
    let mut state = factory().regex("[a-c]{2}").unwrap();
    feed(&mut state, "ab");
    assert_eq!(set(&state.allowed().unwrap()), ENDS.into());
}

#[test]
fn what_cannot_be_enforced_is_refused_with_its_reason() {
    let check = |result: Result<GrammarState, GrammarError>, expected: &str| {
        let message = result.map(|_| ()).expect_err(expected).to_string();
        assert!(message.contains(expected), "{message:?} holds no {expected:?}");
        assert!(message.lines().count() == 1 && message.len() < 400, "{message:?}");
    };
    let schema = |text: &str| factory().json_schema(text);
    let regex = |text: &str| factory().regex(text);
    check(schema("{\"type\": "), "not JSON: EOF");
    check(schema("3"), "a JSON schema is a JSON object");
    check(schema("false"), "a JSON schema is a JSON object");
    check(schema(&format!("{{\"title\": \"{}\"}}", "x".repeat(CONSTRAINT_BYTES_MAX))), "at most 65536");
    check(schema(r#"{"type": "array", "uniqueItems": true}"#), "uniqueItems");
    check(schema(r#"{"type": "strong"}"#), "strong");
    check(schema(r#"{"type": "integer", "minimum": 5, "maximum": 4}"#), "cannot be enforced");
    check(schema(r#"{"allOf": [{"type": "integer"}, {"type": "null"}]}"#), "cannot be enforced");
    check(schema(r#"{"$ref": "https://example.com/schema"}"#), "cannot be enforced");
    check(schema(&"[".repeat(40_000)), "not JSON");
    check(regex("(a"), "cannot be read: unclosed group");
    check(regex("a\\"), "cannot be read");
    check(regex("a(?=b)"), "look-around");
    check(regex(r"\bword"), "cannot be enforced");
    check(regex(&"a".repeat(CONSTRAINT_BYTES_MAX + 1)), "at most 65536");
}

#[test]
fn a_vocabulary_that_does_not_serve_is_refused() {
    let check = |words: Vec<Vec<u8>>, ends: &[TokenId], expected: &str| {
        let message = GrammarFactory::new(words, ends).map(|_| ()).expect_err(expected).to_string();
        assert!(message.contains(expected), "{message}");
    };
    check(words(), &[], "names no token that ends");
    check(words(), &[9_999], "outside");
    check((0..20_000_u32).map(|i| [i.to_le_bytes(); 64].concat()).collect(), &[0], "too large");
    // A text that its tokens cannot spell.
    let few = GrammarFactory::new(vec![b"a".to_vec(), vec![], vec![b'b'; 300]], &[1]).unwrap();
    assert!(matches!(few.regex("b+"), Err(GrammarError::Unsupported { .. })));
    let mut state = few.regex("aa?b?").unwrap();
    assert_eq!(state.accept(0), Ok(()));
    assert_eq!(state.allowed().unwrap().words, [0b011]);
}

#[test]
fn states_can_move_between_threads() {
    fn check<T: Send>() {}
    check::<GrammarState>();
    fn shared<T: Send + Sync>() {}
    shared::<GrammarFactory>();
}
