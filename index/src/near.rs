//! How close together do a query's words stand in a passage? Each pair of neighbouring occurrences of two of its words
//! counts by the other word's rarity and the square of their distance (Büttcher, Clarke and Lushman, SIGIR 2006), so that
//! "ridge point" weighs more than a ridge here and a point there.

/// Where a further pair begins to count less.
const SATURATION: f32 = 0.9;

/// The occurrences of the query's terms in one run of text, in order: `(position in words, number of the term)`.
pub(crate) type Places = Vec<(usize, usize)>;

/// Adds up the pairs of one run of text, each worth `weight`, into `sums`, one for each term.
pub(crate) fn pair(places: &Places, rarity: &[f32], weight: f32, sums: &mut [f32]) {
    for both in places.windows(2) {
        let [(at, one), (then, other)] = both else { continue };
        if one != other {
            let distance = then.saturating_sub(*at).max(1) as f32;
            sums[*one] += weight * rarity[*other] / (distance * distance);
            sums[*other] += weight * rarity[*one] / (distance * distance);
        }
    }
}

/// The score of the summed pairs. A frequent word adds its rarity at most, a rare one 1: nearness tells apart passages
/// that hold the same words, and must not outweigh the words.
pub(crate) fn score(sums: &[f32], rarity: &[f32]) -> f32 {
    let damped = sums.iter().zip(rarity).map(|(sum, rarity)| {
        if *sum > 0.0 { rarity.min(1.0) * sum * (1.0 + SATURATION) / (sum + SATURATION) } else { 0.0 }
    });
    damped.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_count_by_rarity_and_distance() {
        let mut sums = [0.0; 3];
        // Words 3 and 4 are neighbours, 4 and 8 stand four apart, and a word repeated is no pair.
        pair(&vec![(3, 0), (4, 1), (8, 2), (9, 2)], &[1.0, 2.0, 4.0], 3.0, &mut sums);
        let wanted = [3.0 * 2.0, 3.0 * (1.0 + 4.0 / 16.0), 3.0 * 2.0 / 16.0];
        for (sum, wanted) in sums.iter().zip(wanted) {
            assert!((sum - wanted).abs() < 1e-6, "{sums:?}");
        }
    }

    #[test]
    fn a_rare_term_adds_at_most_its_ceiling() {
        assert!(score(&[0.0, 0.0], &[5.0, 5.0]).abs() < f32::EPSILON);
        let (near, nearer) = (score(&[1.0, 0.0], &[5.0, 5.0]), score(&[100.0, 0.0], &[5.0, 5.0]));
        assert!((near - 1.0).abs() < 1e-6 && nearer > near && nearer < 1.9, "{near}, {nearer}");
        assert!((score(&[1.0], &[0.5]) - 0.5).abs() < 1e-6, "a frequent one no more than its rarity");
    }
}
