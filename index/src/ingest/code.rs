//! How is source code read? Its top-level definitions become headings, and blank lines part blocks.
//!
//! Indentation and first words are all that is looked at, so code of any age and quality is read, and every block is a
//! range of whole lines. Methods lend their names to the blocks that they are made of.

use super::code_line::Language;
use super::{Block, BlockKind, Document, Element};
use std::ops::Range;

/// Columns that a tab stands for.
const TAB_COLUMNS: usize = 4;
/// Most definitions within one another whose names are kept.
const DEPTH_MAX: usize = 8;

/// Reads source code.
pub(super) fn read(source: &str, language: Language) -> Document {
    let mut reader = Reader {
        source,
        language,
        document: Document { headings_name_parts: true, ..Document::default() },
        open: Vec::new(),
        chunk: None,
        lead: None,
        in_comment: false,
        defined_at: None,
    };
    let mut at = 0;
    for line in source.split_inclusive('\n') {
        reader.line(at, line);
        at += line.len();
    }
    reader.flush();
    reader.document
}

/// A definition that is open.
struct Open {
    indent: usize,
    name: String,
    is_container: bool,
}

struct Reader<'a> {
    source: &'a str,
    language: Language,
    document: Document,
    /// Definitions around the line in hand, outermost first; the first is the heading.
    open: Vec<Open>,
    /// Lines of the block in hand.
    chunk: Option<Range<usize>>,
    /// Where the comments and attributes right above the line in hand begin, and their indentation.
    lead: Option<(usize, usize)>,
    in_comment: bool,
    /// Indentation of the line before, if it was a definition.
    defined_at: Option<usize>,
}

impl Reader<'_> {
    fn line(&mut self, at: usize, line: &str) {
        let content = line.trim();
        if content.is_empty() {
            if self.in_comment {
                // A blank line in a comment parts nothing, so that the comment stays with what it describes.
                return;
            }
            self.defined_at = None;
            return self.flush();
        }
        let indent = line.chars().take_while(|c| c.is_whitespace());
        let indent = indent.map(|c| if c == '\t' { TAB_COLUMNS } else { 1 }).sum();
        let end = at + line.trim_end().len();
        let (was_lead, was_defined_at) = (self.lead.take(), self.defined_at.take());
        if self.is_lead(content, indent, was_lead) {
            self.lead = was_lead.or(Some((at, indent)));
        } else if let Some(definition) = self.definition(content, indent) {
            // One-line definitions that stand together stay together.
            if was_lead.is_some() || was_defined_at != Some(indent) {
                self.define(was_lead.map_or(at, |(start, _)| start), at..end, indent, definition);
            }
            self.defined_at = Some(indent);
        } else if self.chunk.is_none() && !self.language.is_neutral(content) {
            self.loose(content, indent, at..end);
        }
        self.chunk = Some(self.chunk.as_ref().map_or(at, |chunk| chunk.start)..end);
    }

    fn is_lead(&mut self, content: &str, indent: usize, above: Option<(usize, usize)>) -> bool {
        let was_in_comment = self.in_comment;
        if self.language.has_block_comments() {
            // Only a comment that begins a line is followed: elsewhere the signs may stand in a string.
            let opens = was_in_comment || content.starts_with("/*");
            self.in_comment = opens && !content.contains("*/");
        }
        // Lines further in are arguments of the decorator or attribute above.
        let goes_on = above.is_some_and(|(_, column)| indent > column || content.starts_with([')', ']']));
        was_in_comment || goes_on || self.language.is_lead(content)
    }

    fn definition(&self, content: &str, indent: usize) -> Option<super::code_line::Definition> {
        let around = self.open.iter().rev().find(|open| open.indent < indent);
        match around {
            None if indent > 0 => None,
            Some(around) if !around.is_container => None,
            _ => self.language.definition(content, indent > 0),
        }
    }

    /// Begins a definition whose lines, with the comments above it, begin at `start`.
    fn define(
        &mut self,
        start: usize,
        line: Range<usize>,
        indent: usize,
        found: super::code_line::Definition,
    ) {
        let before = self.chunk.take().map(|chunk| chunk.start..start.max(chunk.start));
        self.push(before);
        self.open.retain(|open| open.indent < indent);
        if self.open.is_empty() {
            self.heading(found.name.clone(), line);
        }
        if self.open.len() < DEPTH_MAX {
            self.open.push(Open { indent, name: found.name, is_container: found.is_container });
        }
        self.chunk = Some(start..start);
    }

    /// Begins a block that belongs to no definition of its indentation, such as the statements at the end of a script.
    fn loose(&mut self, content: &str, indent: usize, line: Range<usize>) {
        let was_open = !self.open.is_empty();
        self.open.retain(|open| open.indent < indent);
        if was_open && self.open.is_empty() {
            // Only a heading ends the section of the definition above.
            self.heading(content.to_string(), line);
        }
    }

    fn heading(&mut self, text: String, span: Range<usize>) {
        self.document.elements.push(Element::Heading { level: 1, text, span });
    }

    fn flush(&mut self) {
        let chunk = self.chunk.take();
        self.lead = None;
        self.push(chunk);
    }

    fn push(&mut self, chunk: Option<Range<usize>>) {
        let Some(chunk) = chunk else { return };
        let text = self.source[chunk.clone()].trim_end();
        if text.trim().is_empty() {
            return;
        }
        let context = self.open.iter().skip(1).map(|open| open.name.clone()).collect();
        let span = chunk.start..chunk.start + text.len();
        let block = Block { context, ..Block::new(BlockKind::Lines, text.to_string(), span) };
        self.document.elements.push(Element::Block(block));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(extension: &str, source: &str, expected: &[&str]) {
        let mut document = read(source, Language::of(extension).unwrap());
        assert_eq!(document.shown(), expected, "{source}");
        document.mark_exact(source);
        for element in &document.elements {
            if let Element::Block(block) = element {
                assert!(block.exact && source[block.span.clone()] == block.text, "{block:?}");
            }
        }
    }

    #[test]
    fn rust_items_keep_their_comments_and_attributes() {
        check(
            "rs",
            "//! What?\n\nuse std::fs;\n\n/// Adds.\n#[inline]\npub fn add(a: u8) -> u8 {\n    let b = 1;\n\n    a + b\n}\n\
             struct A;\nstruct B;\n\nimpl A {\n    /// New.\n    fn new() -> A {\n        fn inner() {}\n        A\n    }\n    fn two(&self) {}\n}\n",
            &[
                "Lines //! What?",
                "Lines use std::fs;",
                "h1 pub fn add(a: u8) -> u8",
                "Lines /// Adds.\n#[inline]\npub fn add(a: u8) -> u8 {\n    let b = 1;",
                "Lines     a + b\n}",
                "h1 struct A",
                "Lines struct A;\nstruct B;",
                "h1 impl A",
                "Lines impl A {",
                "Lines [fn new() -> A]     /// New.\n    fn new() -> A {\n        fn inner() {}\n        A\n    }",
                "Lines [fn two(&self)]     fn two(&self) {}\n}",
            ],
        );
    }

    #[test]
    fn python_statements_behind_a_definition_are_no_part_of_it() {
        check(
            "py",
            "import os\n\n@wraps(\n    x,\n)\ndef f(a):\n    \"\"\"Doc.\"\"\"\n    return a\n\nclass C:\n    def g(self):\n        pass\n\n    x = 1\n\nif True:\n    f(1)\n",
            &[
                "Lines import os",
                "h1 def f(a)",
                "Lines @wraps(\n    x,\n)\ndef f(a):\n    \"\"\"Doc.\"\"\"\n    return a",
                "h1 class C",
                "Lines class C:",
                "Lines [def g(self)]     def g(self):\n        pass",
                "Lines     x = 1",
                "h1 if True:",
                "Lines if True:\n    f(1)",
            ],
        );
    }

    #[test]
    fn c_and_java_functions_are_found_without_a_word_for_them() {
        check(
            "c",
            "#include <a.h>\n\n/*\n * Adds.\n\n * Really.\n */\nint\nadd_all(int a);\nstatic int add(int a)\n{\n\treturn a;\n}\n\n#ifdef X\nint y;\n#endif\n",
            &[
                "Lines #include <a.h>",
                "Lines /*\n * Adds.\n\n * Really.\n */\nint\nadd_all(int a);",
                "h1 static int add(int a)",
                "Lines static int add(int a)\n{\n\treturn a;\n}",
                "Lines #ifdef X\nint y;\n#endif",
            ],
        );
        check(
            "java",
            "package a;\n\npublic class P {\n  int x;\n\n  /** Gets. */\n  int x() {\n    if (x > 0) {\n      return x;\n    }\n\n    return 0;\n  }\n}\n",
            &[
                "Lines package a;",
                "h1 public class P",
                "Lines public class P {\n  int x;",
                "Lines [int x()]   /** Gets. */\n  int x() {\n    if (x > 0) {\n      return x;\n    }",
                "Lines [int x()]     return 0;\n  }\n}",
            ],
        );
    }

    #[test]
    fn settings_are_parted_by_their_tables_and_keys() {
        check(
            "toml",
            "name = 1\n[a]\nb = 2\n\n# About c.\n[c]\r\nd = 3\r\n",
            &["Lines name = 1", "h1 [a]", "Lines [a]\nb = 2", "h1 [c]", "Lines # About c.\n[c]\r\nd = 3"],
        );
        check("yaml", "a:\n  b: 1\nc:\n  - d\n", &["h1 a", "Lines a:\n  b: 1", "h1 c", "Lines c:\n  - d"]);
        check("json", "{\n  \"a\": 1\n}\n", &["Lines {\n  \"a\": 1\n}"]);
        check("sql", " \n\n", &[]);
    }
}
