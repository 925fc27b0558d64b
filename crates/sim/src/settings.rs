//! What stores are opened with: drawn by a script, or the same for all of it.

use base::Rng;
use compact::plan::Options;
use terracedb::{Builder, Codec, Placement};

/// Settings that must not change an answer.
#[derive(Clone, Debug)]
pub struct Variant {
    /// How tables are compressed.
    pub codec: Codec,
    /// The memory number, bytes.
    pub memory: u64,
    /// What pages take of it at most, bytes.
    pub page_cache: u64,
    /// Whether single rows are kept.
    pub has_rows: bool,
    /// The shape of trees: none, tiny jobs, or as by default.
    pub compaction: CompactionStyle,
    /// Decides the order of background steps.
    pub order: u64,
    /// The tier below DRAM, where there is one.
    pub tier: Option<TierSettings>,
}

/// A tier below DRAM.
#[derive(Clone, Copy, Debug)]
pub struct TierSettings {
    /// Loads and stores reach it; a device otherwise.
    pub is_mapped: bool,
    /// With a profile's time, which is its own.
    pub is_emulated: bool,
    /// Its size, 18 at least: two, and sixteen slots.
    pub pages: usize,
    /// Where pages go.
    pub placement: Placement,
    /// Bytes a second that may be written.
    pub write_budget: Option<u64>,
}

impl TierSettings {
    /// A random one, or none.
    fn random(rng: &mut Rng) -> Option<Self> {
        use Placement::{Adaptive, ByKind, DramFirst, ScmFirst};
        let placements = [ScmFirst, Adaptive, DramFirst, DramFirst, ByKind];
        (!rng.one_in(3)).then(|| Self {
            is_mapped: rng.one_in(2),
            is_emulated: rng.one_in(3),
            pages: [18, 40, 40, 150, 600][rng.below(5) as usize],
            placement: placements[rng.below(5) as usize],
            write_budget: rng.one_in(4).then(|| 1 << (8 + rng.below(10))),
        })
    }
}

/// How eagerly tables are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionStyle {
    /// As users have it.
    Default,
    /// Jobs of kilobytes, many levels.
    Tiny,
    /// Hardly ever.
    Lazy,
}

impl Variant {
    /// A random one.
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let codec = [Codec::None, Codec::Lz4, Codec::Zstd][rng.below(3) as usize];
        let compaction = [
            CompactionStyle::Default,
            CompactionStyle::Tiny,
            CompactionStyle::Tiny,
            CompactionStyle::Lazy,
        ][rng.below(4) as usize];
        // More memory means longer logs to copy at each crash.
        let memory = [64 << 20, 64 << 20, 65 << 20, 96 << 20][rng.below(4) as usize];
        let order = rng.next_u64();
        // Of the same number: scripts that were drawn before there was either stay what they are.
        let mut rng = Rng::new(order);
        let tier = TierSettings::random(&mut rng);
        let page_cache = [u64::MAX, 2 << 20, 300 << 10, 170 << 10][rng.below(4) as usize];
        let has_rows = rng.one_in(2);
        Self { codec, memory, page_cache, has_rows, compaction, order, tier }
    }

    pub(crate) fn apply(&self, builder: Builder) -> Builder {
        let options = match self.compaction {
            CompactionStyle::Default => Options::default(),
            CompactionStyle::Tiny => Options {
                fanout: 3,
                settled_runs: 2,
                slice_bytes: 32 << 10,
                runs_max: 6,
                ..Options::default()
            },
            CompactionStyle::Lazy => Options {
                fanout: 1000,
                settled_runs: 1000,
                space_max: 1000.0,
                settled_space: 1000.0,
                deletes_share: 2.0,
                ..Options::default()
            },
        };
        builder.codec(self.codec).compaction_options(options)
    }
}
