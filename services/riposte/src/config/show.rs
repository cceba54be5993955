//! What is in force, and who set it? The resolved configuration as TOML with each value's origin.

use super::Resolved;
use super::load::origin;
use std::fmt::Write as _;

impl Resolved {
    /// The configuration as TOML; a comment behind each value names its origin. Reading it back gives the same
    /// configuration.
    ///
    /// # Errors
    /// When a value cannot be written as TOML, such as a path that is not Unicode.
    pub fn show(&self) -> Result<String, toml::ser::Error> {
        let tables = toml::Table::try_from(&self.config)?;
        let mut text = String::new();
        for (section, values) in &tables {
            let Some(values) = values.as_table() else { continue };
            if values.is_empty() {
                // Keys of callers, of which there may be none.
                continue;
            }
            if !text.is_empty() {
                text.push('\n');
            }
            let _ = writeln!(text, "[{section}]");
            for (key, value) in values {
                let from = self.figment.find_metadata(&format!("{section}.{key}"));
                let from = from.map_or_else(|| "default".to_string(), origin);
                let _ = writeln!(text, "{key} = {value}  # {from}");
            }
        }
        Ok(text)
    }
}
