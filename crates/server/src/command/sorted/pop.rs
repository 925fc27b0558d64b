//! Pops of sorted sets, also blocking ones.

use crate::args;
use crate::blocking::{Serve, pop_scores};
use crate::command::lists::{count_option, many, timeout};
use crate::reply::{Done, Fail};
use crate::spec::Call;

fn pop(call: &mut Call<'_>, is_max: bool) -> Done {
    let count = match call.rest(2) {
        [] => None,
        [count] => Some(args::positive(count)?),
        _ => return Err(Fail::syntax()),
    };
    let key = call.key(1)?;
    let found = pop_scores(call.unit, &key, is_max, count.unwrap_or(1))?;
    let is_nested = call.reply.is_resp3 && count.is_some() && !found.is_empty();
    call.reply.array(found.len() * if is_nested { 1 } else { 2 });
    for (member, score) in found {
        if is_nested {
            call.reply.array(2);
        }
        call.reply.bulk(member);
        call.reply.double(score);
    }
    call.reply.check_length()
}

pub(crate) fn zpopmin(call: &mut Call<'_>) -> Done {
    pop(call, false)
}

pub(crate) fn zpopmax(call: &mut Call<'_>) -> Done {
    pop(call, true)
}

fn blocking_pop(call: &mut Call<'_>, is_max: bool) -> Done {
    let last = call.args.len() - 1;
    let timeout_ms = timeout(call.arg(last)?)?;
    let keys = call.stored_keys(1, last)?;
    call.pop_or_block(keys, Serve::PopScore { is_max }, Some(timeout_ms))
}

pub(crate) fn bzpopmin(call: &mut Call<'_>) -> Done {
    blocking_pop(call, false)
}

pub(crate) fn bzpopmax(call: &mut Call<'_>) -> Done {
    blocking_pop(call, true)
}

fn pop_many(call: &mut Call<'_>, at: usize, is_blocking: bool) -> Done {
    let (keys, word, behind) = many(call, at)?;
    let is_max = match args::option(word).as_str() {
        "MIN" => false,
        "MAX" => true,
        _ => return Err(Fail::syntax()),
    };
    let serve = Serve::PopScores { is_max, count: count_option(call, behind)? };
    let timeout_ms = if is_blocking { Some(timeout(call.arg(1)?)?) } else { None };
    call.pop_or_block(keys, serve, timeout_ms)
}

pub(crate) fn zmpop(call: &mut Call<'_>) -> Done {
    pop_many(call, 1, false)
}

pub(crate) fn bzmpop(call: &mut Call<'_>) -> Done {
    pop_many(call, 2, true)
}
