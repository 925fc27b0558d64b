//! Reads arbitrary bytes as a write batch, as the log passes it to recovery.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let (mut ops, mut bytes) = (0, 0);
    for op in base::decode_ops(body).map_while(Result::ok) {
        ops += 1;
        bytes += op.key.len() + op.value.len();
    }
    for (at, moved) in base::decode_moved(body).map_while(Result::ok).map(|(at, it)| (at, it.op)) {
        let again = base::decode_ops(&body[at..]).next();
        // Lost entries are in moved operations only.
        let is_lost = moved.kind == base::LOST;
        assert!(is_lost || again.is_some_and(|op| op.is_ok_and(|op| op == moved)));
    }
    assert!(ops <= body.len() && bytes <= body.len());
});
