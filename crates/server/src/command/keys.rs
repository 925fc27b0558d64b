//! Commands on keys of any type.

use super::scan::Options;
use crate::args::{self, AT_MILLIS, AT_SECONDS, MILLIS, SECONDS, Unit};
use crate::encoding;
use crate::glob;
use crate::keys::{DATABASES, now_ms, stored_key};
use crate::part;
use crate::reply::{Done, Fail};
use crate::session::Session;
use crate::spec::Call;
use crate::take::{Take, check_rows};
use crate::unit::Unit as Staged;
use crate::value::{Head, Kind, Value};

fn no_such_key() -> Fail {
    Fail::new("ERR no such key")
}

pub(crate) fn del(call: &mut Call<'_>) -> Done {
    let mut count = 0;
    for number in 1..call.args.len() {
        if call.value_of(number)?.is_some() {
            call.set(number, None)?;
            count += 1;
        }
    }
    call.reply.integer(count);
    Ok(())
}

pub(crate) fn exists(call: &mut Call<'_>) -> Done {
    let mut count = 0;
    for number in 1..call.args.len() {
        count += i64::from(call.value_of(number)?.is_some());
    }
    call.reply.integer(count);
    Ok(())
}

pub(crate) fn type_of(call: &mut Call<'_>) -> Done {
    let value = call.value_of(1)?;
    call.reply.simple(value.map_or("none", |value| value.kind.name()));
    Ok(())
}

fn set_expiry(call: &mut Call<'_>, unit: Unit) -> Done {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for option in call.rest(3) {
        match args::option(option).as_str() {
            "NX" => nx = true,
            "XX" => xx = true,
            "GT" => gt = true,
            "LT" => lt = true,
            _ => {
                let text = String::from_utf8_lossy(option);
                return Err(Fail::new(format!("ERR Unsupported option {text}")));
            }
        }
    }
    if nx && (xx || gt || lt) {
        return Err(Fail::new(
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    if gt && lt {
        return Err(Fail::new("ERR GT and LT options at the same time are not compatible"));
    }
    let time = args::integer(call.arg(2)?)?;
    let wanted = unit.expiry(time, call.unit.now, &call.name())?;
    // A time before 1970 has passed: 1 stands for all of them.
    let wanted = u64::try_from(wanted).unwrap_or(0).max(1);
    let Some(old) = call.value_of(1)? else {
        call.reply.integer(0);
        return Ok(());
    };
    let current = if old.expiry == 0 { u64::MAX } else { old.expiry };
    let is_refused = nx && old.expiry > 0
        || xx && old.expiry == 0
        || gt && wanted <= current
        || lt && wanted >= current;
    if !is_refused {
        call.set(1, Some(Value { expiry: wanted, ..old }))?;
    }
    call.reply.integer(i64::from(!is_refused));
    Ok(())
}

pub(crate) fn expire(call: &mut Call<'_>) -> Done {
    set_expiry(call, SECONDS)
}

pub(crate) fn pexpire(call: &mut Call<'_>) -> Done {
    set_expiry(call, MILLIS)
}

pub(crate) fn expireat(call: &mut Call<'_>) -> Done {
    set_expiry(call, AT_SECONDS)
}

pub(crate) fn pexpireat(call: &mut Call<'_>) -> Done {
    set_expiry(call, AT_MILLIS)
}

fn reply_time(call: &mut Call<'_>, of: fn(u64, u64) -> u64) -> Done {
    let time = match call.value_of(1)? {
        None => -2,
        Some(value) if value.expiry == 0 => -1,
        Some(value) => i64::try_from(of(value.expiry, call.unit.now)).unwrap_or(i64::MAX),
    };
    call.reply.integer(time);
    Ok(())
}

pub(crate) fn ttl(call: &mut Call<'_>) -> Done {
    reply_time(call, |expiry, now| (expiry.saturating_sub(now) + 500) / 1000)
}

pub(crate) fn pttl(call: &mut Call<'_>) -> Done {
    reply_time(call, |expiry, now| expiry.saturating_sub(now))
}

pub(crate) fn expiretime(call: &mut Call<'_>) -> Done {
    reply_time(call, |expiry, _| (expiry.saturating_add(500)) / 1000)
}

pub(crate) fn pexpiretime(call: &mut Call<'_>) -> Done {
    reply_time(call, |expiry, _| expiry)
}

pub(crate) fn persist(call: &mut Call<'_>) -> Done {
    let old = call.value_of(1)?.filter(|old| old.expiry > 0);
    call.reply.integer(i64::from(old.is_some()));
    match old {
        Some(old) => call.set(1, Some(Value { expiry: 0, ..old })),
        None => Ok(()),
    }
}

pub(crate) fn rename(call: &mut Call<'_>) -> Done {
    let value = call.value_of(1)?.ok_or_else(no_such_key)?;
    if call.arg(1)? != call.arg(2)? {
        call.set(1, None)?;
        call.set(2, Some(value))?;
    }
    call.reply.ok();
    Ok(())
}

pub(crate) fn renamenx(call: &mut Call<'_>) -> Done {
    let value = call.value_of(1)?.ok_or_else(no_such_key)?;
    let is_free = call.value_of(2)?.is_none();
    if is_free {
        call.set(1, None)?;
        call.set(2, Some(value))?;
    }
    call.reply.integer(i64::from(is_free));
    Ok(())
}

/// A copy of `value`, of the stored key `from`, for the database `to`: the rows of a large collection are
/// copied.
fn copied(unit: &mut Staged, from: &[u8], value: Value, to: u8) -> Result<Value, Fail> {
    let Some(head) = value.head()? else { return Ok(value) };
    let database = from.first().copied().unwrap_or(0);
    // Refused before work if it is too large. These are the rows themselves, of which a member may have two.
    check_rows(head.count.saturating_mul(value.kind.rows()))?;
    let mut taken = Take::to_store(unit, Kind::Set, 0)?;
    let (id, mut rows) = (unit.keys.new_id(), Vec::new());
    let (start, end) = part::part_range(database, head.id);
    unit.walk(&start, &end, false, |row, element| {
        let row = part::part_row(to, id, row.get(9..).unwrap_or_default());
        taken.add(row.len() + element.len())?;
        rows.push((row, bytes::Bytes::copy_from_slice(element)));
        Ok(std::ops::ControlFlow::Continue(()))
    })?;
    drop(taken);
    for (row, element) in rows {
        unit.set_part(row, Some(element))?;
    }
    Ok(Value { bytes: Head { id, ..head }.encode(), ..value })
}

pub(crate) fn copy(call: &mut Call<'_>) -> Done {
    let (mut replaces, mut to) = (false, call.database);
    let mut options = call.rest(3).iter();
    while let Some(option) = options.next() {
        match args::option(option).as_str() {
            "REPLACE" => replaces = true,
            "DB" => {
                let number = options.next().ok_or_else(Fail::syntax)?;
                to = args::database(number, "ERR value is not an integer or out of range")?;
            }
            _ => return Err(Fail::syntax()),
        }
    }
    if call.arg(1)? == call.arg(2)? && to == call.database {
        return Err(Fail::new("ERR source and destination objects are the same"));
    }
    let (from, target) = (call.key(1)?, stored_key(to, call.arg(2)?));
    let value = call.unit.get(&from)?;
    let is_free = replaces || call.unit.get(&target)?.is_none();
    let value = value.filter(|_| is_free);
    call.reply.integer(i64::from(value.is_some()));
    if let Some(value) = value {
        let value = copied(call.unit, &from, value, to)?;
        call.unit.set(&target, Some(value))?;
    }
    Ok(())
}

/// MOVE key database.
pub(crate) fn move_key(call: &mut Call<'_>) -> Done {
    let to = args::database(call.arg(2)?, "ERR value is not an integer or out of range")?;
    if to == call.database {
        return Err(Fail::new("ERR source and destination objects are the same"));
    }
    let (from, target) = (call.key(1)?, stored_key(to, call.arg(1)?));
    let is_free = call.unit.get(&target)?.is_none();
    let value = call.unit.get(&from)?.filter(|_| is_free);
    call.reply.integer(i64::from(value.is_some()));
    if let Some(value) = value {
        let value = copied(call.unit, &from, value, to)?;
        call.unit.set(&target, Some(value))?;
        call.unit.set(&from, None)?;
    }
    Ok(())
}

pub(crate) fn object(call: &mut Call<'_>) -> Done {
    let name = args::option(call.arg(1)?);
    if name == "HELP" && call.args.len() == 2 {
        call.reply.bulks(&[
            "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "ENCODING <key>",
            "    Return the kind of internal representation used in order to store the value.",
            "FREQ <key>",
            "    Return the access frequency index of the key: 0.",
            "IDLETIME <key>",
            "    Return the idle time of the key: 0.",
            "REFCOUNT <key>",
            "    Return the number of references of the value: 1.",
            "HELP",
            "    Print this help.",
        ]);
        return Ok(());
    }
    if !matches!(name.as_str(), "ENCODING" | "REFCOUNT" | "IDLETIME" | "FREQ") {
        return Err(Fail::unknown_subcommand("OBJECT", call.arg(1)?));
    }
    if call.args.len() != 3 {
        return Err(Fail::arity(&format!("object|{}", name.to_ascii_lowercase())));
    }
    let Some(value) = call.value_of(2)? else {
        call.reply.null();
        return Ok(());
    };
    match name.as_str() {
        "ENCODING" => call.reply.bulk(encoding::name(&value)),
        "REFCOUNT" => call.reply.integer(1),
        _ => call.reply.integer(0),
    }
    Ok(())
}

/// Entries that one call looks at while it holds nothing but an iterator.
const PAGE: usize = 1000;
pub(crate) fn keys(session: &mut Session, args: &[Vec<u8>]) -> Done {
    let pattern = args.get(1).ok_or_else(Fail::syntax)?;
    let space = session.shared.keys.space(session.database)?;
    if !space.is_ordered() {
        return hashed_keys(session, pattern);
    }
    let mut start = Some(vec![session.database]);
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(from) = start {
        let (page, next) = session.shared.keys.page(&from, PAGE, now_ms(), None)?;
        for key in page {
            let key = key.get(1..).unwrap_or_default();
            if glob::matches(pattern, key) {
                bytes += key.len() + 32;
                found.push(key.to_vec());
            }
        }
        if bytes > session.shared.config.output_bytes_max {
            return Err(Fail::new(
                "ERR the reply is longer than the output buffer of a client: use SCAN",
            ));
        }
        start = next;
    }
    session.reply.bulks(&found);
    Ok(())
}

/// KEYS of a database whose keys have no order: one walk of all its entries.
fn hashed_keys(session: &mut Session, pattern: &[u8]) -> Done {
    let (mut found, mut bytes, now) = (Vec::new(), 0, now_ms());
    for entry in session.shared.keys.space(session.database)?.keyspace.entries()? {
        let (key, stored) = entry?;
        let key = key.get(1..).unwrap_or_default();
        if !glob::matches(pattern, key) || Value::decode(&stored)?.is_expired(now) {
            continue;
        }
        bytes += key.len() + 32;
        if bytes > session.shared.config.output_bytes_max {
            return Err(Fail::new("ERR the reply is longer than the output buffer of a client"));
        }
        found.push(key.to_vec());
    }
    session.reply.bulks(&found);
    Ok(())
}

pub(crate) fn scan(session: &mut Session, args: &[Vec<u8>]) -> Done {
    let options = Options::parse(args, 1)?;
    let kind = options.kind.map(|name| Kind::named(&args::option(name).to_ascii_lowercase()));
    let start = session.shared.cursors.lock().start(session.database, options.cursor);
    let wanted = kind.flatten();
    let (page, next) = session.shared.keys.page(&start, options.count, now_ms(), wanted)?;
    let next = next.map_or(0, |next| session.shared.cursors.lock().add(next));
    let mut found: Vec<_> = page.iter().map(|key| key.get(1..).unwrap_or_default()).collect();
    // No key has a type that does not exist.
    let is_known = kind.is_none_or(|kind| kind.is_some());
    found.retain(|key| is_known && options.matches(key));
    session.reply.array(2);
    session.reply.bulk(next.to_string());
    session.reply.bulks(&found);
    Ok(())
}

/// A key near a random place: the first key from a random prefix on, else the first of the database.
pub(crate) fn randomkey(session: &mut Session, _args: &[Vec<u8>]) -> Done {
    let database = session.database;
    let keys = &session.shared.keys;
    let all = keys.page(&[database], PAGE, now_ms(), None)?;
    let random = session.shared.random();
    // Few keys: each is as likely.
    let place = usize::try_from(random % all.0.len().max(1) as u64).unwrap_or(0);
    let first = all.0.first().cloned().unwrap_or_else(|| vec![database]);
    let mut found = all.0.into_iter().nth(place);
    if all.1.is_some() {
        // Between the first and the last key.
        let end = [database + 1];
        let last = keys
            .space(database)?
            .keyspace
            .range(&[database][..]..&end[..])?
            .next_back()
            .transpose()?;
        let last = last.map(|(key, _)| key.to_vec());
        let place = between(&first, &last.unwrap_or_default(), random);
        found = keys.page(&place, PAGE, now_ms(), None)?.0.into_iter().next().or(found);
    }
    session.reply.bulk_or_null(found.as_ref().map(|key| key.get(1..).unwrap_or_default()));
    Ok(())
}

/// A string between two others: their common prefix, and behind it a random part of the distance.
fn between(first: &[u8], last: &[u8], random: u64) -> Vec<u8> {
    let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let number = |bytes: &[u8]| {
        let at = |place: usize| u64::from(bytes.get(common + place).copied().unwrap_or(0));
        (0..7).fold(0, |sum, place| sum << 8 | at(place))
    };
    let (low, high) = (number(first), number(last));
    let place = low + random % (high.saturating_sub(low) + 1);
    let mut key = first.get(..common).unwrap_or_default().to_vec();
    key.extend_from_slice(place.to_be_bytes().get(1..).unwrap_or_default());
    key
}

pub(crate) fn dbsize(session: &mut Session, _args: &[Vec<u8>]) -> Done {
    let count = session.shared.keys.count(session.database);
    session.reply.integer(count);
    Ok(())
}

fn flush(session: &mut Session, args: &[Vec<u8>], databases: &[u8]) -> Done {
    match args.get(1).map(|arg| args::option(arg)).as_deref() {
        None | Some("SYNC" | "ASYNC") if args.len() <= 2 => {}
        _ => return Err(Fail::syntax()),
    }
    // As in Redis, the flush of a missing key is no change of it.
    let mut unit = Staged::new(&session.shared.keys);
    let mut watched = Vec::new();
    for key in session.shared.watches.watched(databases) {
        if unit.get(&key)?.is_some() {
            watched.push(key);
        }
    }
    let [options, _] = session.shared.write_options();
    session.shared.keys.flush(databases, &options)?;
    session.shared.watches.written(&watched);
    session.has_written = true;
    session.reply.ok();
    Ok(())
}

pub(crate) fn flushdb(session: &mut Session, args: &[Vec<u8>]) -> Done {
    let database = session.database;
    flush(session, args, &[database])
}

pub(crate) fn flushall(session: &mut Session, args: &[Vec<u8>]) -> Done {
    let all: Vec<u8> = (0..DATABASES).collect();
    flush(session, args, &all)
}

/// The stored key of an argument, for sessions.
pub(crate) fn stored(session: &Session, key: &[u8]) -> Vec<u8> {
    stored_key(session.database, key)
}
