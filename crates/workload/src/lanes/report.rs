//! The tables of the experiment, one line for each run.

use std::fmt;

use base::{Error, Result};
use media::emulated::Profile;
use media::{CalibratedDevice, calibrate};
use serde::Serialize;

use super::driver::{Kind, Measured, Setup, run};
use super::published::published;

/// The table that a line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Table {
    /// A published figure beside the same run here.
    Published,
    /// Inserts, by threads.
    Load,
    /// Half reads, half updates: YCSB A.
    Half,
    /// 95 reads in a hundred operations: YCSB B.
    Reads,
    /// One device: the share of its bandwidth that users' bytes get, by threads.
    Peak,
    /// From one to four devices.
    Scaling,
    /// Leaders on the devices' node, and on another one.
    Nodes,
}

/// One run. It serializes to the object that scripts parse, and displays as a line.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The table.
    pub table: Table,
    /// The emulated device.
    pub profile: &'static str,
    /// The number of devices.
    pub devices: usize,
    /// The store.
    pub store: &'static str,
    /// Lanes of each device; 0 for other stores.
    pub lanes: usize,
    /// Logical threads.
    pub threads: usize,
    /// Million operations a second.
    pub mops: f64,
    /// Key and value bytes put, as a share of the devices' greatest write bandwidth.
    pub user_of_peak: f64,
    /// Bytes that the media wrote, likewise.
    pub media_of_peak: f64,
    /// Median latency, nanoseconds.
    pub p50_ns: f64,
    /// The 99th percentile, nanoseconds.
    pub p99_ns: f64,
    /// Records a group.
    pub group: f64,
    /// Gets with a verified answer.
    pub verified: u64,
    /// The lanes' rate over this store's, in the same table with as many threads; only if a published figure
    /// of this store was reproduced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lanes_over_it: Option<f64>,
    /// The paper's figure, and its source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<(f64, &'static str)>,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = format!("{:?}", self.table).to_lowercase();
        let lanes = if self.lanes > 0 { format!(" {}", self.lanes) } else { String::new() };
        let store = format!("{}{lanes}", self.store);
        write!(
            f,
            "{table:<9} {:<18} {} devices {:>3} threads {store:<12} {:6.2} Mop/s user {:4.0} % \
             media {:4.0} % p50 {:6.0} p99 {:6.0} ns group {:4.1}",
            self.profile,
            self.devices,
            self.threads,
            self.mops,
            self.user_of_peak * 100.0,
            self.media_of_peak * 100.0,
            self.p50_ns,
            self.p99_ns,
            self.group
        )?;
        if let Some(ratio) = self.lanes_over_it {
            write!(f, " lanes {ratio:.2}x")?;
        }
        if let Some((mops, source)) = self.published {
            write!(f, " published {mops:.1}: {source}")?;
        }
        Ok(())
    }
}

/// The stores beside which the lanes stand.
const OTHERS: [Kind; 5] =
    [Kind::Viper, Kind::FlatApart, Kind::FlatInline, Kind::Chameleon, Kind::PrivateLog];

const fn name(kind: Kind) -> (&'static str, usize) {
    match kind {
        Kind::Lanes { per_device } => ("lanes", per_device),
        Kind::Viper => ("viper", 0),
        Kind::FlatApart => ("flat-apart", 0),
        Kind::FlatInline => ("flat-inline", 0),
        Kind::Chameleon => ("chameleon", 0),
        Kind::PrivateLog => ("log-a-thread", 0),
    }
}

/// A calibration of an emulated device runs in virtual time, and allocates nothing.
const CALIBRATED_BYTES: u64 = 1 << 30;
const CALIBRATED_THREADS: u32 = 128;

/// Time for a cache line to reach the other socket and be answered, nanoseconds: each way of a record.
const HOP_NS: f64 = 130.0;

fn line(table: Table, setup: &Setup, found: &Measured) -> Line {
    let points = setup.profile.store.threads.iter();
    let peak = points.map(|point| point.1).fold(0.0, f64::max) * setup.devices as f64;
    let (store, lanes) = name(setup.kind);
    Line {
        table,
        profile: setup.profile.name,
        devices: setup.devices,
        store,
        lanes,
        threads: setup.threads,
        mops: found.mops,
        user_of_peak: found.user_gb / peak,
        media_of_peak: found.media_gb / peak,
        p50_ns: found.p50_ns,
        p99_ns: found.p99_ns,
        group: found.group,
        verified: found.verified,
        lanes_over_it: None,
        published: None,
    }
}

/// The lanes that a calibration of `profile` gives each device.
fn learned(profile: &'static Profile) -> Result<Kind> {
    let place = format!("emulated:{}", profile.name).parse()?;
    let mut device = CalibratedDevice::open(&place, CALIBRATED_BYTES)?;
    let lanes = calibrate(&mut device, CALIBRATED_THREADS, |_, _| {})?.log_lanes();
    Ok(Kind::Lanes { per_device: lanes as usize })
}

/// Prints every table: calls `print` with each line. `ops` operations are measured in each run.
///
/// # Errors
/// Those of the runs and of `print`.
pub fn report(ops: usize, print: &mut dyn FnMut(&Line) -> Result<()>) -> Result<()> {
    let named = |name: &'static str| {
        Profile::named(name).ok_or_else(|| Error::invalid("profile").got(name))
    };
    let dimm = named("optane-dimm")?;
    let mut reproduced = Vec::new();
    for point in published(dimm) {
        let setup = Setup { ops, ..point.setup };
        let found = run(&setup)?;
        if point.is_near(found.mops) {
            reproduced.push(name(setup.kind).0);
        }
        let published = Some((point.mops, point.source));
        print(&Line { published, ..line(Table::Published, &setup, &found) })?;
    }
    for profile in [dimm, named("cxl-dram")?] {
        let lanes = learned(profile)?;
        for (table, threads, reads_percent) in [
            (Table::Load, 24, None),
            (Table::Load, 64, None),
            (Table::Load, 128, None),
            (Table::Half, 64, Some(50)),
            (Table::Reads, 64, Some(95)),
        ] {
            let setup =
                |kind| Setup { ops, reads_percent, ..Setup::load(profile, 4, kind, threads) };
            let own = run(&setup(lanes))?;
            print(&line(table, &setup(lanes), &own))?;
            let one = setup(Kind::Lanes { per_device: 1 });
            print(&line(table, &one, &run(&one)?))?;
            for kind in OTHERS {
                let found = run(&setup(kind))?;
                let is_claimed = kind == Kind::PrivateLog || reproduced.contains(&name(kind).0);
                let ratio = is_claimed.then(|| own.mops / found.mops);
                print(&Line { lanes_over_it: ratio, ..line(table, &setup(kind), &found) })?;
            }
        }
        for per_device in [1, name(lanes).1] {
            for threads in [1, 8, 24, 64] {
                let setup = Setup::load(profile, 1, Kind::Lanes { per_device }, threads);
                let setup = Setup { ops, ..setup };
                print(&line(Table::Peak, &setup, &run(&setup)?))?;
            }
        }
        for threads in [64, 128, 224] {
            for devices in [1, 2, 4] {
                let setup = Setup { ops, ..Setup::load(profile, devices, lanes, threads) };
                print(&line(Table::Scaling, &setup, &run(&setup)?))?;
            }
        }
    }
    let lanes = learned(dimm)?;
    let near = Setup { ops, hop_ns: HOP_NS, ..Setup::load(dimm, 4, lanes, 64) };
    let far = Setup { hop_ns: 0.0, profile: named("optane-dimm-remote")?, ..near };
    // Puts alone: a profile has one latency of reads, whichever node the reader is on.
    for setup in [near, far] {
        print(&line(Table::Nodes, &setup, &run(&setup)?))?;
    }
    Ok(())
}
