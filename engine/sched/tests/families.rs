//! Do the defects that users reported of other engines happen here? One test for each family that is the scheduler's.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use budgets::{Clock as _, Coefficients, CostModel, Deadline, Limits, ManualClock, Moment};
use sched::sim::{
    Draws, End, Ended, Faults, Listed, Random, SimOptions, SimReport, SimRequest, SimRunner, Simulation,
    Traffic,
};
use sched::{
    Batching, FakeRunner, Phase, Policy, Runner as _, RunnerLimits, Scheduler, SeqId, SeqRequest, StepPlan,
    TokenId, fold,
};
use std::sync::Arc;
use std::time::Duration;

const RUNNER: RunnerLimits =
    RunnerLimits { block_tokens: 4, blocks_total: 16, context_tokens_max: 64, vocab_tokens: 1_000 };

/// 10 ms a step, 1 ms a prefill token, 2 ms a decode row.
fn cost() -> CostModel {
    CostModel::from_coefficients(Coefficients {
        step: 0.010,
        prefill_token: 0.001,
        decode_row: 0.002,
        ..Coefficients::default()
    })
}

fn limits() -> Limits {
    Limits {
        step_prefill_tokens_max: 32,
        step_prefill_tokens_min: 4,
        running_sequences_max: 8,
        queue_requests_max: 1_000,
        ..Limits::default()
    }
}

fn ms(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

/// A prompt that begins like no other `nth`.
fn prompt(nth: u64, tokens: usize) -> Vec<TokenId> {
    let mut random = Random::new(nth);
    (0..tokens).map(|_| (random.bits() % 1_000) as TokenId).collect()
}

fn request(nth: u64, prompt_tokens: usize, output_tokens_max: usize, arrived: Moment) -> SeqRequest {
    SeqRequest::new(prompt(nth, prompt_tokens), output_tokens_max, arrived)
}

fn due(request: SeqRequest, after_ms: u64) -> SeqRequest {
    let deadline = Deadline::after(request.arrived, Duration::from_millis(after_ms));
    SeqRequest { deadline, ..request }
}

/// Listed requests whose tokens are compared with a plain computation.
struct Compared {
    requests: Vec<SeqRequest>,
    next: usize,
}

impl Traffic for Compared {
    fn next(&mut self) -> Option<SimRequest> {
        let request = self.requests.get(self.next)?.clone();
        self.next += 1;
        Some(SimRequest { tag: self.next as u64 - 1, request, cancel: None })
    }

    fn ended(&mut self, ended: Ended<'_>) -> Result<Option<SimRequest>, String> {
        let mut known = self.requests[ended.tag as usize].prompt.clone();
        for token in ended.tokens {
            if u64::from(*token) != fold(&known) % 1_000 {
                return Err(format!("request {} went wrong", ended.tag));
            }
            known.push(*token);
        }
        Ok(None)
    }
}

fn simulate(requests: Vec<SeqRequest>, limits: &Limits, policy: &Policy) -> SimReport {
    let runner = SimRunner::new(RUNNER, cost(), Arc::new(ManualClock::default()), Draws::Folded);
    let mut simulation = Simulation::new(runner, limits, policy, SimOptions::default());
    simulation.run(&mut Compared { requests, next: 0 }).unwrap()
}

#[test]
fn with_the_pool_full_everyone_finishes_with_the_right_tokens() {
    // 40 sequences that each need half the pool at their end; their sum is twenty pools.
    for policy in [Policy::default(), Policy { prefix_cache: false, ..Policy::default() }] {
        let requests = (0..40).map(|nth| request(nth, 8, 24, ms(0))).collect();
        let report = simulate(requests, &limits(), &policy);
        assert_eq!((report.ends.completed, report.output_tokens), (40, 40 * 24));
        assert_eq!(report.held_max, RUNNER.blocks_total);
        assert!(report.counts.preemptions > 0);
    }
}

#[test]
fn preemption_does_not_thrash() {
    // Dated and undated sequences, all longer than what there is for them, in three kinds of pressure.
    for dated in [0, 2, 3] {
        let requests = (0..120).map(|nth| {
            let new = request(nth, 4 + nth as usize % 20, 30, ms(nth * 10));
            if dated > 0 && nth % dated == 0 { due(new, 60_000 - nth * 400) } else { new }
        });
        let report = simulate(requests.collect(), &limits(), &Policy::default());
        let computed = report.ends.completed;
        assert_eq!(computed, 120);
        let (preemptions, tokens) = (report.counts.preemptions, report.output_tokens);
        // The pool holds one sequence and a third at their ends. Each preemption is paid for by ten tokens at least, and
        // what is computed again at most doubles the work.
        assert!(
            preemptions > 0 && preemptions * 10 <= tokens,
            "{preemptions} preemptions for {tokens} tokens"
        );
        let work = (0..120).map(|nth| 4 + nth % 20).sum::<u64>() + tokens;
        let computed = report.prefill_tokens + tokens;
        assert!(computed <= work * 2, "{computed} tokens computed for {work}, {dated}");
    }
}

#[test]
fn nobody_gives_way_in_vain() {
    // A stream that nothing displaces any more holds most of the pool, and a patient sequence the rest. The urgent one
    // that comes needs more than the rest.
    let policy = Policy { patience: Duration::from_millis(200), ..Policy::default() };
    let (stream, patient) = (request(0, 20, 40, ms(0)), request(1, 4, 8, ms(300)));
    let requests = vec![stream, patient, due(request(2, 40, 2, ms(310)), 170)];
    let report = simulate(requests, &limits(), &policy);
    assert_eq!((report.ends.completed, report.ends.expired), (2, [1, 0, 0]));
    assert_eq!(report.counts.preemptions, 0);
}

#[test]
fn blocks_that_others_use_too_are_no_reason_to_give_way() {
    // As before, but stream and patient sequence begin alike, and five of the patient one's blocks stay in use without
    // it: it would free two or three beside one or two free ones, and the urgent one needs eight.
    let policy = Policy { patience: Duration::from_millis(200), ..Policy::default() };
    let (stream, mut patient) = (request(0, 20, 40, ms(0)), request(0, 21, 8, ms(300)));
    patient.prompt[20] += 1;
    let requests = vec![stream, patient, due(request(2, 30, 2, ms(310)), 170)];
    let report = simulate(requests, &limits(), &policy);
    assert_eq!((report.ends.completed, report.ends.expired), (2, [1, 0, 0]), "{report:?}");
    assert_eq!(report.counts.preemptions, 0);
}

#[test]
fn overload_leaves_time_for_those_who_can_still_be_in_time() {
    // A prompt takes 50 ms and one comes every 25 ms, with 600 ms to its first token: about half of them can be served.
    // Steps take a tenth more or less than predicted.
    let limits = Limits { step_prefill_tokens_max: 64, ..limits() };
    for seed in 0..5 {
        let mut random = Random::new(seed);
        let mut now = ms(0);
        let requests = (0..400).map(|nth| {
            now = now.plus(random.gap(Duration::from_millis(25)));
            let first_token_deadline = Deadline::after(now, Duration::from_millis(600));
            SeqRequest { first_token_deadline, ..request(nth, 40, 1, now) }
        });
        let requests: Vec<SeqRequest> = requests.collect();
        let span = requests[399].first_token_deadline.moment().unwrap().since(ms(0));
        let runner = SimRunner::new(RUNNER, cost(), Arc::new(ManualClock::default()), Draws::Folded);
        let runner = runner.with_faults(Faults { noise: 0.1, ..Faults::default() }, seed);
        let mut simulation = Simulation::new(runner, &limits, &Policy::default(), SimOptions::default());
        let report = simulation.run(&mut Compared { requests, next: 0 }).unwrap();
        let possible = span.as_secs_f64() / 0.050;
        assert!(report.ends.completed as f64 >= 0.85 * possible, "{} of {possible}", report.ends.completed);
    }
}

#[test]
fn nobody_gives_way_to_one_that_would_be_late_even_so() {
    // The prompt takes 50 ms and has 40; with 80 it has time, and the stream gives way.
    for (time_ms, completed, preemptions) in [(40, 1, 0), (80, 2, 1)] {
        let requests = vec![request(0, 40, 20, ms(0)), due(request(1, 40, 1, ms(100)), time_ms)];
        let report =
            simulate(requests, &Limits { step_prefill_tokens_max: 64, ..limits() }, &Policy::default());
        assert_eq!(
            (report.ends.completed, report.counts.preemptions),
            (completed, preemptions),
            "{report:?}"
        );
    }
}

#[test]
fn a_large_request_that_cannot_start_blocks_nobody_while_its_patience_lasts() {
    // A stream holds a third of the pool, the large one needs all but one block, the small ones fit beside the stream.
    let mut requests = vec![request(0, 16, 8, ms(0)), request(1, 56, 4, ms(1))];
    requests.extend((2..8).map(|nth| request(nth, 3, 2, ms(2))));
    let report = simulate(requests, &limits(), &Policy::default());
    assert_eq!(report.ends.completed, 8);
    // Everyone else has ended before the large one starts, so half of all have their first token within 150 ms.
    assert!(report.ttft.quantile(0.8) < Duration::from_millis(150), "{:?}", report.ttft.quantile(0.8));
}

/// Small urgent requests, `gap` apart, and undated ones among them; the longest wait of an undated one.
fn longest_wait(undated: Vec<SeqRequest>, gap_ms: u64, policy: &Policy) -> Duration {
    let count = undated.len() as u64;
    let urgent = (0..3_000).map(|nth| due(request(1_000 + nth, 12, 8, ms(nth * gap_ms)), 2_000));
    let mut requests: Vec<SeqRequest> = urgent.chain(undated).collect();
    requests.sort_by_key(|request| request.arrived);
    let report = simulate(requests, &limits(), policy);
    let ends = report.ends;
    assert!(ends.completed + ends.expired.iter().sum::<u64>() == 3_000 + count, "{ends:?}");
    report.undated_wait_max
}

#[test]
fn undated_requests_among_endless_urgent_ones_start_when_their_patience_ends() {
    let policy = Policy { patience: Duration::from_secs(5), ..Policy::default() };
    for gap_ms in [8, 15, 25] {
        let small = (0..5).map(|nth| request(nth, 12, 8, ms(500 * nth))).collect();
        let waited = longest_wait(small, gap_ms, &policy);
        assert!(waited < Duration::from_secs(8), "every {gap_ms} ms: {waited:?}");
    }
}

#[test]
fn a_large_undated_request_among_endless_small_urgent_ones_starts_too() {
    // Small ones always fit into what is free; the large one never does unless it is kept free for it.
    let policy = Policy { patience: Duration::from_secs(5), ..Policy::default() };
    for gap_ms in [8, 15, 25] {
        let waited = longest_wait(vec![request(0, 56, 4, ms(100))], gap_ms, &policy);
        assert!(waited < Duration::from_secs(8), "every {gap_ms} ms: {waited:?}");
    }
}

#[test]
fn what_expired_in_the_queue_is_never_computed() {
    // Forty prompts at once. Each takes two steps of 32 tokens, about 60 ms, and all must answer within 300 ms.
    let late = |nth| SeqRequest { first_token_deadline: Deadline::at(ms(300)), ..request(nth, 40, 1, ms(0)) };
    let report = simulate((0..40).map(late).collect(), &limits(), &Policy::default());
    let (completed, [queue, prefill, decode]) = (report.ends.completed, report.ends.expired);
    assert!((4..=6).contains(&completed) && queue >= 32 && decode == 0, "{:?}", report.ends);
    // `Simulation` refuses a plan with a row of an expired sequence. What was computed is that of those that started.
    assert!(report.prefill_tokens <= (completed + prefill) * 40, "{}", report.prefill_tokens);
    assert!(report.busy < Duration::from_millis(350), "{:?}", report.busy);
}

/// A scheduler with streams in decode, and the time of the next plan.
struct Streams {
    scheduler: Scheduler,
    runner: FakeRunner,
    clock: ManualClock,
}

impl Streams {
    fn new(count: usize, limits: &Limits, policy: &Policy, change: impl Fn(&mut SeqRequest)) -> Self {
        let runner = RunnerLimits { blocks_total: 1_000, context_tokens_max: 4_000, ..RUNNER };
        let mut scheduler = Scheduler::new(runner, limits, policy);
        *scheduler.model_mut() = cost();
        for nth in 0..count {
            let mut stream = request(nth as u64, 1, 500, ms(0));
            change(&mut stream);
            scheduler.submit(stream).unwrap();
        }
        let clock = ManualClock::default();
        let mut streams = Self { scheduler, runner: FakeRunner::hashing(runner), clock };
        streams.step();
        assert_eq!((streams.scheduler.running(), streams.scheduler.waiting()), (count, 0));
        streams
    }

    fn step(&mut self) -> StepPlan {
        let plan = self.scheduler.schedule(self.clock.now());
        let output = self.runner.run(&plan).unwrap();
        self.clock.advance(cost().predict(&plan.shape()));
        self.scheduler.commit(output, self.clock.now()).unwrap();
        plan
    }
}

fn prefilled(plan: &StepPlan) -> usize {
    plan.rows
        .iter()
        .filter(|row| row.draw.is_none() || row.tokens.len() > 1)
        .map(|row| row.tokens.len())
        .sum()
}

#[test]
fn a_long_prompt_is_cut_to_what_the_tightest_stream_bears() {
    // Six streams: 10 + 6 x 2 ms a step. One of them takes 40 ms a token, so 18 tokens at 1 ms fit beside them.
    let tight = |stream: &mut SeqRequest| stream.tpot = Some(Duration::from_millis(40));
    let mut streams = Streams::new(6, &limits(), &Policy::default(), tight);
    streams.scheduler.submit(request(99, 2_000, 1, ms(0))).unwrap();
    for _ in 0..5 {
        assert_eq!(prefilled(&streams.step()), 18);
    }
    // Without a time per token a step may take 2.5 times what it takes without the chunk: 55 ms, so 33; 32 are allowed.
    let bearable = Policy { step_stretch_max: 2.5, ..Policy::default() };
    let mut streams = Streams::new(6, &limits(), &bearable, |_| {});
    streams.scheduler.submit(request(99, 2_000, 1, ms(0))).unwrap();
    assert_eq!(prefilled(&streams.step()), 32);
}

#[test]
fn a_time_per_token_that_cannot_be_met_does_not_stop_prefill() {
    let impossible = |stream: &mut SeqRequest| stream.tpot = Some(Duration::from_millis(1));
    let mut streams = Streams::new(6, &limits(), &Policy::default(), impossible);
    streams.scheduler.submit(request(99, 40, 1, ms(0))).unwrap();
    let chunks: Vec<usize> = (0..10).map(|_| prefilled(&streams.step())).collect();
    assert_eq!(chunks, [4; 10]);
}

#[test]
fn a_step_ends_before_the_nearest_deadline() {
    // A stream that is due in 30 ms: 10 + 2 ms for itself leave less than 18 for a chunk.
    let soon = |stream: &mut SeqRequest| stream.deadline = Deadline::at(ms(42));
    let roomy = Policy { step_stretch_max: 100.0, ..Policy::default() };
    let mut streams = Streams::new(1, &limits(), &roomy, soon);
    assert_eq!(streams.clock.now(), ms(12));
    streams.scheduler.submit(request(99, 2_000, 1, ms(0))).unwrap();
    assert_eq!(prefilled(&streams.step()), 17);
    assert_eq!(streams.clock.now(), ms(41));
}

#[test]
fn a_deadline_that_cannot_be_kept_is_not_passed_by_a_whole_chunk() {
    // A prompt that takes two seconds has 35 ms: its end is due then, not when a chunk of 256 tokens is through.
    let mut streams = Streams::new(0, &limits(), &Policy::default(), |_| {});
    streams.scheduler.submit(due(request(1, 1_900, 1, ms(0)), 35)).unwrap();
    while streams.clock.now() < ms(35) {
        streams.step();
    }
    // The least chunk of a step, four tokens, takes 14 ms.
    assert!(streams.clock.now() < ms(35 + 14), "{:?}", streams.clock.now());
}

#[test]
fn a_step_ends_before_the_deadlines_of_those_who_join_it() {
    // A prompt that takes 30 ms of the 35 it has, beside one that would fill the step.
    let mut streams = Streams::new(0, &limits(), &Policy::default(), |_| {});
    streams.scheduler.submit(request(1, 2_000, 1, ms(0))).unwrap();
    streams.scheduler.submit(due(request(2, 20, 1, ms(0)), 35)).unwrap();
    let plan = streams.step();
    let rows: Vec<_> = plan.rows.iter().map(|row| (row.seq.0, row.tokens.len())).collect();
    assert_eq!(rows, [(1, 20), (0, 4)]);
}

#[test]
fn an_idle_scheduler_reclaims() {
    let mut streams = Streams::new(3, &limits(), &Policy::default(), |_| {});
    for seq in 0..3 {
        assert_eq!(streams.scheduler.end(SeqId(seq)), Some(Phase::Decode));
    }
    // No request comes after them, and no step is planned.
    let blocks = streams.scheduler.blocks();
    assert_eq!((blocks.held(), blocks.free() + blocks.cached()), (0, blocks.total()));
    assert!(streams.scheduler.schedule(streams.clock.now()).rows.is_empty());
}

#[test]
fn a_static_batch_takes_all_that_fit_and_nobody_joins_it() {
    let requests = (0..8).map(|nth| request(nth, 12, 4, ms(0)));
    let bounds = Limits { step_prefill_tokens_max: 16, ..limits() };
    let policy = Policy { batching: Batching::Static, ..Policy::default() };
    let runner = SimRunner::new(RUNNER, cost(), Arc::new(ManualClock::default()), Draws::Folded);
    let mut simulation = Simulation::new(runner, &bounds, &policy, SimOptions::default());
    let traffic =
        requests.enumerate().map(|(tag, request)| SimRequest { tag: tag as u64, request, cancel: None });
    let report = simulation.run(&mut Listed(traffic)).unwrap();
    assert_eq!(report.ends.completed, 8);
    // 16 blocks hold four sequences of 12 + 1 tokens: two batches, not eight.
    assert_eq!(report.rows_max, 4, "{report:?}");
}

#[test]
fn ends_are_told_once_and_with_their_phase() {
    struct Ends(Vec<(u64, End)>, Vec<SimRequest>);
    impl Traffic for Ends {
        fn next(&mut self) -> Option<SimRequest> {
            self.1.pop()
        }
        fn ended(&mut self, ended: Ended<'_>) -> Result<Option<SimRequest>, String> {
            self.0.push((ended.tag, ended.end));
            Ok(None)
        }
    }
    let asked = |tag, request| SimRequest { tag, request, cancel: None };
    let late = SeqRequest { first_token_deadline: Deadline::at(ms(5)), ..request(1, 4, 4, ms(0)) };
    // The first runs in one step of 14 ms, so the second's first token is late; the third is done in time.
    let requests =
        vec![asked(2, due(request(2, 4, 1, ms(0)), 50)), asked(1, late), asked(0, request(0, 70, 4, ms(0)))];
    let runner = SimRunner::new(RUNNER, cost(), Arc::new(ManualClock::default()), Draws::Folded);
    let mut simulation = Simulation::new(runner, &limits(), &Policy::default(), SimOptions::default());
    let mut ends = Ends(Vec::new(), requests);
    simulation.run(&mut ends).unwrap();
    let refused = RUNNER.worst_case(70, 4).unwrap_err();
    let want = [(0, End::Refused(refused)), (2, End::Completed), (1, End::Expired(Phase::Prefill))];
    assert_eq!(ends.0, want);
}
