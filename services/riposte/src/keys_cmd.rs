//! How does an operator get a key for a caller? `riposte keys new`: drawn, printed once, kept nowhere.

use crate::cli::KeysCommand;
use crate::config::{Key, KeyDocuments, check_key};
use crate::failure::Failure;
use crate::ui::progress::say;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{Read as _, Write as _};

/// Bits of a key: past guessing, and a line that fits anywhere.
const KEY_BYTES: usize = 24;

/// `riposte keys`.
///
/// # Errors
/// A bad name; no source of randomness.
pub fn run(command: &KeysCommand) -> Result<(), Failure> {
    let KeysCommand::New { name, documents } = command;
    let mut random = [0; KEY_BYTES];
    let source = "/dev/urandom";
    File::open(source)
        .and_then(|mut file| file.read_exact(&mut random))
        .map_err(|error| Failure::new(format!("{source}: {error}")))?;
    let secret = format!("rk-{}", hex(&random));
    let sha256 = hex(&Sha256::digest(&secret));
    check_key(name, &Key { sha256: sha256.clone(), tenant: None, documents: *documents })
        .map_err(|error| Failure::usage(error.to_string()))?;
    let documents = match documents {
        KeyDocuments::None => "none",
        KeyDocuments::Own => "own",
        KeyDocuments::Shared => "shared",
    };
    say(&format!("The key of {name}, shown this once: {secret}"));
    say("Add this to the configuration:");
    writeln!(anstream::stdout(), "[keys.{name}]\nsha256 = \"{sha256}\"\ndocuments = \"{documents}\"")?;
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
