//! What does the process do that the kill tests kill? Operations that their numbers tell, so that who kills it knows
//! what it had been doing; each is told on stdout before it begins and when it has been acknowledged.

use crate::fake::Embedder;
use crate::world::ask;
use budgets::{Limits, SystemClock};
use index::{Arms, Index, IndexError, Meta, NewDocument, Query, build};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Names that documents of the live index may have, so that most puts replace one and most deletes hit one.
const NAMES: u64 = 160;
/// Files of a folder that is built.
pub const FILES: usize = 24;

/// Numbers that look random and are the same each time (SplitMix64; Steele and others, OOPSLA 2014).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Documents of an index by name, each with its text.
pub type Texts = BTreeMap<String, String>;

/// What one operation does.
#[derive(Clone, Debug)]
pub enum Operation {
    Put(Vec<(String, String)>),
    Delete(Vec<String>),
}

impl Operation {
    pub fn of(seed: u64, number: u64) -> Operation {
        let mut random = Random(seed ^ number.wrapping_mul(0x5851_f42d_4c95_7f2d));
        let names: Vec<u64> = (0..=random.below(6)).map(|_| random.below(NAMES)).collect();
        let id = |name: &u64| format!("doc{name}");
        if random.below(4) == 0 {
            return Operation::Delete(names.iter().map(id).collect());
        }
        // One word of each text stands in no other.
        let text = |at: usize, name: &u64| format!("Note q{number}z{at} of {} says little.", id(name));
        Operation::Put(names.iter().enumerate().map(|(at, name)| (id(name), text(at, name))).collect())
    }

    pub fn apply(&self, texts: &mut Texts) {
        match self {
            Operation::Put(new) => texts.extend(new.iter().cloned()),
            Operation::Delete(gone) => gone.iter().for_each(|id| drop(texts.remove(id))),
        }
    }

    pub fn names(&self) -> Vec<&str> {
        match self {
            Operation::Put(new) => new.iter().map(|(id, _)| id.as_str()).collect(),
            Operation::Delete(gone) => gone.iter().map(String::as_str).collect(),
        }
    }

    fn run(&self, index: &Index) -> Result<(), IndexError> {
        match self {
            Operation::Put(new) => index
                .put_all(new.iter().map(|(id, text)| note(id, text)).collect())
                .into_iter()
                .try_for_each(|outcome| outcome.map(drop)),
            Operation::Delete(gone) => {
                index.delete(&gone.iter().map(String::as_str).collect::<Vec<_>>()).map(drop)
            }
        }
    }
}

pub fn note(id: &str, text: &str) -> NewDocument {
    NewDocument {
        id: id.into(),
        file_name: "note.txt".into(),
        source: id.into(),
        bytes: text.as_bytes().to_vec(),
        meta: Meta::default(),
        origin: index::Origin::Put,
    }
}

/// Bounds under which an index of the test's size is rebuilt again and again.
pub fn limits() -> Limits {
    Limits { rebuild_passages_min: 24, ..Limits::default() }
}

pub fn open(data: &Path, limits: &Limits) -> Result<Index, IndexError> {
    Index::open_live(data, Arc::new(Embedder::default()), Arc::new(SystemClock::default()), limits)
}

/// What the process is told in its environment.
pub struct Order<'a> {
    pub task: &'a str,
    pub dir: &'a Path,
    pub seed: u64,
    /// Number of the first operation.
    pub from: u64,
    /// Largest file that it may write, in blocks of 512 bytes.
    pub blocks_max: Option<u64>,
}

impl Order<'_> {
    /// This very binary, as a process of its own that runs [`victim`] alone.
    pub fn command(&self) -> Command {
        let exe = std::env::current_exe().unwrap();
        let mut command = match self.blocks_max {
            None => Command::new(exe),
            Some(blocks) => {
                // A write beyond the bound fails halfway, as on a full disk, once the signal is ignored.
                let mut shell = Command::new("sh");
                let script = "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\"";
                shell.args(["-c", script, &blocks.to_string()]).arg(exe);
                shell
            }
        };
        command
            .args(["victim::victim", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env("RIPOSTE_VICTIM", self.task)
            .env("RIPOSTE_VICTIM_DIR", self.dir)
            .env("RIPOSTE_VICTIM_SEED", self.seed.to_string())
            .env("RIPOSTE_VICTIM_FROM", self.from.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

/// Runs only in a process that [`Order::command`] started.
#[test]
#[ignore = "a process for the kill tests, not a test"]
fn victim() {
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let Ok(task) = std::env::var("RIPOSTE_VICTIM") else { return };
    let dir = PathBuf::from(std::env::var_os("RIPOSTE_VICTIM_DIR").unwrap());
    let (seed, from) = (number("RIPOSTE_VICTIM_SEED"), number("RIPOSTE_VICTIM_FROM"));
    match task.as_str() {
        "live" => change(&open(&dir, &limits()).unwrap(), seed, from, u64::MAX),
        // Without rebuilds one journal takes all, until it meets the bound.
        "full" => {
            let limits = Limits { rebuild_passages_min: usize::MAX, ..Limits::default() };
            change(&open(&dir, &limits).unwrap(), seed, from, 400);
        }
        "build" => (from..u64::MAX).for_each(|number| build_version(&dir, number)),
        other => panic!("{other}"),
    }
}

/// One line to the parent, in the pipe when this returns.
fn say(what: &str, number: u64) {
    let mut out = std::io::stdout().lock();
    // The test harness may have begun a line.
    write!(out, "\n@ {what} {number}\n").unwrap();
    out.flush().unwrap();
}

fn change(index: &Index, seed: u64, from: u64, count: u64) {
    for number in (from..).take(usize::try_from(count).unwrap()) {
        let operation = Operation::of(seed, number);
        say("begin", number);
        if let Err(error) = operation.run(index) {
            assert!(matches!(error, IndexError::Io { .. }), "{error}");
            say("fail", number);
            continue;
        }
        say("done", number);
        read_own(index, &operation);
    }
}

/// The process that wrote finds what it wrote, whatever rebuild or swap is going on.
fn read_own(index: &Index, operation: &Operation) {
    let mut now = Texts::new();
    operation.apply(&mut now);
    for id in operation.names() {
        let text = now.get(id);
        assert_eq!(index.passages_of(id).first().map(|passage| &passage.text), text, "{id}");
        let asked = text.map_or(id, String::as_str);
        let hits = index.search(&Query { arms: Arms::Lexical, ..ask(asked) }).unwrap().hits;
        assert_eq!(hits.iter().any(|hit| hit.passage.document_id == id), text.is_some(), "{id}: {hits:?}");
    }
}

/// Text of a file in one version of the folder.
pub fn version_text(file: usize, version: u64) -> String {
    format!("File {file} in version v{version}z.")
}

fn build_version(dir: &Path, version: u64) {
    let docs = dir.join("docs");
    fs::create_dir_all(&docs).unwrap();
    for file in 0..FILES {
        fs::write(docs.join(format!("file{file}.txt")), version_text(file, version)).unwrap();
    }
    say("begin", version);
    build(&[docs], &dir.join("data"), &Embedder::default(), &Limits::default(), &mut |_| {}).unwrap();
    say("done", version);
}
