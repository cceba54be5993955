//! How do folders become a generation on disk?

use crate::{Embed, IndexError, Progress, Summary};
use budgets::Limits;
use std::path::{Path, PathBuf};

/// Indexes all documents under `paths` into `dir`.
///
/// # Errors
/// See [`IndexError`]; the old generation stays usable whatever happens.
pub fn build(
    paths: &[PathBuf],
    dir: &Path,
    embed: &dyn Embed,
    limits: &Limits,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Summary, IndexError> {
    let _ = (paths, embed, limits, progress);
    Err(IndexError::Missing { dir: dir.to_path_buf() })
}
