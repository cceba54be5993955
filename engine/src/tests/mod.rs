//! Does a request come out as its caller was promised? The engine turned by hand, step by step, on a manual clock.

mod ends;
mod features;
mod prefixes;
mod simulation;
mod streams;

use crate::worker::{Turn, Worker};
use crate::{
    ByteCodec, Delta, Engine, EngineModel, Event, FinishReason, Finished, GenerateRequest, Generation, Policy,
};
use budgets::{Clock, Deadline, Limits, ManualClock};
use sched::{FakeLog, FakeRunner, Runner, RunnerLimits};
use std::sync::Arc;
use std::time::Duration;

const RUNNER: RunnerLimits = RunnerLimits {
    block_tokens: 4,
    blocks_total: 32,
    context_tokens_max: 128,
    vocab_tokens: ByteCodec::VOCAB_TOKENS,
};

const STEP: Duration = Duration::from_millis(10);

fn limits() -> Limits {
    Limits {
        step_prefill_tokens_max: 16,
        running_sequences_max: 4,
        queue_requests_max: 8,
        ..Limits::default()
    }
}

/// An engine without its thread.
struct Bench {
    engine: Engine,
    worker: Worker,
    clock: Arc<ManualClock>,
    log: FakeLog,
}

impl Bench {
    fn new(runner: FakeRunner, limits: &Limits) -> Self {
        let log = runner.log();
        Self { log, ..Self::with(Box::new(runner), limits) }
    }

    /// With a runner that keeps no log.
    fn with(runner: Box<dyn Runner>, limits: &Limits) -> Self {
        let clock = Arc::new(ManualClock::default());
        let model = EngineModel {
            id: "fake".to_string(),
            runner,
            codec: Arc::new(ByteCodec::new()),
            calibration: Duration::ZERO,
        };
        let (engine, worker) =
            Engine::assemble(model, Arc::<ManualClock>::clone(&clock), limits, &Policy::default()).unwrap();
        Self { engine, worker, clock, log: FakeLog::default() }
    }

    /// An engine whose model answers each prompt with that prompt.
    fn echo() -> Self {
        Self::new(echo(), &limits())
    }

    fn submit(&self, prompt: &str) -> Generation {
        self.engine.submit(request(prompt)).unwrap()
    }

    /// Turns once; a turn takes [`STEP`] of the clock's time.
    fn step(&mut self) -> Turn {
        let turn = self.worker.step();
        self.clock.advance(STEP);
        turn
    }

    fn steps(&mut self, count: usize) {
        (0..count).for_each(|_| {
            self.step();
        });
    }

    fn run_dry(&mut self) {
        while self.step() == Turn::Worked {}
    }

    fn deadline(&self, steps: u32) -> Deadline {
        Deadline::after(self.clock.now(), STEP * steps)
    }

    fn assert_baseline(&self) {
        let stats = self.engine.stats();
        assert_eq!(
            (stats.waiting, stats.running, stats.blocks_held, stats.blocks_free + stats.blocks_cached),
            (0, 0, 0, stats.blocks_total)
        );
    }
}

fn echo() -> FakeRunner {
    FakeRunner::replying(RUNNER, ByteCodec::END, <[u32]>::to_vec)
}

fn request(prompt: &str) -> GenerateRequest {
    GenerateRequest::new(prompt.bytes().map(u32::from).collect(), 24)
}

fn delta(text: &str) -> Event {
    Event::Delta(Delta { text: text.to_string(), tokens: Vec::new() })
}

/// All text, and how the stream ended; fails unless the end is the last event and the only one.
fn read(generation: &mut Generation) -> (String, Finished) {
    let mut events = generation.ready();
    let Some(Event::Finished(finished)) = events.pop() else {
        panic!("the stream has not ended: {events:?}")
    };
    let text = events.into_iter().map(|event| match event {
        Event::Delta(delta) => delta.text,
        Event::Finished(_) => panic!("the stream ended twice"),
    });
    (text.collect(), finished)
}

fn read_reason(generation: &mut Generation) -> (String, FinishReason) {
    let (text, finished) = read(generation);
    (text, finished.reason)
}
