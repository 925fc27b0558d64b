//! Credentials: the key with which requests are signed, from the environment or from the shared file of the
//! AWS tools.
//!
//! They are read again once the store says that they are not valid any more, because another program may
//! have renewed the file. They are never printed.

use std::env;
use std::fmt;
use std::path::PathBuf;

use base::{Error, Result};

/// Longest file of credentials, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// An access key.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) key: String,
    pub(crate) secret: String,
    /// Of a session with an end.
    pub(crate) token: Option<String>,
}

impl Credentials {
    /// The access key `key` with its secret, and the token of a session if it is of one.
    #[must_use]
    pub fn new(key: &str, secret: &str, token: Option<&str>) -> Self {
        Self { key: key.to_owned(), secret: secret.to_owned(), token: token.map(str::to_owned) }
    }

    /// Reads the credentials as the AWS tools do: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and
    /// `AWS_SESSION_TOKEN`; without them the profile `AWS_PROFILE`, or `default`, of the file
    /// `AWS_SHARED_CREDENTIALS_FILE`, or `~/.aws/credentials`.
    ///
    /// # Errors
    /// `Invalid` if there are none, naming both places.
    pub fn of_environment() -> Result<Self> {
        let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        if let (Some(key), Some(secret)) = (set("AWS_ACCESS_KEY_ID"), set("AWS_SECRET_ACCESS_KEY"))
        {
            return Ok(Self { key, secret, token: set("AWS_SESSION_TOKEN") });
        }
        let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".aws/credentials"));
        let file = env::var_os("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from).or_else(home);
        let profile = set("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
        let missing = || {
            Error::invalid("credentials of the object store").expected(format_args!(
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or profile `{profile}` in {}",
                file.as_ref()
                    .map_or_else(|| "~/.aws/credentials".into(), |file| file.display().to_string())
            ))
        };
        let path = file.as_ref().filter(|path| path.is_file()).ok_or_else(missing)?;
        let io = |error| Error::io("credentials of the object store", path.display(), error);
        if path.metadata().map_err(io)?.len() > FILE_BYTES_MAX {
            return Err(missing().got("a file of more than 1 MiB"));
        }
        let text = std::fs::read_to_string(path).map_err(io)?;
        Self::in_file(&text, &profile).ok_or_else(missing)
    }

    /// The credentials of `profile` in the text of a shared file.
    fn in_file(text: &str, profile: &str) -> Option<Self> {
        let lines = text.lines().map(str::trim);
        let heading = format!("[{profile}]");
        let section = lines.skip_while(|line| *line != heading).skip(1);
        let (mut key, mut secret, mut token) = (None, None, None);
        for line in section.take_while(|line| !line.starts_with('[')) {
            let Some((name, value)) = line.split_once('=') else { continue };
            let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
            match name.trim() {
                "aws_access_key_id" => key = value,
                "aws_secret_access_key" => secret = value,
                "aws_session_token" => token = value,
                _ => {}
            }
        }
        Some(Self { key: key?, secret: secret?, token })
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_found_in_a_shared_file() {
        let text = "[default]\naws_access_key_id = one\naws_secret_access_key=two\n\n# note\n[shop]\n\
                    aws_access_key_id=three\naws_secret_access_key = four=\naws_session_token=five\n[half]\n\
                    aws_access_key_id=six\n";
        assert_eq!(
            Credentials::in_file(text, "default"),
            Some(Credentials::new("one", "two", None))
        );
        let shop = Credentials::new("three", "four=", Some("five"));
        assert_eq!(Credentials::in_file(text, "shop"), Some(shop.clone()));
        assert_eq!(Credentials::in_file(text, "half"), None);
        assert_eq!(Credentials::in_file(text, "none"), None);
        assert!(!format!("{shop:?}").contains("four"), "a secret is not printed");
    }
}
