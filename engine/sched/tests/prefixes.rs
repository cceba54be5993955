//! What is not computed again, and for whom? The prefix cache seen through plans.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use budgets::{Limits, Moment};
use sched::{
    AdapterId, FakeRunner, KvSpace, Policy, Runner, RunnerLimits, Scheduler, SeqId, SeqRequest, StepPlan,
    Tenant, TokenId, fold,
};
use std::collections::BTreeMap;

const RUNNER: RunnerLimits =
    RunnerLimits { block_tokens: 4, blocks_total: 32, context_tokens_max: 128, vocab_tokens: 1_000 };

fn now() -> Moment {
    Moment::default()
}

fn tokens(range: std::ops::Range<TokenId>) -> Vec<TokenId> {
    range.collect()
}

fn request(prompt: &[TokenId], output_tokens_max: usize) -> SeqRequest {
    SeqRequest::new(prompt.to_vec(), output_tokens_max, now())
}

/// What a sequence cost and said.
#[derive(Debug, Default, PartialEq)]
struct Run {
    /// Tokens computed in steps in which no token had been drawn before.
    prefilled: usize,
    /// Blocks copied.
    copies: usize,
    cached: usize,
    drawn: Vec<TokenId>,
}

struct Bench {
    scheduler: Scheduler,
    runner: FakeRunner,
    steps: usize,
}

impl Bench {
    fn new(limits: RunnerLimits) -> Self {
        let bounds = Limits { queue_requests_max: 1_000, running_sequences_max: 64, ..Limits::default() };
        let scheduler = Scheduler::new(limits, &bounds, &Policy::default());
        Self { scheduler, runner: FakeRunner::hashing(limits), steps: 0 }
    }

    fn step(&mut self, runs: &mut BTreeMap<SeqId, Run>) -> StepPlan {
        let plan = self.scheduler.schedule(now());
        for row in &plan.rows {
            let run = runs.entry(row.seq).or_default();
            run.cached = self.scheduler.cached_tokens(row.seq).unwrap();
            if run.drawn.is_empty() {
                run.prefilled += row.tokens.len();
            }
            let written = row.written_blocks(RUNNER.block_tokens);
            run.copies += plan.copies.iter().filter(|copy| written.contains(&copy.to)).count();
        }
        let output = self.runner.run(&plan).unwrap();
        for token in self.scheduler.commit(output, now()).unwrap().tokens {
            runs.get_mut(&token.seq).unwrap().drawn.push(token.token);
        }
        assert_eq!(self.scheduler.invariant(), Ok(()));
        self.steps += 1;
        plan
    }

    /// Runs requests that come together to their ends.
    fn all(&mut self, requests: Vec<SeqRequest>) -> Vec<Run> {
        let prompts: Vec<_> = requests.iter().map(|request| request.prompt.clone()).collect();
        let seqs: Vec<SeqId> =
            requests.into_iter().map(|request| self.scheduler.submit(request).unwrap()).collect();
        let mut runs = BTreeMap::new();
        while self.scheduler.waiting() + self.scheduler.running() > 0 {
            self.step(&mut runs);
        }
        for (seq, mut known) in seqs.iter().zip(prompts) {
            for token in &runs[seq].drawn {
                assert_eq!(u64::from(*token), fold(&known) % 1_000, "as computed without a cache");
                known.push(*token);
            }
        }
        assert_eq!(self.scheduler.blocks().held(), 0);
        seqs.iter().map(|seq| runs.remove(seq).unwrap()).collect()
    }

    fn one(&mut self, request: SeqRequest) -> Run {
        self.all(vec![request]).remove(0)
    }
}

/// How many prompt tokens are computed, how many were cached, how many blocks copied.
fn check(run: &Run, want: (usize, usize, usize)) {
    assert_eq!((run.prefilled, run.cached, run.copies), want, "{run:?}");
}

#[test]
fn the_same_prompt_again_computes_one_token() {
    for prompt_tokens in [1, 4, 5, 8, 15, 16, 17] {
        let mut bench = Bench::new(RUNNER);
        let prompt = tokens(0..prompt_tokens as TokenId);
        let first = bench.one(request(&prompt, 1));
        check(&first, (prompt_tokens, 0, 0));
        let second = bench.one(request(&prompt, 1));
        // The last token is computed to draw from it. If it is not the first of a block, that block is copied.
        let copies = usize::from((prompt_tokens - 1) % 4 > 0);
        check(&second, (1, prompt_tokens - 1, copies));
        assert_eq!(first.drawn, second.drawn);
    }
}

#[test]
fn the_next_turn_finds_the_answer_of_the_turn_before() {
    let mut bench = Bench::new(RUNNER);
    let mut conversation = tokens(0..10);
    let mut known = 0;
    for turn in 0..5 {
        let run = bench.one(request(&conversation, 6));
        let copies = usize::from(known % 4 > 0);
        check(&run, (conversation.len() - known, known, copies));
        conversation.extend(&run.drawn);
        // The last token was drawn and never computed.
        known = conversation.len() - 1;
        conversation.extend(tokens(700 + turn * 3..703 + turn * 3));
    }
    assert_eq!(known, 10 + 5 * 6 + 4 * 3 - 1);
}

#[test]
fn a_prompt_that_branches_off_inside_a_block_copies_the_part_that_is_the_same() {
    let mut bench = Bench::new(RUNNER);
    bench.one(request(&tokens(0..12), 1));
    let mut branch = tokens(0..7);
    branch.extend([900, 901, 902]);
    check(&bench.one(request(&branch, 1)), (3, 7, 1));
    check(&bench.one(request(&tokens(0..12), 1)), (1, 11, 1));
}

#[test]
fn tenants_share_what_the_service_says_and_nothing_of_each_other() {
    let mut bench = Bench::new(RUNNER);
    let (system, secret) = (tokens(0..10), tokens(500..510));
    let prompt: Vec<TokenId> = system.iter().chain(&secret).copied().collect();
    let of = |tenant, prompt: &[TokenId], shared_tokens| SeqRequest {
        tenant: Tenant(tenant),
        shared_tokens,
        ..request(prompt, 1)
    };
    check(&bench.one(of(1, &prompt, 10)), (20, 0, 0));
    check(&bench.one(of(1, &prompt, 10)), (1, 19, 1));
    // Two whole blocks of the system prefix; the third holds two private tokens and is private.
    check(&bench.one(of(2, &prompt, 10)), (12, 8, 0));
    // Who guesses the other's text token by token learns nothing, whatever is called shared.
    for guessed in 0..10 {
        for shared in [0, 8, 10] {
            let guess: Vec<TokenId> = prompt[..10 + guessed].iter().copied().chain([999]).collect();
            let run = bench.one(of(100 + guessed as u128 * 3 + shared as u128, &guess, shared));
            check(&run, (guess.len() - 8, 8, 0));
        }
    }
}

#[test]
fn prompts_of_other_adapters_share_nothing_and_no_number_is_taken_for_another() {
    let mut bench = Bench::new(RUNNER);
    let prompt = tokens(0..12);
    let with = |adapter: Option<u32>, tenant| SeqRequest {
        space: KvSpace { adapter: adapter.map(AdapterId), ..KvSpace::default() },
        tenant: Tenant(tenant),
        ..request(&prompt, 1)
    };
    // The same number as adapter, as tenant and as both.
    for key in [(None, 0), (None, 1), (Some(0), 0), (Some(0), 1), (Some(1), 0), (Some(1), 1)] {
        check(&bench.one(with(key.0, key.1)), (12, 0, 0));
    }
    check(&bench.one(with(Some(1), 0)), (1, 11, 1));
    // A shared prefix is shared within one adapter.
    let shared = |adapter, tenant| SeqRequest { shared_tokens: 8, ..with(adapter, tenant) };
    let mut bench = Bench::new(RUNNER);
    check(&bench.one(shared(None, 1)), (12, 0, 0));
    check(&bench.one(shared(Some(1), 1)), (12, 0, 0));
    check(&bench.one(shared(Some(1), 2)), (4, 8, 0));
}

#[test]
fn tokens_that_are_the_same_in_their_last_byte_are_not_the_same() {
    let mut bench = Bench::new(RUNNER);
    bench.one(request(&tokens(0..12), 1));
    check(&bench.one(request(&tokens(256..268), 1)), (12, 0, 0));
    let mut last = tokens(0..12);
    last[9] += 512;
    check(&bench.one(request(&last, 1)), (3, 9, 1));
}

#[test]
fn many_equal_prompts_at_once_are_computed_about_once() {
    let limits =
        RunnerLimits { block_tokens: 16, blocks_total: 4_096, context_tokens_max: 512, vocab_tokens: 1_000 };
    let mut bench = Bench::new(limits);
    let prompt = tokens(0..200);
    let runs = bench.all((0..256).map(|_| request(&prompt, 4)).collect());
    let computed: usize = runs.iter().map(|run| run.prefilled).sum();
    // What the first step takes is computed before anything can be found (256 tokens); after that everyone finds
    // twelve whole blocks, copies eight tokens at most and has the rest of the last block to compute.
    let bound = 256 + 256 * (200 - 192);
    assert!(computed <= bound, "{computed} tokens computed for 256 x 200, at most {bound}");
    assert!(runs.iter().all(|run| run.drawn == runs[0].drawn));
}

#[test]
fn what_was_unused_for_longest_is_evicted_first() {
    let mut bench = Bench::new(RunnerLimits { blocks_total: 12, ..RUNNER });
    let prompt = |nth: TokenId| tokens(nth * 100..nth * 100 + 16);
    for nth in 0..3 {
        check(&bench.one(request(&prompt(nth), 1)), (16, 0, 0));
    }
    assert_eq!((bench.scheduler.blocks().cached(), bench.scheduler.counts().evicted_blocks), (12, 0));
    // Reads the first prompt's first two blocks and needs one for itself: the same prompt's last one, which was not read.
    check(&bench.one(request(&prompt(0)[..9], 1)), (1, 8, 0));
    assert_eq!(bench.scheduler.counts().evicted_blocks, 1);
    // One block is free again, three are evicted: the first prompt's third, then the second prompt's last two.
    check(&bench.one(request(&prompt(3), 1)), (16, 0, 0));
    assert_eq!(bench.scheduler.counts().evicted_blocks, 4);
    check(&bench.one(request(&prompt(2), 1)), (1, 15, 1));
    check(&bench.one(request(&prompt(0)[..9], 1)), (1, 8, 0));
    // The copy for the third prompt took one more of the second's.
    assert_eq!(bench.one(request(&prompt(1), 1)).cached, 4);
}

#[test]
fn the_tree_never_outgrows_the_pool() {
    let mut bench = Bench::new(RUNNER);
    for nth in 0..300 {
        bench.one(request(&tokens(nth * 3..nth * 3 + 30), 3));
        let blocks = bench.scheduler.blocks();
        assert_eq!(blocks.free() + blocks.cached(), RUNNER.blocks_total);
    }
    assert!(bench.scheduler.counts().evicted_blocks > 300 * 5);
}

#[test]
fn a_caller_who_goes_between_plan_and_failed_step_leaves_nothing_wrong_behind() {
    // The pool is so small that the copied block's source is taken for another prompt in the same step.
    let mut bench = Bench::new(RunnerLimits { blocks_total: 6, ..RUNNER });
    bench.one(request(&tokens(0..11), 1));
    let mut branch = tokens(0..10);
    branch.push(900);
    let seq = bench.scheduler.submit(request(&branch, 2)).unwrap();
    bench.scheduler.submit(request(&tokens(300..311), 1)).unwrap();
    let plan = bench.scheduler.schedule(now());
    assert_eq!(plan.copies.len(), 1);
    bench.scheduler.end(seq);
    // The step fails before anything is copied.
    bench.scheduler.fail_step();
    assert_eq!(bench.scheduler.invariant(), Ok(()));
    let run = bench.one(request(&branch, 2));
    assert_eq!(run.drawn.len(), 2);
}
