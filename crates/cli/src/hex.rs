//! Keys and values as hexadecimal digits, with `--hex`.

use terracedb::{Error, Result};

/// The bytes that the hexadecimal digits `text` encode.
///
/// # Errors
/// `Invalid` if `text` is not pairs of hexadecimal digits.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>> {
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

/// The hexadecimal digits of `bytes`.
pub(crate) fn encode(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_text_decodes_and_encodes() {
        assert_eq!(decode("00ff1A").unwrap(), [0, 255, 26]);
        assert_eq!(encode(&[0, 255, 26]), b"00ff1a");
        for text in ["0", "0g", "0x00"] {
            assert!(decode(text).is_err(), "{text}");
        }
    }
}
