//! What may this request still spend? Time, deadlines, stages and bounds, shared by every floor above.
//!
//! Knows nothing of HTTP, models or indexes: std and serde only.

mod clock;
mod cost;
mod deadline;
mod limits;
mod stage;

pub use clock::{Clock, ManualClock, Moment, SystemClock};
pub use cost::{Coefficients, CostError, CostModel, StepShape};
pub use deadline::{Deadline, Slo};
pub use limits::{LimitError, Limits};
pub use stage::{Stage, Timeline};
