//! How is HTML read? The main content, block by block; navigation, scripts and styles are left out.
//!
//! The parser keeps no source positions, so each piece of text is looked for in the source behind the one before it: a
//! block's span reaches from the first to the last of its pieces that stand there verbatim.

use super::inline::collapse;
use super::{Block, BlockKind, Document, Element};
use scraper::{ElementRef, Html, Node, Selector};
use std::ops::Range;

/// How far ahead a piece of text is looked for, in bytes.
const SEARCH_BYTES: usize = 1 << 16;

/// Reads HTML.
pub(super) fn read(source: &str) -> Document {
    let html = Html::parse_document(source);
    let mut reader = Reader { source, ..Reader::default() };
    reader.document.title = first(&html, "title").map(|title| collapse(&title.text().collect::<String>()));
    let root =
        first(&html, "main, [role=main]").or_else(|| only(&html, "article")).or_else(|| first(&html, "body"));
    reader.walk(root.unwrap_or_else(|| html.root_element()));
    reader.flush();
    reader.document
}

fn first<'a>(html: &'a Html, selector: &str) -> Option<ElementRef<'a>> {
    html.select(&Selector::parse(selector).ok()?).next()
}

/// The one element that fits; several articles are a list of teasers, none of which is the content.
fn only<'a>(html: &'a Html, selector: &str) -> Option<ElementRef<'a>> {
    let selector = Selector::parse(selector).ok()?;
    let mut found = html.select(&selector);
    found.next().filter(|_| found.next().is_none())
}

#[derive(Default)]
struct Reader<'a> {
    source: &'a str,
    document: Document,
    text: String,
    span: Option<Range<usize>>,
    /// Everything before this byte has been passed.
    passed: usize,
    /// Levels of `pre`, lists and tables around the place in hand.
    pre: usize,
    lists: usize,
    tables: usize,
    marker: &'static str,
}

impl Reader<'_> {
    fn walk(&mut self, root: ElementRef<'_>) {
        // Edges instead of recursion: hostile pages nest deeper than a stack.
        let mut hidden_until = None;
        for edge in root.traverse() {
            match edge {
                ego_tree::iter::Edge::Open(node) if hidden_until.is_none() => match node.value() {
                    Node::Text(text) => self.push(text),
                    Node::Element(element) if is_hidden(element) => hidden_until = Some(node.id()),
                    Node::Element(element) => self.open(element.name()),
                    _ => {}
                },
                ego_tree::iter::Edge::Close(node) => {
                    if hidden_until == Some(node.id()) {
                        hidden_until = None;
                    } else if let (None, Node::Element(element)) = (hidden_until, node.value()) {
                        self.close(element.name());
                    }
                }
                _ => {}
            }
        }
    }

    fn open(&mut self, name: &str) {
        match name {
            "br" | "tr" => self.text.push('\n'),
            "td" | "th" if self.text.rsplit('\n').next().is_some_and(|row| !row.trim().is_empty()) => {
                self.text.push_str(" | ");
            }
            _ if is_block(name) => self.flush(),
            _ => {}
        }
        match name {
            "pre" => self.pre += 1,
            "ul" | "ol" => self.lists += 1,
            "table" => self.tables += 1,
            "li" => self.marker = "- ",
            _ => {}
        }
    }

    fn close(&mut self, name: &str) {
        if let Some(level) = heading_level(name) {
            return self.heading(level);
        }
        if is_block(name) {
            self.flush();
        }
        match name {
            "pre" => self.pre = self.pre.saturating_sub(1),
            "ul" | "ol" => self.lists = self.lists.saturating_sub(1),
            "table" => self.tables = self.tables.saturating_sub(1),
            "li" => self.marker = "",
            _ => {}
        }
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        let needle = text.trim();
        if needle.is_empty() {
            return;
        }
        let until = (self.passed + SEARCH_BYTES.max(2 * needle.len())).min(self.source.len());
        let until = (until..=self.source.len()).find(|at| self.source.is_char_boundary(*at));
        let window = &self.source[self.passed..until.unwrap_or(self.source.len())];
        if let Some(at) = window.find(needle) {
            let found = self.passed + at..self.passed + at + needle.len();
            self.passed = found.end;
            let span = self.span.get_or_insert_with(|| found.clone());
            span.end = found.end;
        }
    }

    fn heading(&mut self, level: u8) {
        // The mark that documentation tools hang on headings as a link to themselves.
        let text = collapse(&std::mem::take(&mut self.text));
        let text = text.trim_end_matches(['¶', '#', ' ']).to_string();
        let span = self.span.take().unwrap_or(self.passed..self.passed);
        if !text.is_empty() {
            self.document.elements.push(Element::Heading { level, text, span });
        }
    }

    fn flush(&mut self) {
        let raw = std::mem::take(&mut self.text);
        let kind = match () {
            () if self.pre > 0 || (self.tables > 0 && raw.contains(" | ")) => BlockKind::Lines,
            () if self.lists > 0 => BlockKind::Item,
            () => BlockKind::Prose,
        };
        let text = match self.pre {
            0 => {
                let lines = raw.lines().map(collapse).filter(|line| !line.is_empty());
                lines.collect::<Vec<_>>().join(if kind == BlockKind::Lines { "\n" } else { " " })
            }
            _ => raw.trim_matches('\n').trim_end().to_string(),
        };
        let span = self.span.take().unwrap_or(self.passed..self.passed);
        if text.trim().is_empty() {
            return;
        }
        let text = format!("{}{text}", std::mem::take(&mut self.marker));
        self.document.elements.push(Element::Block(Block::new(kind, text, span)));
    }
}

fn heading_level(name: &str) -> Option<u8> {
    match name.as_bytes() {
        [b'h', level @ b'1'..=b'6'] => Some(level - b'0'),
        _ => None,
    }
}

fn is_hidden(element: &scraper::node::Element) -> bool {
    let by_name = matches!(
        element.name(),
        "script"
            | "style"
            | "nav"
            | "noscript"
            | "template"
            | "footer"
            | "aside"
            | "svg"
            | "iframe"
            | "button"
            | "select"
            | "head"
            | "object"
            | "canvas"
    );
    let role = element.attr("role").unwrap_or_default();
    by_name
        || matches!(role, "navigation" | "search" | "banner" | "contentinfo")
        || element.attr("hidden").is_some()
        || element.attr("aria-hidden") == Some("true")
}

fn is_block(name: &str) -> bool {
    heading_level(name).is_some()
        || matches!(
            name,
            "p" | "div"
                | "section"
                | "article"
                | "main"
                | "header"
                | "ul"
                | "ol"
                | "li"
                | "dl"
                | "dt"
                | "dd"
                | "pre"
                | "blockquote"
                | "table"
                | "caption"
                | "figure"
                | "figcaption"
                | "hr"
                | "form"
                | "fieldset"
                | "details"
                | "summary"
                | "address"
                | "body"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &[&str]) {
        assert_eq!(read(source).shown(), expected, "{source}");
    }

    #[test]
    fn content_is_read_and_furniture_is_not() {
        check(
            "<html><head><title>T</title><style>p{}</style></head><body><nav>Menu</nav><h1>Big <i>one</i></h1>\
             <p>Some <b>bold</b>\n text.</p><script>var x = '<p>no</p>';</script><footer>Foot</footer></body></html>",
            &["h1 Big one", "Prose Some bold text."],
        );
        check("<body><div>Side</div><main><p>Main.</p></main></body>", &["Prose Main."]);
        check(
            "<ul><li>one<li>two<ul><li>deep</ul></ul>after",
            &["Item - one", "Item - two", "Item - deep", "Prose after"],
        );
        check("<pre><code>a\n  b\n</code></pre>", &["Lines a\n  b"]);
        check("<table><tr><th>a<th>b</tr><tr><td>1<td>2</tr></table>", &["Lines a | b\n1 | 2"]);
        check("<p>a &amp; b &lt; c</p>", &["Prose a & b < c"]);
        check("<article>One</article><article>Two</article>", &["Prose One", "Prose Two"]);
        check("no tags at all", &["Prose no tags at all"]);
        check("", &[]);
    }

    #[test]
    fn spans_hold_the_words_where_they_stand_verbatim() {
        let source = "<body><p class='two'>one <b>two</b> three</p>\n<p>four &amp; five</p><p>six</p></body>";
        let spans: Vec<&str> = read(source)
            .elements
            .iter()
            .filter_map(|element| match element {
                Element::Block(block) => Some(&source[block.span.clone()]),
                Element::Heading { .. } => None,
            })
            .collect();
        assert_eq!(spans, ["one <b>two</b> three", "", "six"]);
    }

    #[test]
    fn deep_nesting_is_survived() {
        let source = "<div>".repeat(20_000) + "deep";
        assert_eq!(read(&source).elements.len(), 1);
    }
}
