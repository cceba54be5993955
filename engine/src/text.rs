//! What of the bytes so far is text that will not change? Whole characters, and nothing that may become a stop string.

/// Text that is ready, and the stop string that ended the answer, if one came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// May be empty.
    pub text: String,
    /// The stop string that came; the stream is over and `text` is its last.
    pub stop: Option<String>,
}

/// Turns the bytes of tokens, in any splits, into text. What comes out in total depends on the bytes alone.
#[derive(Debug)]
pub struct TextStream {
    stops: Vec<String>,
    /// The start of a character whose other bytes have not come; at most three bytes.
    bytes: Vec<u8>,
    /// Text that may be the start of a stop string; shorter than the longest of them between calls.
    held: String,
}

impl TextStream {
    /// A stream that ends before the first of `stops`, none of which is empty.
    pub fn new(stops: Vec<String>) -> Self {
        Self { stops, bytes: Vec::new(), held: String::new() }
    }

    /// Takes the bytes of a token.
    pub fn push(&mut self, bytes: &[u8]) -> Piece {
        self.bytes.extend_from_slice(bytes);
        self.decode();
        if let Some(piece) = self.take_stop() {
            return piece;
        }
        let ready = self.held.len() - self.held_back();
        Piece { text: self.held.drain(..ready).collect(), stop: None }
    }

    /// Takes the end of the bytes: all that was held back is text.
    pub fn finish(&mut self) -> Piece {
        if !std::mem::take(&mut self.bytes).is_empty() {
            self.held.push(char::REPLACEMENT_CHARACTER);
        }
        self.take_stop().unwrap_or_else(|| Piece { text: std::mem::take(&mut self.held), stop: None })
    }

    /// Moves whole characters from `bytes` to `held`. Bytes that can no longer become a character turn into U+FFFD;
    /// bytes that still can stay.
    fn decode(&mut self) {
        let mut rest = self.bytes.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.held.push_str(text);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, bad) = rest.split_at(error.valid_up_to());
                    self.held.push_str(&String::from_utf8_lossy(valid));
                    rest = bad;
                    let Some(length) = error.error_len() else { break };
                    self.held.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[length..];
                }
            }
        }
        self.bytes = rest.to_vec();
    }

    /// The text before the stop string that is complete first, if one is. First by its end, not by its start: a
    /// stream that arrives letter by letter could not know better, and splits must not matter. Of those that end
    /// together the longest wins.
    fn take_stop(&mut self) -> Option<Piece> {
        let matches = self.stops.iter().filter_map(|stop| self.held.find(stop).map(|start| (start, stop)));
        let (start, stop) = matches.min_by_key(|(start, stop)| (start + stop.len(), *start))?;
        let stop = Some(stop.clone());
        let text = self.held[..start].to_string();
        self.held.clear();
        self.bytes.clear();
        Some(Piece { text, stop })
    }

    /// How many bytes at the end of `held` may be the start of a stop string.
    fn held_back(&self) -> usize {
        let starts = self.stops.iter().map(|stop| {
            let prefixes = stop.char_indices().map(|(end, _)| &stop[..end]).rev();
            prefixes.into_iter().find(|prefix| self.held.ends_with(prefix)).map_or(0, str::len)
        });
        starts.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Streams `pieces` and returns all text and the stop string.
    fn stream(pieces: &[&[u8]], stops: &[&str]) -> (String, Option<String>) {
        let mut stream = TextStream::new(stops.iter().map(ToString::to_string).collect());
        let mut text = String::new();
        for piece in pieces {
            let piece = stream.push(piece);
            text.push_str(&piece.text);
            if piece.stop.is_some() {
                return (text, piece.stop);
            }
        }
        let last = stream.finish();
        text.push_str(&last.text);
        (text, last.stop)
    }

    /// Checks that every way to cut `bytes` in two gives `want`, and so does one byte at a time.
    fn check(bytes: &[u8], stops: &[&str], want: &str, stop: Option<&str>) {
        let want = (want.to_string(), stop.map(str::to_string));
        for cut in 0..=bytes.len() {
            assert_eq!(stream(&[&bytes[..cut], &bytes[cut..]], stops), want, "cut at {cut}");
        }
        let singles: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(stream(&singles, stops), want, "single bytes");
    }

    #[test]
    fn stop_strings_end_the_text_however_it_is_cut() {
        check(b"one two three", &[], "one two three", None);
        check(b"one two three", &["two"], "one ", Some("two"));
        check(b"one two three", &["three", "two"], "one ", Some("two"));
        check(b"one two th", &["three"], "one two th", None);
        check(b"aaab", &["aab"], "a", Some("aab"));
        check(b"ababac", &["abac"], "ab", Some("abac"));
        check("naïve → 😀!".as_bytes(), &["→ 😀"], "naïve ", Some("→ 😀"));
        check(b"stop", &["stop"], "", Some("stop"));
    }

    #[test]
    fn of_several_the_one_complete_first_counts() {
        check(b"xabcdx", &["abcd", "bc"], "xa", Some("bc"));
        check(b"xabcx", &["bc", "abc"], "x", Some("abc"));
        check(b"xabcx", &["abc", "ab"], "x", Some("ab"));
        check(b"one.\n\ntwo", &["\n", "\n\n"], "one.", Some("\n"));
    }

    #[test]
    fn an_emoji_in_four_tokens_comes_out_once_whole() {
        let mut stream = TextStream::new(vec![]);
        let texts: Vec<String> = "😀".as_bytes().chunks(1).map(|byte| stream.push(byte).text).collect();
        assert_eq!(texts, ["", "", "", "😀"]);
        assert_eq!(stream.finish().text, "");
    }

    #[test]
    fn bytes_turn_into_replacements_only_when_nothing_can_save_them() {
        let mut stream = TextStream::new(vec![]);
        assert_eq!(stream.push(&[b'a', 0xe2, 0x86]).text, "a");
        assert_eq!(stream.push(b"b").text, "\u{fffd}b");
        assert_eq!(stream.push(&[0xff]).text, "\u{fffd}");
        assert_eq!(stream.push(&[0xf0, 0x9f]).text, "");
        assert_eq!(stream.finish().text, "\u{fffd}");
        check(b"a\xe2\x86", &["\u{fffd}"], "a", Some("\u{fffd}"));
    }

    #[test]
    fn text_is_not_held_longer_than_it_must() {
        let mut stream = TextStream::new(vec!["END".to_string()]);
        assert_eq!(stream.push(b"the E").text, "the ");
        assert_eq!(stream.push(b"N").text, "");
        assert_eq!(stream.push(b"S").text, "ENS");
    }

    /// Cuts `bytes` after the lengths in `cuts`, over and over.
    fn cut<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
        let mut rest = bytes;
        let mut pieces = Vec::new();
        for length in cuts.iter().cycle() {
            if rest.is_empty() || cuts.is_empty() {
                break;
            }
            let (piece, tail) = rest.split_at((*length).min(rest.len()));
            pieces.push(piece);
            rest = tail;
        }
        pieces.push(rest);
        pieces
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_splits_read_as_the_standard_library_reads_them(
            bytes in prop::collection::vec(any::<u8>(), 0..60),
            text in "[aé→😀]{0,12}",
            cuts in prop::collection::vec(1usize..6, 1..20),
        ) {
            let bytes = [text.as_bytes(), bytes.as_slice(), text.as_bytes()].concat();
            let (got, _) = stream(&cut(&bytes, &cuts), &[]);
            prop_assert_eq!(got, String::from_utf8_lossy(&bytes).into_owned());
        }

        #[test]
        fn splits_do_not_matter_and_the_stop_string_is_never_shown(
            text in "[abé]{0,24}",
            stops in prop::collection::vec("[abé]{1,4}", 1..4),
            cuts in prop::collection::vec(1usize..5, 1..12),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let whole = stream(&[text.as_bytes()], &stops);
            prop_assert_eq!(&stream(&cut(text.as_bytes(), &cuts), &stops), &whole);
            // The shortest beginning of the text that ends with a stop string tells where it must end.
            let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
            let first = ends.into_iter().find(|end| stops.iter().any(|stop| text[..*end].ends_with(stop)));
            match first {
                None => prop_assert_eq!(whole, (text, None)),
                Some(end) => {
                    let stop = whole.1.unwrap_or_default();
                    prop_assert_eq!(whole.0 + &stop, &text[..end]);
                    prop_assert!(stops.contains(&stop.as_str()));
                }
            }
        }
    }
}
