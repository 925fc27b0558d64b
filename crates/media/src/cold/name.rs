//! The place of a cold file on the other medium.

/// The file of the other medium that has the content of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColdName {
    /// Its name there.
    pub file: String,
    /// Its length, bytes.
    pub len: u64,
}
