//! Reads arbitrary text as a calibration: the result is an error, or a calibration that can be written and
//! read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use media::Calibration;

fuzz_target!(|text: &str| {
    if let Ok(calibration) = Calibration::parse(text) {
        let written = calibration.to_text();
        let again = Calibration::parse(&written).expect("what was written is read");
        assert_eq!(again.to_text(), written);
        assert!(calibration.readers() > 0 && calibration.writers() > 0);
        let _ = calibration.mixed_part();
    }
});
