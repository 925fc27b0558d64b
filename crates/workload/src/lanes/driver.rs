//! Runs logical threads on a store in virtual time, and verifies every answer.

use std::collections::HashMap;

use base::{Error, Result, Rng};
use media::emulated::Profile;
use serde::Serialize;

use super::chameleon::Chameleon;
use super::devices::Devices;
use super::flat::FlatStore;
use super::lane_store::LaneStore;
use super::mix::{Drawn, Mix};
use super::private_log::PrivateLog;
use super::records::{Index, Place, Put, Shape};
use super::schedule::{Nanos, Schedule};
use super::store::{Step, Store, World};
use super::viper::Viper;
use crate::Sampler;

/// CPU time of an operation before it reaches the store and after it: the same for all.
const BEFORE_NS: Nanos = 300.0;
const AFTER_NS: Nanos = 200.0;

/// Threads begin this long after each other.
const APART_NS: Nanos = 3.0;

/// A store of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The design of the log, with this many lanes a device.
    Lanes {
        /// Lanes of each device.
        per_device: usize,
    },
    /// Viper.
    Viper,
    /// FlatStore, values apart from its log.
    FlatApart,
    /// FlatStore, values in its log.
    FlatInline,
    /// ChameleonDB.
    Chameleon,
    /// A log per thread, without anything else.
    PrivateLog,
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The device.
    pub profile: &'static Profile,
    /// The number of devices.
    pub devices: usize,
    /// The store.
    pub kind: Kind,
    /// Logical threads.
    pub threads: usize,
    /// What the operations are.
    pub mix: Mix,
    /// Bytes of a key, 8 at least.
    pub key_bytes: usize,
    /// Bytes of a value, 8 at least.
    pub value_bytes: usize,
    /// Operations that are measured; a tenth as many come before.
    pub ops: usize,
    /// Added to the way to a leader and back, nanoseconds: callers on another node than the lanes' leaders.
    pub hop_ns: f64,
}

impl Setup {
    /// Inserts of 8-byte keys and 256-byte values.
    #[must_use]
    pub const fn load(
        profile: &'static Profile,
        devices: usize,
        kind: Kind,
        threads: usize,
    ) -> Self {
        Self {
            profile,
            devices,
            kind,
            threads,
            mix: Mix::Load,
            key_bytes: 8,
            value_bytes: 256,
            ops: 40_000,
            hop_ns: 0.0,
        }
    }
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Operations per microsecond: millions a second.
    pub mops: f64,
    /// Key and value bytes put, GB/s.
    pub user_gb: f64,
    /// Bytes that the media wrote, GB/s.
    pub media_gb: f64,
    /// Median latency of an operation, nanoseconds.
    pub p50_ns: f64,
    /// The 99th percentile.
    pub p99_ns: f64,
    /// Records a group.
    pub group: f64,
    /// Answers of gets that were verified byte by byte.
    pub verified: u64,
}

#[derive(Clone, Copy, Debug)]
enum Doing {
    Begin,
    Put(Put),
    /// A get, whose store's index on the device was `probed` or not yet.
    Get {
        get: Get,
        probed: bool,
    },
    Read {
        get: Get,
        place: Place,
    },
}

#[derive(Clone, Copy, Debug)]
struct Get {
    key: u64,
    /// This seqno of the key was acknowledged when the get began.
    floor: u64,
    /// Whether a put of the key follows.
    is_modify: bool,
}

struct Run {
    setup: Setup,
    world: World,
    store: Box<dyn Store>,
    schedule: Schedule,
    rng: Rng,
    /// By thread: what it does, and since when.
    threads: Vec<(Doing, Nanos)>,
    /// The number of keys inserted or being inserted, and of puts begun.
    keys: u64,
    versions: u64,
    /// The keys below this one are acknowledged.
    known: u64,
    /// What draws the keys of the mix, and the keys that were known when it began.
    sampler: Sampler,
    sampled: u64,
    /// The greatest acknowledged seqno of each key.
    acknowledged: HashMap<u64, u64>,
    latencies: Vec<Nanos>,
    puts: u64,
    verified: u64,
}

/// Runs `setup`.
///
/// # Errors
/// `Invalid` for a setup without threads, or with keys or values that are too short. `Corrupt` if a get
/// answers with anything but the whole, newest acknowledged record of its key.
pub fn run(setup: &Setup) -> Result<Measured> {
    if setup.threads == 0 || setup.devices == 0 || setup.key_bytes.min(setup.value_bytes) < 8 {
        return Err(
            Error::invalid("experiment").expected("threads, devices, keys and values of 8 B")
        );
    }
    let shape = Shape { key_bytes: setup.key_bytes, value_bytes: setup.value_bytes };
    let bytes = shape.record_bytes()?;
    let unit = setup.profile.unit.max(64);
    let store: Box<dyn Store> = match setup.kind {
        Kind::Lanes { per_device } => Box::new(LaneStore::new(
            setup.devices,
            per_device.max(1),
            setup.threads,
            unit,
            bytes,
            setup.hop_ns,
        )),
        Kind::Viper => Box::new(Viper::new(setup.threads, bytes)),
        Kind::FlatApart => Box::new(FlatStore::new(setup.threads, bytes, false)),
        Kind::FlatInline => Box::new(FlatStore::new(setup.threads, bytes, true)),
        Kind::Chameleon => Box::new(Chameleon::new(setup.threads)),
        Kind::PrivateLog => Box::new(PrivateLog::new(setup.threads)),
    };
    let world = World {
        devices: Devices::new(setup.profile, setup.devices),
        index: Index::default(),
        shape,
        seqno: 1,
        groups: 0,
        records: 0,
    };
    let mut run = Run {
        setup: *setup,
        world,
        store,
        schedule: Schedule::new(),
        rng: Rng::new(7),
        threads: vec![(Doing::Begin, 0.0); setup.threads],
        keys: 0,
        versions: 0,
        known: 0,
        sampler: setup.mix.sampler(1)?,
        sampled: 1,
        acknowledged: HashMap::new(),
        latencies: Vec::new(),
        puts: 0,
        verified: 0,
    };
    for thread in 0..setup.threads {
        run.schedule.give(thread, thread as f64 * APART_NS);
    }
    if setup.mix != Mix::Load {
        run.until(setup.ops, Mix::Load)?;
        run.sampled = run.known;
        run.sampler = setup.mix.sampler(run.sampled)?;
    }
    run.until(setup.ops / 10, setup.mix)?;
    run.measure()
}

impl Run {
    fn measure(&mut self) -> Result<Measured> {
        self.latencies.clear();
        let (begin, media) = (self.schedule.now(), self.world.devices.written_bytes());
        let (puts, groups) = (self.puts, self.world.groups);
        let records = self.world.records;
        self.until(self.setup.ops, self.setup.mix)?;
        let took = self.schedule.now() - begin;
        let per = |count: f64| if took > 0.0 { count / took } else { 0.0 };
        self.latencies.sort_by(f64::total_cmp);
        let quantile = |part: usize| {
            self.latencies.get(self.latencies.len() * part / 100).copied().unwrap_or_default()
        };
        let user = (self.puts - puts) * self.world.shape.user_bytes();
        let groups = (self.world.groups - groups).max(1);
        Ok(Measured {
            mops: per(self.latencies.len() as f64) * 1e3,
            user_gb: per(user as f64),
            media_gb: per((self.world.devices.written_bytes() - media) as f64),
            p50_ns: quantile(50),
            p99_ns: quantile(99),
            group: (self.world.records - records) as f64 / groups as f64,
            verified: self.verified,
        })
    }

    /// Takes turns until `ops` more operations are done.
    fn until(&mut self, ops: usize, mix: Mix) -> Result<()> {
        let end = self.latencies.len() + ops;
        while self.latencies.len() < end {
            let Some((now, thread)) = self.schedule.next() else {
                return Err(base::broken_invariant!("a thread always has a turn"));
            };
            let Some((doing, _)) = self.threads.get(thread).copied() else { continue };
            self.turn(now, thread, doing, mix)?;
        }
        Ok(())
    }

    fn turn(&mut self, now: Nanos, thread: usize, doing: Doing, mix: Mix) -> Result<()> {
        match doing {
            Doing::Begin => {
                let next = self.draw(mix);
                self.threads.get_mut(thread).into_iter().for_each(|it| *it = (next, now));
                self.schedule.give(thread, now + BEFORE_NS);
            }
            Doing::Put(put) => {
                let (world, schedule) = (&mut self.world, &mut self.schedule);
                match self.store.step(now, thread, put, world, schedule)? {
                    Step::At(at) => self.schedule.give(thread, at),
                    Step::Parked => {}
                    Step::Done(seqno) => {
                        self.acknowledge(put.key, seqno);
                        self.done(now, thread);
                    }
                }
            }
            Doing::Get { get, probed } => {
                let probe = self.store.probes(get.key).filter(|_| !probed);
                if let Some((at, len)) = probe {
                    let done = self.world.devices.read(now, thread, at, len).0;
                    self.goes_on(thread, Doing::Get { get, probed: true }, done);
                    return Ok(());
                }
                let Some(place) = self.world.index.get(get.key) else {
                    return Err(Error::corrupt("index").expected("an acknowledged key"));
                };
                let done = self.world.devices.read(now, thread, place.at, place.len).0;
                self.goes_on(thread, Doing::Read { get, place }, done);
            }
            Doing::Read { get: Get { key, floor, is_modify }, place } => {
                let bytes = self.world.devices.peek(place.at, place.len);
                let (seqno, _) = self.world.shape.verify(&bytes, key)?;
                if seqno != place.seqno || seqno < floor {
                    return Err(Error::corrupt("answer")
                        .expected(format_args!("seqno {}, at least {floor}", place.seqno))
                        .got(seqno));
                }
                self.verified += 1;
                if is_modify {
                    let put = self.put(key);
                    self.goes_on(thread, put, now);
                } else {
                    self.done(now, thread);
                }
            }
        }
        Ok(())
    }

    fn acknowledge(&mut self, key: u64, seqno: u64) {
        let newest = self.acknowledged.entry(key).or_default();
        *newest = seqno.max(*newest);
        while self.acknowledged.contains_key(&self.known) {
            self.known += 1;
        }
        self.puts += 1;
    }

    fn draw(&mut self, mix: Mix) -> Doing {
        let (key, is_modify) =
            match mix.draw(&self.sampler, self.sampled, self.known, &mut self.rng) {
                Drawn::Insert => {
                    self.keys += 1;
                    return self.put(self.keys - 1);
                }
                Drawn::Update(key) => return self.put(key),
                Drawn::Read(key) => (key, false),
                Drawn::ReadModifyWrite(key) => (key, true),
            };
        let floor = self.acknowledged.get(&key).copied().unwrap_or(0);
        Doing::Get { get: Get { key, floor, is_modify }, probed: false }
    }

    const fn put(&mut self, key: u64) -> Doing {
        self.versions += 1;
        Doing::Put(Put { key, version: self.versions })
    }

    fn goes_on(&mut self, thread: usize, doing: Doing, at: Nanos) {
        self.threads.get_mut(thread).into_iter().for_each(|it| it.0 = doing);
        self.schedule.give(thread, at);
    }

    fn done(&mut self, now: Nanos, thread: usize) {
        let since = self.threads.get(thread).map_or(now, |it| it.1);
        self.latencies.push(now - since);
        self.goes_on(thread, Doing::Begin, now + AFTER_NS);
    }
}
