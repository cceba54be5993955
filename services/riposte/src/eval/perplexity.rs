//! What do the packed weights, the quantised activations and the KV cache lose? `riposte eval perplexity`: a text's
//! perplexity as the service computes it, beside the same weights in f32.

use crate::cli::PerplexityArgs;
use crate::compose;
use crate::config::Config;
use crate::failure::Failure;
use crate::ui::progress::{Progress, Unit};
use crate::ui::{FAINT, STRONG, paint};
use comfy_table::{Table, presets};
use exec::{LoadOptions, Loaded};
use kernels::{Isa, KvFormat, log_sum_exp};
use sched::{BlockId, RowPlan, Runner, SeqId, Span, StepPlan, TokenId};
use serde_json::json;
use std::io::Write as _;
use std::path::Path;

/// Tokens whose logits are held at once.
const CHUNK: usize = 128;

/// A way to compute, and what it gave.
struct Arm {
    name: &'static str,
    /// Logarithmic probability of each scored token.
    logprobs: Vec<f64>,
}

impl Arm {
    fn perplexity(&self) -> f64 {
        (-self.logprobs.iter().sum::<f64>() / self.logprobs.len().max(1) as f64).exp()
    }

    /// Mean of |difference| of logarithmic probabilities.
    fn distance(&self, other: &Arm) -> f64 {
        let pairs = self.logprobs.iter().zip(&other.logprobs);
        pairs.map(|(a, b)| (a - b).abs()).sum::<f64>() / self.logprobs.len().max(1) as f64
    }
}

/// Scores the text with f32 weights and no quantisation of activations, then as the service computes, with KV in 16 and in
/// 8 bits. (Keys and values of the first are in 16 bits.)
///
/// # Errors
/// When the text cannot be read, or the model cannot be had.
pub fn run(args: &PerplexityArgs, config: &Config) -> Result<(), Failure> {
    let text = std::fs::read_to_string(&args.text)
        .map_err(|error| Failure::new(format!("{}: {error}", args.text.display())))?;
    let arms = [
        ("f32 weights and activations", true, KvFormat::Bits16),
        ("as served", false, KvFormat::Bits16),
        ("as served, KV in 8 bits", false, KvFormat::Bits8),
    ];
    let mut found = Vec::new();
    let mut tokens = 0;
    for (name, widened, kv_format) in arms {
        let file = crate::fetch::language_model(config)?;
        let options = LoadOptions { widened, kv_format, ..compose::load_options(config, 256 << 20) };
        let mut loaded = exec::load(&file.weights, &options).map_err(Failure::new)?;
        let mut ids = loaded.tokenizer.encode(&text);
        ids.truncate(args.limit.unwrap_or(usize::MAX));
        tokens = ids.len();
        found.push(Arm { name, logprobs: score(&mut loaded, &ids, args.window, name)? });
    }
    let json = json!({
        "text": args.text.display().to_string(),
        "bytes": text.len(),
        "tokens": tokens,
        "scored": found[0].logprobs.len(),
        "window": args.window,
        "arms": found.iter().map(|arm| json!({
            "name": arm.name,
            "perplexity": arm.perplexity(),
            "difference": arm.perplexity() / found[0].perplexity() - 1.0,
            "mean_logprob_distance": arm.distance(&found[0]),
        })).collect::<Vec<_>>(),
    });
    if args.json.as_deref() != Some(Path::new("-")) {
        show(&found, text.len(), tokens)?;
    }
    crate::bench::write_json(args.json.as_deref(), &json)
}

fn show(found: &[Arm], bytes: usize, tokens: usize) -> Result<(), Failure> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["", "perplexity", "difference", "mean |change| of log-probability"]);
    for arm in found {
        let difference = arm.perplexity() / found[0].perplexity() - 1.0;
        table.add_row([
            arm.name.to_string(),
            format!("{:.4}", arm.perplexity()),
            format!("{:+.3} %", difference * 100.0),
            format!("{:.4}", arm.distance(&found[0])),
        ]);
    }
    let title = format!("{tokens} tokens ({bytes} bytes), {} of them scored", found[0].logprobs.len());
    let note = "each window begins with an empty context; its second half is scored";
    Ok(write!(anstream::stdout(), "\n{}\n{table}\n  {}\n", paint(STRONG, title), paint(FAINT, note))?)
}

/// Logarithmic probabilities of the tokens in the second half of each window.
fn score(loaded: &mut Loaded, ids: &[TokenId], window: usize, name: &str) -> Result<Vec<f64>, Failure> {
    let progress = Progress::start(name, Unit::Things("tokens"));
    let mut logprobs = Vec::new();
    for (at, tokens) in ids.chunks(window).enumerate() {
        for start in (0..tokens.len()).step_by(CHUNK) {
            let part = &tokens[start..tokens.len().min(start + CHUNK)];
            let plan = plan(loaded, start, part);
            let vocab = loaded.runner.limits().vocab_tokens;
            let logits = loaded.runner.logits_of_all(&plan).map_err(Failure::new)?;
            for (i, logits) in logits.chunks_exact(vocab).enumerate() {
                let next = start + i + 1;
                if next >= window / 2 && next < tokens.len() {
                    let (sum, _) = log_sum_exp(Isa::detect(), logits);
                    let Some(logit) = logits.get(tokens[next] as usize) else {
                        return Err(Failure::new("the tokenizer has tokens that the model does not know"));
                    };
                    logprobs.push(f64::from(*logit) - sum);
                }
            }
        }
        progress.at(((at + 1) * window).min(ids.len()) as u64, ids.len() as u64);
    }
    progress.done("scored");
    Ok(logprobs)
}

fn plan(loaded: &Loaded, start: usize, tokens: &[TokenId]) -> StepPlan {
    let len = start + tokens.len();
    let blocks = (0..len.div_ceil(loaded.runner.limits().block_tokens)).map(|block| BlockId(block as u32));
    let spans = vec![Span { blocks: blocks.collect(), len, shift: 0 }];
    let row = RowPlan { seq: SeqId(0), tokens: tokens.to_vec(), start, spans, draw: None };
    StepPlan { copies: Vec::new(), rows: vec![row] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perplexity_is_the_inverse_of_the_mean_probability() {
        let arm = |logprobs: &[f64]| Arm { name: "", logprobs: logprobs.to_vec() };
        let even = arm(&[0.25f64.ln(), 0.25f64.ln()]);
        assert!((even.perplexity() - 4.0).abs() < 1e-12);
        // The geometric mean of 1/2 and 1/8 is 1/4.
        let uneven = arm(&[0.5f64.ln(), 0.125f64.ln()]);
        assert!((uneven.perplexity() - 4.0).abs() < 1e-12);
        assert!((even.distance(&uneven) - 2f64.ln()).abs() < 1e-12);
    }
}
