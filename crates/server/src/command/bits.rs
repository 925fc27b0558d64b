//! Commands on the bits of strings. Bit 0 is the highest bit of byte 0.

use bytes::Bytes;

use super::strings::{charge_string, slice};
use crate::args;
use crate::reply::{Done, Fail};
use crate::spec::Call;
use crate::value::{STRING_BYTES_MAX, Value};

/// A bit offset, as byte and mask.
fn offset(arg: &[u8]) -> Result<(usize, u8), Fail> {
    let invalid = || Fail::new("ERR bit offset is not an integer or out of range");
    let bit =
        args::integer(arg).ok().and_then(|bit| usize::try_from(bit).ok()).ok_or_else(invalid)?;
    if bit / 8 >= STRING_BYTES_MAX {
        return Err(invalid());
    }
    Ok((bit / 8, 0x80 >> (bit % 8)))
}

pub(crate) fn setbit(call: &mut Call<'_>) -> Done {
    let (byte, mask) = offset(call.arg(2)?)?;
    let is_on = match call.arg(3)? {
        b"0" => false,
        b"1" => true,
        _ => return Err(Fail::new("ERR bit is not an integer or out of range")),
    };
    let old = call.value(1)?;
    charge_string(call, (byte + 1).max(old.as_ref().map_or(0, |old| old.bytes.len())))?;
    let (expiry, mut bytes) = old.map_or((0, Vec::new()), |old| (old.expiry, old.bytes.to_vec()));
    bytes.resize(bytes.len().max(byte + 1), 0);
    let mut was_on = false;
    if let Some(place) = bytes.get_mut(byte) {
        was_on = *place & mask != 0;
        *place = if is_on { *place | mask } else { *place & !mask };
    }
    call.set(1, Some(Value::string(expiry, bytes)))?;
    call.reply.integer(i64::from(was_on));
    Ok(())
}

pub(crate) fn getbit(call: &mut Call<'_>) -> Done {
    let (byte, mask) = offset(call.arg(2)?)?;
    let value = call.value(1)?;
    let is_on = value.and_then(|value| value.bytes.get(byte).map(|byte| byte & mask != 0));
    call.reply.integer(i64::from(is_on.unwrap_or(false)));
    Ok(())
}

/// Whether a range counts bits and not bytes.
fn is_bits(unit: Option<&Vec<u8>>) -> Result<bool, Fail> {
    match unit.map(|unit| args::option(unit)).as_deref() {
        Some("BIT") => Ok(true),
        Some("BYTE") | None => Ok(false),
        Some(_) => Err(Fail::syntax()),
    }
}

/// The bits from `start` to `end` of `length` bytes, both included.
fn bit_range(length: usize, start: i64, end: i64, is_bits: bool) -> std::ops::Range<usize> {
    if is_bits {
        return clamp(length * 8, start, end);
    }
    let bytes = clamp(length, start, end);
    bytes.start * 8..bytes.end * 8
}

/// As `slice`, but two ends before the start are the first position, and no empty range.
fn clamp(length: usize, start: i64, end: i64) -> std::ops::Range<usize> {
    let first = i64::try_from(length).unwrap_or(i64::MAX).saturating_neg();
    slice(length, start.max(first), end.max(first))
}

fn bit(bytes: &[u8], at: usize) -> bool {
    bytes.get(at / 8).is_some_and(|byte| byte & (0x80 >> (at % 8)) != 0)
}

pub(crate) fn bitcount(call: &mut Call<'_>) -> Done {
    // As in Redis, the arguments of a missing key are not looked at.
    let Some(value) = call.value(1)? else {
        call.reply.integer(0);
        return Ok(());
    };
    let bytes = value.bytes;
    let range = match call.rest(2) {
        [] => 0..bytes.len() * 8,
        [start, end, unit @ ..] if unit.len() < 2 => {
            let (start, end) = (args::integer(start)?, args::integer(end)?);
            match start < 0 && end < 0 && start > end {
                true => 0..0,
                false => bit_range(bytes.len(), start, end, is_bits(unit.first())?),
            }
        }
        _ => return Err(Fail::syntax()),
    };
    // Whole bytes at once; the bits at both ends one by one.
    let (first, last) = (range.start.div_ceil(8), range.end / 8);
    let count = match bytes.get(first..last) {
        Some(whole) => {
            let ends = (range.start..first * 8).chain(last * 8..range.end);
            let ends = ends.filter(|at| bit(&bytes, *at)).count();
            ends + whole.iter().map(|byte| byte.count_ones() as usize).sum::<usize>()
        }
        None => range.filter(|at| bit(&bytes, *at)).count(),
    };
    call.reply.count(count);
    Ok(())
}

pub(crate) fn bitpos(call: &mut Call<'_>) -> Done {
    let wanted = match args::integer(call.arg(2)?)? {
        0 => false,
        1 => true,
        _ => return Err(Fail::new("ERR The bit argument must be 1 or 0.")),
    };
    // A missing key is all zeros.
    let Some(value) = call.value(1)? else {
        call.reply.integer(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let bytes = value.bytes;
    let range = match call.rest(3) {
        [] => 0..bytes.len() * 8,
        [start] => bit_range(bytes.len(), args::integer(start)?, -1, false),
        [start, end, unit @ ..] if unit.len() < 2 => {
            let start = args::integer(start)?;
            let is_bits = is_bits(unit.first())?;
            bit_range(bytes.len(), start, args::integer(end)?, is_bits)
        }
        _ => return Err(Fail::syntax()),
    };
    let has_end = call.args.len() > 4;
    let skip = if wanted { 0 } else { 0xff };
    let mut at = range.start;
    while at < range.end {
        if at.is_multiple_of(8) && at + 8 <= range.end && bytes.get(at / 8) == Some(&skip) {
            at += 8;
        } else if bit(&bytes, at) == wanted {
            call.reply.count(at);
            return Ok(());
        } else {
            at += 1;
        }
    }
    // A string without an end has zeros behind it.
    match !wanted && !has_end && !range.is_empty() {
        true => call.reply.count(range.end),
        false => call.reply.integer(-1),
    }
    Ok(())
}

pub(crate) fn bitop(call: &mut Call<'_>) -> Done {
    let operation = args::option(call.arg(1)?);
    let combine: fn(u8, u8) -> u8 = match operation.as_str() {
        "AND" => |a, b| a & b,
        "OR" => |a, b| a | b,
        "XOR" => |a, b| a ^ b,
        "NOT" if call.args.len() == 4 => |a, _| !a,
        "NOT" => return Err(Fail::new("ERR BITOP NOT must be called with a single source key.")),
        _ => return Err(Fail::syntax()),
    };
    let mut sources = Vec::new();
    for number in 3..call.args.len() {
        sources.push(call.value(number)?.map_or_else(Bytes::new, |value| value.bytes));
    }
    let length = sources.iter().map(Bytes::len).max().unwrap_or(0);
    charge_string(call, length)?;
    let at = |source: &Bytes, place: usize| source.get(place).copied().unwrap_or(0);
    let result: Vec<u8> = (0..length)
        .map(|place| match sources.split_first() {
            Some((first, [])) if operation == "NOT" => combine(at(first, place), 0),
            Some((first, others)) => {
                others.iter().fold(at(first, place), |sum, other| combine(sum, at(other, place)))
            }
            None => 0,
        })
        .collect();
    let value = (length > 0).then(|| Value::lasting(result));
    call.set(2, value)?;
    call.reply.count(length);
    Ok(())
}
