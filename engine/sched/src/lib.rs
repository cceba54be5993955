//! Which tokens does the engine compute next? Decides, and computes nothing itself: no clock, no threads, no kernels.

mod admission;
mod blocks;
mod check;
mod fake;
mod plan;
mod scheduler;
mod sequence;

pub use admission::{Refused, WorstCase};
pub use blocks::{Block, BlockPool};
pub use fake::{FakeFailure, FakeLog, FakeRunner};
pub use plan::{
    BlockId, Draw, Drawn, RowPlan, RunError, Runner, RunnerLimits, Sampling, SeqId, Span, StepOutput,
    StepPlan, TokenId,
};
pub use scheduler::{Committed, Expired, NewToken, OutputMismatch, Scheduler};
pub use sequence::{Phase, SeqRequest};
