//! A calibration is found in its directory, and applies to no other device.

use crate::emulated::Profile;
use crate::scm::Region;

use super::*;

fn place(path: &Path) -> ScmLocation {
    path.to_str().unwrap().parse().unwrap()
}

fn measured() -> Calibration {
    Calibration { unit_bytes: 64, read_latency_ns: 7.0, ..Calibration::default() }
}

#[test]
fn a_calibration_is_found_in_the_tiers_directory_or_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let above = folder.path().canonicalize().unwrap();
    let tier = above.join("tier");
    // No file, and no directory yet.
    assert!(Calibration::find(&place(&tier)).is_none());
    assert!(Calibration::file_of(&place(&tier)).is_none());
    fs::create_dir(&tier).unwrap();
    assert!(Calibration::find(&place(&tier)).is_none());
    let files = [&above, &tier].map(|at| Calibration::file_of(&place(at)).unwrap());
    assert!(files.iter().all(|file| file.ends_with(NAME)));
    for (file, latency) in files.iter().zip([1.0, 2.0]) {
        fs::write(file, Calibration { read_latency_ns: latency, ..measured() }.to_text()).unwrap();
        let content = tier.join("content");
        fs::write(&content, "").unwrap();
        let emulated = format!("emulated:nvme@{}", tier.display()).parse().unwrap();
        for place in [place(&tier), place(&content), emulated] {
            let found = Calibration::find(&place).unwrap();
            assert_eq!(&found.file, file, "{place}");
            assert_eq!(found.calibration.unwrap().read_latency_ns, latency, "{place}");
        }
    }
}

#[test]
fn a_location_without_a_directory_has_no_calibration() {
    for text in ["numa:0", "emulated:nvme", "/dev/null", "/no/such/directory"] {
        let place = text.parse().unwrap();
        assert!(Calibration::find(&place).is_none(), "{text}");
        assert!(Calibration::file_of(&place).is_none(), "{text}");
        assert_eq!(device_of(&place), "", "{text}");
    }
}

#[test]
fn an_unreadable_calibration_names_its_file_and_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path());
    let file = Calibration::file_of(&place).unwrap();
    let said = || Calibration::find(&place).unwrap().calibration.unwrap_err().to_string();
    for content in [&b"version = 1\n"[..], b"", b"\xff\xfe", &[b'#'; 1 << 20]] {
        fs::write(&file, content).unwrap();
        let said = said();
        assert!(said.contains(NAME), "{said}");
    }
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(said().contains("expected a file"), "{}", said());
}

#[test]
fn a_calibration_applies_to_its_own_device_for_a_year() {
    let memory = Region::anonymous(4096).unwrap().facts().clone();
    let blocks = Facts { byte_addressable: false, ..memory.clone() };
    let emulated = Facts::of_profile(Profile::named("cxl-dram").unwrap());
    let day = 24 * 3600 * 1000;
    let own = Calibration {
        device: "1".to_owned(),
        measured_unix_ms: 400 * day,
        is_byte_addressable: true,
        ..measured()
    };
    let on = |device, facts: &Facts, days: u64| own.holds(device, facts, days * day);
    // A clock that was set back makes no calibration old.
    assert!([0, 400, 765].iter().all(|days| on("1", &memory, *days).is_ok()));
    let said = [on("1", &memory, 766), on("2", &memory, 400), on("", &memory, 400)];
    for (said, wanted) in said.into_iter().zip(["366 days old", "\"1\"", "\"1\""]) {
        let said = said.unwrap_err().to_string();
        assert!(said.contains(wanted), "{said}");
    }
    assert!(on("1", &blocks, 400).unwrap_err().to_string().contains("got memory"));
    assert!(on("1", &emulated, 400).unwrap_err().to_string().contains("got a real device"));
    let of_model = Calibration { emulated: "cxl-dram".to_owned(), device: String::new(), ..own };
    of_model.holds("", &emulated, 400 * day).unwrap();
    assert!(of_model.holds("", &memory, 400 * day).is_err());
    let other = Facts { emulated: Some("nvme"), ..emulated };
    assert!(of_model.holds("", &other, 400 * day).is_err());
}

#[test]
fn a_file_system_keeps_its_identity() {
    let folder = tempfile::tempdir().unwrap();
    let facts = Region::anonymous(4096).unwrap().facts().clone();
    let place = place(folder.path());
    let device = device_of(&place);
    let own = Calibration { device: device.clone(), is_byte_addressable: true, ..measured() };
    own.holds_for(&place, &facts, 0).unwrap();
    if !device.is_empty() {
        let other = Calibration { device: format!("{device}0"), ..own };
        assert!(other.holds_for(&place, &facts, 0).is_err());
    }
}
