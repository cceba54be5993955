//! What kind of line is this? The marks by which reStructuredText tells its structures apart.

/// A line of the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    /// Without indentation and trailing white space.
    pub(super) text: &'a str,
    /// First byte of `text` in the source.
    pub(super) start: usize,
    /// Columns of indentation.
    pub(super) indent: usize,
}

impl<'a> Line<'a> {
    /// One past the last byte of `text`.
    pub(super) fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// Nothing but white space.
    pub(super) fn is_blank(&self) -> bool {
        self.text.is_empty()
    }

    /// The same line with its first `bytes` and the white space behind them taken for indentation.
    pub(super) fn skip(&self, bytes: usize) -> Line<'a> {
        let rest = &self.text[bytes..];
        let text = rest.trim_start();
        let moved = bytes + rest.len() - text.len();
        Line { text, start: self.start + moved, indent: self.indent + moved }
    }
}

/// Cuts a source into lines; a tab reaches to the next multiple of eight, as docutils has it.
pub(super) fn lines(source: &str) -> Vec<Line<'_>> {
    let mut out = Vec::new();
    let mut at = 0;
    for raw in source.split_inclusive('\n') {
        let skipped = raw.trim_start_matches([' ', '\t', '\u{feff}']);
        let lead = &raw[..raw.len() - skipped.len()];
        let indent = lead.chars().fold(0, |column, c| match c {
            '\t' => (column / 8 + 1) * 8,
            ' ' => column + 1,
            _ => column,
        });
        let text = skipped.trim_end();
        out.push(Line { text, start: at + lead.len(), indent });
        at += raw.len();
    }
    out
}

/// The mark of which the whole line consists, if it can stand over or under a title.
pub(super) fn adornment(text: &str) -> Option<char> {
    let mark = text.chars().next().filter(char::is_ascii_punctuation)?;
    (text.len() >= 3 && text.chars().all(|c| c == mark)).then_some(mark)
}

/// Length of the bullet or number at the start of a list item, and what the item shows in its place.
pub(super) fn list_marker(text: &str) -> Option<(usize, String)> {
    let first = text.chars().next()?;
    if "*-+•".contains(first) {
        let length = first.len_utf8();
        return item_follows(text, length).then(|| (length, "- ".to_string()));
    }
    let open = usize::from(first == '(');
    let number = text[open..].bytes().take_while(u8::is_ascii_alphanumeric).count();
    let number_text = &text[open..open + number];
    let counts = number_text.bytes().all(|c| c.is_ascii_digit()) && (1..=4).contains(&number);
    let letter = number == 1 || text[open..].starts_with('#');
    let length = open + number.max(usize::from(text[open..].starts_with('#'))) + 1;
    let closes = text.as_bytes().get(length - 1).is_some_and(|c| *c == b')' || (*c == b'.' && open == 0));
    ((counts || letter) && closes && item_follows(text, length))
        .then(|| (length, format!("{} ", &text[..length])))
}

fn item_follows(text: &str, length: usize) -> bool {
    text.get(length..).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
}

/// Name of the field and length of its mark, as in `:param x: ...`; a role is not a field.
pub(super) fn field(text: &str) -> Option<(&str, usize)> {
    let inner = text.strip_prefix(':')?;
    let end = inner.find(':')?;
    let name = &inner[..end];
    let fits = !name.is_empty() && !name.starts_with(' ') && !name.contains('`');
    (fits && item_follows(text, end + 2)).then_some((name, end + 2))
}

/// Name and argument of a directive, from the text behind the two dots.
pub(super) fn directive(text: &str) -> Option<(&str, &str)> {
    let (name, argument) = text.split_once("::")?;
    let known = |c: char| c.is_alphanumeric() || "_:.+-".contains(c);
    let parted = argument.is_empty() || argument.starts_with([' ', '\t']);
    (!name.is_empty() && parted && name.chars().all(known)).then_some((name, argument.trim()))
}

/// A border of a simple table with at least two columns.
pub(super) fn table_border(text: &str) -> bool {
    text.starts_with("==") && text.contains(' ') && text.chars().all(|c| c == '=' || c == ' ')
}

/// The first line of a grid table.
pub(super) fn grid_border(text: &str) -> bool {
    text.starts_with("+-") || text.starts_with("+=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_markers_are_told_from_words() {
        for (text, marker) in [
            ("* item", Some("- ")),
            ("- item", Some("- ")),
            ("1. item", Some("1. ")),
            ("#. item", Some("#. ")),
            ("(a) item", Some("(a) ")),
            ("12) item", Some("12) ")),
            ("*emph* word", None),
            ("-x", None),
            ("Python. Next", None),
            ("3.11 is out", None),
            ("(see there) item", None),
            ("", None),
            ("#", None),
            ("(", None),
            ("é. x", None),
        ] {
            assert_eq!(list_marker(text).map(|(_, shown)| shown).as_deref(), marker, "{text}");
        }
    }

    #[test]
    fn fields_directives_and_borders() {
        assert_eq!(field(":param x: the x"), Some(("param x", 9)));
        assert_eq!(field(":mod:`os` is a module"), None);
        assert_eq!(directive("note:: text"), Some(("note", "text")));
        assert_eq!(directive("c:function:: int f(void)"), Some(("c:function", "int f(void)")));
        assert_eq!(directive("just a comment"), None);
        assert_eq!(directive("std::string is no directive"), None);
        assert!(table_border("====  ===") && !table_border("======"));
    }
}
