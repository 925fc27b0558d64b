//! Traces of fixed-size records: oracleGeneral, u64be, u32.

use base::Result;

use super::access::{Access, Op, Position, Trace};
use super::input::Input;

/// Reads records of one layout.
pub(super) struct Fixed {
    input: Input,
    layout: RecordLayout,
}

#[derive(Clone, Copy)]
enum RecordLayout {
    OracleGeneral,
    U64Be,
    U32Be,
}

impl Fixed {
    pub(super) fn oracle_general(input: Input) -> Self {
        Self { input, layout: RecordLayout::OracleGeneral }
    }

    pub(super) fn u64be(input: Input) -> Self {
        Self { input, layout: RecordLayout::U64Be }
    }

    pub(super) fn u32be(input: Input) -> Self {
        Self { input, layout: RecordLayout::U32Be }
    }

    /// The key of the next record, and the value size if the format records it.
    fn record(&mut self) -> Result<Option<(u64, Option<u64>)>> {
        Ok(match self.layout {
            RecordLayout::OracleGeneral => self.input.record::<24>()?.map(|record| {
                // The time and the next access do not matter to a store.
                let [_, _, _, _, k0, k1, k2, k3, k4, k5, k6, k7, s0, s1, s2, s3, ..] = record;
                let key = u64::from_le_bytes([k0, k1, k2, k3, k4, k5, k6, k7]);
                (key, Some(u64::from(u32::from_le_bytes([s0, s1, s2, s3]))))
            }),
            RecordLayout::U64Be => {
                self.input.record::<8>()?.map(|record| (u64::from_be_bytes(record), None))
            }
            // In the trace Web07, keys count up from zero with the last byte moving fastest.
            RecordLayout::U32Be => self
                .input
                .record::<4>()?
                .map(|record| (u64::from(u32::from_be_bytes(record)), None)),
        })
    }
}

impl Trace for Fixed {
    fn next(&mut self, access: &mut Access) -> Result<bool> {
        let Some((key, value_bytes)) = self.record()? else { return Ok(false) };
        access.set(Op::GetOrPut, &key.to_be_bytes(), value_bytes);
        Ok(true)
    }

    fn position(&self) -> Position {
        self.input.position()
    }
}
