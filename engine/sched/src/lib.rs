//! Which tokens does the engine compute next? Decides, and computes nothing itself: no clock, no threads, no kernels.

mod plan;

pub use plan::{
    BlockId, Draw, Drawn, RowPlan, RunError, Runner, RunnerLimits, Sampling, SeqId, Span, StepOutput,
    StepPlan, TokenId,
};
