//! What does a run of reStructuredText say once its inline markup is gone?

/// Characters after which inline markup may open, besides white space and the start of the text.
const OPENERS: &str = "'\"([{<-/:";

/// The text as a reader sees it: roles, links and emphasis become their words, literals keep one backtick a side.
pub(super) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let opens = out.chars().next_back().is_none_or(|c| c.is_whitespace() || OPENERS.contains(c));
        let taken = match first {
            '\\' => escape(rest, &mut out),
            '`' => literal(rest, &mut out).or_else(|| interpreted(rest, "", &mut out)),
            ':' => role(rest, &mut out),
            '*' if opens => emphasis(rest, &mut out),
            _ => None,
        };
        let taken = taken.unwrap_or_else(|| {
            out.push(first);
            first.len_utf8()
        });
        rest = &rest[taken..];
    }
    out
}

/// A backslash takes the meaning from what follows; before white space it joins words.
fn escape(rest: &str, out: &mut String) -> Option<usize> {
    let next = rest[1..].chars().next()?;
    if !next.is_whitespace() {
        out.push(next);
    }
    Some(1 + next.len_utf8())
}

fn literal(rest: &str, out: &mut String) -> Option<usize> {
    let inner = rest.strip_prefix("``")?;
    let end = inner.find("``")?;
    // A literal may end in a backtick of its own.
    let end = if inner[end + 2..].starts_with('`') { end + 1 } else { end };
    out.push('`');
    out.push_str(&inner[..end]);
    out.push('`');
    Some(2 + end + 2)
}

/// A role before its text, as in `:func:` and then the name in backticks.
fn role(rest: &str, out: &mut String) -> Option<usize> {
    let tick = rest.find('`')?;
    let name = rest[..tick].strip_prefix(':')?.strip_suffix(':')?;
    let known = |c: char| c.is_ascii_alphanumeric() || "_+.:-".contains(c);
    if name.is_empty() || !name.chars().all(known) {
        return None;
    }
    interpreted(&rest[tick..], name, out).map(|taken| tick + taken)
}

/// Text in single backticks, and the underscores of a link or the role that may follow it.
fn interpreted(rest: &str, role: &str, out: &mut String) -> Option<usize> {
    let inner = rest.strip_prefix('`')?;
    let end = inner.char_indices().find(|(at, c)| *c == '`' && !inner[..*at].ends_with('\\'))?.0;
    if end == 0 {
        return None;
    }
    out.push_str(&words(role, &inner[..end]));
    let mut taken = end + 2;
    while rest[taken..].starts_with('_') && taken < end + 4 {
        taken += 1;
    }
    Some(taken)
}

fn words(role: &str, inner: &str) -> String {
    let inner = inner.replace('\\', "");
    let titled = inner.strip_suffix('>').and_then(|text| text.rsplit_once('<'));
    let text = match titled {
        Some((title, _)) if !title.trim().is_empty() => title.trim(),
        Some((_, target)) => target,
        None => inner.as_str(),
    };
    let text = text.strip_prefix(['~', '!']).unwrap_or(text);
    match role {
        "pep" if titled.is_none() => format!("PEP {text}"),
        "rfc" if titled.is_none() => format!("RFC {text}"),
        "math" => format!("${text}$"),
        _ => text.to_string(),
    }
}

fn emphasis(rest: &str, out: &mut String) -> Option<usize> {
    let mark = if rest.starts_with("**") { "**" } else { "*" };
    let inner = &rest[mark.len()..];
    if inner.starts_with(|c: char| c.is_whitespace() || c == '*') {
        return None;
    }
    let mut from = 0;
    loop {
        let end = from + inner[from..].find(mark)?;
        let closed = !inner[..end].ends_with(|c: char| c.is_whitespace() || c == '\\');
        let after = inner[end + mark.len()..].chars().next();
        if end > 0 && closed && after.is_none_or(|c| !c.is_alphanumeric() && c != '*') {
            out.push_str(&clean_shallow(&inner[..end]));
            return Some(end + 2 * mark.len());
        }
        from = end + mark.len();
    }
}

/// Markup does not nest, so inside emphasis only escapes are left to undo.
fn clean_shallow(text: &str) -> String {
    text.replace('\\', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_becomes_words() {
        for (source, text) in [
            (":func:`~os.path.join` and :class:`str`", "os.path.join and str"),
            (":meth:`the split <str.split>` method", "the split method"),
            ("see :pep:`484` and :rfc:`2616`", "see PEP 484 and RFC 2616"),
            ("``a * b`` is *not* **bold**.", "`a * b` is not bold."),
            ("`Sphinx <https://x.org>`_ and `other`__", "Sphinx and other"),
            ("2 * 3 * 4 and *args, **kwargs", "2 * 3 * 4 and *args, **kwargs"),
            ("a\\ b and \\*c\\*", "ab and *c*"),
            ("no role: `x`", "no role: x"),
            ("unclosed ``literal", "unclosed ``literal"),
            ("a lone ` tick", "a lone ` tick"),
            (":keyword:`with`\\ s", "withs"),
            (":c:func:`PyErr_Occurred()`", "PyErr_Occurred()"),
            ("time 12:30:45 é", "time 12:30:45 é"),
            ("", ""),
        ] {
            assert_eq!(clean(source), text, "{source}");
        }
    }
}
