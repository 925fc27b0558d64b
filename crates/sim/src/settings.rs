//! Settings of a store: drawn by the script, or fixed for all of it.

use base::Rng;
use compact::plan::Options;
use terracedb::scm::Placement;
use terracedb::{Builder, Codec};

/// Settings that must not change any answer.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Compression codec of tables.
    pub codec: Codec,
    /// Memory limit, bytes.
    pub memory: u64,
    /// Maximum size of the page cache, bytes.
    pub page_cache: u64,
    /// Whether rows are cached.
    pub has_rows: bool,
    /// How eagerly tables are merged.
    pub compaction: CompactionStyle,
    /// Seed for the order of background steps.
    pub order: u64,
    /// The SCM tier, if any.
    pub tier: Option<TierSettings>,
}

/// An SCM tier.
#[derive(Clone, Copy, Debug)]
pub struct TierSettings {
    /// Whether it is byte-addressable memory; otherwise a block device.
    pub is_mapped: bool,
    /// Whether it has the latencies of an emulated device, in virtual time.
    pub is_emulated: bool,
    /// Its size in pages, at least 18: two for the header and 16 slots.
    pub pages: usize,
    /// The placement policy of pages.
    pub placement: Placement,
    /// Write budget, bytes per second.
    pub write_budget: Option<u64>,
}

impl TierSettings {
    /// Random settings, or no tier.
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
    /// The default options.
    Default,
    /// Jobs of kilobytes and many levels.
    Tiny,
    /// Tables are hardly ever merged.
    Lazy,
}

impl Variant {
    /// Random settings.
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let codec = [Codec::None, Codec::Lz4, Codec::Zstd, Codec::Deflate][rng.below(4) as usize];
        let compaction = [
            CompactionStyle::Default,
            CompactionStyle::Tiny,
            CompactionStyle::Tiny,
            CompactionStyle::Lazy,
        ][rng.below(4) as usize];
        // More memory would mean longer logs, which each crash copies.
        let memory = [64 << 20, 64 << 20, 65 << 20, 96 << 20][rng.below(4) as usize];
        let order = rng.next_u64();
        // Derived from `order`, so that seeds from before these settings existed still give the same scripts.
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
