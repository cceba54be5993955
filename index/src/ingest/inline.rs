//! Which small clean-ups of running text do several formats need?

/// Runs of white space become one space, ends are trimmed.
pub(super) fn collapse(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

/// Removes tags and comments from a piece of HTML and puts a space where each stood.
pub(super) fn strip_tags(html: &str) -> String {
    let mut out = String::with_capacity(html.len());
    let mut rest = html;
    while let Some(open) = rest.find('<') {
        out.push_str(&rest[..open]);
        let tag = &rest[open..];
        let is_tag =
            tag[1..].starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '!' || c == '?');
        let end = match () {
            () if tag.starts_with("<!--") => tag.find("-->").map(|at| at + 3),
            () if is_tag => tag.find('>').map(|at| at + 1),
            () => None,
        };
        match end {
            Some(end) => {
                out.push(' ');
                rest = &tag[end..];
            }
            // No tag after all, or one that never ends: it stays, because dropping the rest would lose text.
            None => {
                out.push('<');
                rest = &tag[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_go_and_comparisons_stay() {
        for (html, text) in [
            ("<p>a <b>b</b></p>", "a b"),
            ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
            ("x<!-- <b> no -->y", "x y"),
            ("cut <unfinished", "cut <unfinished"),
            ("<details><summary>More</summary>", "More"),
        ] {
            assert_eq!(collapse(&strip_tags(html)), text, "{html}");
        }
    }
}
