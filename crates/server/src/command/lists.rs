//! Commands on lists, and their blocking pops.

use std::ops::ControlFlow;

use crate::args;
use crate::blocking::{Block, Serve, pop_elements};
use crate::collection::{List, Side, score};
use crate::reply::{Done, Fail};
use crate::spec::Call;

fn open(call: &mut Call<'_>) -> Result<List, Fail> {
    let key = call.key(1)?;
    List::open(call.unit, &key)
}

fn push(call: &mut Call<'_>, side: Side, needs_list: bool) -> Done {
    let mut list = open(call)?;
    if needs_list && list.is_empty() {
        call.reply.integer(0);
        return Ok(());
    }
    for element in call.rest(2) {
        list.push(call.unit, side, element)?;
    }
    let length = list.len();
    list.save(call.unit)?;
    call.reply.count(length);
    Ok(())
}

pub(crate) fn lpush(call: &mut Call<'_>) -> Done {
    push(call, Side::Left, false)
}

pub(crate) fn rpush(call: &mut Call<'_>) -> Done {
    push(call, Side::Right, false)
}

pub(crate) fn lpushx(call: &mut Call<'_>) -> Done {
    push(call, Side::Left, true)
}

pub(crate) fn rpushx(call: &mut Call<'_>) -> Done {
    push(call, Side::Right, true)
}

fn pop(call: &mut Call<'_>, side: Side) -> Done {
    let count = match call.rest(2) {
        [] => None,
        [count] => Some(args::positive(count)?),
        _ => return Err(Fail::arity(&call.name())),
    };
    let mut list = open(call)?;
    match count {
        None => {
            let element = list.pop(call.unit, side)?;
            list.save(call.unit)?;
            call.reply.bulk_or_null(element);
        }
        Some(_) if list.is_empty() => call.reply.null_array(),
        Some(count) => {
            let key = call.key(1)?;
            let elements = pop_elements(call.unit, &key, side, count)?;
            call.reply.bulks(&elements);
        }
    }
    call.reply.check_length()
}

pub(crate) fn lpop(call: &mut Call<'_>) -> Done {
    pop(call, Side::Left)
}

pub(crate) fn rpop(call: &mut Call<'_>) -> Done {
    pop(call, Side::Right)
}

pub(crate) fn llen(call: &mut Call<'_>) -> Done {
    let length = open(call)?.len();
    call.reply.count(length);
    Ok(())
}

/// The index of an argument, from the front; `None`: outside.
fn index(length: usize, index: i64) -> Option<usize> {
    let from_end = i64::try_from(length).ok()?.checked_add(index);
    let index = if index < 0 { from_end? } else { index };
    usize::try_from(index).ok().filter(|index| *index < length)
}

pub(crate) fn lindex(call: &mut Call<'_>) -> Done {
    let list = open(call)?;
    if list.is_empty() {
        call.reply.null();
        return Ok(());
    }
    let at = index(list.len(), args::integer(call.arg(2)?)?);
    let element = at.map(|at| list.get(call.unit, at)).transpose()?.flatten();
    call.reply.bulk_or_null(element);
    Ok(())
}

pub(crate) fn lset(call: &mut Call<'_>) -> Done {
    let mut list = open(call)?;
    if list.is_empty() {
        return Err(Fail::new("ERR no such key"));
    }
    let at = index(list.len(), args::integer(call.arg(2)?)?);
    let at = at.ok_or_else(|| Fail::new("ERR index out of range"))?;
    list.set(call.unit, at, call.arg(3)?)?;
    list.save(call.unit)?;
    call.reply.ok();
    Ok(())
}

pub(crate) fn lrange(call: &mut Call<'_>) -> Done {
    let (start, end) = (args::integer(call.arg(2)?)?, args::integer(call.arg(3)?)?);
    let list = open(call)?;
    let range = args::ranks(list.len(), start, end);
    call.reply.array(range.len());
    let reply = &mut *call.reply;
    list.walk(call.unit, range, false, |_, element| {
        reply.bulk(element);
        reply.check_length()?;
        Ok(ControlFlow::Continue(()))
    })
}

pub(crate) fn ltrim(call: &mut Call<'_>) -> Done {
    let (start, end) = (args::integer(call.arg(2)?)?, args::integer(call.arg(3)?)?);
    let mut list = open(call)?;
    let length = list.len();
    let range = args::ranks(length, start, end);
    if range.is_empty() {
        list.cut(call.unit, Side::Left, length)?;
    } else {
        list.cut(call.unit, Side::Right, length - range.end)?;
        list.cut(call.unit, Side::Left, range.start)?;
    }
    list.save(call.unit)?;
    call.reply.ok();
    Ok(())
}

pub(crate) fn linsert(call: &mut Call<'_>) -> Done {
    let is_after = match args::option(call.arg(2)?).as_str() {
        "AFTER" => true,
        "BEFORE" => false,
        _ => return Err(Fail::syntax()),
    };
    let (pivot, element) = (call.arg(3)?, call.arg(4)?);
    let mut list = open(call)?;
    let (length, mut found) = (list.len(), None);
    list.walk(call.unit, 0..length, false, |at, element| {
        if element == pivot {
            found = Some(at);
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    match found {
        Some(at) => {
            list.insert(call.unit, at + usize::from(is_after), element)?;
            call.reply.count(list.len());
            list.save(call.unit)?;
        }
        None if list.is_empty() => call.reply.integer(0),
        None => call.reply.integer(-1),
    }
    Ok(())
}

pub(crate) fn lrem(call: &mut Call<'_>) -> Done {
    let count = args::integer(call.arg(2)?)?;
    let wanted = call.arg(3)?;
    let mut list = open(call)?;
    let most = match count {
        0 => usize::MAX,
        count => usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX),
    };
    let (length, mut places) = (list.len(), Vec::new());
    let mut taken = crate::take::Take::new(call.unit);
    list.walk(call.unit, 0..length, count < 0, |at, element| {
        if element == wanted {
            taken.charge(8)?;
            places.push(at);
        }
        Ok(if places.len() >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    places.sort_unstable();
    list.remove(call.unit, &places)?;
    list.save(call.unit)?;
    call.reply.count(places.len());
    Ok(())
}

pub(crate) fn lpos(call: &mut Call<'_>) -> Done {
    let wanted = call.arg(2)?;
    let (mut rank, mut count, mut most) = (1_i64, None, 0);
    let mut options = call.rest(3).iter();
    while let Some(option) = options.next() {
        match (args::option(option).as_str(), options.next()) {
            ("RANK", Some(value)) => {
                rank = args::integer(value)?;
                if rank == 0 {
                    return Err(Fail::new(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
                         or use negative to start from the end of the list",
                    ));
                }
            }
            ("COUNT", Some(value)) => {
                count = Some(args::positive_or(value, "ERR COUNT can't be negative")?);
            }
            ("MAXLEN", Some(value)) => {
                most = args::positive_or(value, "ERR MAXLEN can't be negative")?;
            }
            _ => return Err(Fail::syntax()),
        }
    }
    let list = open(call)?;
    let (mut matches, mut seen, mut found) = (0_u64, 0, Vec::new());
    let limit = match count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    let most = if most == 0 { usize::MAX } else { most };
    let mut taken = crate::take::Take::new(call.unit);
    list.walk(call.unit, 0..list.len(), rank < 0, |at, element| {
        seen += 1;
        if element == wanted {
            matches += 1;
            if matches >= rank.unsigned_abs() {
                taken.charge(8)?;
                found.push(at);
            }
        }
        let is_done = found.len() >= limit || seen >= most;
        Ok(if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    match (count, found.first()) {
        (Some(_), _) => {
            call.reply.array(found.len());
            found.iter().for_each(|at| call.reply.count(*at));
        }
        (None, Some(at)) => call.reply.count(*at),
        (None, None) => call.reply.null(),
    }
    call.reply.check_length()
}

fn side(arg: &[u8]) -> Result<Side, Fail> {
    match args::option(arg).as_str() {
        "LEFT" => Ok(Side::Left),
        "RIGHT" => Ok(Side::Right),
        _ => Err(Fail::syntax()),
    }
}

/// A timeout in seconds, as milliseconds; 0: none.
pub(super) fn timeout(arg: &[u8]) -> Result<u64, Fail> {
    let refused = || Fail::new("ERR timeout is not a float or out of range");
    let seconds = score::parse(arg).ok_or_else(refused)?;
    if seconds < 0.0 {
        return Err(Fail::new("ERR timeout is negative"));
    }
    let ms = (seconds * 1000.0).ceil();
    // The cast is exact below 2^53.
    if ms < 9e15 { Ok(ms as u64) } else { Err(Fail::new("ERR timeout is out of range")) }
}

impl Call<'_> {
    /// Pops from the first of `keys` that exists. If none does: waits if `timeout_ms` is given, else
    /// replies with a null.
    ///
    /// # Errors
    /// As [`Serve::serve`].
    pub(super) fn pop_or_block(
        &mut self,
        keys: Vec<Vec<u8>>,
        serve: Serve,
        timeout_ms: Option<u64>,
    ) -> Done {
        for key in &keys {
            if serve.serve(self.unit, key, self.reply)? {
                return Ok(());
            }
        }
        match timeout_ms {
            Some(timeout_ms) if self.can_block => {
                *self.block = Some(Block { keys, serve, timeout_ms });
            }
            _ if matches!(serve, Serve::Move { .. }) => self.reply.null(),
            _ => self.reply.null_array(),
        }
        Ok(())
    }

    /// The stored keys of the arguments from `first` up to, and without, `end`.
    ///
    /// # Errors
    /// As [`Call::key`].
    pub(super) fn stored_keys(&self, first: usize, end: usize) -> Result<Vec<Vec<u8>>, Fail> {
        (first..end).map(|number| self.key(number)).collect()
    }
}

fn move_between(call: &mut Call<'_>, from: Side, side: Side, timeout_ms: Option<u64>) -> Done {
    let (key, to) = (call.key(1)?, call.key(2)?);
    call.pop_or_block(vec![key], Serve::Move { from, to, side }, timeout_ms)
}

pub(crate) fn lmove(call: &mut Call<'_>) -> Done {
    let (from, to) = (side(call.arg(3)?)?, side(call.arg(4)?)?);
    move_between(call, from, to, None)
}

pub(crate) fn blmove(call: &mut Call<'_>) -> Done {
    let (from, to) = (side(call.arg(3)?)?, side(call.arg(4)?)?);
    let timeout_ms = timeout(call.arg(5)?)?;
    move_between(call, from, to, Some(timeout_ms))
}

pub(crate) fn rpoplpush(call: &mut Call<'_>) -> Done {
    move_between(call, Side::Right, Side::Left, None)
}

pub(crate) fn brpoplpush(call: &mut Call<'_>) -> Done {
    let timeout_ms = timeout(call.arg(3)?)?;
    move_between(call, Side::Right, Side::Left, Some(timeout_ms))
}

fn blocking_pop(call: &mut Call<'_>, side: Side) -> Done {
    let last = call.args.len() - 1;
    let timeout_ms = timeout(call.arg(last)?)?;
    let keys = call.stored_keys(1, last)?;
    call.pop_or_block(keys, Serve::Pop(side), Some(timeout_ms))
}

pub(crate) fn blpop(call: &mut Call<'_>) -> Done {
    blocking_pop(call, Side::Left)
}

pub(crate) fn brpop(call: &mut Call<'_>) -> Done {
    blocking_pop(call, Side::Right)
}

/// Stored keys, the word behind them, and the number of the argument behind it.
pub(super) type Many<'a> = (Vec<Vec<u8>>, &'a [u8], usize);

/// The keys, the word behind them and the count of LMPOP, ZMPOP and their blocking forms; the number of
/// keys is argument `at`.
///
/// # Errors
/// As in Redis.
pub(super) fn many<'a>(call: &Call<'a>, at: usize) -> Result<Many<'a>, Fail> {
    let count = args::number_of_keys(call.arg(at)?)?;
    let behind = at.checked_add(count).and_then(|at| at.checked_add(1)).ok_or_else(Fail::syntax)?;
    let word = call.arg(behind)?;
    Ok((call.stored_keys(at + 1, behind)?, word, behind + 1))
}

/// The option COUNT from argument `at` on.
///
/// # Errors
/// As in Redis.
pub(super) fn count_option(call: &Call<'_>, at: usize) -> Result<usize, Fail> {
    match call.rest(at) {
        [] => Ok(1),
        [name, count] if args::option(name) == "COUNT" => {
            let refused = "ERR count should be greater than 0";
            match args::positive_or(count, refused)? {
                0 => Err(Fail::new(refused)),
                count => Ok(count),
            }
        }
        _ => Err(Fail::syntax()),
    }
}

fn pop_many(call: &mut Call<'_>, at: usize, is_blocking: bool) -> Done {
    let (keys, word, behind) = many(call, at)?;
    let serve = Serve::PopMany(side(word)?, count_option(call, behind)?);
    let timeout_ms = if is_blocking { Some(timeout(call.arg(1)?)?) } else { None };
    call.pop_or_block(keys, serve, timeout_ms)
}

pub(crate) fn lmpop(call: &mut Call<'_>) -> Done {
    pop_many(call, 1, false)
}

pub(crate) fn blmpop(call: &mut Call<'_>) -> Done {
    pop_many(call, 2, true)
}
