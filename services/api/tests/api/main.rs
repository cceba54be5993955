//! Does the API keep its promises? Everything in one process, over a scripted model.

mod answers;
mod chat;
mod client;
mod errors;
mod operations;
mod rig;
mod sockets;
