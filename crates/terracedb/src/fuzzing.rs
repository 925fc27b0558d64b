//! Parsers that are not public, for the fuzz targets; built with the feature `fuzzing` alone.

use base::Result;

/// Reads a write batch; `visit` is shown each operation's key and value.
///
/// # Errors
/// As recovery's.
pub fn batch(body: &[u8], mut visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
    for op in base::decode_ops(body) {
        let op = op?;
        visit(op.key, op.value);
    }
    Ok(())
}
