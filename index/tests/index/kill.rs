//! Is nothing lost that was acknowledged, and does the index always open, when a process is killed at any moment?
//!
//! A real process puts, replaces and deletes documents while it is rebuilt over and over, and is killed with SIGKILL;
//! then what it left is compared with what it had acknowledged, and another process goes on from there. This tells
//! nothing of a power cut, which may lose what was written and not synced.

#![allow(clippy::print_stdout, reason = "the seed of a failure, and where the kills fell")]

use crate::fake::Embedder;
use crate::victim::{FILES, Operation, Order, Random, Texts, limits, note, open, version_text};
use crate::world::{World, ask};
use budgets::{Limits, SystemClock};
use index::{Arms, Filter, Index, Query};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

const KILLS: usize = 110;
const BUILD_KILLS: usize = 25;
/// Kills that must have hit each kind of moment, and how many are tried to get there.
const EACH_MIN: usize = 8;
const KILLS_MAX: usize = 400;

fn seed() -> u64 {
    let seed = std::env::var("RIPOSTE_KILL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(2_026);
    println!("RIPOSTE_KILL_SEED={seed}");
    seed
}

/// What a killed process had said.
#[derive(Debug, Default)]
struct Told {
    /// Operations that were acknowledged, and one that may or may not have been done.
    done: Vec<u64>,
    in_flight: Option<u64>,
    failed: Vec<u64>,
}

/// Lets a process run until `moment` returns, kills it, and gives what it had said.
fn killed(order: &Order<'_>, moment: impl FnOnce(&mut Child)) -> Told {
    let mut child = order.command().spawn().unwrap();
    let (out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let lines = std::thread::spawn(move || -> Vec<String> {
        BufReader::new(out).lines().map_while(Result::ok).filter(|line| line.starts_with("@ ")).collect()
    });
    moment(&mut child);
    let ended = child.try_wait().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    if let Some(status) = ended.filter(|status| !status.success() || order.blocks_max.is_none()) {
        let mut text = String::new();
        err.read_to_string(&mut text).unwrap();
        panic!("the process ended by itself, {status}: {text}");
    }
    let mut told = Told::default();
    for line in lines.join().unwrap() {
        let [_, what, number] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let number = number.parse().unwrap();
        told.in_flight = None;
        match what {
            "begin" => told.in_flight = Some(number),
            "done" => told.done.push(number),
            "fail" => told.failed.push(number),
            _ => panic!("{line}"),
        }
    }
    told
}

/// What a folder tells of the moment at which its writer was killed, beside what had lain there before.
#[derive(Debug, Default)]
struct Left {
    /// A generation that is not complete.
    rebuild: bool,
    /// A complete generation that is not the current one yet, or what a new current one replaced.
    swap: bool,
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Name of the current generation; none before the first.
fn current(data: &Path) -> Option<String> {
    Some(fs::read_to_string(data.join("CURRENT")).ok()?.split(' ').next()?.to_string())
}

/// Name of the first journal that a generation does not hold.
fn first_journal(data: &Path, generation: &str) -> String {
    let manifest = fs::read(data.join(generation).join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    format!("journal-{:08}", manifest["journal"].as_u64().unwrap())
}

fn left(data: &Path, current_before: Option<&String>, before: &[String]) -> Left {
    let is_new = |name: &&String| !before.contains(name);
    let now = names(data);
    let mut left =
        Left { swap: now.iter().filter(is_new).any(|name| name == "CURRENT.new"), ..Left::default() };
    let Some(current) = current(data) else { return left };
    let first = first_journal(data, &current);
    let was_swapped = Some(&current) != current_before;
    for name in &now {
        let (is_generation, is_journal) = (name.starts_with("gen-"), name.starts_with("journal-"));
        if is_generation && *name > current && is_new(&name) {
            let is_whole = data.join(name).join("manifest.json").exists();
            left.swap |= is_whole;
            left.rebuild |= !is_whole;
        }
        let is_replaced = (is_generation && *name < current) || (is_journal && *name < first);
        left.swap |= was_swapped && is_replaced;
    }
    left
}

/// Moments at which to kill.
fn wait(data: &Path, random: &mut Random) {
    let until = |limit_ms: u64, holds: &dyn Fn() -> bool| {
        let end = Instant::now() + Duration::from_millis(limit_ms);
        while Instant::now() < end && !holds() {
            std::hint::spin_loop();
        }
    };
    let sleep =
        |random: &mut Random, micros: u64| std::thread::sleep(Duration::from_micros(random.below(micros)));
    let before = current(data);
    let is_new = |name: &String| name.starts_with("gen-") && Some(name) > before.as_ref();
    match random.below(4) {
        // At any moment, also while it opens.
        0 => sleep(random, 400_000),
        // While a generation is written.
        1 => {
            until(2_000, &|| names(data).iter().any(is_new));
            sleep(random, 20_000);
        }
        // When it is complete.
        2 => until(2_000, &|| {
            names(data).iter().any(|name| is_new(name) && data.join(name).join("manifest.json").exists())
        }),
        // When it has just become the current one.
        _ => until(2_000, &|| current(data) != before),
    }
}

fn read(data: &Path) -> Index {
    Index::open(data, Arc::new(Embedder::default()), Arc::new(SystemClock::default()), &limits()).unwrap()
}

/// All documents of an index with their texts.
fn texts(index: &Index) -> Texts {
    let text =
        |id: &str| index.passages_of(id).iter().map(|passage| passage.text.as_str()).collect::<String>();
    index
        .documents(&Filter::ALL, None, usize::MAX)
        .iter()
        .map(|info| (info.id.clone(), text(&info.id)))
        .collect()
}

/// Each of these documents is found as it stands now, by both arms, or not at all if it is gone.
fn found_as_they_stand<'a>(index: &Index, now: &Texts, names: impl Iterator<Item = &'a str>) {
    for id in names {
        let text = now.get(id).map_or(id, String::as_str);
        for arms in [Arms::Lexical, Arms::Vector] {
            let hits = index.search(&Query { arms, ..ask(text) }).unwrap().hits;
            for hit in &hits {
                let passage = &hit.passage;
                assert_eq!(now.get(&passage.document_id), Some(&passage.text), "{passage:?}");
                assert_eq!(index.get(passage.id).as_ref(), Some(passage));
            }
            let is_found = hits.iter().any(|hit| hit.passage.document_id == id);
            assert_eq!(is_found, now.contains_key(id), "{id} by {arms:?}: {text}");
        }
        assert_eq!(index.document(id).is_some(), now.contains_key(id));
    }
}

/// Compares an index with what was acknowledged; gives what it holds.
fn holds_what_was_acknowledged(index: &Index, mut acknowledged: Texts, told: &Told, seed: u64) -> Texts {
    told.done.iter().for_each(|number| Operation::of(seed, *number).apply(&mut acknowledged));
    let mut also = acknowledged.clone();
    told.in_flight.iter().for_each(|number| Operation::of(seed, *number).apply(&mut also));
    let now = texts(index);
    assert!(
        now == acknowledged || now == also,
        "{told:?}\n{now:?}\ninstead of\n{acknowledged:?}\nor\n{also:?}"
    );
    let touched: Vec<Operation> = told
        .done
        .iter()
        .rev()
        .take(5)
        .chain(&told.in_flight)
        .chain(&told.failed)
        .map(|number| Operation::of(seed, *number))
        .collect();
    let mut names: Vec<&str> = touched.iter().flat_map(Operation::names).collect();
    names.sort_unstable();
    names.dedup();
    found_as_they_stand(index, &now, names.into_iter());
    now
}

#[test]
fn killed_while_documents_come_and_go() {
    let (world, seed) = (World::new(&[]), seed());
    let data = world.data();
    let mut random = Random(seed);
    let (mut now, mut from, mut kills) = (Texts::new(), 0, 0);
    let (mut put, mut rebuild, mut swap, mut acknowledged) = (0, 0, 0, 0);
    while kills < KILLS || [put, rebuild, swap].iter().any(|count| *count < EACH_MIN) {
        assert!(kills < KILLS_MAX, "{put} kills hit a put, {rebuild} a rebuild, {swap} a swap");
        let order = Order { task: "live", dir: &data, seed, from, blocks_max: None };
        let (current_before, before) = (current(&data), names(&data));
        let told = killed(&order, |_| wait(&data, &mut random));
        kills += 1;
        let left = left(&data, current_before.as_ref(), &before);
        put += usize::from(told.in_flight.is_some());
        rebuild += usize::from(left.rebuild);
        swap += usize::from(left.swap);
        acknowledged += told.done.len();
        from = told.done.last().max(told.in_flight.iter().next_back()).map_or(from, |last| last + 1);
        if current(&data).is_none() {
            assert!(told.done.is_empty(), "{told:?}");
            continue;
        }
        // As a reader finds it, and as the next writer does.
        let found = holds_what_was_acknowledged(&read(&data), now.clone(), &told, seed);
        if random.below(2) == 0 {
            assert_eq!(texts(&open(&data, &limits()).unwrap()), found);
        }
        now = found;
    }
    println!(
        "{kills} kills: {put} in an operation, {rebuild} in a rebuild, {swap} around a swap; {acknowledged} operations acknowledged"
    );
}

#[test]
fn killed_while_a_folder_is_built() {
    let (world, seed) = (World::new(&[]), seed());
    let (data, dir) = (world.data(), world.dir.path());
    let mut random = Random(seed);
    let (mut version, mut from, mut unfinished) = (None, 0, 0);
    let mut kept = Texts::new();
    for kill in 0..BUILD_KILLS {
        // What is put by itself outlives every build.
        let (id, text) = (format!("kept{kill}"), format!("Note k{kill}z stays."));
        open(&data, &limits()).unwrap().put(note(&id, &text)).unwrap();
        kept.insert(id, text);
        let order = Order { task: "build", dir, seed, from, blocks_max: None };
        let (current_before, before) = (current(&data), names(&data));
        let told = killed(&order, |_| wait(&data, &mut random));
        from = told.done.last().max(told.in_flight.iter().next_back()).map_or(from, |last| last + 1);
        let done = told.done.last().copied().or(version);
        let left = left(&data, current_before.as_ref(), &before);
        unfinished += usize::from(left.rebuild || left.swap);
        let index = read(&data);
        let found = texts(&index);
        let wanted = |version: Option<u64>| -> Texts {
            let files = version.into_iter().flat_map(|version| {
                (0..FILES).map(move |file| (format!("file{file}.txt"), version_text(file, version)))
            });
            files.chain(kept.clone()).collect()
        };
        let maybe = told.in_flight.or(done);
        assert!(found == wanted(done) || found == wanted(maybe), "{told:?}: {found:?}");
        version = if found == wanted(maybe) { maybe } else { done };
        found_as_they_stand(&index, &found, found.keys().map(String::as_str).take(3));
    }
    assert!(unfinished >= BUILD_KILLS / 5, "only {unfinished} of {BUILD_KILLS} kills hit a build");
    println!("{BUILD_KILLS} kills, {unfinished} of them in a build; version {version:?}");
}

#[cfg(unix)]
#[test]
fn what_a_full_disk_refused_costs_nothing_that_was_acknowledged() {
    let (world, seed) = (World::new(&[]), 7);
    let data = world.data();
    drop(open(&data, &Limits::default()).unwrap());
    // The journal meets the bound in the middle of a record, and shorter records fit in after it.
    let order = Order { task: "full", dir: &data, seed, from: 0, blocks_max: Some(61) };
    let told = killed(&order, |child| assert!(child.wait().unwrap().success()));
    assert!(told.failed.len() > 20, "{told:?}");
    let after = told.done.iter().filter(|number| *number > told.failed.first().unwrap()).count();
    assert!(after > 5, "{told:?}");
    let now = holds_what_was_acknowledged(&read(&data), Texts::new(), &told, seed);
    assert_eq!(texts(&open(&data, &limits()).unwrap()), now);
}
