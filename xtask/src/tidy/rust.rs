//! Rust source split into code and comments, so that a rule about one does not see the other.
//!
//! Both halves keep all line breaks, so a line has the same number in each. String and character literals
//! are in neither half.

/// A Rust source, split.
pub(crate) struct Split {
    /// The source without comments and literals.
    pub(crate) code: String,
    /// The comments alone.
    pub(crate) comments: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Code,
    Comment,
    Literal,
}

/// Splits `source`.
pub(crate) fn split(source: &str) -> Split {
    let mut split = Split { code: String::new(), comments: String::new() };
    let mut rest = source;
    while !rest.is_empty() {
        let (len, part) = token(rest);
        let (token, after) = rest.split_at_checked(len).unwrap_or((rest, ""));
        match part {
            Part::Code => split.code.push_str(token),
            Part::Comment => split.comments.push_str(token),
            Part::Literal => {}
        }
        for half in [(Part::Code, &mut split.code), (Part::Comment, &mut split.comments)] {
            if half.0 != part {
                half.1.extend(token.matches('\n'));
            }
        }
        rest = after;
    }
    split
}

/// The length in bytes and the kind of the token that `rest` begins with.
fn token(rest: &str) -> (usize, Part) {
    let mut characters = rest.chars();
    let first = characters.next().unwrap_or_default();
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), Part::Comment);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), Part::Comment);
    }
    if first == '"' {
        return (quoted(rest, '"'), Part::Literal);
    }
    if first == '\'' {
        let (second, third) = (characters.next(), characters.next());
        let is_literal = second == Some('\\') || third == Some('\'');
        return if is_literal { (quoted(rest, '\''), Part::Literal) } else { (1, Part::Code) };
    }
    if !is_word(first) {
        return (first.len_utf8(), Part::Code);
    }
    let word_len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
    let (word, after) = rest.split_at_checked(word_len).unwrap_or((rest, ""));
    let literal = match word {
        "r" | "br" | "cr" => raw_string(after),
        "b" | "c" if after.starts_with('"') => quoted(after, '"'),
        "b" if after.starts_with('\'') => quoted(after, '\''),
        _ => 0,
    };
    let part = if literal > 0 { Part::Literal } else { Part::Code };
    (word_len + literal, part)
}

/// Whether an identifier may contain `c`.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `text` contains `word` as a whole word.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let after = text.get(at + word.len()..).and_then(|after| after.chars().next());
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The length of the literal between `mark`s at the start of `rest`. It may contain escaped marks.
fn quoted(rest: &str, mark: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == mark {
            return at + 1;
        }
    }
    rest.len()
}

/// The length of the raw string at the start of `rest`, hashes included; 0 if there is none.
fn raw_string(rest: &str) -> usize {
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let Some(content) = rest.get(hashes..).and_then(|rest| rest.strip_prefix('"')) else {
        return 0;
    };
    let end = format!("\"{}", "#".repeat(hashes));
    content.find(&end).map_or(rest.len(), |at| hashes + 1 + at + end.len())
}

/// The length of the block comment at the start of `rest`, nested comments included.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(left) = rest.get(at..).filter(|left| !left.is_empty()) {
        if left.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if left.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += left.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_comments_and_literals_are_separated() {
        let Split { code, comments } = split(
            "let a = \"// not \\\" one\"; // one\nlet b: &'static str = r#\"/* \" no */\"#;\n\
             /* two /* nested\n */ still */ let c = ['\"', b'\\'', '/'] ; br##\"x\"#\ny\"##; r#raw",
        );
        assert_eq!(comments, " // one\n\n/* two /* nested\n */ still */\n".trim_start());
        assert_eq!(code, "let a = ; \nlet b: &'static str = ;\n\n let c = [, , ] ; \n; r#raw");
    }

    #[test]
    fn an_unfinished_literal_or_comment_ends_with_the_file() {
        for text in ["\"open", "r#\"open\"", "/* open", "'\\", "b\"", "é\"é"] {
            split(text);
        }
        assert_eq!(split("x \"open").code, "x ");
    }

    #[test]
    fn has_word_finds_whole_words_only() {
        assert!(has_word("unsafe {", "unsafe") && has_word("#[unsafe(x)]", "unsafe"));
        assert!(!has_word("unsafe_code not_unsafe", "unsafe"));
    }
}
