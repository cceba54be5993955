//! How far is one request? A sequence's tokens, its blocks and what it may still need.

use crate::blocks::Block;
use crate::key::{KvSpace, PrefixKey, Tenant};
use crate::radix::{NodeId, PrefixCache};
use crate::{BlockId, Draw, RowPlan, Sampling, SeqId, Span, TokenId, TokenMask};
use budgets::{CostModel, Deadline, Moment, StepShape};
use std::sync::Arc;
use std::time::Duration;

/// A request as the scheduler sees it.
#[derive(Clone, Debug)]
pub struct SeqRequest {
    /// The prompt; not empty.
    pub prompt: Vec<TokenId>,
    /// How tokens are chosen.
    pub sampling: Arc<Sampling>,
    /// At most this many tokens are drawn; at least 1.
    pub output_tokens_max: usize,
    /// None of `end_tokens` is drawn before this many tokens.
    pub output_tokens_min: usize,
    /// Tokens that end an answer.
    pub end_tokens: Arc<[TokenId]>,
    /// Holds until the first token is drawn.
    pub first_token_deadline: Deadline,
    /// Holds until the end.
    pub deadline: Deadline,
    /// Longest mean time between tokens.
    pub tpot: Option<Duration>,
    /// When it came.
    pub arrived: Moment,
    /// Whose KV it is.
    pub tenant: Tenant,
    /// The prompt's first tokens, which every tenant may share.
    pub shared_tokens: usize,
    /// What else its KV depends on.
    pub space: KvSpace,
}

impl SeqRequest {
    /// A request that arrived at `arrived`, greedy, without deadlines, of no tenant.
    pub fn new(prompt: Vec<TokenId>, output_tokens_max: usize, arrived: Moment) -> Self {
        Self {
            prompt,
            sampling: Arc::new(Sampling::default()),
            output_tokens_max,
            output_tokens_min: 0,
            end_tokens: Arc::new([]),
            first_token_deadline: Deadline::NEVER,
            deadline: Deadline::NEVER,
            tpot: None,
            arrived,
            tenant: Tenant::default(),
            shared_tokens: 0,
            space: KvSpace::default(),
        }
    }
}

/// Where a sequence stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It was never admitted; nothing was planned for it.
    Queue,
    /// It was admitted; no token is drawn.
    Prefill,
    /// At least one token is drawn.
    Decode,
}

/// Sorts sequences: the smallest goes first, the largest gives way first. No two are equal.
///
/// The first part is the latest moment at which the sequence could start and still be in time: what it is due at, less
/// what it takes alone; or, when that is earlier, the moment at which its patience ends. It is the slack up to the
/// moment of asking, which is the same for all, and it stands still while the sequence is computed. Slack that grew with
/// progress would let two sequences preempt each other in turn; with a fixed order the first one is never preempted and
/// ends, then the next, so that every sequence ends. Undated sequences stand in order of arrival, whatever their length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Urgency {
    latest_start: Moment,
    arrived: Moment,
    id: SeqId,
}

impl Urgency {
    /// Stands before every sequence that may start at `moment` or later.
    pub(crate) fn at(moment: Moment) -> Self {
        Self { latest_start: moment, arrived: Moment::default(), id: SeqId(0) }
    }
}

/// A sequence from its submission to its end.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) id: SeqId,
    /// The prompt, then what was drawn.
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) prompt_tokens: usize,
    /// Tokens whose KV is in the blocks.
    pub(crate) computed: usize,
    /// Locked nodes of the tree: the first blocks.
    pub(crate) path: Vec<NodeId>,
    /// The blocks after those, which nobody else sees.
    pub(crate) own: Vec<Block>,
    /// Names of all its blocks, in order.
    pub(crate) table: Vec<BlockId>,
    pub(crate) key: PrefixKey,
    pub(crate) output_tokens_max: usize,
    output_tokens_min: usize,
    pub(crate) urgency: Urgency,
    /// What its prompt takes, computed alone.
    work: Duration,
    /// It cannot keep its first token's deadline, as far as the cost model knows.
    pub(crate) late: bool,
    /// When its wait has been long enough.
    pub(crate) aged: Moment,
    pub(crate) tpot: Option<Duration>,
    /// Prompt tokens that were found in the tree before the first draw.
    pub(crate) cached_tokens: usize,
    /// It has not been computed before, so what it finds in the tree is saved.
    pub(crate) counts_hits: bool,
    /// It was admitted once.
    pub(crate) started: bool,
    /// Blocks for which it waits, as its last try to be admitted found.
    pub(crate) wants: Option<usize>,
    pub(crate) allowed: Option<Arc<TokenMask>>,
    /// What it did in the step that is being planned.
    pub(crate) turn: Turn,
    sampling: Arc<Sampling>,
    end_tokens: Arc<[TokenId]>,
    no_tokens: Arc<[TokenId]>,
    first_token_deadline: Deadline,
    deadline: Deadline,
    arrived: Moment,
}

/// A sequence's part in the step that is being planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Turn {
    /// None yet: it may give way.
    #[default]
    Open,
    /// A row.
    Planned,
    /// Its blocks went to another.
    GaveWay,
}

impl Sequence {
    /// `work` is what the prompt takes when it is computed alone; undated sequences count as due after `patience`.
    pub(crate) fn new(
        id: SeqId,
        request: SeqRequest,
        output_tokens_max: usize,
        work: Duration,
        patience: Duration,
    ) -> Self {
        let mut sequence = Self {
            id,
            prompt_tokens: request.prompt.len(),
            tokens: request.prompt,
            computed: 0,
            path: Vec::new(),
            own: Vec::new(),
            table: Vec::new(),
            key: PrefixKey {
                space: request.space,
                tenant: request.tenant,
                shared_tokens: request.shared_tokens,
            },
            output_tokens_max,
            output_tokens_min: request.output_tokens_min,
            urgency: Urgency { latest_start: request.arrived, arrived: request.arrived, id },
            work,
            late: false,
            aged: request.arrived.plus(patience),
            tpot: request.tpot,
            cached_tokens: 0,
            counts_hits: true,
            started: false,
            wants: None,
            allowed: None,
            turn: Turn::Open,
            no_tokens: Arc::new([]),
            sampling: request.sampling,
            end_tokens: request.end_tokens,
            first_token_deadline: request.first_token_deadline,
            deadline: request.deadline,
            arrived: request.arrived,
        };
        sequence.renew_urgency();
        sequence
    }

    /// The order changes when the first token's deadline no longer counts and when it cannot be kept. In between it
    /// changes only for a waiting sequence that would find more in the tree than there was when it came, and then it
    /// goes back: who gave way does not displace in turn whom it gave way to.
    fn renew_urgency(&mut self) {
        let latest_start = self.latest_start().map_or(self.aged, |latest| latest.min(self.aged));
        self.urgency = Urgency { latest_start, arrived: self.arrived, id: self.id };
    }

    /// Its first token would be late if everything that was expected of it were still to do.
    pub(crate) fn seems_late(&self, now: Moment) -> bool {
        self.drawn() == 0 && self.latest_start().is_some_and(|latest| latest <= now)
    }

    /// Its first `computed` tokens need not be computed: it may start later.
    pub(crate) fn wait_longer(&mut self, computed: usize, model: &CostModel) {
        self.work = self.rest(computed, model);
        self.renew_urgency();
    }

    /// Its first token's deadline counts no more if it would pass even while nothing but the tokens after the first
    /// `computed` is computed.
    pub(crate) fn give_up_when_late(&mut self, computed: usize, model: &CostModel, now: Moment) {
        self.late = self.due().expired(now.plus(self.rest(computed, model)));
        if self.late {
            self.renew_urgency();
        }
    }

    /// What its known tokens after the first `computed` take alone.
    fn rest(&self, computed: usize, model: &CostModel) -> Duration {
        let mut rest = StepShape::default();
        rest.add_prefill(computed, self.tokens.len() - computed, true);
        model.predict(&rest)
    }

    /// How long a step may take for its sake: not at all bounded when its deadline cannot be kept anyway.
    pub(crate) fn time_left(&self, now: Moment) -> Duration {
        if self.late { Duration::MAX } else { self.time_to_due(now) }
    }

    /// The time until its deadline. What comes at the deadline comes too late.
    pub(crate) fn time_to_due(&self, now: Moment) -> Duration {
        self.due().remaining(now).map_or(Duration::MAX, |left| left.saturating_sub(Duration::from_nanos(1)))
    }

    /// `None` without a deadline that can be kept.
    fn latest_start(&self) -> Option<Moment> {
        self.due().moment().filter(|_| !self.late).map(|due| due.minus(self.work))
    }

    /// Its deadline, not its wait, makes it urgent: others may be preempted to let it in.
    pub(crate) fn pressed(&self) -> bool {
        self.latest_start().is_some_and(|latest| latest < self.aged)
    }

    pub(crate) fn drawn(&self) -> usize {
        self.tokens.len() - self.prompt_tokens
    }

    pub(crate) fn phase(&self) -> Phase {
        match (self.started, self.drawn()) {
            (false, _) => Phase::Queue,
            (true, 0) => Phase::Prefill,
            (true, _) => Phase::Decode,
        }
    }

    /// Its next row is one token after everything else was computed.
    pub(crate) fn decodes(&self) -> bool {
        self.drawn() > 0 && self.uncomputed() == 1
    }

    /// Blocks that stay free when it is admitted again beside `running` others: without two for the next tokens of each,
    /// it would give way again at once, and what it computed anew would be lost.
    pub(crate) fn spare(&self, running: usize) -> usize {
        if self.started { 2 * running } else { 0 }
    }

    /// Nothing may be drawn after these many tokens.
    pub(crate) fn full(&self) -> bool {
        self.drawn() >= self.output_tokens_max
    }

    /// The deadline that counts now.
    pub(crate) fn due(&self) -> Deadline {
        match self.drawn() {
            0 => self.deadline.min(self.first_token_deadline),
            _ => self.deadline,
        }
    }

    /// Tokens that are known and not computed: one in decode, what is left of the prompt in prefill.
    pub(crate) fn uncomputed(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Adds a drawn token.
    pub(crate) fn push(&mut self, token: TokenId) {
        self.tokens.push(token);
        self.allowed = None;
        if self.drawn() == 1 {
            self.late = false;
            self.renew_urgency();
        }
    }

    /// Moves the computed full blocks into the tree, where others find them.
    pub(crate) fn share(&mut self, cache: &mut PrefixCache) {
        let block_tokens = cache.block_tokens();
        let full = (self.computed / block_tokens).saturating_sub(self.path.len()).min(self.own.len());
        for block in self.own.drain(..full) {
            let place = self.path.len();
            let parent = self.path.last().copied();
            let node = cache.insert(&self.key, parent, &self.tokens, place * block_tokens, block);
            self.table[place] = cache.block(node);
            self.path.push(node);
        }
    }

    /// Gives all blocks back; with `keep`, what is computed stays in the tree.
    pub(crate) fn release(&mut self, cache: &mut PrefixCache, keep: bool) {
        if keep {
            self.share(cache);
            let start = self.path.len() * cache.block_tokens();
            if self.computed > start && !self.own.is_empty() {
                let tail = self.own.remove(0);
                let computed = &self.tokens[..self.computed];
                cache.insert_tail(&self.key, self.path.last().copied(), computed, start, tail);
            }
        }
        for block in self.own.drain(..) {
            cache.release(block);
        }
        cache.unlock(&self.path);
        self.path.clear();
        self.table.clear();
        self.computed = 0;
    }

    /// The row that computes the next `count` tokens; the block table must already reach that far.
    pub(crate) fn row(&self, count: usize, block_tokens: usize) -> RowPlan {
        let end = self.computed + count;
        let blocks = self.table[..end.div_ceil(block_tokens)].to_vec();
        RowPlan {
            seq: self.id,
            tokens: self.tokens[self.computed..end].to_vec(),
            start: self.computed,
            spans: vec![Span { blocks, len: end, shift: 0 }],
            draw: (end == self.tokens.len()).then(|| self.draw()),
        }
    }

    fn draw(&self) -> Draw {
        // The penalty is the only reader of `seen`, and copying a long context for nothing costs every step.
        #[allow(clippy::float_cmp)] // 1 is a setting that means "off", not a result.
        let penalised = self.sampling.repetition_penalty != 1.0;
        // A grammar that must end ends: nothing else would be left to draw.
        let goes_on = || self.allowed.as_ref().is_none_or(|allowed| allowed.allows_besides(&self.end_tokens));
        let banned = self.drawn() < self.output_tokens_min && goes_on();
        Draw {
            sampling: Arc::clone(&self.sampling),
            index: self.drawn() as u64,
            seen: if penalised { self.tokens.clone() } else { Vec::new() },
            banned: if banned { Arc::clone(&self.end_tokens) } else { Arc::clone(&self.no_tokens) },
            allowed: self.allowed.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urgency(id: u64, change: impl FnOnce(&mut SeqRequest), work_ms: u64) -> Urgency {
        let mut request = SeqRequest::new(vec![1], 4, Moment::from_nanos(id));
        change(&mut request);
        let work = Duration::from_millis(work_ms);
        Sequence::new(SeqId(id), request, 4, work, Duration::from_secs(30)).urgency
    }

    fn due(ms: u64) -> Deadline {
        Deadline::after(Moment::default(), Duration::from_millis(ms))
    }

    #[test]
    fn least_slack_first_and_patience_ends() {
        let undated = urgency(1, |_| {}, 0);
        let soon = urgency(2, |request| request.deadline = due(500), 0);
        let first_soon = urgency(3, |request| request.first_token_deadline = due(400), 0);
        let long = urgency(4, |request| request.deadline = due(800), 450);
        let far = urgency(5, |request| request.deadline = due(3_600_000), 0);
        let mut order = [far, undated, soon, long, first_soon];
        order.sort_unstable();
        // A deadline an hour away is no reason to wait longer than an undated request waits.
        assert_eq!(order, [long, first_soon, soon, undated, far]);
        let late = urgency(6, |request| request.arrived = Moment::from_nanos(29_000_000_000), 0);
        let late_and_soon = urgency(
            7,
            |request| {
                request.arrived = Moment::from_nanos(29_000_000_000);
                request.deadline = due(31_000);
            },
            0,
        );
        assert!(undated < late && undated < late_and_soon);
    }
}
