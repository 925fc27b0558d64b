//! Published figures of the stores beside which the lanes are shown. A ratio to a store is claimed only if
//! our rebuilding of it comes near a figure of its paper.

use media::emulated::Profile;

use super::driver::{Kind, Setup};

/// A rebuilding may differ this much from the paper.
const TOLERANCE: f64 = 0.25;

/// Bytes of a record beside its key and its value, which the original does not have.
const RECORD_HEAD_BYTES: usize = 28;

/// A published figure.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// The source.
    pub source: &'static str,
    /// Million operations a second.
    pub mops: f64,
    /// The same, in this experiment.
    pub setup: Setup,
}

impl Published {
    /// Whether `mops` of the rebuilt store is near the figure.
    #[must_use]
    pub fn is_near(&self, mops: f64) -> bool {
        (mops / self.mops - 1.0).abs() <= TOLERANCE
    }
}

/// The figure of each store that has one.
#[must_use]
pub fn published(dimm: &'static Profile) -> Vec<Published> {
    vec![
        Published {
            source: "Viper, VLDB 2021, its repository's eval: an insert of 16 B and 200 B takes 2.35 us with \
                     36 threads on 6 modules; here the slot of 216 B includes the record's head",
            mops: 36.0 / 2.35,
            setup: Setup {
                key_bytes: 16,
                value_bytes: 200 - RECORD_HEAD_BYTES,
                ..Setup::load(dimm, 6, Kind::Viper, 36)
            },
        },
        Published {
            source: "FlatStore, ASPLOS 2020, abstract: up to 35 million operations a second; here puts of \
                     8 B and 8 B by 36 threads on 4 modules",
            mops: 35.0,
            setup: Setup {
                key_bytes: 8,
                value_bytes: 8,
                ..Setup::load(dimm, 4, Kind::FlatInline, 36)
            },
        },
    ]
}
