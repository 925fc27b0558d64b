//! Fault rules: which operation fails, when and how.

use std::time::Duration;

use base::{Error, Result};

use crate::Purpose;

/// The kind of operation that a rule applies to.
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

/// The fault that an operation gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails. A failed write leaves any of its sectors; after a failed sync unsynced content
    /// survives or is lost as in a crash, and no later sync makes lost content durable.
    Io,
    /// The device reports that it is full; a write leaves its first half.
    NoSpace,
    /// The device reports success and does nothing.
    Lost,
    /// The device reports success and writes some of the sectors.
    Torn,
    /// The device reports success and writes elsewhere.
    Misdirected {
        /// The other file; `None` means the same file.
        name: Option<String>,
        /// The offset there, bytes.
        at: u64,
    },
    /// One random bit is flipped: in the buffer of a read, or in the stored bytes of a write.
    Flip,
    /// The operation takes this much longer.
    Delay(Duration),
}

/// One injected fault: the operations it applies to, when it strikes and how often.
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

    /// Applies to operations of this purpose only. Operations on names have no purpose.
    #[must_use]
    pub const fn purpose(mut self, purpose: Purpose) -> Self {
        self.purpose = Some(purpose);
        self
    }

    /// Applies only to files with a name that contains `part`.
    #[must_use]
    pub fn name(mut self, part: impl Into<String>) -> Self {
        self.name = Some(part.into());
        self
    }

    /// Spares the first `operations` that the rule applies to.
    #[must_use]
    pub const fn after(mut self, operations: u64) -> Self {
        self.after = operations;
        self
    }

    /// Strikes `times` times.
    #[must_use]
    pub const fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// `Invalid` if the fault is not possible for operations of that kind.
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
            .expected("a fault that this kind of operation can have")
            .got(format_args!("{self:?}")))
    }

    /// Counts an operation that the rule applies to; the fault if the rule strikes.
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
