//! Unions, intersections and differences of sorted sets. Plain sets take part with a score of 1.

use std::collections::HashMap;
use std::ops::ControlFlow;

use bytes::Bytes;

use super::range::{reply_members, store_members};
use crate::args;
use crate::collection::{Members, score, score_of};
use crate::command::sets::Operation;
use crate::reply::{Done, Fail};
use crate::spec::Call;
use crate::take::Take;
use crate::unit::Unit;
use crate::value::Kind;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            // The sum of both infinities is 0 in Redis.
            Self::Sum => {
                let sum = a + b;
                if sum.is_nan() { 0.0 } else { sum }
            }
            Self::Min => a.min(b),
            Self::Max => a.max(b),
        }
    }
}

/// A source, and the weight of its scores.
struct Source {
    members: Members,
    is_plain: bool,
    weight: f64,
}

impl Source {
    fn weighted(&self, payload: &[u8]) -> Result<f64, Fail> {
        let score = if self.is_plain { 1.0 } else { score_of(payload)? };
        let weighted = self.weight * score;
        Ok(if weighted.is_nan() { 0.0 } else { weighted })
    }

    fn get(&self, unit: &Unit, member: &[u8]) -> Result<Option<f64>, Fail> {
        self.members.get(unit, member)?.map(|payload| self.weighted(&payload)).transpose()
    }
}

/// What the arguments ask for.
struct Wanted {
    sources: Vec<Source>,
    aggregate: Aggregate,
    has_scores: bool,
    limit: usize,
}

/// The way of the reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Members,
    Stored,
    Count,
}

fn parse(
    call: &mut Call<'_>,
    at: usize,
    operation: Operation,
    answer: Answer,
) -> Result<Wanted, Fail> {
    let count = args::integer(call.arg(at)?)?;
    if count < 1 {
        let name = call.name();
        return Err(Fail::new(format!("ERR at least 1 input key is needed for '{name}' command")));
    }
    let rest = call.rest(at + 1);
    let count = usize::try_from(count).ok().filter(|count| *count <= rest.len());
    let count = count.ok_or_else(Fail::syntax)?;
    let mut sources = Vec::new();
    for number in at + 1..=at + count {
        let key = call.key(number)?;
        let (members, is_plain) = match call.unit.get(&key)? {
            None => (Members::empty(&key, Kind::SortedSet), false),
            Some(value) if matches!(value.kind, Kind::Set | Kind::SortedSet) => {
                (Members::of(&key, &value)?, value.kind == Kind::Set)
            }
            Some(_) => return Err(Fail::wrong_type()),
        };
        sources.push(Source { members, is_plain, weight: 1.0 });
    }
    let mut wanted = Wanted { sources, aggregate: Aggregate::Sum, has_scores: false, limit: 0 };
    let is_weighted = operation != Operation::Diff && answer != Answer::Count;
    let mut options = rest.get(count..).unwrap_or_default();
    while let [first, rest @ ..] = options {
        options = match (args::option(first).as_str(), rest) {
            ("WEIGHTS", rest) if is_weighted && rest.len() >= count => {
                let (weights, rest) = rest.split_at(count);
                for (source, weight) in wanted.sources.iter_mut().zip(weights) {
                    let refused = || Fail::new("ERR weight value is not a float");
                    source.weight = score::in_range(weight).ok_or_else(refused)?;
                }
                rest
            }
            ("AGGREGATE", [name, rest @ ..]) if is_weighted => {
                wanted.aggregate = match args::option(name).as_str() {
                    "SUM" => Aggregate::Sum,
                    "MIN" => Aggregate::Min,
                    "MAX" => Aggregate::Max,
                    _ => return Err(Fail::syntax()),
                };
                rest
            }
            ("WITHSCORES", rest) if answer == Answer::Members => {
                wanted.has_scores = true;
                rest
            }
            ("LIMIT", [limit, rest @ ..]) if answer == Answer::Count => {
                wanted.limit = args::positive_or(limit, "ERR LIMIT can't be negative")?;
                rest
            }
            _ => return Err(Fail::syntax()),
        };
    }
    Ok(wanted)
}

/// The members of the result, by score and member.
fn combine(
    call: &mut Call<'_>,
    wanted: Wanted,
    operation: Operation,
    answer: Answer,
) -> Result<Vec<(Bytes, f64)>, Fail> {
    let Wanted { mut sources, aggregate, limit, .. } = wanted;
    let least = operation.least(sources.iter().map(|source| source.members.len()));
    let mut taken = match answer {
        Answer::Stored => Take::to_store(call.unit, Kind::SortedSet, least)?,
        Answer::Members | Answer::Count => Take::new(call.unit),
    };
    if operation != Operation::Diff {
        sources.sort_by_key(|source| source.members.len());
    }
    let mut found: Vec<(Bytes, f64)> = Vec::new();
    let unit = &*call.unit;
    if operation == Operation::Union {
        let mut places = HashMap::new();
        for source in &sources {
            source.members.walk(unit, |member, payload| {
                let score = source.weighted(payload)?;
                let place = places.get(member).copied();
                match place.and_then(|place: usize| found.get_mut(place)) {
                    Some((_, sum)) => *sum = aggregate.of(*sum, score),
                    None => {
                        taken.add(member.len())?;
                        // Its place.
                        taken.charge(64)?;
                        let member = Bytes::copy_from_slice(member);
                        places.insert(member.clone(), found.len());
                        found.push((member, score));
                    }
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
    } else if let Some((first, others)) = sources.split_first() {
        first.members.walk(unit, |member, payload| {
            let mut score = Some(first.weighted(payload)?);
            for other in others {
                let (Some(sum), found) = (score, other.get(unit, member)?) else { break };
                score = match (operation, found) {
                    (Operation::Diff, Some(_)) => None,
                    (Operation::Diff, None) => Some(sum),
                    (_, found) => found.map(|found| aggregate.of(sum, found)),
                };
            }
            if let Some(score) = score {
                taken.add(member.len())?;
                found.push((Bytes::copy_from_slice(member), score));
            }
            Ok(match limit > 0 && found.len() >= limit {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })?;
    }
    taken.keep(call.unit);
    found.sort_by(|(a, a_score), (b, b_score)| {
        score::order(*a_score).cmp(&score::order(*b_score)).then_with(|| a.cmp(b))
    });
    Ok(found)
}

fn reply_combined(call: &mut Call<'_>, operation: Operation) -> Done {
    let wanted = parse(call, 1, operation, Answer::Members)?;
    let has_scores = wanted.has_scores;
    let found = combine(call, wanted, operation, Answer::Members)?;
    reply_members(call, &found, has_scores)
}

fn store_combined(call: &mut Call<'_>, operation: Operation) -> Done {
    let wanted = parse(call, 2, operation, Answer::Stored)?;
    let found = combine(call, wanted, operation, Answer::Stored)?;
    store_members(call, &found)
}

pub(crate) fn zunion(call: &mut Call<'_>) -> Done {
    reply_combined(call, Operation::Union)
}

pub(crate) fn zinter(call: &mut Call<'_>) -> Done {
    reply_combined(call, Operation::Inter)
}

pub(crate) fn zdiff(call: &mut Call<'_>) -> Done {
    reply_combined(call, Operation::Diff)
}

pub(crate) fn zunionstore(call: &mut Call<'_>) -> Done {
    store_combined(call, Operation::Union)
}

pub(crate) fn zinterstore(call: &mut Call<'_>) -> Done {
    store_combined(call, Operation::Inter)
}

pub(crate) fn zdiffstore(call: &mut Call<'_>) -> Done {
    store_combined(call, Operation::Diff)
}

pub(crate) fn zintercard(call: &mut Call<'_>) -> Done {
    let wanted = parse(call, 1, Operation::Inter, Answer::Count)?;
    let found = combine(call, wanted, Operation::Inter, Answer::Count)?;
    call.reply.count(found.len());
    Ok(())
}
