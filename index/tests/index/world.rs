//! What do the tests stand on? A folder of documents, a folder for their index, and short ways to ask it.

use crate::fake::Embedder;
use budgets::{Deadline, Limits, SystemClock};
use index::{Arms, Filter, Index, IndexError, Query, Summary, build};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

/// A folder of documents and one for the index, both gone with the test.
pub struct World {
    pub dir: tempfile::TempDir,
}

impl World {
    pub fn new(files: &[(&str, &str)]) -> World {
        let world = World { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(world.docs()).unwrap();
        files.iter().for_each(|(name, text)| world.write(name, text.as_bytes()));
        world
    }

    pub fn docs(&self) -> PathBuf {
        self.dir.path().join("docs")
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.docs().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub fn build(&self) -> Summary {
        self.try_build(&Embedder::default()).unwrap()
    }

    pub fn try_build(&self, embed: &Embedder) -> Result<Summary, IndexError> {
        build(&[self.docs()], &self.data(), embed, &Limits::default(), &mut |_| {})
    }

    pub fn open(&self) -> Index {
        self.try_open(Embedder::default()).unwrap()
    }

    pub fn try_open(&self, embed: Embedder) -> Result<Index, IndexError> {
        Index::open(&self.data(), Arc::new(embed), Arc::new(SystemClock::default()), &Limits::default())
    }

    /// Names a manifest of the one generation as one that was written on purpose.
    pub fn sign(&self, manifest: &[u8]) {
        let hash: String = Sha256::digest(manifest).iter().map(|byte| format!("{byte:02x}")).collect();
        let name = self.generation().file_name().unwrap().to_string_lossy().into_owned();
        fs::write(self.data().join("CURRENT"), format!("{name} {hash}\n")).unwrap();
    }

    /// The folder of the one generation.
    pub fn generation(&self) -> PathBuf {
        let generations: Vec<PathBuf> = fs::read_dir(self.data())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir())
            .collect();
        assert_eq!(generations.len(), 1, "{generations:?}");
        generations[0].clone()
    }
}

pub fn ask(text: &str) -> Query<'_> {
    Query { text, limit: 5, deadline: Deadline::NEVER, arms: Arms::Both, filter: Filter::ALL }
}

pub fn documents(index: &Index, text: &str) -> Vec<String> {
    index.search(&ask(text)).unwrap().hits.iter().map(|hit| hit.passage.document_id.clone()).collect()
}

pub const CATS: (&str, &str) =
    ("cats.md", "# Cats\n\nCats purr when they rest.\n\n## Food\n\nThey hunt mice at night.\n");
pub const DOGS: (&str, &str) = ("pets/dogs.txt", "Dogs bark at strangers.\n\nThey fetch sticks.\n");
pub const FISH: (&str, &str) = ("fish.rst", "Fish\n====\n\nFish swim in :term:`water`.\n");
pub const BIRD: (&str, &str) = ("bird.html", "<title>Birds</title><body><p>Birds sing at dawn.</p></body>");
