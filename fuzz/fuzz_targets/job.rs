//! Reads arbitrary bytes as a compaction job and as an outcome, of each version, with matching checksums.

#![no_main]

use base::hash64;
use compact::{Job, Outcome};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for (magic, version) in [(b"TERRAJOB", 1), (b"TERRAJOB", 2), (b"TERRDONE", 1), (b"TERRDONE", 2)]
    {
        let mut message = magic.to_vec();
        message.extend_from_slice(&u32::to_le_bytes(version));
        message.extend_from_slice(bytes);
        let checksum = hash64(0, &message);
        message.extend_from_slice(&checksum.to_le_bytes());
        // A decoded message encodes to a message that decodes to the same.
        if let Ok(job) = Job::decode(&message) {
            assert_eq!(Job::decode(&job.encode()).expect("a job it wrote itself"), job);
        }
        if let Ok(outcome) = Outcome::decode(&message) {
            let again = Outcome::decode(&outcome.encode()).expect("an outcome it wrote itself");
            assert_eq!(again, outcome);
        }
    }
});
