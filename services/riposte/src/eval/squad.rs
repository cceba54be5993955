//! What is in a SQuAD file? Paragraphs, written out as documents, and questions with the paragraph that answers each.

use crate::failure::Failure;
use serde::Deserialize;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct File {
    data: Vec<Article>,
}

#[derive(Deserialize)]
struct Article {
    #[serde(default)]
    title: String,
    paragraphs: Vec<Paragraph>,
}

#[derive(Deserialize)]
struct Paragraph {
    context: String,
    qas: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    id: String,
    question: String,
    answers: Vec<Gold>,
}

#[derive(Deserialize)]
struct Gold {
    text: String,
}

/// A question whose answer is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The file's own id.
    pub id: String,
    /// The question.
    pub question: String,
    /// Answers that count as right.
    pub golds: Vec<String>,
    /// File name of the paragraph that holds the answer.
    pub paragraph: String,
}

/// A SQuAD file laid out for indexing.
#[derive(Debug)]
pub struct Squad {
    /// One file per paragraph.
    pub paths: Vec<PathBuf>,
    /// The questions, in file order.
    pub questions: Vec<Asked>,
}

/// Reads `file` and writes each paragraph as a Markdown file under its article's title into `folder`.
///
/// # Errors
/// When the file cannot be read or is not in SQuAD format, or the folder cannot be written.
pub fn lay_out(file: &Path, folder: &Path) -> Result<Squad, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::new(format!("{}: {error}", file.display())).hint("--squad FILE"))?;
    let parsed: File = serde_json::from_str(&text)
        .map_err(|error| Failure::new(format!("{} is not in SQuAD 1.1 format: {error}", file.display())))?;
    let mut squad = Squad { paths: Vec::new(), questions: Vec::new() };
    for article in parsed.data {
        for paragraph in article.paragraphs {
            let name = format!("paragraph-{:04}.md", squad.paths.len());
            let path = folder.join(&name);
            let title = article.title.replace('_', " ");
            std::fs::write(&path, format!("# {title}\n\n{}\n", paragraph.context))?;
            squad.paths.push(path);
            squad.questions.extend(paragraph.qas.into_iter().map(|entry| Asked {
                id: entry.id,
                question: entry.question,
                golds: entry.answers.into_iter().map(|gold| gold.text).collect(),
                paragraph: name.clone(),
            }));
        }
    }
    Ok(squad)
}

/// `limit` of `questions`, spread evenly, so that a small sample still meets every article.
pub fn spread(questions: Vec<Asked>, limit: Option<usize>) -> Vec<Asked> {
    let total = questions.len();
    let limit = limit.unwrap_or(total).min(total);
    let mut chosen = (0..limit).map(|turn| turn * total / limit.max(1)).peekable();
    let kept = questions.into_iter().enumerate();
    kept.filter_map(|(at, asked)| chosen.next_if_eq(&at).map(|_| asked)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"{"version": "1.1", "data": [{"title": "Super_Bowl", "paragraphs": [
        {"context": "The defense gave up 308 points.", "qas": [
            {"id": "q1", "question": "How many?", "answers": [{"answer_start": 20, "text": "308"}]}]},
        {"context": "It was 2016.", "qas": [
            {"id": "q2", "question": "When?", "answers": [{"answer_start": 7, "text": "2016"}]}]}]}]}"#;

    #[test]
    fn each_paragraph_is_a_document_and_each_question_knows_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("two.json");
        std::fs::write(&file, TWO).unwrap();
        let squad = lay_out(&file, folder.path()).unwrap();
        assert_eq!(squad.paths.len(), 2);
        let second = &squad.questions[1];
        assert_eq!((second.id.as_str(), second.golds.as_slice()), ("q2", &["2016".to_string()][..]));
        let text = std::fs::read_to_string(folder.path().join(&second.paragraph)).unwrap();
        assert_eq!(text, "# Super Bowl\n\nIt was 2016.\n");
    }

    #[test]
    fn another_format_is_one_line_of_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("other.json");
        std::fs::write(&file, "{\"rows\": []}").unwrap();
        assert!(lay_out(&file, folder.path()).unwrap_err().to_string().contains("SQuAD"));
    }

    #[test]
    fn a_sample_is_spread_and_never_larger_than_the_file() {
        let ask = |at: usize| Asked {
            id: at.to_string(),
            question: String::new(),
            golds: Vec::new(),
            paragraph: String::new(),
        };
        let ids = |limit| {
            let chosen = spread((0..10).map(ask).collect(), limit);
            chosen.into_iter().map(|asked| asked.id.parse().unwrap()).collect::<Vec<usize>>()
        };
        assert_eq!(ids(Some(5)), [0, 2, 4, 6, 8]);
        assert_eq!(ids(Some(3)), [0, 3, 6]);
        assert_eq!(ids(Some(99)), (0..10).collect::<Vec<_>>());
        assert_eq!(ids(None).len(), 10);
        assert!(ids(Some(0)).is_empty());
    }
}
