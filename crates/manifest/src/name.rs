//! The names of manifest files.

/// Returns the name of manifest `number`.
#[must_use]
pub fn file_name(number: u64) -> String {
    format!("manifest-{number:016x}")
}

/// Returns the number of the manifest called `name`, or `None` if `name` is not the name of a manifest.
#[must_use]
pub fn parse_file_name(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_prefix("manifest-")?, 16).ok()?;
    // Signs and capital letters parse as numbers too, but each file has exactly one name.
    (file_name(number) == name).then_some(number)
}

/// Whether `name` is the name of a manifest.
#[must_use]
pub fn is_file_name(name: &str) -> bool {
    parse_file_name(name).is_some()
}
