//! Location: the bucket and the prefix that a URL `s3://bucket/prefix` names.
//!
//! Only characters that no URL, list or shell writes in any other way are accepted.

use std::fmt;
use std::str::FromStr;

use base::{Error, Result};

/// Scheme of the URLs.
const SCHEME: &str = "s3://";
/// Longest prefix, bytes. The rest of a key takes less than 300 bytes, and S3 allows 1024.
const PREFIX_BYTES_MAX: usize = 512;

/// A prefix in a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    bucket: String,
    /// Empty, or ends in a slash.
    prefix: String,
}

impl Location {
    /// The bucket.
    #[must_use]
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The key of `name` under the prefix.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The name under the prefix of `key`; `None` for the key of something else.
    pub(crate) fn name<'a>(&self, key: &'a str) -> Option<&'a str> {
        key.strip_prefix(&self.prefix)
    }

    /// Whether `text` is a URL of an object store, good or bad.
    #[must_use]
    pub fn is_url(text: &str) -> bool {
        text.starts_with(SCHEME)
    }
}

impl FromStr for Location {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = |expected: String| {
            let got = format_args!("`{}`", text.escape_debug());
            Error::invalid("URL of an object store").expected(expected).got(got)
        };
        let rest = text.strip_prefix(SCHEME);
        let rest = rest.ok_or_else(|| refused(format!("{SCHEME}BUCKET/PREFIX")))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let in_bucket = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-');
        let is_bucket = (3..=63).contains(&bucket.len())
            && bucket.bytes().all(in_bucket)
            && bucket.starts_with(|first: char| first.is_ascii_alphanumeric())
            && bucket.ends_with(|last: char| last.is_ascii_alphanumeric())
            && !bucket.contains("..");
        if !is_bucket {
            return Err(refused(
                "a bucket of 3 to 63 lower-case letters, digits, '.' and '-'".to_owned(),
            ));
        }
        let prefix =
            if prefix == "/" { prefix } else { prefix.strip_suffix('/').unwrap_or(prefix) };
        let in_prefix = |byte: u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'-' | b'_' | b'=')
        };
        let is_part = |part: &str| !part.is_empty() && !part.bytes().all(|byte| byte == b'.');
        let is_prefix = prefix.len() <= PREFIX_BYTES_MAX
            && prefix.bytes().all(in_prefix)
            && (prefix.is_empty() || prefix.split('/').all(is_part));
        if !is_prefix {
            return Err(refused(format!(
                "a prefix of at most {PREFIX_BYTES_MAX} letters, digits, '.', '-', '_', '=', in parts \
                 between single slashes"
            )));
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Self { bucket: bucket.to_owned(), prefix })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = self.prefix.strip_suffix('/').unwrap_or_default();
        match prefix.is_empty() {
            true => write!(f, "{SCHEME}{}", self.bucket),
            false => write!(f, "{SCHEME}{}/{prefix}", self.bucket),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_bucket_and_prefix() {
        for (text, bucket, key) in [
            ("s3://shop/backups/eu", "shop", "backups/eu/latest"),
            ("s3://shop/backups/", "shop", "backups/latest"),
            ("s3://shop/", "shop", "latest"),
            ("s3://shop.eu-1", "shop.eu-1", "latest"),
        ] {
            let location: Location = text.parse().unwrap();
            assert_eq!((location.bucket(), &*location.key("latest")), (bucket, key));
            assert_eq!(location.name(key), Some("latest"));
            assert_eq!(location.to_string(), text.trim_end_matches('/'));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let long = format!("s3://shop/{}", "x".repeat(PREFIX_BYTES_MAX + 1));
        for text in [
            "shop/backups",
            "s3:/shop",
            "s3://",
            "s3://a",
            "s3://Shop/x",
            "s3://-shop",
            "s3://a..b",
            "s3://shop/a//b",
            "s3://shop/../x",
            "s3://shop/.",
            "s3://shop/a b",
            "s3://shop/a?b",
            "s3://shop/é",
            "s3://shop//",
            &long,
        ] {
            assert!(text.parse::<Location>().is_err(), "{text}");
        }
    }
}
