//! What do the tests from outside share? Where the workspace lies and where real weights are.

use std::path::{Path, PathBuf};

/// The root folder of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files of a model from the local cache; `None`, with a line on stderr, when it was not pulled.
///
/// # Panics
/// When it was not pulled and `RIPOSTE_REQUIRE_WEIGHTS` is set, as CI does after pulling: there nothing is skipped.
#[allow(clippy::print_stderr, reason = "a skipped test must say so")]
pub fn weights(name: &str) -> Option<models::ModelFiles> {
    match local(name) {
        Ok(files) => Some(files),
        Err(error) => {
            assert!(std::env::var_os("RIPOSTE_REQUIRE_WEIGHTS").is_none(), "{name}: {error}");
            eprintln!("skipped: {name} is not here; run `cargo run --release -- models pull {name}`");
            None
        }
    }
}

fn local(name: &str) -> Result<models::ModelFiles, String> {
    let registry = models::Registry::built_in().map_err(|error| error.to_string())?;
    let spec = registry.get(name).ok_or("not in the registry")?;
    let store = models::Store::from_env(true).map_err(|error| error.to_string())?;
    store.path(spec).map_err(|error| error.to_string())
}
