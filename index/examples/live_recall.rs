//! What does deleting cost a large index? Recall@10 of the graph before, with a fifth and two fifths of the passages deleted,
//! and after the rebuild; the time of a search with and without a rebuild beside it; whether deleted text leaves the disk.
//!
//! `cargo run --release -p index --example live_recall -- 15000`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement for people to read")]

use budgets::{Deadline, Limits, SystemClock};
use index::{Arms, Embed, EmbedError, Filter, Index, Meta, NewDocument, Query};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// As many as the default model has.
const DIMENSIONS: usize = 384;
/// Few, so that the points of one outnumber what a walk through the graph keeps by far.
const CLUSTERS: u64 = 2;
/// Length of what tells a vector from its cluster's middle, which has length one.
const SPREAD: f32 = 0.9;
const QUERIES: u64 = 300;
const RECALL_MIN: f64 = 0.95;
/// Stands in one document alone.
const WORD: &str = "quokkaquokka";

/// SplitMix64 (Steele and others, OOPSLA 2014).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A random direction: twelve uniform numbers summed are nearly normal.
fn direction(mut seed: u64) -> Vec<f32> {
    let mut normal =
        || (0..12).map(|_| (random(&mut seed) >> 40) as f32 / (1 << 24) as f32).sum::<f32>() - 6.0;
    unit((0..DIMENSIONS).map(|_| normal()).collect())
}

fn unit(vector: Vec<f32>) -> Vec<f32> {
    let norm = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    vector.into_iter().map(|value| value / norm).collect()
}

/// A point of a cluster; `name` ends in `p12` for a document and `q12` for a query.
fn vector(name: &str) -> Vec<f32> {
    let at = name.rfind(['p', 'q']).unwrap_or(0);
    let (kind, number) = name.split_at((at + 1).min(name.len()));
    let number: u64 = number.parse().unwrap_or(0);
    let is_query = kind.ends_with('q');
    let middle = direction(number % CLUSTERS);
    let own = direction(1_000_000 + 2 * number + u64::from(is_query));
    unit(middle.iter().zip(own).map(|(middle, own)| middle + SPREAD * own).collect())
}

struct Points;

impl Embed for Points {
    fn id(&self) -> &str {
        "clustered points"
    }

    fn dimensions(&self) -> usize {
        DIMENSIONS
    }

    fn count_tokens(&self, text: &str) -> usize {
        text.split_whitespace().count()
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        Ok(texts.iter().map(|text| vector(text.trim())).collect())
    }
}

fn document(number: u64) -> NewDocument {
    // No two texts are alike, since equal ones are shown once.
    let word = if number == 0 { WORD } else { "word" };
    let text = format!("{word} a{number}a b{number}b c{number}c common{} p{number}", number % 50);
    NewDocument {
        id: format!("d{number}"),
        file_name: "d.txt".into(),
        source: String::new(),
        bytes: text.into_bytes(),
        meta: Meta::default(),
        origin: index::Origin::Put,
    }
}

fn query(text: &str, arms: Arms) -> Query<'_> {
    Query { text, limit: 10, deadline: Deadline::NEVER, arms, filter: Filter::ALL }
}

/// Share of the ten nearest living documents that a search finds, by a comparison with all of them.
fn recall(index: &Index, living: &[(u64, Vec<f32>)]) -> f64 {
    let mut found = 0;
    for number in 0..QUERIES {
        let text = format!("q{number}");
        let asked = vector(&text);
        let mut all: Vec<(f32, String)> = living
            .iter()
            .map(|(number, vector)| {
                (asked.iter().zip(vector).map(|(a, b)| a * b).sum(), format!("d{number}"))
            })
            .collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        let hits = index.search(&query(&text, Arms::Vector)).unwrap().hits;
        let ids: Vec<&str> = hits.iter().map(|hit| hit.passage.document_id.as_str()).collect();
        assert!(ids.iter().all(|id| index.document(id).is_some()), "a deleted document was found");
        found += all[..10].iter().filter(|(_, id)| ids.contains(&id.as_str())).count();
    }
    found as f64 / (10 * QUERIES) as f64
}

/// Times of searches by both arms, as long as `goes_on` says so.
fn times(index: &Index, mut goes_on: impl FnMut(usize) -> bool) -> Vec<Duration> {
    let mut times = Vec::new();
    while goes_on(times.len()) {
        let text = format!("common{} q{}", times.len() % 50, times.len());
        let began = Instant::now();
        index.search(&query(&text, Arms::Both)).unwrap();
        times.push(began.elapsed());
    }
    times.sort();
    times
}

fn told(name: &str, times: &[Duration]) {
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let (p50, p99, count) = (at(0.5), at(0.99), times.len());
    println!(
        "search, {name}: p50 {p50:.2} ms, p99 {p99:.2} ms, longest {:.2} ms ({count} searches)",
        at(1.0)
    );
}

fn is_on_disk(folder: &Path, word: &str) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return is_on_disk(&path, word);
        }
        std::fs::read(&path)
            .is_ok_and(|bytes| bytes.windows(word.len()).any(|window| window == word.as_bytes()))
    })
}

fn main() {
    let count: u64 = std::env::args().nth(1).map_or(15_000, |count| count.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    // Rebuilds begin when they are asked for here, and never by themselves.
    let limits = Limits { live_passages_max: 1 << 20, rebuild_passages_min: usize::MAX, ..Limits::default() };
    let (embed, clock) = (Arc::new(Points), Arc::new(SystemClock::default()));
    let index = Index::open_live(dir.path(), embed, clock, &limits).unwrap();
    let began = Instant::now();
    for from in (0..count).step_by(2_000) {
        let batch = (from..(from + 2_000).min(count)).map(document).collect();
        assert!(index.put_all(batch).iter().all(Result::is_ok));
    }
    println!("{count} documents put in {:.1} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    index.compact().unwrap();
    println!("rebuilt in {:.1} s", began.elapsed().as_secs_f64());

    let mut living: Vec<(u64, Vec<f32>)> =
        (0..count).map(|number| (number, vector(&format!("p{number}")))).collect();
    let mut seed = 7;
    let mut shares = vec![("whole", recall(&index, &living))];
    for (name, keep) in [("a fifth deleted", 0.8), ("two fifths deleted", 0.6)] {
        // The word's document goes first.
        let mut gone = vec!["d0".to_string()];
        living.retain(|(number, _)| *number != 0);
        while living.len() as f64 > keep * count as f64 {
            let at = random(&mut seed) as usize % living.len();
            gone.push(format!("d{}", living.swap_remove(at).0));
        }
        index.delete(&gone.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        shares.push((name, recall(&index, &living)));
    }
    let enough = 2_000;
    told("no rebuild", &times(&index, |done| done < enough));
    assert!(is_on_disk(dir.path(), WORD));
    let (during, took) = std::thread::scope(|scope| {
        let began = Instant::now();
        let rebuild = scope.spawn(|| index.compact().unwrap());
        let during = times(&index, |done| done == 0 || !rebuild.is_finished());
        (during, began.elapsed())
    });
    told("during the rebuild", &during);
    println!("the rebuild took {:.1} s beside the searches", took.as_secs_f64());
    told("no rebuild, afterwards", &times(&index, |done| done < enough));
    assert!(!is_on_disk(dir.path(), WORD));
    println!("a deleted word was on the disk before the rebuild, and is not after it");
    shares.push(("rebuilt", recall(&index, &living)));
    for (name, share) in shares {
        println!("recall@10, {name}: {share:.4}");
        assert!(share >= RECALL_MIN, "{name}: {share}");
    }
}
