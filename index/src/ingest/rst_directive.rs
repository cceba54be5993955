//! Which directives of reStructuredText and Sphinx say something to a reader, and what?

/// What becomes of a directive.
pub(super) enum Role {
    /// Left out: it steers the build tool or fetches something from elsewhere.
    Left,
    /// Its content is shown as it stands.
    Literal,
    /// Its content follows a label.
    Label(&'static str),
    /// Its content follows a label and a version.
    Version(&'static str),
    /// Its argument is a title or caption, its content is text.
    Container,
    /// Its argument is a condition for the build tool, its content is text.
    Condition,
    /// Names a module and says in a line what it is for.
    Module,
    /// Documents the object that its argument names, after a word that says what the object is.
    Object(&'static str),
}

impl Role {
    /// The role of the directive called `name`; one that is not known documents an object.
    pub(super) fn of(name: &str) -> Role {
        match name {
            "toctree" | "contents" | "index" | "highlight" | "include" | "literalinclude" | "image"
            | "raw" | "sectionauthor" | "moduleauthor" | "codeauthor" | "tabularcolumns"
            | "currentmodule" | "program" | "role" | "default-role" | "testsetup" | "testcleanup"
            | "meta" | "graphviz" | "sectnum" => Role::Left,
            "code-block" | "code" | "sourcecode" | "doctest" | "testcode" | "testoutput"
            | "productionlist" | "parsed-literal" | "math" | "csv-table" => Role::Literal,
            "note" => Role::Label("Note"),
            "warning" => Role::Label("Warning"),
            "seealso" => Role::Label("See also"),
            "tip" | "hint" => Role::Label("Tip"),
            "important" | "attention" => Role::Label("Important"),
            "caution" | "danger" | "error" => Role::Label("Caution"),
            "impl-detail" => Role::Label("Implementation detail"),
            "availability" => Role::Label("Availability"),
            "audit-event" => Role::Label("Raises an auditing event"),
            "versionadded" => Role::Version("Added in version"),
            "versionchanged" => Role::Version("Changed in version"),
            "deprecated" | "deprecated-removed" => Role::Version("Deprecated since version"),
            "admonition" | "topic" | "sidebar" | "rubric" | "table" | "list-table" | "figure"
            | "epigraph" | "glossary" | "container" | "compound" | "tab" | "dropdown" | "centered" => {
                Role::Container
            }
            "only" | "ifconfig" | "cssclass" | "rst-class" | "class-list" | "hlist" | "tabs" => {
                Role::Condition
            }
            "module" | "py:module" | "automodule" => Role::Module,
            "class" | "py:class" => Role::Object("class "),
            "exception" | "py:exception" => Role::Object("exception "),
            _ => Role::Object(""),
        }
    }
}
