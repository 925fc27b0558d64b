//! Reads arbitrary bytes with an arbitrary sequence of reads. Each read succeeds within the bytes, or fails
//! without moving the cursor. A varint that was read encodes to the bytes that it was read from.

#![no_main]

use base::{Cursor, put_varint, varint_len};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<u8>, &[u8])| {
    let (reads, bytes) = input;
    let mut cursor = Cursor::new("fuzz", bytes);
    for read in reads {
        let start = cursor.position();
        let max = usize::from(read / 8) * 16;
        let good = match read % 8 {
            0 => cursor.u8().is_ok(),
            1 => cursor.u16().is_ok(),
            2 => cursor.u32().is_ok(),
            3 => cursor.u64().is_ok(),
            4 => cursor.u128().is_ok(),
            5 => cursor.take(max).is_ok_and(|taken| taken.len() == max),
            6 => cursor.bytes(max).is_ok_and(|taken| taken.len() <= max),
            _ => match cursor.varint() {
                Ok(value) => {
                    let mut again = Vec::new();
                    put_varint(&mut again, value);
                    assert_eq!(again, bytes[start..cursor.position()]);
                    assert_eq!(again.len(), varint_len(value));
                    true
                }
                Err(_) => false,
            },
        };
        assert!(cursor.position() >= start && cursor.position() <= bytes.len());
        assert_eq!(cursor.rest().len(), bytes.len() - cursor.position());
        if !good {
            return;
        }
    }
    assert_eq!(cursor.is_empty(), cursor.clone().finish().is_ok());
});
