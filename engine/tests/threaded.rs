//! Does the engine's own thread sleep, wake, end and drain? Everything else is tested without it.
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use budgets::{Clock, Deadline, Limits, Moment, SystemClock};
use engine::{
    ByteCodec, Engine, EngineModel, Event, FinishReason, GenerateRequest, Generation, Policy, StartError,
    SubmitError,
};
use sched::{FakeRunner, RunnerLimits};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const RUNNER: RunnerLimits = RunnerLimits {
    block_tokens: 4,
    blocks_total: 64,
    context_tokens_max: 128,
    vocab_tokens: ByteCodec::VOCAB_TOKENS,
};

fn start(runner: FakeRunner, clock: Arc<dyn Clock>) -> Engine {
    Engine::start(model(runner, ByteCodec::new()), clock, &Limits::default(), &Policy::default()).unwrap()
}

fn model(runner: FakeRunner, codec: impl engine::Codec + 'static) -> EngineModel {
    EngineModel {
        id: "fake".to_string(),
        runner: Box::new(runner),
        codec: Arc::new(codec),
        calibration: Duration::ZERO,
    }
}

fn echo() -> FakeRunner {
    FakeRunner::replying(RUNNER, ByteCodec::END, <[u32]>::to_vec)
}

/// A model that never ends its answer, one token a millisecond.
fn endless() -> FakeRunner {
    FakeRunner::new(RUNNER, |_| {
        std::thread::sleep(Duration::from_millis(1));
        u32::from(b'z')
    })
}

fn request(prompt: &str) -> GenerateRequest {
    GenerateRequest::new(prompt.bytes().map(u32::from).collect(), 100)
}

async fn read(mut generation: Generation) -> (String, FinishReason) {
    let mut text = String::new();
    loop {
        match generation.next().await.expect("a stream ends with Finished") {
            Event::Delta(delta) => text.push_str(&delta.text),
            Event::Finished(finished) => {
                assert_eq!(generation.next().await, None);
                return (text, finished.reason);
            }
        }
    }
}

/// Waits for what another thread is about to do; five seconds are for a machine that is busy.
async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..5_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it did not happen: {what}");
}

#[tokio::test]
async fn many_callers_get_their_own_answers() {
    let engine = start(echo(), Arc::new(SystemClock::default()));
    let prompts: Vec<String> = (0..40).map(|nth| format!("prompt number {nth}")).collect();
    let tasks: Vec<_> =
        prompts.iter().map(|prompt| tokio::spawn(read(engine.submit(request(prompt)).unwrap()))).collect();
    for (task, prompt) in tasks.into_iter().zip(prompts) {
        assert_eq!(task.await.unwrap(), (prompt, FinishReason::EndOfText));
    }
    let stats = engine.stats();
    assert_eq!(
        (stats.finished.end_of_text, stats.blocks_free + stats.blocks_cached),
        (40, RUNNER.blocks_total)
    );
}

#[tokio::test]
async fn a_dropped_stream_frees_its_blocks_without_further_work_coming() {
    let engine = start(endless(), Arc::new(SystemClock::default()));
    let mut generation = engine.submit(request("x")).unwrap();
    // The counts of a step are published after its deltas, so the second delta finds those of the first.
    for _ in 0..2 {
        assert!(matches!(generation.next().await, Some(Event::Delta(_))));
    }
    assert!(engine.stats().blocks_held > 0);
    drop(generation);
    until("blocks return", || engine.stats().blocks_held == 0).await;
    assert_eq!(engine.stats().finished.cancelled, 1);
}

#[tokio::test]
async fn a_deadline_ends_a_running_stream() {
    let clock = Arc::new(SystemClock::default());
    let engine = start(endless(), Arc::<SystemClock>::clone(&clock));
    let deadline = Deadline::after(clock.now(), Duration::from_millis(30));
    let generation = engine.submit(GenerateRequest { deadline, ..request("x") }).unwrap();
    assert_eq!(read(generation).await.1, FinishReason::ExpiredInDecode);
}

#[tokio::test]
async fn a_drain_waits_for_streams_and_refuses_new_ones() {
    let clock = Arc::new(SystemClock::default());
    let engine = start(endless(), Arc::<SystemClock>::clone(&clock));
    let first = tokio::spawn(read(engine.submit(request("x")).unwrap()));
    engine.drain(Deadline::after(clock.now(), Duration::from_secs(60))).await;
    assert_eq!(first.await.unwrap(), ("z".repeat(100), FinishReason::Length));
    assert_eq!(engine.submit(request("x")).err(), Some(SubmitError::ShuttingDown));
    // A second drain, of an idle engine, returns at once.
    engine.drain(Deadline::NEVER).await;
}

#[tokio::test]
async fn a_drain_ends_at_its_deadline() {
    let clock = Arc::new(SystemClock::default());
    let engine = start(endless(), Arc::<SystemClock>::clone(&clock));
    let generation = engine.submit(request("x")).unwrap();
    engine.drain(Deadline::after(clock.now(), Duration::from_millis(10))).await;
    assert_eq!(read(generation).await.1, FinishReason::Cancelled);
    assert_eq!(engine.stats().blocks_held, 0);
}

/// Counts how often it is asked.
#[derive(Default)]
struct CountingClock(SystemClock, AtomicUsize);

impl Clock for CountingClock {
    fn now(&self) -> Moment {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.now()
    }
}

#[tokio::test]
async fn an_idle_engine_sleeps() {
    let clock = Arc::new(CountingClock::default());
    let engine = start(echo(), Arc::<CountingClock>::clone(&clock));
    assert_eq!(read(engine.submit(request("x")).unwrap()).await.0, "x");
    tokio::time::sleep(Duration::from_millis(20)).await;
    let before = clock.1.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(clock.1.load(Ordering::SeqCst), before, "every turn looks at the clock, and there was one");
}

/// Tells when the engine's thread has dropped its runner.
struct Ended(Arc<AtomicBool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn the_thread_ends_when_the_last_handle_and_the_last_stream_are_gone() {
    let gone = Arc::new(AtomicBool::new(false));
    let ended = Ended(Arc::clone(&gone));
    let (go, gate) = mpsc::channel::<()>();
    let engine = start(
        FakeRunner::new(RUNNER, move |_| {
            let _keep = &ended;
            let _ = gate.recv();
            u32::from(b'z')
        }),
        Arc::new(SystemClock::default()),
    );
    let generation = engine.submit(GenerateRequest { output_tokens_max: 3, ..request("x") }).unwrap();
    let other = engine.clone();
    drop(engine);
    drop(other);
    assert!(!gone.load(Ordering::SeqCst));
    (0..3).for_each(|_| go.send(()).unwrap());
    assert_eq!(read(generation).await, ("zzz".to_string(), FinishReason::Length));
    until("the thread ends", || gone.load(Ordering::SeqCst)).await;

    // And an engine that never had a request ends too.
    let gone = Arc::new(AtomicBool::new(false));
    let ended = Ended(Arc::clone(&gone));
    drop(start(
        FakeRunner::new(RUNNER, move |_| {
            let _keep = &ended;
            0
        }),
        Arc::new(SystemClock::default()),
    ));
    until("the idle thread ends", || gone.load(Ordering::SeqCst)).await;
}

/// A codec that breaks its own contract kills the thread, and still no caller waits for ever.
struct BrokenCodec(ByteCodec);

impl engine::Codec for BrokenCodec {
    fn encode(&self, text: &str) -> Vec<engine::TokenId> {
        self.0.encode(text)
    }
    fn encode_chat(
        &self,
        messages: &[engine::ChatMessage],
    ) -> Result<Vec<engine::TokenId>, engine::CodecError> {
        self.0.encode_chat(messages)
    }
    fn token_bytes(&self, _: engine::TokenId) -> &[u8] {
        panic!("a codec must not panic")
    }
    fn end_tokens(&self) -> &[engine::TokenId] {
        &[]
    }
    fn constrain(&self, _: &engine::Constraint) -> Result<Box<dyn engine::Grammar>, engine::CodecError> {
        Err(engine::CodecError("not here".to_string()))
    }
}

#[tokio::test]
async fn a_dead_thread_still_gives_every_stream_an_end() {
    let model = model(echo(), BrokenCodec(ByteCodec::new()));
    let clock = Arc::new(SystemClock::default());
    let engine = Engine::start(model, clock, &Limits::default(), &Policy::default()).unwrap();
    let (_, reason) = read(engine.submit(request("x")).unwrap()).await;
    assert_eq!(reason, FinishReason::Failed("the engine stopped".to_string()));
    until("submit says so", || engine.submit(request("x")).err() == Some(SubmitError::ShuttingDown)).await;
    engine.drain(Deadline::NEVER).await;
}

#[test]
fn what_cannot_run_does_not_start() {
    let start = |runner: RunnerLimits, limits: &Limits| {
        let model = model(FakeRunner::new(runner, |_| 0), ByteCodec::new());
        Engine::start(model, Arc::new(SystemClock::default()), limits, &Policy::default()).err()
    };
    let no_blocks = RunnerLimits { blocks_total: 0, ..RUNNER };
    assert!(matches!(start(no_blocks, &Limits::default()), Some(StartError::Runner(_))));
    let no_queue = Limits { queue_requests_max: 0, ..Limits::default() };
    assert!(matches!(start(RUNNER, &no_queue), Some(StartError::Limits(_))));
    let contradiction = Limits { running_sequences_max: 0, ..Limits::default() };
    assert!(matches!(start(RUNNER, &contradiction), Some(StartError::Limits(_))));
}
