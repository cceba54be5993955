//! Does the real scheduler keep outputs independent of what else runs? Requests come, go and expire by chance over a
//! pool that is too small for them; the runner computes what the scheduler plans, and nothing else is between them.

use super::{Chance, OUTPUT_TOKENS, Output, Request, record};
use budgets::{Coefficients, CostModel, Deadline, Limits, Moment};
use exec::DeviceRunner;
use sched::{Policy, Runner, RunnerLimits, SchedCounts, Scheduler, SeqId, SeqRequest, Tenant, TokenId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Fewer than half of what the sequences that may run together need.
const BLOCKS: usize = 30;
/// Each request comes as often.
const REPEATS: usize = 4;

/// What came of the traffic.
#[derive(Debug, Default)]
pub(super) struct Covered {
    pub(super) steps: usize,
    pub(super) rows: usize,
    pub(super) cut_chunks: usize,
    pub(super) copies: usize,
    pub(super) finished: usize,
    /// Cancelled or expired after their first token.
    pub(super) cut_short: usize,
    pub(super) counts: SchedCounts,
}

/// A request that was submitted and has not ended.
struct Open {
    request: usize,
    output: Output,
}

struct Traffic<'a> {
    requests: &'a [Request],
    expected: &'a [Output],
    end_tokens: Arc<[TokenId]>,
    scheduler: Scheduler,
    open: BTreeMap<SeqId, Open>,
    now: Moment,
    covered: Covered,
}

impl Traffic<'_> {
    fn submit(&mut self, request: usize, chance: &mut Chance) {
        let Request { prompt, sampling, .. } = &self.requests[request];
        let within = |ms: usize| Deadline::after(self.now, Duration::from_millis(ms as u64));
        // Who is in a hurry makes others give way; who is in too much of one expires.
        let (first_token_deadline, deadline) = match chance.below(6) {
            0 => (Deadline::NEVER, within(120 + chance.below(1_500))),
            1 | 2 => (within(120 + chance.below(500)), Deadline::NEVER),
            _ => (Deadline::NEVER, Deadline::NEVER),
        };
        let tpot = chance.one_in(2).then(|| Duration::from_millis(5 + chance.below(60) as u64));
        let seq = self.scheduler.submit(SeqRequest {
            sampling: Arc::clone(sampling),
            // None of them is drawn: as in the sequences alone, which ban them.
            output_tokens_min: OUTPUT_TOKENS,
            end_tokens: Arc::clone(&self.end_tokens),
            first_token_deadline,
            deadline,
            tpot,
            tenant: Tenant(chance.below(2) as u128),
            ..SeqRequest::new(prompt.clone(), OUTPUT_TOKENS, self.now)
        });
        self.open.insert(seq.unwrap(), Open { request, output: Output::new() });
    }

    /// What came of a sequence that ended: all of its output alone, or as much of it as there was time for.
    fn close(&mut self, seq: SeqId, whole: bool) {
        let Open { request, output } = self.open.remove(&seq).unwrap();
        let expected = &self.expected[request];
        let len = if whole { expected.len() } else { output.len() };
        assert_eq!(output, expected[..len], "{seq:?}, request {request}");
        self.covered.finished += usize::from(whole);
        self.covered.cut_short += usize::from(!whole && !output.is_empty());
    }

    fn step(&mut self, runner: &mut DeviceRunner, chance: &mut Chance) {
        for expired in self.scheduler.expire(self.now) {
            self.close(expired.seq, false);
        }
        let plan = self.scheduler.schedule(self.now);
        // Time goes by as the scheduler believes it does, so that every run is the same.
        let took = self.scheduler.model().predict(&plan.shape());
        self.now = self.now.plus(took.max(Duration::from_millis(1)));
        let drawn = runner.run(&plan).unwrap();
        if chance.one_in(20) && !self.open.is_empty() {
            let seq = *self.open.keys().nth(chance.below(self.open.len())).unwrap();
            self.scheduler.end(seq).unwrap();
            self.close(seq, false);
        }
        let committed = self.scheduler.commit(drawn, self.now).unwrap();
        for token in committed.tokens {
            let open = self.open.get_mut(&token.seq).unwrap();
            open.output.push(record(token.token, token.logprob, &token.top));
            if token.last {
                self.close(token.seq, true);
            }
        }
        for expired in committed.expired {
            self.close(expired.seq, false);
        }
        assert_eq!(self.scheduler.invariant(), Ok(()));
        self.covered.steps += 1;
        self.covered.rows += plan.rows.len();
        self.covered.cut_chunks += plan.rows.iter().filter(|row| row.draw.is_none()).count();
        self.covered.copies += plan.copies.len();
    }
}

/// Runs every request several times, in an order and at times of chance, and compares whatever comes with `expected`.
pub(super) fn run(
    runner: &mut DeviceRunner,
    requests: &[Request],
    expected: &[Output],
    end_tokens: &[TokenId],
    chance: &mut Chance,
) -> Covered {
    // A small part of the runner's pool; what other sequences left in it is there still.
    let limits = RunnerLimits { blocks_total: BLOCKS, ..runner.limits() };
    let bounds = Limits { running_sequences_max: 12, step_prefill_tokens_max: 96, ..Limits::default() };
    let mut scheduler = Scheduler::new(limits, &bounds, &Policy::default());
    *scheduler.model_mut() = CostModel::from_coefficients(Coefficients {
        step: 0.004,
        prefill_token: 0.000_3,
        decode_row: 0.002,
        ..Coefficients::default()
    });
    let mut coming: Vec<usize> = (0..REPEATS * requests.len()).map(|at| at % requests.len()).collect();
    let mut traffic = Traffic {
        requests,
        expected,
        end_tokens: end_tokens.into(),
        scheduler,
        open: BTreeMap::new(),
        now: Moment::default(),
        covered: Covered::default(),
    };
    while !coming.is_empty() || !traffic.open.is_empty() {
        // In bursts, between which the queue runs nearly dry.
        if traffic.open.len() < 6 || chance.one_in(4) {
            for _ in 0..(1 + chance.below(6)).min(coming.len()) {
                let request = coming.swap_remove(chance.below(coming.len()));
                traffic.submit(request, chance);
            }
        }
        traffic.step(runner, chance);
    }
    let blocks = traffic.scheduler.blocks();
    assert_eq!((blocks.held(), blocks.free() + blocks.cached()), (0, BLOCKS));
    Covered { counts: traffic.scheduler.counts(), ..traffic.covered }
}
