//! Notes commands that took long, for SLOWLOG, without their secrets.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::keys::now_ms;
use crate::resp::Request;
use crate::session::Session;
use crate::shared::Slow;

impl Session {
    /// Notes `args` if they took long.
    pub(crate) fn note_slow(&self, mut args: Request, took: Duration) {
        let threshold_us = self.shared.slow_threshold_us.load(Ordering::Relaxed);
        if u64::try_from(threshold_us).is_ok_and(|least| took.as_micros() < u128::from(least))
            || threshold_us < 0
        {
            return;
        }
        redact(&mut args);
        let more = |count: usize| format!("... ({count} more arguments)").into_bytes();
        if args.len() > SLOW_ARGS_MAX {
            let left_out = args.len() - SLOW_ARGS_MAX + 1;
            args.truncate(SLOW_ARGS_MAX - 1);
            args.push(more(left_out));
        }
        for arg in &mut args {
            if arg.len() > SLOW_ARG_BYTES_MAX {
                let left_out = arg.len() - SLOW_ARG_BYTES_MAX;
                arg.truncate(SLOW_ARG_BYTES_MAX);
                arg.extend(format!("... ({left_out} more bytes)").bytes());
            }
        }
        let address = self.client.address.clone();
        let name = self.client.info.lock().name.clone();
        let slow = Slow { id: 0, unix_s: now_ms() / 1000, took, args, address, name };
        self.shared.slow.lock().add(slow);
    }
}

/// A slow command is kept with this many arguments, of this many bytes each.
const SLOW_ARGS_MAX: usize = 32;
const SLOW_ARG_BYTES_MAX: usize = 128;

/// Replaces the passwords of a request.
fn redact(args: &mut [Vec<u8>]) {
    let name = args.first().map_or_else(String::new, |name| crate::args::option(name));
    let from = match name.as_str() {
        "AUTH" => 1,
        // The rules name passwords and keys.
        "ACL" if args.get(1).is_some_and(|sub| crate::args::option(sub) == "SETUSER") => 2,
        "HELLO" => args
            .iter()
            .position(|arg| arg.eq_ignore_ascii_case(b"auth"))
            .map_or(args.len(), |at| at + 1),
        _ => args.len(),
    };
    let most = if name == "HELLO" { 2 } else { args.len() };
    args.iter_mut().skip(from).take(most).for_each(|arg| *arg = b"(redacted)".to_vec());
}
