//! Which computed blocks begin this prompt? A radix tree over tokens that owns every block it keeps.
//!
//! Each node is one block and the tokens in it (fewer than a block's only in leaves). Children are found by comparing
//! tokens in an ordered map, never by a hash, so a wrong hit is impossible; the order also puts the child that shares
//! the most tokens with a prompt right beside the prompt's own place. A node of several blocks would save memory and
//! cost splits; blocks are what is counted, locked and evicted, so they are the nodes.

use crate::blocks::{Block, BlockPool};
use crate::children::{Children, Edge};
use crate::key::{KvSpace, Owner, PrefixKey};
use crate::{BlockId, TokenId};
use std::collections::{BTreeMap, BTreeSet};

/// A node's place in the tree's slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(u32);

#[derive(Debug)]
struct Node {
    /// `None` for the first block of a prompt.
    parent: Option<NodeId>,
    space: KvSpace,
    edge: Edge,
    block: Block,
    children: Children,
    /// Sequences that use the block. A child's never exceed its parent's.
    locks: usize,
    used: u64,
}

/// The blocks of the pool and the tree over those that are kept.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    block_tokens: usize,
    pool: BlockPool,
    roots: BTreeMap<KvSpace, Children>,
    nodes: Vec<Option<Node>>,
    vacant: Vec<NodeId>,
    /// Nodes without children and locks, the one unused for longest first.
    leaves: BTreeSet<(u64, NodeId)>,
    tick: u64,
    evicted: u64,
}

/// A cached block of which a prompt uses the first positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partial {
    pub(crate) node: NodeId,
    pub(crate) tokens: usize,
}

impl PrefixCache {
    pub(crate) fn new(blocks_total: usize, block_tokens: usize) -> Self {
        Self {
            block_tokens: block_tokens.max(1),
            pool: BlockPool::new(blocks_total),
            roots: BTreeMap::new(),
            nodes: Vec::new(),
            vacant: Vec::new(),
            leaves: BTreeSet::new(),
            tick: 0,
            evicted: 0,
        }
    }

    pub(crate) fn pool(&self) -> &BlockPool {
        &self.pool
    }

    pub(crate) fn block_tokens(&self) -> usize {
        self.block_tokens
    }

    /// How many of `nodes` nobody uses.
    pub(crate) fn unlocked(&self, nodes: &[NodeId]) -> usize {
        nodes.iter().filter(|id| self.node(**id).locks == 0).count()
    }

    /// Blocks taken from the tree because a sequence needed them.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Blocks that can be taken: every cached block becomes a leaf when those below it are gone.
    pub(crate) fn available(&self) -> usize {
        self.pool.free() + self.pool.cached()
    }

    /// Takes a block: a free one, else the one that was unused for longest.
    pub(crate) fn take(&mut self) -> Option<Block> {
        if self.pool.free() == 0 {
            let (_, id) = *self.leaves.first()?;
            self.remove(id);
            self.evicted += 1;
        }
        self.pool.take()
    }

    pub(crate) fn release(&mut self, block: Block) {
        self.pool.release(block);
    }

    /// The block of a node.
    pub(crate) fn block(&self, id: NodeId) -> BlockId {
        self.node(id).block.id()
    }

    /// The child of `parent` (or the first block, if `None`) that holds exactly the block that begins at `start` of
    /// `tokens`, when the block lies within them.
    pub(crate) fn child(
        &self,
        key: &PrefixKey,
        parent: Option<NodeId>,
        tokens: &[TokenId],
        start: usize,
    ) -> Option<NodeId> {
        let end = start + self.block_tokens;
        let children = self.children(key.space, parent)?;
        let tokens = tokens.get(start..end)?;
        // What everyone may share serves a prompt that calls the same tokens private, too; never the other way round.
        children.get(key.owner(end), tokens).or_else(|| children.get(Owner::Shared, tokens))
    }

    /// The child of `parent` that shares the most first tokens with `tokens`, where it is at least one.
    ///
    /// In the order of the children the best match stands right before or right after the place of `tokens`. It is
    /// copied and not shared, so it may be the tenant's own whatever becomes of the copy. A whole block is
    /// [`PrefixCache::child`]'s to find.
    pub(crate) fn partial(
        &self,
        key: &PrefixKey,
        parent: Option<NodeId>,
        tokens: &[TokenId],
        start: usize,
    ) -> Option<Partial> {
        let children = self.children(key.space, parent)?;
        let rest = &tokens[start..tokens.len().min(start + self.block_tokens - 1)];
        let owners = [Owner::Shared, Owner::Private(key.tenant)];
        let mut best: Option<Partial> = None;
        for owner in owners {
            for ((kept, edge), id) in children.around(owner, rest).into_iter().flatten() {
                // A shared block may be read by anyone; its tokens past the shared ones are never compared with a
                // tenant's, because a shared block has none.
                let same = edge.iter().zip(rest).take_while(|(a, b)| a == b).count();
                if *kept == owner && same > best.map_or(0, |best| best.tokens) {
                    best = Some(Partial { node: id, tokens: same });
                }
            }
        }
        best
    }

    /// A node was read without being locked.
    pub(crate) fn touch(&mut self, id: NodeId) {
        self.tick += 1;
        let node = node_mut(&mut self.nodes, id);
        if self.leaves.remove(&(node.used, id)) {
            self.leaves.insert((self.tick, id));
        }
        node.used = self.tick;
    }

    /// A sequence uses the node from now on; its parents are locked already.
    pub(crate) fn lock(&mut self, id: NodeId) {
        let node = node_mut(&mut self.nodes, id);
        if node.locks == 0 {
            self.pool.hold(&node.block);
            self.leaves.remove(&(node.used, id));
        }
        node.locks += 1;
    }

    /// A sequence ends its use of `path`, the nodes from a first block on.
    pub(crate) fn unlock(&mut self, path: &[NodeId]) {
        // One time of use for all: the deepest goes first anyway, since only leaves are evicted.
        self.tick += 1;
        for id in path.iter().rev() {
            let node = node_mut(&mut self.nodes, *id);
            debug_assert!(node.locks > 0, "{id:?} is unlocked more often than locked");
            node.locks = node.locks.saturating_sub(1);
            node.used = self.tick;
            if node.locks == 0 {
                self.pool.cache(&node.block);
                if node.children.is_empty() {
                    self.leaves.insert((self.tick, *id));
                }
            }
        }
    }

    /// Takes out of the tree what only `path` leads to: its nodes from the deepest on, up to one that is in use or leads
    /// elsewhere, too.
    pub(crate) fn forget(&mut self, path: &[NodeId]) {
        for id in path.iter().rev() {
            let node = self.node(*id);
            if node.locks > 0 || !node.children.is_empty() {
                return;
            }
            self.remove(*id);
        }
    }

    /// Adds a held block with the computed tokens from `start` on (at most a block of them) below `parent`, locked once
    /// for its sequence. Where the same block is kept already, that one is locked and `block` is free again.
    pub(crate) fn insert(
        &mut self,
        key: &PrefixKey,
        parent: Option<NodeId>,
        tokens: &[TokenId],
        start: usize,
        block: Block,
    ) -> NodeId {
        if let Some(known) = self.child(key, parent, tokens, start) {
            self.pool.release(block);
            self.lock(known);
            return known;
        }
        let end = tokens.len().min(start + self.block_tokens);
        let edge: Edge = (key.owner(start + self.block_tokens), tokens[start..end].into());
        let node = Node {
            parent,
            space: key.space,
            edge: edge.clone(),
            block,
            children: Children::None,
            locks: 1,
            used: 0,
        };
        let id = match self.vacant.pop() {
            Some(id) => {
                self.nodes[id.0 as usize] = Some(node);
                id
            }
            None => {
                self.nodes.push(Some(node));
                NodeId((self.nodes.len() - 1) as u32)
            }
        };
        match parent {
            Some(parent) => node_mut(&mut self.nodes, parent).children.insert(edge, id),
            None => self.roots.entry(key.space).or_default().insert(edge, id),
        };
        id
    }

    /// Keeps the last block of a sequence that ends, of which only some positions are computed. It is not kept when
    /// another block begins with the same tokens, and takes the place of blocks that hold less of them.
    pub(crate) fn insert_tail(
        &mut self,
        key: &PrefixKey,
        parent: Option<NodeId>,
        tokens: &[TokenId],
        start: usize,
        block: Block,
    ) {
        let owner = key.owner(start + self.block_tokens);
        let tail = &tokens[start..];
        let shorter: Vec<NodeId> = match self.children(key.space, parent) {
            None => Vec::new(),
            Some(children) => {
                let [_, next] = children.around(owner, tail);
                if next.is_some_and(|((kept, edge), _)| *kept == owner && edge.starts_with(tail)) {
                    self.pool.release(block);
                    return;
                }
                (1..tail.len()).filter_map(|len| children.get(owner, &tail[..len])).collect()
            }
        };
        for id in shorter {
            self.remove(id);
        }
        let id = self.insert(key, parent, tokens, start, block);
        self.unlock(&[id]);
    }

    /// Takes an unlocked leaf out of the tree; its block is free.
    fn remove(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(id.0 as usize).and_then(Option::take) else { return };
        debug_assert!(node.locks == 0 && node.children.is_empty(), "{id:?} is in use");
        self.leaves.remove(&(node.used, id));
        self.vacant.push(id);
        self.pool.hold(&node.block);
        self.pool.release(node.block);
        match node.parent {
            Some(parent) => {
                let above = node_mut(&mut self.nodes, parent);
                above.children.remove(&node.edge);
                if above.children.is_empty() && above.locks == 0 {
                    self.leaves.insert((above.used, parent));
                }
            }
            None => {
                if let Some(children) = self.roots.get_mut(&node.space) {
                    children.remove(&node.edge);
                    if children.is_empty() {
                        self.roots.remove(&node.space);
                    }
                }
            }
        }
    }

    fn children(&self, space: KvSpace, parent: Option<NodeId>) -> Option<&Children> {
        match parent {
            Some(parent) => Some(&self.node(parent).children),
            None => self.roots.get(&space),
        }
    }

    fn node(&self, id: NodeId) -> &Node {
        node(&self.nodes, id)
    }

    /// What always holds, given how many sequences use each node.
    ///
    /// # Errors
    /// Says what does not.
    pub(crate) fn invariant(&self, users: &BTreeMap<NodeId, usize>) -> Result<(), String> {
        self.pool.invariant()?;
        let (mut cached, mut leaves) = (0, BTreeSet::new());
        for (at, node) in self.nodes.iter().enumerate() {
            let id = NodeId(at as u32);
            let Some(node) = node else { continue };
            if node.locks != users.get(&id).copied().unwrap_or(0) {
                return Err(format!("{id:?} has {} locks and {:?} users", node.locks, users.get(&id)));
            }
            let siblings = self.children(node.space, node.parent);
            if siblings.and_then(|siblings| siblings.get(node.edge.0, &node.edge.1)) != Some(id) {
                return Err(format!("{id:?} is not among its parent's children"));
            }
            if node.edge.1.is_empty() || node.edge.1.len() > self.block_tokens {
                return Err(format!("{id:?} holds {} tokens", node.edge.1.len()));
            }
            if node.edge.1.len() < self.block_tokens && (node.locks > 0 || !node.children.is_empty()) {
                return Err(format!("{id:?} is partly filled and in use"));
            }
            if let Some(parent) = node.parent.map(|parent| self.node(parent)) {
                let narrows = parent.edge.0 == node.edge.0 || parent.edge.0 == Owner::Shared;
                if parent.locks < node.locks || parent.space != node.space || !narrows {
                    return Err(format!("{id:?} does not fit under its parent"));
                }
            }
            cached += usize::from(node.locks == 0);
            if node.locks == 0 && node.children.is_empty() {
                leaves.insert((node.used, id));
            }
        }
        if cached != self.pool.cached() {
            return Err(format!("{cached} nodes are unlocked and {} blocks cached", self.pool.cached()));
        }
        if leaves != self.leaves {
            return Err("the order of eviction does not hold the unlocked leaves".to_string());
        }
        Ok(())
    }
}

fn node(nodes: &[Option<Node>], id: NodeId) -> &Node {
    nodes[id.0 as usize]
        .as_ref()
        .expect("a node in a path or a parent is locked or has children, so it is not removed")
}

fn node_mut(nodes: &mut [Option<Node>], id: NodeId) -> &mut Node {
    nodes[id.0 as usize]
        .as_mut()
        .expect("a node in a path or a parent is locked or has children, so it is not removed")
}

#[cfg(test)]
#[path = "radix_tests.rs"]
mod tests;
