//! The mixed workloads as data: kinds of operations, distribution of keys, sizes. docs/workloads.md has
//! the source of each figure, and says which of them are assumed.

use super::layout::Wanted;
use super::{Kind, Name};
use crate::{RangeHeat, Sizes, ZIPFIAN_THETA};

/// The distribution of the keys of a mixed workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Heat {
    /// By Zipf's law, with the hot keys scattered.
    Zipfian(f64),
    /// By Zipf's law, with the last inserted keys hottest.
    Latest,
    /// By the heat of their range.
    Ranges(RangeHeat),
    /// None: every key is as likely as any other.
    Even,
}

#[derive(Debug)]
pub(super) struct Mix {
    /// The kinds of operations, each with its share of all operations; the shares add up to 1.
    pub(super) kinds: &'static [(Kind, f64)],
    pub(super) heat: Heat,
    /// The share of the reads that look up keys that do not exist.
    pub(super) absent: f64,
    pub(super) values: Sizes,
    /// Entries per scan.
    pub(super) scans: Sizes,
    pub(super) layout: Wanted,
    pub(super) key_bytes: usize,
}

impl Mix {
    /// The share of operations of `kind`.
    pub(super) fn part(&self, kind: Kind) -> f64 {
        self.kinds.iter().filter(|(other, _)| *other == kind).map(|(_, part)| part).sum()
    }
}

const YCSB: Mix = Mix {
    kinds: &[(Kind::Read, 1.0)],
    heat: Heat::Zipfian(ZIPFIAN_THETA),
    absent: 0.0,
    values: Sizes::Fixed(1000),
    scans: Sizes::Uniform { min: 1, max: 100 },
    layout: Wanted::Scattered,
    key_bytes: 24,
};

static YCSB_A: Mix = Mix { kinds: &[(Kind::Read, 0.5), (Kind::Update, 0.5)], ..YCSB };
static YCSB_B: Mix = Mix { kinds: &[(Kind::Read, 0.95), (Kind::Update, 0.05)], ..YCSB };
static YCSB_C: Mix = YCSB;
static YCSB_D: Mix =
    Mix { kinds: &[(Kind::Read, 0.95), (Kind::Insert, 0.05)], heat: Heat::Latest, ..YCSB };
static YCSB_E: Mix = Mix { kinds: &[(Kind::Scan, 0.95), (Kind::Insert, 0.05)], ..YCSB };
static YCSB_F: Mix = Mix { kinds: &[(Kind::Read, 0.5), (Kind::ReadModifyWrite, 0.5)], ..YCSB };

static MIXGRAPH: Mix = Mix {
    kinds: &[(Kind::Read, 0.83), (Kind::Update, 0.14), (Kind::Scan, 0.03)],
    heat: Heat::Ranges(RangeHeat::ZIPPYDB),
    absent: 0.0,
    values: Sizes::Pareto { shape: 0.2615, scale: 25.45, min: 8, max: 1024 },
    scans: Sizes::Pareto { shape: 2.517, scale: 14.236, min: 1, max: 10_000 },
    layout: Wanted::Ordered,
    key_bytes: 48,
};

static CHAT: Mix = Mix {
    kinds: &[(Kind::Read, 0.6), (Kind::Update, 0.3), (Kind::Insert, 0.1)],
    heat: Heat::Zipfian(0.9),
    absent: 0.0,
    // The mean is 127 B.
    values: Sizes::LogNormal { median: 92.0, sigma: 0.8, min: 8, max: 4096 },
    scans: Sizes::Fixed(1),
    layout: Wanted::Scattered,
    key_bytes: 27,
};

static BLOB_META: Mix = Mix {
    kinds: &[(Kind::Read, 0.83), (Kind::Update, 0.14), (Kind::Scan, 0.03)],
    heat: Heat::Ranges(RangeHeat::ZIPPYDB),
    absent: 0.0,
    // The mean is 43 B.
    values: Sizes::Pareto { shape: 0.2615, scale: 24.4, min: 8, max: 1024 },
    scans: Sizes::Uniform { min: 1, max: 100 },
    layout: Wanted::Ordered,
    key_bytes: 48,
};

static HIVE_CACHE: Mix = Mix {
    kinds: &[(Kind::Read, 0.95), (Kind::Update, 0.05)],
    heat: Heat::Zipfian(ZIPFIAN_THETA),
    absent: 0.1,
    // The mean is 495 B.
    values: Sizes::LogNormal { median: 300.0, sigma: 1.0, min: 8, max: 16 << 10 },
    scans: Sizes::Fixed(1),
    layout: Wanted::Scattered,
    key_bytes: 24,
};

static SILT: Mix = Mix {
    kinds: &[(Kind::Read, 0.9), (Kind::Update, 0.1)],
    heat: Heat::Even,
    absent: 0.0,
    values: Sizes::Fixed(236),
    scans: Sizes::Fixed(1),
    layout: Wanted::Scattered,
    key_bytes: 20,
};

impl Name {
    /// The mix of a mixed workload, or of the workload that it loads.
    pub(super) fn mix(self) -> Option<&'static Mix> {
        match self {
            Self::YcsbLoad | Self::YcsbC => Some(&YCSB_C),
            Self::YcsbA => Some(&YCSB_A),
            Self::YcsbB => Some(&YCSB_B),
            Self::YcsbD => Some(&YCSB_D),
            Self::YcsbE => Some(&YCSB_E),
            Self::YcsbF => Some(&YCSB_F),
            Self::MixgraphLoad | Self::Mixgraph => Some(&MIXGRAPH),
            Self::ChatLoad | Self::Chat => Some(&CHAT),
            Self::BlobMetaLoad | Self::BlobMeta => Some(&BLOB_META),
            Self::HiveCacheLoad | Self::HiveCache => Some(&HIVE_CACHE),
            Self::SiltLoad | Self::SiltMix => Some(&SILT),
            _ => None,
        }
    }

    /// The workload that fills the store for this one; `None` if this one needs no store of its own.
    #[must_use]
    pub const fn load(self) -> Option<Self> {
        match self {
            Self::YcsbA | Self::YcsbB | Self::YcsbC | Self::YcsbD | Self::YcsbE | Self::YcsbF => {
                Some(Self::YcsbLoad)
            }
            Self::Mixgraph => Some(Self::MixgraphLoad),
            Self::Chat => Some(Self::ChatLoad),
            Self::BlobMeta => Some(Self::BlobMetaLoad),
            Self::HiveCache => Some(Self::HiveCacheLoad),
            Self::SiltMix => Some(Self::SiltLoad),
            _ => None,
        }
    }

    /// The size of its keys if the options give none, bytes.
    #[must_use]
    pub fn key_bytes(self) -> usize {
        self.mix().map_or(16, |mix| mix.key_bytes)
    }

    /// The sizes of its values if the options give none.
    pub(super) fn values(self) -> Sizes {
        self.mix().map_or(Sizes::Fixed(100), |mix| mix.values)
    }

    pub(super) fn layout(self) -> Wanted {
        match self {
            Self::FillSeq | Self::FillRandom | Self::FillSync | Self::SeekRandom => Wanted::Ordered,
            name => name.mix().map_or(Wanted::Any, |mix| mix.layout),
        }
    }

    /// The kinds of operations that reports list separately; empty if the workload has only one.
    pub(super) fn kinds(self) -> Vec<Kind> {
        match (self, self.load(), self.mix()) {
            (Self::ReadWhileWriting, ..) => vec![Kind::Read, Kind::Update],
            (_, Some(_), Some(mix)) => mix.kinds.iter().map(|(kind, _)| *kind).collect(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;

    #[test]
    fn parts_add_up_and_every_mix_has_a_load() {
        for name in Name::ALL {
            let Some(mix) = name.mix() else { continue };
            let parts: f64 = mix.kinds.iter().map(|(_, part)| part).sum();
            assert!((parts - 1.0).abs() < 1e-9, "{name}");
            assert_ne!(name.load().is_some(), name.is_fill(), "{name}");
            let load = name.load().unwrap_or(name);
            assert_eq!((load.key_bytes(), load.layout()), (name.key_bytes(), name.layout()));
        }
    }

    /// The parameters of the sizes were chosen for these means.
    #[test]
    fn value_sizes_have_their_means() {
        for (mix, mean) in [(&CHAT, 127.0), (&BLOB_META, 43.0), (&HIVE_CACHE, 495.0)] {
            let mut rng = Rng::new(1);
            let sum: usize = (0..200_000).map(|_| mix.values.draw(&mut rng)).sum();
            let got = sum as f64 / 200_000.0;
            assert!((got / mean - 1.0).abs() < 0.03, "{got} for {mean}");
        }
    }
}
