//! Are the files of a folder read, each by its kind, and those that cannot be read named?

use crate::fake::{Embedder, docx, pdf};
use crate::world::{CATS, DOGS, World, documents};
use budgets::Limits;
use index::{IndexError, build};
use std::path::Path;

#[test]
fn files_that_cannot_be_read_are_named_and_the_rest_is_indexed() {
    let world = World::new(&[CATS, ("empty.md", " \n"), ("fake.pdf", "not one"), ("fake.docx", "not one")]);
    world.write("binary.txt", b"abc\0def");
    world.write("damaged.txt", b"na\xc3\xafve caf\xc3\xa9 soci\xffety");
    world.write("latin.txt", b"caf\xe9 society");
    world.write("large.txt", &vec![b'a'; 2_000]);
    let limits = Limits { document_bytes_max: 1_000, ..Limits::default() };
    let summary = build(&[world.docs()], &world.data(), &Embedder::default(), &limits, &mut |_| {}).unwrap();
    let skipped: Vec<(String, String)> = summary
        .skipped
        .iter()
        .map(|skipped| {
            (skipped.path.file_name().unwrap().to_string_lossy().into_owned(), skipped.reason.clone())
        })
        .collect();
    let expected = [
        ("binary.txt", "binary, not text"),
        ("empty.md", "no text in it"),
        ("fake.docx", "not a DOCX"),
        ("fake.pdf", "not a PDF"),
        ("large.txt", "larger than 1000 bytes"),
    ];
    assert_eq!(skipped, expected.map(|(path, reason)| (path.to_string(), reason.to_string())));
    assert_eq!(summary.lossy, [world.docs().join("damaged.txt")]);
    let index = world.open();
    assert_eq!(documents(&index, "society")[0], "latin.txt");
    let latin = &index.passages_of("latin.txt")[0];
    // The passage has 12 characters in 13 bytes of UTF-8; its place counts the bytes of the file.
    assert_eq!((latin.text.as_str(), latin.span.end_byte), ("café society", 12));
}

#[test]
fn a_pdf_is_read_page_by_page() {
    let world = World::new(&[]);
    world.write("two.pdf", &pdf(&["Herons stand still.", "Storks clatter."]));
    let summary = world.build();
    assert_eq!(summary.passages, 1);
    let index = world.open();
    let passage = &index.passages_of("two.pdf")[0];
    assert_eq!(
        (passage.text.as_str(), passage.span.page),
        ("Herons stand still.\n\nStorks clatter.", Some(1))
    );

    let limits = Limits { document_pages_max: 1, ..Limits::default() };
    let error =
        build(&[world.docs()], &world.data(), &Embedder::default(), &limits, &mut |_| {}).unwrap_err();
    assert!(matches!(error, IndexError::Nothing { files: 1, skipped: 1 }), "{error}");
    assert_eq!(world.open().info().generation, 1);
}

#[test]
fn tables_records_code_and_word_documents_are_found() {
    let world = World::new(&[
        ("herons.csv", "bird,food\nheron,frogs\nstork,mice\n"),
        (
            "birds.jsonl",
            "{\"title\": \"Owls\", \"text\": \"Owls hunt by ear.\"}\nbroken\n{\"title\": \"Swifts\", \"text\": \"Swifts sleep in flight.\"}\n",
        ),
        ("flight.rs", "use std::fs;\n\n/// Flaps the wings.\npub fn flap(wings: usize) {\n    wings;\n}\n"),
        ("made.rs.txt", "Generated text.\n"),
    ]);
    world.write("report.docx", &docx("Penguins cannot fly."));
    let summary = world.build();
    assert_eq!((summary.documents, summary.skipped.len(), summary.lossy.len()), (5, 0, 0));
    let index = world.open();
    let passage = |name: &str, at: usize| index.passages_of(name)[at].clone();

    let rows = passage("herons.csv", 0);
    assert_eq!(rows.text, "bird: heron; food: frogs\nbird: stork; food: mice");
    assert_eq!((rows.span.start_byte, rows.span.start_line, rows.span.end_line), (10, 2, 3));
    let swifts = passage("birds.jsonl", 1);
    assert_eq!((swifts.title.as_str(), &swifts.headings[..]), ("birds.jsonl", &["Swifts".to_string()][..]));
    assert_eq!((swifts.span.start_line, swifts.span.end_line), (3, 3));
    let flap = passage("flight.rs", 1);
    assert_eq!(
        (flap.title.as_str(), &flap.headings[..]),
        ("flight.rs", &["pub fn flap(wings: usize)".to_string()][..])
    );
    assert_eq!(flap.text, "/// Flaps the wings.\npub fn flap(wings: usize) {\n    wings;\n}");
    assert_eq!((flap.span.start_line, flap.span.end_line), (3, 6));
    let penguins = passage("report.docx", 0);
    assert_eq!((penguins.text.as_str(), penguins.span.start_line), ("Penguins cannot fly.", 0));
    assert_eq!(passage("made.rs.txt", 0).title, "made");
}

#[cfg(unix)]
#[test]
fn links_and_overlapping_paths_index_each_file_once() {
    use std::os::unix::fs::symlink;
    let world = World::new(&[CATS, DOGS, ("more/cats.md", "Other cats.")]);
    symlink(world.docs(), world.docs().join("pets/up")).unwrap();
    symlink(world.docs().join("cats.md"), world.docs().join("same.md")).unwrap();
    symlink(world.docs().join("gone"), world.docs().join("broken.md")).unwrap();
    let paths = [world.docs(), world.docs().join("cats.md"), world.docs().join("more")];
    let summary =
        build(&paths, &world.data(), &Embedder::default(), &Limits::default(), &mut |_| {}).unwrap();
    assert_eq!(summary.documents, 3);
    let skipped: Vec<&Path> = summary.skipped.iter().map(|skipped| skipped.path.as_path()).collect();
    assert_eq!(skipped, [world.docs().join("broken.md"), world.docs().join("pets/up")]);

    // The same name below two roots: the second is told apart by its root.
    let roots = [world.docs().join("cats.md"), world.docs().join("more")];
    build(&roots, &world.data(), &Embedder::default(), &Limits::default(), &mut |_| {}).unwrap();
    let index = world.open();
    assert_eq!((index.passages_of("cats.md").len(), index.passages_of("more/cats.md").len()), (2, 1));
}
