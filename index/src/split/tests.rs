//! Are passages of the right length, whole, and in their place?

use super::*;
use crate::EmbedError;
use crate::ingest::{Block, BlockKind, Element, Format};
use budgets::Limits;
use proptest::prelude::*;

/// A token is a run of letters and digits or any other sign, four characters of a run at most, as word pieces are.
struct Pieces;

impl Embed for Pieces {
    fn id(&self) -> &str {
        "pieces"
    }
    fn dimensions(&self) -> usize {
        1
    }
    fn count_tokens(&self, text: &str) -> usize {
        let runs =
            text.split_whitespace().flat_map(|word| word.split_inclusive(|c: char| !c.is_alphanumeric()));
        2 + runs.map(|run| run.chars().count().div_ceil(4)).sum::<usize>()
    }
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        Ok(vec![vec![1.0]; texts.len()])
    }
}

const NAMED: Named<'static> = Named { document_id: "guide/my_page.md", source: "docs/guide/my_page.md" };

fn passages(name: &str, source: &str) -> Vec<Passage> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, source).unwrap();
    let format = Format::of(&path).unwrap();
    let document = crate::ingest::read(format, std::fs::read(path).unwrap(), &Limits::default()).unwrap();
    split(document, &NAMED, &Counter::new(&Pieces))
}

fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_string).collect()
}

/// Are all of `wanted` in `text`, in that order?
fn in_order(wanted: &[String], text: &[String]) -> bool {
    let mut text = text.iter();
    wanted.iter().all(|word| text.any(|found| found == word))
}

fn shown(passages: &[Passage]) -> Vec<String> {
    let one = |passage: &Passage| {
        let path =
            std::iter::once(&passage.title).chain(&passage.headings).cloned().collect::<Vec<_>>().join(" > ");
        format!("{}-{} {path}: {}", passage.span.start_line, passage.span.end_line, passage.text)
    };
    passages.iter().map(one).collect()
}

#[test]
fn markdown_splits_along_headings_and_merges_small_neighbours() {
    let source = "# Blocks\n\nIntro.\n\n## Size\n\nSixteen slots.\n\n- one\n- two\n\n### Why\n\nLess *waste*.\n\n## Empty\n";
    assert_eq!(
        shown(&passages("page.md", source)),
        [
            "3-3 Blocks: Intro.",
            "7-10 Blocks > Size: Sixteen slots.\n\n- one\n- two",
            "14-14 Blocks > Size > Why: Less waste.",
            "16-16 Blocks: Empty",
        ]
    );
}

#[test]
fn rst_objects_lend_their_names_to_what_continues_them() {
    let long = "Word after word after word. ".repeat(40);
    let source =
        format!("======\nModule\n======\n\nUse\n---\n\n.. function:: f(x)\n\n   Short.\n\n   {long}\n");
    let found = passages("page.rst", &source);
    assert_eq!(found[0].headings, ["Use"]);
    assert!(found[0].text.starts_with("f(x)\n\nShort."));
    assert_eq!(found.last().unwrap().headings, ["Use", "f"]);
    assert_eq!(found[0].title, "Module");
}

#[test]
fn parts_of_a_long_table_have_their_own_lines() {
    let rows: String = (0..100).map(|row| format!("| row {row} | some more words here |\n")).collect();
    let found = passages("page.md", &format!("# T\n\n| a | b |\n|---|---|\n{rows}\nAfter.\n"));
    assert!(found.len() > 2);
    for pair in found.windows(2) {
        assert!(pair[0].span.end_line < pair[1].span.start_line, "{pair:?}");
    }
}

#[test]
fn a_document_without_headings_is_called_by_its_file_name() {
    let found = passages("page.txt", "Alone.\n");
    assert_eq!(shown(&found), ["1-1 my page: Alone."]);
    assert_eq!(found[0].document_id, "guide/my_page.md");
}

#[test]
fn ids_stay_with_the_text_and_tell_repeats_apart() {
    let before = passages("page.md", "# T\n\n## A\n\nSame.\n\n## B\n\nSame.\n");
    let after = passages("page.md", "# T\n\nNew.\n\n## A\n\nSame.\n\n## B\n\nSame.\n");
    assert_ne!(before[0].id, before[1].id);
    assert_eq!([before[0].id, before[1].id], [after[1].id, after[2].id]);
    assert!(after.iter().all(|passage| passage.id.0 < 1 << 53));
}

#[test]
fn no_text_is_too_long_to_be_cut() {
    for (name, source) in [
        ("word.txt", "x".repeat(200_000)),
        ("signs.txt", "é".repeat(20_001)),
        ("sentence.txt", "word ".repeat(20_000)),
        ("sentences.txt", "One more sentence here. ".repeat(3_000)),
        ("code.md", format!("```\n{}```\n", "let value = compute(1, 2);\n".repeat(800))),
        ("heading.md", format!("# {}\n\ntext {}", "long ".repeat(500), "word ".repeat(900))),
    ] {
        let found = passages(name, &source);
        assert!(found.len() > 2, "{name}");
        check_bounds(&found);
        let all: usize =
            found.iter().map(|passage| passage.text.chars().filter(|c| c.is_alphanumeric()).count()).sum();
        let heading = source.lines().next().filter(|line| line.starts_with('#')).unwrap_or_default();
        let in_text = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).count();
        assert_eq!(all, in_text(&source) - in_text(heading), "{name}");
    }
}

fn check_bounds(found: &[Passage]) {
    for passage in found {
        let tokens = Pieces.count_tokens(&embedded_text(&passage.title, &passage.headings, &passage.text));
        assert!(tokens <= PASSAGE_TOKENS_MAX + 2, "{tokens} tokens in {passage:?}");
    }
}

/// Markdown of random structure; every paragraph has words of its own, so that losing one shows.
fn markdown() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        (1usize..4).prop_map(|level| format!("{} heading N\n\n", "#".repeat(level))),
        (1usize..120).prop_map(|count| format!("{}\n\n", "*some* words N ".repeat(count).trim_end())),
        (1usize..60)
            .prop_map(|count| format!("{}\n\n", "A sentence N with [a link](u). ".repeat(count).trim_end())),
        (1usize..5).prop_map(|count| format!("{}\n", "- item N `code`\n".repeat(count))),
        (1usize..90).prop_map(|count| format!("```\n{}```\n\n", "line N;\n  more\n\n".repeat(count))),
        Just("| a N | b |\n|---|---|\n| c | d |\n\n".to_string()),
        Just("> quoted N\n\n".to_string()),
    ];
    prop::collection::vec(part, 0..12).prop_map(|parts| {
        let number = |(at, part): (usize, &String)| part.replace('N', &format!("n{at}"));
        parts.iter().enumerate().map(number).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn passages_hold_every_word_once_and_their_spans_hold_them(source in markdown()) {
        let found = passages("page.md", &source);
        check_bounds(&found);
        let source_words = words(&source);
        let mut held: Vec<String> = Vec::new();
        for passage in &found {
            let span = usize::try_from(passage.span.start_byte).unwrap()..usize::try_from(passage.span.end_byte).unwrap();
            let text = words(&passage.text);
            prop_assert!(in_order(&text, &words(&source[span.clone()])), "{passage:?}");
            let line = source[..span.start].matches('\n').count() + 1;
            prop_assert_eq!(passage.span.start_line as usize, line);
            held.extend(text);
        }
        // Without headings, which stand in the paths, and link targets, everything is in some passage, in order.
        let lost = |word: &String| source_words.iter().filter(|one| *one == word).count()
            != held.iter().filter(|one| *one == word).count();
        let heading_words: Vec<String> = source.lines().filter(|line| line.starts_with('#')).flat_map(words).collect();
        let missing: Vec<&String> =
            source_words.iter().filter(|word| lost(word) && !heading_words.contains(word) && *word != "u").collect();
        prop_assert!(missing.is_empty(), "{missing:?}");
        prop_assert!(in_order(&held, &source_words));
    }

    #[test]
    fn plain_text_spans_are_exact(source in "([a-zé.]{1,12}[ \n]{1,3}){0,400}") {
        let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let found = passages("page.txt", &source);
        check_bounds(&found);
        let mut all = Vec::new();
        for passage in &found {
            let span = usize::try_from(passage.span.start_byte).unwrap()..usize::try_from(passage.span.end_byte).unwrap();
            prop_assert_eq!(squeeze(&source[span]), squeeze(&passage.text));
            all.push(squeeze(&passage.text));
        }
        prop_assert_eq!(all.join(" "), squeeze(&source));
    }

    #[test]
    fn no_input_makes_a_reader_fail(source in "[ -~\n\t`*_:.é]{0,300}", name in prop::sample::select(vec!["a.md", "a.rst", "a.html", "a.txt"])) {
        check_bounds(&passages(name, &source));
    }
}

#[test]
fn blocks_of_one_page_say_so() {
    let block = Block { page: Some(3), ..Block::new(BlockKind::Prose, "Text.".into(), 0..9) };
    let document = Document { elements: vec![Element::Block(block)], ..Document::default() };
    let found = split(document, &NAMED, &Counter::new(&Pieces));
    assert_eq!(
        found[0].span,
        SourceSpan { start_byte: 0, end_byte: 9, start_line: 0, end_line: 0, page: Some(3) }
    );
}
