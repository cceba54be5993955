//! Which blocks continue this one? The children of a node of the prefix cache, in the order of their owners and tokens.

use crate::TokenId;
use crate::key::Owner;
use crate::radix::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What leads from a node to its child.
pub(crate) type Edge = (Owner, Arc<[TokenId]>);

/// Children by their edges. Nearly every node has one at most, and a map of its own for that one would take several
/// times the memory of the node, and most of the time that a new prompt takes to enter the tree.
#[derive(Debug, Default)]
pub(crate) enum Children {
    #[default]
    None,
    One(Edge, NodeId),
    /// Two or more, or fewer after some were removed.
    Many(BTreeMap<Edge, NodeId>),
}

impl Children {
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::None => true,
            Self::One(..) => false,
            Self::Many(map) => map.is_empty(),
        }
    }

    /// The child with exactly this edge.
    pub(crate) fn get(&self, owner: Owner, tokens: &[TokenId]) -> Option<NodeId> {
        match self {
            Self::None => None,
            Self::One(edge, id) => (edge.0 == owner && *edge.1 == *tokens).then_some(*id),
            Self::Many(map) => map.get(&(owner, tokens.into())).copied(),
        }
    }

    /// The child right before the place of this edge, and the one at it or right after it.
    pub(crate) fn around(&self, owner: Owner, tokens: &[TokenId]) -> [Option<(&Edge, NodeId)>; 2] {
        match self {
            Self::None => [None, None],
            Self::One(edge, id) => {
                let before = (edge.0, &*edge.1) < (owner, tokens);
                [Some((edge, *id)).filter(|_| before), Some((edge, *id)).filter(|_| !before)]
            }
            Self::Many(map) => {
                let place: Edge = (owner, tokens.into());
                let beside = [map.range(..&place).next_back(), map.range(&place..).next()];
                beside.map(|child| child.map(|(edge, id)| (edge, *id)))
            }
        }
    }

    /// Adds a child whose edge is not there yet.
    pub(crate) fn insert(&mut self, edge: Edge, id: NodeId) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(edge, id),
            Self::One(other, other_id) => Self::Many(BTreeMap::from([(other, other_id), (edge, id)])),
            Self::Many(mut map) => {
                map.insert(edge, id);
                Self::Many(map)
            }
        };
    }

    pub(crate) fn remove(&mut self, edge: &Edge) {
        match self {
            Self::One(known, _) if known == edge => *self = Self::None,
            Self::Many(map) => {
                map.remove(edge);
            }
            Self::None | Self::One(..) => {}
        }
    }
}
