//! Commands on sets.

use std::collections::HashSet;
use std::ops::ControlFlow;

use bytes::Bytes;

use super::hashes::choose;
use super::scan::{Options, reply_page};
use crate::args;
use crate::collection::Members;
use crate::reply::{Done, Fail};
use crate::spec::Call;
use crate::take::Take;
use crate::value::Kind;

fn open(call: &mut Call<'_>, number: usize) -> Result<Members, Fail> {
    call.members(number, Kind::Set)
}

pub(crate) fn sadd(call: &mut Call<'_>) -> Done {
    let mut set = open(call, 1)?;
    let mut count = 0;
    for member in call.rest(2) {
        if set.get(call.unit, member)?.is_none() {
            count += usize::from(set.put(call.unit, member, b"")?);
        }
    }
    set.save(call.unit)?;
    call.reply.count(count);
    Ok(())
}

pub(crate) fn srem(call: &mut Call<'_>) -> Done {
    let mut set = open(call, 1)?;
    let mut count = 0;
    for member in call.rest(2) {
        count += usize::from(set.remove(call.unit, member)?.is_some());
    }
    set.save(call.unit)?;
    call.reply.count(count);
    Ok(())
}

pub(crate) fn smove(call: &mut Call<'_>) -> Done {
    let source = call.value_of(1)?;
    let Some(source) = source else {
        call.reply.integer(0);
        return Ok(());
    };
    if source.kind != Kind::Set {
        return Err(Fail::wrong_type());
    }
    let (mut from, mut to) = (open(call, 1)?, open(call, 2)?);
    let member = call.arg(3)?;
    let is_there = if call.arg(1)? == call.arg(2)? {
        from.get(call.unit, member)?.is_some()
    } else {
        from.remove(call.unit, member)?.is_some()
    };
    if is_there && call.arg(1)? != call.arg(2)? {
        if to.get(call.unit, member)?.is_none() {
            to.put(call.unit, member, b"")?;
        }
        from.save(call.unit)?;
        to.save(call.unit)?;
    }
    call.reply.integer(i64::from(is_there));
    Ok(())
}

pub(crate) fn sismember(call: &mut Call<'_>) -> Done {
    let is_there = open(call, 1)?.get(call.unit, call.arg(2)?)?.is_some();
    call.reply.integer(i64::from(is_there));
    Ok(())
}

pub(crate) fn smismember(call: &mut Call<'_>) -> Done {
    let set = open(call, 1)?;
    call.reply.array(call.args.len() - 2);
    for member in call.rest(2) {
        let is_there = set.get(call.unit, member)?.is_some();
        call.reply.integer(i64::from(is_there));
    }
    Ok(())
}

pub(crate) fn scard(call: &mut Call<'_>) -> Done {
    let count = open(call, 1)?.len();
    call.reply.count(count);
    Ok(())
}

pub(crate) fn smembers(call: &mut Call<'_>) -> Done {
    let set = open(call, 1)?;
    call.reply.set(set.len());
    let reply = &mut *call.reply;
    set.walk(call.unit, |member, _| {
        reply.bulk(member);
        reply.check_length()?;
        Ok(ControlFlow::Continue(()))
    })
}

pub(crate) fn spop(call: &mut Call<'_>) -> Done {
    let most = match call.rest(2) {
        [] => None,
        [count] => Some(args::positive(count)?),
        _ => return Err(Fail::syntax()),
    };
    let mut set = open(call, 1)?;
    let chosen = match most {
        None => set.random(call.unit)?.into_iter().collect(),
        Some(most) => set.sample(call.unit, most)?,
    };
    match most {
        // All of a large set: one range delete.
        Some(_) if chosen.len() == set.len() => set = call.no_members(1, Kind::Set)?,
        _ => {
            for (member, _) in &chosen {
                set.remove(call.unit, member)?;
            }
        }
    }
    if !chosen.is_empty() {
        set.replace(call.unit)?;
    }
    match most {
        None => call.reply.bulk_or_null(chosen.first().map(|(member, _)| member)),
        Some(_) => {
            call.reply.set(chosen.len());
            chosen.iter().for_each(|(member, _)| call.reply.bulk(member));
        }
    }
    call.reply.check_length()
}

pub(crate) fn srandmember(call: &mut Call<'_>) -> Done {
    let count = match call.rest(2) {
        [] => None,
        [count] => Some(args::range(count, -i64::MAX, i64::MAX)?),
        _ => return Err(Fail::syntax()),
    };
    let set = open(call, 1)?;
    match count {
        None => {
            let member = set.random(call.unit)?;
            call.reply.bulk_or_null(member.map(|(member, _)| member));
        }
        Some(count) => {
            let chosen = choose(call, &set, count)?;
            call.reply.array(chosen.len());
            chosen.iter().for_each(|(member, _)| call.reply.bulk(member));
        }
    }
    Ok(())
}

/// An operation on sets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Inter,
    Union,
    Diff,
}

impl Operation {
    /// The fewest members of the result, from the numbers of those of the sets.
    pub(crate) fn least(self, lengths: impl Iterator<Item = usize>) -> usize {
        match self {
            Self::Inter => 0,
            Self::Union => lengths.max().unwrap_or(0),
            Self::Diff => lengths.reduce(usize::saturating_sub).unwrap_or(0),
        }
    }
}

/// The result of `operation` on the sets of the arguments `keys`; at most `most` members of an intersection.
fn combine(
    call: &mut Call<'_>,
    keys: std::ops::Range<usize>,
    operation: Operation,
    most: usize,
    is_stored: bool,
) -> Result<Vec<Bytes>, Fail> {
    let mut sets = Vec::new();
    for number in keys {
        sets.push(open(call, number)?);
    }
    let mut taken = match is_stored {
        true => {
            Take::to_store(call.unit, Kind::Set, operation.least(sets.iter().map(Members::len)))?
        }
        false => Take::new(call.unit),
    };
    let (mut found, unit) = (Vec::new(), &*call.unit);
    let mut add = |found: &mut Vec<Bytes>, member: &[u8]| {
        taken.add(member.len())?;
        found.push(Bytes::copy_from_slice(member));
        Ok::<_, Fail>(())
    };
    match operation {
        Operation::Union => {
            let mut seen = HashSet::new();
            for set in &sets {
                set.walk(unit, |member, _| {
                    if !seen.contains(member) {
                        add(&mut found, member)?;
                        // The bytes are shared with those of the result.
                        seen.extend(found.last().cloned());
                    }
                    Ok(ControlFlow::Continue(()))
                })?;
            }
        }
        Operation::Inter | Operation::Diff => {
            let is_inter = operation == Operation::Inter;
            if is_inter {
                sets.sort_by_key(Members::len);
            }
            let Some((first, others)) = sets.split_first() else { return Ok(found) };
            first.walk(unit, |member, _| {
                let mut is_in = true;
                for other in others {
                    is_in = other.get(unit, member)?.is_some() == is_inter;
                    if !is_in {
                        break;
                    }
                }
                if is_in {
                    add(&mut found, member)?;
                }
                Ok(match found.len() >= most {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                })
            })?;
        }
    }
    taken.keep(call.unit);
    Ok(found)
}

fn reply_combined(call: &mut Call<'_>, operation: Operation) -> Done {
    let found = combine(call, 1..call.args.len(), operation, usize::MAX, false)?;
    call.reply.set(found.len());
    for member in found {
        call.reply.bulk(member);
        call.reply.check_length()?;
    }
    Ok(())
}

fn store_combined(call: &mut Call<'_>, operation: Operation) -> Done {
    let found = combine(call, 2..call.args.len(), operation, usize::MAX, true)?;
    let mut set = call.no_members(1, Kind::Set)?;
    for member in &found {
        set.put(call.unit, member, b"")?;
    }
    set.replace(call.unit)?;
    call.reply.count(found.len());
    Ok(())
}

pub(crate) fn sinter(call: &mut Call<'_>) -> Done {
    reply_combined(call, Operation::Inter)
}

pub(crate) fn sunion(call: &mut Call<'_>) -> Done {
    reply_combined(call, Operation::Union)
}

pub(crate) fn sdiff(call: &mut Call<'_>) -> Done {
    reply_combined(call, Operation::Diff)
}

pub(crate) fn sinterstore(call: &mut Call<'_>) -> Done {
    store_combined(call, Operation::Inter)
}

pub(crate) fn sunionstore(call: &mut Call<'_>) -> Done {
    store_combined(call, Operation::Union)
}

pub(crate) fn sdiffstore(call: &mut Call<'_>) -> Done {
    store_combined(call, Operation::Diff)
}

pub(crate) fn sintercard(call: &mut Call<'_>) -> Done {
    let keys = args::number_of_keys(call.arg(1)?)?;
    if keys > call.args.len() - 2 {
        return Err(Fail::new("ERR Number of keys can't be greater than number of args"));
    }
    let mut most = 0;
    let mut options = call.rest(2 + keys).iter();
    while let Some(option) = options.next() {
        match (args::option(option).as_str(), options.next()) {
            ("LIMIT", Some(value)) => {
                most = args::positive_or(value, "ERR LIMIT can't be negative")?;
            }
            _ => return Err(Fail::syntax()),
        }
    }
    let most = if most == 0 { usize::MAX } else { most };
    let found = combine(call, 2..2 + keys, Operation::Inter, most, false)?;
    call.reply.count(found.len());
    Ok(())
}

pub(crate) fn sscan(call: &mut Call<'_>) -> Done {
    let options = Options::parse(call.args, 2)?;
    let set = open(call, 1)?;
    reply_page(call, &set, &options, |reply, (member, _)| {
        reply.bulk(member);
        Ok(1)
    })
}
