//! An emulated device is measured as its profile says, and a written calibration is read back unchanged.

use std::fs;
use std::path::Path;

use base::{ErrorKind, Rng};

use super::{CalibratedDevice, Calibration, calibrate};

fn calibrated(place: &str) -> Calibration {
    let mut device = CalibratedDevice::open(&place.parse().unwrap(), 1 << 30).unwrap();
    let mut last = (0, 0);
    let calibration = calibrate(&mut device, 128, |done, all| last = (done, all)).unwrap();
    assert_eq!(last.0, last.1);
    calibration
}

/// Within 5 %.
#[track_caller]
fn near(value: f64, wanted: f64) {
    assert!((value / wanted - 1.0).abs() < 0.05, "{value} is not {wanted}");
}

fn most(points: &[(f64, f64)]) -> f64 {
    super::values::most(&points.to_vec())
}

#[test]
fn calibration_recovers_the_constants_of_an_optane_module() {
    let found = calibrated("emulated:optane-dimm");
    assert_eq!((found.writers(), found.log_lanes()), (1, 2));
    near(found.read_latency_ns, 305.0);
    near(found.write_latency_ns, 90.4);
    assert_eq!((found.unit_bytes, found.readers(), found.writers()), (256, 3, 1));
    near(most(&found.read_threads), 6.5);
    near(most(&found.write_threads), 2.22);
    let at_24 = found.write_threads.iter().find(|(threads, _)| *threads == 24.0).unwrap();
    near(at_24.1, 0.8);
    // With three readers and as many writers: between the factors 1.27 of one thread and 0.49 of four.
    assert!((0.5..0.8).contains(&found.mixed_part()), "{}", found.mixed_part());
    assert_eq!((found.emulated.as_str(), found.is_byte_addressable), ("optane-dimm", true));
}

#[test]
fn calibration_recovers_the_constants_of_the_other_devices() {
    let cxl = calibrated("emulated:cxl-dram");
    near(cxl.read_latency_ns, 250.0);
    assert_eq!(cxl.log_lanes(), 8);
    near(most(&cxl.read_threads), 25.0);
    assert_eq!((cxl.unit_bytes, cxl.mixed_part() > 0.95), (64, true));
    let ssd = calibrated("emulated:optane-ssd");
    near(ssd.read_latency_ns, 10_000.0);
    near(most(&ssd.read_threads), 2.2);
    near(most(&ssd.write_threads), 2.1);
    // One thread has one page in flight.
    near(ssd.read_threads[0].1, 0.4096);
    assert_eq!((ssd.unit_bytes, ssd.is_byte_addressable), (4096, false));
    let nvme = calibrated("emulated:nvme");
    near(nvme.read_latency_ns, 80_000.0);
    near(nvme.write_latency_ns, 15_000.0);
    near(most(&nvme.read_threads), 4.1);
}

#[test]
fn a_real_device_is_measured_with_threads_and_a_clock() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let place = file.path().to_str().unwrap().parse().unwrap();
    let mut device = CalibratedDevice::open(&place, 1 << 20).unwrap();
    let found = calibrate(&mut device, 1, |_, _| {}).unwrap();
    assert!(found.read_latency_ns > 0.0 && found.write_latency_ns > 0.0);
    assert_eq!((found.read_threads.len(), found.write_threads.len()), (1, 1));
    assert!(found.read_sizes.iter().chain(&found.mixed).all(|(_, gb)| *gb > 0.0));
    assert_eq!(found.emulated, "");
}

/// A file on a disk, which is opened as blocks, and one in memory if the system has tmpfs.
fn files() -> Vec<tempfile::NamedTempFile> {
    let folders = [Path::new(env!("CARGO_MANIFEST_DIR")), Path::new("/dev/shm")];
    folders.iter().filter_map(|folder| tempfile::NamedTempFile::new_in(folder).ok()).collect()
}

/// Pages that were never written would be read without the device.
#[test]
fn the_whole_device_is_written_before_it_is_measured() {
    for file in files() {
        let size = (1 << 20) + (12 << 10);
        let device =
            CalibratedDevice::open(&file.path().to_str().unwrap().parse().unwrap(), size).unwrap();
        let content = fs::read(file.path()).unwrap();
        assert_eq!(content.len() as u64, size);
        assert!(content.chunks(4096).all(|page| page.iter().any(|byte| *byte != 0)));
        drop(device);
    }
}

#[test]
fn no_access_is_longer_than_the_device() {
    for (file, size) in files().into_iter().zip([64 << 10, 4096]) {
        let place = file.path().to_str().unwrap().parse().unwrap();
        let found =
            calibrate(&mut CalibratedDevice::open(&place, size).unwrap(), 1, |_, _| {}).unwrap();
        assert!(found.read_sizes.last().unwrap().0 <= size as f64, "{found:?}");
        assert_eq!(fs::metadata(file.path()).unwrap().len(), size);
    }
}

fn example() -> Calibration {
    Calibration {
        place: "emulated:optane-dimm@/dev/shm/\"a\\b\"\n".to_owned(),
        device: "00c0ffee12345678".to_owned(),
        measured_unix_ms: 1_700_000_000_123,
        emulated: "optane-dimm".to_owned(),
        is_byte_addressable: true,
        unit_bytes: 256,
        read_latency_ns: 305.0,
        write_latency_ns: 90.4,
        read_threads: vec![(1.0, 2.92), (3.0, 6.45)],
        write_threads: vec![(1.0, 2.22), (8.0, 1.53)],
        read_sizes: vec![(64.0, 1.625), (4096.0, 6.5)],
        write_sizes: Vec::new(),
        mixed: vec![(0.0, 6.5), (0.5, 1.6125), (1.0, 2.2)],
    }
}

#[test]
fn page_costs_follow_from_the_curves() {
    let dimm = calibrated("emulated:optane-dimm");
    // 64 bytes after 305 ns, the rest at one thread's 2.9 GB/s.
    assert!((1500.0..1900.0).contains(&dimm.page_read_ns()), "{}", dimm.page_read_ns());
    near(dimm.page_write_ns(1).unwrap(), 4096.0 / 2.22);
    let ssd = calibrated("emulated:optane-ssd");
    near(ssd.page_read_ns(), 10_000.0);
    near(ssd.page_write_ns(ssd.writers()).unwrap(), 4096.0 / 2.1);
    // Between two measured numbers of threads the smaller one applies.
    assert_eq!(example().page_write_ns(7), Some(4096.0 / 2.22));
    let blank = Calibration { read_latency_ns: 7.0, ..Calibration::default() };
    assert_eq!((blank.page_read_ns(), blank.page_write_ns(4)), (7.0, None));
}

/// `docs/format/calibration.md` names the file.
#[test]
fn golden_text() {
    let hex = include_str!("../../golden/calibration.hex");
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let golden: Vec<u8> = digits.chunks(2).map(byte).collect();
    let text = example().to_text();
    assert_eq!(text.as_bytes(), golden, "{text}");
    assert_eq!(Calibration::parse(&text).unwrap(), example());
}

#[test]
fn text_that_is_no_calibration_is_refused_with_its_line() {
    let text = example().to_text();
    let replaced = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        Calibration::parse(&text.replacen(from, to, 1))
    };
    for (from, to) in [
        ("version = 2", "version = 1"),
        ("version = 2", "version = 3"),
        ("version = 2", "version"),
        ("measured-unix-ms = 17", "measured-unix-ms = -17"),
        ("unit-bytes = 256", "unit-bytes = 0"),
        ("unit-bytes = 256", "unit-bytes = 256\nunit-bytes = 256"),
        ("read-latency-ns = 305", "read-latency-ns = -1"),
        ("read-latency-ns = 305", "read-latency-ns = NaN"),
        ("read-latency-ns = 305", "speed = 305"),
        ("= \"optane-dimm\"", "= optane-dimm"),
        ("= \"optane-dimm\"", "= \"opt\"ane\""),
        ("= \"optane-dimm\"", "= \"\\q\""),
        ("[[1, 2.92], [3, 6.45]]", "[[3, 2.92], [1, 6.45]]"),
        ("[[1, 2.92], [3, 6.45]]", "[[1, 2.92] [3, 6.45]]"),
        ("[[1, 2.92], [3, 6.45]]", "[[1], [3, 6.45]]"),
        ("[[1, 2.92], [3, 6.45]]", "[1, 2.92"),
    ] {
        let error = replaced(from, to).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{to}");
        assert!(error.to_string().contains("line "), "{error}");
    }
    let missing = text.replace("mixed = ", "# ");
    let error = Calibration::parse(&missing).unwrap_err();
    assert!(error.to_string().contains("mixed"), "{error}");
    assert!(Calibration::parse(&"#\n".repeat(1 << 20)).is_err());
    replaced("[[1, 2.92], [3, 6.45]]", "[ [1,2.92] ,[3 , 6.45],]").unwrap();
}

/// Damaged text is an error or a calibration that is written and read back unchanged.
#[test]
fn damaged_text_is_refused_or_round_trips() {
    let (mut rng, seed) = Rng::from_env();
    let text = example().to_text().into_bytes();
    for _ in 0..2000 {
        let mut damaged = text.clone();
        for _ in 0..=rng.below(3) {
            let at = usize::try_from(rng.below(damaged.len() as u64)).unwrap();
            damaged[at] = b"\"[],=-.\\\n09ae\xff"[usize::try_from(rng.below(14)).unwrap()];
        }
        let damaged = String::from_utf8_lossy(&damaged);
        if let Ok(read) = Calibration::parse(&damaged) {
            let again = Calibration::parse(&read.to_text()).unwrap();
            assert_eq!(again.to_text(), read.to_text(), "seed {seed}");
        }
    }
}
