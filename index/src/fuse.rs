//! How do two ranked lists become one? By reciprocal ranks (Cormack, Clarke and Buettcher, SIGIR 2009).

use crate::ArmScore;
use crate::arm::Ranked;
use std::collections::HashMap;

/// Softens the lead of the first places; the value of the paper.
const RANK_OFFSET: f32 = 60.0;

/// A passage with both arms' judgements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fused {
    pub(crate) row: usize,
    /// Sum over the arms of 1 / (60 + rank), times the passage's weight.
    pub(crate) score: f32,
    pub(crate) lexical: Option<ArmScore>,
    pub(crate) vector: Option<ArmScore>,
}

/// Fuses the lists, best first; rows of equal score stand in row order.
pub(crate) fn fuse(lexical: &[Ranked], vector: &[Ranked], weight: impl Fn(usize) -> f32) -> Vec<Fused> {
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
    let mut fused: Vec<Fused> = by_row.into_values().collect();
    for one in &mut fused {
        let ranks = one.lexical.iter().chain(&one.vector).map(|judged| judged.rank);
        one.score = weight(one.row) * ranks.map(|rank| 1.0 / (RANK_OFFSET + rank as f32)).sum::<f32>();
    }
    fused.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.row.cmp(&b.row)));
    fused
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

    fn list(rows: &[usize]) -> Vec<Ranked> {
        rows.iter().map(|row| Ranked { row: *row, score: 1.0 }).collect()
    }

    #[test]
    fn agreement_beats_one_first_place() {
        let fused = fuse(&list(&[7, 1, 2]), &list(&[9, 1, 3]), |_| 1.0);
        let rows: Vec<usize> = fused.iter().map(|one| one.row).collect();
        // Row 1: 2/62. Rows 7 and 9: 1/61 each, in row order. Rows 2 and 3: 1/63 each.
        assert_eq!(rows, [1, 7, 9, 2, 3]);
        assert!((fused[0].score - 2.0 / 62.0).abs() < 1e-7);
        assert_eq!(fused[1].vector, None);
    }

    #[test]
    fn an_arm_that_found_nothing_leaves_the_other_in_order() {
        let rows: Vec<usize> = fuse(&[], &list(&[5, 4, 6]), |_| 1.0).iter().map(|one| one.row).collect();
        assert_eq!(rows, [5, 4, 6]);
    }

    #[test]
    fn lists_of_sources_stand_back() {
        let fused =
            fuse(
                &list(&[0, 1]),
                &list(&[0, 1]),
                |row| if row == 0 { weight(&["Sources".into()]) } else { 1.0 },
            );
        assert_eq!(fused[0].row, 1);
        assert!((weight(&["Sources".into(), "On rivers".into()]) - 1.0).abs() < f32::EPSILON);
    }
}
