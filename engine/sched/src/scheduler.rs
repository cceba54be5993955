//! Which sequence goes next? Queue, running set and blocks; plans a step, then takes in what came out of it.

use crate::blocks::BlockPool;
use crate::sequence::{Phase, SeqRequest, Sequence};
use crate::{Refused, RunnerLimits, SeqId, StepOutput, StepPlan, TokenId};
use budgets::{Deadline, Limits, Moment};
use std::collections::HashSet;
use thiserror::Error;

/// A sequence whose deadline passed; it is gone from the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// Whose.
    pub seq: SeqId,
    /// Where it stood.
    pub phase: Phase,
}

/// A token that became part of a sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewToken {
    /// Whose.
    pub seq: SeqId,
    /// The token.
    pub token: TokenId,
    /// See [`crate::Drawn::logprob`].
    pub logprob: f32,
    /// It is the last that the sequence may have: the sequence is gone from the scheduler.
    pub last: bool,
}

/// What a step changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Committed {
    /// New tokens, in row order.
    pub tokens: Vec<NewToken>,
    /// Sequences whose token came after their deadline; that token is not theirs.
    pub expired: Vec<Expired>,
}

/// A step's output that does not answer its plan: a defect of the runner.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the runner's output does not match the plan: {0}")]
pub struct OutputMismatch(pub String);

/// A row of the plan that is being computed.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    seq: SeqId,
    tokens: usize,
    draws: bool,
}

/// Owns every sequence and the block accounts. It has no clock and computes nothing: `now` is passed in, plans go out.
///
/// A turn is [`Scheduler::expire`], [`Scheduler::schedule`], then [`Scheduler::commit`] or
/// [`Scheduler::fail_step`]. One word per end: expired and last tokens are reported where they happen, and
/// [`Scheduler::end`] serves all ends that the caller decides (end token, stop string, cancel).
#[derive(Debug)]
pub struct Scheduler {
    runner: RunnerLimits,
    queue_requests_max: usize,
    running_sequences_max: usize,
    step_prefill_tokens_max: usize,
    pool: BlockPool,
    /// Sum of `blocks_max` over `running`; never above the pool's total.
    blocks_reserved: usize,
    waiting: Vec<Sequence>,
    /// In order of admission.
    running: Vec<Sequence>,
    in_flight: Vec<InFlight>,
    next_id: u64,
}

impl Scheduler {
    /// A scheduler for one runner.
    pub fn new(runner: RunnerLimits, limits: &Limits) -> Self {
        Self {
            runner,
            queue_requests_max: limits.queue_requests_max,
            running_sequences_max: limits.running_sequences_max,
            step_prefill_tokens_max: limits.step_prefill_tokens_max,
            pool: BlockPool::new(runner.blocks_total),
            blocks_reserved: 0,
            waiting: Vec::new(),
            running: Vec::new(),
            in_flight: Vec::new(),
            next_id: 0,
        }
    }

    /// Puts a request into the queue.
    ///
    /// # Errors
    /// When it could never be computed, or too many wait.
    pub fn submit(&mut self, request: SeqRequest) -> Result<SeqId, Refused> {
        let worst = self.runner.worst_case(request.prompt.len(), request.output_tokens_max)?;
        if self.waiting.len() >= self.queue_requests_max {
            return Err(Refused::QueueFull { waiting: self.waiting.len() });
        }
        let id = SeqId(self.next_id);
        self.next_id += 1;
        self.waiting.push(Sequence::new(id, request, worst.output_tokens_max, worst.blocks));
        Ok(id)
    }

    /// Ends a sequence in any phase; nothing more is planned for it and its blocks are free. Tells where it stood,
    /// or `None` when there is no such sequence (any more).
    pub fn end(&mut self, seq: SeqId) -> Option<Phase> {
        if let Some(at) = self.running.iter().position(|known| known.id == seq) {
            let sequence = self.running.remove(at);
            let phase = sequence.phase();
            self.free(sequence);
            return Some(phase);
        }
        let at = self.waiting.iter().position(|known| known.id == seq)?;
        self.waiting.remove(at);
        Some(Phase::Queue)
    }

    /// Ends every sequence whose deadline has passed at `now`.
    pub fn expire(&mut self, now: Moment) -> Vec<Expired> {
        let due: Vec<SeqId> = self
            .waiting
            .iter()
            .chain(&self.running)
            .filter(|sequence| sequence.due().expired(now))
            .map(|sequence| sequence.id)
            .collect();
        due.into_iter().filter_map(|seq| self.end(seq).map(|phase| Expired { seq, phase })).collect()
    }

    /// Plans the next step: one row per decoding sequence, then prefill chunks. An empty plan means that there is
    /// nothing to do. Nothing is planned for a sequence whose deadline has passed.
    pub fn schedule(&mut self, now: Moment) -> StepPlan {
        debug_assert!(self.in_flight.is_empty(), "the step before was neither committed nor failed");
        self.in_flight.clear();
        let mut plan = StepPlan::default();
        self.plan_decodes(now, &mut plan);
        self.plan_prefills(now, &mut plan);
        plan
    }

    fn plan_decodes(&mut self, now: Moment, plan: &mut StepPlan) {
        for at in 0..self.running.len() {
            let sequence = &self.running[at];
            if sequence.phase() == Phase::Decode && !sequence.due().expired(now) {
                self.plan_row(at, 1, plan);
            }
        }
    }

    /// Chunks for prompts, the least remaining time first. Waiting and admitted sequences compete on the same terms:
    /// an urgent newcomer overtakes a patient long prompt that is half done.
    fn plan_prefills(&mut self, now: Moment, plan: &mut StepPlan) {
        let mut candidates: Vec<_> = self
            .running
            .iter()
            .chain(&self.waiting)
            .filter(|sequence| sequence.phase() != Phase::Decode && !sequence.due().expired(now))
            .map(Sequence::urgency)
            .collect();
        candidates.sort_unstable();
        let mut budget = self.step_prefill_tokens_max;
        for (_, _, seq) in candidates {
            if budget == 0 {
                break;
            }
            // Who cannot be admitted yet is passed over and blocks nobody behind it. Its own wait is bounded by its
            // deadline alone: ageing would let a patient giant hold up the urgent.
            let Some(at) = self.admit(seq) else { continue };
            let chunk = self.running[at].uncomputed().min(budget);
            budget -= chunk;
            self.plan_row(at, chunk, plan);
        }
    }

    /// The place of `seq` in `running`, after moving it there if its worst case fits.
    ///
    /// Reserving the worst case means that nothing admitted can run out of blocks, so there is no preemption; its
    /// price is that blocks stand idle for answers that end early. Preemption (a later change) replaces the
    /// reservation here and adds a way back from `running` to `waiting`.
    fn admit(&mut self, seq: SeqId) -> Option<usize> {
        if let Some(at) = self.running.iter().position(|known| known.id == seq) {
            return Some(at);
        }
        let at = self.waiting.iter().position(|known| known.id == seq)?;
        let need = self.waiting[at].blocks_max;
        let fits = self.blocks_reserved + need <= self.pool.total();
        if !fits || self.running.len() >= self.running_sequences_max {
            return None;
        }
        self.blocks_reserved += need;
        let sequence = self.waiting.remove(at);
        self.running.push(sequence);
        Some(self.running.len() - 1)
    }

    /// Grows the block table of `running[at]` to the next `count` tokens and adds the row that computes them.
    fn plan_row(&mut self, at: usize, count: usize, plan: &mut StepPlan) {
        let sequence = &mut self.running[at];
        let blocks = (sequence.computed + count).div_ceil(self.runner.block_tokens.max(1));
        debug_assert!(blocks <= sequence.blocks_max, "{:?} outgrew its reservation", sequence.id);
        while sequence.table.len() < blocks {
            let Some(block) = self.pool.take() else {
                // The reservation makes this impossible; without a block the row waits for the next step.
                debug_assert!(false, "a reserved block is missing");
                return;
            };
            sequence.table.push(block);
        }
        let row = sequence.row(count);
        self.in_flight.push(InFlight { seq: row.seq, tokens: count, draws: row.draw.is_some() });
        plan.rows.push(row);
    }

    /// Takes in what the planned step produced. A token that comes at or after its sequence's deadline is too late
    /// and expires the sequence.
    ///
    /// # Errors
    /// When `output` does not answer the plan, or names a token outside the vocabulary; then nothing is changed and
    /// [`Scheduler::fail_step`] is due.
    pub fn commit(&mut self, output: &StepOutput, now: Moment) -> Result<Committed, OutputMismatch> {
        self.check_output(output)?;
        let mut committed = Committed::default();
        let mut drawn = output.drawn.iter();
        for row in std::mem::take(&mut self.in_flight) {
            let drawn = if row.draws { drawn.next() } else { None };
            // Ended between schedule and commit: what was computed for it is dropped.
            let Some(sequence) = self.running.iter_mut().find(|known| known.id == row.seq) else { continue };
            sequence.computed += row.tokens;
            let Some(drawn) = drawn else { continue };
            if sequence.due().expired(now) {
                committed.expired.extend(self.end(row.seq).map(|phase| Expired { seq: row.seq, phase }));
                continue;
            }
            sequence.tokens.push(drawn.token);
            let last = sequence.full();
            if last {
                self.end(row.seq);
            }
            committed.tokens.push(NewToken {
                seq: row.seq,
                token: drawn.token,
                logprob: drawn.logprob,
                last,
            });
        }
        Ok(committed)
    }

    fn check_output(&self, output: &StepOutput) -> Result<(), OutputMismatch> {
        let want: Vec<SeqId> = self.in_flight.iter().filter(|row| row.draws).map(|row| row.seq).collect();
        let got: Vec<SeqId> = output.drawn.iter().map(|drawn| drawn.seq).collect();
        if want != got {
            return Err(OutputMismatch(format!("draws were due for {want:?} and came for {got:?}")));
        }
        match output.drawn.iter().find(|drawn| drawn.token as usize >= self.runner.vocab_tokens) {
            Some(drawn) => Err(OutputMismatch(format!("token {} is not in the vocabulary", drawn.token))),
            None => Ok(()),
        }
    }

    /// Ends every sequence of the planned step, because the step failed: their KV cannot be trusted.
    pub fn fail_step(&mut self) -> Vec<SeqId> {
        let rows = std::mem::take(&mut self.in_flight);
        rows.into_iter().filter_map(|row| self.end(row.seq).map(|_| row.seq)).collect()
    }

    fn free(&mut self, sequence: Sequence) {
        self.blocks_reserved -= sequence.blocks_max;
        for block in sequence.table {
            self.pool.release(block);
        }
    }

    /// Sequences for which nothing was planned yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Sequences in prefill or decode.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// The block accounts.
    pub fn blocks(&self) -> &BlockPool {
        &self.pool
    }

    /// The first deadline that will pass, if any sequence has one.
    pub fn next_deadline(&self) -> Deadline {
        let sequences = self.waiting.iter().chain(&self.running);
        sequences.fold(Deadline::NEVER, |first, sequence| first.min(sequence.due()))
    }

    /// What always holds between calls. Debug assertions, tests and simulations call this one function.
    ///
    /// # Errors
    /// Says what does not.
    pub fn invariant(&self) -> Result<(), String> {
        self.pool.invariant()?;
        let mut owned = HashSet::new();
        for sequence in &self.running {
            let id = sequence.id;
            for block in &sequence.table {
                if !owned.insert(block.id()) {
                    return Err(format!("{:?} of {id:?} is in two tables", block.id()));
                }
            }
            let blocks_computed = sequence.computed.div_ceil(self.runner.block_tokens.max(1));
            if sequence.table.len() < blocks_computed || sequence.table.len() > sequence.blocks_max {
                return Err(format!("{id:?} has {} blocks", sequence.table.len()));
            }
            if sequence.uncomputed() == 0 || sequence.full() {
                return Err(format!("{id:?} runs and has nothing left to compute"));
            }
        }
        let reserved: usize = self.running.iter().map(|sequence| sequence.blocks_max).sum();
        let rules = [
            (owned.len() == self.pool.held(), "blocks are held outside every table"),
            (reserved == self.blocks_reserved, "the reservation is not the sum of its parts"),
            (reserved <= self.pool.total(), "more is reserved than there is"),
            (self.running.len() <= self.running_sequences_max, "too many sequences run"),
            (self.waiting.len() <= self.queue_requests_max, "too many sequences wait"),
            (
                self.waiting.iter().all(|sequence| sequence.table.is_empty()),
                "a waiting sequence holds blocks",
            ),
        ];
        rules.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, rule)| Err((*rule).to_string()))
    }
}
