//! How is a file with one JSON object a line read? Each is a small document: its title is a heading, its text a block.

use super::{Block, BlockKind, Document, Element};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use std::ops::Range;

const TITLE: [&str; 3] = ["title", "name", "heading"];
const TEXT: [&str; 5] = ["text", "body", "content", "abstract", "description"];
const RECORDS_MAX: usize = 1_000_000;

/// Reads JSON lines. A line that is no object costs only itself.
///
/// # Errors
/// No line is a JSON object, or there are more than one file may have.
pub(super) fn read(source: &str) -> Result<Document, String> {
    let mut document = Document { headings_name_parts: true, ..Document::default() };
    let (mut read, mut skipped, mut at) = (0usize, 0usize, 0);
    for line in source.split_inclusive('\n') {
        let content = line.trim();
        let start = at + (line.len() - line.trim_start().len());
        at += line.len();
        if content.is_empty() {
            continue;
        }
        match serde_json::from_str::<Record>(content) {
            Ok(record) => {
                read += 1;
                record.show(&(start..start + content.len()), &mut document);
            }
            Err(_) => skipped += 1,
        }
        if read > RECORDS_MAX {
            return Err(format!("more than {RECORDS_MAX} records"));
        }
    }
    if skipped > 0 {
        tracing::debug!(skipped, read, "lines that are no JSON object");
    }
    if read == 0 && skipped > 0 { Err("no line of it is a JSON object".into()) } else { Ok(document) }
}

/// The strings of an object in the order of the file, which the map type of the JSON library would not keep.
struct Record(Vec<(String, String)>);

impl Record {
    fn show(&self, span: &Range<usize>, document: &mut Document) {
        let title = self.first(&TITLE);
        let text = self.first(&TEXT);
        if let Some((_, title)) = title {
            let (text, span) = (super::inline::collapse(title), span.clone());
            document.elements.push(Element::Heading { level: 1, text, span });
        }
        let mut push = |kind, text: String| {
            if !text.trim().is_empty() {
                document.elements.push(Element::Block(Block::new(kind, text, span.clone())));
            }
        };
        match text {
            Some((_, text)) => {
                paragraphs(text).into_iter().for_each(|paragraph| push(BlockKind::Prose, paragraph));
            }
            None => {
                let is_title = |key: &str| title.is_some_and(|(own, _)| own == key);
                let others = self.0.iter().filter(|(key, value)| !is_title(key) && !value.trim().is_empty());
                let lines: Vec<String> =
                    others.map(|(key, value)| format!("{key}: {}", super::inline::collapse(value))).collect();
                push(BlockKind::Lines, lines.join("\n"));
            }
        }
    }

    /// The first of these fields that says anything, in the order of `keys`.
    fn first(&self, keys: &[&str]) -> Option<&(String, String)> {
        keys.iter().find_map(|key| {
            self.0.iter().find(|(own, value)| own.eq_ignore_ascii_case(key) && !value.trim().is_empty())
        })
    }
}

/// Blank lines part paragraphs, as in plain text.
fn paragraphs(text: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    for line in text.lines().map(str::trim_end) {
        let Some(last) = out.last_mut() else { break };
        if line.is_empty() {
            if !last.is_empty() {
                out.push(String::new());
            }
            continue;
        }
        if !last.is_empty() {
            last.push('\n');
        }
        last.push_str(if last.is_empty() { line.trim_start() } else { line });
    }
    out
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Record, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Record;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Record, M::Error> {
        let mut fields = Vec::new();
        while let Some((key, value)) = map.next_entry::<String, Value>()? {
            match value {
                Value::String(value) => fields.push((key, value)),
                // Texts also come as lists of their sentences.
                Value::Array(parts) if !parts.is_empty() && parts.iter().all(Value::is_string) => {
                    let parts: Vec<&str> = parts.iter().filter_map(Value::as_str).collect();
                    fields.push((key, parts.join(" ")));
                }
                _ => {}
            }
        }
        Ok(Record(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_titles_and_texts_under_many_names() {
        let source = concat!(
            "{\"_id\": \"1\", \"title\": \"Cats\", \"text\": \"Cats\\npurr.\\n\\nThey sleep.\"}\n",
            "\n",
            "{\"abstract\": [\"One.\", \"Two.\"], \"Name\": \"Caf\\u00e9\"}\r\n",
            "  {\"z\": \"last\", \"a\": \"first  word\", \"n\": 3, \"deep\": {\"x\": \"y\"}}\n",
            "{\"title\": \"Bare\", \"url\": \"u\"}\n",
            "{\"title\": \"Empty\", \"text\": \" \"}",
        );
        let document = read(source).unwrap();
        assert_eq!(
            document.shown(),
            [
                "h1 Cats",
                "Prose Cats\npurr.",
                "Prose They sleep.",
                "h1 Café",
                "Prose One. Two.",
                "Lines z: last\na: first word",
                "h1 Bare",
                "Lines url: u",
                "h1 Empty",
            ]
        );
        let Element::Block(block) = &document.elements[5] else { panic!("a heading") };
        assert_eq!(
            &source[block.span.clone()],
            "{\"z\": \"last\", \"a\": \"first  word\", \"n\": 3, \"deep\": {\"x\": \"y\"}}"
        );
    }

    #[test]
    fn a_broken_line_costs_itself_alone() {
        let source = "{\"text\": \"good\"}\n{\"text\": \n[1]\n{\"text\": \"too\"} x\n";
        assert_eq!(read(source).unwrap().shown(), ["Prose good"]);
        assert_eq!(read("[1, 2]\n{").unwrap_err(), "no line of it is a JSON object");
        let deep = format!("{{\"a\": {}", "[".repeat(100_000));
        assert!(read(&deep).is_err());
        assert!(read(" \n").unwrap().elements.is_empty());
    }
}
