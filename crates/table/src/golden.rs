//! Golden files: formats as text, for tests.

/// Decodes a golden file: hexadecimal words, `#` comments, and `N * 00` for runs of zeros.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        if let Some((count, zero)) = line.split_once('*') {
            assert_eq!(zero.trim(), "00", "{line}");
            let count: usize = count.trim().parse().unwrap();
            bytes.resize(bytes.len() + count, 0);
            continue;
        }
        let digits: String = line.split_whitespace().collect();
        for at in (0..digits.len()).step_by(2) {
            bytes.push(u8::from_str_radix(&digits[at..at + 2], 16).unwrap());
        }
    }
    bytes
}
