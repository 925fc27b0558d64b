//! What stores are opened with: drawn by a script, or the same for all of it.

use base::Rng;
use compact::plan::Options;
use terracedb::{Builder, Codec};

/// Settings that must not change an answer.
#[derive(Clone, Debug)]
pub struct Variant {
    /// How tables are compressed.
    pub codec: Codec,
    /// The memory number, bytes.
    pub memory: u64,
    /// The shape of trees: none, tiny jobs, or as by default.
    pub shape: Shape,
    /// Decides the order of background steps.
    pub order: u64,
}

/// How eagerly tables are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
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
        let shape = [Shape::Default, Shape::Tiny, Shape::Tiny, Shape::Lazy][rng.below(4) as usize];
        // More memory means longer logs to copy at each crash.
        let memory = [64 << 20, 64 << 20, 65 << 20, 96 << 20][rng.below(4) as usize];
        Self { codec, memory, shape, order: rng.next_u64() }
    }

    pub(crate) fn apply(&self, builder: Builder) -> Builder {
        let options = match self.shape {
            Shape::Default => Options::default(),
            Shape::Tiny => Options {
                fanout: 3,
                settled_runs: 2,
                slice_bytes: 32 << 10,
                runs_max: 6,
                ..Options::default()
            },
            Shape::Lazy => Options {
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
