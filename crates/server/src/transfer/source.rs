//! [`Source`]: a running server of the Redis protocol that is read by SCAN and typed reads.
//!
//! Every type is read in pieces, so a huge collection takes no more memory here than a small one. Keys that
//! change meanwhile may be read before or after their change; a list whose head moves may be read with a gap,
//! so lists should rest.

use std::io::{BufRead, BufReader, Read, Write};

use terracedb::Db;

use super::importer::{Importer, Tally};
use super::sink::{STRING_BYTES_MAX, Sink, SourceKey};
use super::socket::{Socket, SourceTls};
use super::stopped::Stopped;
use crate::keys::now_ms;
use crate::value::Kind;

/// Keys of one SCAN, and elements of one read of a collection.
const PAGE: usize = 500;
/// The most replies within a reply, and how deep they nest.
const ELEMENTS_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 4;

/// The address of a server: `redis://[[USER:]PASSWORD@]HOST[:PORT][/DATABASE]`, or `rediss://` for a
/// connection that is encrypted.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    is_encrypted: bool,
    user: Option<String>,
    password: Option<String>,
    address: String,
    /// Only this database.
    database: Option<u8>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The password must not reach a log.
        f.debug_struct("Source").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A text with `%41` in place of special letters.
fn unescape(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first == b'%' {
            let (digits, behind) = rest.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = behind;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

impl std::str::FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "redis://[[USER:]PASSWORD@]HOST[:PORT][/DATABASE] or rediss://.. is expected".to_owned()
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let is_encrypted = match scheme {
            "redis" => false,
            "rediss" => true,
            _ => return Err(wrong()),
        };
        let (rest, database) = match rest.split_once('/') {
            None | Some((_, "")) => (rest.trim_end_matches('/'), None),
            Some((rest, database)) => (rest, Some(database.parse().map_err(|_| wrong())?)),
        };
        let (login, host) = match rest.rsplit_once('@') {
            None => (None, rest),
            Some((login, host)) => (Some(login), host),
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or(("", login)))
        {
            None => (None, None),
            Some((user, password)) => {
                let user = unescape(user).ok_or_else(wrong)?;
                (
                    Some(user).filter(|user| !user.is_empty()),
                    Some(unescape(password).ok_or_else(wrong)?),
                )
            }
        };
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if host.is_empty() || host.starts_with(':') {
            return Err(wrong());
        }
        let address = if has_port { host.to_owned() } else { format!("{host}:6379") };
        Ok(Self { is_encrypted, user, password, address, database })
    }
}

impl Source {
    /// The connection is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }
}

/// Adds the keys of a running server to `db`. Calls `progress` with the keys that were read and the number
/// that the server said it has. `tls` is for an encrypted source.
///
/// # Errors
/// That the server cannot be reached or trusted, refuses a command or breaks the protocol; those of the
/// store.
pub fn import_from(
    db: Db,
    source: &Source,
    tls: &SourceTls,
    mut progress: impl FnMut(u64, u64) -> terracedb::Result<()>,
) -> Result<Tally, Stopped> {
    let mut connection = Connection::open(source, tls)?;
    let databases = connection.databases()?;
    let chosen = |number: u8| source.database.is_none_or(|only| only == number);
    let databases: Vec<_> = databases.into_iter().filter(|(number, _)| chosen(*number)).collect();
    let total = databases.iter().map(|(_, keys)| keys).sum();
    let mut importer = Importer::new(db, move |done| progress(done, total))?;
    let mut done = 0;
    for (database, _) in databases {
        connection.call(&[b"SELECT", database.to_string().as_bytes()])?;
        let mut cursor = b"0".to_vec();
        loop {
            let count = PAGE.to_string();
            let (next, keys) = connection.page(&[b"SCAN", &cursor, b"COUNT", count.as_bytes()])?;
            done += keys.len() as u64;
            connection.copy(database, keys, &mut importer)?;
            importer.progress(done);
            if next == b"0" {
                break;
            }
            cursor = next;
        }
    }
    importer.finish()
}

/// A reply.
#[derive(Debug, PartialEq)]
enum Reply {
    Text(Vec<u8>),
    Error(String),
    Int(i64),
    Null,
    Array(Vec<Reply>),
}

struct Connection<S> {
    input: BufReader<S>,
    /// The source tells expiry times: since Redis 7.0. Before, it tells the time that is left, and the sum
    /// with the clock here is late by the way of the reply.
    has_times: bool,
}

fn broken<T>(text: &str) -> Result<T, Stopped> {
    Err(Stopped::new(format!("the source breaks the protocol: {text}")))
}

impl Connection<Socket> {
    fn open(source: &Source, tls: &SourceTls) -> Result<Self, Stopped> {
        let socket = match source.is_encrypted {
            false => Socket::connect(&source.address)?,
            true => Socket::connect_encrypted(&source.address, tls)?,
        };
        let input = BufReader::with_capacity(256 << 10, socket);
        let mut connection = Self { input, has_times: false };
        if let Some(password) = &source.password {
            let mut request = vec![b"AUTH".as_slice()];
            request.extend(source.user.as_ref().map(String::as_bytes));
            request.push(password.as_bytes());
            connection.call(&request)?;
        }
        connection.send(&[vec![b"PEXPIRETIME".as_slice(), b""]])?;
        connection.has_times = matches!(connection.reply(0)?, Reply::Int(_));
        Ok(connection)
    }
}

impl<S: Read + Write> Connection<S> {
    fn send(&mut self, requests: &[Vec<&[u8]>]) -> Result<(), Stopped> {
        let mut bytes = Vec::new();
        for request in requests {
            super::export::push_request(&mut bytes, request);
        }
        Ok(self.input.get_mut().write_all(&bytes)?)
    }

    fn call(&mut self, request: &[&[u8]]) -> Result<Reply, Stopped> {
        self.send(&[request.to_vec()])?;
        match self.reply(0)? {
            Reply::Error(error) => {
                let name = request.first().map_or(&[][..], |name| name);
                Err(Stopped::new(format!(
                    "the source refuses {}: {error}",
                    String::from_utf8_lossy(name)
                )))
            }
            reply => Ok(reply),
        }
    }

    fn line(&mut self) -> Result<Vec<u8>, Stopped> {
        let mut line = Vec::new();
        (&mut self.input).take(64 << 10).read_until(b'\n', &mut line)?;
        match line.strip_suffix(b"\r\n") {
            Some(text) => Ok(text.to_vec()),
            None if line.is_empty() => {
                Err(Stopped::new("the source closed the connection".to_owned()))
            }
            None => broken("a line is too long"),
        }
    }

    fn reply(&mut self, depth: usize) -> Result<Reply, Stopped> {
        let line = self.line()?;
        let (kind, text) = line.split_first().ok_or(()).or_else(|()| broken("an empty line"))?;
        let number = || {
            let text = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
            text.ok_or(()).or_else(|()| broken("a length is no number"))
        };
        Ok(match kind {
            b'+' => Reply::Text(text.to_vec()),
            b'-' => Reply::Error(String::from_utf8_lossy(text).into_owned()),
            b':' => Reply::Int(number()?),
            b'$' | b'*' if number()? == -1 => Reply::Null,
            b'$' => {
                let length = usize::try_from(number()?).unwrap_or(usize::MAX);
                if length > STRING_BYTES_MAX {
                    return Err(Stopped::new(format!(
                        "a value of the source has {length} bytes, and this store takes {STRING_BYTES_MAX}"
                    )));
                }
                let mut bytes = Vec::new();
                (&mut self.input).take(length as u64 + 2).read_to_end(&mut bytes)?;
                if bytes.len() != length + 2 || !bytes.ends_with(b"\r\n") {
                    return broken("a string is cut off");
                }
                bytes.truncate(length);
                Reply::Text(bytes)
            }
            b'*' => {
                let length = usize::try_from(number()?).unwrap_or(usize::MAX);
                if length > ELEMENTS_MAX || depth == DEPTH_MAX {
                    return broken("an array is too long or too deep");
                }
                Reply::Array((0..length).map(|_| self.reply(depth + 1)).collect::<Result<_, _>>()?)
            }
            _ => return broken("a reply has an unknown type"),
        })
    }

    /// The databases with keys, and their numbers of keys.
    fn databases(&mut self) -> Result<Vec<(u8, u64)>, Stopped> {
        let Reply::Text(info) = self.call(&[b"INFO", b"keyspace"])? else {
            return broken("INFO replies with no text");
        };
        let info = String::from_utf8_lossy(&info).into_owned();
        let one = |line: &str| {
            let (number, rest) = line.trim().strip_prefix("db")?.split_once(":keys=")?;
            let keys = rest.split(',').next()?;
            Some((number.parse().ok()?, keys.parse().ok()?))
        };
        Ok(info.lines().filter_map(one).collect())
    }

    /// A page of a SCAN command: the next cursor, and the elements.
    fn page(&mut self, request: &[&[u8]]) -> Result<(Vec<u8>, Vec<Vec<u8>>), Stopped> {
        let Reply::Array(reply) = self.call(request)? else {
            return broken("a scan replies with no array");
        };
        let mut reply = reply.into_iter();
        match (reply.next(), reply.next(), reply.next()) {
            (Some(Reply::Text(cursor)), Some(Reply::Array(elements)), None) => {
                Ok((cursor, texts(elements)?))
            }
            _ => broken("a scan replies with no cursor and elements"),
        }
    }

    /// Copies keys of a page: their types and times in one pipeline, then each.
    fn copy(
        &mut self,
        database: u8,
        names: Vec<Vec<u8>>,
        sink: &mut impl Sink,
    ) -> Result<(), Stopped> {
        let time: &[u8] = if self.has_times { b"PEXPIRETIME" } else { b"PTTL" };
        let requests: Vec<_> = names
            .iter()
            .flat_map(|name| [vec![b"TYPE".as_slice(), name], vec![time, name]])
            .collect();
        // Both ends of a pipeline buffer this much.
        for (requests, names) in requests.chunks(2 * 64).zip(names.chunks(64)) {
            self.send(requests)?;
            let mut keys = Vec::new();
            for name in names {
                let (kind, time) = (self.reply(0)?, self.reply(0)?);
                keys.push((name, kind, time));
            }
            let now = if self.has_times { 0 } else { now_ms() };
            for (name, kind, time) in keys {
                let (Reply::Text(kind), Reply::Int(time)) = (kind, time) else {
                    return broken("TYPE, PTTL or PEXPIRETIME replies with another type");
                };
                // A negative time: the key does not expire, or is gone.
                let expiry = u64::try_from(time).map_or(0, |time| now.saturating_add(time.max(1)));
                match Kind::named(&String::from_utf8_lossy(&kind)) {
                    Some(kind) => {
                        self.copy_key(
                            SourceKey { database, name: name.clone(), kind, expiry },
                            sink,
                        )?;
                    }
                    // It expired or was deleted since the scan.
                    None if kind == b"none" => {}
                    None if kind == b"stream" => sink.skipped("stream"),
                    None => sink.skipped("key of a module's type"),
                }
            }
        }
        Ok(())
    }

    fn copy_key(&mut self, key: SourceKey, sink: &mut impl Sink) -> Result<(), Stopped> {
        let (name, kind) = (key.name.clone(), key.kind);
        let page = PAGE.to_string();
        match kind {
            Kind::String => {
                // Gone since the scan, if it is none.
                if let Reply::Text(value) = self.call(&[b"GET", &name])? {
                    sink.begin(key)?;
                    sink.element(&value, &[])?;
                    sink.end()?;
                }
                return Ok(());
            }
            Kind::List => {
                sink.begin(key)?;
                let mut start = 0_usize;
                loop {
                    let (from, to) = (start.to_string(), (start + PAGE - 1).to_string());
                    let Reply::Array(elements) =
                        self.call(&[b"LRANGE", &name, from.as_bytes(), to.as_bytes()])?
                    else {
                        return broken("LRANGE replies with no array");
                    };
                    let elements = texts(elements)?;
                    elements.iter().try_for_each(|element| sink.element(element, &[]))?;
                    start += elements.len();
                    if elements.len() < PAGE {
                        break;
                    }
                }
            }
            Kind::Hash | Kind::Set | Kind::SortedSet => {
                let command: &[u8] = match kind {
                    Kind::Hash => b"HSCAN",
                    Kind::Set => b"SSCAN",
                    _ => b"ZSCAN",
                };
                sink.begin(key)?;
                let mut cursor = b"0".to_vec();
                loop {
                    let (next, elements) =
                        self.page(&[command, &name, &cursor, b"COUNT", page.as_bytes()])?;
                    if kind == Kind::Set {
                        elements.iter().try_for_each(|member| sink.element(member, &[]))?;
                    } else {
                        for pair in elements.chunks(2) {
                            let [member, payload] = pair else {
                                return broken("a member has no value");
                            };
                            match kind {
                                Kind::Hash => sink.element(member, payload)?,
                                _ => {
                                    let score = super::rdb::parse_score(payload)?;
                                    sink.element(member, &crate::collection::payload(score))?;
                                }
                            }
                        }
                    }
                    if next == b"0" {
                        break;
                    }
                    cursor = next;
                }
            }
        }
        sink.end()
    }
}

fn texts(replies: Vec<Reply>) -> Result<Vec<Vec<u8>>, Stopped> {
    let text = |reply| match reply {
        Reply::Text(text) => Ok(text),
        _ => broken("an element is no string"),
    };
    replies.into_iter().map(text).collect()
}
