//! Reads arbitrary bytes as a job and as an outcome whose checksums match.

#![no_main]

use base::hash64;
use compact::{Job, Outcome};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for magic in [b"TERRAJOB", b"TERRDONE"] {
        let mut message = magic.to_vec();
        message.extend_from_slice(&1u32.to_le_bytes());
        message.extend_from_slice(bytes);
        let checksum = hash64(0, &message);
        message.extend_from_slice(&checksum.to_le_bytes());
        // What was understood is written as it is understood again.
        if let Ok(job) = Job::decode(&message) {
            assert_eq!(Job::decode(&job.encode()).expect("a job it wrote itself"), job);
        }
        if let Ok(outcome) = Outcome::decode(&message) {
            let again = Outcome::decode(&outcome.encode()).expect("an outcome it wrote itself");
            assert_eq!(again, outcome);
        }
    }
});
