//! Does a journal give back what was acknowledged, whatever happened to its end, and name what was changed within?

use super::*;
use crate::change::Content;
use crate::mutate::{edits, mutate};
use crate::{DocumentInfo, Meta, Origin, Passage, PassageId, SourceSpan};
use proptest::prelude::*;
use std::sync::Arc;

fn content(id: &str, texts: &[&str]) -> Content {
    let passages = texts.iter().enumerate().map(|(at, text)| {
        Arc::new(Passage {
            id: PassageId(at as u64),
            document_id: id.into(),
            source: id.into(),
            title: id.into(),
            headings: vec![],
            text: (*text).into(),
            span: SourceSpan { start_byte: 0, end_byte: 1, start_line: 1, end_line: 1, page: None },
        })
    });
    let info = DocumentInfo {
        id: id.into(),
        source: id.into(),
        title: id.into(),
        format: "text".into(),
        meta: Meta::default(),
        origin: Origin::Put,
        sha256: String::new(),
        bytes: 1,
        passages: texts.len(),
        lossy: false,
    };
    let vectors = (0..2 * texts.len()).map(|value| value as f32 / 3.0).collect();
    Content { info, passages: passages.collect(), vectors }
}

fn changes() -> Vec<Change> {
    vec![
        Change { put: vec![content("a", &["one", "two"]), content("b", &["three"])], delete: vec![] },
        Change { put: vec![], delete: vec!["a".into()] },
        Change { put: vec![content("c", &["four"])], delete: vec!["b".into()] },
    ]
}

fn add(journal: &mut Journal, change: &Change) {
    journal.append(&encode(change, journal.len()).unwrap()).unwrap();
}

fn written(dir: &Path) -> Vec<u8> {
    let mut journal = Journal::create(dir, 1).unwrap();
    changes().iter().for_each(|change| add(&mut journal, change));
    fs::read(path_of(dir, 1)).unwrap()
}

#[test]
fn what_was_written_is_read_and_a_cut_end_is_dropped_wherever_it_falls() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = written(dir.path());
    assert_eq!(read(dir.path(), 1, 2).unwrap().changes, changes());
    assert!(read(dir.path(), 2, 2).unwrap_err().to_string().contains("journal-00000002: is missing"));
    let mut before = 0;
    for cut in MAGIC.len()..=bytes.len() {
        fs::write(path_of(dir.path(), 1), &bytes[..cut]).unwrap();
        let kept = read(dir.path(), 1, 2).unwrap();
        assert_eq!(kept.changes, changes()[..kept.changes.len()], "cut at {cut}");
        assert!(kept.changes.len() >= before);
        before = kept.changes.len();
        // Whatever the end was, what is added next is found next time.
        let mut journal = Journal::resume(dir.path(), &kept).unwrap();
        add(&mut journal, &changes()[1]);
        let again = read(dir.path(), 1, 2).unwrap().changes;
        assert_eq!((again.len(), again.last()), (before + 1, Some(&changes()[1])), "cut at {cut}");
    }
    assert_eq!(before, 3);
    // The first line was on disk before there was a journal.
    fs::write(path_of(dir.path(), 1), &bytes[..MAGIC.len() - 1]).unwrap();
    assert!(read(dir.path(), 1, 2).unwrap_err().to_string().contains("is no journal"));
}

#[test]
fn a_changed_record_within_is_damage_and_at_the_end_was_never_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = written(dir.path());
    let (_, first) = records(&bytes, 2).map(|_| ((), MAGIC.len())).unwrap();
    let mut changed = bytes.clone();
    changed[first + HEAD_BYTES] ^= 1;
    fs::write(path_of(dir.path(), 1), &changed).unwrap();
    let error = read(dir.path(), 1, 2).unwrap_err().to_string();
    assert!(error.contains("journal-00000001") && error.contains("at byte 18 was changed"), "{error}");
    let mut changed = bytes.clone();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(path_of(dir.path(), 1), &changed).unwrap();
    assert_eq!(read(dir.path(), 1, 2).unwrap().changes.len(), 2);
    // A journal that another follows was complete once.
    fs::write(path_of(dir.path(), 1), &bytes[..bytes.len() - 1]).unwrap();
    Journal::create(dir.path(), 2).unwrap();
    assert!(matches!(read(dir.path(), 1, 2), Err(IndexError::Damaged { .. })));
    fs::write(path_of(dir.path(), 1), b"something else").unwrap();
    assert!(read(dir.path(), 1, 2).unwrap_err().to_string().contains("is no journal"));
}

#[test]
fn joined_changes_keep_the_last_word_on_each_document() {
    let joined = Change::joined(changes());
    assert_eq!((joined.put, joined.delete), (vec![content("c", &["four"])], vec!["a".into(), "b".into()]));
}

#[test]
fn a_failed_write_is_undone_before_anything_follows_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(dir.path(), 1).unwrap();
    let [first, second, third] = &changes()[..] else { panic!() };
    add(&mut journal, first);
    // The disk takes neither the record nor that it is cut off again.
    let path = path_of(dir.path(), 1);
    let good = std::mem::replace(&mut journal.file, File::open(&path).unwrap());
    let record = encode(second, journal.len()).unwrap();
    assert!(journal.append(&record).is_err());
    assert!(journal.append(&record).is_err() && journal.mend().is_err());
    // What it had taken of it is gone when the disk takes something again.
    fs::write(&path, [fs::read(&path).unwrap(), record[..60].to_vec()].concat()).unwrap();
    journal.file = good;
    add(&mut journal, third);
    assert_eq!(read(dir.path(), 1, 2).unwrap().changes, [first.clone(), third.clone()]);
}

#[test]
fn a_journal_that_cannot_be_made_leaves_none() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(dir.path(), 1).unwrap();
    assert!(Journal::create(&dir.path().join("none"), 2).is_err());
    add(&mut journal, &changes()[0]);
    assert_eq!(read(dir.path(), 1, 2).unwrap().changes.len(), 1);
    // One that is missing between two others was lost.
    Journal::create(dir.path(), 3).unwrap();
    let error = read(dir.path(), 1, 2).unwrap_err().to_string();
    assert!(error.contains("journal-00000002") && error.contains("missing"), "{error}");
}

#[test]
fn a_changed_length_does_not_pass_for_a_cut_end() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = written(dir.path());
    let first = MAGIC.len();
    for at in first..first + HEAD_BYTES {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            let error = records(&changed, 2).unwrap_err();
            assert!(error.contains("at byte 18 was changed"), "byte {at}, bit {bit}: {error}");
        }
    }
}

#[test]
fn a_record_that_was_lost_or_came_twice_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = written(dir.path());
    let second = MAGIC.len() + encode(&changes()[0], 0).unwrap().len();
    let third = second + encode(&changes()[1], 0).unwrap().len();
    let lost = [&bytes[..second], &bytes[third..]].concat();
    let twice = [&bytes[..third], &bytes[second..]].concat();
    for changed in [lost, twice] {
        assert!(records(&changed, 2).unwrap_err().contains("was written to byte"));
    }
}

proptest! {
    #[test]
    fn no_changed_byte_of_a_journal_is_taken_for_a_written_one(edits in edits()) {
        let dir = tempfile::tempdir().unwrap();
        let bytes = written(dir.path());
        let changed = mutate(&bytes, &edits);
        if let Ok((kept, len)) = records(&changed, 2) {
            prop_assert_eq!(&kept[..], &changes()[..kept.len()]);
            prop_assert_eq!(&changed[..len], &bytes[..len]);
        }
    }

    /// Whatever a record holds that has its checksum.
    #[test]
    fn no_content_of_a_record_makes_its_reader_fail(edits in edits(), cut in 0usize..40) {
        let change = &changes()[0];
        let json = mutate(&serde_json::to_vec(change).unwrap(), &edits);
        let vectors = vec![1; 24 - cut.min(24)];
        let (place, is_whole) = (0, true);
        let record = Record { place, json: &json, vectors: &vectors, after: &[], is_whole };
        if let Ok(change) = decode(&record, 2) {
            let all = |content: &Content| content.info.passages == content.passages.len()
                && content.vectors.len() == 2 * content.passages.len();
            prop_assert!(change.put.iter().all(all));
        }
    }
}
