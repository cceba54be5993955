//! What does the index know of a document as a whole, and which documents does a search want?

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The collection of documents that were given none.
pub const COLLECTION_DEFAULT: &str = "default";
/// Longest id of a document, in bytes.
const ID_BYTES_MAX: usize = 512;
/// Longest title that a document is given, in bytes.
const TITLE_BYTES_MAX: usize = 512;
/// Longest name of a collection or tag, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Most tags of one document.
const TAGS_MAX: usize = 32;

/// Stands before and behind a tenant's name in the id of a document that is that tenant's alone. No id that a caller or a
/// folder gives holds it, since control characters are refused.
const OWNER_MARK: char = '\u{1f}';

/// A day of the calendar, written `2026-12-31`; orders by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

impl FromStr for Date {
    type Err = String;

    fn from_str(text: &str) -> Result<Date, String> {
        let wrong = || format!("{text:?} is no date; write it as 2026-12-31");
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let parts: Vec<&str> = text.split('-').collect();
        let [year, month, day] = parts[..] else { return Err(wrong()) };
        if [(year, 4), (month, 2), (day, 2)].iter().any(|(part, len)| part.len() != *len || !digits(part)) {
            return Err(wrong());
        }
        let year: u16 = year.parse().map_err(|_| wrong())?;
        let (month, day): (u8, u8) = (month.parse().map_err(|_| wrong())?, day.parse().map_err(|_| wrong())?);
        let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let days = match month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 if leap => 29,
            2 => 28,
            _ => return Err(wrong()),
        };
        if (1..=days).contains(&day) { Ok(Date { year, month, day }) } else { Err(wrong()) }
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl TryFrom<String> for Date {
    type Error = String;

    fn try_from(text: String) -> Result<Date, String> {
        text.parse()
    }
}

impl From<Date> for String {
    fn from(date: Date) -> String {
        date.to_string()
    }
}

/// What is said about a document beside its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Its title; absent, the file's own.
    #[serde(default)]
    pub title: Option<String>,
    /// The one collection that holds it.
    pub collection: String,
    /// Any number of words to find it by; sorted, each once.
    pub tags: Vec<String>,
    /// The day that it speaks for.
    pub date: Option<Date>,
}

impl Default for Meta {
    fn default() -> Meta {
        Meta { title: None, collection: COLLECTION_DEFAULT.to_string(), tags: Vec::new(), date: None }
    }
}

/// How a document came into the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// From a folder; building the index of other folders drops it.
    Folder,
    /// Handed over by itself; stays until it is deleted.
    Put,
}

/// A document in the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentInfo {
    /// Its name, unique in the index.
    pub id: String,
    /// Path of the file, or what the caller named as its source.
    pub source: String,
    /// Its title.
    pub title: String,
    /// The format that it was read as.
    pub format: String,
    /// What is said about it.
    pub meta: Meta,
    /// How it came into the index.
    pub origin: Origin,
    /// SHA-256 of its bytes, in hexadecimal digits.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
    /// Passages that it was cut into.
    pub passages: usize,
    /// Some of its bytes were no character of its encoding; each was read as a question mark.
    pub lossy: bool,
}

/// Which documents a search or a list wants; every part that is given must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter<'a> {
    /// Who asks: that tenant's own documents are seen beside the shared ones; without a tenant the shared ones alone.
    pub tenant: Option<&'a str>,
    /// In one of these collections; all when empty.
    pub collections: &'a [String],
    /// With each of these tags.
    pub tags: &'a [String],
    /// Of this day or later; documents without a date are left out.
    pub from: Option<Date>,
    /// Of this day or earlier; documents without a date are left out.
    pub to: Option<Date>,
    /// With a source that begins so; all when empty.
    pub source: &'a str,
}

impl Filter<'_> {
    /// Every shared document.
    pub const ALL: Filter<'static> =
        Filter { tenant: None, collections: &[], tags: &[], from: None, to: None, source: "" };

    /// Whether the document is wanted.
    pub fn wants(&self, info: &DocumentInfo) -> bool {
        let meta = &info.meta;
        let (owner, _) = parse_id(&info.id);
        (owner.is_none() || owner == self.tenant)
            && (self.collections.is_empty() || self.collections.contains(&meta.collection))
            && self.tags.iter().all(|tag| meta.tags.contains(tag))
            && self.from.is_none_or(|from| meta.date.is_some_and(|date| date >= from))
            && self.to.is_none_or(|to| meta.date.is_some_and(|date| date <= to))
            && info.source.starts_with(self.source)
    }
}

/// A filter that owns its words, to be carried along.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedFilter {
    /// See [`Filter::tenant`].
    pub tenant: Option<String>,
    /// See [`Filter::collections`].
    pub collections: Vec<String>,
    /// See [`Filter::tags`].
    pub tags: Vec<String>,
    /// See [`Filter::from`].
    pub from: Option<Date>,
    /// See [`Filter::to`].
    pub to: Option<Date>,
    /// See [`Filter::source`].
    pub source: String,
}

impl OwnedFilter {
    /// The same, as a search takes it.
    pub fn as_filter(&self) -> Filter<'_> {
        let OwnedFilter { tenant, collections, tags, from, to, source } = self;
        Filter { tenant: tenant.as_deref(), collections, tags, from: *from, to: *to, source }
    }
}

/// The id under which the index holds a document that its owner calls `id`; two tenants may use the same name.
///
/// # Errors
/// Says what is wrong with the name: one that itself names an owner is refused, whoever gives it.
pub fn full_id(owner: Option<&str>, id: &str) -> Result<String, String> {
    check_name(id)?;
    Ok(owner.map_or_else(|| id.to_string(), |owner| format!("{OWNER_MARK}{owner}{OWNER_MARK}{id}")))
}

/// The owner of a document, none of a shared one, and what the owner calls it.
pub fn parse_id(id: &str) -> (Option<&str>, &str) {
    let owned = id.strip_prefix(OWNER_MARK).and_then(|rest| rest.split_once(OWNER_MARK));
    owned.map_or((None, id), |(owner, id)| (Some(owner), id))
}

/// Whether a document may have that name; its owner's name is no part of what is checked.
///
/// # Errors
/// Says what is wrong with it.
pub(crate) fn check_id(id: &str) -> Result<(), String> {
    check_name(parse_id(id).1)
}

fn check_name(id: &str) -> Result<(), String> {
    if id.is_empty() || id.len() > ID_BYTES_MAX {
        return Err(format!("an id has 1 to {ID_BYTES_MAX} bytes, this one has {}", id.len()));
    }
    if id.trim() != id || id.chars().any(char::is_control) {
        return Err("an id has no control characters and no blanks at its ends".into());
    }
    Ok(())
}

impl Meta {
    /// Sorts the tags and checks title and names.
    ///
    /// # Errors
    /// Says what is empty or too long, or that there are too many tags.
    pub fn checked(mut self) -> Result<Meta, String> {
        self.tags.sort();
        self.tags.dedup();
        let wrong = |title: &String| {
            title.trim().is_empty() || title.len() > TITLE_BYTES_MAX || title.chars().any(char::is_control)
        };
        if self.title.as_ref().is_some_and(wrong) {
            return Err(format!("a title has 1 to {TITLE_BYTES_MAX} bytes and no control characters"));
        }
        if self.tags.len() > TAGS_MAX {
            return Err(format!("at most {TAGS_MAX} tags, not {}", self.tags.len()));
        }
        for (what, name) in self.tags.iter().map(|tag| ("tag", tag)).chain([("collection", &self.collection)])
        {
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
                return Err(format!(
                    "the name of a {what} has 1 to {NAME_BYTES_MAX} bytes and no control characters: {name:?}"
                ));
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_of_the_calendar() {
        for good in ["2026-12-31", "2024-02-29", "2000-02-29", "0001-01-01"] {
            assert_eq!(good.parse::<Date>().unwrap().to_string(), good);
        }
        for bad in [
            "2026-13-01",
            "2026-00-01",
            "2023-02-29",
            "1900-02-29",
            "2026-4-01",
            "+026-04-01",
            "2026-04-00",
            "x",
        ] {
            assert!(bad.parse::<Date>().is_err(), "{bad}");
        }
        assert!("2025-12-31".parse::<Date>().unwrap() < "2026-01-01".parse().unwrap());
    }

    #[test]
    fn every_part_of_a_filter_must_hold() {
        let date = |text: &str| Some(text.parse::<Date>().unwrap());
        let info = DocumentInfo {
            id: "a".into(),
            source: "docs/a.md".into(),
            title: "A".into(),
            format: "markdown".into(),
            meta: Meta {
                title: None,
                collection: "birds".into(),
                tags: vec!["new".into(), "red".into()],
                date: date("2026-05-01"),
            },
            origin: Origin::Put,
            sha256: String::new(),
            bytes: 1,
            passages: 1,
            lossy: false,
        };
        let (birds, fish) = (["birds".to_string()], ["fish".to_string()]);
        let (red, both) = (["red".to_string()], ["red".to_string(), "old".to_string()]);
        assert!(Filter::ALL.wants(&info));
        assert!(Filter { collections: &birds, tags: &red, source: "docs/", ..Filter::ALL }.wants(&info));
        assert!(Filter { from: date("2026-05-01"), to: date("2026-05-01"), ..Filter::ALL }.wants(&info));
        for unwanted in [
            Filter { collections: &fish, ..Filter::ALL },
            Filter { tags: &both, ..Filter::ALL },
            Filter { from: date("2026-05-02"), ..Filter::ALL },
            Filter { to: date("2026-04-30"), ..Filter::ALL },
            Filter { source: "docs/b", ..Filter::ALL },
        ] {
            assert!(!unwanted.wants(&info), "{unwanted:?}");
        }
        let undated = DocumentInfo { meta: Meta { date: None, ..info.meta.clone() }, ..info };
        assert!(!Filter { to: date("2026-05-01"), ..Filter::ALL }.wants(&undated));
    }

    #[test]
    fn a_document_of_a_tenant_is_seen_by_that_tenant_alone() {
        let (own, shared) = (full_id(Some("acme"), "a/b.md").unwrap(), full_id(None, "a/b.md").unwrap());
        assert_eq!((parse_id(&own), parse_id(&shared)), ((Some("acme"), "a/b.md"), (None, "a/b.md")));
        assert!(check_id(&own).is_ok());
        // What a caller gives cannot name an owner, whoever the caller is.
        for forged in ["\u{1f}acme\u{1f}b", "\u{1f}b", "a\u{1f}b"] {
            assert!(full_id(Some("other"), forged).is_err() && full_id(None, forged).is_err(), "{forged:?}");
        }
        let info = |id: &str| DocumentInfo {
            id: id.into(),
            source: String::new(),
            title: String::new(),
            format: String::new(),
            meta: Meta::default(),
            origin: Origin::Put,
            sha256: String::new(),
            bytes: 1,
            passages: 1,
            lossy: false,
        };
        let sees = |tenant, id: &str| Filter { tenant, ..Filter::ALL }.wants(&info(id));
        assert!(sees(Some("acme"), &own) && sees(Some("acme"), &shared) && sees(None, &shared));
        assert!(!sees(None, &own) && !sees(Some("acm"), &own) && !sees(Some(""), &own));
    }

    #[test]
    fn names_are_bounded() {
        assert!(check_id("docs/a b.md").is_ok() && check_id(&"x".repeat(512)).is_ok());
        for bad in ["", " a", "a\n", &"x".repeat(513)] {
            assert!(check_id(bad).is_err(), "{bad:?}");
        }
        let meta =
            Meta { tags: vec!["b".into(), "a".into(), "b".into()], ..Meta::default() }.checked().unwrap();
        assert_eq!(meta.tags, ["a", "b"]);
        assert!(Meta { collection: String::new(), ..Meta::default() }.checked().is_err());
        assert!(Meta { tags: vec!["x".repeat(65)], ..Meta::default() }.checked().is_err());
    }
}
