//! Where do the demo's documents come from? The handbook, carried inside the binary so that it is there anywhere.

use rust_embed::{EmbeddedFile, RustEmbed};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

#[derive(RustEmbed)]
#[folder = "../../docs/handbook"]
struct Pages;

/// The table of contents repeats every question and answers none: indexed, it would push the pages down.
const CONTENTS: &str = "README.md";

/// Questions that pages of the handbook answer, for the page to offer and the load test to ask.
const QUESTIONS: [&str; 8] = [
    "What is the KV cache and why does it grow?",
    "Why do prefill and decode use the same hardware so differently?",
    "What is the difference between static and continuous batching?",
    "Which problem does PagedAttention solve?",
    "When does speculative decoding pay?",
    "What does chunked prefill do when a long prompt arrives among many streams?",
    "How does a radix tree serve a prefix cache?",
    "What does a query cost?",
];

/// The same, owned.
pub fn questions() -> Vec<String> {
    QUESTIONS.map(str::to_string).to_vec()
}

/// The handbook's pages as files, in order: in the repository's folder if the program runs there and they are the ones
/// it was built with, so that sources read `docs/handbook/...`; else a copy in `folder`.
///
/// # Errors
/// When the copy cannot be written.
pub fn pages(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut names: Vec<_> =
        Pages::iter().filter(|name| name.ends_with(".md") && name.as_ref() != CONTENTS).collect();
    names.sort();
    let pages: Vec<_> = names.into_iter().filter_map(|name| Some((Pages::get(&name)?, name))).collect();
    let repository = Path::new("docs/handbook");
    let unchanged = |(page, name): &(EmbeddedFile, Cow<'_, str>)| {
        std::fs::read(repository.join(name.as_ref())).is_ok_and(|bytes| bytes == *page.data)
    };
    if pages.iter().all(unchanged) {
        return Ok(pages.iter().map(|(_, name)| repository.join(name.as_ref())).collect());
    }
    std::fs::create_dir_all(folder)?;
    let copy = |(page, name): (EmbeddedFile, Cow<'_, str>)| {
        let path = folder.join(name.as_ref());
        std::fs::write(&path, &page.data)?;
        Ok(path)
    };
    pages.into_iter().map(copy).collect()
}

/// The text of all pages, in order.
pub fn text() -> String {
    let mut names: Vec<_> =
        Pages::iter().filter(|name| name.ends_with(".md") && name.as_ref() != CONTENTS).collect();
    names.sort();
    let pages = names.iter().filter_map(|name| Pages::get(name));
    pages.map(|page| String::from_utf8_lossy(&page.data).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_holds_every_page_but_the_table_of_contents() {
        let folder = tempfile::tempdir().unwrap();
        let pages = pages(&folder.path().join("pages")).unwrap();
        assert!(pages.len() >= 20, "{} pages", pages.len());
        assert!(pages.iter().all(|path| path.is_file() && !path.ends_with(CONTENTS)));
    }
}
