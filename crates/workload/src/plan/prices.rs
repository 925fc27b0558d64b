//! Prices and speeds of memory and servers.

/// A set of prices with their sources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices {
    /// Its name and date.
    pub name: String,
    /// The first tier of the caches.
    pub dram: Tier,
    /// The second tier of the caches.
    pub scm: Tier,
    /// The device that is read if both tiers miss; its price is part of the server's.
    pub flash: Tier,
    /// The object store below the caches, if the list has one.
    pub object_store: Option<ObjectStore>,
    /// The processor time of lookups.
    pub processor: Processor,
    /// The servers to choose from.
    pub servers: Vec<Server>,
    /// Pairs of a key of the price file and the source of its figure.
    pub sources: Vec<(String, String)>,
}

/// A kind of memory or device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tier {
    /// Price, dollars per GiB.
    pub dollars: f64,
    /// Power in use, watts per GiB.
    pub watts: f64,
    /// The wait for a page, microseconds.
    pub latency: f64,
    /// Whether the core stalls during the wait, as it does for memory, and can do nothing else.
    pub stalls: bool,
    /// Processor time per page of this tier beyond that of a page in DRAM, microseconds.
    pub cpu: f64,
    /// The most pages per second.
    pub pages: f64,
}

/// Prices of an object store.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ObjectStore {
    /// Dollars for a million requests that read.
    pub dollars_per_million_gets: f64,
    /// Dollars for a GiB in a month.
    pub dollars_per_gib_month: f64,
}

/// Processor times, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Processor {
    /// Of a lookup that a row in DRAM answers.
    pub row: f64,
    /// Of a lookup that pages in DRAM answer.
    pub page: f64,
    /// Lookups in flight per core, by several threads or by one thread with batched lookups.
    pub in_flight: f64,
}

/// A server without the memory of the caches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Cores.
    pub cores: f64,
    /// Price, dollars.
    pub dollars: f64,
    /// Power in use, watts.
    pub watts: f64,
    /// The most DRAM for caches, GiB.
    pub dram_max: f64,
}
