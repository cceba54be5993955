//! How does a command say that it failed? One line with what is wrong and what to try, and an exit code.

use crate::config::ConfigError;
use std::fmt;
use std::process::ExitCode;

/// Why a command ended without success.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// The command ran and failed: exit code 1.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { code: 1, message: flat(&message.to_string()), hint: None }
    }

    /// The command line or the configuration is wrong: exit code 2.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self { code: 2, ..Self::new(message) }
    }

    /// Adds what the reader could try.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Is there anything to say?
    pub fn is_silent(&self) -> bool {
        self.code == 0
    }

    /// The exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; try: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let hint = match &error {
            ConfigError::File { .. } => "--config with the path of a readable TOML file",
            ConfigError::UnknownKey { .. } | ConfigError::Value { .. } => {
                "`riposte config show` in another folder for the keys, or docs/configuration.md"
            }
            ConfigError::Range(_) => "docs/configuration.md for the range of each key",
        };
        Failure::usage(error).hint(hint)
    }
}

/// Writing to a full disk, or to a pipe whose reader has seen enough, which is no failure.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let code = u8::from(error.kind() != std::io::ErrorKind::BrokenPipe);
        Self { code, ..Failure::new(format!("output: {error}")) }
    }
}

/// An error is one line, whatever the parts below put into it.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
