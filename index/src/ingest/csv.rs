//! How is a table of fields read? Each row becomes one line that names its columns, with the row's bytes as its place.

use super::inline::collapse;
use super::{Block, BlockKind, Document, Element};
use csv::{ReaderBuilder, StringRecord};
use std::collections::HashSet;
use std::ops::Range;

/// What may part fields; of two that fit as well the first is taken.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// Rows that are looked at to find the delimiter and the header.
const SAMPLE_ROWS: usize = 32;
const ROWS_MAX: usize = 1_000_000;
const COLUMNS_MAX: usize = 1_024;
/// Longest name of a column, in characters; a longer first field is a text, so that the first row is no header.
const NAME_CHARS_MAX: usize = 80;
/// Names are repeated in every row, so text can be much longer than its source; this bounds it for one file.
const TEXT_BYTES_MAX: usize = 256 << 20;

/// Reads CSV and its relatives.
///
/// # Errors
/// More rows, columns or text than one table may have.
pub(super) fn read(source: &str) -> Result<Document, String> {
    let delimiter = sniff(source);
    let sample: Vec<StringRecord> =
        Rows::new(source, delimiter).take(SAMPLE_ROWS).map(|(record, _)| record).collect();
    let header = sample.first().filter(|first| is_header(first, &sample[1..]));
    let names: Vec<String> = header.map(|header| header.iter().map(collapse).collect()).unwrap_or_default();
    let mut document = Document::default();
    let mut text_bytes = 0;
    for (count, (record, span)) in
        Rows::new(source, delimiter).skip(usize::from(header.is_some())).enumerate()
    {
        if count >= ROWS_MAX {
            return Err(format!("more than {ROWS_MAX} rows"));
        }
        if record.len() > COLUMNS_MAX {
            return Err(format!("{} columns in one row, at most {COLUMNS_MAX} are read", record.len()));
        }
        let text = row(&names, &record);
        text_bytes += text.len();
        if text_bytes > TEXT_BYTES_MAX {
            return Err(format!("its rows make more than {TEXT_BYTES_MAX} bytes of text"));
        }
        if !text.is_empty() {
            document.elements.push(Element::Block(Block::new(BlockKind::Item, text, span)));
        }
    }
    Ok(document)
}

/// Rows with their bytes in the source, without line breaks at the ends.
struct Rows<'a> {
    source: &'a str,
    reader: csv::Reader<&'a [u8]>,
}

impl<'a> Rows<'a> {
    fn new(source: &'a str, delimiter: u8) -> Rows<'a> {
        let mut builder = ReaderBuilder::new();
        builder.delimiter(delimiter).has_headers(false).flexible(true);
        Rows { source, reader: builder.from_reader(source.as_bytes()) }
    }
}

impl Iterator for Rows<'_> {
    type Item = (StringRecord, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        let mut record = StringRecord::new();
        let start = self.reader.position().byte();
        // The source is a string and rows may be of any length, so no error is left that a row can have.
        if !self.reader.read_record(&mut record).unwrap_or(false) {
            return None;
        }
        let place = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX).min(self.source.len());
        let (start, end) = (place(start), place(self.reader.position().byte()));
        // The reader passes blank lines and the second byte of a line break on its way to a row.
        let raw = self.source.get(start..end).unwrap_or_default();
        let row = raw.trim_matches(['\r', '\n']);
        let skipped = raw.len() - raw.trim_start_matches(['\r', '\n']).len();
        Some((record, start + skipped..start + skipped + row.len()))
    }
}

/// The delimiter that cuts most rows into the same number of fields, and into the most of them.
fn sniff(source: &str) -> u8 {
    let mut best = (0, 0, DELIMITERS[0]);
    for delimiter in DELIMITERS {
        let fields: Vec<usize> =
            Rows::new(source, delimiter).take(SAMPLE_ROWS).map(|(record, _)| record.len()).collect();
        let agree = |count: usize| fields.iter().filter(|other| **other == count).count();
        let found = fields.iter().filter(|count| **count > 1).map(|count| (agree(*count), *count)).max();
        if let Some((rows, columns)) = found
            && (rows, columns) > (best.0, best.1)
        {
            best = (rows, columns, delimiter);
        }
    }
    best.2
}

/// Names of columns are short, differ, are no numbers and do not come again below; and a header has rows under it.
fn is_header(first: &StringRecord, below: &[StringRecord]) -> bool {
    let names: Vec<String> = first.iter().map(collapse).collect();
    // The column of row numbers has often no name.
    let named: Vec<&String> = names.iter().filter(|name| !name.is_empty()).collect();
    let is_name = |name: &&String| {
        name.chars().count() <= NAME_CHARS_MAX
            && name.chars().any(char::is_alphabetic)
            && !name.starts_with(|c: char| c.is_ascii_digit())
    };
    let differ = named.iter().collect::<HashSet<_>>().len() == named.len();
    let comes_again = below
        .iter()
        .any(|row| row.iter().zip(&names).any(|(field, name)| !name.is_empty() && collapse(field) == **name));
    !below.is_empty()
        && !named.is_empty()
        && named.len() + 1 >= names.len()
        && named.iter().all(is_name)
        && differ
        && !comes_again
}

/// `Name: field; Name: field`, without fields that are empty.
fn row(names: &[String], record: &StringRecord) -> String {
    let mut text = String::new();
    for (at, field) in record.iter().enumerate() {
        let field = collapse(field);
        if field.is_empty() {
            continue;
        }
        if !text.is_empty() {
            text.push_str("; ");
        }
        if let Some(name) = names.get(at).filter(|name| !name.is_empty()) {
            text.push_str(name);
            text.push_str(": ");
        }
        text.push_str(&field);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows with the source that each stands for.
    #[track_caller]
    fn check(source: &str, expected: &[(&str, &str)]) {
        let document = read(source).unwrap();
        let found: Vec<(&str, &str)> = document
            .elements
            .iter()
            .map(|element| match element {
                Element::Block(block) => (block.text.as_str(), &source[block.span.clone()]),
                Element::Heading { .. } => unreachable!("rows have no headings"),
            })
            .collect();
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn rows_name_their_columns_and_know_their_bytes() {
        check(
            "Name,Town\r\nAda,\"London, \"\"UK\"\"\"\r\n\r\nBo,\n\"C\nD\",Rome",
            &[
                ("Name: Ada; Town: London, \"UK\"", "Ada,\"London, \"\"UK\"\"\""),
                ("Name: Bo", "Bo,"),
                ("Name: C D; Town: Rome", "\"C\nD\",Rome"),
            ],
        );
        // A row without a name for its last field, and a column of numbers without a name.
        check(",name\n1,Ada,x\n", &[("1; name: Ada; x", "1,Ada,x")]);
    }

    #[test]
    fn the_delimiter_is_the_one_that_fits_the_rows() {
        check("a;b\n1,5;2\n3,5;4\n", &[("a: 1,5; b: 2", "1,5;2"), ("a: 3,5; b: 4", "3,5;4")]);
        check("a\tb\n1, 2\t3\n", &[("a: 1, 2; b: 3", "1, 2\t3")]);
        check("a|b\n1|2\n", &[("a: 1; b: 2", "1|2")]);
        check(
            "word\nother, longer\nlast\n",
            &[("word: other; longer", "other, longer"), ("word: last", "last")],
        );
    }

    #[test]
    fn a_first_row_of_data_is_no_header() {
        check("1,Ada\n2,Bo\n", &[("1; Ada", "1,Ada"), ("2; Bo", "2,Bo")]);
        check("yes,Ada\nyes,Bo\n", &[("yes; Ada", "yes,Ada"), ("yes; Bo", "yes,Bo")]);
        check("a,b\n", &[("a; b", "a,b")]);
        check("", &[]);
        check("\n\n,,\n", &[]);
    }

    #[test]
    fn tables_have_bounds() {
        let wide = ",".repeat(COLUMNS_MAX);
        assert_eq!(read(&wide).unwrap_err(), "1025 columns in one row, at most 1024 are read");
        let long = "a\n".repeat(ROWS_MAX + 1);
        assert_eq!(read(&long).unwrap_err(), "more than 1000000 rows");
    }
}
