//! What happens to each request, step by step? The turn of an engine on a virtual clock, with everything that must always
//! hold checked on the way.

use super::live::Live;
use super::report::{SimReport, SimSlo};
use super::runner::SimRunner;
use super::traffic::{Cancel, End, Ended, SimRequest, Traffic};
use crate::{Committed, Policy, RunError, Runner as _, RunnerLimits, Scheduler, SeqId, StepPlan};
use budgets::{Clock as _, Deadline, Limits, Moment};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thiserror::Error;

/// Something that must always hold did not.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("step {step}: {broken}")]
pub struct SimError {
    /// Steps computed before.
    pub step: u64,
    /// What.
    pub broken: String,
}

/// How a simulation watches.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// [`Scheduler::invariant`] is asked every so many steps; 0 asks only at the end.
    pub check_every: u64,
    /// What counts as a good answer.
    pub slo: SimSlo,
    /// The scheduler knows the runner's cost model from the start; otherwise it learns from the steps alone.
    pub calibrated: bool,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self { check_every: 1, slo: SimSlo::default(), calibrated: true }
    }
}

/// A scheduler, a simulated runner and the requests between them.
#[derive(Debug)]
pub struct Simulation {
    scheduler: Scheduler,
    runner: SimRunner,
    limits: Limits,
    policy: Policy,
    runner_limits: RunnerLimits,
    options: SimOptions,
    live: BTreeMap<SeqId, Live>,
    /// Callers who go away at a time.
    leaving: BTreeSet<(Moment, SeqId)>,
    /// Known requests that have not come yet, by time and order, and whether each is the last that was asked for.
    coming: BTreeMap<(Moment, u64), (SimRequest, bool)>,
    known: u64,
    report: SimReport,
}

impl Simulation {
    /// A simulation that has not begun.
    pub fn new(runner: SimRunner, limits: &Limits, policy: &Policy, options: SimOptions) -> Self {
        let runner_limits = runner.limits();
        let mut scheduler = Scheduler::new(runner_limits, limits, policy);
        if options.calibrated {
            *scheduler.model_mut() = runner.cost().clone();
        }
        Self {
            scheduler,
            runner,
            limits: limits.clone(),
            policy: policy.clone(),
            runner_limits,
            options,
            live: BTreeMap::new(),
            leaving: BTreeSet::new(),
            coming: BTreeMap::new(),
            known: 0,
            report: SimReport { blocks_total: runner_limits.blocks_total, ..SimReport::default() },
        }
    }

    /// The scheduler, as the simulation left it.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Lets all of `traffic` pass.
    ///
    /// # Errors
    /// When something does not hold that always must.
    pub fn run(&mut self, traffic: &mut dyn Traffic) -> Result<SimReport, SimError> {
        let began = self.now();
        let turns = self.turns(traffic).and_then(|()| self.check_end());
        turns.map_err(|broken| SimError { step: self.report.steps, broken })?;
        self.report.elapsed = self.now().since(began);
        self.report.counts = self.scheduler.counts();
        Ok(self.report.clone())
    }

    fn now(&self) -> Moment {
        self.runner.clock().now()
    }

    fn turns(&mut self, traffic: &mut dyn Traffic) -> Result<(), String> {
        self.ask(traffic);
        loop {
            self.arrive(traffic)?;
            self.leave(traffic)?;
            let now = self.now();
            for expired in self.scheduler.expire(now) {
                self.end(expired.seq, End::Expired(expired.phase), traffic)?;
            }
            let plan = self.scheduler.schedule(now);
            if !plan.rows.is_empty() {
                self.step(&plan, traffic)?;
            } else if !self.live.is_empty() || !plan.copies.is_empty() {
                return Err(format!("nothing is planned and {} requests are there", self.live.len()));
            } else if let Some(((next, _), _)) = self.coming.first_key_value() {
                self.runner.clock().advance(next.since(now));
            } else {
                return Ok(());
            }
        }
    }

    /// Learns of the next request.
    fn ask(&mut self, traffic: &mut dyn Traffic) {
        if let Some(request) = traffic.next() {
            self.expect(request, true);
        }
    }

    fn expect(&mut self, request: SimRequest, asked: bool) {
        self.known += 1;
        self.coming.insert((request.request.arrived, self.known), (request, asked));
    }

    /// Submits what has come.
    fn arrive(&mut self, traffic: &mut dyn Traffic) -> Result<(), String> {
        let now = self.now();
        while let Some(next) = self.coming.first_entry() {
            if next.key().0 > now {
                break;
            }
            // One request is always known ahead, besides follow-ups.
            let (SimRequest { tag, request, cancel }, asked) = next.remove();
            if asked {
                self.ask(traffic);
            }
            let mut live = Live {
                tag,
                arrived: request.arrived,
                prompt_tokens: request.prompt.len(),
                output_tokens_max: request.output_tokens_max,
                first_token_deadline: request.first_token_deadline,
                deadline: request.deadline,
                end_tokens: Arc::clone(&request.end_tokens),
                tokens: Vec::new(),
                first_token: None,
                last_token: request.arrived,
                cached_tokens: 0,
                planned: 0,
                cancel,
            };
            let worst = self.runner_limits.worst_case(request.prompt.len(), request.output_tokens_max);
            live.output_tokens_max = worst.map_or(0, |worst| worst.output_tokens_max);
            match self.scheduler.submit(request) {
                Ok(seq) => {
                    if let Some(Cancel::After(time)) = cancel {
                        self.leaving.insert((live.arrived.plus(time), seq));
                    }
                    self.live.insert(seq, live);
                }
                Err(refused) => self.close(&live, End::Refused(refused), traffic)?,
            }
        }
        Ok(())
    }

    /// Callers whose time to go has come.
    fn leave(&mut self, traffic: &mut dyn Traffic) -> Result<(), String> {
        while let Some((at, seq)) = self.leaving.first().copied().filter(|(at, _)| *at <= self.now()) {
            self.leaving.remove(&(at, seq));
            self.cancel(seq, traffic)?;
        }
        Ok(())
    }

    fn cancel(&mut self, seq: SeqId, traffic: &mut dyn Traffic) -> Result<(), String> {
        match (self.scheduler.end(seq), self.live.contains_key(&seq)) {
            (Some(phase), true) => self.end(seq, End::Cancelled(phase), traffic),
            (None, false) => Ok(()),
            (known, _) => Err(format!("{seq:?} has ended for one side only: {known:?}")),
        }
    }

    fn step(&mut self, plan: &StepPlan, traffic: &mut dyn Traffic) -> Result<(), String> {
        let began = self.now();
        self.check_plan(plan, began)?;
        self.observe(plan);
        self.check_state()?;
        self.leave_at_plan(plan, traffic)?;
        let output = self.runner.run(plan);
        let (now, took) = (self.now(), self.now().since(began));
        self.report.steps += 1;
        self.report.busy += took;
        match output {
            Ok(output) => {
                self.scheduler.model_mut().observe(&plan.shape(), took);
                let committed = self.scheduler.commit(output, now).map_err(|error| error.to_string())?;
                self.take_in(&committed, now, traffic)?;
            }
            // One sequence's own trouble: it alone ends, as in the engine.
            Err(RunError::NotFinite(seq) | RunError::NoTokenAllowed(seq)) => {
                // Its caller may have gone between the plan and the step.
                let there = self.live.contains_key(&seq);
                if !self.scheduler.repeat_step_without(seq) {
                    return Err(format!("{seq:?} failed and has no row"));
                }
                if there {
                    self.end(seq, End::Failed, traffic)?;
                }
            }
            Err(RunError::Device(_)) => {
                for seq in self.scheduler.fail_step() {
                    self.end(seq, End::Failed, traffic)?;
                }
            }
            Err(error) => return Err(error.to_string()),
        }
        self.check_state()
    }

    /// Keeps the plan what it promises?
    fn check_plan(&self, plan: &StepPlan, now: Moment) -> Result<(), String> {
        if plan.rows.len() > self.limits.running_sequences_max {
            return Err(format!("{} rows are planned", plan.rows.len()));
        }
        let mut prefill = 0;
        for row in &plan.rows {
            let Some(live) = self.live.get(&row.seq) else {
                return Err(format!("{:?} is planned after its end", row.seq));
            };
            if live.due().expired(now) {
                return Err(format!("{:?} is planned after its deadline", row.seq));
            }
            let known = live.prompt_tokens + live.tokens.len();
            let end = row.start + row.tokens.len();
            if end > known || row.draw.is_some() != (end == known) || live.full() {
                return Err(format!("{:?} knows {known} tokens, is planned to {end}", row.seq));
            }
            let decodes = row.tokens.len() == 1 && !live.tokens.is_empty() && row.draw.is_some();
            prefill += if decodes { 0 } else { row.tokens.len() };
        }
        match self.policy.chunked_prefill && prefill > self.limits.step_prefill_tokens_max {
            true => Err(format!("{prefill} tokens of chunks are planned")),
            false => Ok(()),
        }
    }

    fn observe(&mut self, plan: &StepPlan) {
        let (report, now) = (&mut self.report, self.runner.clock().now());
        let shape = plan.shape();
        report.prefill_tokens += shape.prefill_tokens as u64;
        report.rows += plan.rows.len() as u64;
        report.rows_max = report.rows_max.max(plan.rows.len());
        let held = self.scheduler.blocks().held();
        report.held_max = report.held_max.max(held);
        report.held_sum += held as u64;
        for row in &plan.rows {
            let Some(live) = self.live.get_mut(&row.seq) else { continue };
            if live.planned == 0 && live.deadline.min(live.first_token_deadline) == Deadline::NEVER {
                report.undated_wait_max = report.undated_wait_max.max(now.since(live.arrived));
            }
            live.planned += 1;
        }
    }

    fn check_state(&self) -> Result<(), String> {
        match self.options.check_every {
            0 => Ok(()),
            every if self.report.steps.is_multiple_of(every) => self.scheduler.invariant(),
            _ => Ok(()),
        }
    }

    /// Callers who go away between the plan and its step.
    fn leave_at_plan(&mut self, plan: &StepPlan, traffic: &mut dyn Traffic) -> Result<(), String> {
        for row in &plan.rows {
            let live = self.live.get(&row.seq);
            if live.is_some_and(|live| live.cancel == Some(Cancel::InStep(live.planned))) {
                self.cancel(row.seq, traffic)?;
            }
        }
        let waits = |seq: SeqId| self.scheduler.cached_tokens(seq).is_none();
        let gave_way = |live: &Live| live.cancel == Some(Cancel::GaveWay) && live.planned > 0;
        let gone = self.live.iter().filter(|(seq, live)| gave_way(live) && waits(**seq));
        let gone: Vec<SeqId> = gone.map(|(seq, _)| *seq).collect();
        gone.into_iter().try_for_each(|seq| self.cancel(seq, traffic))
    }

    fn take_in(
        &mut self,
        committed: &Committed,
        now: Moment,
        traffic: &mut dyn Traffic,
    ) -> Result<(), String> {
        for new in &committed.tokens {
            let cached = self.scheduler.cached_tokens(new.seq);
            let Some(live) = self.live.get_mut(&new.seq) else {
                return Err(format!("{:?} has a token after its end", new.seq));
            };
            if live.due().expired(now) {
                return Err(format!("{:?} has a token after its deadline", new.seq));
            }
            live.cached_tokens = cached.unwrap_or(live.cached_tokens);
            if live.cached_tokens >= live.prompt_tokens {
                return Err(format!("{:?} found {} tokens cached", new.seq, live.cached_tokens));
            }
            match live.first_token {
                None => self.report.ttft.add(now.since(live.arrived)),
                Some(_) => self.report.itl.add(now.since(live.last_token)),
            }
            live.first_token.get_or_insert(now);
            live.last_token = now;
            live.tokens.push(new.token);
            self.report.output_tokens += 1;
            if new.last != live.full() {
                return Err(format!("{:?} has {} tokens: last?", new.seq, live.tokens.len()));
            }
            let count = live.tokens.len();
            let (ended, leaves) =
                (live.end_tokens.contains(&new.token), live.cancel == Some(Cancel::AtToken(count)));
            if ended && !new.last && self.scheduler.end(new.seq).is_none() {
                return Err(format!("{:?} is gone before its end token", new.seq));
            }
            if ended || new.last {
                self.end(new.seq, End::Completed, traffic)?;
            } else if leaves {
                self.cancel(new.seq, traffic)?;
            }
        }
        for expired in &committed.expired {
            self.end(expired.seq, End::Expired(expired.phase), traffic)?;
        }
        Ok(())
    }

    /// A request that was with the scheduler has ended.
    fn end(&mut self, seq: SeqId, end: End, traffic: &mut dyn Traffic) -> Result<(), String> {
        let Some(live) = self.live.remove(&seq) else {
            return Err(format!("{seq:?} ends twice, the second time {end:?}"));
        };
        if let Some(Cancel::After(time)) = live.cancel {
            self.leaving.remove(&(live.arrived.plus(time), seq));
        }
        self.close(&live, end, traffic)
    }

    fn close(&mut self, live: &Live, end: End, traffic: &mut dyn Traffic) -> Result<(), String> {
        let at = self.now();
        self.report.ends.count(end);
        if let (End::Completed, Some(first)) = (end, live.first_token) {
            self.report.e2e.add(at.since(live.arrived));
            let gaps = live.tokens.len().saturating_sub(1).max(1) as u32;
            let slo = self.options.slo;
            let good = first.since(live.arrived) <= slo.ttft && at.since(first) <= slo.tpot * gaps;
            self.report.good += u64::from(good);
        }
        let ended = Ended { tag: live.tag, end, tokens: &live.tokens, cached_tokens: live.cached_tokens, at };
        if let Some(next) = traffic.ended(ended)? {
            self.expect(next, false);
        }
        Ok(())
    }

    /// Everything has ended; is everything back?
    fn check_end(&self) -> Result<(), String> {
        self.scheduler.invariant()?;
        let (scheduler, blocks) = (&self.scheduler, self.scheduler.blocks());
        let rules = [
            (scheduler.waiting() + scheduler.running() == 0, "sequences are left"),
            (blocks.held() == 0, "blocks are held"),
            (blocks.free() + blocks.cached() == blocks.total(), "blocks are lost"),
            (self.policy.prefix_cache || blocks.cached() == 0, "blocks are cached without a cache"),
            (self.report.ends.total() == self.known, "a request has not ended once"),
        ];
        rules.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, rule)| Err((*rule).to_string()))
    }
}
