//! Every store on every case that it supports, at the tiny scale, with every value verified.

use super::*;
use workload::cases::{CASES, Progress, Scale};
use workload::run_wan_on;

fn setup<'a>(dir: &'a Path, case: &workload::cases::Case) -> Setup<'a> {
    let data_bytes = case.data_bytes(Scale::Tiny);
    let entry_bytes = data_bytes / case.keys(Scale::Tiny);
    Setup { dir, memory_bytes: 128 << 20, data_bytes, entry_bytes, compression: case.compression }
}

#[test]
fn every_store_answers_rightly_in_every_case() {
    for case in CASES {
        for kind in Kind::of_case(case.name) {
            let parent = match case.is_in_memory {
                true => std::path::PathBuf::from(crate::compare::MEMORY),
                false => std::env::temp_dir(),
            };
            let dir = parent.join(format!("peers-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            let setup = setup(&dir, case);
            let what = format!("{} in {}", kind.name(), case.name);
            if case.has_load() {
                let opened = kind.open(&setup).unwrap();
                assert!(!opened.options.is_empty(), "{what}");
                case.load(&*opened.store, Scale::Tiny, 3).unwrap();
            }
            if let Some(options) = case.wan_options(Scale::Tiny, 3) {
                let opened = kind.open(&setup).unwrap();
                let wan = run_wan_on(&*opened.store, &options).unwrap();
                assert_eq!((wan.figures.wrong, wan.evicted), (0, 0), "{what}: {wan:?}");
                assert!(wan.figures.found > 0 && wan.insert_us.mean > 0.0, "{what}: {wan:?}");
                drop(opened);
                std::fs::remove_dir_all(&dir).unwrap();
                continue;
            }
            let mut open = || kind.open(&setup).map(|opened| opened.store);
            let mut steps = 0;
            case.run(&mut open, Scale::Tiny, 3, &mut |progress| {
                let Progress::Ended(_, report, _) = progress else { return };
                steps += 1;
                assert_eq!(report.figures.wrong, 0, "{what}: {report}");
                assert!(report.figures.ops > 0, "{what}: {report}");
            })
            .unwrap();
            assert!(steps > 0, "{what}");
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
}

#[test]
fn names_lead_back_to_stores() {
    for kind in Kind::ALL {
        assert_eq!(Kind::named(kind.name()).unwrap(), kind);
    }
    assert!(Kind::named("no such store").is_err());
}
