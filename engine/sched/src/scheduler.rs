//! Which sequences are there, and who owns which blocks? The scheduler's tables and their invariants; `planning` fills
//! a step from them and `commit` takes in what came out of it.

use crate::radix::PrefixCache;
use crate::sequence::{Phase, SeqRequest, Sequence};
use crate::{BlockPool, Policy, Refused, RunnerLimits, SeqId, TokenMask};
use budgets::{CostModel, Deadline, Limits, Moment, StepShape};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A sequence whose deadline passed; it is gone from the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// Whose.
    pub seq: SeqId,
    /// Where it stood.
    pub phase: Phase,
}

/// Sums since the scheduler was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedCounts {
    /// Prompt tokens that were looked up in the prefix cache, once for each sequence.
    pub prefix_query_tokens: u64,
    /// Those of them whose KV was there.
    pub prefix_hit_tokens: u64,
    /// Cached blocks that were taken for something else.
    pub evicted_blocks: u64,
    /// Sequences that gave way and were queued again.
    pub preemptions: u64,
}

/// A row of the plan that is being computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub(crate) seq: SeqId,
    /// Where it stood in `running` when it was planned.
    pub(crate) at: usize,
    pub(crate) tokens: usize,
    pub(crate) draws: bool,
}

/// Owns every sequence and the block accounts. It has no clock and computes nothing: `now` is passed in, plans go out.
///
/// A turn is [`Scheduler::expire`], [`Scheduler::schedule`], then [`Scheduler::commit`],
/// [`Scheduler::repeat_step_without`] or [`Scheduler::fail_step`]. One word per end: expired and last tokens are reported where they happen, and
/// [`Scheduler::end`] serves all ends that the caller decides (end token, stop string, cancel).
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) runner: RunnerLimits,
    pub(crate) limits: Limits,
    pub(crate) policy: Policy,
    pub(crate) cache: PrefixCache,
    pub(crate) model: CostModel,
    /// New sequences, and those that gave way; in no order.
    pub(crate) waiting: Vec<Sequence>,
    /// In order of admission.
    pub(crate) running: Vec<Sequence>,
    pub(crate) in_flight: Vec<InFlight>,
    pub(crate) counts: SchedCounts,
    next_id: u64,
}

impl Scheduler {
    /// A scheduler for one runner.
    pub fn new(runner: RunnerLimits, limits: &Limits, policy: &Policy) -> Self {
        Self {
            runner: RunnerLimits { block_tokens: runner.block_tokens.max(1), ..runner },
            limits: limits.clone(),
            policy: policy.clone(),
            cache: PrefixCache::new(runner.blocks_total, runner.block_tokens),
            model: CostModel::default(),
            waiting: Vec::new(),
            running: Vec::new(),
            in_flight: Vec::new(),
            counts: SchedCounts::default(),
            next_id: 0,
        }
    }

    /// Puts a request into the queue.
    ///
    /// # Errors
    /// When it could never be computed, or too many wait.
    pub fn submit(&mut self, request: SeqRequest) -> Result<SeqId, Refused> {
        let worst = self.runner.worst_case(request.prompt.len(), request.output_tokens_max)?;
        let new = self.waiting.iter().filter(|sequence| !sequence.started).count();
        if new >= self.limits.queue_requests_max {
            return Err(Refused::QueueFull { waiting: new });
        }
        let id = SeqId(self.next_id);
        self.next_id += 1;
        let mut alone = StepShape::default();
        alone.add_prefill(0, request.prompt.len(), true);
        let work = self.model.predict(&alone);
        self.waiting.push(Sequence::new(id, request, worst.output_tokens_max, work, self.policy.patience));
        Ok(id)
    }

    /// Ends a sequence in any phase; nothing more is planned for it, and what was computed for it is kept for prompts
    /// that begin with the same tokens. Tells where it stood, or `None` when there is no such sequence (any more).
    pub fn end(&mut self, seq: SeqId) -> Option<Phase> {
        self.remove(seq, true)
    }

    /// As [`Scheduler::end`]; `keep` says whether its computed blocks can be trusted.
    pub(crate) fn remove(&mut self, seq: SeqId, keep: bool) -> Option<Phase> {
        // What the planned step copies for it may never be copied. Its full blocks are in the tree since they were committed.
        let keep = keep && !self.in_flight.iter().any(|row| row.seq == seq);
        if let Some(at) = self.running.iter().position(|known| known.id == seq) {
            let mut sequence = self.running.remove(at);
            let phase = sequence.phase();
            sequence.release(&mut self.cache, keep && self.policy.prefix_cache);
            return Some(phase);
        }
        let at = self.waiting.iter().position(|known| known.id == seq)?;
        Some(self.waiting.remove(at).phase())
    }

    /// Ends every sequence whose deadline has passed at `now`.
    pub fn expire(&mut self, now: Moment) -> Vec<Expired> {
        let sequences = self.waiting.iter().chain(&self.running);
        let due = sequences.filter(|sequence| sequence.due().expired(now)).map(|sequence| sequence.id);
        let due: Vec<SeqId> = due.collect();
        due.into_iter().filter_map(|seq| self.end(seq).map(|phase| Expired { seq, phase })).collect()
    }

    /// Sets which tokens the sequence's next draw may choose from; holds for one draw.
    pub fn set_allowed(&mut self, seq: SeqId, allowed: Option<Arc<TokenMask>>) {
        if let Some(sequence) = self.running.iter_mut().chain(&mut self.waiting).find(|known| known.id == seq)
        {
            sequence.allowed = allowed;
        }
    }

    /// Sequences that hold nothing and wait: new ones, and those that gave way.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Sequences in prefill or decode.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// The block accounts.
    pub fn blocks(&self) -> &BlockPool {
        self.cache.pool()
    }

    /// What it did so far.
    pub fn counts(&self) -> SchedCounts {
        SchedCounts { evicted_blocks: self.cache.evicted(), ..self.counts }
    }

    /// How long it believes that steps take.
    pub fn model(&self) -> &CostModel {
        &self.model
    }

    /// The same, to teach it.
    pub fn model_mut(&mut self) -> &mut CostModel {
        &mut self.model
    }

    /// Prompt tokens of a running sequence that were found in the prefix cache.
    pub fn cached_tokens(&self, seq: SeqId) -> Option<usize> {
        self.running.iter().find(|known| known.id == seq).map(|sequence| sequence.cached_tokens)
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
        let block_tokens = self.runner.block_tokens;
        let mut users = BTreeMap::new();
        let mut own = HashSet::new();
        for sequence in &self.running {
            let id = sequence.id;
            sequence.path.iter().for_each(|node| *users.entry(*node).or_default() += 1);
            if !sequence.own.iter().all(|block| own.insert(block.id())) {
                return Err(format!("a block of {id:?} is in two tables and not in the tree"));
            }
            let kept = sequence.path.iter().map(|node| self.cache.block(*node));
            let table: Vec<_> = kept.chain(sequence.own.iter().map(crate::Block::id)).collect();
            if table != sequence.table {
                return Err(format!("the table of {id:?} is not its blocks"));
            }
            if table.len() < sequence.computed.div_ceil(block_tokens) {
                return Err(format!("{id:?} has {} blocks for {} tokens", table.len(), sequence.computed));
            }
            if sequence.path.len() * block_tokens > sequence.computed {
                return Err(format!("{id:?} has blocks in the tree that are not computed"));
            }
            if sequence.uncomputed() == 0 || sequence.full() {
                return Err(format!("{id:?} runs and has nothing left to compute"));
            }
        }
        self.cache.invariant(&users)?;
        let blocks = self.blocks();
        let empty = |sequence: &Sequence| sequence.table.is_empty() && sequence.computed == 0;
        let new = self.waiting.iter().filter(|sequence| !sequence.started).count();
        let rules = [
            (
                blocks.free() + blocks.cached() + blocks.held() == blocks.total(),
                "free + cached + held = total",
            ),
            (own.len() + users.len() == blocks.held(), "blocks are held outside every table"),
            (self.running.len() <= self.limits.running_sequences_max, "too many sequences run"),
            (new <= self.limits.queue_requests_max, "too many sequences wait"),
            (self.waiting.iter().all(empty), "a waiting sequence holds blocks"),
        ];
        rules.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, rule)| Err((*rule).to_string()))
    }
}
