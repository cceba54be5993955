//! How fast does a model run here? `cargo run --release -p exec --example speed -- MODEL.gguf [THREADS]`
//!
//! Prints the median and spread of prefill (one row) and decode (several rows at a context of 512) over repeats.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for the terminal")]

use exec::{LoadOptions, load};
use sched::{BlockId, Draw, RowPlan, Runner, Sampling, SeqId, Span, StepPlan};
use std::sync::Arc;
use std::time::Instant;

/// A row that computes `count` tokens after `start`, in blocks of its own.
fn row(at: usize, start: usize, count: usize) -> RowPlan {
    let len = start + count;
    let first = at * if start > 2000 { 300 } else { 40 };
    let blocks = (0..len.div_ceil(16)).map(|block| BlockId((first + block) as u32)).collect();
    let tokens = (0..count).map(|i| ((start + i) * 37 % 20_000) as u32).collect();
    let draw = Some(Draw {
        sampling: Arc::new(Sampling::default()),
        index: 0,
        seen: Vec::new(),
        banned: Arc::new([]),
        allowed: None,
    });
    RowPlan { seq: SeqId(at as u64), tokens, start, spans: vec![Span { blocks, len, shift: 0 }], draw }
}

fn report(what: &str, tokens: usize, mut step: impl FnMut()) {
    if std::env::var("ONLY").is_ok_and(|only| !what.contains(&only)) {
        return;
    }
    step();
    let n = std::env::var("N").map_or(7, |n| n.parse().unwrap());
    let mut rates: Vec<f64> = (0..n)
        .map(|_| {
            let began = Instant::now();
            step();
            tokens as f64 / began.elapsed().as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    println!("{what:24} {:8.1} tokens/s  [{:.1} to {:.1}]", rates[n / 2], rates[0], rates[n - 1]);
}

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("usage: speed MODEL.gguf [THREADS]");
    let threads = args.next().map_or(2, |n| n.parse().unwrap());
    let mut loaded = load(path.as_ref(), &LoadOptions::new(threads, 2 << 30)).unwrap();
    let s = &loaded.summary;
    println!(
        "{}: {:.0} MB of weights, {} threads, {}, loaded in {:.2} s",
        s.config.name,
        s.weights_bytes as f64 / 1e6,
        s.threads,
        s.isa,
        s.took.as_secs_f64()
    );
    for count in [128, 512, 2048] {
        report(&format!("prefill {count}"), count, || {
            for start in (0..count).step_by(256) {
                let plan = StepPlan { copies: Vec::new(), rows: vec![row(0, start, 256.min(count - start))] };
                loaded.runner.run(&plan).unwrap();
            }
        });
    }
    for (rows, depth) in [(1, 0), (1, 512), (4, 512), (8, 512), (16, 512), (32, 512), (1, 2048), (1, 4096)] {
        let plan = StepPlan { copies: Vec::new(), rows: (0..rows).map(|at| row(at, depth, 1)).collect() };
        report(&format!("decode {rows} at {depth}"), rows * 8, || {
            (0..8).for_each(|_| drop(loaded.runner.run(&plan).unwrap()));
        });
    }
}
