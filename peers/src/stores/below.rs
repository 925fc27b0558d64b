//! The emulated second tier that a case may give this engine below DRAM.

/// A profile of an emulated device, named as in `emulated:PROFILE`. Its content lies in the memory of the
/// machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Below {
    /// A block device: 10 us per read.
    OptaneSsd,
    /// Memory behind a link: 250 ns per read.
    CxlDram,
}

impl Below {
    /// The name of the profile.
    pub(crate) const fn profile(self) -> &'static str {
        match self {
            Self::OptaneSsd => "optane-ssd",
            Self::CxlDram => "cxl-dram",
        }
    }

    /// The size of the tier for `data_bytes` of data: three eighths, for example 2.9 GiB for 7.7 GiB.
    pub(crate) fn bytes(data_bytes: u64) -> u64 {
        (data_bytes / 8 * 3).max(1 << 20)
    }
}
