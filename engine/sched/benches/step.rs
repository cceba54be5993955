//! What does a decision cost? Time of one `schedule()` and `commit()` beside a full tree of prefixes: `cargo bench -p sched`.
#![allow(clippy::unwrap_used, reason = "a bench that cannot go on fails")]

use budgets::{Coefficients, CostModel, Limits, Moment};
use divan::{Bencher, black_box};
use sched::sim::Random;
use sched::{Drawn, Policy, RunnerLimits, Scheduler, SeqRequest, StepOutput, TokenId};
use std::cell::{Cell, RefCell};

const RUNNING: usize = 256;
const PREFIXES: u64 = 10_000;
/// Tokens of each cached prefix: two blocks and a part of a third.
const PREFIX_TOKENS: usize = 40;
/// Each sequence draws as many, so that on average one ends and one begins in each step.
const OUTPUT_TOKENS: usize = 256;

const RUNNER: RunnerLimits = RunnerLimits {
    block_tokens: 16,
    blocks_total: 300_000,
    context_tokens_max: 32_768,
    vocab_tokens: 50_000,
};

fn main() {
    divan::main();
}

fn text(name: u64, tokens: usize) -> impl Iterator<Item = TokenId> {
    let mut random = Random::new(name);
    (0..tokens).map(move |_| (random.bits() % 50_000) as TokenId)
}

struct Bench {
    scheduler: Scheduler,
    prompt_tokens: usize,
    asked: u64,
}

impl Bench {
    /// `RUNNING` sequences in decode whose prompts have `prompt_tokens`, beside `PREFIXES` cached ones; `waiting` more
    /// always wait.
    fn new(prompt_tokens: usize, waiting: usize) -> Self {
        let limits = Limits {
            running_sequences_max: RUNNING,
            queue_requests_max: 20_000,
            step_prefill_tokens_max: 1 << 20,
            ..Limits::default()
        };
        let scheduler = Scheduler::new(RUNNER, &limits, &Policy::default());
        let mut bench = Self { scheduler, prompt_tokens, asked: 0 };
        for prefix in 0..PREFIXES {
            let request = SeqRequest::new(text(prefix, PREFIX_TOKENS).collect(), 1, Moment::default());
            bench.scheduler.submit(request).unwrap();
            while bench.scheduler.running() + bench.scheduler.waiting() > 0 {
                bench.step();
            }
        }
        assert!(bench.scheduler.blocks().cached() as u64 >= PREFIXES * 3);
        *bench.scheduler.model_mut() = CostModel::from_coefficients(Coefficients {
            step: 0.01,
            prefill_token: 0.000_001,
            decode_row: 0.000_1,
            ..Coefficients::default()
        });
        for nth in 0..RUNNING + waiting {
            // Those that run first have drawn differently much.
            bench.ask((OUTPUT_TOKENS - nth % OUTPUT_TOKENS).max(1));
        }
        for _ in 0..OUTPUT_TOKENS {
            bench.turn();
        }
        assert_eq!(bench.scheduler.running() + bench.scheduler.waiting(), RUNNING + waiting);
        assert_eq!(bench.scheduler.counts().evicted_blocks, 0, "the prefixes are still there");
        bench
    }

    /// One more request, which begins as one of the cached prefixes.
    fn ask(&mut self, output_tokens: usize) {
        self.asked += 1;
        let prefix = text(self.asked * 7_919 % PREFIXES, PREFIX_TOKENS);
        let own = text(PREFIXES + self.asked, self.prompt_tokens - PREFIX_TOKENS);
        let request = SeqRequest::new(prefix.chain(own).collect(), output_tokens, Moment::default());
        self.scheduler.submit(request).unwrap();
    }

    /// What is measured: plans, makes up an output and takes it in. Returns how many sequences ended.
    fn step(&mut self) -> usize {
        let now = Moment::default();
        let plan = black_box(self.scheduler.schedule(now));
        let drawing = plan.rows.iter().filter(|row| row.draw.is_some());
        let drawn = drawing.map(|row| Drawn { seq: row.seq, token: 7, logprob: 0.0, top: Vec::new() });
        let committed = self.scheduler.commit(StepOutput { drawn: drawn.collect() }, now).unwrap();
        committed.tokens.iter().filter(|token| token.last).count()
    }

    fn turn(&mut self) {
        for _ in 0..self.step() {
            self.ask(OUTPUT_TOKENS);
        }
    }
}

/// Measures steps alone: who takes the place of those that ended asks between them.
fn measure(bencher: Bencher<'_, '_>, bench: Bench) {
    let (bench, ended) = (RefCell::new(bench), Cell::new(0));
    let ask = || (0..ended.take()).for_each(|_| bench.borrow_mut().ask(OUTPUT_TOKENS));
    bencher.with_inputs(ask).bench_local_values(|()| ended.set(bench.borrow_mut().step()));
}

/// 256 running sequences, 10,000 cached prefixes; about one sequence ends and one begins in each step.
#[divan::bench(args = [512, 2_048], sample_count = 1_000, sample_size = 1)]
fn running_256(bencher: Bencher<'_, '_>, prompt_tokens: usize) {
    measure(bencher, Bench::new(prompt_tokens, 0));
}

/// Decodes alone: nobody ends and nobody begins.
#[divan::bench(args = [512, 2_048], sample_count = 1_000, sample_size = 1)]
fn decodes_256(bencher: Bencher<'_, '_>, prompt_tokens: usize) {
    let mut bench = Bench::new(prompt_tokens, 0);
    while bench.scheduler.running() > 0 {
        bench.step();
    }
    (0..RUNNING).for_each(|_| bench.ask(16 * OUTPUT_TOKENS));
    (0..OUTPUT_TOKENS).for_each(|_| assert_eq!(bench.step(), 0));
    measure(bencher, bench);
}

/// The same as `running_256` with as many more in the queue.
#[divan::bench(args = [256, 1_024], sample_count = 1_000, sample_size = 1)]
fn waiting(bencher: Bencher<'_, '_>, waiting: usize) {
    measure(bencher, Bench::new(512, waiting));
}
