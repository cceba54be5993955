//! Does an index that is built, opened and searched from outside keep its promises?

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod damage;
mod fake;
mod files;
mod generation;
mod kill;
mod live;
mod victim;
mod watch;
mod world;
