//! The block traces of the ARC papers: text lines `start count ignored sequence`.

use base::Result;

use super::access::{Access, Op, Position, Trace};
use super::input::Input;

/// The most blocks per line. The longest ranges of the traces have thousands of blocks; a far larger number
/// means a damaged line.
const RANGE_BLOCKS_MAX: u64 = 1 << 24;

/// Reads a line, then returns its blocks one by one.
pub(super) struct Lis {
    input: Input,
    next_block: u64,
    end_block: u64,
}

impl Lis {
    pub(super) fn new(input: Input) -> Self {
        Self { input, next_block: 0, end_block: 0 }
    }
}

impl Trace for Lis {
    fn next(&mut self, access: &mut Access) -> Result<bool> {
        // Ends: each iteration reads a line of a finite file.
        while self.next_block == self.end_block {
            if !self.input.next_line()? {
                return Ok(false);
            }
            if self.input.text().iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            (self.next_block, self.end_block) = range(self.input.text()).ok_or_else(|| {
                self.input.bad_line(format_args!(
                    "`start count ignored sequence`, all numbers, count at most {RANGE_BLOCKS_MAX}"
                ))
            })?;
        }
        access.set(Op::GetOrPut, &self.next_block.to_be_bytes(), None);
        self.next_block += 1;
        Ok(true)
    }

    fn position(&self) -> Position {
        self.input.position()
    }
}

fn range(line: &[u8]) -> Option<(u64, u64)> {
    let mut numbers =
        std::str::from_utf8(line).ok()?.split_ascii_whitespace().map(|word| word.parse::<u64>());
    let start = numbers.next()?.ok()?;
    let count = numbers.next()?.ok()?;
    let rest = [numbers.next()?, numbers.next()?];
    let well_formed = rest.iter().all(Result::is_ok) && numbers.next().is_none();
    if !well_formed || count > RANGE_BLOCKS_MAX {
        return None;
    }
    Some((start, start.checked_add(count)?))
}
