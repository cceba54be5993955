//! What stands in for a model and for writers of PDF and Word files? Small things whose behaviour is plain to see.

use budgets::ManualClock;
use index::{Embed, EmbedError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DIMENSIONS: usize = 96;

/// Adds one signed coordinate pattern per word, so that texts which share words lie close.
#[derive(Debug, Default)]
pub struct BagOfWords;

impl BagOfWords {
    pub fn vector(&self, text: &str) -> Vec<f32> {
        let mut vector = vec![0.0f32; DIMENSIONS];
        for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
            // FNV-1a, then a few coordinates from its bits.
            let seed = word.to_lowercase().bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
            for turn in 0..8u32 {
                let bits = seed.rotate_left(turn * 8).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let at = (bits >> 40) as usize % DIMENSIONS;
                vector[at] += if bits & 1 == 0 { 1.0 } else { -1.0 };
            }
        }
        let norm = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        vector.iter_mut().for_each(|value| *value /= norm.max(1e-9));
        vector
    }
}

/// The bag of words as an embedder, which remembers what it was given and can be told to fail or to take its time.
pub struct Embedder {
    pub id: &'static str,
    pub fails: bool,
    pub slow: Option<(Arc<ManualClock>, Duration)>,
    pub texts: Mutex<Vec<String>>,
}

impl Default for Embedder {
    fn default() -> Self {
        Embedder { id: "bag of words", fails: false, slow: None, texts: Mutex::default() }
    }
}

impl Embedder {
    pub fn embedded(&self) -> Vec<String> {
        self.texts.lock().unwrap().clone()
    }
}

impl Embed for Embedder {
    fn id(&self) -> &str {
        self.id
    }

    fn dimensions(&self) -> usize {
        DIMENSIONS
    }

    fn count_tokens(&self, text: &str) -> usize {
        text.split_whitespace().count() * 4 / 3
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        if let Some((clock, takes)) = &self.slow {
            clock.advance(*takes);
        }
        if self.fails {
            return Err(EmbedError("on purpose".into()));
        }
        self.texts.lock().unwrap().extend(texts.iter().map(|text| (*text).to_string()));
        Ok(texts.iter().map(|text| BagOfWords.vector(text)).collect())
    }
}

/// A PDF with one line of text on each page.
pub fn pdf(pages: &[&str]) -> Vec<u8> {
    let kids: Vec<String> = (0..pages.len()).map(|page| format!("{} 0 R", 4 + 2 * page)).collect();
    let mut objects = vec![
        "<< /Type /Catalog /Pages 2 0 R >>".to_string(),
        format!("<< /Type /Pages /Kids [{}] /Count {} >>", kids.join(" "), pages.len()),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_string(),
    ];
    for (page, text) in pages.iter().enumerate() {
        let stream = format!("BT /F1 12 Tf 72 720 Td ({text}) Tj ET");
        objects.push(format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents {} 0 R >>",
            5 + 2 * page
        ));
        objects.push(format!("<< /Length {} >>\nstream\n{stream}\nendstream", stream.len()));
    }
    let mut out = b"%PDF-1.4\n".to_vec();
    let mut offsets = Vec::new();
    for (number, object) in objects.iter().enumerate() {
        offsets.push(out.len());
        out.extend(format!("{} 0 obj\n{object}\nendobj\n", number + 1).bytes());
    }
    let table = out.len();
    out.extend(format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1).bytes());
    out.extend(offsets.iter().flat_map(|offset| format!("{offset:010} 00000 n \n").into_bytes()));
    let trailer =
        format!("trailer\n<< /Size {} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n", objects.len() + 1);
    out.extend(trailer.bytes());
    out
}

/// A Word document with one paragraph.
pub fn docx(text: &str) -> Vec<u8> {
    use std::io::Write;
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    writer.start_file("word/document.xml", zip::write::SimpleFileOptions::default()).unwrap();
    let xml = format!(
        "<w:document xmlns:w=\"w\"><w:body><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:body></w:document>"
    );
    writer.write_all(xml.as_bytes()).unwrap();
    writer.finish().unwrap().into_inner()
}
