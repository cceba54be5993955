//! What is in a judged set? Documents, queries, and which documents are relevant to which query: the three files of the
//! BEIR layout, or a SQuAD file, whose paragraphs are the documents.

use super::ranking::Judged;
use super::squad;
use crate::failure::Failure;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// A query with its relevant documents.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The set's own id.
    pub id: String,
    /// The query.
    pub text: String,
    /// Relevant documents by name.
    pub judged: Judged,
}

/// A judged set, its documents laid out as files for indexing.
#[derive(Debug)]
pub struct JudgedSet {
    /// One file per document.
    pub paths: Vec<PathBuf>,
    /// Queries with at least one relevant document, in file order.
    pub queries: Vec<Asked>,
}

/// The half of a set in which a query lies: what is tuned is tuned on one and reported on the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// To choose settings by.
    Tuning,
    /// Held out.
    Test,
}

/// By the first bit of the SHA-256 of the query's id: fixed, and blind to what is in the query.
pub fn half(id: &str) -> Half {
    if Sha256::digest(id.as_bytes())[0] & 0x80 == 0 { Half::Tuning } else { Half::Test }
}

#[derive(Deserialize)]
struct Record {
    #[serde(rename = "_id")]
    id: String,
    #[serde(default)]
    title: String,
    text: String,
}

/// Reads a set in BEIR layout and writes each document as a Markdown file into `folder`.
///
/// # Errors
/// When a file cannot be read, or a line is not what the layout says.
pub fn beir(corpus: &Path, queries: &Path, qrels: &Path, folder: &Path) -> Result<JudgedSet, Failure> {
    let mut paths = Vec::new();
    let mut names = BTreeMap::new();
    for record in records(corpus)? {
        let name = format!("{:07}.md", paths.len());
        let path = folder.join(&name);
        let title = record.title.split_whitespace().collect::<Vec<_>>().join(" ");
        let heading = if title.is_empty() { String::new() } else { format!("# {}\n\n", escape(&title)) };
        std::fs::write(&path, format!("{heading}{}\n", escape(&record.text)))?;
        names.insert(record.id, name);
        paths.push(path);
    }
    let mut judged: BTreeMap<String, Judged> = BTreeMap::new();
    for (at, line) in lines(qrels)?.lines().enumerate().skip(1) {
        let line = line.map_err(|error| broken(qrels, at, &error))?;
        let [query, document, grade] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(broken(qrels, at, &"not query, document and grade with tabs between"));
        };
        let grade: u32 = grade.trim().parse().map_err(|error| broken(qrels, at, &error))?;
        // A judgement of a document that is not in the corpus stays: nobody can find it, and that shows.
        let name = names.get(document).cloned().unwrap_or_else(|| document.to_string());
        judged.entry(query.to_string()).or_default().insert(name, grade);
    }
    let asked = records(queries)?.into_iter().filter_map(|record| {
        let judged = judged.remove(&record.id)?;
        Some(Asked { id: record.id, text: record.text, judged })
    });
    Ok(JudgedSet { paths, queries: asked.collect() })
}

/// A SQuAD file: the paragraph that holds the answer is the one relevant document.
///
/// # Errors
/// As [`squad::lay_out`].
pub fn squad(file: &Path, folder: &Path) -> Result<JudgedSet, Failure> {
    let squad = squad::lay_out(file, folder)?;
    let queries = squad.questions.into_iter().map(|asked| Asked {
        id: asked.id,
        text: asked.question,
        judged: [(asked.paragraph, 1)].into(),
    });
    Ok(JudgedSet { paths: squad.paths, queries: queries.collect() })
}

/// Markdown that reads as the plain text: signs that open a construct at the start of a line, or inside it, are escaped.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for sign in text.chars() {
        if matches!(sign, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '|' | '~' | '$' | '&') {
            escaped.push('\\');
        }
        escaped.push(if sign == '\n' { ' ' } else { sign });
    }
    escaped
}

fn records(path: &Path) -> Result<Vec<Record>, Failure> {
    let mut records = Vec::new();
    for (at, line) in lines(path)?.lines().enumerate() {
        let line = line.map_err(|error| broken(path, at, &error))?;
        if !line.trim().is_empty() {
            records.push(serde_json::from_str(&line).map_err(|error| broken(path, at, &error))?);
        }
    }
    Ok(records)
}

/// The file, unpacked when its name says that it is packed.
fn lines(path: &Path) -> Result<BufReader<Box<dyn Read>>, Failure> {
    let file = File::open(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    let packed = path.extension().is_some_and(|extension| extension == "gz");
    let read: Box<dyn Read> =
        if packed { Box::new(flate2::read::MultiGzDecoder::new(file)) } else { Box::new(file) };
    Ok(BufReader::new(read))
}

fn broken(path: &Path, at: usize, problem: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("{}, line {}: {problem}", path.display(), at + 1))
        .hint("the layout of BEIR: JSON lines with _id, title and text; judgements as query, document, grade")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn the_three_files_become_documents_and_judged_queries() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut corpus = flate2::write::GzEncoder::new(
            File::create(at("corpus.jsonl.gz")).unwrap(),
            flate2::Compression::fast(),
        );
        writeln!(corpus, r#"{{"_id": "d1", "title": "A title", "text": "1 of *two*"}}"#).unwrap();
        writeln!(corpus, r#"{{"_id": "d2", "text": "Other."}}"#).unwrap();
        corpus.finish().unwrap();
        std::fs::write(
            at("queries.jsonl"),
            "{\"_id\": \"q1\", \"text\": \"one?\"}\n{\"_id\": \"q2\", \"text\": \"none\"}\n",
        )
        .unwrap();
        std::fs::write(at("qrels.tsv"), "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\tgone\t1\n").unwrap();
        let out = tempfile::tempdir().unwrap();
        let set = beir(&at("corpus.jsonl.gz"), &at("queries.jsonl"), &at("qrels.tsv"), out.path()).unwrap();
        assert_eq!((set.paths.len(), set.queries.len()), (2, 1));
        assert_eq!(std::fs::read_to_string(&set.paths[0]).unwrap(), "# A title\n\n1 of \\*two\\*\n");
        let names: Vec<&String> = set.queries[0].judged.keys().collect();
        assert_eq!(names, ["0000000.md", "gone"]);

        std::fs::write(at("qrels.tsv"), "query-id\tcorpus-id\tscore\nq1 d1 1\n").unwrap();
        let error = beir(&at("corpus.jsonl.gz"), &at("queries.jsonl"), &at("qrels.tsv"), out.path());
        assert!(error.unwrap_err().to_string().contains("qrels.tsv, line 2"));
    }

    #[test]
    fn halves_are_fixed_and_about_even() {
        let test = (0..1000).filter(|id: &i32| half(&id.to_string()) == Half::Test).count();
        assert!((450..550).contains(&test), "{test}");
        // SHA-256 of "1" begins with 6b, of "3" with 4e, of "2" with d4.
        assert_eq!(["1", "3", "2"].map(half), [Half::Tuning, Half::Tuning, Half::Test]);
    }
}
