//! Which words of a text carry its content? Stems of content words, and numbers kept apart.

use rust_stemmers::{Algorithm, Stemmer};
use std::collections::BTreeSet;
use unicode_segmentation::UnicodeSegmentation;

/// Words that any English text holds, whatever it says, and the words with which questions are asked.
const STOP_WORDS: &str = "a about above after again all also am an and any are as at be because been before being below \
    between both but by can cannot could did do does doing down during each either else etc few for \
    from further had has have having he hence her here hers him his how however i if in into is it its \
    itself just let may me might more most much must my neither nor of off on once only or other our \
    ours out over own per rather same shall she should since so some such than that the their theirs \
    them then there therefore these they this those through thus to too under until up upon us very \
    was we were what when where whether which while who whom whose why will with within without would \
    yes you your yours";

/// Small numbers are written either way; "one" is left out, because it mostly counts nothing.
const NUMBER_WORDS: [&str; 11] =
    ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

/// The content of a text, as two sets: order and repetition do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Stems of its content words, in lower case; "two" to "twelve" as digits.
    pub words: BTreeSet<String>,
    /// Its numbers, without thousands separators and trailing zeros of a fraction.
    pub numbers: BTreeSet<String>,
}

impl Terms {
    /// Reads `text`.
    pub fn of(text: &str) -> Self {
        let stemmer = Stemmer::create(Algorithm::English);
        let mut terms = Self::default();
        for word in text.unicode_words() {
            let word = word.to_lowercase().replace('\u{2019}', "'");
            // "10ms" and "10 ms" say the same, so a leading number is cut off; "h100" is a name and stays whole.
            let split =
                word.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',').unwrap_or(word.len());
            let (number, rest) = word.split_at(split);
            if number.starts_with(|c: char| c.is_ascii_digit()) {
                terms.numbers.insert(plain_number(number));
                terms.add_word(&stemmer, rest);
            } else {
                terms.add_word(&stemmer, &word);
            }
        }
        terms
    }

    /// Is `term` among them, as a word or a number?
    pub fn has(&self, term: &str) -> bool {
        self.words.contains(term) || self.numbers.contains(term)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.words.len() + self.numbers.len()
    }

    /// None at all?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn add_word(&mut self, stemmer: &Stemmer, word: &str) {
        let word = word.strip_suffix("'s").unwrap_or(word);
        if !word.chars().any(char::is_alphanumeric) || STOP_WORDS.split(' ').any(|stop| stop == word) {
            return;
        }
        let stem = match NUMBER_WORDS.iter().position(|number| *number == word) {
            Some(place) => (place + 2).to_string(),
            None => stemmer.stem(word).into_owned(),
        };
        self.words.insert(stem);
    }
}

/// "1,024" and "1024", "2.50" and "2.5" are one number each.
fn plain_number(written: &str) -> String {
    let mut plain = written.replace(',', "");
    if plain.contains('.') {
        plain.truncate(plain.trim_end_matches('0').trim_end_matches('.').len());
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, words: &[&str], numbers: &[&str]) {
        let terms = Terms::of(text);
        assert_eq!(terms.words.iter().map(String::as_str).collect::<Vec<_>>(), words, "{text}");
        assert_eq!(terms.numbers.iter().map(String::as_str).collect::<Vec<_>>(), numbers, "{text}");
    }

    #[test]
    fn stems_numbers_and_names() {
        // Stems as the Snowball project's English vocabulary lists them; sets in byte order.
        check("The cats were running.", &["cat", "run"], &[]);
        check("The model's blocks", &["block", "model"], &[]);
        check("1,024 tokens in 2.50 s", &["s", "token"], &["1024", "2.5"]);
        check("10ms on an H100", &["h100", "ms"], &["10"]);
        check("eight GPUs", &["8", "gpus"], &[]);
        check("What is it about?", &[], &[]);
        check("", &[], &[]);
        check("日本語 — naïve", &["naïv", "日", "本", "語"], &[]);
    }

    #[test]
    fn the_stop_words_are_sorted_so_that_a_double_is_seen() {
        let words: Vec<&str> = STOP_WORDS.split(' ').collect();
        assert!(words.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
