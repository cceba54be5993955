//! Do the floors hold, and is ARCHITECTURE.md true? Reads manifests and sources; builds and runs nothing.

#![allow(clippy::unwrap_used)] // A test that cannot go on should stop.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tests::root;

/// Who may import whom: each crate with the workspace crates that its manifest may name, from the bottom up.
const FLOORS: &[(&str, &[&str])] = &[
    ("budgets", &[]),
    ("kernels", &["budgets"]),
    ("engine/sched", &["budgets"]),
    ("engine/exec", &["budgets", "kernels", "sched"]),
    ("engine", &["budgets", "sched"]),
    ("index", &["budgets"]),
    ("services/wire", &[]),
    ("services/models", &["budgets"]),
    ("services/answer", &["budgets", "engine", "index"]),
    ("services/api", &["budgets", "engine", "index", "answer", "wire"]),
    ("loadtest", &["budgets", "wire"]),
    ("services/riposte", EVERYTHING_BELOW),
    ("tests", EVERYTHING_BELOW),
];

const EVERYTHING_BELOW: &[&str] = &[
    "budgets", "kernels", "sched", "exec", "engine", "index", "wire", "models", "answer", "api", "loadtest",
];

/// Crates from outside that only some of ours may name, because they would pull a concern below its floor.
const CONFINED: &[(&str, &[&str])] = &[
    ("axum", &["services/api", "services/riposte"]),
    ("metrics-exporter-prometheus", &["services/api", "services/riposte"]),
    ("clap", &["services/riposte"]),
    ("figment", &["services/riposte"]),
    ("indicatif", &["services/riposte"]),
    ("cudarc", &["kernels"]),
    ("candle-core", &["engine/exec"]),
    ("minijinja", &["engine/exec"]),
    ("tokenizers", &["engine/exec"]),
    ("llguidance", &["engine/exec"]),
    ("tantivy", &["index"]),
    ("hnsw_rs", &["index"]),
    ("hf-hub", &["services/models"]),
    ("utoipa", &["services/wire", "services/api"]),
];

/// Crates that decide or compute, and so have no runtime, no threads of tokio and no sockets.
const WITHOUT_RUNTIME: &[&str] =
    &["budgets", "kernels", "engine/sched", "engine/exec", "index", "services/wire", "services/models"];

/// Where `unsafe` may be allowed.
const UNSAFE_ALLOWED: &[&str] = &["kernels/"];

const FILE_LINES_MAX: usize = 450;
const PAGE_LINES_MAX: usize = 250;

fn manifest(folder: &str) -> toml::Table {
    let path = root().join(folder).join("Cargo.toml");
    std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .parse()
        .unwrap()
}

/// Names in the tables `kinds` of a manifest, those under `target.*` too.
fn dependencies(manifest: &toml::Table, kinds: &[&str]) -> BTreeSet<String> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let platforms =
        targets.into_iter().flat_map(|targets| targets.values().filter_map(toml::Value::as_table));
    let tables = std::iter::once(manifest).chain(platforms);
    let tables = tables.flat_map(|table| kinds.iter().filter_map(|kind| table.get(*kind)?.as_table()));
    tables.flat_map(|table| table.keys().cloned()).collect()
}

const BUILT: &[&str] = &["dependencies", "build-dependencies"];

/// Every Rust file of the workspace, with its path from the root.
fn sources() -> Vec<(String, String)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    for (folder, _) in FLOORS {
        for part in ["src", "tests", "benches", "examples"] {
            let part = root().join(folder).join(part);
            if part.is_dir() {
                walk(&part, &mut found);
            }
        }
    }
    found.sort();
    found.dedup();
    let name = |path: &Path| path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
    found.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

#[track_caller]
fn none(problems: impl IntoIterator<Item = String>) {
    let problems: Vec<String> = problems.into_iter().collect();
    assert!(problems.is_empty(), "{} problem(s):\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn every_member_has_a_floor() {
    let workspace = manifest("");
    let members = workspace["workspace"]["members"].as_array().unwrap();
    let members: BTreeSet<_> = members.iter().map(|member| member.as_str().unwrap()).collect();
    let floors: BTreeSet<_> = FLOORS.iter().map(|(folder, _)| *folder).collect();
    assert_eq!(members, floors);
}

#[test]
fn imports_point_down() {
    let ours: BTreeSet<String> = FLOORS
        .iter()
        .map(|(folder, _)| manifest(folder)["package"]["name"].as_str().unwrap().to_string())
        .collect();
    let problems = FLOORS.iter().flat_map(|(folder, allowed)| {
        let named = dependencies(&manifest(folder), BUILT);
        let wrong = named.into_iter().filter(|name| ours.contains(name) && !allowed.contains(&name.as_str()));
        wrong.map(move |name| format!("{folder} imports {name}")).collect::<Vec<_>>()
    });
    none(problems);
}

/// Tests may reach any floor below, for fakes and references; a test that reaches up would hide a cycle.
#[test]
fn tests_import_nothing_from_above() {
    let names: Vec<String> = FLOORS
        .iter()
        .map(|(folder, _)| manifest(folder)["package"]["name"].as_str().unwrap().to_string())
        .collect();
    let problems = FLOORS.iter().enumerate().flat_map(|(own, (folder, _))| {
        let named = dependencies(&manifest(folder), &["dev-dependencies"]);
        let wrong = names[own..].iter().filter(|name| named.contains(*name));
        wrong.map(|name| format!("tests of {folder} import {name}")).collect::<Vec<_>>()
    });
    none(problems);
}

#[test]
fn concerns_stay_on_their_floor() {
    let problems = FLOORS.iter().flat_map(|(folder, _)| {
        let named = dependencies(&manifest(folder), BUILT);
        let confined = CONFINED
            .iter()
            .filter(|(name, allowed)| named.contains(*name) && !allowed.contains(folder))
            .map(|(name, _)| format!("{folder} imports {name}"));
        let runtime = ["tokio", "async-std", "futures"]
            .into_iter()
            .filter(|name| named.contains(*name) && WITHOUT_RUNTIME.contains(folder))
            .map(|name| format!("{folder} imports {name}"));
        confined.chain(runtime).collect::<Vec<_>>()
    });
    none(problems);
}

#[test]
fn unsafe_stays_where_it_is_allowed() {
    let lint = &manifest("")["workspace"]["lints"]["rust"]["unsafe_code"];
    assert_eq!(lint.as_str(), Some("deny"), "without the lint the rest of this test says nothing");
    let mut problems: Vec<String> = FLOORS
        .iter()
        .filter(|(folder, _)| !UNSAFE_ALLOWED.iter().any(|allowed| allowed.trim_end_matches('/') == *folder))
        .filter(|(folder, _)| {
            let manifest = manifest(folder);
            manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool)
                != Some(true)
        })
        .map(|(folder, _)| format!("{folder}/Cargo.toml does not take the workspace's lints"))
        .collect();
    let this_file = "tests/tests/architecture.rs";
    for (path, text) in sources().iter().filter(|(path, _)| path != this_file) {
        let lifted = text.lines().any(|line| {
            let line = line.trim_start();
            line.starts_with("#") && line.contains("unsafe_code")
        });
        if lifted && !UNSAFE_ALLOWED.iter().any(|allowed| path.starts_with(allowed)) {
            problems.push(format!("{path} lifts the ban on unsafe"));
        }
    }
    none(problems);
}

#[test]
fn every_file_says_which_question_it_answers_and_stays_short() {
    let mut problems = Vec::new();
    for (path, text) in sources() {
        if !text.starts_with("//! ") {
            problems.push(format!("{path} does not start with a //! line"));
        }
        if text.starts_with("//! Skeleton") {
            problems.push(format!("{path} is a skeleton"));
        }
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            problems.push(format!("{path} has {lines} lines, at most {FILE_LINES_MAX}"));
        }
    }
    none(problems);
}

#[test]
fn the_scheduler_and_the_answer_path_own_no_clock() {
    let clockless = [
        "engine/sched/",
        "engine/src/",
        "engine/exec/src/runner",
        "engine/exec/src/forward",
        "services/answer/",
        "services/api/",
        "index/src/search",
    ];
    let readers = ["Instant::now", "SystemTime::now", "SystemClock"];
    let mut problems = Vec::new();
    for (path, text) in sources() {
        let tests_only = path.contains("/tests/") || path.ends_with("tests.rs");
        if tests_only || !clockless.iter().any(|prefix| path.starts_with(prefix)) {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap();
        for (number, line) in code.lines().enumerate() {
            let comment = line.trim_start().starts_with("//");
            if !comment && readers.iter().any(|reader| line.contains(reader)) {
                problems.push(format!("{path}:{} reads the system's clock: {}", number + 1, line.trim()));
            }
        }
    }
    none(problems);
}

/// What stands in backticks and looks like a path from the root.
fn named_paths(page: &str) -> Vec<String> {
    let tops = std::fs::read_dir(root()).unwrap();
    let tops: Vec<_> = tops.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    let spans = page.split('`').skip(1).step_by(2).filter(|span| !span.contains(char::is_whitespace));
    let inside = |span: &&str| {
        let top = span.split('/').next().unwrap();
        span.contains('/') && tops.iter().any(|known| known == top)
            || Path::new(span).extension().is_some_and(|extension| extension == "rs" || extension == "md")
    };
    spans.filter(inside).map(|span| span.trim_end_matches('/').to_string()).collect()
}

#[test]
fn the_paths_in_architecture_md_exist() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let lines = page.lines().count();
    assert!(lines < PAGE_LINES_MAX, "ARCHITECTURE.md has {lines} lines");
    let named = named_paths(&page);
    assert!(named.len() >= 30, "only {} paths are named", named.len());
    none(named.into_iter().filter(|path| !root().join(path).exists()));
}

#[test]
fn every_crate_is_on_the_map() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let missing = FLOORS.iter().filter(|(folder, _)| !page.contains(&format!("`{folder}`")));
    none(missing.map(|(folder, _)| format!("{folder} is not in ARCHITECTURE.md")));
}

#[test]
fn links_in_the_front_pages_lead_somewhere() {
    let mut problems = Vec::new();
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/README.md"] {
        let page =
            std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let folder = root().join(name).parent().unwrap().to_path_buf();
        for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap();
            if !target.is_empty() && !target.contains("://") && !folder.join(target).exists() {
                problems.push(format!("{name} links to {link}"));
            }
        }
    }
    none(problems);
}
