//! Does the API keep its promises? Everything in one process, over a scripted model.

// Helpers of tests are tests too: a panic there is how they fail.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

mod answers;
mod chat;
mod client;
mod documents;
mod errors;
mod failures;
mod features;
mod operations;
mod rig;
mod sockets;
