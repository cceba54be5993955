//! Is a generation with changed files never taken for the one that was written, and do its readers survive any content?

use super::*;
use crate::mutate::{Edit, edits, mutate};
use crate::rows::{self, Rows};
use crate::{DocumentInfo, Meta, Origin, Passage, PassageId, SourceSpan};
use proptest::prelude::*;

const DIMENSIONS: usize = 3;

fn rows() -> Rows {
    let mut rows = Rows::default();
    for (id, passages) in [("a", 2), ("b", 1)] {
        rows.documents.push(DocumentInfo {
            id: id.into(),
            source: id.into(),
            title: id.into(),
            format: "text".into(),
            meta: Meta::default(),
            origin: Origin::Put,
            sha256: String::new(),
            bytes: 1,
            passages,
            lossy: false,
        });
        rows.passages.extend((0..passages).map(|at| {
            Arc::new(Passage {
                id: PassageId(at as u64),
                document_id: id.into(),
                source: id.into(),
                title: id.into(),
                headings: vec![],
                text: "some text".into(),
                span: SourceSpan { start_byte: 0, end_byte: 1, start_line: 1, end_line: 1, page: None },
            })
        }));
    }
    rows.vectors = (0..DIMENSIONS * rows.passages.len()).map(|value| value as f32 / 7.0).collect();
    rows
}

/// A generation without what belongs to libraries.
fn written(dir: &Path) -> PathBuf {
    let rows = rows();
    let (generation, path) = begin(dir).unwrap();
    rows::write_documents(&path, &rows.documents).unwrap();
    rows::write_passages(&path, &rows.passages).unwrap();
    rows::write_vectors(&path, &rows.vectors).unwrap();
    fs::create_dir(path.join(LEXICAL)).unwrap();
    let mut manifest = Manifest {
        format: FORMAT,
        generation,
        embedder: "none".into(),
        dimensions: DIMENSIONS,
        embedded_text_version: EMBEDDED_TEXT_VERSION,
        documents: rows.documents.len(),
        passages: rows.passages.len(),
        journal: 1,
        files: Vec::new(),
    };
    let line = seal(&path, &mut manifest).unwrap();
    publish(dir, &line, &manifest).unwrap();
    path
}

fn read(opened: &Opened) -> Result<Rows, IndexError> {
    Ok(Rows {
        documents: rows::read_documents(opened)?,
        passages: rows::read_passages(opened)?,
        vectors: rows::read_vectors(opened)?,
    })
}

/// Changes one file; gives the bytes that it had and has.
fn change(file: &Path, edits: &[Edit]) -> (Vec<u8>, Vec<u8>) {
    let old = fs::read(file).unwrap();
    let new = mutate(&old, edits);
    fs::write(file, &new).unwrap();
    (old, new)
}

proptest! {
    #[test]
    fn no_changed_byte_of_a_generation_is_taken_for_a_written_one(edits in edits(), which in 0usize..5) {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        let files = [dir.path().join(CURRENT), path.join(MANIFEST), path.join(DOCUMENTS), path.join(PASSAGES), path.join(VECTORS)];
        let (old, new) = change(&files[which], &edits);
        match open(dir.path(), |opened| read(&opened.whole()?)) {
            // Blanks around the words of CURRENT say nothing.
            Ok(_) => prop_assert!(old == new || which == 0),
            Err(IndexError::Damaged { file, .. }) => prop_assert!(which == 0 || file == files[which]),
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    /// Whatever files hold that have their checksums.
    #[test]
    fn no_content_makes_a_reader_fail(edits in edits(), which in 0usize..4) {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        let names = [MANIFEST, DOCUMENTS, PASSAGES, VECTORS];
        change(&path.join(names[which]), &edits);
        let manifest = fs::read(path.join(MANIFEST)).unwrap();
        fs::write(dir.path().join(CURRENT), format!("{} {}", name_of(1), sha256(&manifest))).unwrap();
        let read = |opened: Opened| {
            let rows = read(&opened)?;
            Ok((rows, opened.manifest))
        };
        if let Ok((rows, manifest)) = open(dir.path(), read) {
            let passages: usize = rows.documents.iter().map(|info| info.passages).sum();
            prop_assert_eq!((passages, rows.documents.len()), (manifest.passages, manifest.documents));
            prop_assert_eq!(rows.passages.len(), passages);
            prop_assert_eq!(rows.vectors.len(), passages * manifest.dimensions);
        }
    }
}
