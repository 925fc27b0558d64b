//! The experiment's claims that hold on every machine, because its time is virtual.

use media::emulated::Profile;

use super::*;

fn profile(name: &str) -> &'static Profile {
    Profile::named(name).unwrap()
}

fn mops(setup: Setup) -> f64 {
    run(&Setup { ops: 6000, ..setup }).unwrap().mops
}

const LANES: Kind = Kind::Lanes { per_device: 2 };

const ALL: [Kind; 6] =
    [LANES, Kind::Viper, Kind::FlatApart, Kind::FlatInline, Kind::Chameleon, Kind::PrivateLog];

#[test]
fn every_store_answers_every_get_with_the_newest_whole_record() {
    for name in ["optane-dimm", "cxl-dram"] {
        for kind in ALL {
            for (threads, mix) in [(1, Mix::A), (17, Mix::A), (17, Mix::D), (17, Mix::F)] {
                let setup =
                    Setup { mix, ops: 3000, ..Setup::load(profile(name), 3, kind, threads) };
                let found = run(&setup).unwrap();
                // Of the measured operations and of a tenth as many before them.
                let gets = if mix == Mix::A { 1500 } else { 3000 };
                assert!(found.verified > gets, "{name} {kind:?} {mix} {threads}: {found:?}");
                assert!(found.p50_ns <= found.p99_ns && found.mops > 0.0);
            }
        }
    }
}

#[test]
fn only_puts_write_and_a_read_modify_write_is_one_operation() {
    let found = |mix| {
        let setup = Setup { mix, ops: 3000, ..Setup::load(profile("cxl-dram"), 1, LANES, 4) };
        run(&setup).unwrap()
    };
    let (reads, half, both) = (found(Mix::C), found(Mix::A), found(Mix::F));
    // But for puts of the load that were in flight.
    assert!(reads.user_gb == 0.0 && reads.verified > 3290, "{reads:?}");
    assert!(both.user_gb > 0.0 && both.verified > 3290, "{both:?}");
    assert!(both.p99_ns > half.p99_ns.max(reads.p99_ns), "{both:?} {half:?} {reads:?}");
}

#[test]
fn a_run_is_the_same_every_time() {
    for kind in ALL {
        let setup = Setup { ops: 3000, ..Setup::load(profile("optane-dimm"), 2, kind, 9) };
        let (one, two) = (run(&setup).unwrap(), run(&setup).unwrap());
        assert_eq!((one.mops, one.p99_ns, one.media_gb), (two.mops, two.p99_ns, two.media_gb));
    }
}

#[test]
fn lanes_keep_the_bandwidth_that_direct_writers_lose_on_optane_modules() {
    let load = |kind| mops(Setup::load(profile("optane-dimm"), 4, kind, 96));
    let lanes = load(LANES);
    for kind in [Kind::Viper, Kind::FlatApart, Kind::Chameleon, Kind::PrivateLog] {
        let other = load(kind);
        assert!(lanes > 2.0 * other, "{kind:?}: {lanes} and {other}");
    }
    let one = mops(Setup::load(profile("optane-dimm"), 1, LANES, 96));
    assert!(lanes > 3.3 * one, "{lanes} with four modules, {one} with one");
}

#[test]
fn a_node_s_own_leader_beats_one_on_the_other_node() {
    let near = Setup { hop_ns: 130.0, ..Setup::load(profile("optane-dimm"), 2, LANES, 48) };
    let far = Setup { hop_ns: 0.0, profile: profile("optane-dimm-remote"), ..near };
    assert!(mops(near) > 1.5 * mops(far));
}

#[test]
fn a_damaged_or_foreign_record_is_no_answer() {
    let shape = records::Shape { key_bytes: 8, value_bytes: 256 };
    let put = records::Put { key: 5, version: 9 };
    let (image, lens) = shape.group(&[put, records::Put { key: 6, version: 10 }], 77).unwrap();
    let (first, second) = image.split_at(lens[0]);
    assert_eq!(shape.verify(first, 5).unwrap(), (77, 9));
    assert_eq!(shape.verify(second, 6).unwrap(), (78, 10));
    assert!(shape.verify(first, 6).is_err());
    let mut damaged = first.to_vec();
    damaged[40] ^= 1;
    assert!(shape.verify(&damaged, 5).is_err());
}

#[test]
fn a_setup_without_threads_is_refused() {
    assert!(run(&Setup::load(profile("cxl-dram"), 1, LANES, 0)).is_err());
}

#[test]
fn a_full_report_has_every_point() {
    let devices = DeviceName::ALL.to_vec();
    let options = ReportOptions { ops: 40, devices, mixes: Mix::MIXED.to_vec(), is_full: true };
    let mut lines = Vec::new();
    let summary = report(&options, &mut |line| {
        lines.push(line.clone());
        Ok(())
    });
    let summary = summary.unwrap();
    assert!(summary.scaling_1_to_4_devices > 0.0 && summary.emulation == "optane-dimm");
    let count = |table: Table, profile: &str| {
        lines.iter().filter(|line| (line.table, line.profile) == (table, profile)).count()
    };
    for device in DeviceName::ALL.map(DeviceName::name) {
        // Seven stores, counting lanes of both numbers: 10 numbers of threads, and 6 with each of 5 mixes.
        let tables = [Table::Load, Table::Mixed, Table::Peak, Table::Scaling];
        assert_eq!(tables.map(|table| count(table, device)), [70, 210, 20, 24], "{device}");
    }
    assert_eq!(count(Table::Nodes, "optane-dimm-remote"), 1);
}
