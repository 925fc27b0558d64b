//! Which operation goes wrong, when, and how.

use std::time::Duration;

use base::{Error, Result};

use crate::Purpose;

/// What kind of operation a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Reads.
    Read,
    /// Writes and byte stores.
    Write,
    /// Syncs of a file.
    Sync,
    /// Creates, renames, removes and syncs of names.
    Names,
}

/// What happens instead of, or to, an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails. A failed write leaves any part of it; a failed sync settles what was
    /// unsynced as a crash would, and no later sync brings it back.
    Io,
    /// The device says it is full; a write leaves its front half.
    NoSpace,
    /// The device says it is done and does nothing.
    Lost,
    /// The device says it is done and writes some of the sectors.
    Torn,
    /// The device says it is done and writes to another place.
    Misdirected {
        /// The other file; the same one where `None`.
        name: Option<String>,
        /// The offset there, bytes.
        at: u64,
    },
    /// One random bit is wrong: in what a read returns, or at rest in what a write wrote.
    Flip,
    /// The operation takes longer.
    Delay(Duration),
}

/// One injected fault: the operations it meets, when it strikes and how often.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(super) on: OpKind,
    pub(super) fault: Fault,
    purpose: Option<Purpose>,
    name: Option<String>,
    after: u64,
    times: u64,
}

impl Rule {
    /// Strikes once, at the next operation of this kind.
    #[must_use]
    pub const fn new(on: OpKind, fault: Fault) -> Self {
        Self { on, fault, purpose: None, name: None, after: 0, times: 1 }
    }

    /// Meets operations of this purpose only. Operations on names have none.
    #[must_use]
    pub const fn purpose(mut self, purpose: Purpose) -> Self {
        self.purpose = Some(purpose);
        self
    }

    /// Meets files only whose name contains `part`.
    #[must_use]
    pub fn name(mut self, part: impl Into<String>) -> Self {
        self.name = Some(part.into());
        self
    }

    /// Lets the first `operations` that it meets pass.
    #[must_use]
    pub const fn after(mut self, operations: u64) -> Self {
        self.after = operations;
        self
    }

    /// Strikes so many times.
    #[must_use]
    pub const fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// `Invalid` where the fault cannot happen to such an operation.
    pub(super) fn check(&self) -> Result<()> {
        let fits = match self.fault {
            Fault::Io | Fault::Delay(_) => true,
            Fault::NoSpace => matches!(self.on, OpKind::Write | OpKind::Names),
            Fault::Lost => matches!(self.on, OpKind::Write | OpKind::Sync),
            Fault::Torn | Fault::Misdirected { .. } => self.on == OpKind::Write,
            Fault::Flip => matches!(self.on, OpKind::Read | OpKind::Write),
        } && !(self.on == OpKind::Names && self.purpose.is_some());
        if fits {
            return Ok(());
        }
        Err(Error::invalid("fault rule")
            .expected("a fault that this kind of operation can meet")
            .got(format_args!("{self:?}")))
    }

    /// Counts an operation; the fault if it strikes.
    pub(super) fn strike(
        &mut self,
        on: OpKind,
        name: &str,
        purpose: Option<Purpose>,
    ) -> Option<Fault> {
        let meets = self.on == on
            && self.times > 0
            && (self.purpose.is_none() || self.purpose == purpose)
            && self.name.as_ref().is_none_or(|part| name.contains(part.as_str()));
        if !meets {
            return None;
        }
        if self.after > 0 {
            self.after -= 1;
            return None;
        }
        self.times -= 1;
        Some(self.fault.clone())
    }
}
