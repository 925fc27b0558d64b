//! What lies below this engine's DRAM where a case gives it a second tier.

/// An emulated device, as `emulated:PROFILE` names it; its content lies in the system's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Below {
    /// Blocks: 10 us a read.
    OptaneSsd,
    /// Memory behind a link: 250 ns.
    CxlDram,
}

impl Below {
    /// The profile's name.
    pub(crate) const fn profile(self) -> &'static str {
        match self {
            Self::OptaneSsd => "optane-ssd",
            Self::CxlDram => "cxl-dram",
        }
    }

    /// Its size where the data takes so many bytes: three eighths, 2.9 GiB of 7.7.
    pub(crate) fn bytes(data_bytes: u64) -> u64 {
        (data_bytes / 8 * 3).max(1 << 20)
    }
}
