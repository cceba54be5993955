//! Is reStructuredText read as its structure says?

use super::*;

fn check(source: &str, expected: &[&str]) {
    assert_eq!(read(source).shown(), expected, "{source}");
}

#[test]
fn titles_take_their_level_from_the_order_of_styles() {
    check(
        "=====\nTitle\n=====\n\nA\n-\n\nPart\n----\n\nSub ``x``\n~~~~~~~~~\n\nNext\n----\n\ntext\n",
        &["h1 Title", "Prose A -", "h2 Part", "h3 Sub `x`", "h2 Next", "Prose text"],
    );
}

#[test]
fn paragraphs_literals_and_lists() {
    check(
        "One *line*\nand :func:`more`::\n\n    code(a)\n      b\n\nAfter.\n",
        &["Prose One line and more:", "Lines code(a)\n  b", "Prose After."],
    );
    check(
        "* one\n  goes on\n\n  second par\n* two\n\n  1. deep\n",
        &["Item - one goes on", "Prose second par", "Item - two", "Item 1. deep"],
    );
    check(
        "term\n   Its meaning.\n\n   More.\n",
        &["Prose term", "Prose [term] Its meaning.", "Prose [term] More."],
    );
    check(".. list-table::\n\n   * - :f:`a\n       <b>`\n     - second\n", &["Item - - a", "Item - second"]);
    check(">>> f(1)\n2\n\nText\n", &["Lines >>> f(1)\n2", "Prose Text"]);
    check("| a line\n| block\n", &["Prose a line\nblock"]);
}

#[test]
fn directives_keep_what_readers_see() {
    check(".. note::\n   Mind *this*.\n\n   And that.\n", &["Prose Note: Mind this.", "Prose And that."]);
    check(".. versionadded:: 3.4\n", &["Prose Added in version 3.4"]);
    check(".. versionchanged:: 3.4 Now\n   faster.\n", &["Prose Changed in version 3.4: Now faster."]);
    check(".. code-block:: python\n   :linenos:\n\n   a = 1\n\nx\n", &["Lines a = 1", "Prose x"]);
    check(
        ".. _label:\n\n.. a comment\n   of two lines\n\n.. toctree::\n   a\n   b\n\ntext\n",
        &["Prose text"],
    );
    check(
        ".. class:: C(x)\n\n   A class.\n\n   .. method:: m(a, \\\n               b)\n      :async:\n\n      Does.\n",
        &[
            "Prose class C(x)",
            "Prose [class C] A class.",
            "Prose [class C] m(a,  b)",
            "Prose [class C/m] Does.",
        ],
    );
    check(".. module:: os\n   :synopsis: Systems.\n\nText\n", &["Prose Module os: Systems.", "Prose Text"]);
    check(".. [1] A footnote\n   here.\n", &["Prose [1] A footnote here."]);
}

#[test]
fn tables_are_rows_of_cells() {
    check(
        "====  =====\nA     B\n====  =====\n1     ``x``\n\n2     y z\n====  =====\n\nafter\n",
        &["Lines A | B\n1 | `x`\n2 | y z", "Prose after"],
    );
    check(
        "====  ====\nA     B\n====  ====\nlong  *two\n      lines*\n====  ====\n",
        &["Lines A | B\nlong | two lines"],
    );
    check(
        "+-----+---+\n| :f:`a | b |\n|  <c>` |   |\n+-----+---+\n| d   | e |\n+-----+---+\n",
        &["Lines a | b\nd | e"],
    );
    check(
        "====  ====\nA     B\n====  ====\nlong  *two\n      lines*\n====  ====\n",
        &["Lines A | B\nlong | two lines"],
    );
    check(
        "+-----+---+\n| :f:`a | b |\n|  <c>` |   |\n+-----+---+\n| d   | e |\n+-----+---+\n",
        &["Lines a | b\nd | e"],
    );
    check("+---+---+\n| a | b |\n+===+===+\n| 1 | 2 |\n+---+---+\n", &["Lines a | b\n1 | 2"]);
}

#[test]
fn spans_hold_what_was_read() {
    let source = ":tocdepth: 2\n\nTitle\n=====\n\n.. note::\n\n   Some words\n   here.\n\n* item\n";
    let document = read(source);
    let spans: Vec<&str> = document
        .elements
        .iter()
        .map(|element| match element {
            Element::Heading { span, .. } => &source[span.clone()],
            Element::Block(block) => &source[block.span.clone()],
        })
        .collect();
    assert_eq!(spans, ["Title", "Some words\n   here.", "item"]);
}

#[test]
fn nesting_without_end_is_read_as_text() {
    let source: String = (0..400).map(|depth| format!("{}* x\n\n", "  ".repeat(depth))).collect();
    assert!(!read(&source).elements.is_empty());
}
