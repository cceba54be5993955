//! What is searched for, and does anything that was found bear on the question?

use crate::AnswerSettings;
use crate::terms::Terms;
use engine::{ChatMessage, Role};
use index::{Coverage, Hit, SearchResult};
use unicode_segmentation::UnicodeSegmentation;

/// Words that stand for something said before. "That" and "there" are left out: they mostly join clauses.
const LEANING_WORDS: &[&str] = &[
    "former", "he", "her", "him", "his", "it", "its", "latter", "one", "ones", "she", "their", "them",
    "these", "they", "this", "those",
];
/// Openings that carry on from what was said before.
const LEANING_OPENINGS: &[&str] = &["and", "but", "so", "also", "then", "what about", "how about", "why not"];
/// A question with fewer content words than this says too little to be searched alone.
const CONTENT_WORDS_MIN: usize = 2;
/// A question with more content words than this stands by itself, whatever pronouns it has.
const CONTENT_WORDS_ENOUGH: usize = 6;

/// The text to search for: the question, after the person's previous one if it leans on that.
///
/// It leans when it has fewer than two content words, or at most six and a word that stands for something said before
/// or an opening such as "and" or "what about". No model is asked, so a topic that only an answer named is not found.
pub fn search_text(question: &str, conversation: &[ChatMessage], chars_max: usize) -> String {
    let previous = conversation.iter().rev().find(|turn| turn.role == Role::User);
    let Some(previous) = previous.filter(|_| leans(question)) else {
        return question.to_string();
    };
    let room = chars_max.saturating_sub(question.chars().count() + 1);
    let earlier: String = previous.content.chars().take(room).collect();
    if earlier.trim().is_empty() { question.to_string() } else { format!("{earlier}\n{question}") }
}

fn leans(question: &str) -> bool {
    let content = Terms::of(question).len();
    let words: Vec<String> = question.unicode_words().map(str::to_lowercase).collect();
    let opening = LEANING_OPENINGS.iter().any(|opening| {
        let opening: Vec<&str> = opening.split(' ').collect();
        words.len() > opening.len() && words.iter().zip(&opening).all(|(word, wanted)| word == wanted)
    });
    let pronoun = words.iter().any(|word| LEANING_WORDS.contains(&word.as_str()));
    content < CONTENT_WORDS_MIN || (content <= CONTENT_WORDS_ENOUGH && (opening || pronoun))
}

/// Does any hit bear on what was searched for? If not, the model is not asked at all.
///
/// A hit does when its cosine reaches `cosine_min`, or when the lexical arm found it and it holds `question_share_min`
/// of the content words: BM25 alone is no sign, since one common word in common makes a hit. When the vector arm did
/// not finish, any lexical hit counts, because the better judge is missing.
pub fn bears(result: &SearchResult, searched: &str, settings: &AnswerSettings) -> bool {
    let asked = Terms::of(searched);
    result.hits.iter().any(|hit| {
        let close = hit.vector.is_some_and(|vector| vector.score >= settings.cosine_min);
        let worded = hit.lexical.is_some()
            && (result.coverage.vector < 1.0 || share_held(&asked, hit) >= settings.question_share_min);
        close || worded
    })
}

fn share_held(asked: &Terms, hit: &Hit) -> f32 {
    if asked.is_empty() {
        return 0.0;
    }
    let passage = &hit.passage;
    let held = Terms::of(&format!("{}\n{}\n{}", passage.title, passage.headings.join("\n"), passage.text));
    let there = asked.words.iter().chain(&asked.numbers).filter(|term| held.has(term)).count();
    there as f32 / asked.len() as f32
}

/// What the search left out, in words for the caller.
pub fn left_out(coverage: Coverage) -> Option<&'static str> {
    match (coverage.lexical > 0.0, coverage.vector > 0.0) {
        _ if coverage == Coverage::WHOLE => None,
        (true, true) => Some("search cut short"),
        (true, false) => Some("lexical search only"),
        (false, true) => Some("vector search only"),
        (false, false) => Some("no search finished"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use budgets::Timeline;
    use index::{ArmScore, Passage, PassageId, SourceSpan};
    use std::sync::Arc;

    fn check_search(previous: &str, question: &str, want: &str) {
        let conversation = [
            ChatMessage { role: Role::User, content: previous.to_string() },
            ChatMessage { role: Role::Assistant, content: "An answer.".to_string() },
        ];
        assert_eq!(search_text(question, &conversation, 60), want);
    }

    #[test]
    fn a_question_that_leans_is_searched_with_the_one_before() {
        let before = "What is the KV cache?";
        check_search(before, "Why does it grow?", "What is the KV cache?\nWhy does it grow?");
        check_search(before, "Why?", "What is the KV cache?\nWhy?");
        check_search(before, "And on eight GPUs?", "What is the KV cache?\nAnd on eight GPUs?");
        check_search(before, "What about paged blocks?", "What is the KV cache?\nWhat about paged blocks?");
        check_search(before, "When does chunked prefill pay?", "When does chunked prefill pay?");
        let long = "How can a scheduler keep its running decode streams smooth under long prompts?";
        check_search(before, long, long);
        check_search(
            &"x".repeat(100),
            "Why does it grow?",
            &format!("{}\nWhy does it grow?", "x".repeat(42)),
        );
        check_search("", "Why does it grow?", "Why does it grow?");
        assert_eq!(search_text("Why does it grow?", &[], 60), "Why does it grow?");
    }

    fn hit(text: &str, lexical: bool, cosine: Option<f32>) -> Hit {
        let passage = Passage {
            id: PassageId(1),
            document_id: "a".into(),
            source: "a".into(),
            title: "Title".into(),
            headings: vec![],
            text: text.into(),
            span: SourceSpan { start_byte: 0, end_byte: 1, start_line: 1, end_line: 1, page: None },
        };
        Hit {
            passage: Arc::new(passage),
            score: 0.1,
            lexical: lexical.then_some(ArmScore { rank: 1, score: 3.0 }),
            vector: cosine.map(|score| ArmScore { rank: 1, score }),
        }
    }

    fn check_bears(hits: Vec<Hit>, vector: f32, want: bool) {
        let coverage = Coverage { lexical: 1.0, vector };
        let result = SearchResult { hits, timeline: Timeline::default(), coverage, generation: 1 };
        assert_eq!(
            bears(&result, "How is sourdough bread baked?", &AnswerSettings::default()),
            want,
            "{result:?}"
        );
    }

    #[test]
    fn close_or_worded_alike_bears_on_the_question() {
        check_bears(vec![], 1.0, false);
        check_bears(vec![hit("Unrelated.", false, Some(0.29))], 1.0, false);
        check_bears(vec![hit("Unrelated.", false, Some(0.29)), hit("Loaves.", false, Some(0.3))], 1.0, true);
        check_bears(vec![hit("A breadboard and bread.", true, Some(0.1))], 1.0, false);
        check_bears(vec![hit("Baking of bread.", true, Some(0.1))], 1.0, true);
        check_bears(vec![hit("Baking of bread.", false, Some(0.1))], 1.0, false);
        check_bears(vec![hit("Bread.", true, None)], 0.0, true);
    }
}
