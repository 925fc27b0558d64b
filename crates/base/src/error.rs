//! The error type. Few kinds, each a prescription; the rest says what, where, expected and got.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller should do about an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Nothing is wrong with the request or the store: try again later.
    Retry,
    /// The caller's mistake: change the request, the settings or the environment.
    Invalid,
    /// Stored bytes are damaged or unreadable: run `terrace check`, restore what it names.
    Corrupt,
    /// The device is full: free space, then write again.
    NoSpace,
    /// An earlier failure makes further writes unsafe: reads go on, reopen to write.
    Poisoned,
    /// The store or keyspace is closed or gone.
    Closed,
    /// Another write came between what a transaction read and its commit: run the transaction
    /// again, from its first read.
    Conflict,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Retry => "try again",
            Self::Invalid => "the caller's mistake",
            Self::Corrupt => "corrupt",
            Self::NoSpace => "no space",
            Self::Poisoned => "poisoned",
            Self::Closed => "closed",
            Self::Conflict => "conflict",
        })
    }
}

/// An error: its kind, what it concerns, where, what was expected and what was found instead.
///
/// Cheap to clone: a poisoned writer hands its first error to every later caller.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    what: Cow<'static, str>,
    place: Option<String>,
    expected: Option<String>,
    got: Option<String>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind` about `what`.
    #[must_use]
    pub fn new(kind: ErrorKind, what: impl Into<Cow<'static, str>>) -> Self {
        let what = what.into();
        Self(Arc::new(Inner { kind, what, place: None, expected: None, got: None, source: None }))
    }

    /// [`ErrorKind::Retry`].
    #[must_use]
    pub fn retry(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Retry, what)
    }

    /// [`ErrorKind::Invalid`].
    #[must_use]
    pub fn invalid(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Invalid, what)
    }

    /// [`ErrorKind::Corrupt`].
    #[must_use]
    pub fn corrupt(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Corrupt, what)
    }

    /// [`ErrorKind::NoSpace`].
    #[must_use]
    pub fn no_space(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::NoSpace, what)
    }

    /// [`ErrorKind::Closed`].
    #[must_use]
    pub fn closed(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Closed, what)
    }

    /// [`ErrorKind::Conflict`].
    #[must_use]
    pub fn conflict(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Conflict, what)
    }

    /// The error every later write gets after `first` made further writes unsafe.
    #[must_use]
    pub fn poisoned_by(what: impl Into<Cow<'static, str>>, first: &Self) -> Self {
        Self::new(ErrorKind::Poisoned, what).caused_by(first.clone())
    }

    /// An operating system's error on `what` at `place`.
    ///
    /// A full device is `NoSpace`, an unreadable sector `Corrupt`, an interruption or a shortage
    /// `Retry`, anything else (permissions, missing paths) `Invalid`.
    #[must_use]
    pub fn io(
        what: impl Into<Cow<'static, str>>,
        place: impl fmt::Display,
        error: std::io::Error,
    ) -> Self {
        // Linux errno values; std's ErrorKind has no stable name for some of them.
        const EIO: i32 = 5;
        const EAGAIN: i32 = 11;
        const ENOMEM: i32 = 12;
        const EMFILE: i32 = 24;
        const ENOSPC: i32 = 28;
        const EDQUOT: i32 = 122;
        let kind = match error.raw_os_error() {
            Some(ENOSPC | EDQUOT) => ErrorKind::NoSpace,
            Some(EIO) => ErrorKind::Corrupt,
            Some(EAGAIN | ENOMEM | EMFILE) => ErrorKind::Retry,
            _ => match error.kind() {
                std::io::ErrorKind::StorageFull => ErrorKind::NoSpace,
                std::io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
                std::io::ErrorKind::Interrupted => ErrorKind::Retry,
                _ => ErrorKind::Invalid,
            },
        };
        Self::new(kind, what).at(place).caused_by(error)
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Adds where: a file and offset, a page, a setting. The innermost place stands first; one that
    /// the last one names already is not said again.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        let place = place.to_string();
        let is_named = |known: &String| {
            let before = known.strip_suffix(&*place);
            before.is_some_and(|before| before.is_empty() || before.ends_with(' '))
        };
        if self.0.place.as_ref().is_some_and(is_named) {
            return self;
        }
        self.edit(|inner| match &mut inner.place {
            Some(inner_place) => *inner_place = format!("{inner_place}, {place}"),
            none => *none = Some(place),
        })
    }

    /// Without `place` where it is the last one: for a report that names it beside the error.
    #[must_use]
    pub fn not_at(self, place: &str) -> Self {
        let rest = |known: &String| Some(known.strip_suffix(place)?.to_owned());
        let Some(rest) = self.0.place.as_ref().and_then(rest) else { return self };
        match (rest.strip_suffix(", "), rest.is_empty()) {
            (Some(inner_place), _) => self.edit(|inner| inner.place = Some(inner_place.to_owned())),
            (None, true) => self.edit(|inner| inner.place = None),
            // A longer name that ends the same.
            (None, false) => self,
        }
    }

    /// Adds what should have been there.
    #[must_use]
    pub fn expected(self, expected: impl fmt::Display) -> Self {
        self.edit(|inner| inner.expected = Some(expected.to_string()))
    }

    /// Adds what was there.
    #[must_use]
    pub fn got(self, got: impl fmt::Display) -> Self {
        self.edit(|inner| inner.got = Some(got.to_string()))
    }

    /// Adds the error underneath.
    #[must_use]
    pub fn caused_by(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.edit(|inner| inner.source = Some(Arc::new(source)))
    }

    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What it concerns.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// Where it was met, innermost place first.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        self.0.place.as_deref()
    }

    /// True where the same request may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.0.kind == ErrorKind::Retry
    }

    /// True where a transaction met another's write: the same commit never succeeds, the
    /// transaction run again may.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.0.kind == ErrorKind::Conflict
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, what, place, expected, got, source } = &*self.0;
        write!(f, "{kind}: {what}")?;
        if let Some(place) = place {
            write!(f, " at {place}")?;
        }
        match (expected, got) {
            (Some(expected), Some(got)) => write!(f, ": expected {expected}, got {got}")?,
            (Some(expected), None) => write!(f, ": expected {expected}")?,
            (None, Some(got)) => write!(f, ": got {got}")?,
            (None, None) => {}
        }
        if let Some(source) = source {
            write!(f, " ({source})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_where_expected_and_got() {
        let error =
            Error::corrupt("page checksum").at("page 7").at("table 3").expected("0x1").got("0x2");
        assert_eq!(
            error.to_string(),
            "corrupt: page checksum at page 7, table 3: expected 0x1, got 0x2"
        );
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn no_place_is_said_twice() {
        let told = |error: Error| error.to_string();
        let error = || Error::corrupt("length").at("7.table");
        assert_eq!(told(error().at("7.table").at("store")), "corrupt: length at 7.table, store");
        let page = Error::corrupt("checksum").at("page 3 of 7.table");
        assert_eq!(told(page.at("7.table")), "corrupt: checksum at page 3 of 7.table");
        assert_eq!(told(error().at("table")), "corrupt: length at 7.table, table");
        assert_eq!(told(error().not_at("7.table")), "corrupt: length");
        assert_eq!(told(error().not_at("table")), "corrupt: length at 7.table");
        let within = Error::corrupt("entry").at("byte 3").at("7.table");
        assert_eq!(told(within.not_at("7.table")), "corrupt: entry at byte 3");
        assert_eq!(told(Error::corrupt("entry").not_at("7.table")), "corrupt: entry");
    }

    #[test]
    fn operating_system_errors_become_prescriptions() {
        let of = |code| Error::io("write", "f", std::io::Error::from_raw_os_error(code)).kind();
        assert_eq!(of(28), ErrorKind::NoSpace);
        assert_eq!(of(5), ErrorKind::Corrupt);
        assert_eq!(of(13), ErrorKind::Invalid);
        assert_eq!(of(11), ErrorKind::Retry);
    }
}
