//! [`Rules`]: the state of a user: its passwords, and the selectors that permit its commands.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::selector::{Denied, Request, Selector};

/// The most passwords, selectors, and patterns or commands of one user.
pub(super) const RULES_MAX: usize = 4096;

pub(super) const UNKNOWN: &str = "Unknown command or category name in ACL";
pub(super) const SYNTAX: &str = "Syntax error";
pub(super) const TOO_MANY: &str = "the user has too many rules";

/// The SHA-256 of a password, in hexadecimal digits.
pub(crate) fn password_hash(password: &[u8]) -> String {
    Sha256::digest(password).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The rules of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) is_on: bool,
    /// Any password is right.
    pub(crate) has_no_password: bool,
    /// As in Redis, which checks the payload of RESTORE or skips that; nothing here depends on it.
    pub(crate) checks_payload: Option<bool>,
    /// Hashes, in the order in which they were added.
    pub(crate) passwords: Vec<String>,
    /// The rules outside of parentheses.
    pub(crate) root: Selector,
    /// The selectors in parentheses.
    pub(crate) more: Vec<Selector>,
}

impl Rules {
    /// A new user, that may do nothing.
    pub(crate) fn none() -> Self {
        Self {
            is_on: false,
            has_no_password: false,
            checks_payload: None,
            passwords: Vec::new(),
            root: Selector::none(),
            more: Vec::new(),
        }
    }

    /// A user that may do everything, with any password.
    pub(crate) fn all() -> Self {
        let root = Selector::all();
        Self { is_on: true, has_no_password: true, root, ..Self::none() }
    }

    /// Replaces the passwords.
    pub(crate) fn set_password(&mut self, password: &[u8]) {
        self.has_no_password = false;
        self.passwords = vec![password_hash(password)];
    }

    /// Whether a client with `password` may be this user.
    pub(crate) fn admits(&self, password: &[u8]) -> bool {
        let hash = password_hash(password);
        let is_right = |known: &String| bool::from(hash.as_bytes().ct_eq(known.as_bytes()));
        // Every password is compared: the time tells nothing about their order.
        let known = self.passwords.iter().filter(|known| is_right(known)).count() > 0;
        self.is_on && (self.has_no_password || known)
    }

    /// Checks a request. The selectors are tried in turn; one that permits it all suffices.
    ///
    /// # Errors
    /// The refusal to report: that of a key or channel rather than that of the command.
    pub(crate) fn check(&self, request: &Request<'_>) -> Result<(), Denied> {
        let mut refused = match self.root.check(request) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        for selector in &self.more {
            match selector.check(request) {
                Ok(()) => return Ok(()),
                Err(other) if other.rank() > refused.rank() => refused = other,
                Err(_) => {}
            }
        }
        Err(refused)
    }

    /// Whether every command, key and channel is permitted.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.root.is_unlimited()
    }

    pub(crate) fn selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.more)
    }

    /// Applies one rule.
    ///
    /// # Errors
    /// The text of Redis's error.
    pub(crate) fn apply(&mut self, rule: &[u8]) -> Result<(), &'static str> {
        if let [b'>' | b'<', password @ ..] = rule {
            let hash = password_hash(password);
            return if rule.starts_with(b">") { self.add(hash) } else { self.take(&hash) };
        }
        let text = std::str::from_utf8(rule).map_err(|_| SYNTAX)?;
        match text.to_ascii_lowercase().as_str() {
            "on" => self.is_on = true,
            "off" => self.is_on = false,
            "nopass" => {
                self.has_no_password = true;
                self.passwords.clear();
            }
            "resetpass" => {
                self.has_no_password = false;
                self.passwords.clear();
            }
            "sanitize-payload" => self.checks_payload = Some(true),
            "skip-sanitize-payload" => self.checks_payload = Some(false),
            "clearselectors" => self.more.clear(),
            "reset" => *self = Self { checks_payload: Some(true), ..Self::none() },
            "" => {}
            _ => match text.as_bytes().first() {
                Some(b'#' | b'!') => {
                    let hash = text.get(1..).unwrap_or_default();
                    let is_digit =
                        |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
                    if hash.len() != 64 || !hash.bytes().all(is_digit) {
                        return Err("The password hash must be exactly 64 characters and contain \
                                    only lowercase hexadecimal characters");
                    }
                    let is_added = text.starts_with('#');
                    return if is_added { self.add(hash.to_owned()) } else { self.take(hash) };
                }
                Some(b'(') => {
                    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
                    let mut selector = Selector::none();
                    for rule in inner.ok_or(SYNTAX)?.split_ascii_whitespace() {
                        selector.apply(rule)?;
                    }
                    if self.more.len() >= RULES_MAX {
                        return Err(TOO_MANY);
                    }
                    self.more.push(selector);
                }
                _ => return self.root.apply(text),
            },
        }
        Ok(())
    }

    fn add(&mut self, hash: String) -> Result<(), &'static str> {
        if self.passwords.len() >= RULES_MAX {
            return Err(TOO_MANY);
        }
        self.has_no_password = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
        Ok(())
    }

    fn take(&mut self, hash: &str) -> Result<(), &'static str> {
        let at = self.passwords.iter().position(|known| known == hash);
        let at = at.ok_or("The password you are trying to remove from the user does not exist")?;
        self.passwords.remove(at);
        Ok(())
    }

    /// The names of the flags, as ACL GETUSER shows them.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        if self.has_no_password {
            flags.push("nopass");
        }
        flags.extend(self.checks_payload.map(|checks| match checks {
            true => "sanitize-payload",
            false => "skip-sanitize-payload",
        }));
        flags
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.flags().join(" "))?;
        self.passwords.iter().try_for_each(|hash| write!(f, " #{hash}"))?;
        write!(f, " {}", self.root)?;
        self.more.iter().try_for_each(|selector| write!(f, " ({selector})"))
    }
}

/// The rules of `words`, with those between parentheses joined to one.
///
/// # Errors
/// That a parenthesis is not closed.
pub(crate) fn merged(words: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
    let (mut rules, mut open): (Vec<Vec<u8>>, Option<Vec<u8>>) = (Vec::new(), None);
    for word in words {
        let rule = match open.take() {
            Some(begun) => [&begun, &b" "[..], word].concat(),
            None => word.clone(),
        };
        if rule.starts_with(b"(") && !rule.ends_with(b")") {
            open = Some(rule);
        } else {
            rules.push(rule);
        }
    }
    match open {
        None => Ok(rules),
        Some(rule) => {
            let rule = String::from_utf8_lossy(&rule).into_owned();
            Err(format!("Unmatched parenthesis in acl selector starting at '{rule}'."))
        }
    }
}
