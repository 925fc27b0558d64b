//! The words of a line: separated by white space, except in quotes. Pure.

use terracedb::{Error, Result};

/// Splits `line`. A word may be in double quotes, where `\"` is a quote, or in single quotes. Other
/// backslashes stay as they are: they begin the escapes of keys and values.
///
/// # Errors
/// `Invalid` if a quote is not closed.
pub(super) fn words(line: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '"' | '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        None => {
                            return Err(Error::invalid("line")
                                .expected(format_args!("a closing {char}"))
                                .got("its end"));
                        }
                        Some(end) if end == char => break,
                        Some('\\') if char == '"' => match chars.next() {
                            Some('"') => word.push('"'),
                            other => {
                                word.push('\\');
                                word.extend(other);
                            }
                        },
                        Some(other) => word.push(other),
                    }
                }
            }
            space if space.is_whitespace() => words.extend(word.take()),
            // The rest of the line is a comment.
            '#' if word.is_none() => break,
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_at_spaces_outside_quotes() {
        let split = |line: &str| words(line).unwrap();
        assert_eq!(split("  put  a\tb "), ["put", "a", "b"]);
        assert_eq!(
            split(r#"put "a b" 'c "d"' "" e"f g"h"#),
            ["put", "a b", "c \"d\"", "", "ef gh"]
        );
        assert_eq!(
            split(r#"put "say \"hi\"" "C:\\dir\x00""#),
            ["put", "say \"hi\"", r"C:\\dir\x00"]
        );
        assert_eq!(split("get a # a comment"), ["get", "a"]);
        assert_eq!(split("get a#b"), ["get", "a#b"]);
        assert!(split("# only a comment").is_empty());
        assert!(
            words("put \"a").is_err() && words("put 'a").is_err() && words("put \"a\\").is_err()
        );
    }
}
