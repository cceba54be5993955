//! Can any bytes make a reader fail, or make it name a place that does not hold its text?

use super::decode::decode;
use super::guard::parse;
use super::{Element, Format};
use proptest::prelude::*;
use std::io::{Cursor, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;

const NAMES: [&str; 17] = [
    "a.csv", "a.tsv", "a.jsonl", "a.rs", "a.py", "a.c", "a.java", "a.ts", "a.go", "a.rb", "a.lua", "a.sh",
    "a.sql", "a.toml", "a.yaml", "a.json", "a.txt",
];

/// Reads the bytes; what is exact must stand in the source as it is, and spans lie within it.
fn check(name: &str, bytes: &[u8]) -> Result<(), TestCaseError> {
    let format = Format::of(Path::new(name)).unwrap();
    let Ok(document) = parse(format, bytes.to_vec(), 1) else { return Ok(()) };
    let source = decode(bytes.to_vec()).unwrap();
    for element in &document.elements {
        let span = match element {
            Element::Block(block) => &block.span,
            Element::Heading { span, .. } => span,
        };
        prop_assert!(span.end <= source.text.len() && source.text.get(span.clone()).is_some(), "{element:?}");
        let Element::Block(block) = element else { continue };
        if block.exact {
            let file = source.places.in_file(span.start)..source.places.in_file(span.end);
            let stands = match std::str::from_utf8(&bytes[file.clone()]) {
                // In UTF-8 the bytes of the file itself are the text.
                Ok(text) if std::str::from_utf8(bytes).is_ok() => text.to_string(),
                _ => source.text[span.clone()].to_string(),
            };
            prop_assert_eq!(stands.replace('\n', " "), block.text.replace('\n', " "));
        }
    }
    Ok(())
}

/// Text that looks like what the readers look for.
fn likely() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "fn f() {",
        "class A:",
        "  def g(self):",
        "int h(int a)",
        "    int k() {",
        "}",
        "/* ",
        "*/",
        "// é",
        "# c",
        "@x(",
        ")",
        "\n",
        "\n\n",
        "\r\n",
        "\t",
        "  ",
        "{\"title\": \"t\", \"text\": \"a\\nb\"}",
        "{\"a\": \"é\"}",
        "{",
        "\"",
        ",",
        ";",
        "|",
        "a,b",
        "\"x\ny\"",
        "[t]",
        "k:",
        "create table t (",
        "1",
        "é",
        "\u{feff}",
        "\u{2028}",
    ]);
    prop::collection::vec(part, 0..60).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400), marked in any::<bool>()) {
        let bytes = if marked { [&b"\xff\xfe"[..], &bytes].concat() } else { bytes };
        for name in NAMES {
            check(name, &bytes)?;
        }
    }

    #[test]
    fn any_text_is_survived_and_has_its_place(text in likely(), marked in any::<bool>()) {
        let text = if marked { format!("\u{feff}{text}") } else { text };
        for name in NAMES {
            check(name, text.as_bytes())?;
        }
    }

    #[test]
    fn any_archive_is_survived(
        xml in "(<w:(p|tbl|tr|tc|t|del|r)/?>|</w:(p|tbl|tr|tc|t|del|r)>|a|&amp;|&#0;|&x;|<!--|-->|<|>){0,40}",
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        any in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for name in ["word/document.xml", "word/styles.xml", "docProps/core.xml"] {
            writer.start_file(name, SimpleFileOptions::default()).unwrap();
            writer.write_all(xml.as_bytes()).unwrap();
        }
        let mut bytes = writer.finish().unwrap().into_inner();
        let _ = parse(Format::Docx, bytes.clone(), 1);
        for (at, byte) in noise {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = parse(Format::Docx, bytes, 1);
        let _ = parse(Format::Docx, [&b"PK\x03\x04"[..], &any].concat(), 1);
    }
}
