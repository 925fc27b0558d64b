//! Golden files: formats as text, for tests.

/// Decodes a golden file: hexadecimal words, `#` comments, and `N * XX` for runs of one byte.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        if let Some((count, byte)) = line.split_once('*') {
            let count: usize = count.trim().parse().unwrap();
            bytes.resize(bytes.len() + count, u8::from_str_radix(byte.trim(), 16).unwrap());
            continue;
        }
        let digits: String = line.split_whitespace().collect();
        for at in (0..digits.len()).step_by(2) {
            bytes.push(u8::from_str_radix(&digits[at..at + 2], 16).unwrap());
        }
    }
    bytes
}
