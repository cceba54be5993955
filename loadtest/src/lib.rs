//! How fast is a running server, seen from outside? A closed loop of callers over HTTP, and percentiles of what they saw.
//!
//! Knows the wire types and nothing of the server: what it measures is what any client would see.

mod report;
mod run;
mod sse;

pub use report::{Percentiles, Report};
pub use run::{LoadError, Outcome, Plan, Sample, run};
