//! [`Selector`]: commands, keys and channels that are permitted together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::catalog::{CATEGORIES, COMMANDS};
use super::has_space;
use super::rules::{RULES_MAX, SYNTAX, TOO_MANY, UNKNOWN};
use crate::glob;

/// How a command uses the value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

impl Access {
    const ALL: Self = Self { reads: true, writes: true };

    /// Of a letter of the catalog.
    fn of(letter: u8) -> Self {
        Self { reads: matches!(letter, b'r' | b'b'), writes: matches!(letter, b'w' | b'b') }
    }

    fn covers(self, wanted: Self) -> bool {
        (self.reads || !wanted.reads) && (self.writes || !wanted.writes)
    }
}

/// A request to check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// Its command, in the catalog.
    command: usize,
    /// The first argument, for rules such as `+select|0`.
    first: Option<&'a Vec<u8>>,
    keys: &'a [&'a Vec<u8>],
    /// Also the values that SET returns.
    is_read_too: bool,
    /// Reads values of any key.
    is_scan: bool,
    channels: &'a [Vec<u8>],
    /// The channels are patterns.
    is_pattern: bool,
}

impl<'a> Request<'a> {
    /// The request `args` of the command `name` with these keys. `None`: the command is not in the catalog.
    pub(crate) fn new(name: &str, args: &'a [Vec<u8>], keys: &'a [&'a Vec<u8>]) -> Option<Self> {
        let first = args.get(1);
        let own = position(name)?;
        let sub = first.filter(|_| is_container(own)).and_then(|sub| {
            let sub = std::str::from_utf8(sub).ok()?.to_ascii_lowercase();
            position(&format!("{name}|{sub}"))
        });
        let channels = match name {
            "publish" => args.get(1..2),
            "subscribe" | "psubscribe" => args.get(1..),
            _ => None,
        };
        let has_get = || args.iter().skip(3).any(|arg| arg.eq_ignore_ascii_case(b"get"));
        Some(Self {
            command: sub.unwrap_or(own),
            first,
            keys,
            is_read_too: name == "set" && has_get(),
            is_scan: name == "kv.scan",
            channels: channels.unwrap_or_default(),
            is_pattern: name == "psubscribe",
        })
    }

    /// The name of its command, with the subcommand.
    pub(crate) fn name(&self) -> &'static str {
        COMMANDS.get(self.command).map_or("", |(name, _, _)| name)
    }

    fn access(&self, number: usize) -> Access {
        let letters = COMMANDS.get(self.command).map_or("", |(_, _, letters)| letters).as_bytes();
        let letter = letters.get(number).or_else(|| letters.last()).copied().unwrap_or(b'-');
        let access = Access::of(letter);
        Access { reads: access.reads || self.is_read_too, ..access }
    }
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    Command(&'static str),
    Key(Vec<u8>),
    Channel(Vec<u8>),
}

impl Denied {
    /// The refusal with the highest rank among several selectors is reported.
    pub(crate) fn rank(&self) -> u8 {
        match self {
            Self::Command(_) => 1,
            Self::Key(_) => 2,
            Self::Channel(_) => 3,
        }
    }
}

/// Places in the catalog.
type Bits = BTreeSet<usize>;

/// Commands, keys and channels that are permitted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    /// All commands, also those of later versions.
    has_all_commands: bool,
    commands: Bits,
    /// Commands that are permitted with these first arguments only.
    first_args: BTreeMap<usize, BTreeSet<String>>,
    /// The rules on commands behind `+@all` or `-@all`, each of which still has an effect.
    rules: Vec<String>,
    starts_with_all: bool,
    has_all_keys: bool,
    keys: Vec<(String, Access)>,
    has_all_channels: bool,
    channels: Vec<String>,
}

fn position(name: &str) -> Option<usize> {
    COMMANDS.binary_search_by(|(known, _, _)| (*known).cmp(name)).ok()
}

/// The places of the subcommands of a command. Other commands may stand between it and them.
fn subcommands(at: usize) -> std::ops::Range<usize> {
    let prefix = COMMANDS.get(at).map_or_else(String::new, |(name, _, _)| format!("{name}|"));
    let start = COMMANDS.partition_point(|(known, _, _)| *known < prefix.as_str());
    let rest = COMMANDS.get(start..).unwrap_or_default();
    start..start + rest.iter().take_while(|(known, _, _)| known.starts_with(&prefix)).count()
}

fn is_container(at: usize) -> bool {
    !subcommands(at).is_empty()
}

impl Selector {
    pub(crate) fn none() -> Self {
        Self {
            has_all_commands: false,
            commands: Bits::new(),
            first_args: BTreeMap::new(),
            rules: Vec::new(),
            starts_with_all: false,
            has_all_keys: false,
            keys: Vec::new(),
            has_all_channels: false,
            channels: Vec::new(),
        }
    }

    pub(crate) fn all() -> Self {
        let mut all = Self::none();
        all.set_all_commands(true);
        Self { has_all_keys: true, has_all_channels: true, ..all }
    }

    pub(crate) fn is_unlimited(&self) -> bool {
        self.has_all_commands && self.has_all_keys && self.has_all_channels
    }

    fn set_all_commands(&mut self, is_permitted: bool) {
        self.has_all_commands = is_permitted;
        self.commands = if is_permitted { (0..COMMANDS.len()).collect() } else { Bits::new() };
        self.first_args.clear();
        self.rules.clear();
        self.starts_with_all = is_permitted;
    }

    /// Checks a request.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn check(&self, request: &Request<'_>) -> Result<(), Denied> {
        if !self.has_all_commands && !self.commands.contains(&request.command) {
            let first =
                request.first.map(|first| String::from_utf8_lossy(first).to_ascii_lowercase());
            let listed = self.first_args.get(&request.command).zip(first);
            if !listed.is_some_and(|(listed, first)| listed.contains(&first)) {
                return Err(Denied::Command(request.name()));
            }
        }
        for (number, key) in request.keys.iter().enumerate() {
            if !self.permits_key(key, request.access(number)) {
                return Err(Denied::Key((*key).clone()));
            }
        }
        let reads_all = || self.keys.iter().any(|(key, access)| key == "*" && access.reads);
        if request.is_scan && !self.has_all_keys && !reads_all() {
            return Err(Denied::Key(b"*".to_vec()));
        }
        match request.channels.iter().find(|it| !self.permits_channel(it, request.is_pattern)) {
            Some(channel) => Err(Denied::Channel(channel.clone())),
            None => Ok(()),
        }
    }

    fn permits_key(&self, key: &[u8], wanted: Access) -> bool {
        self.has_all_keys
            || self.keys.iter().any(|(pattern, access)| {
                access.covers(wanted) && glob::matches(pattern.as_bytes(), key)
            })
    }

    /// Whether a channel may be used; a pattern must be one of the rules, letter by letter.
    pub(crate) fn permits_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.has_all_channels
            || self.channels.iter().any(|known| match is_pattern {
                true => known.as_bytes() == channel,
                false => glob::matches(known.as_bytes(), channel),
            })
    }

    /// Applies one rule.
    ///
    /// # Errors
    /// The text of Redis's error.
    pub(crate) fn apply(&mut self, rule: &str) -> Result<(), &'static str> {
        if self.keys.len() + self.channels.len() + self.rules.len() >= RULES_MAX {
            return Err(TOO_MANY);
        }
        match rule.to_ascii_lowercase().as_str() {
            "allkeys" | "~*" => {
                self.has_all_keys = true;
                self.keys.clear();
            }
            "resetkeys" => {
                self.has_all_keys = false;
                self.keys.clear();
            }
            "allchannels" | "&*" => {
                self.has_all_channels = true;
                self.channels.clear();
            }
            "resetchannels" => {
                self.has_all_channels = false;
                self.channels.clear();
            }
            "allcommands" | "+@all" => self.set_all_commands(true),
            "nocommands" | "-@all" => self.set_all_commands(false),
            lower => {
                let rest = rule.get(1..).unwrap_or_default();
                return match rule.as_bytes().first() {
                    Some(b'~') => self.add_key(rest, Access::ALL),
                    Some(b'%') => {
                        let (letters, pattern) = rest.split_once('~').ok_or(SYNTAX)?;
                        let letters = letters.to_ascii_uppercase();
                        let (reads, writes) = (letters.contains('R'), letters.contains('W'));
                        if letters.is_empty()
                            || letters.len() != usize::from(reads) + usize::from(writes)
                        {
                            return Err(SYNTAX);
                        }
                        self.add_key(pattern, Access { reads, writes })
                    }
                    Some(b'&') => self.add_channel(rest),
                    Some(b'+' | b'-') => self.add_command(lower),
                    _ => Err(SYNTAX),
                };
            }
        }
        Ok(())
    }

    fn add_key(&mut self, pattern: &str, access: Access) -> Result<(), &'static str> {
        if self.has_all_keys {
            return Err(
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does \
                        not have any effect. Try 'resetkeys' to start with an empty list of patterns",
            );
        }
        if has_space(pattern) {
            return Err(SYNTAX);
        }
        match self.keys.iter_mut().find(|(known, _)| known == pattern) {
            Some((_, known)) => {
                known.reads |= access.reads;
                known.writes |= access.writes;
            }
            None => self.keys.push((pattern.to_owned(), access)),
        }
        Ok(())
    }

    fn add_channel(&mut self, pattern: &str) -> Result<(), &'static str> {
        if self.has_all_channels {
            return Err(
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does \
                        not have any effect. Try 'resetchannels' to start with an empty list of channels",
            );
        }
        if has_space(pattern) {
            return Err(SYNTAX);
        }
        if !self.channels.iter().any(|known| known == pattern) {
            self.channels.push(pattern.to_owned());
        }
        Ok(())
    }

    /// A rule on commands in lower case: `+name`, `-name`, `+name|sub`, `+@category`.
    fn add_command(&mut self, rule: &str) -> Result<(), &'static str> {
        let is_permitted = rule.starts_with('+');
        let name = rule.get(1..).unwrap_or_default();
        let places: Vec<_> = match name.strip_prefix('@') {
            Some(category) => {
                let known = CATEGORIES.contains(&category);
                let is_of = |of: &str| of.split(' ').any(|of| of == category);
                let all = COMMANDS.iter().enumerate().filter(|(_, (_, of, _))| is_of(of));
                if known { all.map(|(at, _)| at).collect() } else { return Err(UNKNOWN) }
            }
            None => match (position(name), name.rsplit_once('|')) {
                (Some(at), _) => std::iter::once(at).chain(subcommands(at)).collect(),
                // The deprecated form `+select|0`: a command with one first argument.
                (None, Some((command, first))) if is_permitted => {
                    let at = position(command).ok_or(UNKNOWN)?;
                    if command.contains('|') {
                        return Err("Allowing first-arg of a subcommand is not supported");
                    }
                    if is_container(at) {
                        return Err(UNKNOWN);
                    }
                    if first.is_empty() {
                        return Err(SYNTAX);
                    }
                    self.first_args.entry(at).or_default().insert(first.to_owned());
                    self.note(rule);
                    return Ok(());
                }
                _ => return Err(UNKNOWN),
            },
        };
        for at in places {
            self.first_args.remove(&at);
            match is_permitted {
                true => drop(self.commands.insert(at)),
                false => drop(self.commands.remove(&at)),
            }
        }
        if !is_permitted {
            self.has_all_commands = false;
        }
        self.note(rule);
        Ok(())
    }

    /// Keeps a rule, in place of those before it that it makes void.
    fn note(&mut self, rule: &str) {
        let name = rule.get(1..).unwrap_or_default();
        self.rules.retain(|known| {
            let known = known.get(1..).unwrap_or_default();
            known != name && !known.strip_prefix(name).is_some_and(|rest| rest.starts_with('|'))
        });
        self.rules.push(rule.to_owned());
    }

    /// The rules on commands, on keys and on channels, as ACL GETUSER shows them.
    pub(crate) fn texts(&self) -> [String; 3] {
        let start = if self.starts_with_all { "+@all" } else { "-@all" };
        let commands = std::iter::once(start).chain(self.rules.iter().map(String::as_str));
        let commands = commands.collect::<Vec<_>>().join(" ");
        let key = |(pattern, access): &(String, Access)| match (access.reads, access.writes) {
            (true, true) => format!("~{pattern}"),
            (true, false) => format!("%R~{pattern}"),
            _ => format!("%W~{pattern}"),
        };
        let keys = match self.has_all_keys {
            true => "~*".to_owned(),
            false => self.keys.iter().map(key).collect::<Vec<_>>().join(" "),
        };
        let channels = match self.has_all_channels {
            true => "&*".to_owned(),
            false => {
                let all: Vec<_> =
                    self.channels.iter().map(|channel| format!("&{channel}")).collect();
                all.join(" ")
            }
        };
        [commands, keys, channels]
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [commands, keys, channels] = self.texts();
        if !keys.is_empty() {
            write!(f, "{keys} ")?;
        }
        if !self.has_all_channels {
            f.write_str("resetchannels ")?;
        }
        if !channels.is_empty() {
            write!(f, "{channels} ")?;
        }
        f.write_str(&commands)
    }
}
