//! Keys and values as text on one line: bytes that a line cannot hold are escaped with a backslash.
//!
//! `scan` prints this form, `ingest` reads it, and every key argument is read as it. It holds any byte
//! string:
//!
//! | text | byte |
//! |---|---|
//! | `\\` | a backslash |
//! | `\t`, `\n`, `\r` | tab, newline, carriage return |
//! | `\xHH` | the byte with these two hexadecimal digits |
//! | anything else | itself |
//!
//! Control characters and bytes that are not UTF-8 are printed as `\xHH`, so that the output is text, and
//! does not control a terminal; they are also read as they are.

use terracedb::{Error, Result};

/// The text of `bytes`.
pub(crate) fn escape(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for byte in chunk.valid().bytes() {
            match byte {
                b'\\' => text.extend_from_slice(b"\\\\"),
                b'\t' => text.extend_from_slice(b"\\t"),
                b'\n' => text.extend_from_slice(b"\\n"),
                b'\r' => text.extend_from_slice(b"\\r"),
                0..=0x1f | 0x7f => push_hex(byte, &mut text),
                _ => text.push(byte),
            }
        }
        chunk.invalid().iter().for_each(|byte| push_hex(*byte, &mut text));
    }
    text
}

fn push_hex(byte: u8, text: &mut Vec<u8>) {
    text.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
}

/// The bytes that `text` stands for.
///
/// # Errors
/// `Invalid` if a backslash begins no escape.
pub(crate) fn unescape(text: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        let (plain, escaped) = rest.split_at_checked(at).unwrap_or((rest, &[]));
        bytes.extend_from_slice(plain);
        let (byte, after) = match escaped {
            [_, b'\\', after @ ..] => (b'\\', after),
            [_, b't', after @ ..] => (b'\t', after),
            [_, b'n', after @ ..] => (b'\n', after),
            [_, b'r', after @ ..] => (b'\r', after),
            [_, b'x', high, low, after @ ..] => {
                let pair = digit(*high).zip(digit(*low)).ok_or_else(|| refused(escaped))?;
                (pair.0 << 4 | pair.1, after)
            }
            _ => return Err(refused(escaped)),
        };
        bytes.push(byte);
        rest = after;
    }
    bytes.extend_from_slice(rest);
    Ok(bytes)
}

fn digit(character: u8) -> Option<u8> {
    char::from(character).to_digit(16).map(|digit| digit as u8)
}

/// The error of a backslash, with which `escaped` begins.
fn refused(escaped: &[u8]) -> Error {
    let shown = escaped.get(..escaped.len().min(4)).unwrap_or_default();
    Error::invalid("escape")
        .expected(r"\\ for a backslash, or \t, \n, \r or \x and two hexadecimal digits")
        .got(format_args!("`{}`", String::from_utf8_lossy(shown)))
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    #[test]
    fn any_bytes_are_text_of_one_line_and_back() {
        let (mut rng, seed) = Rng::from_env();
        for turn in 0..5000 {
            let mut bytes = vec![0; rng.below(20) as usize];
            rng.fill(&mut bytes);
            if turn % 2 == 0 {
                // Mostly bytes that are escaped, and their escapes.
                let special = b"\\\t\n\rtnrx0f\x00\x7f\x1b\xff\xc3\xa9";
                for byte in &mut bytes {
                    *byte = special[usize::from(*byte) % special.len()];
                }
            }
            let text = escape(&bytes);
            let shown = String::from_utf8(text.clone()).expect("UTF-8");
            assert!(!shown.chars().any(|c| c.is_ascii_control()), "seed {seed}: {shown:?}");
            assert_eq!(unescape(&text).unwrap(), bytes, "seed {seed}: {shown:?}");
        }
        assert_eq!(escape("a\\b\té\x00".as_bytes()), r"a\\b\té\x00".as_bytes());
        assert_eq!(escape(b"\xff\x1b"), br"\xff\x1b");
    }

    #[test]
    fn unknown_escapes_are_refused_by_name() {
        for (text, shown) in
            [(r"C:\dir", r"`\dir`"), (r"end\", r"`\`"), (r"\x4", r"`\x4`"), (r"\xg0", r"`\xg0`")]
        {
            let error = unescape(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(shown) && error.contains("for a backslash"), "{text}: {error}");
        }
        // Raw control characters and bytes are read as they are.
        assert_eq!(unescape(b"a\tb\xff\x00").unwrap(), b"a\tb\xff\x00");
        assert_eq!(unescape(br"\xfF").unwrap(), [0xff]);
    }
}
