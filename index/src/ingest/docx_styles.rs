//! Which paragraph styles of a Word document are headings, and of which level?

use quick_xml::events::{BytesStart, Event};
use std::collections::HashMap;

/// Longest chain of styles that are based on one another.
const CHAIN_MAX: usize = 16;

/// The styles of a document, by id.
#[derive(Debug, Default)]
pub(super) struct Styles {
    styles: HashMap<String, Style>,
}

#[derive(Debug, Default)]
struct Style {
    /// Level that its own name or outline level says.
    level: Option<u8>,
    based_on: Option<String>,
}

impl Styles {
    /// Reads the part `word/styles.xml`.
    pub(super) fn read(xml: &str) -> Result<Styles, String> {
        let mut styles = HashMap::new();
        let mut open: Option<(String, Style)> = None;
        super::docx::events(xml, &mut |event| match event {
            Event::Start(tag) => match (tag.local_name().as_ref(), &mut open) {
                ("style", _) => open = attribute(tag, "styleId").map(|id| (id, Style::default())),
                // Ids are translated in some versions of Word, names never are.
                ("name", Some((_, style))) => {
                    style.level = style.level.or(value(tag).and_then(|name| named_level(&name)));
                }
                ("outlineLvl", Some((_, style))) => {
                    style.level = value(tag).and_then(|level| outline_level(&level)).or(style.level);
                }
                ("basedOn", Some((_, style))) => style.based_on = value(tag),
                _ => {}
            },
            Event::End(tag) if tag.local_name().as_ref() == "style" => styles.extend(open.take()),
            _ => {}
        })?;
        Ok(Styles { styles })
    }

    /// Level of paragraphs of this style; none for those that are no headings.
    pub(super) fn level(&self, id: &str) -> Option<u8> {
        let mut id = id;
        for _ in 0..CHAIN_MAX {
            // A document without its styles part still has telling ids.
            let Some(style) = self.styles.get(id) else { return named_level(id) };
            match (&style.level, &style.based_on) {
                (Some(level), _) => return Some(*level),
                (None, Some(base)) => id = base,
                (None, None) => return None,
            }
        }
        None
    }
}

/// `Title` is the outermost heading, and `heading 1` stands below it, whether or not there is a title.
fn named_level(name: &str) -> Option<u8> {
    let name = name.to_ascii_lowercase();
    if name == "title" {
        return Some(1);
    }
    let level: u8 = name.strip_prefix("heading")?.trim_start().parse().ok()?;
    (1..=9).contains(&level).then_some(level + 1)
}

/// Outline levels count from 0, and 9 is the body of the text.
pub(super) fn outline_level(level: &str) -> Option<u8> {
    level.parse().ok().filter(|level: &u8| *level < 9).map(|level| level + 2)
}

/// The attribute that holds what an element of WordprocessingML sets.
pub(super) fn value(tag: &BytesStart<'_>) -> Option<String> {
    attribute(tag, "val")
}

fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    let mut all = tag.attributes();
    let mut found = all.with_checks(false).flatten();
    let found = found.find(|attribute| attribute.key.local_name().as_ref() == name);
    found.map(|attribute| attribute.value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_come_from_names_outlines_and_what_a_style_is_based_on() {
        let styles = Styles::read(
            r#"<w:styles xmlns:w="w"><w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>
            <w:style w:styleId="Own"><w:name w:val="Own"/><w:basedOn w:val="berschrift1"/></w:style>
            <w:style w:styleId="Chapter"><w:pPr><w:outlineLvl w:val="2"/></w:pPr></w:style>
            <w:style w:styleId="Normal"><w:name w:val="Normal"/></w:style>
            <w:style w:styleId="Heading2"><w:name w:val="not one"/></w:style>
            <w:style w:styleId="A"><w:basedOn w:val="B"/></w:style>
            <w:style w:styleId="B"><w:basedOn w:val="A"/></w:style></w:styles>"#,
        )
        .unwrap();
        for (id, level) in [
            ("berschrift1", Some(2)),
            ("Own", Some(2)),
            ("Chapter", Some(4)),
            ("Normal", None),
            ("Heading2", None),
            ("Heading3", Some(4)),
            ("Title", Some(1)),
            ("Heading0", None),
            ("A", None),
            ("missing", None),
        ] {
            assert_eq!(styles.level(id), level, "{id}");
        }
    }
}
