//! What did real callers ask? Public traces of arrivals and lengths, made into requests.

use super::random::Random;
use super::traffic::SimRequest;
use crate::{RunnerLimits, SeqRequest, TokenId};
use budgets::Moment;
use std::time::Duration;
use thiserror::Error;

/// Prompt tokens that one hash id of a Mooncake trace stands for.
const HASH_TOKENS: usize = 512;

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// `TIMESTAMP,ContextTokens,GeneratedTokens` with a header line (Azure, Splitwise paper).
    Azure,
    /// One JSON object a line with `timestamp` (ms), `input_length`, `output_length` and `hash_ids` (Mooncake).
    Mooncake,
}

/// A line that is not of its trace's format.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line} has no {missing}")]
pub struct TraceError {
    /// From 1.
    pub line: usize,
    /// What cannot be read.
    pub missing: &'static str,
}

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRow {
    /// After the first one of the trace.
    pub at: Duration,
    /// Tokens of its prompt.
    pub prompt_tokens: usize,
    /// Tokens of its answer.
    pub output_tokens: usize,
    /// Names of the prompt's blocks of 512 tokens; prompts that begin with the same names begin with the same tokens.
    /// Empty when the trace does not tell.
    pub hash_ids: Vec<u64>,
}

/// Reads a whole trace.
///
/// # Errors
/// Names the first line that is not of the format.
pub fn read_trace(text: &str, format: TraceFormat) -> Result<Vec<TraceRow>, TraceError> {
    let skipped = usize::from(format == TraceFormat::Azure);
    let lines = text.lines().enumerate().skip(skipped).filter(|(_, line)| !line.trim().is_empty());
    let mut rows = Vec::new();
    for (at, line) in lines {
        let row = match format {
            TraceFormat::Azure => azure(line),
            TraceFormat::Mooncake => mooncake(line),
        };
        rows.push(row.map_err(|missing| TraceError { line: at + 1, missing })?);
    }
    let first = rows.first().map_or(Duration::ZERO, |row| row.at);
    let mut before = Duration::ZERO;
    for row in &mut rows {
        // A time of day that goes back belongs to the next day; less than half a day back is disorder.
        let half_a_day = Duration::from_secs(12 * 3_600);
        if row.at + half_a_day < first {
            row.at += 2 * half_a_day;
        }
        row.at = row.at.saturating_sub(first).max(before);
        before = row.at;
    }
    Ok(rows)
}

fn azure(line: &str) -> Result<TraceRow, &'static str> {
    let mut fields = line.split(',').map(str::trim);
    let time = fields.next().and_then(|field| field.split_once(' ')).ok_or("time")?.1;
    let mut parts = time.split(':').map(str::parse::<f64>);
    let mut part =
        || parts.next().and_then(Result::ok).filter(|part| (0.0..86_400.0).contains(part)).ok_or("time");
    let seconds = part()? * 3_600.0 + part()? * 60.0 + part()?;
    let mut tokens = |missing| fields.next().and_then(|field| field.parse().ok()).ok_or(missing);
    Ok(TraceRow {
        at: Duration::from_secs_f64(seconds),
        prompt_tokens: tokens("ContextTokens")?,
        output_tokens: tokens("GeneratedTokens")?,
        hash_ids: Vec::new(),
    })
}

fn mooncake(line: &str) -> Result<TraceRow, &'static str> {
    let number = |name| field(line, name).and_then(|text| text.parse::<u64>().ok()).ok_or(name);
    let (at, prompt_tokens, output_tokens) =
        (number("timestamp")?, number("input_length")?, number("output_length")?);
    let ids = field(line, "hash_ids").and_then(|text| text.strip_prefix('[')?.strip_suffix(']'));
    let ids = ids.ok_or("hash_ids")?.split(',').map(str::trim).filter(|id| !id.is_empty());
    Ok(TraceRow {
        at: Duration::from_millis(at),
        prompt_tokens: prompt_tokens as usize,
        output_tokens: output_tokens as usize,
        hash_ids: ids.map(str::parse).collect::<Result<_, _>>().map_err(|_| "hash_ids")?,
    })
}

/// The text of a number or a list of numbers in a flat JSON object.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = line.split_once(&format!("\"{name}\""))?;
    let value = after.trim_start().strip_prefix(':')?.trim_start();
    let end = if value.starts_with('[') { value.find(']')? + 1 } else { value.find([',', '}'])? };
    Some(value[..end].trim())
}

/// When the requests of a trace come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// As recorded; with a rate, stretched to so many per second on average.
    Recorded(Option<f64>),
    /// Independent of each other, so many per second.
    Poisson(f64),
}

/// How a trace is replayed.
#[derive(Clone, Debug)]
pub struct Replay {
    /// All lengths are divided by it, for models with shorter contexts.
    pub scale: usize,
    /// When requests come.
    pub arrivals: Arrivals,
    /// For tokens and Poisson arrivals.
    pub seed: u64,
}

impl Replay {
    /// The requests, in order. Prompts without hash ids share nothing.
    pub fn requests<'a>(
        &self,
        rows: &'a [TraceRow],
        runner: &RunnerLimits,
    ) -> impl Iterator<Item = SimRequest> + use<'a> {
        let (scale, seed, vocab) = (self.scale.max(1), self.seed, runner.vocab_tokens.max(1) as u64);
        let span = rows.last().map_or(0.0, |row| row.at.as_secs_f64());
        let recorded = rows.len() as f64 / span.max(f64::MIN_POSITIVE);
        let arrivals = self.arrivals;
        let (mut random, mut clock) = (Random::new(seed), Moment::default());
        rows.iter().enumerate().map(move |(nth, row)| {
            let arrived = match arrivals {
                Arrivals::Recorded(None) => Moment::default().plus(row.at),
                Arrivals::Recorded(Some(rate)) => {
                    Moment::default().plus(stretched(row.at, recorded / rate.max(f64::MIN_POSITIVE)))
                }
                Arrivals::Poisson(rate) => {
                    clock = clock.plus(random.gap(stretched(Duration::from_secs(1), 1.0 / rate.max(1e-9))));
                    clock
                }
            };
            let prompt_tokens = row.prompt_tokens.div_ceil(scale).max(1);
            let prompt = prompt(row, nth as u64 ^ seed.rotate_left(20), prompt_tokens, scale, vocab);
            let request = SeqRequest::new(prompt, row.output_tokens.div_ceil(scale).max(1), arrived);
            SimRequest { tag: nth as u64, request, cancel: None }
        })
    }
}

fn stretched(time: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(time.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

fn prompt(row: &TraceRow, own: u64, tokens: usize, scale: usize, vocab: u64) -> Vec<TokenId> {
    let of = |name: u64, count: usize| {
        let mut random = Random::new(name);
        (0..count).map(move |_| (random.bits() % vocab) as TokenId)
    };
    let block = (HASH_TOKENS / scale).max(1);
    // Ids and own names are kept apart, so that no request is given another's text by chance.
    let mut prompt: Vec<TokenId> =
        row.hash_ids.iter().flat_map(|id| of(id << 1, block)).take(tokens).collect();
    prompt.extend(of(own << 1 | 1, tokens - prompt.len()));
    prompt
}

#[cfg(test)]
mod tests {
    use super::*;

    const AZURE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
        2023-11-16 23:59:59.5000000,374,44\n2023-11-17 00:00:01.0000000,396,109\n";
    const MOONCAKE: &str = r#"{"timestamp": 100, "input_length": 1030, "output_length": 52, "hash_ids": [46, 47, 2]}
{"timestamp": 90, "input_length": 1030, "output_length": 26, "hash_ids": [46,47, 3]}
"#;

    fn row(at_ms: u64, prompt_tokens: usize, output_tokens: usize, hash_ids: &[u64]) -> TraceRow {
        TraceRow {
            at: Duration::from_millis(at_ms),
            prompt_tokens,
            output_tokens,
            hash_ids: hash_ids.to_vec(),
        }
    }

    #[test]
    fn both_formats_are_read_and_a_bad_line_is_named() {
        let azure = read_trace(AZURE, TraceFormat::Azure).unwrap();
        assert_eq!(azure, [row(0, 374, 44, &[]), row(1_500, 396, 109, &[])]);
        let mooncake = read_trace(MOONCAKE, TraceFormat::Mooncake).unwrap();
        assert_eq!(mooncake, [row(0, 1_030, 52, &[46, 47, 2]), row(0, 1_030, 26, &[46, 47, 3])]);
        for (text, format, line, missing) in [
            ("h\n2023-11-16 1:2:3,5", TraceFormat::Azure, 2, "GeneratedTokens"),
            ("h\n\nnoon,5,5", TraceFormat::Azure, 3, "time"),
            ("{\"timestamp\": 1}", TraceFormat::Mooncake, 1, "input_length"),
            (
                "{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [x]}",
                TraceFormat::Mooncake,
                1,
                "hash_ids",
            ),
        ] {
            assert_eq!(read_trace(text, format), Err(TraceError { line, missing }));
        }
    }

    #[test]
    fn equal_hash_ids_are_equal_tokens_and_nothing_else_is() {
        let runner =
            RunnerLimits { block_tokens: 16, blocks_total: 1, context_tokens_max: 1, vocab_tokens: 50_000 };
        let rows = read_trace(MOONCAKE, TraceFormat::Mooncake).unwrap();
        let replay = Replay { scale: 16, arrivals: Arrivals::Poisson(10.0), seed: 1 };
        let prompts: Vec<_> = replay.requests(&rows, &runner).map(|asked| asked.request.prompt).collect();
        assert_eq!((prompts[0].len(), prompts[1].len()), (65, 65));
        assert_eq!(prompts[0][..64], prompts[1][..64]);
        assert_ne!(prompts[0][64], prompts[1][64]);
        let azure = read_trace(AZURE, TraceFormat::Azure).unwrap();
        let mut both = replay.requests(&azure, &runner).map(|asked| asked.request.prompt);
        assert_ne!(both.next().unwrap()[..20], both.next().unwrap()[..20]);
    }
}
