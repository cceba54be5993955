//! How fast is the engine here, and how near to what the machine can do? `riposte bench engine`: steps of the runner
//! alone, without scheduler and server.

use super::Found;
use super::figures::Rounds;
use crate::cli::EngineArgs;
use crate::compose;
use crate::config::Config;
use crate::failure::Failure;
use crate::ui::progress::{Progress, Unit};
use exec::{Loaded, ModelSummary};
use kernels::peak;
use sched::{BlockId, Draw, RowPlan, Runner, Sampling, SeqId, Span, StepPlan, TokenId};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Context of the batched decodes.
const CONTEXT: usize = 512;

/// Positions that a decode may use before it begins again: its context grows as a real one's.
const ROOM: usize = 32;

/// A decode is timed over at least so many steps and so long.
const STEPS_MIN: usize = 8;
const TIME_MIN: Duration = Duration::from_millis(300);

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A prompt of so many tokens, in chunks as the service cuts them.
    Prefill(usize),
    /// Steps of `batch` sequences that hold `depth` tokens each.
    Decode { batch: usize, depth: usize },
}

/// A figure and its name.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// All figures, in the order in which they are shown.
pub(crate) fn specs() -> Vec<Spec> {
    let prefill = [128, 512, 2048].map(|n| Spec { name: format!("prefill-{n}"), kind: Kind::Prefill(n) });
    let decode = [1, 4, 8, 16, 32]
        .map(|batch| Spec { name: format!("decode-{batch}"), kind: Kind::Decode { batch, depth: CONTEXT } });
    let depth = [0, 512, 2048, 4096]
        .map(|depth| Spec { name: format!("depth-{depth}"), kind: Kind::Decode { batch: 1, depth } });
    prefill.into_iter().chain(decode).chain(depth).collect()
}

impl Kind {
    /// Tokens that its longest sequence holds.
    fn tokens(self) -> usize {
        match self {
            Kind::Prefill(tokens) => tokens,
            Kind::Decode { depth, .. } => depth + ROOM,
        }
    }

    fn sequences(self) -> usize {
        match self {
            Kind::Prefill(_) => 1,
            Kind::Decode { batch, .. } => batch,
        }
    }
}

/// The model, and where the sequences' blocks lie: each kind has its own, so that contexts are computed once.
struct Bench {
    loaded: Loaded,
    chunk: usize,
    block: usize,
    vocab: usize,
}

/// A figure with its blocks and samples.
struct Lane {
    spec: Spec,
    first_block: usize,
    rates: Vec<f64>,
}

impl Bench {
    fn row(&self, lane: &Lane, sequence: usize, start: usize, count: usize, draws: bool) -> RowPlan {
        let blocks_each = lane.spec.kind.tokens().div_ceil(self.block);
        let len = start + count;
        let first = lane.first_block + sequence * blocks_each;
        let blocks = (0..len.div_ceil(self.block)).map(|block| BlockId((first + block) as u32)).collect();
        // Tokens of no meaning: what is computed takes as long for any.
        let token = |position: usize| ((sequence * 7_919 + position * 37) % self.vocab) as TokenId;
        let draw = draws.then(|| Draw {
            sampling: Arc::new(Sampling::default()),
            index: 0,
            seen: Vec::new(),
            banned: Arc::new([]),
            allowed: None,
        });
        RowPlan {
            seq: SeqId(sequence as u64),
            tokens: (start..len).map(token).collect(),
            start,
            spans: vec![Span { blocks, len, shift: 0 }],
            draw,
        }
    }

    fn run(&mut self, rows: Vec<RowPlan>) -> Result<(), Failure> {
        self.loaded.runner.run(&StepPlan { copies: Vec::new(), rows }).map(drop).map_err(Failure::new)
    }

    /// A prompt in chunks; the last one draws.
    fn prefill(&mut self, lane: &Lane, sequence: usize, tokens: usize) -> Result<(), Failure> {
        for start in (0..tokens).step_by(self.chunk) {
            let count = self.chunk.min(tokens - start);
            let row = self.row(lane, sequence, start, count, start + count == tokens);
            self.run(vec![row])?;
        }
        Ok(())
    }

    /// Computes what a decode's sequences hold.
    fn prepare(&mut self, lane: &Lane) -> Result<(), Failure> {
        if let Kind::Decode { batch, depth } = lane.spec.kind {
            for sequence in 0..batch {
                self.prefill(lane, sequence, depth)?;
            }
        }
        Ok(())
    }

    /// Tokens per second, once.
    fn sample(&mut self, lane: &Lane) -> Result<f64, Failure> {
        let began = Instant::now();
        match lane.spec.kind {
            Kind::Prefill(tokens) => {
                self.prefill(lane, 0, tokens)?;
                Ok(tokens as f64 / began.elapsed().as_secs_f64())
            }
            Kind::Decode { batch, depth } => {
                let mut steps = 0;
                while steps < STEPS_MIN || began.elapsed() < TIME_MIN {
                    let start = depth + steps % ROOM;
                    let rows = (0..batch).map(|sequence| self.row(lane, sequence, start, 1, true)).collect();
                    self.run(rows)?;
                    steps += 1;
                }
                Ok((steps * batch) as f64 / began.elapsed().as_secs_f64())
            }
        }
    }
}

/// What the machine can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peaks {
    /// Operations per second on bytes.
    pub(crate) int8: f64,
    /// Bytes per second read from a working set of the size of the weights.
    pub(crate) memory: f64,
}

impl Peaks {
    fn measure(threads: usize, working_set: usize) -> Self {
        Self { int8: peak::int8(threads), memory: peak::memory(threads, working_set) }
    }

    fn better(self, other: Self) -> Self {
        Self { int8: self.int8.max(other.int8), memory: self.memory.max(other.memory) }
    }
}

/// Shares of the machine's peaks that `rate` tokens per second make: operations of the linear layers, and bytes of
/// weights and of the context's keys and values.
pub(crate) fn shares(kind: Kind, rate: f64, summary: &ModelSummary, peaks: Peaks) -> (f64, f64) {
    let kv = (summary.kv_bytes / (summary.limits.blocks_total * summary.limits.block_tokens).max(1)) as f64;
    let weights = summary.matrix_bytes as f64;
    match kind {
        Kind::Prefill(_) => {
            let operations = 2.0 * summary.layer_weights as f64 * rate;
            (operations / peaks.int8, 0.0)
        }
        Kind::Decode { batch, depth } => {
            let operations = 2.0 * (summary.layer_weights + summary.output_weights) as f64 * rate;
            let bytes = weights + (batch * depth) as f64 * kv;
            (operations / peaks.int8, bytes * rate / batch as f64 / peaks.memory)
        }
    }
}

/// Measures the figures that were asked for, each once per repeat and in turn, so that drift of the machine hits all alike.
///
/// # Errors
/// When the model cannot be had, or a name is not one of the figures'.
pub fn run(args: &EngineArgs, config: &Config) -> Result<Found, Failure> {
    let wanted = wanted(&args.only)?;
    let loaded = load(config, &wanted)?;
    let summary = loaded.summary.clone();
    let mut notes = Vec::new();
    let (fit, long): (Vec<Spec>, Vec<Spec>) =
        wanted.into_iter().partition(|spec| spec.kind.tokens() <= summary.limits.context_tokens_max);
    for spec in long {
        notes.push(format!(
            "{} is left out: the model's context is {}",
            spec.name, summary.limits.context_tokens_max
        ));
    }
    let limits = summary.limits;
    let chunk = config.limits.step_prefill_tokens_max;
    let mut bench = Bench { loaded, chunk, block: limits.block_tokens, vocab: limits.vocab_tokens };
    let mut lanes = lanes(fit, bench.block);
    let before = Peaks::measure(summary.threads, summary.matrix_bytes);
    let progress = Progress::start("measuring", Unit::Things("samples"));
    let total = (lanes.len() * (args.repeats + 1)) as u64;
    for (at, lane) in lanes.iter().enumerate() {
        bench.prepare(lane)?;
        // Once unmeasured: first touches of memory belong to no figure.
        bench.sample(lane)?;
        progress.at(at as u64 + 1, total);
    }
    for repeat in 0..args.repeats {
        for at in 0..lanes.len() {
            let rate = bench.sample(&lanes[at])?;
            lanes[at].rates.push(rate);
            progress.at(((repeat + 1) * lanes.len() + at + 1) as u64, total);
        }
    }
    let peaks = before.better(Peaks::measure(summary.threads, summary.matrix_bytes));
    progress.done("measured");
    Ok(found(&lanes, &summary, peaks, args.repeats, notes))
}

fn wanted(only: &[String]) -> Result<Vec<Spec>, Failure> {
    let all = specs();
    let names: Vec<&str> = all.iter().map(|spec| spec.name.as_str()).collect();
    if let Some(name) = only.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(Failure::usage(format!("no figure is called {name:?}; there are {}", names.join(", "))));
    }
    Ok(all.into_iter().filter(|spec| only.is_empty() || only.contains(&spec.name)).collect())
}

/// Loads the model with room for all sequences of all figures at once.
fn load(config: &Config, wanted: &[Spec]) -> Result<Loaded, Failure> {
    // A first look tells what a block takes.
    let probe = compose::load_model(config, 64 << 20)?;
    let summary = probe.summary;
    let block_bytes = summary.kv_bytes / summary.limits.blocks_total;
    let blocks: usize = wanted
        .iter()
        .map(|spec| spec.kind.sequences() * spec.kind.tokens().div_ceil(summary.limits.block_tokens))
        .sum();
    drop(probe.runner);
    compose::load_model(config, (blocks + 1) * block_bytes)
}

fn lanes(specs: Vec<Spec>, block: usize) -> Vec<Lane> {
    let mut first_block = 0;
    let lane = |spec: Spec| {
        let blocks = spec.kind.sequences() * spec.kind.tokens().div_ceil(block);
        first_block += blocks;
        Lane { spec, first_block: first_block - blocks, rates: Vec::new() }
    };
    specs.into_iter().map(lane).collect()
}

fn found(lanes: &[Lane], summary: &ModelSummary, peaks: Peaks, repeats: usize, notes: Vec<String>) -> Found {
    let mut table = vec![["", "tokens/s", "of int8 peak", "of memory peak"].map(str::to_string).to_vec()];
    let mut figures = Vec::new();
    for lane in lanes {
        let rounds = Rounds::of(lane.rates.iter().copied());
        let (int8, memory) = shares(lane.spec.kind, rounds.median, summary, peaks);
        let percent =
            |share: f64| if share > 0.0 { format!("{:.0} %", share * 100.0) } else { String::new() };
        table.push(vec![lane.spec.name.clone(), rounds.show(1), percent(int8), percent(memory)]);
        figures.push(json!({
            "name": lane.spec.name,
            "unit": "tokens/s",
            "median": rounds.median,
            "min": rounds.min,
            "max": rounds.max,
            "samples": lane.rates,
            "int8_share": int8,
            "memory_share": memory,
            // Of what bounds it.
            "peak_share": int8.max(memory),
        }));
    }
    let machine = super::machine(summary.threads, summary.isa);
    let mut all = vec![
        format!("{} with {} threads, {}", machine.cpu, machine.threads, machine.isa),
        format!(
            "peaks, measured before and after: {:.0} Gop/s on bytes; {:.1} GB/s read from {:.0} MB, as the weights are",
            peaks.int8 / 1e9,
            peaks.memory / 1e9,
            summary.matrix_bytes as f64 / 1e6
        ),
    ];
    all.extend(notes);
    Found {
        title: format!(
            "{}: median [least to most] of {repeats} samples, weights {:.0} MB, loaded and packed in {:.2} s",
            summary.config.name,
            summary.weights_bytes as f64 / 1e6,
            summary.took.as_secs_f64()
        ),
        table,
        notes: all,
        json: json!({
            "machine": machine,
            "model": summary.config.name,
            "kv_bits": summary.kv_bits,
            "weights_bytes": summary.weights_bytes,
            "loaded_s": summary.took.as_secs_f64(),
            "figures": figures,
            "peaks": { "int8_ops": peaks.int8, "memory_bytes": peaks.memory },
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_names_that_others_ask_for() {
        let names: Vec<String> = specs().into_iter().map(|spec| spec.name).collect();
        assert_eq!(names[..3], ["prefill-128", "prefill-512", "prefill-2048"]);
        assert_eq!(names[3..8], ["decode-1", "decode-4", "decode-8", "decode-16", "decode-32"]);
        assert_eq!(names[8..], ["depth-0", "depth-512", "depth-2048", "depth-4096"]);
        assert!(wanted(&["decode-2".to_string()]).is_err());
        assert_eq!(wanted(&["depth-0".to_string()]).map(|specs| specs.len()).ok(), Some(1));
    }

    #[test]
    fn lanes_do_not_share_blocks() {
        let lanes = lanes(specs(), 16);
        for pair in lanes.windows(2) {
            let blocks = pair[0].spec.kind.sequences() * pair[0].spec.kind.tokens().div_ceil(16);
            assert_eq!(pair[0].first_block + blocks, pair[1].first_block);
        }
    }
}
