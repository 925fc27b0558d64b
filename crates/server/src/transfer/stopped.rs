//! The end of an import or export that failed.

/// Why an import or export ends.
#[derive(Debug)]
pub struct Stopped {
    text: String,
    /// The error of the store, if it is one.
    store: Option<terracedb::Error>,
}

impl Stopped {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), store: None }
    }

    /// With the place in front.
    pub(crate) fn at(self, place: impl std::fmt::Display) -> Self {
        Self { text: format!("{place}: {}", self.text), ..self }
    }

    /// As an error about `object`, which was at `place`; an error of the store stays one.
    #[must_use]
    pub fn error(self, object: &'static str, place: impl std::fmt::Display) -> terracedb::Error {
        let own = || terracedb::Error::invalid(object).at(place).got(&self.text);
        self.store.unwrap_or_else(own)
    }
}

impl From<crate::reply::Fail> for Stopped {
    fn from(fail: crate::reply::Fail) -> Self {
        Self::new(fail.0)
    }
}

impl From<terracedb::Error> for Stopped {
    fn from(error: terracedb::Error) -> Self {
        Self { text: error.to_string(), store: Some(error) }
    }
}

impl From<std::io::Error> for Stopped {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}
