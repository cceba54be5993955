//! Are Word documents read as a reader sees them, and hostile ones refused?

use super::*;
use std::io::Write;
use zip::write::SimpleFileOptions;

/// An archive with these parts.
fn archive(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in parts {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn document(body: &str) -> Vec<u8> {
    let xml =
        format!("<?xml version=\"1.0\"?><w:document xmlns:w=\"w\"><w:body>{body}</w:body></w:document>");
    archive(&[("[Content_Types].xml", b"<Types/>"), ("word/document.xml", xml.as_bytes())])
}

#[track_caller]
fn check(body: &str, expected: &[&str]) {
    let bytes = document(body);
    let found = read(&bytes).unwrap();
    assert_eq!(found.shown(), expected, "{body}");
    assert!(found.lines.is_none());
    for element in &found.elements {
        if let Element::Block(block) = element {
            assert_eq!(block.span, 0..bytes.len());
        }
    }
}

#[test]
fn paragraphs_headings_lists_and_tables_are_read() {
    check(
        r#"<w:p><w:pPr><w:pStyle w:val="Title"/></w:pPr><w:r><w:t>Report</w:t></w:r></w:p>
        <w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Part</w:t></w:r></w:p>
        <w:p><w:r><w:t xml:space="preserve">One &amp; </w:t></w:r><w:r><w:t>tw&#111;.</w:t><w:br/><w:t>Next</w:t><w:tab/><w:t>line.</w:t></w:r></w:p>
        <w:p/>
        <w:p><w:pPr><w:numPr><w:ilvl w:val="0"/><w:numId w:val="1"/></w:numPr></w:pPr><w:r><w:t>item</w:t></w:r></w:p>
        <w:p><w:pPr><w:numPr><w:ilvl w:val="1"/><w:numId w:val="1"/></w:numPr></w:pPr><w:r><w:t>inner</w:t></w:r></w:p>
        <w:p><w:pPr><w:numPr><w:numId w:val="0"/></w:numPr></w:pPr><w:r><w:t>None.</w:t></w:r></w:p>
        <w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc><w:tc><w:p/></w:tc></w:tr>
        <w:tr><w:tc><w:p/></w:tc></w:tr>
        <w:tr><w:tc><w:tbl><w:tr><w:tc><w:p><w:r><w:t>1</w:t></w:r></w:p></w:tc></w:tr></w:tbl></w:tc><w:tc><w:p><w:r><w:t>2</w:t></w:r></w:p></w:tc></w:tr></w:tbl>
        <w:p><w:pPr><w:outlineLvl w:val="1"/></w:pPr><w:r><w:t>Deep</w:t></w:r></w:p>"#,
        &[
            "h1 Report",
            "h2 Part",
            "Prose One & two.\nNext line.",
            "Item - item",
            "Item   - inner",
            "Prose None.",
            "Lines a b | \n1 | 2",
            "h3 Deep",
        ],
    );
}

#[test]
fn what_was_deleted_or_stands_twice_is_left_out() {
    check(
        "<w:p><w:r><w:t>Kept</w:t></w:r><w:del><w:r><w:delText>gone</w:delText></w:r></w:del>\
         <w:moveFrom><w:r><w:t>moved</w:t></w:r></w:moveFrom><w:r><w:instrText>PAGE</w:instrText></w:r></w:p>\
         <w:p><w:r><mc:AlternateContent xmlns:mc=\"m\"><mc:Choice><w:txbxContent><w:p><w:r><w:t>Box</w:t></w:r></w:p></w:txbxContent>\
         </mc:Choice><mc:Fallback><w:p><w:r><w:t>Box</w:t></w:r></w:p></mc:Fallback></mc:AlternateContent><w:t>Around</w:t></w:r></w:p>",
        &["Prose Kept", "Prose Box", "Prose Around"],
    );
}

#[test]
fn the_title_comes_from_the_properties() {
    let main = b"<w:document xmlns:w='w'><w:p><w:r><w:t>Text</w:t></w:r></w:p></w:document>";
    let core = b"<p xmlns:dc='d'><dc:title>A &lt; B</dc:title><dc:creator>Nobody</dc:creator></p>";
    let read_with = |core: &[u8]| {
        read(&archive(&[("word/document.xml", main), ("docProps/core.xml", core)])).unwrap().title
    };
    assert_eq!(read_with(core).as_deref(), Some("A < B"));
    assert_eq!(read_with(b"<p><title></p>"), None);
}

#[test]
fn what_is_broken_or_hostile_is_an_error() {
    let refuse = |bytes: &[u8], expected: &str| {
        let error = read(bytes).unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    refuse(b"hello", "not a DOCX");
    refuse(b"", "not a DOCX");
    refuse(b"PK\x03\x04 and no more", "damaged DOCX");
    refuse(&archive(&[("other.xml", b"<a/>")]), "not a DOCX");
    refuse(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "encrypted");
    let whole = document("<w:p><w:r><w:t>Text</w:t></w:r></w:p>");
    refuse(&whole[..whole.len() - 30], "damaged DOCX");
    let with = |xml: &[u8]| archive(&[("word/document.xml", xml)]);
    refuse(&with(b"<a><b></a>"), "damaged DOCX");
    refuse(&with(b"<a><b>"), "ends too early");
    let entity = b"<!DOCTYPE a [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><a>&x;</a>";
    refuse(&with(entity), "declares a document type");
    refuse(&with("<a>".repeat(DEPTH_MAX + 1).as_bytes()), "nested more than 512 deep");
    let bomb = vec![b' '; usize::try_from(PART_BYTES_MAX).unwrap() + 1];
    refuse(&with(&bomb), "word/document.xml in it is larger than 67108864 bytes");
}
