//! Values that compress better with a dictionary.

use base::Rng;

/// A record as services store it: equal field names in each, different contents.
pub(crate) fn record(number: u64) -> String {
    let mut rng = Rng::new(number);
    format!(
        "{{\"identifier\":\"{:016x}\",\"account_holder\":\"{:08x}\",\"registered_at\":{},\
         \"last_modified_by\":\"{:x}\",\"subscription_status\":\"{}\"}}",
        rng.next_u64(),
        rng.next_u64() as u32,
        rng.below(1 << 40),
        rng.below(1 << 20),
        ["active", "suspended", "cancelled"][rng.below(3) as usize],
    )
}
