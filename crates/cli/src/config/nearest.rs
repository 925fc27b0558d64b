//! Suggestions for mistyped words.

/// The word nearest to `typed` by edit distance, if the distance is at most a third of the word's letters.
pub(super) fn nearest<'a>(typed: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    words
        .map(|word| (distance(typed, word), word))
        .filter(|(distance, word)| distance * 3 <= word.len().max(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// The number of insertions, deletions and replacements that turn `from` into `to` (Levenshtein 1966). Keeps
/// one row of the table.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above, from) in (1..).zip(from.bytes()) {
        // The cells diagonally above and to the left of the current cell.
        let (mut diagonal, mut left) = (above - 1, above);
        if let Some(first) = row.first_mut() {
            *first = above;
        }
        for (to, cell) in to.bytes().zip(row.iter_mut().skip(1)) {
            let replaced = diagonal + usize::from(from != to);
            diagonal = *cell;
            left = replaced.min(diagonal + 1).min(left + 1);
            *cell = left;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits_in_both_directions() {
        for (from, to, edits) in
            [("", "", 0), ("abc", "", 3), ("", "abc", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!(distance(from, to), edits, "{from} {to}");
            assert_eq!(distance(to, from), edits, "{to} {from}");
        }
    }

    #[test]
    fn only_a_near_word_is_suggested() {
        let words = ["memory", "codec", "flash.path"];
        let near = |typed| nearest(typed, words.into_iter());
        assert_eq!(near("memroy"), Some("memory"));
        assert_eq!(near("codek"), Some("codec"));
        assert_eq!(near("flash.dir"), None);
        assert_eq!(near("port"), None);
    }
}
