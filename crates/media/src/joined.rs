//! Several media as one: each name belongs to one of them, decided by the name alone.
//!
//! A store's files lie in its directory, except segments of a log on storage-class memory. Everything that
//! lists, reads, copies or removes the store's files sees one medium. Operations that concern no name are
//! those of the first medium; a sync of names concerns all with changed names.
//!
//! The other media are attached once, after the first one told which they are. A name of a medium that is not
//! attached belongs to the first one, as in a copy of the store.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use base::{Error, Result, broken_invariant};

use crate::{Access, Capabilities, File, Listing, Medium, Queue, Space};

/// The number of the attached medium that a name belongs to, from 0; `None` for the first medium.
pub type Route = fn(&str) -> Option<usize>;

/// See the module.
pub struct Joined {
    first: Member,
    attached: OnceLock<Vec<Member>>,
    route: Route,
}

/// One of the joined media.
#[derive(Debug)]
struct Member {
    medium: Arc<dyn Medium>,
    /// Whether names may have changed since they were last synced.
    is_dirty: AtomicBool,
}

impl Member {
    const fn new(medium: Arc<dyn Medium>) -> Self {
        // A process that died may have left names that it did not sync.
        Self { medium, is_dirty: AtomicBool::new(true) }
    }

    /// The medium. Its names are about to change.
    fn changed(&self) -> &Arc<dyn Medium> {
        self.is_dirty.store(true, Ordering::SeqCst);
        &self.medium
    }

    fn sync_names(&self, names: &[&str]) -> Result<()> {
        if !self.is_dirty.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        self.medium.sync_names(names).inspect_err(|_| self.is_dirty.store(true, Ordering::SeqCst))
    }
}

impl Joined {
    /// The files of `first`, until others are attached.
    #[must_use]
    pub fn new(first: Arc<dyn Medium>, route: Route) -> Self {
        Self { first: Member::new(first), attached: OnceLock::new(), route }
    }

    /// Attaches `media`, in the order of the numbers that the route returns. Files of the first medium with
    /// their names are not seen any more.
    ///
    /// # Errors
    /// If media were attached before.
    pub fn attach(&self, media: Vec<Arc<dyn Medium>>) -> Result<()> {
        let members = media.into_iter().map(Member::new).collect();
        let attached = self.attached.set(members);
        attached.map_err(|_| broken_invariant!("media are attached once"))
    }

    /// Files of the first medium with names that belong to an attached one.
    ///
    /// # Errors
    /// Those of listing it.
    pub fn hidden(&self) -> Result<Vec<String>> {
        let listed = self.first.medium.list()?.into_iter().map(|file| file.name);
        Ok(listed.filter(|name| self.attached_of(name).is_some()).collect())
    }

    /// Removes a file that [`Joined::hidden`] named.
    ///
    /// # Errors
    /// Those of the first medium.
    pub fn remove_hidden(&self, name: &str) -> Result<()> {
        self.first.changed().remove(name)
    }

    fn attached_of(&self, name: &str) -> Option<&Member> {
        self.attached.get()?.get((self.route)(name)?)
    }

    fn of(&self, name: &str) -> &Member {
        self.attached_of(name).unwrap_or(&self.first)
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        [&self.first].into_iter().chain(self.attached.get().into_iter().flatten())
    }
}

impl Medium for Joined {
    fn capabilities(&self) -> Capabilities {
        self.first.medium.capabilities()
    }

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        self.of(name).changed().create(name, access, reserve)
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.of(name).medium.open(name, access)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.of(name).changed().remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        if !std::ptr::eq(self.of(from), self.of(to)) {
            return Err(Error::invalid("rename")
                .at(from)
                .expected("a name on the same medium")
                .got(to));
        }
        self.of(from).changed().rename(from, to)
    }

    fn link(&self, name: &str, to: &dyn Medium) -> Result<bool> {
        self.of(name).medium.link(name, to)
    }

    fn list(&self) -> Result<Vec<Listing>> {
        let mut files = Vec::new();
        for member in self.members() {
            let listed = member.medium.list()?.into_iter();
            files.extend(listed.filter(|file| std::ptr::eq(self.of(&file.name), member)));
        }
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(files)
    }

    fn space(&self) -> Result<Option<Space>> {
        self.first.medium.space()
    }

    fn space_for(&self, name: &str) -> Result<Option<Space>> {
        self.of(name).medium.space()
    }

    fn sync_names(&self, names: &[&str]) -> Result<()> {
        self.members().try_for_each(|member| {
            let own = names.iter().copied().filter(|name| std::ptr::eq(self.of(name), member));
            member.sync_names(&own.collect::<Vec<_>>())
        })
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        self.first.medium.lock()
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        self.first.medium.queue(depth)
    }

    fn undecorated(&self) -> &dyn Any {
        self.first.medium.undecorated()
    }
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.members().map(|member| &member.medium)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Faulty, MemoryMedium, Purpose};

    fn route(name: &str) -> Option<usize> {
        name.strip_prefix("part-")?.parse().ok()
    }

    fn names(medium: &dyn Medium) -> Vec<String> {
        medium.list().unwrap().into_iter().map(|file| file.name).collect()
    }

    #[test]
    fn each_name_belongs_to_one_medium() {
        let media: Vec<Arc<MemoryMedium>> = (0..3).map(|_| Arc::default()).collect();
        let joined = Joined::new(Arc::clone(&media[0]) as _, route);
        joined.create("part-1", Access::Bytes, 10).unwrap();
        assert_eq!(names(&joined), ["part-1"], "nothing is attached yet");
        joined.attach(media[1..].iter().map(|medium| Arc::clone(medium) as _).collect()).unwrap();
        for name in ["a", "part-0", "part-1", "part-7"] {
            joined.create(name, Access::Bytes, 10).unwrap().store(0, b"x", Purpose::Log).unwrap();
        }
        assert_eq!(names(&joined), ["a", "part-0", "part-1", "part-7"]);
        assert_eq!(names(&*media[0]), ["a", "part-1", "part-7"]);
        assert_eq!(
            (names(&*media[1]), names(&*media[2])),
            (vec!["part-0".into()], vec!["part-1".into()])
        );
        assert_eq!(joined.hidden().unwrap(), ["part-1"]);
        joined.remove_hidden("part-1").unwrap();
        assert_eq!(
            (names(&*media[0]), joined.hidden().unwrap()),
            (vec!["a".into(), "part-7".into()], vec![])
        );
        let error = joined.rename("a", "part-0").unwrap_err();
        assert_eq!(error.kind(), base::ErrorKind::Invalid, "{error}");
        joined.rename("a", "b").unwrap();
        joined.remove("part-0").unwrap();
        assert_eq!(names(&joined), ["b", "part-1", "part-7"]);
    }

    #[test]
    fn a_sync_of_names_makes_those_of_every_medium_durable() {
        let media: Vec<Arc<Faulty>> = (0..2).map(|seed| Arc::new(Faulty::new(seed))).collect();
        let joined = Joined::new(Arc::clone(&media[0]) as _, route);
        joined.attach(vec![Arc::clone(&media[1]) as _]).unwrap();
        joined.create("a", Access::Bytes, 10).unwrap();
        joined.create("part-0", Access::Bytes, 10).unwrap();
        joined.sync_names(&["part-0"]).unwrap();
        for seed in 0..20 {
            let survived = |medium: &Faulty| names(&medium.crash_image(seed).unwrap());
            assert_eq!(
                (survived(&media[0]), survived(&media[1])),
                (vec!["a".into()], vec!["part-0".into()])
            );
        }
        let syncs = media[0].syncs();
        joined.remove("part-0").unwrap();
        joined.sync_names(&[]).unwrap();
        assert_eq!(media[0].syncs(), syncs, "names of the first medium did not change");
    }
}
