//! How does the engine turn? One thread that owns the scheduler, the runner and every stream.

use crate::calibrate::calibrate;
use crate::shared::{Shared, Submission};
use crate::stream::Stream;
use crate::{Codec, CodecError, EngineStats, FinishReason, Finished, StepRecord, TokenLogprob, settings};
use budgets::{Clock, Deadline, Limits, Moment};
use sched::{
    Expired, NewToken, Phase, Policy, RunError, Runner, SchedCounts, Scheduler, SeqId, SeqRequest,
    StepOutput, StepPlan, TokenId,
};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

/// The cost model's error is brought up to date once in so many steps.
const COST_ERROR_STEPS: u64 = 32;

/// What a turn found to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// A step was run.
    Worked,
    /// There was nothing to compute.
    Idle,
}

/// The loop thread's state.
pub(crate) struct Worker {
    scheduler: Scheduler,
    runner: Box<dyn Runner>,
    codec: Arc<dyn Codec>,
    end_tokens: Arc<[TokenId]>,
    clock: Arc<dyn Clock>,
    submissions: Receiver<Submission>,
    shared: Arc<Shared>,
    streams: BTreeMap<SeqId, Stream>,
    /// Ended in this turn and not yet told so.
    ended: Vec<(Stream, Finished)>,
    stats: EngineStats,
    handles_gone: bool,
}

impl Worker {
    pub(crate) fn new(
        runner: Box<dyn Runner>,
        codec: Arc<dyn Codec>,
        clock: Arc<dyn Clock>,
        (limits, policy): (&Limits, &Policy),
        submissions: Receiver<Submission>,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            scheduler: Scheduler::new(runner.limits(), limits, policy),
            end_tokens: codec.end_tokens().into(),
            runner,
            codec,
            clock,
            submissions,
            stats: shared.stats(),
            shared,
            streams: BTreeMap::new(),
            ended: Vec::new(),
            handles_gone: false,
        }
    }

    /// Measures the runner before the first request.
    pub(crate) fn calibrate(&mut self, budget: Duration) {
        if !budget.is_zero() {
            calibrate(&mut *self.runner, &*self.clock, self.scheduler.model_mut(), budget);
        }
    }

    /// Turns until every handle is gone and every stream has ended.
    pub(crate) fn run(mut self) {
        loop {
            if self.step() == Turn::Worked {
                continue;
            }
            if self.handles_gone && self.streams.is_empty() {
                return;
            }
            self.sleep();
        }
    }

    /// Sleeps until a handle wakes the thread or the next deadline passes. Nothing between an idle turn's look at
    /// the queue and here parks the thread, so a wake-up that comes meanwhile is not lost: it ends the sleep at once.
    fn sleep(&self) {
        let due = match self.streams.is_empty() {
            true => Deadline::NEVER,
            false => self.scheduler.next_deadline().min(self.shared.drain_deadline()),
        };
        match due.remaining(self.clock.now()) {
            None => std::thread::park(),
            Some(left) => std::thread::park_timeout(left.max(Duration::from_millis(1))),
        }
    }

    /// One turn, from what callers want to what they get. This function is the engine.
    pub(crate) fn step(&mut self) -> Turn {
        self.take_submissions();
        let began = self.clock.now();
        self.end_cancelled(began);
        self.end_expired(began);
        let before = self.scheduler.counts();
        let plan = self.scheduler.schedule(began);
        if plan.rows.is_empty() {
            debug_assert_eq!(self.invariant(), Ok(()));
            self.collect();
            return Turn::Idle;
        }
        self.start_streams(&plan, began);
        let planned = self.clock.now();
        let output = run_caught(&mut *self.runner, &plan);
        let now = self.clock.now();
        self.record(&plan, before, [began, planned, now], output.is_err());
        self.commit(output, now);
        self.collect();
        Turn::Worked
    }

    fn take_submissions(&mut self) {
        loop {
            match self.submissions.try_recv() {
                Ok(submission) => self.take(submission),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.handles_gone = true;
                    return;
                }
            }
        }
    }

    fn take(&mut self, submission: Submission) {
        let (mut stream, request) = Stream::new(submission);
        self.stats.prompt_tokens += request.prompt.len() as u64;
        let taken = self.scheduler.submit(SeqRequest {
            prompt: request.prompt,
            sampling: Arc::new(request.sampling),
            output_tokens_max: request.output_tokens_max,
            output_tokens_min: request.output_tokens_min,
            end_tokens: Arc::clone(&self.end_tokens),
            first_token_deadline: request.first_token_deadline,
            deadline: request.deadline,
            tpot: request.tpot,
            arrived: stream.submitted(),
            tenant: request.tenant,
            shared_tokens: request.shared_tokens,
            space: request.space,
        });
        match taken {
            Ok(seq) => {
                self.streams.insert(seq, stream);
                self.constrain(seq, None);
            }
            // The handle asked the same questions, so this is a defect; its caller still gets an end.
            Err(refused) => {
                let reason = FinishReason::Failed(settings::refused(refused).to_string());
                let finished = stream.close(reason, self.clock.now());
                self.end(stream, finished);
            }
        }
    }

    /// Ends streams that nobody reads, and all of them when a drain's time is over.
    fn end_cancelled(&mut self, now: Moment) {
        let all = self.shared.drain_deadline().expired(now);
        let cancelled: Vec<SeqId> =
            self.streams.iter().filter(|(_, stream)| all || stream.gone()).map(|(seq, _)| *seq).collect();
        for seq in cancelled {
            self.finish(seq, FinishReason::Cancelled, now);
        }
    }

    fn end_expired(&mut self, now: Moment) {
        for expired in self.scheduler.expire(now) {
            self.finish_expired(expired, now);
        }
    }

    fn start_streams(&mut self, plan: &StepPlan, now: Moment) {
        for row in &plan.rows {
            let Some(stream) = self.streams.get_mut(&row.seq) else { continue };
            stream.start(now);
            // Until the first draw the prompt's hits may grow: a chunk follows what others computed meanwhile.
            if row.draw.as_ref().is_none_or(|draw| draw.index == 0) {
                stream.set_cached(self.scheduler.cached_tokens(row.seq).unwrap_or(0));
            }
        }
    }

    /// Keeps what the step did and took, and teaches the cost model.
    fn record(
        &mut self,
        plan: &StepPlan,
        before: SchedCounts,
        [began, planned, now]: [Moment; 3],
        failed: bool,
    ) {
        let (shape, measured) = (plan.shape(), now.since(planned));
        self.stats.count_step(plan, now.since(began));
        let counts = self.scheduler.counts();
        let blocks = self.scheduler.blocks();
        self.shared.records.push(StepRecord {
            number: self.stats.steps,
            began,
            shape,
            predicted: self.scheduler.model().predict(&shape),
            measured,
            planned: planned.since(began),
            cached_tokens: counts.prefix_hit_tokens - before.prefix_hit_tokens,
            evicted_blocks: counts.evicted_blocks - before.evicted_blocks,
            preemptions: counts.preemptions - before.preemptions,
            waiting: self.scheduler.waiting(),
            running: self.scheduler.running(),
            blocks_free: blocks.free(),
            blocks_cached: blocks.cached(),
            failed,
        });
        if !failed {
            self.scheduler.model_mut().observe(&shape, measured);
        }
    }

    /// Takes `drawn` into the sequence's constraint, if it has one, and lets it choose what may be drawn next.
    fn constrain(&mut self, seq: SeqId, drawn: Option<TokenId>) {
        let Some(grammar) = self.streams.get_mut(&seq).and_then(Stream::grammar) else { return };
        let accepted = drawn.map_or(Ok(()), |token| grammar.accept(token));
        match accepted.and_then(|()| grammar.allowed()) {
            Ok(allowed) => self.scheduler.set_allowed(seq, Some(Arc::new(allowed))),
            Err(CodecError(message)) => {
                let now = self.clock.now();
                self.finish(seq, FinishReason::Failed(format!("the constraint: {message}")), now);
            }
        }
    }

    fn commit(&mut self, output: Result<StepOutput, RunError>, now: Moment) {
        let output = match output {
            // One sequence's own trouble: it ends, and the others' rows are computed again.
            Err(error @ (RunError::NotFinite(seq) | RunError::NoTokenAllowed(seq)))
                if self.scheduler.repeat_step_without(seq) =>
            {
                self.stats.steps_failed += 1;
                return self.finish(seq, FinishReason::Failed(error.to_string()), now);
            }
            output => output.map_err(|error| error.to_string()),
        };
        let committed =
            output.and_then(|output| self.scheduler.commit(output, now).map_err(|error| error.to_string()));
        match committed {
            Ok(committed) => {
                committed.tokens.iter().for_each(|token| self.add_token(token, now));
                committed.expired.into_iter().for_each(|expired| self.finish_expired(expired, now));
            }
            Err(message) => {
                tracing::error!(%message, "a step failed; its sequences end");
                self.stats.steps_failed += 1;
                for seq in self.scheduler.fail_step() {
                    self.finish(seq, FinishReason::Failed(message.clone()), now);
                }
            }
        }
    }

    fn add_token(&mut self, token: &NewToken, now: Moment) {
        let Some(stream) = self.streams.get_mut(&token.seq) else { return };
        self.stats.completion_tokens += 1;
        let (first, since) = stream.count(now);
        self.stats.histograms.add_token(first, since);
        if stream.wants_tokens() && !self.codec.is_end(token.token) {
            stream.add_token(logprob(&*self.codec, token));
        }
        let end = if self.codec.is_end(token.token) {
            Some(FinishReason::EndOfText)
        } else {
            stream
                .push(self.codec.token_bytes(token.token))
                .or_else(|| token.last.then_some(FinishReason::Length))
        };
        match end {
            Some(reason) => self.finish(token.seq, reason, now),
            None => self.constrain(token.seq, Some(token.token)),
        }
    }

    fn finish_expired(&mut self, expired: Expired, now: Moment) {
        let reason = match expired.phase {
            Phase::Queue => FinishReason::ExpiredInQueue,
            Phase::Prefill => FinishReason::ExpiredInPrefill,
            Phase::Decode => FinishReason::ExpiredInDecode,
        };
        self.finish(expired.seq, reason, now);
    }

    /// The one place where a sequence that the scheduler took ends, whatever the reason.
    fn finish(&mut self, seq: SeqId, reason: FinishReason, now: Moment) {
        // `None` when the scheduler itself ended it (last token, expired, failed).
        let _ = self.scheduler.end(seq);
        if let Some(mut stream) = self.streams.remove(&seq) {
            let finished = stream.close(reason, now);
            self.end(stream, finished);
        }
    }

    fn end(&mut self, stream: Stream, finished: Finished) {
        self.stats.finished.add(&finished.reason);
        self.stats.histograms.add_end(&finished.timing, finished.usage.completion_tokens);
        self.ended.push((stream, finished));
    }

    /// Publishes the turn's counts, then tells the streams that ended: who saw an end finds it in the counts.
    fn collect(&mut self) {
        let blocks = self.scheduler.blocks();
        self.stats.running = self.scheduler.running();
        self.stats.blocks_free = blocks.free();
        self.stats.blocks_cached = blocks.cached();
        self.stats.blocks_held = blocks.held();
        self.stats.blocks_total = blocks.total();
        let counts = self.scheduler.counts();
        self.stats.prefix_query_tokens = counts.prefix_query_tokens;
        self.stats.prefix_hit_tokens = counts.prefix_hit_tokens;
        self.stats.evicted_blocks = counts.evicted_blocks;
        self.stats.preemptions = counts.preemptions;
        // Sorts the errors of 512 steps, which is too much for every step.
        if self.stats.steps.is_multiple_of(COST_ERROR_STEPS) || self.streams.is_empty() {
            self.stats.cost_error = self.scheduler.model().error();
        }
        self.shared.publish(&self.stats);
        for (stream, finished) in self.ended.drain(..) {
            stream.deliver(finished);
        }
    }

    /// What always holds between turns; an engine that has nothing to do checks itself, and tests check every turn.
    pub(crate) fn invariant(&self) -> Result<(), String> {
        self.scheduler.invariant()?;
        let (waiting, running) = (self.scheduler.waiting(), self.scheduler.running());
        if waiting + running != self.streams.len() {
            return Err(format!("{waiting} + {running} sequences have {} streams", self.streams.len()));
        }
        if self.streams.is_empty() && self.scheduler.blocks().held() > 0 {
            return Err("blocks are held and nobody is there".to_string());
        }
        Ok(())
    }
}

/// A token as its reader sees it.
fn logprob(codec: &dyn Codec, token: &NewToken) -> TokenLogprob {
    let bytes = |token| codec.token_bytes(token).to_vec();
    TokenLogprob {
        token: token.token,
        bytes: bytes(token.token),
        logprob: token.logprob,
        top: token.top.iter().map(|(other, logprob)| (*other, bytes(*other), *logprob)).collect(),
    }
}

/// Runs a step; a panic in the runner is a failed step like any other, because one request's bad luck must not end
/// everyone's service.
fn run_caught(runner: &mut dyn Runner, plan: &StepPlan) -> Result<StepOutput, RunError> {
    std::panic::catch_unwind(AssertUnwindSafe(|| runner.run(plan))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "no message".to_string());
        Err(RunError::Device(format!("the runner panicked: {text}")))
    })
}
