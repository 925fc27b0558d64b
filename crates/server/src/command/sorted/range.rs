//! Ranges of sorted sets: by rank, by score, by member.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::open;
use crate::args;
use crate::collection::{END, Members, payload, score};
use crate::reply::{Done, Fail};
use crate::spec::Call;
use crate::take::Take;
use crate::unit::Unit;
use crate::value::Kind;

/// How a range counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

/// A bound of a range of members.
#[derive(Clone, Debug)]
enum Edge<'a> {
    Lowest,
    Highest,
    Included(&'a [u8]),
    Excluded(&'a [u8]),
}

/// A range of a sorted set.
enum Bounds<'a> {
    Ranks(i64, i64),
    /// Places, as [`Members::walk_scores`] takes them.
    Places(Vec<u8>, Vec<u8>),
    Members(Edge<'a>, Edge<'a>),
}

/// A bound by score, and whether it is excluded.
fn score_edge(arg: &[u8]) -> Result<(f64, bool), Fail> {
    let (text, is_excluded) = match arg.strip_prefix(b"(") {
        Some(text) => (text, true),
        None => (arg, false),
    };
    let value = score::parse(text).ok_or_else(|| Fail::new("ERR min or max is not a float"))?;
    Ok((value, is_excluded))
}

fn member_edge(arg: &[u8]) -> Result<Edge<'_>, Fail> {
    match arg {
        b"-" => Ok(Edge::Lowest),
        b"+" => Ok(Edge::Highest),
        [b'[', member @ ..] => Ok(Edge::Included(member)),
        [b'(', member @ ..] => Ok(Edge::Excluded(member)),
        _ => Err(Fail::new("ERR min or max not valid string range item")),
    }
}

impl<'a> Bounds<'a> {
    fn parse(by: By, least: &'a [u8], most: &'a [u8]) -> Result<Self, Fail> {
        Ok(match by {
            By::Rank => Self::Ranks(args::integer(least)?, args::integer(most)?),
            By::Score => {
                let ((low, is_above), (high, is_below)) = (score_edge(least)?, score_edge(most)?);
                let from = if is_above { score::order_after(low) } else { score::order(low) };
                let to = if is_below { score::order(high) } else { score::order_after(high) };
                Self::Places(from.to_vec(), to.to_vec())
            }
            By::Member => Self::Members(member_edge(least)?, member_edge(most)?),
        })
    }
}

/// Whether `member` lies within the bounds.
fn is_within(member: &[u8], low: &Edge<'_>, high: &Edge<'_>) -> bool {
    let is_above = match low {
        Edge::Lowest => true,
        Edge::Highest => false,
        Edge::Included(low) => member >= *low,
        Edge::Excluded(low) => member > *low,
    };
    let is_below = match high {
        Edge::Lowest => false,
        Edge::Highest => true,
        Edge::Included(high) => member <= *high,
        Edge::Excluded(high) => member < *high,
    };
    is_above && is_below
}

/// Calls `visit` with the members of `bounds` behind the first `skip` ones, `most` at most.
fn walk(
    set: &Members,
    unit: &Unit,
    bounds: &Bounds<'_>,
    is_reverse: bool,
    (skip, most): (usize, usize),
    mut visit: impl FnMut(&[u8], f64) -> Done,
) -> Done {
    let (mut skip, mut left) = (skip, most);
    if left == 0 {
        return Ok(());
    }
    let mut step = |member: &[u8], score: f64| {
        if skip > 0 {
            skip -= 1;
            return Ok(ControlFlow::Continue(()));
        }
        visit(member, score)?;
        left -= 1;
        Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    match bounds {
        Bounds::Ranks(..) => set.walk_scores(unit, &[], &END, is_reverse, step),
        Bounds::Places(from, to) => set.walk_scores(unit, from, to, is_reverse, step),
        Bounds::Members(low, high) => {
            // Members are sorted if all have one score, which is the purpose of such a range.
            let (mut first, mut last) = (None, None);
            for (edge, is_last) in [(&mut first, false), (&mut last, true)] {
                set.walk_scores(unit, &[], &END, is_last, |_, score| {
                    *edge = Some(score);
                    Ok(ControlFlow::Break(()))
                })?;
            }
            let (Some(first), Some(last)) = (first, last) else { return Ok(()) };
            let order = score::order(first);
            let from = match low {
                Edge::Included(member) | Edge::Excluded(member) if first == last => {
                    [&order[..], member].concat()
                }
                _ => Vec::new(),
            };
            let to = match high {
                Edge::Included(member) | Edge::Excluded(member) if first == last => {
                    [&order[..], member, &[0]].concat()
                }
                _ => END.to_vec(),
            };
            set.walk_scores(unit, &from, &to, is_reverse, |member, score| {
                match is_within(member, low, high) {
                    true => step(member, score),
                    false => Ok(ControlFlow::Continue(())),
                }
            })
        }
    }
}

/// A request for a range.
struct Wanted<'a> {
    bounds: Bounds<'a>,
    is_reverse: bool,
    has_scores: bool,
    offset: i64,
    limit: i64,
}

impl<'a> Wanted<'a> {
    /// Parses the range from argument `at` on, and its options. `by` and `is_reverse` are those of the
    /// command; `None`: options say it.
    fn parse(
        args: &'a [Vec<u8>],
        at: usize,
        by: Option<By>,
        is_reverse: Option<bool>,
        is_stored: bool,
    ) -> Result<Self, Fail> {
        let (mut has_scores, mut offset, mut limit) = (false, 0, -1);
        let (mut given_by, mut given_reverse) = (by, is_reverse);
        let mut options = args.get(at + 2..).unwrap_or_default();
        loop {
            options = match options {
                [] => break,
                [first, rest @ ..] => match (args::option(first).as_str(), rest) {
                    ("WITHSCORES", rest) if !is_stored => {
                        has_scores = true;
                        rest
                    }
                    ("LIMIT", [skip, most, rest @ ..]) => {
                        (offset, limit) = (args::integer(skip)?, args::integer(most)?);
                        rest
                    }
                    ("REV", rest) if is_reverse.is_none() => {
                        given_reverse = Some(true);
                        rest
                    }
                    ("BYLEX", rest) if given_by.is_none() => {
                        given_by = Some(By::Member);
                        rest
                    }
                    ("BYSCORE", rest) if given_by.is_none() => {
                        given_by = Some(By::Score);
                        rest
                    }
                    _ => return Err(Fail::syntax()),
                },
            };
        }
        let by = given_by.unwrap_or(By::Rank);
        let is_reverse = given_reverse.unwrap_or(false);
        if limit != -1 && by == By::Rank {
            return Err(Fail::new(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if has_scores && by == By::Member {
            return Err(Fail::new(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        let edge = |at: usize| args.get(at).map(Vec::as_slice).ok_or_else(Fail::syntax);
        let (mut least, mut most) = (edge(at)?, edge(at + 1)?);
        if is_reverse && by != By::Rank {
            std::mem::swap(&mut least, &mut most);
        }
        let bounds = Bounds::parse(by, least, most)?;
        Ok(Self { bounds, is_reverse, has_scores, offset, limit })
    }

    /// The members of the range that are left out in front, and the most that follow.
    fn window(&self, length: usize) -> (usize, usize) {
        if let Bounds::Ranks(start, end) = self.bounds {
            let ranks = args::ranks(length, start, end);
            return (ranks.start, ranks.len());
        }
        let Ok(offset) = usize::try_from(self.offset) else { return (0, 0) };
        (offset, usize::try_from(self.limit).unwrap_or(usize::MAX))
    }

    /// The members of the range, charged to `taken`.
    fn collect(
        &self,
        call: &mut Call<'_>,
        set: &Members,
        mut taken: Take,
    ) -> Result<Vec<(Bytes, f64)>, Fail> {
        let mut found = Vec::new();
        let window = self.window(set.len());
        walk(set, call.unit, &self.bounds, self.is_reverse, window, |member, score| {
            taken.add(member.len())?;
            found.push((Bytes::copy_from_slice(member), score));
            Ok(())
        })?;
        taken.keep(call.unit);
        Ok(found)
    }
}

/// Replies with members, and with their scores if they are asked for.
pub(super) fn reply_members(call: &mut Call<'_>, found: &[(Bytes, f64)], has_scores: bool) -> Done {
    let is_nested = has_scores && call.reply.is_resp3;
    call.reply.array(found.len() * if has_scores && !is_nested { 2 } else { 1 });
    for (member, score) in found {
        if is_nested {
            call.reply.array(2);
        }
        call.reply.bulk(member);
        if has_scores {
            call.reply.double(*score);
        }
        call.reply.check_length()?;
    }
    Ok(())
}

fn reply_range(call: &mut Call<'_>, by: Option<By>, is_reverse: Option<bool>) -> Done {
    let wanted = Wanted::parse(call.args, 2, by, is_reverse, false)?;
    let set = open(call)?;
    let taken = Take::new(call.unit);
    let found = wanted.collect(call, &set, taken)?;
    reply_members(call, &found, wanted.has_scores)
}

pub(crate) fn zrange(call: &mut Call<'_>) -> Done {
    reply_range(call, None, None)
}

pub(crate) fn zrevrange(call: &mut Call<'_>) -> Done {
    reply_range(call, Some(By::Rank), Some(true))
}

pub(crate) fn zrangebyscore(call: &mut Call<'_>) -> Done {
    reply_range(call, Some(By::Score), Some(false))
}

pub(crate) fn zrevrangebyscore(call: &mut Call<'_>) -> Done {
    reply_range(call, Some(By::Score), Some(true))
}

pub(crate) fn zrangebylex(call: &mut Call<'_>) -> Done {
    reply_range(call, Some(By::Member), Some(false))
}

pub(crate) fn zrevrangebylex(call: &mut Call<'_>) -> Done {
    reply_range(call, Some(By::Member), Some(true))
}

pub(crate) fn zrangestore(call: &mut Call<'_>) -> Done {
    let wanted = Wanted::parse(call.args, 3, None, None, true)?;
    let set = call.members(2, Kind::SortedSet)?;
    let least = match wanted.bounds {
        Bounds::Ranks(..) => wanted.window(set.len()).1,
        Bounds::Places(..) | Bounds::Members(..) => 0,
    };
    let taken = Take::to_store(call.unit, Kind::SortedSet, least)?;
    let found = wanted.collect(call, &set, taken)?;
    store_members(call, &found)
}

/// Stores members as the value of the first key, and replies with their number.
pub(super) fn store_members(call: &mut Call<'_>, found: &[(Bytes, f64)]) -> Done {
    let mut set = call.no_members(1, Kind::SortedSet)?;
    for (member, score) in found {
        set.put(call.unit, member, &payload(*score))?;
    }
    set.replace(call.unit)?;
    call.reply.count(found.len());
    Ok(())
}

fn count_range(call: &mut Call<'_>, by: By) -> Done {
    let bounds = Bounds::parse(by, call.arg(2)?, call.arg(3)?)?;
    let set = open(call)?;
    let mut count = 0;
    walk(&set, call.unit, &bounds, false, (0, usize::MAX), |_, _| {
        count += 1;
        Ok(())
    })?;
    call.reply.integer(count);
    Ok(())
}

pub(crate) fn zcount(call: &mut Call<'_>) -> Done {
    count_range(call, By::Score)
}

pub(crate) fn zlexcount(call: &mut Call<'_>) -> Done {
    count_range(call, By::Member)
}

fn remove_range(call: &mut Call<'_>, by: By) -> Done {
    let bounds = Bounds::parse(by, call.arg(2)?, call.arg(3)?)?;
    let mut set = open(call)?;
    let wanted = Wanted { bounds, is_reverse: false, has_scores: false, offset: 0, limit: -1 };
    let taken = Take::new(call.unit);
    let found = wanted.collect(call, &set, taken)?;
    if !found.is_empty() && found.len() == set.len() {
        // All of a large set: one range delete.
        call.no_members(1, Kind::SortedSet)?.replace(call.unit)?;
    } else {
        for (member, _) in &found {
            set.remove(call.unit, member)?;
        }
        set.save(call.unit)?;
    }
    call.reply.count(found.len());
    Ok(())
}

pub(crate) fn zremrangebyrank(call: &mut Call<'_>) -> Done {
    remove_range(call, By::Rank)
}

pub(crate) fn zremrangebyscore(call: &mut Call<'_>) -> Done {
    remove_range(call, By::Score)
}

pub(crate) fn zremrangebylex(call: &mut Call<'_>) -> Done {
    remove_range(call, By::Member)
}
