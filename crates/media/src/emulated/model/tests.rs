//! The main constants of each profile, in virtual time, with their sources. The tables behind them are in
//! `tests/optane_study.rs`.

use super::AccessKind;
use crate::emulated::{Load, PROFILES, Profile, measure};

fn load() -> Load {
    Load {
        threads: 1,
        write: AccessKind::Store,
        write_share: 0.0,
        len: 256,
        is_sequential: true,
        is_fenced: false,
        is_dependent: false,
        accesses: 2000,
        span: 1 << 30,
    }
}

fn gb(profile: &str, load: Load) -> f64 {
    measure(Profile::named(profile).unwrap(), &load).gb_per_second
}

fn ns(profile: &str, load: Load) -> f64 {
    let load = Load { is_dependent: true, ..load };
    measure(Profile::named(profile).unwrap(), &load).quantile_ns(0.5)
}

#[track_caller]
fn near(value: f64, wanted: f64) {
    assert!((value / wanted - 1.0).abs() < 0.1, "{value} is not {wanted}");
}

/// Yang et al., An Empirical Guide to the Behavior and Use of Scalable Persistent Memory, FAST 2020,
/// figures 2, 4 and 5.
#[test]
fn an_optane_module_has_the_latencies_and_bandwidths_of_the_study() {
    let (dimm, load) = ("optane-dimm", load());
    let writes = Load { write_share: 1.0, ..load };
    near(ns(dimm, Load { len: 64, is_sequential: false, ..load }), 305.0);
    near(ns(dimm, Load { len: 64, ..load }), 169.0);
    near(ns(dimm, Load { len: 64, ..writes }), 90.0);
    // One writer gets the full bandwidth; 24 writers together get a third of it.
    near(gb(dimm, writes), 2.2);
    near(gb(dimm, Load { threads: 4, ..writes }), 2.2);
    near(gb(dimm, Load { threads: 8, ..writes }), 1.53);
    near(gb(dimm, Load { threads: 24, ..writes }), 0.8);
    near(gb(dimm, Load { threads: 1, ..load }), 2.92);
    near(gb(dimm, Load { threads: 4, ..load }), 6.5);
    near(gb(dimm, Load { threads: 24, ..load }), 3.9);
    // A quarter of a unit costs a whole unit, unless the rest of the unit follows.
    near(gb(dimm, Load { len: 64, is_sequential: false, ..writes }), 0.55);
    near(gb(dimm, Load { len: 64, ..writes }), 2.2);
    near(gb(dimm, Load { threads: 4, len: 64, is_sequential: false, ..load }), 1.65);
    // A fence for every cache line costs six sevenths of the bandwidth.
    near(gb(dimm, Load { len: 64, is_fenced: true, ..writes }), 0.33);
    near(gb(dimm, Load { len: 512, is_fenced: true, ..writes }), 2.2);
}

/// The sources are in the module header of each profile.
#[test]
fn the_other_profiles_have_the_figures_of_their_sources() {
    let pages = Load { len: 4096, is_sequential: false, ..load() };
    let writes = Load { write_share: 1.0, ..pages };
    near(ns("optane-ssd", pages), 10_000.0);
    near(ns("optane-ssd", writes), 10_000.0);
    near(gb("optane-ssd", pages), 2.2);
    near(gb("optane-ssd", Load { threads: 32, ..writes }), 2.1);
    near(ns("nvme", pages), 80_000.0);
    near(ns("nvme", writes), 15_000.0);
    // A million reads a second.
    near(gb("nvme", Load { threads: 32, ..pages }), 4.1);
    let lines = Load { len: 64, ..pages };
    near(ns("cxl-dram", lines), 250.0);
    near(gb("cxl-dram", Load { threads: 32, ..pages }), 25.0);
    near(gb("cxl-dram", pages), 3.0);
}

/// A fence waits for all bytes of its write, also where no cost of fences was measured.
#[test]
fn a_fenced_write_takes_its_own_transfer() {
    let writes = Load { write_share: 1.0, is_fenced: true, ..load() };
    near(ns("cxl-dram", Load { len: 64, ..writes }), 120.0);
    // One write alone: those that follow wait for the device, and hide what the first one left out.
    let alone = Load { len: 3584, accesses: 1, ..writes };
    near(ns("cxl-dram", alone), 120.0 + (3584.0 - 64.0) / 3.0);
    near(gb("cxl-dram", Load { len: 3584, ..writes }), 3.0);
    near(gb("cxl-dram", Load { len: 3584, threads: 16, ..writes }), 25.0);
}

/// `17-numa`: the remote column over the local one, with one thread and four.
#[test]
fn a_module_of_another_node_loses_the_bandwidth_that_the_study_measured() {
    let ratio = |load: Load| gb("optane-dimm-remote", load) / gb("optane-dimm", load);
    let four = Load { threads: 4, ..load() };
    near(ratio(load()), 0.919);
    near(ratio(four), 0.910);
    near(ratio(Load { write_share: 1.0, ..load() }), 0.409);
    near(ratio(Load { write_share: 1.0, ..four }), 0.437);
    let mixed = |device| {
        let own = |share| gb(device, Load { write_share: share, accesses: 20_000, ..four });
        own(0.5) * (0.5 / own(0.0) + 0.5 / own(1.0))
    };
    near(mixed("optane-dimm-remote") / mixed("optane-dimm"), 0.239 / 0.491);
}

/// Reads and writes together get less bandwidth than either alone.
#[test]
fn reads_and_writes_slow_each_other_down_on_an_optane_module() {
    let dimm = "optane-dimm";
    let load = Load { threads: 4, ..load() };
    let half = gb(dimm, Load { write_share: 0.5, ..load });
    let harmonic = 2.0 / (1.0 / gb(dimm, load) + 1.0 / gb(dimm, Load { write_share: 1.0, ..load }));
    near(half, 0.49 * harmonic);
    let ssd = Load { len: 4096, write_share: 0.5, threads: 8, ..load };
    assert!(gb("optane-ssd", ssd) > 4.0, "each direction has its own");
}

#[test]
fn time_never_decreases_and_every_access_ends() {
    for profile in PROFILES {
        let mut model = super::Model::new(profile);
        let mut now = 0.0;
        for (at, len) in [(0, 0), (1, 1), (u64::MAX, u64::MAX), (4095, 2), (u64::MAX - 1, 1 << 20)]
        {
            for kind in [AccessKind::Read, AccessKind::Store, AccessKind::Flushed] {
                for is_fenced in [false, true] {
                    let access = super::Access { kind, at, len, is_fenced };
                    let outcome = model.access(now, 3, access);
                    assert!(outcome.done >= now && outcome.next >= now, "{access:?} {outcome:?}");
                    assert!(outcome.done.is_finite(), "{access:?}");
                    now = outcome.next;
                }
            }
        }
    }
}
