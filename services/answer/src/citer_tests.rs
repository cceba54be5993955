//! Do the checked text, its reports and its stream agree, whatever the model writes?

use super::*;
use proptest::prelude::*;

const PASSAGES: [&str; 3] = [
    "The Eiffel Tower was completed in 1889 in Paris and is 330 metres tall.",
    "The KV cache grows with each token; eight GPUs hold 1,024 blocks.",
    "Bread is baked from flour, water, yeast and salt.",
];

fn citer() -> Citer {
    Citer::new(Bearing::new(PASSAGES, "Is bread baked from flour and yeast?"))
}

fn whole(text: &str) -> Checked {
    let mut citer = citer();
    let shown = citer.push(text);
    let (rest, checked) = citer.finish();
    assert_eq!(shown + &rest, checked.text);
    checked
}

fn check(written: &str, want: &str, removed: usize, added: usize) {
    let checked = whole(written);
    assert_eq!(checked.text, want, "{written}");
    assert_eq!((checked.removed, checked.added), (removed, added), "{written}");
}

#[test]
fn what_does_not_exist_is_removed_with_its_space() {
    check(
        "The tower in Paris was completed in 1889 [1].",
        "The tower in Paris was completed in 1889 [1].",
        0,
        0,
    );
    check(
        "The tower in Paris was completed in 1889 [1][7].",
        "The tower in Paris was completed in 1889 [1].",
        1,
        0,
    );
    check("Good morning [7], my dear [8] friend [9].", "Good morning, my dear friend.", 3, 0);
    check("[0] Good morning to you.", "Good morning to you.", 1, 0);
    check("Good morning. [9] And bye.", "Good morning. And bye.", 1, 0);
    check("Good morning to 1889[9]", "Good morning to 1889", 1, 0);
}

#[test]
fn forms_are_made_one() {
    check(
        "The tower in Paris and the KV cache grow [1, 2].",
        "The tower in Paris and the KV cache grow [1][2].",
        0,
        0,
    );
    check(
        "The tower in Paris, KV cache, bread [1-3].",
        "The tower in Paris, KV cache, bread [1][2][3].",
        0,
        0,
    );
    check(
        "The tower in Paris, KV cache, bread [1-5].",
        "The tower in Paris, KV cache, bread [1][2][3].",
        2,
        0,
    );
    check("The KV cache grows with tokens.[2]", "The KV cache grows with tokens.[2]", 0, 0);
}

#[test]
fn a_label_at_the_start_becomes_a_citation_at_the_end() {
    check("[2] The KV cache grows with each token.", "The KV cache grows with each token [2].", 0, 0);
    check("[2] [1] The KV cache grows with each token [2].", "The KV cache grows with each token [2].", 1, 0);
    check("[1, 2] Paris has a KV cache\nwell", "Paris has a KV cache [1][2]\nwell", 0, 0);
    check("Salt is in bread.\n[3]", "Salt is in bread [3].\n[3]", 0, 1);
}

#[test]
fn what_no_source_bears_is_removed_and_what_one_bears_is_cited() {
    check("The KV cache grows with each token.", "The KV cache grows with each token [2].", 0, 1);
    check("The KV cache grows with each token [1].", "The KV cache grows with each token [2].", 1, 1);
    check("The KV cache grows with each token. [1]", "The KV cache grows with each token [2].", 1, 1);
    check("Green cheese orbits quietly [1].", "Green cheese orbits quietly.", 1, 0);
    check("The tower was completed in 1899 [1].", "The tower was completed in 1899.", 1, 0);
    check("Yes [3].", "Yes [3].", 0, 0);
    check("Yes.", "Yes.", 0, 0);
    check("He said \"the KV cache grows.\" Ok", "He said \"the KV cache grows.\" [2] Ok", 0, 1);
    check("- Bread is baked from flour\n- Salt", "- Bread is baked from flour [3]\n- Salt [3]", 0, 2);
}

#[test]
fn headings_tables_questions_and_code_get_none() {
    for text in [
        "# The KV cache grows with each token",
        "| KV cache | grows | token |",
        "The KV cache grows with each token:",
        "Does the KV cache grow with each token?",
        "```\nthe KV cache grows with each token[7]\n```",
        "`the KV cache[7]` x[12]",
    ] {
        check(text, text, 0, 0);
    }
}

#[test]
fn a_mark_behind_a_word_is_a_citation_only_if_it_can_be_one() {
    check("The cache grows with each token[2].", "The cache grows with each token[2].", 0, 0);
    assert_eq!(whole("The KV cache grows with each token[2].").sentences[0].citations[0].number, 2);
    // Passage 1 does not bear it, so this is left as code, and the sentence gets its own citation.
    check("The KV cache grows by token[1].", "The KV cache grows by token[1] [2].", 0, 1);
}

#[test]
fn a_refusal_carries_no_citation() {
    let checked = whole("The documents do not answer this question [3].");
    assert_eq!(
        (checked.text.as_str(), checked.refused),
        ("The documents do not answer this question.", true)
    );
    assert!(checked.sentences[0].citations.is_empty());
    assert!(!whole("Bread is baked from flour. The documents do not answer this question.").refused);
    assert!(!whole("").refused);
}

#[test]
fn sentences_are_reported_where_they_stand() {
    let checked = whole(" The KV cache grows with each token.\n\nBread is baked from flour [3]. Hm.");
    let shown: Vec<(&str, bool, Vec<usize>)> = checked
        .sentences
        .iter()
        .map(|sentence| {
            assert_eq!(&checked.text[sentence.start..sentence.end], sentence.text);
            let numbers = sentence.citations.iter().map(|citation| citation.number).collect();
            (sentence.text.as_str(), sentence.attributed, numbers)
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("The KV cache grows with each token [2].", true, vec![2]),
            ("Bread is baked from flour [3].", false, vec![3]),
            ("Hm.", false, vec![]),
        ]
    );
    assert!(checked.sentences[1].citations[0].support > 0.99);
}

#[test]
fn text_is_shown_as_soon_as_it_is_certain() {
    let mut citer = citer();
    let shown: Vec<String> =
        ["The KV", " cache grows", ".", " Bread", " is baked [", "3", "] well", ". ", "X"]
            .map(|text| citer.push(text))
            .into();
    // The full stop waits for a possible citation, and what follows "[3]" for the end of its sentence.
    assert_eq!(shown, ["The KV", " cache grows", "", " [2]. Bread", " is baked", "", "", "", " [3] well. X"]);
    assert_eq!(citer.finish().0, "");
}

/// Pieces of what a model may write, good and bad.
fn writing() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "The KV cache grows",
        "with each token",
        "Bread is baked",
        "from flour",
        " ",
        "  ",
        ".",
        ". ",
        "? ",
        "\n",
        "\n\n",
        "[1]",
        "[2]",
        " [3]",
        "[1, 2]",
        "[2-3]",
        "[9]",
        "[0]",
        "[",
        "]",
        "a[0]",
        "x[2]",
        "`",
        "```",
        "\n```\n",
        "- ",
        "1. ",
        "é",
        "。",
        "…",
        "\"",
        "**",
        "e.g. ",
        "The documents do not answer this question.",
        "#",
        ":",
        "(",
        ")",
        ",",
        "1889",
        "[1](x)",
    ]);
    prop::collection::vec(word, 0..25).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_chunking_gives_the_same_answer_and_the_stream_is_the_text(text in writing(), sizes in prop::collection::vec(1usize..6, 1..40)) {
        let mut citer = citer();
        let mut shown = String::new();
        let mut rest = text.as_str();
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let cut = rest.char_indices().nth(*size).map_or(rest.len(), |(at, _)| at);
            shown.push_str(&citer.push(&rest[..cut]));
            rest = &rest[cut..];
        }
        let (last, checked) = citer.finish();
        shown.push_str(&last);
        prop_assert_eq!(&shown, &checked.text);
        prop_assert_eq!(&checked, &whole(&text));
    }

    #[test]
    fn reports_fit_the_text(text in writing()) {
        let checked = whole(&text);
        let mut end = 0;
        for sentence in &checked.sentences {
            prop_assert!(sentence.start >= end && sentence.end <= checked.text.len());
            prop_assert_eq!(&checked.text[sentence.start..sentence.end], &sentence.text);
            end = sentence.end;
            for citation in &sentence.citations {
                prop_assert!((1..=3).contains(&citation.number) && citation.support >= SUPPORT_MIN);
                let mark = format!("[{}]", citation.number);
                prop_assert!(sentence.text.contains(&mark));
            }
        }
    }

    #[test]
    fn an_answer_without_brackets_only_gains_citations(text in "[A-Za-z ,.!?\n]{0,80}") {
        let checked = whole(&text);
        prop_assert_eq!(checked.removed, 0);
        prop_assert_eq!(without_added(&checked.text), without_added(&text));
    }
}

fn without_added(text: &str) -> String {
    [" [1]", " [2]", " [3]"].iter().fold(text.trim().to_string(), |text, mark| text.replace(mark, ""))
}
