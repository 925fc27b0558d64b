//! Commands on hashes.

use bytes::Bytes;

use super::scan::{Options, reply_page};
use crate::args;
use crate::collection::{Member, Members};
use crate::decimal;
use crate::reply::{Done, Fail};
use crate::spec::Call;
use crate::value::Kind;

fn open(call: &mut Call<'_>) -> Result<Members, Fail> {
    call.members(1, Kind::Hash)
}

/// Sets the pairs of the arguments, and returns the number of new fields.
fn set_pairs(call: &mut Call<'_>) -> Result<usize, Fail> {
    if !call.args.len().is_multiple_of(2) {
        return Err(Fail::arity(&call.name()));
    }
    let mut hash = open(call)?;
    let mut added = 0;
    for pair in call.rest(2).chunks(2) {
        let [field, value] = pair else { continue };
        added += usize::from(hash.put(call.unit, field, value)?);
    }
    hash.save(call.unit)?;
    Ok(added)
}

pub(crate) fn hset(call: &mut Call<'_>) -> Done {
    let added = set_pairs(call)?;
    call.reply.count(added);
    Ok(())
}

pub(crate) fn hmset(call: &mut Call<'_>) -> Done {
    set_pairs(call)?;
    call.reply.ok();
    Ok(())
}

pub(crate) fn hsetnx(call: &mut Call<'_>) -> Done {
    let mut hash = open(call)?;
    let (field, value) = (call.arg(2)?, call.arg(3)?);
    let is_new = hash.get(call.unit, field)?.is_none();
    if is_new {
        hash.put(call.unit, field, value)?;
        hash.save(call.unit)?;
    }
    call.reply.integer(i64::from(is_new));
    Ok(())
}

pub(crate) fn hget(call: &mut Call<'_>) -> Done {
    let value = open(call)?.get(call.unit, call.arg(2)?)?;
    call.reply.bulk_or_null(value);
    Ok(())
}

pub(crate) fn hmget(call: &mut Call<'_>) -> Done {
    let hash = open(call)?;
    call.reply.array(call.args.len() - 2);
    for field in call.rest(2) {
        let value = hash.get(call.unit, field)?;
        call.reply.bulk_or_null(value);
        call.reply.check_length()?;
    }
    Ok(())
}

pub(crate) fn hdel(call: &mut Call<'_>) -> Done {
    let mut hash = open(call)?;
    let mut count = 0;
    for field in call.rest(2) {
        count += usize::from(hash.remove(call.unit, field)?.is_some());
    }
    hash.save(call.unit)?;
    call.reply.count(count);
    Ok(())
}

pub(crate) fn hlen(call: &mut Call<'_>) -> Done {
    let count = open(call)?.len();
    call.reply.count(count);
    Ok(())
}

pub(crate) fn hstrlen(call: &mut Call<'_>) -> Done {
    let value = open(call)?.get(call.unit, call.arg(2)?)?;
    call.reply.count(value.map_or(0, |value| value.len()));
    Ok(())
}

pub(crate) fn hexists(call: &mut Call<'_>) -> Done {
    let value = open(call)?.get(call.unit, call.arg(2)?)?;
    call.reply.integer(i64::from(value.is_some()));
    Ok(())
}

/// Replies with fields, values, or both.
fn reply_all(call: &mut Call<'_>, has_fields: bool, has_values: bool) -> Done {
    let hash = open(call)?;
    match has_fields && has_values {
        true => call.reply.map(hash.len()),
        false => call.reply.array(hash.len()),
    }
    let reply = &mut *call.reply;
    hash.walk(call.unit, |field, value| {
        if has_fields {
            reply.bulk(field);
        }
        if has_values {
            reply.bulk(value);
        }
        reply.check_length()?;
        Ok(std::ops::ControlFlow::Continue(()))
    })
}

pub(crate) fn hgetall(call: &mut Call<'_>) -> Done {
    reply_all(call, true, true)
}

pub(crate) fn hkeys(call: &mut Call<'_>) -> Done {
    reply_all(call, true, false)
}

pub(crate) fn hvals(call: &mut Call<'_>) -> Done {
    reply_all(call, false, true)
}

pub(crate) fn hincrby(call: &mut Call<'_>) -> Done {
    let by = args::integer(call.arg(3)?)?;
    let mut hash = open(call)?;
    let field = call.arg(2)?;
    let no_integer = |_| Fail::new("ERR hash value is not an integer");
    let old = hash.get(call.unit, field)?;
    let old = old.map_or(Ok(0), |old| args::integer(&old)).map_err(no_integer)?;
    let overflow = || Fail::new("ERR increment or decrement would overflow");
    let new = old.checked_add(by).ok_or_else(overflow)?;
    hash.put(call.unit, field, new.to_string().as_bytes())?;
    hash.save(call.unit)?;
    call.reply.integer(new);
    Ok(())
}

pub(crate) fn hincrbyfloat(call: &mut Call<'_>) -> Done {
    let by = decimal::argument(call.arg(3)?)?;
    if by.is_infinite() {
        return Err(Fail::new("ERR value is NaN or Infinity"));
    }
    let mut hash = open(call)?;
    let field = call.arg(2)?;
    let no_float = || Fail::new("ERR hash value is not a float");
    let text = match hash.get(call.unit, field)? {
        Some(old) => decimal::parse(&old).ok_or_else(no_float)?.add(by),
        None => Some(by),
    };
    let text = text.filter(|sum| !sum.is_infinite()).ok_or_else(decimal::not_finite)?.text();
    hash.put(call.unit, field, text.as_bytes())?;
    hash.save(call.unit)?;
    call.reply.bulk(text);
    Ok(())
}

/// Members chosen at random, as the options of HRANDFIELD, SRANDMEMBER and ZRANDMEMBER say; `None`: there
/// is no key.
///
/// # Errors
/// Those of the store; that the reply is too long.
pub(crate) fn choose(call: &mut Call<'_>, from: &Members, count: i64) -> Result<Vec<Member>, Fail> {
    if count >= 0 {
        return from.sample(call.unit, usize::try_from(count).unwrap_or(usize::MAX));
    }
    if from.is_empty() {
        return Ok(Vec::new());
    }
    let most = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    // Members may repeat. Few of them are held once, instead of a walk for each.
    let all = if from.is_small() { from.all(call.unit)? } else { Vec::new() };
    let (mut chosen, mut bytes) = (Vec::new(), 0);
    while chosen.len() < most {
        let place = usize::try_from(call.unit.random() % from.len().max(1) as u64).unwrap_or(0);
        let member = match all.get(place) {
            Some(member) => Some(member.clone()),
            None => from.random(call.unit)?,
        };
        let Some(member) = member else { break };
        bytes += member.0.len() + member.1.len() + 32;
        if bytes > crate::reply::REPLY_BYTES_MAX {
            return Err(Fail::too_long());
        }
        call.unit.take(64)?;
        chosen.push(member);
    }
    Ok(chosen)
}

/// Replies to HRANDFIELD and ZRANDMEMBER; `value` writes the second part of a pair.
pub(crate) fn reply_random(
    call: &mut Call<'_>,
    kind: Kind,
    option: &str,
    value: fn(&mut crate::reply::Reply, &Bytes) -> Done,
) -> Done {
    if call.args.len() == 2 {
        let from = call.members(1, kind)?;
        let member = from.random(call.unit)?;
        call.reply.bulk_or_null(member.map(|(member, _)| member));
        return Ok(());
    }
    let count = args::range(call.arg(2)?, -i64::MAX, i64::MAX)?;
    let has_values = match call.rest(3) {
        [] => false,
        [only] if args::option(only) == option => true,
        _ => return Err(Fail::syntax()),
    };
    if has_values && !(-i64::MAX / 2..=i64::MAX / 2).contains(&count) {
        return Err(Fail::new("ERR value is out of range"));
    }
    let from = call.members(1, kind)?;
    let chosen = choose(call, &from, count)?;
    let is_nested = has_values && call.reply.is_resp3;
    call.reply.array(chosen.len() * if has_values && !is_nested { 2 } else { 1 });
    for (member, payload) in chosen {
        if is_nested {
            call.reply.array(2);
        }
        call.reply.bulk(member);
        if has_values {
            value(call.reply, &payload)?;
        }
    }
    Ok(())
}

pub(crate) fn hrandfield(call: &mut Call<'_>) -> Done {
    reply_random(call, Kind::Hash, "WITHVALUES", |reply, value| {
        reply.bulk(value);
        Ok(())
    })
}

pub(crate) fn hscan(call: &mut Call<'_>) -> Done {
    let options = Options::parse(call.args, 2)?;
    let hash = open(call)?;
    reply_page(call, &hash, &options, |reply, (field, value)| {
        reply.bulk(field);
        reply.bulk(value);
        Ok(2)
    })
}
