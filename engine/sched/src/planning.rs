//! What does the next step compute? Decodes first, then the chunks that the running streams bear.

use crate::plan::{BlockCopy, StepPlan};
use crate::radix::NodeId;
use crate::scheduler::{InFlight, Scheduler};
use crate::sequence::{Sequence, Turn, Urgency};
use crate::{Batching, Reservation, SeqId};
use budgets::{Moment, StepShape};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// A waiting sequence that has less time than this left before it must start may preempt others: about a step.
const JUST_IN_TIME: Duration = Duration::from_millis(100);

/// Who may get a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Candidate {
    /// A place in `running`.
    Running(usize),
    Waiting {
        seq: SeqId,
        /// Its patience has ended.
        aged: bool,
    },
}

/// What is left to give to chunks in this step.
#[derive(Clone, Copy)]
struct Room {
    shape: StepShape,
    /// The step should not take longer.
    limit: Duration,
    prefill_tokens: usize,
    /// Blocks that are neither in use nor promised to a running prefill.
    blocks: usize,
    /// More sequences that may run.
    places: usize,
}

impl Scheduler {
    /// Plans the next step: one row per decoding sequence, then prefill chunks, the least slack first. An empty plan
    /// means that there is nothing to do. Nothing is planned for a sequence whose deadline has passed.
    pub fn schedule(&mut self, now: Moment) -> StepPlan {
        debug_assert!(self.in_flight.is_empty(), "the step before was neither committed nor failed");
        self.in_flight.clear();
        self.running.iter_mut().for_each(|sequence| sequence.turn = Turn::Open);
        self.let_go_of_the_late(now);
        let mut plan = StepPlan::default();
        // Whole batches: nobody joins before the last of the batch has ended.
        let open = self.policy.batching == Batching::Continuous || self.running.is_empty();
        if open {
            self.make_way(now);
        }
        self.plan_decodes(now, &mut plan);
        self.plan_prefills(now, open, &mut plan);
        self.requeue();
        plan
    }

    /// A first token that would come too late even if nothing else were computed is urgent no more. Least slack alone
    /// would put what is lost before what can still be in time, and under overload hardly anyone would be.
    fn let_go_of_the_late(&mut self, now: Moment) {
        let block_tokens = self.runner.block_tokens;
        for at in 0..self.waiting.len() {
            if self.waiting[at].seems_late(now) {
                // What it would find in the tree need not be computed.
                let found = self.cached_path(&self.waiting[at]).len() * block_tokens;
                self.waiting[at].wait_longer(found, &self.model);
                self.waiting[at].give_up_when_late(found, &self.model, now);
            }
        }
        for sequence in self.running.iter_mut().filter(|sequence| sequence.seems_late(now)) {
            sequence.give_up_when_late(sequence.computed, &self.model, now);
        }
    }

    /// Preempts patient sequences for waiting ones whose deadline leaves no more time to wait. Those that still have time
    /// wait for a place that becomes free by itself.
    fn make_way(&mut self, now: Moment) {
        let soon = now.plus(JUST_IN_TIME);
        let pressed = self.waiting.iter().enumerate().filter(|(_, sequence)| {
            sequence.pressed() && sequence.urgency < Urgency::at(soon) && !sequence.due().expired(now)
        });
        let Some((at, first)) = pressed.min_by_key(|(_, sequence)| sequence.urgency) else { return };
        let urgency = first.urgency;
        let path = self.cached_path(first);
        self.waiting[at].wants = None;
        let fits = |scheduler: &Self| {
            let first = &scheduler.waiting[at];
            let need = scheduler.blocks_needed(first) - path.len() + scheduler.cache.unlocked(&path);
            scheduler.places_taken() < scheduler.limits.running_sequences_max
                && need + scheduler.spare(first) <= scheduler.blocks_unpromised()
        };
        // Nobody gives way in vain.
        if fits(self) || !self.fits_without_patient(&self.waiting[at], &path) {
            return;
        }
        while !fits(self) && self.give_way(urgency).is_some() {}
    }

    /// Would `first`, which finds `path` in the tree, have its blocks if all that are more patient gave way? What they
    /// share with those that stay would not be free.
    fn fits_without_patient(&self, first: &Sequence, path: &[NodeId]) -> bool {
        let mut stays = vec![false; self.blocks().total()];
        let (mut sequences, mut used, mut promised) = (0, 0, 0);
        for sequence in self.running.iter().filter(|sequence| sequence.urgency < first.urgency) {
            sequences += 1;
            promised += self.blocks_needed(sequence).saturating_sub(sequence.table.len());
            for block in &sequence.table {
                used += usize::from(!std::mem::replace(&mut stays[block.0 as usize], true));
            }
        }
        let there = path.iter().filter(|node| stays[self.cache.block(**node).0 as usize]).count();
        let need = self.blocks_needed(first) - there + first.spare(sequences);
        need + used + promised <= self.blocks().total()
    }

    fn plan_decodes(&mut self, now: Moment, plan: &mut StepPlan) {
        let all = self.running.iter().enumerate();
        let ready = all.filter(|(_, sequence)| sequence.decodes() && !sequence.due().expired(now));
        let mut order: Vec<(Urgency, usize)> = ready.map(|(at, sequence)| (sequence.urgency, at)).collect();
        order.sort_unstable();
        for (_, at) in order {
            if self.running[at].turn == Turn::Open {
                self.plan_row(at, 1, plan);
            }
        }
    }

    /// Chunks for prompts. Waiting and running sequences compete on the same terms: an urgent newcomer overtakes a
    /// patient long prompt that is half done.
    fn plan_prefills(&mut self, now: Moment, open: bool, plan: &mut StepPlan) {
        let shape = plan.shape();
        let mut room = Room {
            limit: self.step_limit(now, &shape),
            shape,
            prefill_tokens: self.limits.step_prefill_tokens_max,
            blocks: self.blocks_unpromised(),
            places: self.limits.running_sequences_max.saturating_sub(self.places_taken()),
        };
        let mut candidates = self.candidates(now, open && room.places > 0, &room);
        while let Some(Reverse((_, candidate))) = candidates.pop() {
            let spent = room.prefill_tokens == 0 || self.chunk(0, usize::MAX, &room) == 0;
            // Nobody can join a whole batch later, so it is filled up beyond what this step computes.
            if spent && self.policy.batching == Batching::Continuous {
                break;
            }
            let at = match candidate {
                Candidate::Running(at) => Some(at).filter(|at| self.running[*at].turn == Turn::Open),
                // Who cannot be admitted yet is passed over and blocks nobody behind it, up to the end of its patience:
                // a large one would else wait for ever, because small ones always fit into what becomes free.
                Candidate::Waiting { seq, aged } => {
                    let at = self.admit(seq, &mut room, (!spent).then_some(&mut *plan));
                    if room.places == 0 || aged && at.is_none() {
                        candidates.retain(|Reverse((_, other))| matches!(other, Candidate::Running(_)));
                    }
                    at
                }
            };
            let Some(at) = at.filter(|_| !spent) else { continue };
            self.follow_cache(at);
            let sequence = &self.running[at];
            // At least one token, since a copy into its first own block may be planned already. Its own deadline bounds
            // its own chunk even when it cannot be kept: past it nothing is computed.
            let own = Room { limit: room.limit.min(sequence.time_to_due(now)), ..room };
            let count = self.chunk(sequence.computed, sequence.uncomputed(), &own).max(1);
            let planned = self.plan_row(at, count, plan);
            if let Some(row) = plan.rows.last().filter(|_| planned > 0) {
                row.add_to(&mut room.shape);
                room.prefill_tokens = room.prefill_tokens.saturating_sub(planned);
                room.limit = room.limit.min(self.running[at].time_left(now));
            }
        }
    }

    /// Who may get a chunk, the least slack on top. A heap, because most steps look at few of a long queue.
    fn candidates(&self, now: Moment, open: bool, room: &Room) -> BinaryHeap<Reverse<(Urgency, Candidate)>> {
        let running = self.running.iter().enumerate().filter(|(_, sequence)| {
            !sequence.decodes() && sequence.turn == Turn::Open && !sequence.due().expired(now)
        });
        let running = running.map(|(at, sequence)| (sequence.urgency, Candidate::Running(at)));
        let waiting = self.waiting.iter().filter(|sequence| open && !sequence.due().expired(now));
        let waiting = waiting.filter_map(|sequence| {
            let (seq, aged) = (sequence.id, sequence.aged <= now);
            let lacks = sequence.wants.is_some_and(|blocks| blocks + self.spare(sequence) > room.blocks);
            (aged || !lacks).then_some((sequence.urgency, Candidate::Waiting { seq, aged }))
        });
        running.chain(waiting).map(Reverse).collect()
    }

    /// How long the step may take: as long as the most impatient stream in it bears, and no longer than the nearest
    /// deadline that a running sequence can keep, because a step cannot be broken off.
    fn step_limit(&self, now: Moment, decodes: &StepShape) -> Duration {
        let bearable = self.model.predict(decodes).mul_f64(self.policy.step_stretch_max);
        let in_step = self.running.iter().filter(|sequence| sequence.turn == Turn::Planned);
        let streams = in_step.map(|sequence| sequence.tpot.unwrap_or(bearable)).min();
        let dues = self.running.iter().map(|sequence| sequence.time_left(now)).min();
        streams.unwrap_or(Duration::MAX).min(dues.unwrap_or(Duration::MAX))
    }

    /// How many tokens a chunk at `start` with `uncomputed` tokens ahead may have.
    fn chunk(&self, start: usize, uncomputed: usize, room: &Room) -> usize {
        if !self.policy.chunked_prefill {
            return uncomputed;
        }
        let most = uncomputed.min(room.prefill_tokens);
        let bearable = self.model.prefill_tokens_within(&room.shape, start, most, room.limit);
        // The first chunk of a step is never refused, or prompts would starve behind streams that bear nothing.
        let least = if room.shape.prefill_rows == 0 { self.limits.step_prefill_tokens_min } else { 0 };
        bearable.max(least.min(most))
    }

    /// The place of `seq` in `running`, after moving it there with what the tree holds of it, if there are blocks for
    /// all its tokens and one more. More than that is not reserved: who runs out of blocks later takes them from
    /// whoever has more time. Without `plan` it gets no row in this step, and so nothing can be copied for it.
    fn admit(&mut self, seq: SeqId, room: &mut Room, plan: Option<&mut StepPlan>) -> Option<usize> {
        if room.places == 0 {
            return None;
        }
        let at = self.waiting.iter().position(|known| known.id == seq)?;
        let spare = self.spare(&self.waiting[at]);
        if self.waiting[at].wants.is_some_and(|blocks| blocks + spare > room.blocks) {
            return None;
        }
        let path = self.cached_path(&self.waiting[at]);
        let need = self.blocks_needed(&self.waiting[at]) - path.len() + self.cache.unlocked(&path);
        if need + spare > room.blocks {
            // The try costs a walk through the tree, so it is repeated only when there is as much room as it lacked.
            self.waiting[at].wants = Some(need);
            return None;
        }
        room.blocks -= need;
        room.places -= 1;
        let mut sequence = self.waiting.swap_remove(at);
        sequence.turn = Turn::Open;
        sequence.wants = None;
        self.take_path(&mut sequence, path, plan);
        self.running.push(sequence);
        Some(self.running.len() - 1)
    }

    /// Locks the cached blocks of a sequence that is admitted; a block of which it can use a part is copied.
    fn take_path(&mut self, sequence: &mut Sequence, path: Vec<NodeId>, plan: Option<&mut StepPlan>) {
        path.iter().for_each(|node| self.cache.lock(*node));
        sequence.table = path.iter().map(|node| self.cache.block(*node)).collect();
        sequence.path = path;
        let start = sequence.path.len() * self.runner.block_tokens;
        sequence.computed = start;
        if let Some(plan) = plan.filter(|_| self.policy.prefix_cache) {
            let usable = &sequence.tokens[..sequence.tokens.len() - 1];
            let partial = self.cache.partial(&sequence.key, sequence.path.last().copied(), usable, start);
            if let Some(partial) = partial {
                self.cache.touch(partial.node);
                let from = self.cache.block(partial.node);
                // When nothing else is left this takes the very block; its content then is in place already.
                if let Some(own) = self.cache.take() {
                    if own.id() != from {
                        plan.copies.push(BlockCopy { from, to: own.id() });
                    }
                    sequence.table.push(own.id());
                    sequence.own.push(own);
                    sequence.computed += partial.tokens;
                }
            }
        }
        sequence.counts_hits = !std::mem::replace(&mut sequence.started, true);
        if sequence.counts_hits && self.policy.prefix_cache {
            sequence.cached_tokens = sequence.computed;
            self.counts.prefix_query_tokens += sequence.prompt_tokens as u64;
            self.counts.prefix_hit_tokens += sequence.computed as u64;
        }
    }

    /// The nodes that hold the sequence's first full blocks. Its last token is left out: it must be computed to know
    /// what comes next.
    fn cached_path(&self, sequence: &Sequence) -> Vec<NodeId> {
        let mut path: Vec<NodeId> = Vec::new();
        if !self.policy.prefix_cache {
            return path;
        }
        let usable = &sequence.tokens[..sequence.tokens.len() - 1];
        loop {
            let start = path.len() * self.runner.block_tokens;
            let Some(node) = self.cache.child(&sequence.key, path.last().copied(), usable, start) else {
                return path;
            };
            path.push(node);
        }
    }

    /// Takes over blocks that another sequence with the same prompt has computed since this one was admitted.
    fn follow_cache(&mut self, at: usize) {
        let sequence = &mut self.running[at];
        while self.policy.prefix_cache && sequence.own.is_empty() {
            let usable = &sequence.tokens[..sequence.tokens.len() - 1];
            let last = sequence.path.last().copied();
            let Some(node) = self.cache.child(&sequence.key, last, usable, sequence.computed) else { return };
            self.cache.lock(node);
            sequence.path.push(node);
            sequence.table.push(self.cache.block(node));
            sequence.computed += self.runner.block_tokens;
            if sequence.counts_hits {
                sequence.cached_tokens += self.runner.block_tokens;
                self.counts.prefix_hit_tokens += self.runner.block_tokens as u64;
            }
        }
    }

    /// Grows the block table of `running[at]` for its next `count` tokens, as far as there are blocks, and adds the row
    /// that computes them. Returns how many.
    fn plan_row(&mut self, at: usize, count: usize, plan: &mut StepPlan) -> usize {
        let block_tokens = self.runner.block_tokens;
        let wanted = (self.running[at].computed + count).div_ceil(block_tokens);
        while self.running[at].table.len() < wanted {
            let Some(block) = self.take_block(self.running[at].urgency) else { break };
            let sequence = &mut self.running[at];
            sequence.table.push(block.id());
            sequence.own.push(block);
        }
        let sequence = &mut self.running[at];
        let count = count.min(sequence.table.len() * block_tokens - sequence.computed);
        if count == 0 {
            return 0;
        }
        let row = sequence.row(count, block_tokens);
        sequence.turn = Turn::Planned;
        self.in_flight.push(InFlight { seq: row.seq, at, tokens: count, draws: row.draw.is_some() });
        plan.rows.push(row);
        count
    }

    /// A block for a sequence of that urgency: free, cached, or from a sequence that has more time.
    fn take_block(&mut self, urgency: Urgency) -> Option<crate::Block> {
        loop {
            if let Some(block) = self.cache.take() {
                return Some(block);
            }
            self.give_way(urgency)?;
        }
    }

    /// Preempts the sequence with the most time, if it has more than `urgency` and no row in this step. What it computed
    /// stays in the tree until its blocks are needed, so that it may find it again.
    fn give_way(&mut self, urgency: Urgency) -> Option<()> {
        let open = self.running.iter().enumerate().filter(|(_, sequence)| sequence.turn == Turn::Open);
        let (at, most) = open.max_by_key(|(_, sequence)| sequence.urgency)?;
        if most.urgency <= urgency {
            return None;
        }
        // It stays in its place until the step is planned, so that places hold; `requeue` moves it.
        let sequence = &mut self.running[at];
        sequence.release(&mut self.cache, self.policy.prefix_cache);
        sequence.turn = Turn::GaveWay;
        self.counts.preemptions += 1;
        Some(())
    }

    /// Those that gave way go back to the queue.
    fn requeue(&mut self) {
        let gone = self.running.extract_if(.., |sequence| sequence.turn == Turn::GaveWay);
        self.waiting.extend(gone);
    }

    /// Places in the running batch that are not free after those who gave way.
    fn places_taken(&self) -> usize {
        self.running.iter().filter(|sequence| sequence.turn != Turn::GaveWay).count()
    }

    fn spare(&self, sequence: &Sequence) -> usize {
        sequence.spare(self.places_taken())
    }

    /// Blocks that hold all known tokens of a sequence and the next one.
    fn blocks_needed(&self, sequence: &Sequence) -> usize {
        match self.policy.reservation {
            Reservation::Paged => (sequence.tokens.len() + 1).div_ceil(self.runner.block_tokens),
            Reservation::Contiguous => self
                .runner
                .context_tokens_max
                .div_ceil(self.runner.block_tokens)
                .min(self.runner.blocks_total),
        }
    }

    /// Free and cached blocks less those that running sequences still need for what they know.
    fn blocks_unpromised(&self) -> usize {
        let running = self.running.iter().filter(|sequence| sequence.turn != Turn::GaveWay);
        let promised: usize =
            running.map(|sequence| self.blocks_needed(sequence).saturating_sub(sequence.table.len())).sum();
        self.cache.available().saturating_sub(promised)
    }
}
