//! Which KV blocks are free, cached or held? The pool's accounts; the memory itself is the runner's.

use crate::BlockId;

/// The right to write one block. There is one for each allocation and it cannot be copied, so a block cannot be
/// returned twice; [`BlockPool::release`] takes it back. It does not free on drop: the pool would have to be shared
/// for that, while here a forgotten block shows in [`BlockPool::held`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a dropped block stays held for ever"]
pub struct Block(BlockId);

impl Block {
    /// Its name in plans.
    pub fn id(&self) -> BlockId {
        self.0
    }
}

/// What a block is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// Its content is kept for whoever may want it; it can be taken at any time.
    Cached,
    /// A sequence reads or writes it.
    Held,
}

/// Counts the blocks of one device: each is free, cached or held.
#[derive(Debug)]
pub struct BlockPool {
    /// A stack, so that the block used last, whose memory is warm, is used next.
    free: Vec<BlockId>,
    states: Vec<State>,
    cached: usize,
    held: usize,
}

impl BlockPool {
    /// A pool of `total` free blocks (at most 2^32).
    pub fn new(total: usize) -> Self {
        let total = u32::try_from(total).unwrap_or(u32::MAX);
        Self {
            free: (0..total).rev().map(BlockId).collect(),
            states: vec![State::Free; total as usize],
            cached: 0,
            held: 0,
        }
    }

    /// Takes a free block, if there is one; it is held.
    pub fn take(&mut self) -> Option<Block> {
        let block = Block(self.free.pop()?);
        self.change(&block, State::Free, State::Held);
        Some(block)
    }

    /// A held block is now only kept.
    pub fn cache(&mut self, block: &Block) {
        self.change(block, State::Held, State::Cached);
    }

    /// A cached block is in use again.
    pub fn hold(&mut self, block: &Block) {
        self.change(block, State::Cached, State::Held);
    }

    /// Takes a held block back.
    #[expect(clippy::needless_pass_by_value, reason = "the handle must be gone afterwards")]
    pub fn release(&mut self, block: Block) {
        // A block of another pool would corrupt the accounts; leaving it out keeps them true.
        if self.change(&block, State::Held, State::Free) {
            self.free.push(block.0);
        }
    }

    /// The one place where a block changes its state. `false`, and nothing changed, when it was not in `from`: a defect.
    fn change(&mut self, block: &Block, from: State, to: State) -> bool {
        let state = self.states.get_mut(block.0.0 as usize);
        let known = state.is_some_and(|state| *state == from && std::mem::replace(state, to) == from);
        debug_assert!(known, "{block:?} is not {from:?} in this pool");
        if known {
            for (state, count) in [(State::Cached, &mut self.cached), (State::Held, &mut self.held)] {
                *count -= usize::from(from == state);
                *count += usize::from(to == state);
            }
        }
        known
    }

    /// Blocks without content.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Blocks whose content is kept and used by nobody.
    pub fn cached(&self) -> usize {
        self.cached
    }

    /// Blocks in use.
    pub fn held(&self) -> usize {
        self.held
    }

    /// All blocks.
    pub fn total(&self) -> usize {
        self.states.len()
    }

    /// What always holds.
    ///
    /// # Errors
    /// Says what does not.
    pub fn invariant(&self) -> Result<(), String> {
        let count = |wanted| self.states.iter().filter(|state| **state == wanted).count();
        let counted = (count(State::Free), count(State::Cached), count(State::Held));
        if counted != (self.free(), self.cached, self.held) {
            let kept = (self.free(), self.cached, self.held);
            return Err(format!(
                "free, cached and held blocks are {counted:?} and the accounts say {kept:?}"
            ));
        }
        let mut seen = vec![false; self.total()];
        for id in &self.free {
            let twice = std::mem::replace(&mut seen[id.0 as usize], true);
            if twice || self.states[id.0 as usize] != State::Free {
                return Err(format!("{id:?} is free twice, or free and in use"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn every_block_is_free_or_cached_or_held_once(
            total in 0usize..20,
            moves in prop::collection::vec((0u8..4, any::<u8>()), 0..200),
        ) {
            let mut pool = BlockPool::new(total);
            let (mut held, mut cached): (Vec<Block>, Vec<Block>) = (Vec::new(), Vec::new());
            for (step, at) in moves {
                let pick = |blocks: &mut Vec<Block>| match blocks.len() {
                    0 => None,
                    count => Some(blocks.swap_remove(at as usize % count)),
                };
                match step {
                    0 => match pool.take() {
                        Some(block) => held.push(block),
                        None => prop_assert_eq!(held.len() + cached.len(), total),
                    },
                    1 => if let Some(block) = pick(&mut held) { pool.release(block) },
                    2 => if let Some(block) = pick(&mut held) { pool.cache(&block); cached.push(block) },
                    _ => if let Some(block) = pick(&mut cached) { pool.hold(&block); held.push(block) },
                }
                prop_assert_eq!(pool.invariant(), Ok(()));
                prop_assert_eq!((pool.held(), pool.cached()), (held.len(), cached.len()));
                let distinct: HashSet<BlockId> = held.iter().chain(&cached).map(Block::id).collect();
                prop_assert_eq!(distinct.len() + pool.free(), total);
            }
            held.into_iter().for_each(|block| pool.release(block));
            prop_assert_eq!(pool.free() + pool.cached(), total);
        }
    }
}
