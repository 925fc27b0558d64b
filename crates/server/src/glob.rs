//! Patterns of KEYS, SCAN and PSUBSCRIBE, as `stringmatchlen` of Redis: `*`, `?`, `[a-c]`, `[^x]`, `\\`.
//!
//! Cost: pattern length times text length at worst, without recursion: one position to return to suffices.

/// Whether `text` matches `pattern`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Behind the last `*`, and the text position that it was tried at last.
    let mut back: Option<(usize, usize)> = None;
    loop {
        let step = match (pattern.get(p), text.get(t)) {
            (Some(b'*'), _) => {
                back = Some((p + 1, t));
                p += 1;
                continue;
            }
            (None, None) => return true,
            (Some(_), Some(byte)) => one(pattern.get(p..).unwrap_or_default(), *byte),
            _ => None,
        };
        match (step, &mut back) {
            (Some(length), _) => (p, t) = (p + length, t + 1),
            (None, Some((behind, tried))) if *tried < text.len() => {
                *tried += 1;
                (p, t) = (*behind, *tried);
            }
            _ => return false,
        }
    }
}

/// The length of the pattern element at the start of `pattern` if it matches `byte`.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', rest @ ..] => {
            let (mut at, is_negated) = match rest {
                [b'^', ..] => (1, true),
                _ => (0, false),
            };
            let mut is_in = false;
            loop {
                match rest.get(at..).unwrap_or_default() {
                    [] => break,
                    [b']', ..] => {
                        at += 1;
                        break;
                    }
                    [b'\\', escaped, ..] => {
                        is_in |= *escaped == byte;
                        at += 2;
                    }
                    [low, b'-', high, ..] => {
                        let (low, high) = (low.min(high), low.max(high));
                        is_in |= (low..=high).contains(&&byte);
                        at += 3;
                    }
                    [literal, ..] => {
                        is_in |= *literal == byte;
                        at += 1;
                    }
                }
            }
            (is_in != is_negated).then_some(at + 1)
        }
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[b-a]llo", "hallo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("[abc", "a", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        let (many, long) = ("*a".repeat(100), "a".repeat(50_000));
        assert!(!matches(format!("{many}b").as_bytes(), long.as_bytes()), "in bounded time");
    }
}
