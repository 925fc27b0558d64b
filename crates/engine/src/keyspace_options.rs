//! Options of a keyspace.

/// Options of a keyspace, for `terracedb::Db::create_keyspace_opt`.
///
/// ```
/// # fn main() -> terracedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terracedb::Db::builder(dir.path()).open()?;
/// use terracedb::{KeyspaceOptions, operators::I64Add};
/// let options = KeyspaceOptions::new().merge_operator(I64Add::NAME);
/// let visits = db.create_keyspace_opt("visits", &options)?;
/// visits.merge("home", 1i64.to_le_bytes())?;
/// visits.merge("home", 2i64.to_le_bytes())?;
/// assert_eq!(visits.get("home")?.as_deref(), Some(&3i64.to_le_bytes()[..]));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceOptions {
    pub(crate) merge_operator: Option<String>,
}

impl KeyspaceOptions {
    /// The options of `terracedb::Db::create_keyspace`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the merge operator of the keyspace by name: one of `terracedb::operators`, or one given to
    /// `terracedb::Builder::merge_operator`. The store keeps the name; it cannot be changed later.
    #[must_use]
    pub fn merge_operator(mut self, name: impl Into<String>) -> Self {
        self.merge_operator = Some(name.into());
        self
    }
}
