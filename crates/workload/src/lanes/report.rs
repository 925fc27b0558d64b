//! The tables of the experiment, one line for each run.

use std::fmt;
use std::str::FromStr;

use base::{Error, Result};
use media::emulated::Profile;
use media::{CalibratedDevice, calibrate};
use serde::Serialize;

use super::driver::{Kind, Measured, Setup, run};
use super::mix::Mix;
use super::published::published;

/// The table that a line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Table {
    /// A published figure beside the same run here.
    Published,
    /// Inserts, by threads.
    Load,
    /// YCSB's mixes, by threads.
    Mixed,
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
    /// As in YCSB: `load`, or a mix (`a`, `b`, `c`, `d`, `f`).
    pub workload: Mix,
    /// Million operations a second.
    pub mops: f64,
    /// Key and value bytes put, as a share of the devices' greatest write bandwidth.
    pub user_share_of_peak: f64,
    /// Bytes that the media wrote, likewise.
    pub media_share_of_peak: f64,
    /// Median latency, microseconds.
    pub p50_us: f64,
    /// The 99th percentile, microseconds.
    pub p99_us: f64,
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
            "{table:<9} {:<18} {} devices {:>3} threads {:<4} {store:<12} {:6.2} Mop/s user {:4.0} % \
             media {:4.0} % p50 {:6.2} p99 {:6.2} us group {:4.1}",
            self.profile,
            self.devices,
            self.threads,
            self.workload.name(),
            self.mops,
            self.user_share_of_peak * 100.0,
            self.media_share_of_peak * 100.0,
            self.p50_us,
            self.p99_us,
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

/// The last line: the figures that the experiment is about, on the first of the emulated devices.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Always `lanes`.
    pub bench: &'static str,
    /// The share of one device's write bandwidth that users' bytes get, with 24 threads.
    pub user_share_of_peak_24_threads: f64,
    /// The rate of four devices over that of one, with 224 threads.
    pub scaling_1_to_4_devices: f64,
    /// The rate of the load over that of each store, with 64 threads on four devices; null for a store of
    /// which no published figure was reproduced.
    pub load_over: LoadOver,
    /// The emulated device of these figures, in virtual time.
    pub emulation: &'static str,
    /// In real time on this machine's memory, not emulated: synced puts of one thread to a resident keyspace,
    /// over those to an ordered keyspace with its log on flash. Null if that part was left out.
    pub synced_puts_over_flash: Option<f64>,
    /// In real time: bytes of DRAM for each entry of the resident keyspace.
    pub dram_bytes_per_entry: Option<f64>,
}

/// The lanes' load over that of each store.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LoadOver {
    /// Viper.
    pub viper: Option<f64>,
    /// ChameleonDB.
    pub chameleondb: Option<f64>,
    /// FlatStore with values apart.
    pub flatstore: Option<f64>,
    /// FlatStore with values in its log.
    pub flatstore_inline: Option<f64>,
    /// A log for each thread.
    pub log_per_thread: Option<f64>,
}

impl LoadOver {
    fn of(ratio: &dyn Fn(Kind) -> Option<f64>) -> Self {
        Self {
            viper: ratio(Kind::Viper),
            chameleondb: ratio(Kind::Chameleon),
            flatstore: ratio(Kind::FlatApart),
            flatstore_inline: ratio(Kind::FlatInline),
            log_per_thread: ratio(Kind::PrivateLog),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "summary   {} in virtual time: user {:.0} % of one device's peak with 24 threads, {:.2}x from \
             one to four devices",
            self.emulation,
            self.user_share_of_peak_24_threads * 100.0,
            self.scaling_1_to_4_devices,
        )?;
        if let (Some(ratio), Some(bytes)) = (self.synced_puts_over_flash, self.dram_bytes_per_entry)
        {
            write!(
                f,
                "; in real time on this machine's memory: synced puts {ratio:.1}x those to flash, \
                 {bytes:.1} B of DRAM an entry"
            )?;
        }
        Ok(())
    }
}

/// An emulated device of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// Memory modules with units of 256 B, as measured.
    OptaneDimm,
    /// A neutral profile: memory behind a link, without large units.
    CxlDram,
}

impl DeviceName {
    /// Both.
    pub const ALL: [Self; 2] = [Self::OptaneDimm, Self::CxlDram];

    /// The name of its profile.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OptaneDimm => "optane-dimm",
            Self::CxlDram => "cxl-dram",
        }
    }

    fn profile(self) -> Result<&'static Profile> {
        named(self.name())
    }
}

impl FromStr for DeviceName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::invalid("profile").expected("optane-dimm or cxl-dram").got(text);
        Self::ALL.into_iter().find(|device| device.name() == text).ok_or_else(wrong)
    }
}

fn named(name: &'static str) -> Result<&'static Profile> {
    Profile::named(name).ok_or_else(|| Error::invalid("profile").got(name))
}

/// The stores beside which the lanes stand.
const OTHERS: [Kind; 5] =
    [Kind::Viper, Kind::FlatApart, Kind::FlatInline, Kind::Chameleon, Kind::PrivateLog];

const fn store_of(kind: Kind) -> (&'static str, usize) {
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
    let (store, lanes) = store_of(setup.kind);
    Line {
        table,
        profile: setup.profile.name,
        devices: setup.devices,
        store,
        lanes,
        threads: setup.threads,
        workload: setup.mix,
        mops: found.mops,
        user_share_of_peak: found.user_gb / peak,
        media_share_of_peak: found.media_gb / peak,
        p50_us: found.p50_ns / 1e3,
        p99_us: found.p99_ns / 1e3,
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

/// The points of a report.
#[derive(Clone, Debug)]
pub struct ReportOptions {
    /// Operations measured in each run.
    pub ops: usize,
    /// The emulated devices.
    pub devices: Vec<DeviceName>,
    /// The mixes beside the load.
    pub mixes: Vec<Mix>,
    /// Every number of threads and devices, one lane a device, and leaders on another node.
    pub is_full: bool,
}

/// Prints the tables: calls `print` with each line. Returns the summary, without figures in real time.
///
/// # Errors
/// Those of the runs and of `print`; `Invalid` without devices.
pub fn report(
    options: &ReportOptions,
    print: &mut dyn FnMut(&Line) -> Result<()>,
) -> Result<Summary> {
    let Some(first) = options.devices.first() else {
        return Err(Error::invalid("report").expected("an emulated device"));
    };
    let mut lines = Vec::new();
    let mut print = |line: &Line| {
        lines.push(line.clone());
        print(line)
    };
    let reproduced = print_published(options.ops, &mut print)?;
    for device in &options.devices {
        Tables { options, device: *device, lanes: learned(device.profile()?)? }
            .print(&reproduced, &mut print)?;
    }
    Ok(summary(first.name(), &lines))
}

fn summary(device: &'static str, lines: &[Line]) -> Summary {
    let lanes = |table, devices, threads| {
        let same = |line: &&Line| {
            (line.profile, line.table) == (device, table)
                && (line.devices, line.threads, line.store) == (devices, threads, "lanes")
        };
        // The learned number of lanes comes last, and is not 1 on these devices.
        lines.iter().filter(same).find(|line| line.lanes > 1)
    };
    let mops = |devices| lanes(Table::Scaling, devices, 224).map_or(f64::NAN, |line| line.mops);
    let load_over = LoadOver::of(&|kind| {
        let mut loads = lines
            .iter()
            .filter(|line| (line.profile, line.table, line.threads) == (device, Table::Load, 64));
        loads.find(|line| line.store == store_of(kind).0)?.lanes_over_it
    });
    Summary {
        bench: "lanes",
        user_share_of_peak_24_threads: lanes(Table::Peak, 1, 24)
            .map_or(f64::NAN, |line| line.user_share_of_peak),
        scaling_1_to_4_devices: mops(4) / mops(1),
        load_over,
        emulation: device,
        synced_puts_over_flash: None,
        dram_bytes_per_entry: None,
    }
}

/// Prints the published figures beside the same runs here. Returns the stores that came near theirs.
fn print_published(
    ops: usize,
    print: &mut dyn FnMut(&Line) -> Result<()>,
) -> Result<Vec<&'static str>> {
    let mut reproduced = Vec::new();
    for point in published(DeviceName::OptaneDimm.profile()?) {
        let setup = Setup { ops, ..point.setup };
        let found = run(&setup)?;
        if point.is_near(found.mops) {
            reproduced.push(store_of(setup.kind).0);
        }
        let published = Some((point.mops, point.source));
        print(&Line { published, ..line(Table::Published, &setup, &found) })?;
    }
    Ok(reproduced)
}

/// The tables of one emulated device.
struct Tables<'a> {
    options: &'a ReportOptions,
    device: DeviceName,
    /// The lanes with the learned number.
    lanes: Kind,
}

impl Tables<'_> {
    fn setup(&self, devices: usize, kind: Kind, threads: usize) -> Result<Setup> {
        let load = Setup::load(self.device.profile()?, devices, kind, threads);
        Ok(Setup { ops: self.options.ops, ..load })
    }

    fn print(
        &self,
        reproduced: &[&'static str],
        print: &mut dyn FnMut(&Line) -> Result<()>,
    ) -> Result<()> {
        let is_full = self.options.is_full;
        let choose =
            |full: &'static [usize], few: &'static [usize]| if is_full { full } else { few };
        let (all, few) = (&[1, 2, 4, 8, 16, 24, 32, 64, 128, 224], &[24, 64]);
        let mixed: &[usize] = choose(&[1, 8, 24, 64, 128, 224], few);
        let loads = choose(all, few).iter().map(|threads| (*threads, Mix::Load));
        let mixes = self.options.mixes.iter();
        let mixes = mixes.flat_map(|mix| mixed.iter().map(|threads| (*threads, *mix)));
        for (threads, mix) in loads.chain(mixes) {
            self.print_stores(threads, mix, reproduced, print)?;
        }
        let one = is_full.then_some(Kind::Lanes { per_device: 1 });
        for kind in one.into_iter().chain([self.lanes]) {
            for threads in choose(all, few) {
                let setup = self.setup(1, kind, *threads)?;
                print(&line(Table::Peak, &setup, &run(&setup)?))?;
            }
        }
        for threads in choose(&[1, 8, 24, 64, 128, 224], &[64, 128, 224]) {
            for devices in choose(&[1, 2, 3, 4], &[1, 2, 4]) {
                let setup = self.setup(*devices, self.lanes, *threads)?;
                print(&line(Table::Scaling, &setup, &run(&setup)?))?;
            }
        }
        match (is_full, self.device) {
            (true, DeviceName::OptaneDimm) => self.print_nodes(print),
            _ => Ok(()),
        }
    }

    /// The lanes beside the other stores, on four devices.
    fn print_stores(
        &self,
        threads: usize,
        mix: Mix,
        reproduced: &[&'static str],
        print: &mut dyn FnMut(&Line) -> Result<()>,
    ) -> Result<()> {
        let table = if mix == Mix::Load { Table::Load } else { Table::Mixed };
        let setup = |kind| Ok::<_, Error>(Setup { mix, ..self.setup(4, kind, threads)? });
        let lanes = setup(self.lanes)?;
        let own = run(&lanes)?;
        print(&line(table, &lanes, &own))?;
        if self.options.is_full {
            let one = setup(Kind::Lanes { per_device: 1 })?;
            print(&line(table, &one, &run(&one)?))?;
        }
        for kind in OTHERS {
            let setup = setup(kind)?;
            let found = run(&setup)?;
            let is_claimed = kind == Kind::PrivateLog || reproduced.contains(&store_of(kind).0);
            let ratio = is_claimed.then(|| own.mops / found.mops);
            print(&Line { lanes_over_it: ratio, ..line(table, &setup, &found) })?;
        }
        Ok(())
    }

    /// Leaders on the devices' node, and on the other one.
    fn print_nodes(&self, print: &mut dyn FnMut(&Line) -> Result<()>) -> Result<()> {
        let near = Setup { hop_ns: HOP_NS, ..self.setup(4, self.lanes, 64)? };
        let far = Setup { hop_ns: 0.0, profile: named("optane-dimm-remote")?, ..near };
        // Puts alone: a profile has one latency of reads, whichever node the reader is on.
        for setup in [near, far] {
            print(&line(Table::Nodes, &setup, &run(&setup)?))?;
        }
        Ok(())
    }
}
