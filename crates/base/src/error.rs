//! The error type of all crates. The kind tells the remedy; the other parts name the subject,
//! the place, the expected and the actual value, and the cause.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The result of a fallible operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The remedy for an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A temporary condition, such as a full memory limit: try again later.
    Retry,
    /// The request, a setting or the environment is wrong: change it.
    Invalid,
    /// The request names something that does not exist, for example a keyspace: create it, or correct the
    /// name.
    NotFound,
    /// The request creates something that exists already: open it, or choose another name.
    AlreadyExists,
    /// Another process, or another open store of this process, has the directory: close that one, or open
    /// the store for reading only.
    Locked,
    /// The operating system refuses access: change the permissions of the path that the error names, or open
    /// the store for reading only.
    PermissionDenied,
    /// Stored bytes are damaged or unreadable: run `terrace check` and restore the files that it names.
    Corrupt,
    /// The device is full: free space, then write again.
    NoSpace,
    /// An earlier failure makes further writes unsafe. Reads still work; reopen the store to write.
    Poisoned,
    /// The store or the keyspace is closed or dropped.
    Closed,
    /// Another write changed a key that a transaction had read before it committed: run the whole
    /// transaction again.
    Conflict,
    /// The caller asked the operation to end early ([`crate::Cancel`]). Unfinished work is undone.
    Cancelled,
}

/// Whether the same request may succeed if it is made again, with the same settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Retry {
    /// Yes, at once: another call came between. After [`ErrorKind::Conflict`] the request is the whole
    /// transaction, from its first read.
    Now,
    /// Yes, later: other calls or background work hold what it needs, and give it back when they end.
    Later,
    /// No: the request, a setting or the environment must change first. This includes a shortage that is not
    /// temporary: the request alone needs more than a limit allows, or the device is full.
    Never,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Retry => "try again",
            Self::Invalid => "invalid",
            Self::NotFound => "not found",
            Self::AlreadyExists => "already exists",
            Self::Locked => "locked",
            Self::PermissionDenied => "permission denied",
            Self::Corrupt => "corrupt",
            Self::NoSpace => "no space",
            Self::Poisoned => "poisoned",
            Self::Closed => "closed",
            Self::Conflict => "conflict",
            Self::Cancelled => "cancelled",
        })
    }
}

/// An error: its kind, its subject, the place, the expected and the actual value, and the cause.
///
/// Displayed as `kind: subject at place: expected .., got .. (cause)`. Cheap to clone, because a poisoned
/// writer returns its first error to every later caller.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    subject: Cow<'static, str>,
    place: Option<String>,
    expected: Option<String>,
    got: Option<String>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    /// Set if the kind alone does not say it.
    retry: Option<Retry>,
}

impl Error {
    /// An error of `kind` about `subject`.
    #[must_use]
    pub fn new(kind: ErrorKind, subject: impl Into<Cow<'static, str>>) -> Self {
        let subject = subject.into();
        Self(Arc::new(Inner {
            kind,
            subject,
            place: None,
            expected: None,
            got: None,
            source: None,
            retry: None,
        }))
    }

    /// An error of kind [`ErrorKind::Retry`] about `subject`.
    #[must_use]
    pub fn retry(subject: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Retry, subject)
    }

    /// An error of kind [`ErrorKind::Invalid`] about `subject`.
    #[must_use]
    pub fn invalid(subject: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Invalid, subject)
    }

    /// An error of kind [`ErrorKind::NotFound`] about `subject`.
    #[must_use]
    pub fn not_found(subject: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::NotFound, subject)
    }

    /// An error of kind [`ErrorKind::AlreadyExists`] about `subject`.
    #[must_use]
    pub fn already_exists(subject: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::AlreadyExists, subject)
    }

    /// An error of kind [`ErrorKind::Corrupt`] about `subject`.
    #[must_use]
    pub fn corrupt(subject: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Corrupt, subject)
    }

    /// An error of kind [`ErrorKind::Locked`] about `subject`.
    #[must_use]
    pub fn locked(subject: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Locked, subject)
    }

    /// An error of kind [`ErrorKind::NoSpace`] about `subject`.
    #[must_use]
    pub fn no_space(subject: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::NoSpace, subject)
    }

    /// An error of kind [`ErrorKind::Closed`] about `subject`.
    #[must_use]
    pub fn closed(subject: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Closed, subject)
    }

    /// An error of kind [`ErrorKind::Conflict`] about `subject`.
    #[must_use]
    pub fn conflict(subject: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Conflict, subject)
    }

    /// The `Poisoned` error of every write after `first`, which made further writes unsafe.
    #[must_use]
    pub fn poisoned_by(subject: impl Into<Cow<'static, str>>, first: &Self) -> Self {
        Self::new(ErrorKind::Poisoned, subject).caused_by(first.clone())
    }

    /// An error of the operating system about `subject` at `place`.
    ///
    /// A full device or quota is `NoSpace`; an unreadable sector or a short file is `Corrupt`; an
    /// interruption or a lack of memory or file descriptors is `Retry`; missing permissions and a device
    /// that is mounted for reading only are `PermissionDenied`; anything else, such as missing paths, is
    /// `Invalid`.
    #[must_use]
    pub fn io(
        subject: impl Into<Cow<'static, str>>,
        place: impl fmt::Display,
        error: std::io::Error,
    ) -> Self {
        // errno values of Linux; `std::io::ErrorKind` has no stable name for some of them.
        const EIO: i32 = 5;
        const EAGAIN: i32 = 11;
        const ENOMEM: i32 = 12;
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        const ENOSPC: i32 = 28;
        const EDQUOT: i32 = 122;
        let is_over = error.kind() == std::io::ErrorKind::Interrupted;
        let kind = match error.raw_os_error() {
            Some(ENOSPC | EDQUOT) => ErrorKind::NoSpace,
            Some(EIO) => ErrorKind::Corrupt,
            Some(EAGAIN | ENOMEM | ENFILE | EMFILE) => ErrorKind::Retry,
            _ => match error.kind() {
                std::io::ErrorKind::StorageFull => ErrorKind::NoSpace,
                std::io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
                std::io::ErrorKind::Interrupted => ErrorKind::Retry,
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                    ErrorKind::PermissionDenied
                }
                _ => ErrorKind::Invalid,
            },
        };
        let named = Self::new(kind, subject).at(place).caused_by(error);
        if is_over { named.is_over() } else { named }
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Adds a place: a file and offset, a page, a setting. Places are listed innermost first. A place that
    /// equals the last one, or the last word of it, is not repeated.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        let place = place.to_string();
        let is_named = |known: &String| {
            let prefix = known.strip_suffix(&*place);
            prefix.is_some_and(|prefix| prefix.is_empty() || prefix.ends_with(' '))
        };
        if self.0.place.as_ref().is_some_and(is_named) {
            return self;
        }
        self.edit(|inner| match &mut inner.place {
            Some(inner_place) => *inner_place = format!("{inner_place}, {place}"),
            absent => *absent = Some(place),
        })
    }

    /// Removes `place` if it is the last (outermost) one, for a report that names it next to the error.
    #[must_use]
    pub(crate) fn without_place(self, place: &str) -> Self {
        let prefix = |known: &String| Some(known.strip_suffix(place)?.to_owned());
        let Some(prefix) = self.0.place.as_ref().and_then(prefix) else { return self };
        match (prefix.strip_suffix(", "), prefix.is_empty()) {
            (Some(inner_place), _) => self.edit(|inner| inner.place = Some(inner_place.to_owned())),
            (None, true) => self.edit(|inner| inner.place = None),
            // The last place is a longer name with the same end.
            (None, false) => self,
        }
    }

    /// Adds the expected value or condition.
    #[must_use]
    pub fn expected(self, expected: impl fmt::Display) -> Self {
        self.edit(|inner| inner.expected = Some(expected.to_string()))
    }

    /// Adds the actual value.
    #[must_use]
    pub fn got(self, got: impl fmt::Display) -> Self {
        self.edit(|inner| inner.got = Some(got.to_string()))
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn caused_by(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.edit(|inner| inner.source = Some(Arc::new(source)))
    }

    /// The kind, which tells the remedy.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The subject.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.0.subject
    }

    /// The places, innermost first, separated by commas.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        self.0.place.as_deref()
    }

    /// Marks a shortage that no waiting ends: the request needs more than the settings allow.
    #[must_use]
    pub fn never_heals(self) -> Self {
        self.edit(|inner| inner.retry = Some(Retry::Never))
    }

    /// Marks an error that is over already.
    #[must_use]
    pub fn is_over(self) -> Self {
        self.edit(|inner| inner.retry = Some(Retry::Now))
    }

    /// Whether and when the same request may succeed if it is made again. A program that repeats requests
    /// goes by this and not by the kind: an error of kind [`ErrorKind::Retry`] is a shortage, which waiting
    /// ends unless the request alone needs more than the limit that the error names.
    #[must_use]
    pub fn when_to_retry(&self) -> Retry {
        self.0.retry.unwrap_or(match self.0.kind {
            ErrorKind::Retry | ErrorKind::Locked => Retry::Later,
            ErrorKind::Conflict | ErrorKind::Cancelled => Retry::Now,
            ErrorKind::Invalid
            | ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::PermissionDenied
            | ErrorKind::Corrupt
            | ErrorKind::NoSpace
            | ErrorKind::Poisoned
            | ErrorKind::Closed => Retry::Never,
        })
    }

    /// Whether a resource was short: true for [`ErrorKind::Retry`] alone. [`Error::when_to_retry`] says
    /// whether waiting ends the shortage. After `NoSpace` space must be freed first, after `Conflict` the
    /// whole transaction must be run again, and no other error goes away by itself.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.0.kind == ErrorKind::Retry
    }

    /// Whether a transaction conflicts with another write. The same commit never succeeds; the whole
    /// transaction, run again, may.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.0.kind == ErrorKind::Conflict
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, subject, place, expected, got, source, retry: _ } = &*self.0;
        write!(f, "{kind}: {subject}")?;
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

impl std::error::Error for Error {
    /// The cause, for example the [`std::io::Error`] of a failed read. The text of this error names it too.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.0.source.as_deref()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_shows_kind_subject_places_expected_and_got() {
        let error =
            Error::corrupt("page checksum").at("page 7").at("table 3").expected("0x1").got("0x2");
        assert_eq!(
            error.to_string(),
            "corrupt: page checksum at page 7, table 3: expected 0x1, got 0x2"
        );
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn a_repeated_place_is_listed_once_and_without_place_removes_the_last() {
        let text = |error: Error| error.to_string();
        let error = || Error::corrupt("length").at("7.table");
        assert_eq!(text(error().at("7.table").at("store")), "corrupt: length at 7.table, store");
        let page = Error::corrupt("checksum").at("page 3 of 7.table");
        assert_eq!(text(page.at("7.table")), "corrupt: checksum at page 3 of 7.table");
        assert_eq!(text(error().at("table")), "corrupt: length at 7.table, table");
        assert_eq!(text(error().without_place("7.table")), "corrupt: length");
        assert_eq!(text(error().without_place("table")), "corrupt: length at 7.table");
        let within = Error::corrupt("entry").at("byte 3").at("7.table");
        assert_eq!(text(within.without_place("7.table")), "corrupt: entry at byte 3");
        assert_eq!(text(Error::corrupt("entry").without_place("7.table")), "corrupt: entry");
    }

    #[test]
    fn an_error_keeps_its_chain_of_causes() {
        use std::error::Error as _;
        let io = Error::io("write", "7.log", std::io::Error::from_raw_os_error(28));
        let code = |error: &(dyn std::error::Error + 'static)| {
            error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error)
        };
        assert_eq!(io.source().and_then(code), Some(28));
        let poisoned = Error::poisoned_by("log", &io).at("store").clone();
        let first = poisoned.source().and_then(|it| it.downcast_ref::<Error>()).unwrap();
        assert_eq!((first.kind(), first.source().and_then(code)), (ErrorKind::NoSpace, Some(28)));
        assert!(Error::invalid("key").source().is_none());
    }

    #[test]
    fn an_error_says_whether_waiting_helps() {
        let io = |kind| Error::io("read", "f", std::io::Error::from(kind)).when_to_retry();
        assert_eq!(io(std::io::ErrorKind::Interrupted), Retry::Now);
        assert_eq!(io(std::io::ErrorKind::StorageFull), Retry::Never);
        assert_eq!(Error::conflict("transaction").when_to_retry(), Retry::Now);
        let shortage = Error::retry("memory");
        assert_eq!(shortage.when_to_retry(), Retry::Later);
        let lasting = shortage.never_heals().at("a place");
        assert_eq!((lasting.when_to_retry(), lasting.kind()), (Retry::Never, ErrorKind::Retry));
        assert_eq!(
            Error::poisoned_by("log", &Error::retry("memory")).when_to_retry(),
            Retry::Never
        );
    }

    #[test]
    fn errno_values_map_to_error_kinds() {
        let kind_of =
            |code| Error::io("write", "f", std::io::Error::from_raw_os_error(code)).kind();
        assert_eq!(kind_of(28), ErrorKind::NoSpace);
        assert_eq!(kind_of(5), ErrorKind::Corrupt);
        assert_eq!(kind_of(13), ErrorKind::PermissionDenied);
        assert_eq!(kind_of(30), ErrorKind::PermissionDenied);
        assert_eq!(kind_of(20), ErrorKind::Invalid);
        assert_eq!(kind_of(11), ErrorKind::Retry);
    }
}
