//! Which KV blocks are free? The pool's accounts; the memory itself is the runner's.

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

/// Counts the blocks of one device: each is free or held.
#[derive(Debug)]
pub struct BlockPool {
    /// A stack, so that the block used last, whose memory is warm, is used next.
    free: Vec<BlockId>,
    held: Vec<bool>,
    held_count: usize,
}

impl BlockPool {
    /// A pool of `total` free blocks (at most 2^32).
    pub fn new(total: usize) -> Self {
        let total = u32::try_from(total).unwrap_or(u32::MAX);
        Self {
            free: (0..total).rev().map(BlockId).collect(),
            held: vec![false; total as usize],
            held_count: 0,
        }
    }

    /// Takes a free block, if there is one.
    pub fn take(&mut self) -> Option<Block> {
        let id = self.free.pop()?;
        debug_assert!(!self.held[id.0 as usize], "{id:?} was free and held");
        self.held[id.0 as usize] = true;
        self.held_count += 1;
        self.assert_sum();
        Some(Block(id))
    }

    /// Takes `block` back.
    #[expect(clippy::needless_pass_by_value, reason = "the handle must be gone afterwards")]
    pub fn release(&mut self, block: Block) {
        let Block(id) = block;
        // A block of another pool would corrupt the accounts; leaving it out keeps them true.
        let known = self.held.get_mut(id.0 as usize).is_some_and(std::mem::take);
        debug_assert!(known, "{id:?} is not held by this pool");
        if known {
            self.held_count -= 1;
            self.free.push(id);
        }
        self.assert_sum();
    }

    /// Blocks that nobody holds.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Blocks given out.
    pub fn held(&self) -> usize {
        self.held_count
    }

    /// All blocks.
    pub fn total(&self) -> usize {
        self.held.len()
    }

    /// The cheap half of [`BlockPool::invariant`], on every change.
    fn assert_sum(&self) {
        debug_assert_eq!(self.free() + self.held(), self.total(), "free + held = total");
    }

    /// What always holds.
    ///
    /// # Errors
    /// Says what does not.
    pub fn invariant(&self) -> Result<(), String> {
        if self.free() + self.held() != self.total() {
            return Err(format!(
                "{} free + {} held blocks are not {} in total",
                self.free(),
                self.held(),
                self.total()
            ));
        }
        let mut seen = self.held.clone();
        for id in &self.free {
            if std::mem::replace(&mut seen[id.0 as usize], true) {
                return Err(format!("{id:?} is free twice, or free and held"));
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
        fn every_block_is_free_or_held_once(total in 0usize..20, moves in prop::collection::vec(any::<Option<u8>>(), 0..200)) {
            let mut pool = BlockPool::new(total);
            let mut held: Vec<Block> = Vec::new();
            for step in moves {
                match step {
                    None => match pool.take() {
                        Some(block) => held.push(block),
                        None => prop_assert_eq!(held.len(), total),
                    },
                    Some(at) if !held.is_empty() => pool.release(held.swap_remove(at as usize % held.len())),
                    Some(_) => {}
                }
                prop_assert_eq!(pool.invariant(), Ok(()));
                prop_assert_eq!(pool.held(), held.len());
                let distinct: HashSet<BlockId> = held.iter().map(Block::id).collect();
                prop_assert_eq!(distinct.len(), held.len());
            }
            held.into_iter().for_each(|block| pool.release(block));
            prop_assert_eq!(pool.free(), total);
        }
    }
}
