//! What do constraints cost? `cargo run -p exec --example grammar_cost -- MODEL.gguf`
//!
//! Prints time and memory to prepare the vocabulary, and for several constraints, hostile ones among them, the time to
//! compile them and to find the allowed tokens along a walk of first or random allowed tokens.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for the terminal")]

use exec::{GrammarError, GrammarFactory, GrammarState, Tokenizer};
use std::time::{Duration, Instant};

/// Resident memory in MB, where the system tells it.
fn resident_mb() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok()));
    pages.map_or(f64::NAN, |pages| pages * 4096.0 / 1e6)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Times of `allowed` along a walk of at most `steps` tokens, sorted.
fn walk(mut state: GrammarState, tokenizer: &Tokenizer, steps: u32) -> Result<Vec<Duration>, GrammarError> {
    let vocab = tokenizer.vocab_tokens() as u32;
    let mut times = Vec::new();
    for step in 0..steps {
        let began = Instant::now();
        let mask = state.allowed()?;
        times.push(began.elapsed());
        let allowed: Vec<u32> = (0..vocab).filter(|t| mask.allows(*t) && !tokenizer.is_end(*t)).collect();
        if allowed.is_empty() {
            break;
        }
        // Scattered over the allowed ones, and the same at every run.
        let at = (step.wrapping_mul(2_654_435_769) >> 7) as usize % allowed.len();
        state.accept(allowed[at])?;
    }
    times.sort_unstable();
    Ok(times)
}

fn report(name: &str, tokenizer: &Tokenizer, compile: impl FnOnce() -> Result<GrammarState, GrammarError>) {
    let (began, before) = (Instant::now(), resident_mb());
    let state = compile();
    let took = ms(began.elapsed());
    match state.and_then(|state| walk(state, tokenizer, 300)) {
        Err(error) => println!("{name:28} {took:9.2} ms, then: {error:.150}"),
        Ok(times) => println!(
            "{name:28} {took:9.2} ms to compile; masks: median {:.3} ms, p99 {:.3} ms, longest {:.3} ms; {:+.1} MB",
            ms(times[times.len() / 2]),
            ms(times[times.len() * 99 / 100]),
            ms(times[times.len() - 1]),
            resident_mb() - before,
        ),
    }
}

fn main() {
    let path = std::env::args().nth(1).expect("usage: grammar_cost MODEL.gguf");
    let tokenizer = Tokenizer::open(path.as_ref()).unwrap();
    let (began, before) = (Instant::now(), resident_mb());
    let factory: &GrammarFactory = tokenizer.grammars().unwrap();
    println!(
        "{} tokens: {:.0} ms, {:.1} MB",
        tokenizer.vocab_tokens(),
        ms(began.elapsed()),
        resident_mb() - before
    );
    let schema = |name: &str, text: &str| report(name, &tokenizer, || factory.json_schema(text));
    let regex = |name: &str, text: &str| report(name, &tokenizer, || factory.regex(text));
    let person = r#"{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}}}, "required": ["name", "age", "tags"],
        "additionalProperties": false}"#;
    schema("any JSON", "{}");
    schema("object", person);
    schema("object again", person);
    schema("string of 1000 to 2000", r#"{"type": "string", "minLength": 1000, "maxLength": 2000}"#);
    schema("array of a million", &format!(r#"{{"type": "array", "items": {person}, "minItems": 1000000}}"#));
    let properties: Vec<String> = (0..1_500).map(|i| format!(r#""p{i}": {{"type": "string"}}"#)).collect();
    schema("1,500 optional properties", &format!(r#"{{"properties": {{{}}}}}"#, properties.join(",")));
    let values: Vec<String> = (0..6_000).map(|i| format!(r#""v{}""#, i * 7_919 % 99_991)).collect();
    schema("enum of 6,000", &format!(r#"{{"enum": [{}]}}"#, values.join(",")));
    let nested = (0..120).fold("{}".to_string(), |inner, _| format!(r#"{{"items": {inner}}}"#));
    schema("nested 120 deep", &nested);
    regex("digits", r"\d{3}-\d{4}");
    regex("any text", "(?s:.*)");
    regex("nested repeats", "((a{1,1000}b){1,1000}c){1,1000}");
    regex("repeats of any", "(.{0,3000}x){0,3000}");
    regex("exponential states", "(?s:.*)a[ab]{200}");
    regex("ambiguous", "(a|a|aa)*(a|b|ab)*(.a|a.)*");
    let words: Vec<String> = (0..8_000).map(|i| format!("w{}", i * 7_919 % 99_991)).collect();
    regex("8,000 words repeated", &format!("({})*", words.join("|")));
}
