//! Does the later layer win, is every unknown key refused, and does the document name every key?

use super::*;
use figment::value::Value;

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.toml");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

fn resolve(text: &str, env: &[(&str, &str)], flags: &[Override]) -> Result<Resolved, ConfigError> {
    let (_folder, path) = file(text);
    let env = env.iter().map(|(name, value)| ((*name).to_string(), (*value).to_string())).collect();
    Layers { file: Some(path), env, flags: flags.to_vec() }.resolve()
}

fn flag(key: &'static str, value: impl Into<Value>) -> Override {
    Override { flag: "--some-flag", key, value: value.into() }
}

#[test]
fn nothing_set_is_the_default() {
    assert_eq!(Layers::default().resolve().unwrap().config, Config::default());
}

#[test]
fn the_default_models_are_those_that_the_registry_marks() {
    let registry = models::Registry::built_in().unwrap();
    let config = Config::default();
    let marked = |kind| registry.default_of(kind).unwrap().name.as_str();
    assert_eq!(config.model.name, marked(models::Kind::Generator));
    assert_eq!(config.embedder.name, marked(models::Kind::Embedder));
}

#[test]
fn the_later_layer_wins_key_by_key() {
    let text = "[model]\nname = 'file'\nthreads = 1\nkv_mib = 11";
    let env = [("RIPOSTE_MODEL_NAME", "env"), ("RIPOSTE_MODEL_KV_MIB", "22"), ("HOME", "/h")];
    let config = resolve(text, &env, &[flag("model.name", "flag")]).unwrap().config;
    assert_eq!(config.model, Model { name: "flag".into(), threads: 1, kv_mib: 22, kv_bits: 16 });
}

#[test]
fn variables_reach_nested_keys_with_underscores_and_leave_reserved_names_alone() {
    let env = [
        ("RIPOSTE_LIMITS_BODY_BYTES_MAX", "99999"),
        ("RIPOSTE_MODELS_OFFLINE", "true"),
        ("RIPOSTE_CONFIG", "elsewhere.toml"),
        ("RIPOSTE_REQUIRE_WEIGHTS", "1"),
    ];
    let config = resolve("", &env, &[]).unwrap().config;
    assert_eq!(config.limits.body_bytes_max, 99_999);
    assert!(config.models.offline);
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    #[track_caller]
    fn check(text: &str, env: &[(&str, &str)], flags: &[Override], parts: &[&str]) {
        let error = resolve(text, env, flags).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{error:?} lacks {part:?}");
        }
        assert!(!error.contains('\n'), "{error:?} is more than one line");
    }
    check("[model]\nnmae = 'x'", &[], &[], &["unknown key model.nmae", "some.toml"]);
    check("[modle]\nname = 'x'", &[], &[], &["unknown key modle", "some.toml"]);
    check("[limits]\nbody = 1", &[], &[], &["unknown key limits.body", "some.toml"]);
    check("", &[("RIPOSTE_MODEL_NMAE", "x")], &[], &["unknown key model.nmae", "RIPOSTE_MODEL_NMAE"]);
    check("", &[("RIPOSTE_SPEED", "9")], &[], &["unknown key speed", "RIPOSTE_SPEED"]);
    check("", &[("RIPOSTE_MODEL", "x")], &[], &["model", "RIPOSTE_MODEL"]);
    check("", &[], &[flag("model.threads", -1)], &["model.threads", "--some-flag"]);
    check("[model]\nthreads = 'two'", &[], &[], &["model.threads", "some.toml"]);
    check("[model\nname = 'x'", &[], &[], &["some.toml"]);
    check("[limits]\nprompt_passages_max = 500", &[], &[], &["search_hits_max"]);
    check("[answer]\npassages_max = 0", &[], &[], &["answer.passages_max"]);
    check("[engine]\nprefix_cach = true", &[], &[], &["unknown key engine.prefix_cach", "some.toml"]);
    check("[engine]\nprefix_cache = 'maybe'", &[], &[], &["engine.prefix_cache", "some.toml"]);
    for stretch in ["0.5", "-2.0", "1001.0", "nan", "inf"] {
        let text = format!("[engine]\nstep_stretch_max = {stretch}");
        check(&text, &[], &[], &["engine.step_stretch_max", "between 1 and 1000"]);
    }
    check("[engine]\npatience_ms = 0", &[], &[], &["engine.patience_ms"]);
    check("[engine]\npatience_ms = -1", &[], &[], &["engine.patience_ms", "some.toml"]);
    check("[engine]\ncalibration_ms = 60001", &[], &[], &["engine.calibration_ms"]);
    check("[limits]\nstep_prefill_tokens_min = 0", &[], &[], &["step_prefill_tokens_min"]);
    check("[limits]\nstep_prefill_tokens_min = 257", &[], &[], &["step_prefill_tokens_min"]);
    check("[model]\nkv_bits = 12", &[], &[], &["model.kv_bits must be 16 or 8"]);
    check("[model]\nthreads = 1025", &[], &[], &["model.threads"]);
    check("[embedder]\nthreads = 100000", &[], &[], &["embedder.threads"]);
    check("[limits]\nqueue_requests_max = 9223372036854775807", &[], &[], &["queue_requests_max"]);
    check("[limits]\nquery_chars_max = 4611686018427387904", &[], &[], &["query_chars_max"]);
}

#[test]
fn the_scheduler_gets_what_is_set() {
    let text = "[engine]\nprefix_cache = false\nstep_stretch_max = 3\npatience_ms = 1500\ncalibration_ms = 0";
    let config = resolve(text, &[], &[]).unwrap().config;
    let policy = config.engine.policy();
    assert!(!policy.prefix_cache);
    assert_eq!((policy.step_stretch_max, policy.patience), (3.0, Duration::from_millis(1_500)));
    assert_eq!(Config::default().engine.policy(), engine::Policy::default());
}

#[test]
fn a_named_file_that_is_not_there_is_an_error() {
    let error = Layers::of_process(Some("no/such.toml".into()), Vec::new()).unwrap_err();
    assert!(matches!(error, ConfigError::File { .. }), "{error}");
}

#[test]
fn what_show_prints_reads_back_as_the_same_configuration() {
    let env = [("RIPOSTE_SERVER_LISTEN", "0.0.0.0:1")];
    let flags = [flag("demo.question", "a \"quoted\" # question\nof two lines")];
    let first = resolve("[model]\nkv_mib = 7", &env, &flags).unwrap();
    let shown = first.show().unwrap();
    assert_eq!(resolve(&shown, &[], &[]).unwrap().config, first.config, "{shown}");

    let line = |key: &str| shown.lines().find(|line| line.starts_with(key)).unwrap_or_default();
    assert!(line("kv_mib").ends_with("some.toml"), "{shown}");
    assert!(line("listen").ends_with("# environment RIPOSTE_SERVER_LISTEN"), "{shown}");
    assert!(line("threads").ends_with("# default"), "{shown}");
}

/// Keys with their defaults as `table.key`.
fn keys() -> Vec<(String, toml::Value)> {
    let tables = toml::Table::try_from(Config::default()).unwrap();
    let keys = tables.into_iter().flat_map(|(table, values)| {
        let values = values.as_table().cloned().unwrap_or_default();
        values.into_iter().map(move |(key, value)| (format!("{table}.{key}"), value)).collect::<Vec<_>>()
    });
    keys.collect()
}

#[test]
fn the_document_names_every_key_and_no_other() {
    let document = include_str!("../../../../docs/configuration.md");
    let mut known: Vec<String> = Vec::new();
    for (key, default) in keys() {
        let row = document.lines().find(|line| line.starts_with(&format!("| `{key}` |")));
        let row = row.unwrap_or_else(|| panic!("docs/configuration.md has no row for {key} = {default}"));
        // The home folder differs from machine to machine, so the document words these two itself.
        if !matches!(key.as_str(), "index.data" | "demo.data") {
            assert!(row.contains(&format!("| `{default}` |")), "{key}: the default is {default}: {row}");
        }
        known.push(key);
    }
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    for (key, _) in rows.filter(|(key, _)| key.contains('.')) {
        assert!(
            known.iter().any(|known| known == key),
            "docs/configuration.md explains {key}, which is no key"
        );
    }
}
