//! Does the program say what is wrong in one line, with the right exit code, and print what was asked for?
//!
//! Runs the real binary, offline, in an empty home: nothing here needs weights or a network.

#![allow(clippy::unwrap_used)] // A test that cannot go on should stop.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

/// An empty home and current folder.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, args: &[&str], env: &[(&str, &str)]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_riposte"))
            .args(args)
            .env_clear()
            .env("HOME", self.path())
            .envs(env.iter().copied())
            .current_dir(self.path())
            .output()
            .unwrap()
    }

    fn stdout(&self, args: &[&str], env: &[(&str, &str)]) -> String {
        let output = self.run(args, env);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The command fails with `code`, prints nothing on stdout and ends stderr with one line that holds every part.
#[track_caller]
fn check(home: &Home, args: &[&str], code: i32, parts: &[&str]) {
    let output = home.run(args, &[]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{args:?} printed {}", String::from_utf8_lossy(&output.stdout));
    let last = stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: "), "{args:?}: {stderr}");
    assert_eq!(stderr.matches("error: ").count(), 1, "{args:?}: {stderr}");
    assert!(!stderr.contains("panicked") && !stderr.contains('\u{1b}'), "{args:?}: {stderr}");
    for part in parts {
        assert!(last.contains(part), "{args:?}: {last:?} lacks {part:?}");
    }
}

#[test]
fn help_names_every_command() {
    let help = Home::new().stdout(&["--help"], &[]);
    for command in ["demo", "serve", "index", "models", "config", "eval", "loadtest", "Exit codes"] {
        assert!(help.contains(command), "{command} is not in\n{help}");
    }
}

#[test]
fn a_command_line_that_makes_no_sense_is_code_2() {
    let home = Home::new();
    for args in [&["dmeo"][..], &[], &["index"], &["demo", "--threads", "many"], &["demo", "--once"]] {
        assert_eq!(home.run(args, &[]).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn what_is_missing_is_named_with_a_way_out() {
    let home = Home::new();
    let qwen = "qwen2.5-coder-0.5b-instruct";
    check(&home, &["--offline", "demo", "--once", "why?"], 1, &[qwen, "riposte models pull", "try:"]);
    check(&home, &["--offline", "index", "."], 1, &["all-minilm-l6-v2", "riposte models pull"]);
    check(&home, &["--offline", "models", "pull", qwen], 1, &[qwen, "try: without --offline"]);
    check(&home, &["models", "path", qwen], 1, &[qwen, "riposte models pull"]);
    check(&home, &["models", "path", "gpt-17"], 2, &["gpt-17", "try: `riposte models list`"]);
    check(&home, &["demo", "--once", "why?", "--model", "no.gguf"], 2, &["no.gguf", "riposte models list"]);
    check(
        &home,
        &["demo", "--once", "why?", "--model", "all-minilm-l6-v2"],
        2,
        &["model.name", "another kind"],
    );
    check(&home, &["eval", "answers", "--squad", "no.json"], 1, &["no.json", "--squad"]);
    check(&home, &["eval", "handbook", "--questions", "no.jsonl"], 1, &["no.jsonl", "--questions"]);
    check(&home, &["config", "show", "--config", "no.toml"], 2, &["no.toml", "--config"]);
    check(&home, &["config", "show", "--log", "engine=loud=9"], 2, &["log.filter", "--log info"]);
}

#[test]
fn a_taken_port_and_an_absent_server_are_told_at_once() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    check(&home, &["--offline", "serve", "--listen", &address], 1, &[&address, "taken", "try: --listen"]);
    check(&home, &["--offline", "demo", "--listen", &address], 1, &[&address, "taken", "try: --listen"]);
    check(&home, &["serve", "--listen", "here"], 2, &["server.listen", "here"]);
    drop(taken);
    check(&home, &["loadtest", "--url", &format!("http://{address}")], 1, &["not ready", "riposte demo"]);
}

#[test]
fn a_log_that_is_no_terminal_has_no_colour_codes() {
    let args = ["--log", "trace", "loadtest", "--url", "http://127.0.0.1:1"];
    let output = Home::new().run(&args, &[]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("DEBUG") || stderr.contains("TRACE"), "nothing was logged: {stderr}");
    assert!(!stderr.contains('\u{1b}'), "{stderr:?}");
}

#[test]
fn a_slip_in_the_configuration_is_named_with_its_place() {
    let home = Home::new();
    std::fs::write(home.path().join("riposte.toml"), "[model]\nnmae = 'x'\n").unwrap();
    check(&home, &["models", "list"], 2, &["unknown key model.nmae", "riposte.toml", "try:"]);
}

#[test]
fn config_show_prints_what_is_in_force_and_who_set_it() {
    let home = Home::new();
    std::fs::write(home.path().join("riposte.toml"), "[model]\nkv_mib = 7\n").unwrap();
    let env = [("RIPOSTE_LIMITS_BODY_BYTES_MAX", "65536")];
    let shown = home.stdout(&["config", "show", "--models-dir", "/m"], &env);
    let line = |key: &str| shown.lines().find(|line| line.starts_with(key)).unwrap_or_default();
    assert_eq!(line("kv_mib"), "kv_mib = 7  # riposte.toml");
    assert_eq!(line("body_bytes_max"), "body_bytes_max = 65536  # environment RIPOSTE_LIMITS_BODY_BYTES_MAX");
    assert_eq!(line("dir"), "dir = \"/m\"  # flag --models-dir");
    assert_eq!(line("listen"), "listen = \"127.0.0.1:8080\"  # default");

    // What was printed is itself a configuration that says the same.
    std::fs::write(home.path().join("again.toml"), &shown).unwrap();
    let again = home.stdout(&["config", "show", "--config", "again.toml"], &[]);
    let values =
        |text: &str| text.lines().map(|line| line.split("  # ").next().unwrap().to_string()).collect();
    let (first, second): (Vec<_>, Vec<_>) = (values(&shown), values(&again));
    assert_eq!(first, second);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    use std::process::Stdio;
    let home = Home::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_riposte"));
    command.args(["config", "show"]).env_clear().env("HOME", home.path()).current_dir(home.path());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.stdout(Stdio::from(writer)).stderr(Stdio::piped()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn models_are_listed_without_a_network() {
    let home = Home::new();
    let list = home.stdout(&["models", "list"], &[]);
    for name in ["qwen2.5-coder-0.5b-instruct", "smollm2-135m-instruct", "all-minilm-l6-v2", "Apache-2.0"] {
        assert!(list.contains(name), "{name} is not in\n{list}");
    }
    assert!(list.contains(&format!("{}/.cache/riposte/models", home.path().display())), "{list}");
}
