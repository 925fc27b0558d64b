//! [`Users`]: the users of the server and their rules, as ACL of Redis 7.0 has them.
//!
//! A session holds its [`User`]; a change of the rules replaces them whole, so the next command of every
//! session sees it. `catalog` has the commands as rules name them, `rules` the rules of a user, `selector` a
//! set of permissions, `log` the refusals, `file` the users' file. Checks take no lock; changes take the
//! list's.

pub(crate) mod catalog;
mod file;
mod log;
mod rules;
mod selector;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

pub(crate) use log::{Log, Refusal};
pub(crate) use rules::Rules;
pub(crate) use selector::{Denied, Request, Selector};

/// The user of clients that name none.
pub(crate) const DEFAULT: &str = "default";
/// The most users.
const USERS_MAX: usize = 16_384;

/// A user.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    rules: ArcSwap<Rules>,
}

impl User {
    /// The rules now.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.rules.load_full()
    }

    /// A line of ACL LIST and of the users' file.
    pub(crate) fn line(&self) -> String {
        format!("user {} {}", self.name, self.rules())
    }
}

/// The users by name; `default` is always there.
#[derive(Debug)]
pub(crate) struct Users {
    users: Mutex<BTreeMap<String, Arc<User>>>,
    default: Arc<User>,
    pub(crate) log: Mutex<Log>,
}

/// Whether text from outside has a space or a null, so that it cannot stand in a line of rules.
fn has_space(text: &str) -> bool {
    text.bytes().any(|byte| byte == 0 || byte.is_ascii_whitespace() || byte == 0x0b)
}

impl Users {
    /// The user `default` with all permissions, and with `password` if there is one.
    pub(crate) fn new(password: Option<&str>) -> Self {
        let mut rules = Rules::all();
        if let Some(password) = password {
            rules.set_password(password.as_bytes());
        }
        let default =
            Arc::new(User { name: DEFAULT.to_owned(), rules: ArcSwap::from_pointee(rules) });
        let users = BTreeMap::from([(DEFAULT.to_owned(), Arc::clone(&default))]);
        Self { users: Mutex::new(users), default, log: Mutex::default() }
    }

    /// The user of clients that name none.
    pub(crate) fn default(&self) -> &Arc<User> {
        &self.default
    }

    /// The user called `name`.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Arc<User>> {
        let name = std::str::from_utf8(name).ok()?;
        self.users.lock().get(name).cloned()
    }

    /// The users in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<User>> {
        self.users.lock().values().cloned().collect()
    }

    /// The user called `name`, if it is on and the password is its own. The time taken does not depend on how
    /// much of the password is right.
    pub(crate) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        self.find(name).filter(|user| user.rules().admits(password))
    }

    /// Makes the user called `name`, or changes it, by `changes`: all of them, or none. Returns the new
    /// rules.
    ///
    /// # Errors
    /// The text of Redis's error.
    pub(crate) fn change(&self, name: &[u8], changes: &[Vec<u8>]) -> Result<Arc<Rules>, String> {
        let name = std::str::from_utf8(name).ok().filter(|name| !has_space(name));
        let name = name.ok_or("Usernames can't contain spaces or null characters")?;
        let mut users = self.users.lock();
        let known = users.get(name).cloned();
        if known.is_none() && users.len() >= USERS_MAX {
            return Err(format!("there are at most {USERS_MAX} users"));
        }
        let mut rules = known.as_ref().map_or_else(Rules::none, |user| Rules::clone(&user.rules()));
        for change in rules::merged(changes)? {
            rules.apply(&change).map_err(|error| {
                let change = String::from_utf8_lossy(&change).into_owned();
                format!("Error in ACL SETUSER modifier '{change}': {error}")
            })?;
        }
        let rules = Arc::new(rules);
        match known {
            Some(user) => user.rules.store(Arc::clone(&rules)),
            None => {
                let rules = ArcSwap::new(Arc::clone(&rules));
                users.insert(name.to_owned(), Arc::new(User { name: name.to_owned(), rules }));
            }
        }
        Ok(rules)
    }

    /// Removes the user called `name`, and its permissions from the sessions that have it.
    pub(crate) fn remove(&self, name: &[u8]) -> Option<Arc<User>> {
        let name = std::str::from_utf8(name).ok().filter(|name| *name != DEFAULT)?;
        let user = self.users.lock().remove(name)?;
        user.rules.store(Arc::new(Rules::none()));
        Some(user)
    }

    /// Replaces the users by those of `text`, lines of [`User::line`]. `default` keeps its rules if no line
    /// names it. Returns the users that are gone or changed.
    ///
    /// # Errors
    /// The first line that is wrong: nothing was changed.
    pub(crate) fn load(&self, text: &str) -> Result<Vec<Arc<User>>, String> {
        let mut loaded = file::parse(text, USERS_MAX)?;
        let mut users = self.users.lock();
        let mut changed = Vec::new();
        users.retain(|name, user| match loaded.remove(name) {
            Some(rules) => {
                user.rules.store(Arc::new(rules));
                changed.push(Arc::clone(user));
                true
            }
            None if name == DEFAULT => true,
            None => {
                user.rules.store(Arc::new(Rules::none()));
                changed.push(Arc::clone(user));
                false
            }
        });
        for (name, rules) in loaded {
            let user = User { name: name.clone(), rules: ArcSwap::from_pointee(rules) };
            users.insert(name, Arc::new(user));
        }
        Ok(changed)
    }

    /// Loads the users' file.
    ///
    /// # Errors
    /// As [`Users::load`]; that the file cannot be read.
    pub(crate) fn load_file(&self, path: &std::path::Path) -> Result<Vec<Arc<User>>, String> {
        self.load(&file::read(path)?)
    }

    /// Writes the users' file, whole or not at all.
    ///
    /// # Errors
    /// That it cannot be written.
    pub(crate) fn save_file(&self, path: &std::path::Path) -> std::io::Result<()> {
        let lines: Vec<_> = self.all().iter().map(|user| user.line() + "\n").collect();
        file::write(path, lines.concat().as_bytes())
    }
}
