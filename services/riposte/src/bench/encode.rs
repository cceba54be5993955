//! How fast are texts embedded here? `riposte bench encode`: many in one call against one at a time.

use super::Found;
use super::figures::Rounds;
use crate::cli::EncodeArgs;
use crate::compose;
use crate::config::Config;
use crate::failure::Failure;
use crate::handbook;
use crate::ui::progress::{Progress, Unit};
use exec::Encoder;
use kernels::{Isa, peak};
use serde_json::json;
use std::time::Instant;

/// Texts of a call, and tokens of a text with its two markers.
const TEXTS: usize = 100;
const TOKENS: usize = 200;

/// The encoder reads no more of a text.
const TEXT_TOKENS_MAX: usize = 256;

/// Measures `--repeats` times, both ways in turn.
///
/// # Errors
/// When the model cannot be had, or a file cannot be read or written.
pub fn run(args: &EncodeArgs, config: &Config) -> Result<Found, Failure> {
    let threads = compose::threads(config.embedder.threads);
    let encoder = compose::encoder(config)?;
    let texts = match &args.texts {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
            text.lines().map(str::to_string).collect()
        }
        None => cut(&encoder, &handbook::text(), TEXTS),
    };
    let all: Vec<&str> = texts.iter().map(String::as_str).collect();
    let vectors = encoder.embed(&all).map_err(Failure::new)?;
    if let Some(path) = &args.vectors {
        let lines: Result<Vec<String>, _> = vectors.iter().map(serde_json::to_string).collect();
        let text = lines.map_err(Failure::new)?.join("\n") + "\n";
        std::fs::write(path, text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    }
    let peak_before = peak::int8(threads);
    let progress = Progress::start("embedding", Unit::Things("rounds"));
    let (mut together, mut alone) = (Vec::new(), Vec::new());
    for repeat in 0..args.repeats {
        let began = Instant::now();
        encoder.embed(&all).map_err(Failure::new)?;
        together.push(all.len() as f64 / began.elapsed().as_secs_f64());
        let began = Instant::now();
        for text in &all {
            encoder.embed(&[text]).map_err(Failure::new)?;
        }
        alone.push(all.len() as f64 / began.elapsed().as_secs_f64());
        progress.at(repeat as u64 + 1, args.repeats as u64);
    }
    progress.done("measured");
    let int8 = peak_before.max(peak::int8(threads));
    Ok(found(&encoder, &all, [together, alone], int8, threads))
}

fn found(encoder: &Encoder, texts: &[&str], rates: [Vec<f64>; 2], int8: f64, threads: usize) -> Found {
    let tokens: usize = texts.iter().map(|text| (encoder.count_tokens(text) + 2).min(TEXT_TOKENS_MAX)).sum();
    let mean = tokens as f64 / texts.len().max(1) as f64;
    let operations = 2.0 * encoder.layer_weights() as f64 * mean;
    let names = [format!("encode-{}", texts.len()), "encode-1".to_string()];
    let titles = [format!("{} in one call", texts.len()), "one at a time".to_string()];
    let mut table = vec![["", "texts/s", "of int8 peak"].map(str::to_string).to_vec()];
    let mut figures = Vec::new();
    for ((name, title), samples) in names.into_iter().zip(titles).zip(&rates) {
        let rounds = Rounds::of(samples.iter().copied());
        let share = rounds.median * operations / int8;
        table.push(vec![title, rounds.show(1), format!("{:.0} %", share * 100.0)]);
        figures.push(json!({
            "name": name,
            "unit": "texts/s",
            "median": rounds.median,
            "min": rounds.min,
            "max": rounds.max,
            "samples": samples,
            "int8_share": share,
            "peak_share": share,
        }));
    }
    let machine = super::machine(threads, Isa::detect());
    let medians = rates.map(|samples| Rounds::of(samples).median);
    Found {
        title: format!("{} texts of {mean:.0} tokens, median [least to most]", texts.len()),
        table,
        notes: vec![
            format!("in one call {:.2} times as fast", medians[0] / medians[1].max(1e-9)),
            format!("{} with {} threads, {}", machine.cpu, machine.threads, machine.isa),
        ],
        json: json!({ "machine": machine, "figures": figures, "peaks": { "int8_ops": int8 } }),
    }
}

/// The first `count` texts of exactly [`TOKENS`] tokens, word by word; from the beginning again when the words end.
fn cut(encoder: &Encoder, text: &str, count: usize) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (mut texts, mut at) = (Vec::new(), 0);
    // A word that would make a text too long is left out, so this ends: single letters are one token.
    while texts.len() < count && !words.is_empty() {
        let mut text = String::new();
        let mut tokens = 2;
        while tokens < TOKENS {
            let word = words[at % words.len()];
            at += 1;
            let more = encoder.count_tokens(word);
            if tokens + more <= TOKENS {
                text.push_str(word);
                text.push(' ');
                tokens += more;
            }
        }
        texts.push(text.trim_end().to_string());
    }
    texts
}
