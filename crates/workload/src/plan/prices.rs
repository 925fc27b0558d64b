//! What memory and servers cost, and how fast they are.

/// All of it, with where it is from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices {
    /// What it is called, and when it was true.
    pub name: String,
    /// Memory of the caches' first tier.
    pub dram: Tier,
    /// Of the second.
    pub scm: Tier,
    /// What is read when neither has it; its price is the server's.
    pub flash: Tier,
    /// What the processor does.
    pub processor: Processor,
    /// Servers to put memory into.
    pub servers: Vec<Server>,
    /// Each figure's source, as the file has it: by its key.
    pub sources: Vec<(String, String)>,
}

/// A kind of memory or device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tier {
    /// Dollars for a GiB.
    pub dollars: f64,
    /// Watts for a GiB, in use.
    pub watts: f64,
    /// The wait for a page, microseconds.
    pub latency: f64,
    /// The core waits for it, as for memory, and does nothing else meanwhile.
    pub stalls: bool,
    /// The processor's work for a page of it beside what any page takes, microseconds.
    pub cpu: f64,
    /// Pages a second that it gives, at most.
    pub pages: f64,
}

/// The processor's work, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Processor {
    /// A lookup that a row answers.
    pub row: f64,
    /// One that pages in DRAM answer.
    pub page: f64,
    /// Lookups in flight for each core: of other threads, or of one that asks for many.
    pub in_flight: f64,
}

/// A server without the memory of its caches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Server {
    /// What it is called.
    pub name: String,
    /// Its cores.
    pub cores: f64,
    /// Its price.
    pub dollars: f64,
    /// What it draws, in use.
    pub watts: f64,
    /// The most DRAM for caches, GiB.
    pub dram_max: f64,
}
