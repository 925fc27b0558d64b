//! Keys and values as text: either the bytes themselves, or hexadecimal digits with `--hex`.

use terracedb::{Error, Result};

/// The bytes that `text` stands for: its own bytes, or the bytes that its hexadecimal digits encode.
///
/// # Errors
/// `Invalid` if `hex` is set and `text` is not pairs of hexadecimal digits.
pub(crate) fn decode(text: &str, hex: bool) -> Result<Vec<u8>> {
    if !hex {
        return Ok(text.as_bytes().to_vec());
    }
    let refused = || {
        Error::invalid("argument")
            .expected("pairs of hexadecimal digits")
            .got(format_args!("`{text}`"))
    };
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect();
    let (pairs, []) = digits.as_deref().ok_or_else(refused)?.as_chunks::<2>() else {
        return Err(refused());
    };
    Ok(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// [`decode`] of an optional argument.
///
/// # Errors
/// As [`decode`].
pub(crate) fn decode_optional(text: Option<&String>, hex: bool) -> Result<Option<Vec<u8>>> {
    text.map(|text| decode(text, hex)).transpose()
}

/// The text to print for `bytes`: the bytes themselves, or hexadecimal digits.
pub(crate) fn encode(bytes: &[u8], hex: bool) -> Vec<u8> {
    if hex {
        bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
    } else {
        bytes.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_text_decodes_and_encodes() {
        assert_eq!(decode("00ff1A", true).unwrap(), [0, 255, 26]);
        assert_eq!(encode(&[0, 255, 26], true), b"00ff1a");
        assert_eq!(decode("ab", false).unwrap(), b"ab");
        for text in ["0", "0g", "0x00"] {
            assert!(decode(text, true).is_err(), "{text}");
        }
    }
}
