//! Which tokens does the engine compute next? Decides, and computes nothing itself: no clock, no threads, no kernels.

mod admission;
mod blocks;
mod check;
mod children;
mod commit;
mod fake;
mod key;
mod ledger;
mod plan;
mod planning;
mod policy;
mod radix;
mod scheduler;
mod sequence;
pub mod sim;

pub use admission::{Refused, WorstCase};
pub use blocks::{Block, BlockPool};
pub use commit::{Committed, NewToken, OutputMismatch};
pub use fake::{FakeFailure, FakeLog, FakeRunner, fold};
pub use key::{AdapterId, KvDtype, KvSpace, Tenant};
pub use plan::{
    BlockCopy, BlockId, Draw, Drawn, RowPlan, RunError, Runner, RunnerLimits, Sampling, SeqId, Span,
    StepOutput, StepPlan, TokenId, TokenMask,
};
pub use policy::{Batching, Policy, Reservation};
pub use scheduler::{Expired, SchedCounts, Scheduler};
pub use sequence::{Phase, SeqRequest};
