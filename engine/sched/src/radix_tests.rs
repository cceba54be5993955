//! Does the tree find, keep and evict what a list of token sequences would? Property tests against a naive model.

use super::*;
use crate::key::{AdapterId, Tenant};
use proptest::prelude::*;

const BLOCK_TOKENS: usize = 3;
const BLOCKS: usize = 12;

/// A node as the model knows it: its space and all edges from the root.
type Path = (KvSpace, Vec<Edge>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    locks: usize,
    used: u64,
}

/// A flat list of cached sequences. Everything is found by looking at all of it.
#[derive(Debug, Default)]
struct Model {
    kept: BTreeMap<Path, Kept>,
    tick: u64,
    /// Blocks that are held outside the list.
    loose: usize,
}

impl Model {
    /// The places below `path` that a prompt with `key` may read.
    fn below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = (&'a Path, &'a Edge)> {
        let below = move |(found, _): (&'a Path, &'a Kept)| {
            let last = found.1.last()?;
            (found.0 == path.0 && found.1[..found.1.len() - 1] == path.1[..]).then_some((found, last))
        };
        self.kept.iter().filter_map(below)
    }

    /// The full block that continues `path` for this prompt: one of the owner that the block would have, else a shared one.
    fn full(&self, key: &PrefixKey, path: &Path, tokens: &[TokenId]) -> Option<Path> {
        let start = path.1.len() * BLOCK_TOKENS;
        let want = tokens.get(start..start + BLOCK_TOKENS)?;
        let same = |owner| {
            let mut below = self.below(path);
            below.find(|(_, (kept, edge))| *kept == owner && **edge == *want).map(|(found, _)| found.clone())
        };
        same(key.owner(start + BLOCK_TOKENS)).or_else(|| same(Owner::Shared))
    }

    /// The most tokens of the next block that this prompt may copy.
    fn partial(&self, key: &PrefixKey, path: &Path, tokens: &[TokenId]) -> usize {
        let rest = &tokens[path.1.len() * BLOCK_TOKENS..];
        let mine = self
            .below(path)
            .filter(|(_, (owner, _))| *owner == Owner::Shared || *owner == Owner::Private(key.tenant));
        let same = mine.map(|(_, (_, edge))| edge.iter().zip(rest).take_while(|(a, b)| a == b).count());
        same.max().unwrap_or(0).min(BLOCK_TOKENS - 1)
    }

    /// Takes a block: evicts the unlocked end of a sequence that was not used for longest. `false` if there is none.
    fn take(&mut self) -> bool {
        if self.kept.len() + self.loose == BLOCKS {
            let unused =
                self.kept.iter().filter(|(path, kept)| kept.locks == 0 && self.below(path).next().is_none());
            let Some(oldest) = unused.min_by_key(|(_, kept)| kept.used).map(|(path, _)| path.clone()) else {
                return false;
            };
            self.kept.remove(&oldest);
        }
        self.loose += 1;
        true
    }

    fn unlock(&mut self, path: &Path) {
        self.tick += 1;
        for depth in 1..=path.1.len() {
            let kept = self.kept.get_mut(&(path.0, path.1[..depth].to_vec())).unwrap();
            kept.locks -= 1;
            kept.used = self.tick;
        }
    }

    fn keep_tail(&mut self, key: &PrefixKey, path: &Path, tail: &[TokenId]) {
        let owner = key.owner((path.1.len() + 1) * BLOCK_TOKENS);
        let rivals = self.below(path).filter(|(_, (kept, _))| *kept == owner);
        let rivals: Vec<Path> = rivals.map(|(found, _)| found.clone()).collect();
        let edge = |rival: &Path| rival.1.last().unwrap().1.clone();
        if rivals.iter().any(|rival| edge(rival).starts_with(tail)) {
            return;
        }
        for rival in rivals.iter().filter(|rival| tail.starts_with(&edge(rival))) {
            self.kept.remove(rival);
        }
        self.tick += 1;
        let mut edges = path.1.clone();
        edges.push((owner, tail.into()));
        self.kept.insert((path.0, edges), Kept { locks: 0, used: self.tick });
    }
}

/// A sequence that holds its path in tree and model, and its last block.
struct Held {
    key: PrefixKey,
    tokens: Vec<TokenId>,
    nodes: Vec<NodeId>,
    path: Path,
    tail: Option<Block>,
}

struct Bench {
    cache: PrefixCache,
    model: Model,
    held: Vec<Held>,
}

impl Bench {
    fn new() -> Self {
        let cache = PrefixCache::new(BLOCKS, BLOCK_TOKENS);
        Self { cache, model: Model::default(), held: Vec::new() }
    }

    /// Looks a prompt up, compares with the model, locks what is there and computes the rest, as far as there are blocks.
    fn begin(&mut self, key: PrefixKey, tokens: Vec<TokenId>) -> Result<(), TestCaseError> {
        let (mut nodes, mut path) = (Vec::new(), (key.space, Vec::new()));
        loop {
            let found = self.cache.child(&key, nodes.last().copied(), &tokens, nodes.len() * BLOCK_TOKENS);
            let want = self.model.full(&key, &path, &tokens);
            prop_assert_eq!(found.map(|node| self.path_of(node)), want.clone());
            let (Some(node), Some(found)) = (found, want) else { break };
            nodes.push(node);
            path = found;
        }
        let start = nodes.len() * BLOCK_TOKENS;
        let partial = self.cache.partial(&key, nodes.last().copied(), &tokens, start);
        prop_assert_eq!(
            partial.map_or(0, |partial| partial.tokens),
            self.model.partial(&key, &path, &tokens)
        );
        if let Some(partial) = partial {
            let read = self.path_of(partial.node);
            let edge = read.1.last().unwrap();
            prop_assert!(edge.1.starts_with(&tokens[start..start + partial.tokens]));
            prop_assert!(edge.0 == Owner::Shared || edge.0 == Owner::Private(key.tenant));
            self.cache.touch(partial.node);
            self.model.tick += 1;
            self.model.kept.get_mut(&read).unwrap().used = self.model.tick;
        }
        for node in &nodes {
            self.cache.lock(*node);
        }
        for depth in 1..=path.1.len() {
            self.model.kept.get_mut(&(path.0, path.1[..depth].to_vec())).unwrap().locks += 1;
        }
        let mut held = Held { key, tokens, nodes, path, tail: None };
        self.compute(&mut held)?;
        self.held.push(held);
        Ok(())
    }

    fn compute(&mut self, held: &mut Held) -> Result<(), TestCaseError> {
        let Held { key, tokens, nodes, path, tail } = held;
        while nodes.len() * BLOCK_TOKENS < tokens.len() {
            let block = self.cache.take();
            prop_assert_eq!(block.is_some(), self.model.take());
            let Some(block) = block else {
                tokens.truncate(nodes.len() * BLOCK_TOKENS);
                return Ok(());
            };
            let start = nodes.len() * BLOCK_TOKENS;
            let Some(edge) = tokens.get(start..start + BLOCK_TOKENS) else {
                *tail = Some(block);
                return Ok(());
            };
            self.model.loose -= 1;
            let known = self.model.full(key, path, tokens);
            let mut edges = path.1.clone();
            edges.push((key.owner(start + BLOCK_TOKENS), edge.into()));
            *path = known.unwrap_or((path.0, edges));
            self.model.kept.entry(path.clone()).or_insert(Kept { locks: 0, used: 0 }).locks += 1;
            let node = self.cache.insert(key, nodes.last().copied(), tokens, start, block);
            nodes.push(node);
        }
        Ok(())
    }

    /// Ends a sequence; with `keep` its last block stays in the tree.
    fn end(&mut self, at: usize, keep: bool) {
        if self.held.is_empty() {
            return;
        }
        let held = self.held.swap_remove(at % self.held.len());
        if let Some(tail) = held.tail {
            self.model.loose -= 1;
            let start = held.nodes.len() * BLOCK_TOKENS;
            if keep {
                self.model.keep_tail(&held.key, &held.path, &held.tokens[start..]);
                self.cache.insert_tail(&held.key, held.nodes.last().copied(), &held.tokens, start, tail);
            } else {
                self.cache.release(tail);
            }
        }
        self.model.unlock(&held.path);
        self.cache.unlock(&held.nodes);
    }

    fn path_of(&self, id: NodeId) -> Path {
        let (mut edges, mut next) = (Vec::new(), Some(id));
        while let Some(id) = next {
            let node = self.cache.node(id);
            edges.push(node.edge.clone());
            next = node.parent;
        }
        edges.reverse();
        (self.cache.node(id).space, edges)
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let mut users = BTreeMap::new();
        self.held.iter().flat_map(|held| &held.nodes).for_each(|node| *users.entry(*node).or_default() += 1);
        prop_assert_eq!(self.cache.invariant(&users), Ok(()));
        let slots = self.cache.nodes.iter().enumerate().filter_map(|(at, node)| Some((at, node.as_ref()?)));
        let kept: BTreeMap<Path, usize> =
            slots.map(|(at, node)| (self.path_of(NodeId(at as u32)), node.locks)).collect();
        let want: BTreeMap<Path, usize> =
            self.model.kept.iter().map(|(path, kept)| (path.clone(), kept.locks)).collect();
        prop_assert_eq!(kept, want);
        let free = BLOCKS - self.model.kept.len() - self.model.loose;
        prop_assert_eq!(self.cache.pool().free(), free);
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Move {
    Begin {
        key: PrefixKey,
        tokens: Vec<TokenId>,
    },
    End {
        at: usize,
        keep: bool,
    },
    /// Takes blocks and returns them, as a sequence without a future would.
    Press {
        blocks: usize,
    },
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    // Two tokens and three tenants, so that prompts share much; 257 is 1 in its last byte.
    let token = prop_oneof![4 => Just(1u32), 2 => Just(2), 1 => Just(257)];
    let key = (0..3u128, 0..8usize, prop_oneof![4 => Just(None), 1 => Just(Some(AdapterId(1)))]).prop_map(
        |(tenant, shared_tokens, adapter)| PrefixKey {
            space: KvSpace { adapter, ..KvSpace::default() },
            tenant: Tenant(tenant),
            shared_tokens,
        },
    );
    let begin =
        (key, prop::collection::vec(token, 1..14)).prop_map(|(key, tokens)| Move::Begin { key, tokens });
    let end = (any::<usize>(), prop::bool::weighted(0.8)).prop_map(|(at, keep)| Move::End { at, keep });
    let press = (1..BLOCKS).prop_map(|blocks| Move::Press { blocks });
    prop::collection::vec(prop_oneof![4 => begin, 4 => end, 1 => press], 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_tree_finds_keeps_and_evicts_what_a_list_would(moves in moves()) {
        let mut bench = Bench::new();
        for step in moves {
            match step {
                Move::Begin { key, tokens } => bench.begin(key, tokens)?,
                Move::End { at, keep } => bench.end(at, keep),
                Move::Press { blocks } => {
                    let mut taken = Vec::new();
                    for _ in 0..blocks {
                        let block = bench.cache.take();
                        prop_assert_eq!(block.is_some(), bench.model.take());
                        taken.extend(block);
                    }
                    bench.model.loose -= taken.len();
                    taken.into_iter().for_each(|block| bench.cache.release(block));
                }
            }
            bench.check()?;
        }
        while !bench.held.is_empty() {
            bench.end(0, true);
        }
        bench.check()?;
        prop_assert_eq!(bench.cache.pool().held(), 0);
    }
}
