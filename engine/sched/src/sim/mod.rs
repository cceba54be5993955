//! What would hours of traffic do to the scheduler? Requests, faults and a runner on a virtual clock: seeded, pure, and
//! as fast as the scheduler itself.
//!
//! [`Simulation`] drives a real [`crate::Scheduler`] the way an engine does, with a [`SimRunner`] whose steps take the time
//! that a cost model says, and checks at every turn what must always hold. Tests, benches and `riposte simulate` use it.

mod driver;
mod live;
mod random;
mod report;
mod runner;
mod trace;
mod traffic;

pub use driver::{SimError, SimOptions, Simulation};
pub use random::Random;
pub use report::{Ends, SimReport, SimSlo, Spread};
pub use runner::{Draws, Faults, SimRunner};
pub use trace::{Arrivals, Replay, TraceError, TraceFormat, TraceRow, read_trace};
pub use traffic::{Cancel, End, Ended, Listed, SimRequest, Traffic};
