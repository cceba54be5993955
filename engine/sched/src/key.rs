//! Whose KV is it, and what else does it depend on? The typed parts of a prefix's key besides its tokens.

/// Names a tenant for the prefix cache. The server derives it from the caller's key, so that no caller can choose
/// another's; the default is the tenant of callers without a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(pub u128);

/// Names a LoRA adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdapterId(pub u32);

/// How KV is stored. A runner has one form for all that it stores, so it parts nothing within a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KvDtype {
    /// 16 bits a number.
    #[default]
    Bits16,
    /// 8 bits a number.
    Bits8,
}

/// What the KV of the same tokens depends on. Sequences of different spaces share nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KvSpace {
    /// The adapter that computes it; `None` is the model itself.
    pub adapter: Option<AdapterId>,
    /// How it is stored.
    pub kv_dtype: KvDtype,
}

/// Who may use a cached block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Owner {
    /// Everyone: its tokens, and all before them, come from the service itself.
    Shared,
    /// One tenant.
    Private(Tenant),
}

/// The key of one sequence's blocks besides their tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrefixKey {
    pub(crate) space: KvSpace,
    pub(crate) tenant: Tenant,
    /// The first tokens that everyone may share.
    pub(crate) shared_tokens: usize,
}

impl PrefixKey {
    /// Who may use a block that ends at position `end`. A block that holds one private token is private.
    pub(crate) fn owner(&self, end: usize) -> Owner {
        if end <= self.shared_tokens { Owner::Shared } else { Owner::Private(self.tenant) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_private_token_makes_a_block_private() {
        let key = PrefixKey { space: KvSpace::default(), tenant: Tenant(7), shared_tokens: 16 };
        assert_eq!(key.owner(16), Owner::Shared);
        assert_eq!(key.owner(17), Owner::Private(Tenant(7)));
        assert_eq!(PrefixKey { shared_tokens: 0, ..key }.owner(1), Owner::Private(Tenant(7)));
    }
}
