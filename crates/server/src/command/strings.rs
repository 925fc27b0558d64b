//! Commands on strings.

use bytes::Bytes;

use crate::args::{self, MILLIS, SECONDS, Unit};
use crate::decimal;
use crate::reply::{Done, Fail, REPLY_BYTES_MAX};
use crate::spec::Call;
use crate::value::{Kind, STRING_BYTES_MAX, Value};

fn too_long() -> Fail {
    Fail::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)")
}

/// Charges the memory of a string of `bytes` before the command makes it.
///
/// # Errors
/// If it is too long for the store, or there is no memory.
pub(crate) fn charge_string(call: &mut Call<'_>, bytes: usize) -> Done {
    let most = call.unit.keys.db.resources().value_bytes_max();
    if bytes > STRING_BYTES_MAX || bytes as u64 > most {
        return Err(too_long());
    }
    call.unit.take(bytes)
}

pub(crate) fn get(call: &mut Call<'_>) -> Done {
    let value = call.value(1)?;
    call.reply.bulk_or_null(value.map(|value| value.bytes));
    Ok(())
}

pub(crate) fn set(call: &mut Call<'_>) -> Done {
    let (mut nx, mut xx, mut keep, mut gets, mut expiry) = (false, false, false, false, None);
    let mut options = call.rest(3).iter();
    while let Some(name) = options.next() {
        match (args::option(name).as_str(), expiry) {
            ("NX", _) if !xx => nx = true,
            ("XX", _) if !nx => xx = true,
            ("GET", _) => gets = true,
            ("KEEPTTL", None) => keep = true,
            (name, None) if !keep => {
                let unit = Unit::of_option(name).ok_or_else(Fail::syntax)?;
                let time = options.next().ok_or_else(Fail::syntax)?;
                expiry = Some((unit, time));
            }
            _ => return Err(Fail::syntax()),
        }
    }
    let expiry =
        expiry.map(|(unit, time)| unit.positive(time, call.unit.now, "set")).transpose()?;
    let old = if gets { call.value(1)? } else { call.value_of(1)? };
    let is_set = !(nx && old.is_some() || xx && old.is_none());
    if is_set {
        let kept = old.as_ref().filter(|_| keep).map_or(0, |old| old.expiry);
        let bytes = Bytes::copy_from_slice(call.arg(2)?);
        call.set(1, Some(Value::string(expiry.unwrap_or(kept), bytes)))?;
    }
    match (gets, is_set) {
        (true, _) => call.reply.bulk_or_null(old.map(|old| old.bytes)),
        (false, true) => call.reply.ok(),
        (false, false) => call.reply.null(),
    }
    Ok(())
}

pub(crate) fn setnx(call: &mut Call<'_>) -> Done {
    let is_new = call.value_of(1)?.is_none();
    if is_new {
        call.set(1, Some(Value::lasting(Bytes::copy_from_slice(call.arg(2)?))))?;
    }
    call.reply.integer(i64::from(is_new));
    Ok(())
}

fn set_with_ttl(call: &mut Call<'_>, unit: Unit) -> Done {
    let expiry = unit.positive(call.arg(2)?, call.unit.now, &call.name())?;
    let bytes = Bytes::copy_from_slice(call.arg(3)?);
    call.set(1, Some(Value::string(expiry, bytes)))?;
    call.reply.ok();
    Ok(())
}

pub(crate) fn setex(call: &mut Call<'_>) -> Done {
    set_with_ttl(call, SECONDS)
}

pub(crate) fn psetex(call: &mut Call<'_>) -> Done {
    set_with_ttl(call, MILLIS)
}

pub(crate) fn getset(call: &mut Call<'_>) -> Done {
    let old = call.value(1)?;
    call.set(1, Some(Value::lasting(Bytes::copy_from_slice(call.arg(2)?))))?;
    call.reply.bulk_or_null(old.map(|old| old.bytes));
    Ok(())
}

pub(crate) fn getdel(call: &mut Call<'_>) -> Done {
    let old = call.value(1)?;
    if old.is_some() {
        call.set(1, None)?;
    }
    call.reply.bulk_or_null(old.map(|old| old.bytes));
    Ok(())
}

pub(crate) fn getex(call: &mut Call<'_>) -> Done {
    let expiry = match call.rest(2) {
        [] => None,
        [only] if args::option(only) == "PERSIST" => Some(0),
        [name, time] => {
            let unit = Unit::of_option(&args::option(name)).ok_or_else(Fail::syntax)?;
            Some(unit.positive(time, call.unit.now, "getex")?)
        }
        _ => return Err(Fail::syntax()),
    };
    let old = call.value(1)?;
    if let (Some(old), Some(expiry)) = (&old, expiry)
        && old.expiry != expiry
    {
        call.set(1, Some(Value::string(expiry, old.bytes.clone())))?;
    }
    call.reply.bulk_or_null(old.map(|old| old.bytes));
    Ok(())
}

pub(crate) fn mget(call: &mut Call<'_>) -> Done {
    let (mut values, mut bytes) = (Vec::new(), 0);
    for number in 1..call.args.len() {
        let value = call.value_of(number)?.filter(|value| value.kind == Kind::String);
        bytes += value.as_ref().map_or(0, |value| value.bytes.len());
        if bytes > REPLY_BYTES_MAX {
            return Err(Fail::too_long());
        }
        values.push(value);
    }
    call.reply.array(values.len());
    values.into_iter().for_each(|value| call.reply.bulk_or_null(value.map(|value| value.bytes)));
    Ok(())
}

/// Checks that every key has a value.
fn check_pairs(call: &Call<'_>) -> Done {
    if call.args.len().is_multiple_of(2) { Err(Fail::arity(&call.name())) } else { Ok(()) }
}

fn set_pairs(call: &mut Call<'_>) -> Done {
    for number in (1..call.args.len()).step_by(2) {
        let value = Value::lasting(Bytes::copy_from_slice(call.arg(number + 1)?));
        call.set(number, Some(value))?;
    }
    Ok(())
}

pub(crate) fn mset(call: &mut Call<'_>) -> Done {
    check_pairs(call)?;
    set_pairs(call)?;
    call.reply.ok();
    Ok(())
}

pub(crate) fn msetnx(call: &mut Call<'_>) -> Done {
    check_pairs(call)?;
    for number in (1..call.args.len()).step_by(2) {
        if call.value_of(number)?.is_some() {
            call.reply.integer(0);
            return Ok(());
        }
    }
    set_pairs(call)?;
    call.reply.integer(1);
    Ok(())
}

pub(crate) fn append(call: &mut Call<'_>) -> Done {
    let (old, added) = (call.value(1)?, call.arg(2)?);
    let expiry = old.as_ref().map_or(0, |old| old.expiry);
    let old = old.map_or_else(Bytes::new, |old| old.bytes);
    charge_string(call, old.len() + added.len())?;
    let bytes = Bytes::from([&old, added].concat());
    let length = bytes.len();
    call.set(1, Some(Value::string(expiry, bytes)))?;
    call.reply.count(length);
    Ok(())
}

pub(crate) fn strlen(call: &mut Call<'_>) -> Done {
    let length = call.value(1)?.map_or(0, |value| value.bytes.len());
    call.reply.count(length);
    Ok(())
}

/// The bytes from `start` to `end`, both included; negative positions count from the end.
pub(crate) fn slice(length: usize, start: i64, end: i64) -> std::ops::Range<usize> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let place = |at: i64| if at < 0 { (at + length).max(0) } else { at };
    let (start, end) = (place(start), place(end).min(length - 1));
    if start > end || length == 0 { 0..0 } else { start as usize..end as usize + 1 }
}

pub(crate) fn getrange(call: &mut Call<'_>) -> Done {
    let (start, end) = (args::integer(call.arg(2)?)?, args::integer(call.arg(3)?)?);
    let bytes = call.value(1)?.map_or_else(Bytes::new, |value| value.bytes);
    call.reply.bulk(bytes.get(slice(bytes.len(), start, end)).unwrap_or_default());
    Ok(())
}

pub(crate) fn setrange(call: &mut Call<'_>) -> Done {
    let at = args::integer(call.arg(2)?)?;
    let at = usize::try_from(at).map_err(|_| Fail::new("ERR offset is out of range"))?;
    let (old, new) = (call.value(1)?, call.arg(3)?);
    if new.is_empty() {
        call.reply.count(old.map_or(0, |old| old.bytes.len()));
        return Ok(());
    }
    let end = at.checked_add(new.len()).ok_or_else(too_long)?;
    charge_string(call, end.max(old.as_ref().map_or(0, |old| old.bytes.len())))?;
    let (expiry, mut bytes) = old.map_or((0, Vec::new()), |old| (old.expiry, old.bytes.to_vec()));
    bytes.resize(bytes.len().max(end), 0);
    if let Some(place) = bytes.get_mut(at..end) {
        place.copy_from_slice(new);
    }
    let length = bytes.len();
    call.set(1, Some(Value::string(expiry, bytes)))?;
    call.reply.count(length);
    Ok(())
}

fn add(call: &mut Call<'_>, by: i64) -> Done {
    let old = call.value(1)?;
    let expiry = old.as_ref().map_or(0, |old| old.expiry);
    let before = old.map_or(Ok(0), |old| args::integer(&old.bytes))?;
    let overflow = || Fail::new("ERR increment or decrement would overflow");
    let after = before.checked_add(by).ok_or_else(overflow)?;
    call.set(1, Some(Value::string(expiry, after.to_string())))?;
    call.reply.integer(after);
    Ok(())
}

pub(crate) fn incr(call: &mut Call<'_>) -> Done {
    add(call, 1)
}

pub(crate) fn decr(call: &mut Call<'_>) -> Done {
    add(call, -1)
}

pub(crate) fn incrby(call: &mut Call<'_>) -> Done {
    let by = args::integer(call.arg(2)?)?;
    add(call, by)
}

pub(crate) fn decrby(call: &mut Call<'_>) -> Done {
    let by = args::integer(call.arg(2)?)?;
    add(call, by.checked_neg().ok_or_else(|| Fail::new("ERR decrement would overflow"))?)
}

pub(crate) fn incrbyfloat(call: &mut Call<'_>) -> Done {
    // As in Redis, the type is checked first.
    let old = call.value(1)?;
    let by = decimal::argument(call.arg(2)?)?;
    let expiry = old.as_ref().map_or(0, |old| old.expiry);
    let sum = match old {
        Some(old) => decimal::argument(&old.bytes)?.add(by),
        None => Some(by),
    };
    let text = sum.filter(|sum| !sum.is_infinite()).ok_or_else(decimal::not_finite)?.text();
    call.set(1, Some(Value::string(expiry, text.clone())))?;
    call.reply.bulk(text);
    Ok(())
}
