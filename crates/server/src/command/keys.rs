//! Commands on keys of any type.

use crate::args::{self, AT_MILLIS, AT_SECONDS, MILLIS, SECONDS, Unit};
use crate::glob;
use crate::keys::{DATABASES, Value, now_ms, stored_key};
use crate::reply::{Done, Fail};
use crate::session::Session;
use crate::spec::Call;

fn no_such_key() -> Fail {
    Fail::new("ERR no such key")
}

pub(crate) fn del(call: &mut Call<'_>) -> Done {
    let mut count = 0;
    for number in 1..call.args.len() {
        if call.value(number)?.is_some() {
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
        count += i64::from(call.value(number)?.is_some());
    }
    call.reply.integer(count);
    Ok(())
}

pub(crate) fn type_of(call: &mut Call<'_>) -> Done {
    let is_there = call.value(1)?.is_some();
    call.reply.simple(if is_there { "string" } else { "none" });
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
    let Some(old) = call.value(1)? else {
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
    let time = match call.value(1)? {
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
    let old = call.value(1)?.filter(|old| old.expiry > 0);
    call.reply.integer(i64::from(old.is_some()));
    match old {
        Some(old) => call.set(1, Some(Value { expiry: 0, ..old })),
        None => Ok(()),
    }
}

pub(crate) fn rename(call: &mut Call<'_>) -> Done {
    let value = call.value(1)?.ok_or_else(no_such_key)?;
    if call.arg(1)? != call.arg(2)? {
        call.set(1, None)?;
        call.set(2, Some(value))?;
    }
    call.reply.ok();
    Ok(())
}

pub(crate) fn renamenx(call: &mut Call<'_>) -> Done {
    let value = call.value(1)?.ok_or_else(no_such_key)?;
    let is_free = call.value(2)?.is_none();
    if is_free {
        call.set(1, None)?;
        call.set(2, Some(value))?;
    }
    call.reply.integer(i64::from(is_free));
    Ok(())
}

/// The number of a database.
///
/// # Errors
/// That it is no number, or out of range.
pub(crate) fn database(arg: &[u8], not_a_number: &str) -> Result<u8, Fail> {
    let number = args::integer(arg).map_err(|_| Fail::new(not_a_number))?;
    let number = u8::try_from(number).ok().filter(|number| *number < DATABASES);
    number.ok_or_else(|| Fail::new("ERR DB index is out of range"))
}

/// COPY within a database; its option DB is refused, because the table of commands names the keys of one
/// database.
pub(crate) fn copy(call: &mut Call<'_>) -> Done {
    let mut replaces = false;
    for option in call.rest(3) {
        match args::option(option).as_str() {
            "REPLACE" => replaces = true,
            "DB" => return Err(Fail::new("ERR COPY to another database is not supported")),
            _ => return Err(Fail::syntax()),
        }
    }
    if call.arg(1)? == call.arg(2)? {
        return Err(Fail::new("ERR source and destination objects are the same"));
    }
    let value = call.value(1)?;
    let is_copied = value.is_some() && (replaces || call.value(2)?.is_none());
    if is_copied {
        call.set(2, value)?;
    }
    call.reply.integer(i64::from(is_copied));
    Ok(())
}

pub(crate) fn object(call: &mut Call<'_>) -> Done {
    let name = args::option(call.arg(1)?);
    if call.args.len() != 3 {
        return Err(Fail::syntax());
    }
    let Some(value) = call.value(2)? else {
        call.reply.null();
        return Ok(());
    };
    match name.as_str() {
        "ENCODING" if args::integer(&value.bytes).is_ok() => call.reply.bulk("int"),
        "ENCODING" if value.bytes.len() <= 44 => call.reply.bulk("embstr"),
        "ENCODING" => call.reply.bulk("raw"),
        "REFCOUNT" => call.reply.integer(1),
        "IDLETIME" | "FREQ" => call.reply.integer(0),
        _ => return Err(Fail::syntax()),
    }
    Ok(())
}

/// Entries that one call looks at while it holds nothing but an iterator.
const PAGE: usize = 1000;
/// The most keys of one SCAN, whatever COUNT says.
const SCAN_MAX: usize = 100_000;

pub(crate) fn keys(session: &mut Session, args: &[Vec<u8>]) -> Done {
    let pattern = args.get(1).ok_or_else(Fail::syntax)?;
    let mut start = Some(vec![session.database]);
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(from) = start {
        let (page, next) = session.shared.keys.page(&from, PAGE, now_ms())?;
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

pub(crate) fn scan(session: &mut Session, args: &[Vec<u8>]) -> Done {
    let cursor = args.get(1).map(|arg| String::from_utf8_lossy(arg).parse::<u64>());
    let Some(Ok(cursor)) = cursor else { return Err(Fail::new("ERR invalid cursor")) };
    let (mut pattern, mut count, mut is_wanted_type) = (None, 10, true);
    let mut options = args.get(2..).unwrap_or_default().iter();
    while let Some(name) = options.next() {
        let value = options.next().ok_or_else(Fail::syntax)?;
        match args::option(name).as_str() {
            "MATCH" => pattern = Some(value),
            "COUNT" => {
                let number = args::integer(value)?;
                count = usize::try_from(number)
                    .ok()
                    .filter(|count| *count > 0)
                    .ok_or_else(Fail::syntax)?;
            }
            "TYPE" => is_wanted_type = value.eq_ignore_ascii_case(b"string"),
            _ => return Err(Fail::syntax()),
        }
    }
    let start = session.shared.cursors.lock().start(session.database, cursor);
    let (page, next) = session.shared.keys.page(&start, count.min(SCAN_MAX), now_ms())?;
    let next = next.map_or(0, |next| session.shared.cursors.lock().add(next));
    let mut found: Vec<_> = page.iter().map(|key| key.get(1..).unwrap_or_default()).collect();
    found.retain(|key| is_wanted_type && pattern.is_none_or(|pattern| glob::matches(pattern, key)));
    session.reply.array(2);
    session.reply.bulk(next.to_string());
    session.reply.bulks(&found);
    Ok(())
}

/// A key near a random place: the first key from a random prefix on, else the first of the database.
pub(crate) fn randomkey(session: &mut Session, _args: &[Vec<u8>]) -> Done {
    let database = session.database;
    let keys = &session.shared.keys;
    let all = keys.page(&[database], 2, now_ms())?;
    let mut found = all.0.into_iter().next();
    if all.1.is_some() {
        // Between the first and the last key.
        let random = session.shared.random();
        let end = [database + 1];
        let last = keys.keys.range(&[database][..]..&end[..])?.next_back().transpose()?;
        let (first, last) =
            (found.clone().unwrap_or_else(|| vec![database]), last.map(|(key, _)| key.to_vec()));
        let place = between(&first, &last.unwrap_or_default(), random);
        found = keys.page(&place, PAGE, now_ms())?.0.into_iter().next().or(found);
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
    let mut unit = crate::keys::Unit::new(&session.shared.keys);
    let mut watched = Vec::new();
    for key in session.shared.watches.watched(databases) {
        if unit.get(&key)?.is_some() {
            watched.push(key);
        }
    }
    session.shared.keys.flush(databases, &session.shared.write_options())?;
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
