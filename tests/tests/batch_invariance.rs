//! Does a sequence's output depend on anything but itself? On real weights, tokens and the bits of their probabilities
//! are compared: computed alone, and in random mixes with other sequences, in chunks, from a cached prefix (whole
//! blocks shared, the last one copied), and after preemption, in blocks that others filled before.
#![allow(clippy::print_stderr, reason = "what the mixes covered is the point of a printed line")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use exec::{DeviceRunner, LoadOptions, Loaded, Tokenizer, load};
use kernels::Isa;
use sched::{BlockCopy, BlockId, Draw, RowPlan, Runner, Sampling, SeqId, Span, StepPlan, TokenId};
use std::collections::HashMap;
use std::sync::Arc;

#[path = "batch_invariance/scheduled.rs"]
mod scheduled;

const MODEL: &str = "smollm2-135m-instruct";
const BLOCK: usize = 16;
const OUTPUT_TOKENS: usize = 12;
/// Enough that four sequences and what they leave behind fit, few enough that blocks are used again.
const BLOCKS: u32 = 72;

/// SplitMix64.
struct Chance(u64);

impl Chance {
    /// A number from 0 up to `end`, excluded.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as usize % end.max(1)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// A request: what is known before anything is computed.
struct Request {
    prompt: Vec<TokenId>,
    sampling: Arc<Sampling>,
    banned: Arc<[TokenId]>,
}

impl Request {
    /// The row that computes `tokens[start..end]` and draws where that is all there is.
    fn row(&self, seq: u64, tokens: &[TokenId], start: usize, end: usize, blocks: &[BlockId]) -> RowPlan {
        let draw = (end == tokens.len()).then(|| Draw {
            sampling: Arc::clone(&self.sampling),
            index: (tokens.len() - self.prompt.len()) as u64,
            seen: if self.sampling.repetition_penalty == 1.0 { Vec::new() } else { tokens.to_vec() },
            banned: Arc::clone(&self.banned),
            allowed: None,
        });
        let spans = vec![Span { blocks: blocks[..end.div_ceil(BLOCK)].to_vec(), len: end, shift: 0 }];
        RowPlan { seq: SeqId(seq), tokens: tokens[start..end].to_vec(), start, spans, draw }
    }
}

/// Twelve requests in three families that share the beginning of their prompts; half of them greedy.
fn requests(tokenizer: &Tokenizer, chance: &mut Chance) -> Vec<Request> {
    const WORDS: [&str; 16] = [
        "the", "river", "of", "answers", "runs", "past", "Kraków", "and", "7", "old", "bridges;", "nobody",
        "counts", "them", "twice.", "However,",
    ];
    let text = |words: usize, chance: &mut Chance| -> Vec<TokenId> {
        let words: Vec<&str> = (0..words).map(|_| WORDS[chance.below(WORDS.len())]).collect();
        tokenizer.encode(&words.join(" "))
    };
    let mut requests = Vec::new();
    for _ in 0..3 {
        let words = 20 + chance.below(40);
        let family = text(words, chance);
        for member in 0..4 {
            let words = 10 + chance.below(40);
            let prompt = [family.clone(), text(words, chance)].concat();
            let sampling = match member {
                0 => Sampling::default(),
                1 => Sampling { repetition_penalty: 1.3, top_logprobs: Some(4), ..Sampling::default() },
                2 => Sampling { temperature: 0.8, seed: chance.below(1 << 30) as u64, ..Sampling::default() },
                _ => Sampling {
                    temperature: 1.1,
                    top_k: 50,
                    top_p: 0.95,
                    min_p: 0.01,
                    seed: chance.below(1 << 30) as u64,
                    logit_bias: vec![(prompt[0], 2.5)],
                    top_logprobs: Some(2),
                    ..Sampling::default()
                },
            };
            let banned = tokenizer.end_tokens().into();
            requests.push(Request { prompt, sampling: Arc::new(sampling), banned });
        }
    }
    requests
}

/// What must not change: tokens, and probabilities bit by bit.
type Output = Vec<(TokenId, u32, Vec<(TokenId, u32)>)>;

fn record(token: TokenId, logprob: f32, top: &[(TokenId, f32)]) -> (TokenId, u32, Vec<(TokenId, u32)>) {
    let top = top.iter().map(|(token, logprob)| (*token, logprob.to_bits())).collect();
    (token, logprob.to_bits(), top)
}

/// The whole prompt in one row, then token by token, with nothing beside.
fn alone(runner: &mut DeviceRunner, request: &Request) -> Output {
    let blocks: Vec<BlockId> = (0..BLOCKS).map(BlockId).collect();
    let (mut tokens, mut start, mut output) = (request.prompt.clone(), 0, Vec::new());
    while output.len() < OUTPUT_TOKENS {
        let rows = vec![request.row(1, &tokens, start, tokens.len(), &blocks)];
        let drawn = runner.run(&StepPlan { copies: Vec::new(), rows }).unwrap().drawn;
        start = tokens.len();
        tokens.push(drawn[0].token);
        output.push(record(drawn[0].token, drawn[0].logprob, &drawn[0].top));
    }
    output
}

/// A sequence in a mix.
struct Live {
    request: usize,
    tokens: Vec<TokenId>,
    /// Positions whose KV is in `blocks`.
    computed: usize,
    blocks: Vec<BlockId>,
    output: Output,
    begun: bool,
}

/// Blocks with the number of their holders; the least recently freed come last, so that used ones come back at once.
#[derive(Default)]
struct Pool {
    free: Vec<BlockId>,
    holders: HashMap<BlockId, usize>,
}

impl Pool {
    fn take(&mut self) -> BlockId {
        let block = self.free.pop().unwrap();
        self.holders.insert(block, 1);
        block
    }

    fn share(&mut self, block: BlockId) -> BlockId {
        *self.holders.get_mut(&block).unwrap() += 1;
        block
    }

    fn release(&mut self, blocks: &mut Vec<BlockId>) {
        for block in blocks.drain(..) {
            let holders = self.holders.get_mut(&block).unwrap();
            *holders -= 1;
            if *holders == 0 {
                self.free.push(block);
            }
        }
    }
}

/// How often the mixes did what they are for.
#[derive(Debug, Default)]
struct Covered {
    steps: usize,
    rows: usize,
    cut_chunks: usize,
    shared_blocks: usize,
    copies: usize,
    preemptions: usize,
}

/// Lets a sequence begin, or begin again, with what another one has computed of the same tokens.
fn begin(live: &mut [Live], at: usize, pool: &mut Pool, copies: &mut Vec<BlockCopy>, covered: &mut Covered) {
    let common = |other: &Live| {
        let equal = other.tokens.iter().zip(&live[at].tokens).take_while(|(a, b)| a == b).count();
        // The last token is computed anew: its logits are wanted.
        equal.min(other.computed).min(live[at].tokens.len() - 1)
    };
    let others = (0..live.len()).filter(|other| *other != at);
    let best = others.map(|other| (common(&live[other]), other)).max();
    live[at].begun = true;
    let Some((hit, other)) = best.filter(|(hit, _)| *hit > 0) else { return };
    let (whole, part) = (hit / BLOCK, hit % BLOCK);
    let mut blocks: Vec<BlockId> =
        live[other].blocks[..whole].iter().map(|block| pool.share(*block)).collect();
    if part > 0 {
        let to = pool.take();
        copies.push(BlockCopy { from: live[other].blocks[whole], to });
        blocks.push(to);
    }
    covered.shared_blocks += whole;
    covered.copies += usize::from(part > 0);
    live[at].blocks = blocks;
    live[at].computed = hit;
}

/// Runs `members` together, by chance in every respect, and gives their outputs.
fn mixed(
    runner: &mut DeviceRunner,
    requests: &[Request],
    members: &[usize],
    chance: &mut Chance,
    covered: &mut Covered,
) -> Vec<Output> {
    let mut pool = Pool { free: (0..BLOCKS).map(BlockId).collect(), holders: HashMap::new() };
    let mut live: Vec<Live> = members
        .iter()
        .map(|request| Live {
            request: *request,
            tokens: requests[*request].prompt.clone(),
            computed: 0,
            blocks: Vec::new(),
            output: Vec::new(),
            begun: false,
        })
        .collect();
    while live.iter().any(|one| one.output.len() < OUTPUT_TOKENS) {
        let mut plan = StepPlan::default();
        for at in 0..live.len() {
            if live[at].output.len() == OUTPUT_TOKENS || chance.one_in(3) {
                continue;
            }
            if live[at].begun && live[at].computed > 0 && chance.one_in(25) {
                let Live { blocks, computed, begun, .. } = &mut live[at];
                pool.release(blocks);
                (*computed, *begun) = (0, false);
                covered.preemptions += 1;
                continue;
            }
            if !live[at].begun {
                begin(&mut live, at, &mut pool, &mut plan.copies, covered);
            }
            let one = &mut live[at];
            let due = one.tokens.len() - one.computed;
            let chunk = if chance.one_in(3) { due } else { (1 + chance.below(40)).min(due) };
            let end = one.computed + chunk;
            while one.blocks.len() * BLOCK < end {
                one.blocks.push(pool.take());
            }
            covered.cut_chunks += usize::from(chunk < due);
            plan.rows.push(requests[one.request].row(at as u64, &one.tokens, one.computed, end, &one.blocks));
        }
        covered.steps += 1;
        covered.rows += plan.rows.len();
        let output = runner.run(&plan).unwrap();
        // Not before: what a step computes is nobody else's in that step.
        plan.rows.iter().for_each(|row| live[row.seq.0 as usize].computed += row.tokens.len());
        for drawn in &output.drawn {
            let one = &mut live[drawn.seq.0 as usize];
            one.tokens.push(drawn.token);
            one.output.push(record(drawn.token, drawn.logprob, &drawn.top));
        }
    }
    live.into_iter().map(|one| one.output).collect()
}

/// A model, requests to it, and what comes of each alone.
struct Bench {
    loaded: Loaded,
    requests: Vec<Request>,
    expected: Vec<Output>,
    chance: Chance,
}

impl Bench {
    fn open(isa: Isa) -> Option<Self> {
        let files = tests::weights(MODEL)?;
        let options = LoadOptions { isa, ..LoadOptions::new(2, 64 << 20) };
        let mut loaded = load(files.weights(), &options).unwrap();
        let runner = &mut loaded.runner;
        assert!(runner.limits().blocks_total >= BLOCKS as usize && runner.limits().block_tokens == BLOCK);
        let mut chance = Chance(3);
        let requests = requests(&loaded.tokenizer, &mut chance);
        let expected: Vec<Output> = requests.iter().map(|request| alone(runner, request)).collect();
        // Outputs that were all the same would prove nothing.
        assert!((1..expected.len()).all(|at| expected[..at].iter().all(|other| *other != expected[at])));
        Some(Self { loaded, requests, expected, chance })
    }
}

fn check(isa: Isa, mixes: usize) -> Option<Covered> {
    let Bench { mut loaded, requests, expected, mut chance } = Bench::open(isa)?;
    let runner = &mut loaded.runner;
    let mut covered = Covered::default();
    for mix in 0..mixes {
        // Families stay together more often than chance would have it, so that there are prefixes to hit.
        let family = chance.below(3) * 4;
        let members: Vec<usize> = (0..4)
            .map(|_| if chance.one_in(3) { chance.below(12) } else { family + chance.below(4) })
            .collect();
        let got = mixed(runner, &requests, &members, &mut chance, &mut covered);
        for (member, got) in members.iter().zip(&got) {
            assert_eq!(got, &expected[*member], "{isa}: request {member} in mix {mix} of {members:?}");
        }
    }
    eprintln!("{isa}: {mixes} mixes equal to the {} sequences alone: {covered:?}", requests.len());
    Some(covered)
}

#[test]
fn outputs_do_not_depend_on_batch_chunks_cache_or_preemption() {
    let Some(covered) = check(Isa::detect(), 20) else { return };
    assert!(covered.rows > covered.steps * 3 / 2, "{covered:?}");
    assert!(covered.cut_chunks > 60 && covered.shared_blocks > 100, "{covered:?}");
    assert!(covered.copies > 30 && covered.preemptions > 20, "{covered:?}");
}

#[test]
fn nor_do_they_with_the_next_slower_instructions() {
    let slower = Isa::available().into_iter().rfind(|isa| *isa < Isa::detect() && *isa != Isa::Reference);
    if let Some(isa) = slower {
        check(isa, 3);
    }
}

#[test]
fn nor_do_they_when_the_scheduler_decides() {
    let Some(bench) = Bench::open(Isa::detect()) else { return };
    let Bench { mut loaded, requests, expected, mut chance } = bench;
    let ends = loaded.tokenizer.end_tokens().to_vec();
    let covered = scheduled::run(&mut loaded.runner, &requests, &expected, &ends, &mut chance);
    eprintln!("scheduled as alone: {covered:?}");
    assert!(covered.rows > covered.steps && covered.cut_chunks > 30 && covered.copies > 10, "{covered:?}");
    assert!(covered.finished > 30 && covered.cut_short > 0, "{covered:?}");
    let counts = covered.counts;
    assert!(
        counts.preemptions > 5 && counts.prefix_hit_tokens > 0 && counts.evicted_blocks > 0,
        "{covered:?}"
    );
}
