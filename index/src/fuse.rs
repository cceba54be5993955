//! How do two ranked lists become one? By a convex combination of both scores, which beats reciprocal ranks in and out of
//! the domain that its one weight was chosen on (Bruch, Gai and Ingber, arXiv 2210.11934).

use crate::ArmScore;
use crate::arm::Ranked;
use std::collections::HashMap;

/// Share of the lexical score; the rest is the cosine's. The highest of the values that do equally well on the tuning half
/// of SciFact, see docs/reports/2026-12-01-retrieval.md.
const LEXICAL_SHARE: f32 = 0.4;

/// A passage with both arms' judgements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fused {
    pub(crate) row: usize,
    /// Lexical score as a share of the list's best, and cosine, in fixed proportion, times the passage's weight.
    pub(crate) score: f32,
    pub(crate) lexical: Option<ArmScore>,
    pub(crate) vector: Option<ArmScore>,
}

/// Fuses the lists, best first; rows of equal score stand in row order. `cosine` is asked for passages that only the
/// lexical arm found; where it does not know, they count as the last of the vector arm's list.
pub(crate) fn fuse(
    lexical: &[Ranked],
    vector: &[Ranked],
    cosine: impl Fn(usize) -> Option<f32>,
    weight: impl Fn(usize) -> f32,
) -> Vec<Fused> {
    let mut by_row: HashMap<usize, Fused> = HashMap::new();
    let entry = |row| Fused { row, score: 0.0, lexical: None, vector: None };
    for (at, ranked) in lexical.iter().enumerate() {
        let judged = ArmScore { rank: at + 1, score: ranked.score };
        by_row.entry(ranked.row).or_insert_with(|| entry(ranked.row)).lexical = Some(judged);
    }
    for (at, ranked) in vector.iter().enumerate() {
        let judged = ArmScore { rank: at + 1, score: ranked.score };
        by_row.entry(ranked.row).or_insert_with(|| entry(ranked.row)).vector = Some(judged);
    }
    let best = lexical.first().map_or(1.0, |ranked| ranked.score.max(f32::MIN_POSITIVE));
    let last = vector.last().map_or(0.0, |ranked| ranked.score);
    let mut fused: Vec<Fused> = by_row.into_values().collect();
    for one in &mut fused {
        // What the lexical arm did not find shares no term or few.
        let words = one.lexical.map_or(0.0, |judged| judged.score / best);
        let meaning = || one.vector.map(|judged| judged.score).or_else(|| cosine(one.row)).unwrap_or(last);
        one.score = weight(one.row)
            * match (lexical.is_empty(), vector.is_empty()) {
                (_, true) => words,
                (true, false) => meaning(),
                (false, false) => LEXICAL_SHARE * words + (1.0 - LEXICAL_SHARE) * meaning(),
            };
    }
    fused.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.row.cmp(&b.row)));
    fused
}

/// Share of a passage's score that its document's best other passage gives. Of 0.05 to 0.2 the middle, as all do equally well
/// on the tuning half of SciFact.
const SUPPORT_SHARE: f32 = 0.1;

/// Lets each passage's document speak for it: of two passages that say the same the one comes first whose page goes on
/// about it. The voice is the document's best other candidate; a document of one passage speaks for itself. `passages` is
/// the number of passages that a row's document has.
pub(crate) fn support<D: Eq + std::hash::Hash>(
    fused: &mut [Fused],
    document: impl Fn(usize) -> D,
    passages: impl Fn(usize) -> usize,
) {
    // The list is ordered, so the first two of a document are its best.
    let mut best: HashMap<D, [Option<(usize, f32)>; 2]> = HashMap::new();
    for one in fused.iter() {
        let two = best.entry(document(one.row)).or_default();
        if let Some(free) = two.iter_mut().find(|place| place.is_none()) {
            *free = Some((one.row, one.score));
        }
    }
    for one in fused.iter_mut() {
        let other = best
            .get(&document(one.row))
            .and_then(|two| two.iter().flatten().find(|(row, _)| *row != one.row));
        let voice = match other {
            Some((_, score)) => *score,
            None if passages(one.row) < 2 => one.score,
            None => 0.0,
        };
        one.score = (1.0 - SUPPORT_SHARE) * one.score + SUPPORT_SHARE * voice;
    }
    fused.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.row.cmp(&b.row)));
}

/// Passages of one document that stand where their scores put them; each further one keeps [`CROWD_SHARE`] of its score, so
/// that one long document does not crowd out the others.
const PASSAGES_UNCROWDED: usize = 3;
const CROWD_SHARE: f32 = 0.9;

/// Lets further passages of a document that has its share stand back, and orders the list anew. `document` gives a
/// document's number for a row.
pub(crate) fn spread<D: Eq + std::hash::Hash>(fused: &mut [Fused], document: impl Fn(usize) -> D) {
    let mut counts: HashMap<D, usize> = HashMap::new();
    for one in fused.iter_mut() {
        let count = counts.entry(document(one.row)).or_default();
        *count += 1;
        if *count > PASSAGES_UNCROWDED && one.score > 0.0 {
            one.score *= CROWD_SHARE;
        }
    }
    fused.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.row.cmp(&b.row)));
}

/// Share of its score that a passage keeps: lists of sources are full of a page's key words and say nothing about them,
/// so they keep half and stand behind the text they belong to.
pub(crate) fn weight(headings: &[String]) -> f32 {
    const LISTS: [&str; 7] =
        ["sources", "references", "bibliography", "further reading", "see also", "external links", "links"];
    let last = headings.last().map(|heading| heading.trim().to_lowercase());
    if last.is_some_and(|last| LISTS.contains(&last.trim_end_matches(':'))) { 0.5 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pairs: &[(usize, f32)]) -> Vec<Ranked> {
        pairs.iter().map(|(row, score)| Ranked { row: *row, score: *score }).collect()
    }

    fn rows(fused: &[Fused]) -> Vec<usize> {
        fused.iter().map(|one| one.row).collect()
    }

    #[test]
    fn scores_are_joined_in_their_proportion() {
        let fused = fuse(&list(&[(7, 8.0), (1, 4.0)]), &list(&[(9, 0.9), (1, 0.7)]), |_| Some(0.1), |_| 1.0);
        let wanted = [(9, 0.6 * 0.9), (1, 0.4 * 0.5 + 0.6 * 0.7), (7, 0.4 + 0.6 * 0.1)];
        // Row 1: 0.62; row 9: 0.54; row 7: 0.46.
        assert_eq!(rows(&fused), [1, 9, 7]);
        for (row, score) in wanted {
            let found = fused.iter().find(|one| one.row == row).unwrap().score;
            assert!((found - score).abs() < 1e-6, "row {row}: {found}");
        }
        assert_eq!(fused[2].vector, None, "a cosine that is filled in is no judgement of the arm");
    }

    #[test]
    fn what_no_cosine_is_known_of_counts_as_the_last_of_the_list() {
        let fused = fuse(&list(&[(7, 8.0)]), &list(&[(9, 0.9), (1, 0.5)]), |_| None, |_| 1.0);
        assert!((fused.iter().find(|one| one.row == 7).unwrap().score - (0.4 + 0.6 * 0.5)).abs() < 1e-6);
    }

    #[test]
    fn an_arm_that_found_nothing_leaves_the_other_in_order() {
        let other = list(&[(5, 0.9), (4, 0.8), (6, -0.1)]);
        assert_eq!(rows(&fuse(&[], &other, |_| None, |_| 1.0)), [5, 4, 6]);
        assert_eq!(rows(&fuse(&other, &[], |_| None, |_| 1.0)), [5, 4, 6]);
    }

    #[test]
    fn the_page_that_goes_on_about_it_comes_first() {
        // Rows 0 to 4 are of one document, row 9 of another with more passages, row 10 is a document by itself.
        let voices = |other: usize| {
            let mut fused = fuse(&list(&[(9, 1.0), (0, 0.98), (10, 0.9), (1, 0.8)]), &[], |_| None, |_| 1.0);
            support(&mut fused, |row| row / 5, |row| if row == 10 { 1 } else { other });
            fused
        };
        let fused = voices(5);
        assert_eq!(rows(&fused), [0, 9, 10, 1]);
        for (at, score) in [(0, 0.9 * 0.98 + 0.1 * 0.8), (1, 0.9), (2, 0.9), (3, 0.9 * 0.8 + 0.1 * 0.98)] {
            assert!((fused[at].score - score).abs() < 1e-6, "{at}: {}", fused[at].score);
        }
        assert_eq!(rows(&voices(1)), [9, 0, 10, 1], "a document of one passage has nobody else to ask");
    }

    #[test]
    fn a_document_with_many_passages_leaves_room() {
        let list = list(&[(0, 1.0), (1, 0.99), (2, 0.98), (3, 0.97), (9, 0.9), (4, 0.5)]);
        let mut fused = fuse(&list, &[], |_| None, |_| 1.0);
        // Rows 0 to 4 are of one document: the fourth and fifth fall to 0.873 and 0.45.
        spread(&mut fused, |row| row / 5);
        assert_eq!(rows(&fused), [0, 1, 2, 9, 3, 4]);
    }

    #[test]
    fn lists_of_sources_stand_back() {
        let both = list(&[(0, 0.9), (1, 0.8)]);
        let fused =
            fuse(&both, &both, |_| None, |row| if row == 0 { weight(&["Sources".into()]) } else { 1.0 });
        assert_eq!(fused[0].row, 1);
        assert!((weight(&["Sources".into(), "On rivers".into()]) - 1.0).abs() < f32::EPSILON);
    }
}
