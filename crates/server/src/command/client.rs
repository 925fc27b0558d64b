//! Commands on the connection: PING, AUTH, HELLO, SELECT, CLIENT, RESET, QUIT.

use std::sync::Arc;

use super::server::unknown;
use crate::args;
use crate::blocking::State;
use crate::reply::{Done, Fail};
use crate::session::{Replies, Session};

pub(crate) fn ping(session: &mut Session, args: &[Vec<u8>]) -> Done {
    let is_subscribed = !session.channels.is_empty() || !session.patterns.is_empty();
    match (args.get(1), is_subscribed && !session.reply.is_resp3) {
        _ if args.len() > 2 => return Err(Fail::arity("ping")),
        (text, true) => {
            session.reply.array(2);
            session.reply.bulk("pong");
            session.reply.bulk(text.map_or(&[][..], Vec::as_slice));
        }
        (Some(text), false) => session.reply.bulk(text),
        (None, false) => session.reply.simple("PONG"),
    }
    Ok(())
}

pub(crate) fn echo(session: &mut Session, args: &[Vec<u8>]) -> Done {
    session.reply.bulk(args.get(1).ok_or_else(Fail::syntax)?);
    Ok(())
}

pub(crate) fn quit(session: &mut Session, _args: &[Vec<u8>]) -> Done {
    session.reply.ok();
    session.is_closing = true;
    Ok(())
}

pub(crate) fn reset(session: &mut Session, _args: &[Vec<u8>]) -> Done {
    session.queued = None;
    session.unwatch();
    session.leave_topics();
    session.replies = Replies::On;
    session.database = 0;
    session.reply.is_resp3 = false;
    let default = Arc::clone(session.shared.users.default());
    let rules = default.rules();
    session.log_in(default);
    session.is_authenticated = rules.is_on && rules.has_no_password;
    let mut info = session.client.info.lock();
    (info.database, info.is_resp3) = (0, false);
    info.name.clear();
    drop(info);
    session.reply.simple("RESET");
    Ok(())
}

pub(crate) fn select(session: &mut Session, args: &[Vec<u8>]) -> Done {
    let number = args.get(1).ok_or_else(Fail::syntax)?;
    session.database = args::database(number, "ERR value is not an integer or out of range")?;
    session.client.info.lock().database = session.database;
    session.reply.ok();
    Ok(())
}

/// Makes the client `user`, if its password is right.
fn check_password(session: &mut Session, user: &[u8], password: &[u8]) -> Done {
    if let Some(user) = session.shared.users.authenticate(user, password) {
        session.log_in(user);
        return Ok(());
    }
    let name = String::from_utf8_lossy(user.get(..128).unwrap_or(user)).into_owned();
    session.note_refusal("auth", name.clone().into_bytes(), name);
    Err(Fail::new("WRONGPASS invalid username-password pair or user is disabled."))
}

pub(crate) fn auth(session: &mut Session, args: &[Vec<u8>]) -> Done {
    match args {
        [_, password] if !session.shared.users.default().rules().has_no_password => {
            check_password(session, b"default", password)?;
        }
        [_, _] => {
            return Err(Fail::new(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure \
                 your configuration is correct?",
            ));
        }
        [_, user, password] => check_password(session, user, password)?,
        _ => return Err(Fail::syntax()),
    }
    session.reply.ok();
    Ok(())
}

fn set_name(session: &Session, name: &[u8]) -> Done {
    if name.iter().any(|byte| !(b'!'..=b'~').contains(byte)) {
        return Err(Fail::new(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        ));
    }
    session.client.info.lock().name = name.to_vec();
    Ok(())
}

pub(crate) fn hello(session: &mut Session, args: &[Vec<u8>]) -> Done {
    let mut is_resp3 = session.reply.is_resp3;
    if let Some(version) = args.get(1) {
        let version = args::integer(version)
            .map_err(|_| Fail::new("ERR Protocol version is not an integer or out of range"))?;
        is_resp3 = match version {
            2 => false,
            3 => true,
            _ => return Err(Fail::new("NOPROTO unsupported protocol version")),
        };
    }
    let mut rest = args.get(2..).unwrap_or_default();
    loop {
        rest = match rest {
            [] => break,
            [name, user, password, rest @ ..] if args::option(name) == "AUTH" => {
                check_password(session, user, password)?;
                rest
            }
            [option, name, rest @ ..] if args::option(option) == "SETNAME" => {
                set_name(session, name)?;
                rest
            }
            [option, ..] => {
                let option = String::from_utf8_lossy(option);
                return Err(Fail::new(format!("ERR Syntax error in HELLO option '{option}'")));
            }
        };
    }
    if !session.is_authenticated {
        return Err(Fail::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise \
             the HELLO <proto> AUTH \
             <user> <pass> option can be used to authenticate the client and select the RESP \
             protocol version at \
             the same time",
        ));
    }
    session.reply.is_resp3 = is_resp3;
    session.client.info.lock().is_resp3 = is_resp3;
    let id = i64::try_from(session.client.id).unwrap_or(i64::MAX);
    let reply = &mut session.reply;
    reply.map(7);
    reply.bulk("server");
    reply.bulk("redis");
    reply.bulk("version");
    reply.bulk("7.0.15");
    reply.bulk("proto");
    reply.integer(if is_resp3 { 3 } else { 2 });
    reply.bulk("id");
    reply.integer(id);
    reply.bulk("mode");
    reply.bulk("standalone");
    reply.bulk("role");
    reply.bulk("master");
    reply.bulk("modules");
    reply.array(0);
    Ok(())
}

pub(crate) fn client(session: &mut Session, args: &[Vec<u8>]) -> Done {
    let name = args.get(1).map_or_else(String::new, |arg| args::option(arg));
    let rest = args.get(2..).unwrap_or_default();
    match (name.as_str(), rest) {
        ("ID", []) => session.reply.integer(i64::try_from(session.client.id).unwrap_or(i64::MAX)),
        ("INFO", []) => session.reply.bulk(session.client.line()),
        ("LIST", filters) => {
            let is_listed = listed(filters)?;
            let clients = session.shared.clients.connected.lock();
            let listed = clients.values().filter(|client| is_listed(client));
            let lines: String = listed.map(|client| client.line()).collect();
            drop(clients);
            session.reply.bulk(lines);
        }
        ("UNBLOCK", [id, how @ ..]) => {
            let reply = match how.first().map(|how| args::option(how)).as_deref() {
                None | Some("TIMEOUT") if how.len() < 2 => b"*-1\r\n".to_vec(),
                Some("ERROR") if how.len() < 2 => {
                    b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n".to_vec()
                }
                _ => {
                    return Err(Fail::new("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
                }
            };
            let id = u64::try_from(args::integer(id)?).unwrap_or(0);
            let waiter = session.shared.waiters.find(id);
            let is_ended = waiter.is_some_and(|waiter| {
                let is_null = reply.starts_with(b"*") && waiter.is_resp3;
                waiter.end(State::Served(if is_null { b"_\r\n".to_vec() } else { reply }))
            });
            session.reply.integer(i64::from(is_ended));
        }
        ("GETNAME", []) => {
            let name = session.client.info.lock().name.clone();
            session.reply.bulk_or_null((!name.is_empty()).then_some(name));
        }
        ("SETNAME", [name]) => {
            set_name(session, name)?;
            session.reply.ok();
        }
        ("SETINFO", [option, value]) => {
            let value = String::from_utf8_lossy(value.get(..128).unwrap_or(value))
                .replace([' ', '\n'], "_");
            let mut info = session.client.info.lock();
            match args::option(option).as_str() {
                "LIB-NAME" => info.library.0 = value,
                "LIB-VER" => info.library.1 = value,
                _ => return Err(Fail::new("ERR Unrecognized option")),
            }
            drop(info);
            session.reply.ok();
        }
        ("NO-EVICT", [mode]) => match args::option(mode).as_str() {
            // No client is ever evicted: each is cut off at its own limit.
            "ON" | "OFF" => session.reply.ok(),
            _ => return Err(Fail::syntax()),
        },
        ("REPLY", [mode]) => match args::option(mode).as_str() {
            "ON" => {
                session.replies = Replies::On;
                session.reply.ok();
            }
            "OFF" => session.replies = Replies::Off,
            "SKIP" => session.replies = Replies::SkipNext,
            _ => return Err(Fail::syntax()),
        },
        ("KILL", [address]) => {
            let address = String::from_utf8_lossy(address).into_owned();
            match kill(session, |client| client.address == address, false) {
                0 => return Err(Fail::new("ERR No such client")),
                _ => session.reply.ok(),
            }
        }
        ("KILL", filters @ [_, ..]) => {
            let count = kill_by(session, filters)?;
            session.reply.count(count);
        }
        (
            name @ ("ID" | "INFO" | "GETNAME" | "SETNAME" | "SETINFO" | "NO-EVICT" | "REPLY"
            | "UNBLOCK" | "KILL"),
            _,
        ) => {
            return Err(Fail::arity(&format!("client|{}", name.to_ascii_lowercase())));
        }
        _ => return Err(unknown("CLIENT", args)),
    }
    Ok(())
}

/// Whether CLIENT LIST shows a client.
type Listed = Box<dyn Fn(&crate::clients::Client) -> bool>;

/// The filters of CLIENT LIST: TYPE or ID.
fn listed(filters: &[Vec<u8>]) -> Result<Listed, Fail> {
    let [name, values @ ..] = filters else { return Ok(Box::new(|_| true)) };
    match (args::option(name).as_str(), values) {
        ("TYPE", [kind]) => kind_filter(kind),
        ("ID", [_, ..]) => {
            let mut ids = std::collections::BTreeSet::new();
            for value in values {
                let id = args::integer(value).ok().and_then(|id| u64::try_from(id).ok());
                ids.insert(id.ok_or_else(|| Fail::new("ERR Invalid client ID"))?);
            }
            Ok(Box::new(move |client| ids.contains(&client.id)))
        }
        _ => Err(Fail::syntax()),
    }
}

/// The clients of a type: there are normal ones and subscribers.
fn kind_filter(kind: &[u8]) -> Result<Listed, Fail> {
    match args::option(kind).as_str() {
        "NORMAL" => Ok(Box::new(|client| !client.is_subscriber())),
        "PUBSUB" => Ok(Box::new(crate::clients::Client::is_subscriber)),
        "MASTER" | "REPLICA" | "SLAVE" => Ok(Box::new(|_| false)),
        _ => {
            let kind = String::from_utf8_lossy(kind);
            Err(Fail::new(format!("ERR Unknown client type '{kind}'")))
        }
    }
}

/// Ends the chosen connections. Its own ends after the reply.
pub(super) fn kill(
    session: &mut Session,
    is_chosen: impl Fn(&crate::clients::Client) -> bool,
    skips_own: bool,
) -> usize {
    let mut count = 0;
    let own = session.client.id;
    for client in session.shared.clients.connected.lock().values() {
        if !is_chosen(client) || skips_own && client.id == own {
            continue;
        }
        count += 1;
        if client.id == own {
            session.is_closing = true;
        } else {
            client.kill();
        }
    }
    count
}

fn kill_by(session: &mut Session, filters: &[Vec<u8>]) -> Result<usize, Fail> {
    let (mut id, mut address, mut local, mut skips_own) = (None, None, None, true);
    let (mut kind, mut user) = (None, None);
    for pair in filters.chunks(2) {
        let [name, value] = pair else { return Err(Fail::syntax()) };
        let text = String::from_utf8_lossy(value).into_owned();
        match args::option(name).as_str() {
            "ID" => {
                let number = args::integer(value).ok().and_then(|id| u64::try_from(id).ok());
                id = Some(
                    number.ok_or_else(|| Fail::new("ERR client-id should be greater than 0"))?,
                );
            }
            "ADDR" => address = Some(text),
            "LADDR" => local = Some(text),
            "TYPE" => kind = Some(kind_filter(value)?),
            "USER" => user = Some(text),
            "SKIPME" if text.eq_ignore_ascii_case("yes") => skips_own = true,
            "SKIPME" if text.eq_ignore_ascii_case("no") => skips_own = false,
            _ => return Err(Fail::syntax()),
        }
    }
    let is_chosen = |client: &crate::clients::Client| {
        id.is_none_or(|id| client.id == id)
            && kind.as_ref().is_none_or(|is_of_kind: &Listed| is_of_kind(client))
            && user.as_ref().is_none_or(|user| *user == client.user())
            && address.as_ref().is_none_or(|address| *address == client.address)
            && local.as_ref().is_none_or(|local| *local == client.local)
    };
    Ok(kill(session, is_chosen, skips_own))
}
