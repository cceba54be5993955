//! What does one line of source code open? Told by its first words, language by language, without a parser.

/// Longest name of a definition, in characters.
const NAME_CHARS_MAX: usize = 100;

/// Languages that differ in how comments and definitions look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    Python,
    /// C and C++.
    C,
    /// Java and C#.
    Java,
    /// JavaScript and TypeScript.
    Script,
    /// Go, Kotlin, Swift, Scala and PHP: each definition has a word of its own.
    Words,
    Ruby,
    Lua,
    Shell,
    Sql,
    Toml,
    Yaml,
    Json,
}

/// A line that begins a definition.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Definition {
    /// The line without its opening brace, short.
    pub(super) name: String,
    /// Definitions inside it are worth naming: methods of a class, but not functions in a function.
    pub(super) is_container: bool,
}

const MODIFIERS: &[&str] = &[
    "abstract",
    "actual",
    "async",
    "case",
    "const",
    "data",
    "declare",
    "default",
    "expect",
    "explicit",
    "export",
    "extern",
    "fileprivate",
    "final",
    "implicit",
    "indirect",
    "inline",
    "internal",
    "lazy",
    "local",
    "mutating",
    "open",
    "operator",
    "override",
    "partial",
    "private",
    "protected",
    "pub",
    "public",
    "readonly",
    "sealed",
    "static",
    "suspend",
    "tailrec",
    "typedef",
    "unsafe",
    "value",
    "virtual",
];
const FUNCTIONS: &[&str] = &["def", "fn", "fun", "func", "function", "macro_rules!", "type", "typealias"];
const CONTAINERS: &[&str] = &[
    "actor",
    "class",
    "enum",
    "extension",
    "impl",
    "interface",
    "mod",
    "module",
    "namespace",
    "object",
    "protocol",
    "record",
    "struct",
    "trait",
    "union",
];
/// First words of lines that look like functions and are not.
const CONTROL: &[&str] = &[
    "await", "case", "catch", "delete", "do", "else", "for", "foreach", "if", "lock", "new", "return",
    "sizeof", "super", "switch", "this", "throw", "try", "using", "while", "with", "yield",
];

impl Language {
    /// The language of files with this ending.
    pub(super) fn of(extension: &str) -> Option<Language> {
        Some(match extension {
            "rs" => Language::Rust,
            "py" => Language::Python,
            "c" | "h" | "cc" | "cpp" | "hpp" => Language::C,
            "java" | "cs" => Language::Java,
            "js" | "ts" | "tsx" | "jsx" => Language::Script,
            "go" | "kt" | "swift" | "scala" | "php" => Language::Words,
            "rb" => Language::Ruby,
            "lua" => Language::Lua,
            "sh" => Language::Shell,
            "sql" => Language::Sql,
            "toml" => Language::Toml,
            "yaml" | "yml" => Language::Yaml,
            "json" => Language::Json,
            _ => return None,
        })
    }

    /// Comments, attributes and decorators, which belong to what follows them.
    pub(super) fn is_lead(self, line: &str) -> bool {
        let slashes = || line.starts_with("//") || line.starts_with("/*");
        match self {
            Language::Python | Language::Ruby | Language::Shell | Language::Toml | Language::Yaml => {
                line.starts_with('#') || (self == Language::Python && line.starts_with('@'))
            }
            Language::Lua => line.starts_with("--"),
            Language::Sql => line.starts_with("--") || line.starts_with("/*"),
            Language::Rust => slashes() || line.starts_with("#["),
            Language::C => slashes() || (line.starts_with("template") && line.ends_with('>')),
            Language::Java | Language::Script | Language::Words => {
                slashes() || ["@", "#[", "["].iter().any(|sign| line.starts_with(sign))
            }
            Language::Json => false,
        }
    }

    /// May a comment of this language reach over several lines, from `/*` to `*/`?
    pub(super) fn has_block_comments(self) -> bool {
        use Language::{C, Java, Rust, Script, Sql, Words};
        matches!(self, Rust | C | Java | Script | Words | Sql)
    }

    /// A line that neither begins something new nor goes on with something else: ends of blocks, labels, `#endif`.
    pub(super) fn is_neutral(self, line: &str) -> bool {
        let closes = line.starts_with(['}', ')', ']', '{', '*']);
        let word = line.trim_end_matches(';');
        let ends = matches!(word, "end" | "fi" | "done" | "esac" | "GO" | "go" | "END" | "?>");
        let in_c = self == Language::C && (line.starts_with('#') || line.ends_with(':'));
        closes || ends || in_c
    }

    /// What the line defines. `inside` a container, methods may have no word that says so.
    pub(super) fn definition(self, line: &str, inside: bool) -> Option<Definition> {
        let is_container = match self {
            Language::Json => return None,
            Language::Toml => line.starts_with('[').then_some(false)?,
            Language::Yaml => (line.ends_with(':') && !line.starts_with(['-', ' '])).then_some(false)?,
            Language::Sql => {
                line.get(..7).is_some_and(|word| word.eq_ignore_ascii_case("create ")).then_some(false)?
            }
            Language::Shell if is_shell_function(line) => false,
            Language::Script if is_arrow(line) => false,
            Language::C | Language::Java if is_function(line, inside) => false,
            Language::Script if inside && is_function(line, inside) => false,
            _ => self.by_word(line)?,
        };
        Some(Definition { name: name(line, self), is_container })
    }

    /// `Some(true)` for words that open containers, `Some(false)` for those that open functions and the like.
    fn by_word(self, line: &str) -> Option<bool> {
        let rest = without_modifiers(line);
        let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '<' | '('))?;
        let (word, rest) = (&rest[..end], rest[end..].trim_start());
        // `type = 3` and `object.x` are no definitions, `func (r *Reader) Read` and `impl<T> X` are.
        let named = |c: char| c.is_alphanumeric() || matches!(c, '_' | '<' | '`' | '$' | '&');
        let is_named = rest.starts_with(named) || (word == "func" && rest.starts_with('('));
        let is_container = CONTAINERS.contains(&word);
        // `mod a;` and `struct node *next;` only mention what is defined elsewhere; `struct Unit;` of Rust is whole.
        let mentions = line.ends_with(';')
            && !line.contains('{')
            && (matches!(word, "mod" | "module" | "namespace") || self == Language::C);
        (is_named && !mentions && (is_container || FUNCTIONS.contains(&word))).then_some(is_container)
    }
}

fn without_modifiers(line: &str) -> &str {
    let mut rest = line;
    while let Some((word, behind)) = rest.split_once(char::is_whitespace) {
        let is_modifier = MODIFIERS.contains(&word) || word.starts_with("pub(") || word.starts_with('"');
        if !is_modifier {
            break;
        }
        rest = behind.trim_start();
    }
    rest
}

/// `const add = (a, b) => a + b`
fn is_arrow(line: &str) -> bool {
    let line = line.strip_prefix("export ").unwrap_or(line);
    let binds = ["const ", "let ", "var "].iter().any(|word| line.starts_with(word));
    binds && line.split_once('=').is_some_and(|(_, value)| value.contains("=>") || value.contains("function"))
}

/// `build() {`
fn is_shell_function(line: &str) -> bool {
    line.split_once("()").is_some_and(|(name, rest)| {
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-:.".contains(c));
        is_name && matches!(rest.trim(), "" | "{" | "(")
    })
}

/// `static int add(int a, int b)`, and inside of classes `Point(int x) {`
fn is_function(line: &str, inside: bool) -> bool {
    let Some((before, _)) = line.split_once('(') else { return false };
    let before = before.trim_end();
    let first = before.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
    let is_start = |c: char| c.is_alphabetic() || matches!(c, '_' | '~' | '#');
    let is_name = before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '>' || c == '$')
        && before.starts_with(is_start)
        && !CONTROL.contains(&first)
        && !before.contains(['=', '.', '"', '+', '!', ',']);
    let is_typed = before.split_whitespace().count() > 1;
    let opens = line.ends_with('{');
    let may_open = !line.ends_with([';', ',', '\\', ':']);
    let is_one_line = line.ends_with('}') && line.contains('{');
    is_name && if inside { opens || is_one_line || (is_typed && may_open) } else { is_typed && may_open }
}

/// The line without what only opens the body.
fn name(line: &str, language: Language) -> String {
    let line = match (language, line.split_once('{')) {
        (Language::Toml | Language::Yaml, _) | (_, None) => line,
        (_, Some((head, _))) => head,
    };
    let line = line.trim_end().trim_end_matches("=>").trim_end_matches([':', ';', '(', ' ', '=']);
    line.chars().take(NAME_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_told_by_their_first_words() {
        for (extension, line, name) in [
            (
                "rs",
                "pub(crate) async fn load(path: &Path) -> u8 {",
                "pub(crate) async fn load(path: &Path) -> u8",
            ),
            ("rs", "unsafe extern \"C\" fn raw() {}", "unsafe extern \"C\" fn raw()"),
            ("rs", "impl<T> From<T> for X {", "impl<T> From<T> for X"),
            ("rs", "struct Unit;", "struct Unit"),
            ("rs", "macro_rules! check {", "macro_rules! check"),
            ("py", "async def main(a, b):", "async def main(a, b)"),
            ("py", "class A(B):", "class A(B)"),
            ("c", "static int add(int a, int b)", "static int add(int a, int b)"),
            ("c", "typedef struct node {", "typedef struct node"),
            ("cpp", "void Shape::draw() const {", "void Shape::draw() const"),
            ("java", "public final class A extends B {", "public final class A extends B"),
            (
                "go",
                "func (r *Reader) Read(p []byte) (int, error) {",
                "func (r *Reader) Read(p []byte) (int, error)",
            ),
            ("ts", "export const add = (a: number) => {", "export const add = (a: number)"),
            ("js", "export default async function run() {", "export default async function run()"),
            ("rb", "def self.call", "def self.call"),
            ("sh", "build_all() {", "build_all()"),
            ("sql", "Create Table t (", "Create Table t"),
            ("toml", "[package.metadata]", "[package.metadata]"),
            ("yml", "services:", "services"),
            ("kt", "data class P(val x: Int)", "data class P(val x: Int)"),
            ("lua", "local function f(x)", "local function f(x)"),
        ] {
            let found = Language::of(extension).unwrap().definition(line, false);
            assert_eq!(found.map(|found| found.name).as_deref(), Some(name), "{line}");
        }
    }

    #[test]
    fn mentions_calls_and_control_flow_define_nothing() {
        for (extension, line) in [
            ("rs", "mod tests;"),
            ("rs", "use std::fs;"),
            ("py", "type = 3"),
            ("py", "print(def_)"),
            ("c", "int add(int a, int b);"),
            ("c", "struct node *next;"),
            ("c", "MODULE_LICENSE(\"GPL\")"),
            ("js", "function () {"),
            ("js", "const x = 3"),
            ("json", "\"class\": {"),
            ("yaml", "- name:"),
            ("sh", "echo hello"),
        ] {
            assert_eq!(Language::of(extension).unwrap().definition(line, false), None, "{line}");
        }
        let java = Language::Java;
        for line in ["if (a) {", "} else if (b) {", "return f(x);", "a.b(c, () -> {", "int x = f() + g()"] {
            assert_eq!(java.definition(line, true), None, "{line}");
        }
        for line in ["Point(int x) {", "public int x() { return x; }", "List<String> names()"] {
            assert!(java.definition(line, true).is_some(), "{line}");
        }
    }
}
