//! Which models are there, and where? The commands under `riposte models`.

use crate::cli::ModelsCommand;
use crate::config::Config;
use crate::failure::Failure;
use crate::fetch;
use crate::ui::bytes;
use comfy_table::{Table, presets};
use models::{Kind, Registry};
use std::io::Write as _;

/// Runs one of them.
///
/// # Errors
/// When the name is not known or the model cannot be had.
pub fn run(command: &ModelsCommand, config: &Config) -> Result<(), Failure> {
    let registry = Registry::built_in().map_err(Failure::new)?;
    let store = fetch::store(config)?;
    let mut out = anstream::stdout();
    match command {
        ModelsCommand::List => {
            let mut table = Table::new();
            table.load_style(presets::NOTHING);
            table.set_header(["NAME", "KIND", "QUANTIZATION", "SIZE", "LICENCE", "HERE", "ABOUT"]);
            for model in registry.models() {
                let kind = match model.kind {
                    Kind::Generator => "generator",
                    Kind::Embedder => "embedder",
                };
                let size = bytes(model.bytes());
                let here = if store.path(model).is_ok() { "yes" } else { "no" };
                let row =
                    [&model.name, kind, &model.quantization, &size, &model.licence, here, &model.summary];
                table.add_row(row.map(str::to_string));
            }
            writeln!(out, "{table}\n\nCache: {}", store.dir().display())?;
        }
        ModelsCommand::Pull { name } => {
            let files = fetch::pull(&store, fetch::known(&registry, name)?)?;
            writeln!(out, "{}", files.weights().display())?;
        }
        ModelsCommand::Path { name } => {
            let files = store.path(fetch::known(&registry, name)?).map_err(Failure::new)?;
            writeln!(out, "{}", files.weights().display())?;
        }
    }
    Ok(())
}
