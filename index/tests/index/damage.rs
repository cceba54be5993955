//! Whatever happens to one file of an index: is it mended, or named, and nothing lost without a word?

use crate::victim::{Random, Texts, limits, note, open};
use crate::world::{CATS, DOGS, World};
use index::{Filter, Index, IndexError};
use std::fs;
use std::path::{Path, PathBuf};

/// Cases, unless RIPOSTE_DAMAGE_CASES says how many.
const CASES: u64 = 150;

fn files_below(folder: &Path, out: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, out);
        } else {
            out.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
}

fn texts(index: &Index) -> Texts {
    let text =
        |id: &str| index.passages_of(id).iter().map(|passage| passage.text.as_str()).collect::<String>();
    let all = index.documents(&Filter::ALL, None, usize::MAX);
    all.iter().map(|info| (info.id.clone(), text(&info.id))).collect()
}

/// Other bytes; none when the file is gone.
fn damaged(old: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut new = old.to_vec();
    let at = random.below(old.len() as u64 + 1) as usize;
    let to = (at + 1 + random.below(64) as usize).min(old.len());
    match random.below(7) {
        0 => return None,
        1 => new.truncate(at),
        2 => drop(new.drain(at.min(to)..to)),
        3 => new.insert(at, random.below(256) as u8),
        4 => new[at.min(to)..to].fill(0),
        5 => new.extend_from_slice(&old[at..]),
        _ => new.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << random.below(8)),
    }
    Some(new)
}

#[test]
fn one_damaged_file_is_mended_or_named() {
    let world = World::new(&[CATS, DOGS]);
    world.build();
    let (data, limits) = (world.data(), limits());
    let index = open(&data, &limits).unwrap();
    let built = texts(&index);
    index.put(note("owls", "Owls hoot.")).unwrap();
    let but_last = texts(&index);
    index.put(note("larks", "Larks sing.")).unwrap();
    let whole = texts(&index);
    drop(index);
    let mut files = Vec::new();
    files_below(&data, &mut files);
    let cases = std::env::var("RIPOSTE_DAMAGE_CASES").ok().and_then(|cases| cases.parse().ok());
    let (mut mended, mut named) = (0, 0);
    for case in 0..cases.unwrap_or(CASES) {
        let mut random = Random(case);
        fs::remove_dir_all(&data).unwrap();
        for (path, bytes) in &files {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let (path, old) = &files[random.below(files.len() as u64) as usize];
        let new = damaged(old, &mut random);
        match &new {
            Some(new) => fs::write(path, new).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        let told = format!("case {case}: {} {:?}", path.display(), new.as_ref().map(Vec::len));
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let (is_journal, is_current) = (name.starts_with("journal-"), name == "CURRENT");
        match open(&data, &limits) {
            // What is left of a journal that was cut short cannot be told from one that was not written further, nor a
            // change of the last record from a write that was cut short.
            Ok(index) if is_journal => {
                let is_cut = new.is_some_and(|new| old.starts_with(&new));
                let now = texts(&index);
                assert!(now == whole || now == but_last || (is_cut && now == built), "{told}");
            }
            // Without it there is no index, as in a folder that never had one.
            Ok(index) if is_current && new.is_none() => assert!(texts(&index).is_empty(), "{told}"),
            Ok(index) => {
                assert_eq!(texts(&index), whole, "{told}");
                mended += 1;
            }
            Err(IndexError::Damaged { file, .. }) => {
                let stored = ["manifest.json", "documents.jsonl", "passages.jsonl"].contains(&name.as_str());
                assert!(
                    is_current || (file == *path && (is_journal || stored)),
                    "{told}: {}",
                    file.display()
                );
                named += 1;
            }
            Err(error) => panic!("{told}: {error}"),
        }
    }
    assert!(mended > 20 && named > 20, "{mended} mended, {named} named");
}
