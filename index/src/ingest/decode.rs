//! Which characters do these bytes stand for, and which bytes of the file was each of them?
//!
//! A byte order mark decides, then whether the bytes are UTF-8, then what the file says about itself, then a guess from
//! its letters. All readers see UTF-8, and their spans count its bytes; [`Places`] leads them back to the file.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{DecoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE};

/// How much of a file is searched for a statement of its encoding, as browsers do.
const STATEMENT_BYTES: usize = 1024;
/// Longest name of an encoding.
const LABEL_BYTES_MAX: usize = 32;
/// Room that the decoder needs for what one byte can complete.
const STEP_BYTES: usize = 16;
/// Text has hardly any control characters; bytes that were guessed to be text with more than one in this many are none.
const CHARS_PER_CONTROL_MIN: usize = 50;
/// Stands for what is no character in the file's encoding.
const REPLACEMENT: char = '?';

/// A file as text.
#[derive(Debug)]
pub(super) struct Decoded {
    /// The file without its byte order mark, as UTF-8.
    pub(super) text: String,
    /// Where its bytes stand in the file.
    pub(super) places: Places,
    /// Bytes that are no character were replaced.
    pub(super) lossy: bool,
}

/// Decodes a file.
///
/// # Errors
/// The file is not text.
pub(super) fn decode(bytes: Vec<u8>) -> Result<Decoded, String> {
    let decoded = match Encoding::for_bom(&bytes) {
        Some((encoding, mark)) if encoding == UTF_8 => utf8(bytes, mark),
        Some((encoding, mark)) => transcode(&bytes, mark, encoding),
        // Outside UTF-16, which cannot be told without its mark, no text has a zero byte.
        None if bytes.contains(&0) => return Err(binary()),
        None => match std::str::from_utf8(&bytes) {
            Ok(_) => utf8(bytes, 0),
            Err(_) if is_mostly_utf8(&bytes) => utf8(bytes, 0),
            Err(_) => guessed(&bytes)?,
        },
    };
    if decoded.text.contains('\0') { Err(binary()) } else { Ok(decoded) }
}

fn binary() -> String {
    "binary, not text".into()
}

/// UTF-8, with every byte that is none replaced: one byte for one byte, so that places stay true.
fn utf8(mut bytes: Vec<u8>, mark: usize) -> Decoded {
    let shifted = || Places { runs: vec![Run { text: 0, file: to_u32(mark), text_step: 1, file_step: 1 }] };
    let places = if mark == 0 { Places::SAME } else { shifted() };
    bytes.drain(..mark);
    let bytes = match String::from_utf8(bytes) {
        Ok(text) => return Decoded { text, places, lossy: false },
        Err(error) => error.into_bytes(),
    };
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| REPLACEMENT));
    }
    Decoded { text, places, lossy: true }
}

/// Letters of other encodings hardly ever form a character of UTF-8 by chance, so a file with more characters beyond
/// ASCII than damaged places is UTF-8 that was damaged.
fn is_mostly_utf8(bytes: &[u8]) -> bool {
    let mut characters = 0;
    let mut damaged = 0;
    for chunk in bytes.utf8_chunks() {
        characters += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        damaged += usize::from(!chunk.invalid().is_empty());
    }
    characters > damaged
}

fn guessed(bytes: &[u8]) -> Result<Decoded, String> {
    let encoding = stated(bytes).unwrap_or_else(|| {
        let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
        detector.feed(bytes, true);
        detector.guess(None, Utf8Detection::Deny)
    });
    let decoded = transcode(bytes, 0, encoding);
    // Any bytes are characters in some encoding; pictures and programs give themselves away by what nobody types.
    let is_control = |c: &char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{c}' | '\u{1b}');
    let controls = decoded.text.chars().filter(is_control).count();
    if controls * CHARS_PER_CONTROL_MIN > decoded.text.chars().count() {
        return Err(binary());
    }
    Ok(decoded)
}

/// What HTML, XML and the first lines of source code say: `charset=...`, `encoding="..."`, `coding: ...`.
fn stated(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = &bytes[..bytes.len().min(STATEMENT_BYTES)];
    let head = head.to_ascii_lowercase();
    [&b"charset="[..], b"encoding=", b"coding=", b"coding:"].iter().find_map(|key| {
        let at = head.windows(key.len()).position(|window| window == *key)? + key.len();
        let value = head[at..].iter().skip_while(|byte| matches!(byte, b'"' | b'\'' | b' '));
        let in_name = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b':' | b'.');
        let label: Vec<u8> = value.take_while(in_name).take(LABEL_BYTES_MAX).copied().collect();
        // UTF-8 it is not, and the zero bytes of UTF-16 would have shown.
        let is_possible = |found: &&Encoding| ![UTF_8, UTF_16LE, UTF_16BE].contains(found);
        Encoding::for_label_no_replacement(&label).filter(is_possible)
    })
}

/// Decodes byte by byte, because only so each character's own bytes are known.
fn transcode(bytes: &[u8], mark: usize, encoding: &'static Encoding) -> Decoded {
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let mut text = String::with_capacity(bytes.len());
    let mut places = Places { runs: Vec::new() };
    let mut lossy = false;
    // First byte of the character in hand.
    let mut start = mark;
    let mut at = mark;
    loop {
        let end = (at + 1).min(bytes.len());
        let last = end == bytes.len();
        let before = text.len();
        text.reserve(STEP_BYTES);
        let (result, read) = decoder.decode_to_string_without_replacement(&bytes[at..end], &mut text, last);
        at += read;
        if matches!(result, DecoderResult::Malformed(..)) {
            text.push(REPLACEMENT);
            lossy = true;
        }
        if text.len() > before {
            places.add(before, text.len() - before, start, at - start);
            start = at;
        }
        if last && at == end && result == DecoderResult::InputEmpty {
            break;
        }
    }
    places.add(text.len(), 0, bytes.len(), 0);
    Decoded { text, places, lossy }
}

/// Where each character of a decoded text stands in its file.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// In the order of the text; empty when text and file are the same.
    runs: Vec<Run>,
}

/// Characters of one width behind one another. Files stay below 4 GB (`document_bytes_max`), and text is at most
/// three times as long, so 32 bits do for all that memory can hold.
#[derive(Clone, Copy, Debug)]
struct Run {
    text: u32,
    file: u32,
    /// Bytes of each character in the text and in the file.
    text_step: u8,
    file_step: u8,
}

impl Places {
    /// Of a text that is the file itself.
    pub(crate) const SAME: Places = Places { runs: Vec::new() };

    /// The byte of the file at which the character that holds byte `at` of the text begins.
    pub(crate) fn in_file(&self, at: usize) -> usize {
        let Some(run) = self.runs[..self.runs.partition_point(|run| run.text as usize <= at)].last().copied()
        else {
            return at;
        };
        let characters = (at - run.text as usize) / usize::from(run.text_step).max(1);
        run.file as usize + characters * usize::from(run.file_step)
    }

    fn add(&mut self, text: usize, text_step: usize, file: usize, file_step: usize) {
        let narrow = |step: usize| u8::try_from(step).unwrap_or(u8::MAX);
        let run = Run {
            text: to_u32(text),
            file: to_u32(file),
            text_step: narrow(text_step),
            file_step: narrow(file_step),
        };
        let goes_on = self.runs.last().is_some_and(|last| {
            (last.text_step, last.file_step) == (run.text_step, run.file_step) && self.in_file(text) == file
        });
        if !goes_on {
            self.runs.push(run);
        }
    }
}

impl Default for Places {
    fn default() -> Places {
        Places::SAME
    }
}

fn to_u32(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(bytes: &[u8], text: &str, lossy: bool) {
        let decoded = decode(bytes.to_vec()).unwrap();
        assert_eq!((decoded.text.as_str(), decoded.lossy), (text, lossy), "{bytes:x?}");
    }

    #[test]
    fn marks_decide_before_anything_else() {
        check(b"\xef\xbb\xbfcaf\xc3\xa9", "café", false);
        check(b"\xff\xfea\0\xe9\0", "aé", false);
        check(b"\xfe\xff\0a\0\xe9", "aé", false);
        // Half a character at the end, and one half of a pair.
        check(b"\xff\xfea\0b", "a?", true);
        check(b"\xff\xfe\x3d\xd8a\0", "?a", true);
    }

    #[test]
    fn text_without_a_mark_is_utf8_or_what_it_says_or_what_it_looks_like() {
        check("café".as_bytes(), "café", false);
        check("".as_bytes(), "", false);
        check(b"Caf\xe9 au lait, cr\xe8me br\xfbl\xe9e", "Café au lait, crème brûlée", false);
        // "Russian text" and "Japanese language", as a table of KOI8-R and one of Shift_JIS have them.
        check(b"\xf2\xd5\xd3\xd3\xcb\xc9\xca \xd4\xc5\xcb\xd3\xd4", "Русский текст", false);
        check(b"\x93\xfa\x96\x7b\x8c\xea\x82\xcc\x95\xb6\x8f\xcd", "日本語の文章", false);
        check(b"<meta charset='iso-8859-2'>\xb1\xb6", "<meta charset='iso-8859-2'>ąś", false);
        check(b"# -*- coding: koi8-r -*-\n\xd7", "# -*- coding: koi8-r -*-\nв", false);
    }

    #[test]
    fn damaged_utf8_stays_utf8_and_keeps_its_places() {
        let decoded = decode(b"\xc3\xa9t\xc3\xa9\xff!".to_vec()).unwrap();
        assert_eq!((decoded.text.as_str(), decoded.lossy), ("été?!", true));
        assert_eq!(decoded.places.in_file(6), 6);
    }

    #[test]
    fn what_is_no_text_is_refused() {
        for bytes in
            [&b"a\0b"[..], b"\xff\xfea\0\0\0", &[0x89, 0x50, 0x0d, 0x1a, 0x81, 0x90, 0x02, 0x03, 0xfe]]
        {
            assert_eq!(decode(bytes.to_vec()).unwrap_err(), "binary, not text", "{bytes:x?}");
        }
    }

    #[test]
    fn places_lead_back_to_the_file() {
        // Text bytes: a 0, é 1, b 3, end 4. File bytes behind the mark: 2, 4, 6, 8.
        let utf16 = decode(b"\xff\xfea\0\xe9\0b\0".to_vec()).unwrap().places;
        assert_eq!([0, 1, 3, 4].map(|at| utf16.in_file(at)), [2, 4, 6, 8]);
        let latin = decode(b"\xe9t\xe9 fran\xe7ais".to_vec()).unwrap();
        assert_eq!(latin.text, "été français");
        assert_eq!([0, 2, 3, 5, 10, 12, 15].map(|at| latin.places.in_file(at)), [0, 1, 2, 3, 8, 9, 12]);
        let marked = decode(b"\xef\xbb\xbfab".to_vec()).unwrap().places;
        assert_eq!([0, 2].map(|at| marked.in_file(at)), [3, 5]);
        assert_eq!(Places::SAME.in_file(7), 7);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fail_and_places_never_go_back(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for mark in [&b""[..], b"\xff\xfe", b"\xef\xbb\xbf", b"charset=iso-2022-jp ", b"charset=gb18030 ", b"charset=big5 "] {
                let file = [mark, &bytes].concat();
                let length = file.len();
                let Ok(decoded) = decode(file) else { continue };
                let places: Vec<usize> = (0..=decoded.text.len()).map(|at| decoded.places.in_file(at)).collect();
                prop_assert!(places.is_sorted(), "{places:?}");
                prop_assert_eq!(places.last(), Some(&length));
            }
        }

        #[test]
        fn each_character_of_utf16_has_its_own_bytes(text in "[a-zäß€日🐈]{1,40}") {
            let mut bytes = vec![0xff, 0xfe];
            bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
            let decoded = decode(bytes.clone()).unwrap();
            prop_assert_eq!(&decoded.text, &text);
            for (at, c) in text.char_indices() {
                let own = decoded.places.in_file(at)..decoded.places.in_file(at + c.len_utf8());
                let units: Vec<u8> = c.encode_utf16(&mut [0; 2]).iter().flat_map(|unit| unit.to_le_bytes()).collect();
                prop_assert_eq!(&bytes[own], &units[..]);
            }
        }
    }
}
