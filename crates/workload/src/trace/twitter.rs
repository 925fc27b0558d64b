//! Twitter's production cache traces: text lines
//! `time,key,key size,value size,client,operation,ttl`.
//!
//! Reads (`get`, `gets`) that miss put the recorded size. Whole writes (`set`, `add`, `replace`, `cas`) are
//! puts; partial writes (`append`, `prepend`, `incr`, `decr`) read and write; `delete` deletes. The store has
//! no conditional write, so each of them is assumed to succeed. The recorded client and time to live are
//! ignored.

use base::Result;
use base::limits::KEY_BYTES_MAX;

use super::access::{Access, Op, Position, Trace};
use super::input::Input;

pub(super) struct Twitter {
    input: Input,
}

impl Twitter {
    pub(super) fn new(input: Input) -> Self {
        Self { input }
    }
}

impl Trace for Twitter {
    fn next(&mut self, access: &mut Access) -> Result<bool> {
        // Ends: each iteration reads a line of a finite file.
        while self.input.next_line()? {
            if self.input.text().is_empty() {
                continue;
            }
            let Some(line) = Line::parse(self.input.text()) else {
                return Err(self.input.bad_line(
                    "`time,key,key size,value size,client,operation,ttl` with a known operation",
                ));
            };
            access.set(line.op, line.key, line.value_bytes);
            return Ok(true);
        }
        Ok(false)
    }

    fn position(&self) -> Position {
        self.input.position()
    }
}

struct Line<'a> {
    op: Op,
    key: &'a [u8],
    value_bytes: Option<u64>,
}

impl<'a> Line<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let number = |field: &[u8]| std::str::from_utf8(field).ok()?.trim().parse::<u64>().ok();
        // Split from the right, because only the key may contain commas.
        let mut fields = line.rsplitn(6, |byte| *byte == b',');
        let _ttl = number(fields.next()?)?;
        let op = op(fields.next()?)?;
        let _client = number(fields.next()?)?;
        let value_bytes = number(fields.next()?)?;
        let _key_bytes = number(fields.next()?)?;
        let head = fields.next()?;
        let comma = head.iter().position(|byte| *byte == b',')?;
        let (time, key) = (head.get(..comma)?, head.get(comma + 1..)?);
        number(time)?;
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return None;
        }
        // For a read that missed in production, the trace records size 0.
        let value_bytes = Some(value_bytes).filter(|bytes| *bytes > 0 || op == Op::Put);
        Some(Self { op, key, value_bytes })
    }
}

fn op(name: &[u8]) -> Option<Op> {
    Some(match name {
        b"get" | b"gets" => Op::GetOrPut,
        b"set" | b"add" | b"replace" | b"cas" => Op::Put,
        b"append" | b"prepend" | b"incr" | b"decr" => Op::Update,
        b"delete" => Op::Delete,
        _ => return None,
    })
}
