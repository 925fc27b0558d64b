//! Commands on sorted sets: members, ranges, sets of sets, pops.

mod combine;
mod pop;
mod range;

pub(crate) use combine::*;
pub(crate) use pop::*;
pub(crate) use range::*;

use std::ops::ControlFlow;

use super::hashes::reply_random;
use super::scan::{Options, reply_page};
use crate::args;
use crate::collection::{Members, payload, score, score_of};
use crate::reply::{Done, Fail};
use crate::spec::Call;
use crate::value::Kind;

fn open(call: &mut Call<'_>) -> Result<Members, Fail> {
    call.members(1, Kind::SortedSet)
}

/// The options of ZADD.
#[derive(Default)]
struct Adding {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
    ch: bool,
    incr: bool,
}

impl Adding {
    /// The options in front of the first score, and the number of its argument.
    fn parse(call: &Call<'_>) -> Result<(Self, usize), Fail> {
        let (mut adding, mut at) = (Self::default(), 2);
        for option in call.rest(2) {
            match args::option(option).as_str() {
                "NX" => adding.nx = true,
                "XX" => adding.xx = true,
                "GT" => adding.gt = true,
                "LT" => adding.lt = true,
                "CH" => adding.ch = true,
                "INCR" => adding.incr = true,
                _ => break,
            }
            at += 1;
        }
        Ok((adding, at))
    }

    fn check(&self, pairs: &[Vec<u8>]) -> Done {
        if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
            return Err(Fail::syntax());
        }
        if self.nx && self.xx {
            return Err(Fail::new("ERR XX and NX options at the same time are not compatible"));
        }
        if self.nx && (self.gt || self.lt) || self.gt && self.lt {
            return Err(Fail::new(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if self.incr && pairs.len() > 2 {
            return Err(Fail::new("ERR INCR option supports a single increment-element pair"));
        }
        Ok(())
    }

    /// The score of a member with the score `old` that is given `score`; `None`: it is left alone.
    fn decide(&self, old: Option<f64>, score: f64) -> Result<Option<f64>, Fail> {
        let Some(old) = old else { return Ok((!self.xx).then_some(score)) };
        if self.nx {
            return Ok(None);
        }
        let score = if self.incr { old + score } else { score };
        if score.is_nan() {
            return Err(Fail::new("ERR resulting score is not a number (NaN)"));
        }
        let is_refused = self.gt && score <= old || self.lt && score >= old;
        Ok((!is_refused).then_some(score))
    }
}

fn add(call: &mut Call<'_>, adding: &Adding, at: usize) -> Done {
    let pairs = call.rest(at);
    adding.check(pairs)?;
    let mut scores = Vec::with_capacity(pairs.len() / 2);
    for pair in pairs.chunks(2) {
        if let [score, member] = pair {
            scores.push((score::float(score)?, member));
        }
    }
    let mut set = open(call)?;
    let (mut added, mut updated, mut last) = (0, 0, None);
    for (given, member) in scores {
        let old = set.score(call.unit, member)?;
        last = adding.decide(old, given)?;
        let Some(new) = last else { continue };
        match old {
            None => added += 1,
            Some(old) if old == new => continue,
            Some(_) => updated += 1,
        }
        set.put(call.unit, member, &payload(new))?;
    }
    set.save(call.unit)?;
    match (adding.incr, last) {
        (true, Some(score)) => call.reply.double(score),
        (true, None) => call.reply.null(),
        (false, _) => call.reply.count(added + if adding.ch { updated } else { 0 }),
    }
    Ok(())
}

pub(crate) fn zadd(call: &mut Call<'_>) -> Done {
    let (adding, at) = Adding::parse(call)?;
    add(call, &adding, at)
}

pub(crate) fn zincrby(call: &mut Call<'_>) -> Done {
    add(call, &Adding { incr: true, ..Adding::default() }, 2)
}

pub(crate) fn zrem(call: &mut Call<'_>) -> Done {
    let mut set = open(call)?;
    let mut count = 0;
    for member in call.rest(2) {
        count += usize::from(set.remove(call.unit, member)?.is_some());
    }
    set.save(call.unit)?;
    call.reply.count(count);
    Ok(())
}

pub(crate) fn zcard(call: &mut Call<'_>) -> Done {
    let count = open(call)?.len();
    call.reply.count(count);
    Ok(())
}

pub(crate) fn zscore(call: &mut Call<'_>) -> Done {
    let score = open(call)?.score(call.unit, call.arg(2)?)?;
    call.reply.double_or_null(score);
    Ok(())
}

pub(crate) fn zmscore(call: &mut Call<'_>) -> Done {
    let set = open(call)?;
    call.reply.array(call.args.len() - 2);
    for member in call.rest(2) {
        let score = set.score(call.unit, member)?;
        call.reply.double_or_null(score);
    }
    Ok(())
}

/// The number of members before that of the argument. Linear: the store does not count rows.
fn rank(call: &mut Call<'_>, is_reverse: bool) -> Done {
    let set = open(call)?;
    let member = call.arg(2)?;
    let Some(score) = set.score(call.unit, member)? else {
        call.reply.null();
        return Ok(());
    };
    let place = [&score::order(score)[..], member].concat();
    let mut before = 0_usize;
    set.walk_scores(call.unit, &[], &place, false, |_, _| {
        before += 1;
        Ok(ControlFlow::Continue(()))
    })?;
    let rank = if is_reverse { (set.len() - 1).saturating_sub(before) } else { before };
    call.reply.count(rank);
    Ok(())
}

pub(crate) fn zrank(call: &mut Call<'_>) -> Done {
    rank(call, false)
}

pub(crate) fn zrevrank(call: &mut Call<'_>) -> Done {
    rank(call, true)
}

pub(crate) fn zrandmember(call: &mut Call<'_>) -> Done {
    reply_random(call, Kind::SortedSet, "WITHSCORES", |reply, score| {
        reply.double(score_of(score)?);
        Ok(())
    })
}

pub(crate) fn zscan(call: &mut Call<'_>) -> Done {
    let options = Options::parse(call.args, 2)?;
    let set = open(call)?;
    reply_page(call, &set, &options, |reply, (member, score)| {
        reply.bulk(member);
        reply.bulk(score::text(score_of(score)?));
        Ok(2)
    })
}
