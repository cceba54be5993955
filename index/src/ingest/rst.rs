//! How is reStructuredText read? By its own structure rules, without running any directive.
//!
//! Titles come from their adornments, objects (functions, classes, options) become their signature and the text below
//! it, admonitions keep their label, literal blocks and doctests stay as they are. What a build tool would fetch or
//! generate (includes, tables of contents, index entries) is left out, and so are comments and link targets.

use super::rst_directive::Role;
use super::rst_line::{Line, adornment, directive, field, grid_border, lines, list_marker, table_border};
use super::rst_markup::clean;
use super::rst_table::{grid_rows, simple_rows};
use super::{Block, BlockKind, Document, Element};

/// Deepest nesting that is followed; what lies deeper is read as one paragraph.
const DEPTH_MAX: usize = 48;
/// Longest name of an object in a heading path, in characters.
const CONTEXT_CHARS_MAX: usize = 80;

/// Reads reStructuredText.
pub(super) fn read(source: &str) -> Document {
    let mut reader = Reader { source, ..Reader::default() };
    reader.body(&lines(source), &[], 0);
    reader.document
}

#[derive(Default)]
struct Reader<'a> {
    source: &'a str,
    document: Document,
    /// Title styles in order of appearance: the mark, and whether it stands above the title too.
    styles: Vec<(char, bool)>,
    /// Put before the next block: a bullet, the label of an admonition.
    prefix: String,
}

impl<'a> Reader<'a> {
    /// Reads lines of one nesting; `context` names the objects they belong to.
    fn body(&mut self, lines: &[Line<'a>], context: &[String], depth: usize) {
        let Some(base) = lines.iter().find(|line| !line.is_blank()).map(|line| line.indent) else { return };
        if depth > DEPTH_MAX {
            return self.paragraph_text(lines, context);
        }
        let mut at = 0;
        while at < lines.len() {
            let line = lines[at];
            let rest = &lines[at..];
            at += if line.is_blank() {
                1
            } else if let Some(taken) = (depth == 0).then(|| self.title(rest)).flatten() {
                taken
            } else if line.text.starts_with(".. ") || line.text == ".." {
                let taken = 1 + deeper(&rest[1..], line.indent);
                self.explicit(&rest[..taken], context, depth);
                taken
            } else if line.indent > base {
                let taken = deeper(rest, base);
                self.body(&rest[..taken], context, depth + 1);
                taken
            } else if let Some((length, shown)) = list_marker(line.text) {
                self.labelled(rest, length, &shown, context, depth)
            } else if let Some((name, length)) = field(line.text) {
                self.field(rest, name, length, context, depth)
            } else if line.text.starts_with(">>>") {
                let taken = rest.iter().take_while(|line| !line.is_blank()).count();
                self.verbatim(&rest[..taken], context);
                taken
            } else if table_border(line.text) || grid_border(line.text) {
                self.table(rest, context)
            } else {
                self.paragraph(rest, base, context, depth)
            };
        }
    }

    /// A title with its adornment; gives the number of lines taken.
    fn title(&mut self, rest: &[Line<'a>]) -> Option<usize> {
        let get = |at: usize| rest.get(at).filter(|line| !line.is_blank());
        let (title, mark, over, taken) = match (adornment(rest[0].text), get(1), get(2)) {
            (Some(mark), Some(title), Some(under)) if adornment(under.text) == Some(mark) => {
                (title, mark, true, 3)
            }
            // A line of marks alone parts sections without naming one.
            (Some(_), _, _) => return Some(1),
            (None, Some(under), _) => (&rest[0], adornment(under.text)?, false, 2),
            _ => return None,
        };
        if !over && rest[0].indent > 0 {
            return None;
        }
        let style = (mark, over);
        let level = self.styles.iter().position(|known| *known == style).unwrap_or_else(|| {
            self.styles.push(style);
            self.styles.len() - 1
        });
        let level = u8::try_from(level + 1).unwrap_or(u8::MAX);
        let span = title.start..title.end();
        self.document.elements.push(Element::Heading { level, text: clean(title.text), span });
        self.prefix.clear();
        Some(taken)
    }

    /// Everything that begins with two dots.
    fn explicit(&mut self, block: &[Line<'a>], context: &[String], depth: usize) {
        let head = block[0].skip(2);
        if head.text.starts_with('_') || head.text.starts_with('|') {
            return;
        }
        if let Some(end) = head.text.strip_prefix('[').and_then(|text| text.find("] ")) {
            let label = format!("{} ", &head.text[..end + 2]);
            let below = [&[head.skip(end + 2)], &block[1..]].concat();
            self.inside(&below, label, context, depth);
        } else if let Some((name, argument)) = directive(head.text) {
            self.directive(name, argument, head, &block[1..], context, depth);
        }
    }

    fn directive(
        &mut self,
        name: &str,
        argument: &'a str,
        head: Line<'a>,
        below: &[Line<'a>],
        context: &[String],
        depth: usize,
    ) {
        let options = below.iter().take_while(|line| field(line.text).is_some()).count();
        let content = &below[options..];
        let argument_line = head.skip(head.text.len() - argument.len());
        match Role::of(name) {
            Role::Left => {}
            Role::Literal => self.verbatim(content, context),
            Role::Label(label) => {
                let lines = Self::with_argument(argument_line, content);
                self.inside(&lines, format!("{label}: "), context, depth);
            }
            Role::Version(label) => {
                let length = argument.find(' ').unwrap_or(argument.len());
                let lines = Self::with_argument(argument_line.skip(length), content);
                let said = self.inside(&lines, format!("{label} {}: ", &argument[..length]), context, depth);
                // Most say no more than the version, which is something.
                self.emit(
                    BlockKind::Prose,
                    said.trim_end_matches([' ', ':']),
                    head.start..head.end(),
                    context,
                );
            }
            Role::Container => {
                self.emit(
                    BlockKind::Prose,
                    &clean(argument),
                    argument_line.start..argument_line.end(),
                    context,
                );
                self.body(content, context, depth + 1);
            }
            Role::Condition => self.body(content, context, depth + 1),
            Role::Module => {
                let synopsis = below[..options].iter().find_map(|line| line.text.strip_prefix(":synopsis:"));
                let text = match synopsis {
                    Some(synopsis) => format!("Module {argument}: {}", clean(synopsis.trim())),
                    None => format!("Module {argument}."),
                };
                let end = below[..options].last().map_or(argument_line.end(), Line::end);
                self.emit(BlockKind::Prose, &text, argument_line.start..end, context);
                self.body(content, context, depth + 1);
            }
            Role::Object(kind) => self.object(kind, argument_line, below, context, depth),
        }
    }

    /// The text behind a directive's colons, followed by what stands below it.
    fn with_argument(argument: Line<'a>, content: &[Line<'a>]) -> Vec<Line<'a>> {
        let indent = content.iter().find(|line| !line.is_blank()).map_or(argument.indent, |line| line.indent);
        let first = (!argument.is_blank()).then_some(Line { indent, ..argument });
        first.into_iter().chain(content.iter().copied()).collect()
    }

    /// An object's signatures, then its text in the context of its name.
    fn object(&mut self, kind: &str, first: Line<'a>, below: &[Line<'a>], context: &[String], depth: usize) {
        let signatures = below.iter().take_while(|line| !line.is_blank()).count();
        let more = below[..signatures].iter().filter(|line| field(line.text).is_none());
        let mut text = String::new();
        let mut end = first.end();
        for line in std::iter::once(&first).chain(more) {
            let (piece, goes_on) = match line.text.strip_suffix('\\') {
                Some(piece) => (piece, true),
                None => (line.text, false),
            };
            text.push_str(&piece.replace('\\', ""));
            text.push(if goes_on { ' ' } else { '\n' });
            end = line.end();
        }
        let text = text.trim();
        let mut inner = context.to_vec();
        if text.is_empty() {
            return self.body(below, context, depth + 1);
        }
        let name = text.lines().next().unwrap_or_default().split('(').next().unwrap_or_default().trim();
        inner.push(format!("{kind}{name}").chars().take(CONTEXT_CHARS_MAX).collect());
        self.emit(BlockKind::Prose, &format!("{kind}{text}"), first.start..end, context);
        self.body(&below[signatures..], &inner, depth + 1);
    }

    /// A list item: what is deeper than its marker belongs to it. Gives the number of lines taken.
    fn labelled(
        &mut self,
        rest: &[Line<'a>],
        length: usize,
        shown: &str,
        context: &[String],
        depth: usize,
    ) -> usize {
        let taken = 1 + deeper(&rest[1..], rest[0].indent);
        let first = rest[0].skip(length);
        let below = rest[1..taken].iter().find(|line| !line.is_blank());
        let indent = below.map_or(first.indent, |line| line.indent.min(first.indent));
        // White space behind the marker may be wider than the indentation below it.
        let lines = [&[Line { indent, ..first }], &rest[1..taken]].concat();
        let outer = std::mem::take(&mut self.prefix);
        self.inside(&lines, format!("{outer}{shown}"), context, depth);
        taken
    }

    fn field(
        &mut self,
        rest: &[Line<'a>],
        name: &str,
        length: usize,
        context: &[String],
        depth: usize,
    ) -> usize {
        if depth == 0 && self.document.elements.is_empty() {
            // Fields above the first title steer the build tool.
            return 1 + deeper(&rest[1..], rest[0].indent);
        }
        self.labelled(rest, length, &format!("{name}: "), context, depth)
    }

    /// Reads `lines` with `prefix` before their first block; gives the prefix back when there is no block.
    fn inside(&mut self, lines: &[Line<'a>], prefix: String, context: &[String], depth: usize) -> String {
        self.prefix = prefix;
        self.body(lines, context, depth + 1);
        std::mem::take(&mut self.prefix)
    }

    /// A paragraph, a term with its definition, or a line block; gives the number of lines taken.
    fn paragraph(&mut self, rest: &[Line<'a>], base: usize, context: &[String], depth: usize) -> usize {
        let is_term = rest.get(1).is_some_and(|next| !next.is_blank() && next.indent > base);
        let taken =
            rest.iter().take_while(|line| !(line.is_blank() || is_term && line.indent > base)).count();
        let text = self.paragraph_text_of(&rest[..taken]);
        let literal = text.ends_with("::");
        let shown = match text.strip_suffix("::") {
            Some(text) if text.is_empty() || text.ends_with(' ') => text.trim_end().to_string(),
            Some(text) => format!("{text}:"),
            None => text.clone(),
        };
        let span = rest[0].start..rest[taken - 1].end();
        let kind = if self.prefix.trim_end().ends_with(['-', '.', ')']) {
            BlockKind::Item
        } else {
            BlockKind::Prose
        };
        self.emit(kind, &clean(&shown), span, context);
        let below = deeper(&rest[taken..], base);
        if literal {
            self.verbatim(&rest[taken..taken + below], context);
        } else if is_term {
            let mut inner = context.to_vec();
            inner.push(clean(&shown).chars().take(CONTEXT_CHARS_MAX).collect());
            self.body(&rest[taken..taken + below], &inner, depth + 1);
        } else {
            return taken;
        }
        taken + below
    }

    fn paragraph_text_of(&self, lines: &[Line<'a>]) -> String {
        let block = lines[0].text.starts_with("| ");
        let words =
            lines.iter().map(|line| line.text.strip_prefix("| ").filter(|_| block).unwrap_or(line.text));
        words.collect::<Vec<_>>().join(if block { "\n" } else { " " })
    }

    fn paragraph_text(&mut self, lines: &[Line<'a>], context: &[String]) {
        for part in lines.split(Line::is_blank).filter(|part| !part.is_empty()) {
            let span = part[0].start..part[part.len() - 1].end();
            let text = clean(&self.paragraph_text_of(part));
            self.emit(BlockKind::Prose, &text, span, context);
        }
    }

    /// Rows with their cells parted by bars; borders say nothing. Gives the number of lines taken.
    fn table(&mut self, rest: &[Line<'a>], context: &[String]) -> usize {
        let grid = grid_border(rest[0].text);
        let blank_follows = |at: usize| rest.get(at + 1).is_none_or(Line::is_blank);
        let closing = (1..rest.len()).find(|at| table_border(rest[*at].text) && blank_follows(*at));
        let until_blank = rest.iter().take_while(|line| !line.is_blank()).count();
        let taken = match closing {
            Some(at) if !grid => at + 1,
            _ => until_blank,
        };
        let rows = if grid { grid_rows(&rest[..taken]) } else { simple_rows(&rest[..taken]) };
        self.emit(BlockKind::Lines, &rows.join("\n"), rest[0].start..rest[taken - 1].end(), context);
        taken
    }

    /// Code as it stands, without the indentation that all its lines share.
    fn verbatim(&mut self, lines: &[Line<'a>], context: &[String]) {
        let mut shown = lines.iter().filter(|line| !line.is_blank());
        let Some(base) = shown.clone().map(|line| line.indent).min() else { return };
        let (Some(first), Some(last)) = (shown.clone().next(), shown.next_back()) else { return };
        let text: Vec<String> = lines
            .iter()
            .map(
                |line| {
                    if line.is_blank() { String::new() } else { " ".repeat(line.indent - base) + line.text }
                },
            )
            .collect();
        self.emit(BlockKind::Lines, text.join("\n").trim_matches('\n'), first.start..last.end(), context);
    }

    fn emit(&mut self, kind: BlockKind, text: &str, span: std::ops::Range<usize>, context: &[String]) {
        debug_assert!(self.source.get(span.clone()).is_some(), "spans lie on character boundaries");
        if text.trim().is_empty() {
            return;
        }
        let prefix = std::mem::take(&mut self.prefix);
        // A label before code stands on a line of its own, so that the code's first line stays aligned.
        let gap = if kind == BlockKind::Lines && !prefix.is_empty() { "\n" } else { "" };
        let text = format!("{prefix}{gap}{text}");
        let block = Block { context: context.to_vec(), ..Block::new(kind, text, span) };
        self.document.elements.push(Element::Block(block));
    }
}

/// Number of leading lines that are blank or deeper than `indent`, without the blank ones at the end.
fn deeper(lines: &[Line<'_>], indent: usize) -> usize {
    let run = lines.iter().take_while(|line| line.is_blank() || line.indent > indent).count();
    run - lines[..run].iter().rev().take_while(|line| line.is_blank()).count()
}

#[cfg(test)]
mod tests;
