//! The workloads that write.

use base::{Result, Rng};

use super::{Name, Pace, Run};

pub(super) fn run(run: &Run<'_>, thread: usize, mut rng: Rng, pace: &mut Pace<'_>) -> Result<()> {
    let (first, end) = run.share(thread);
    let sync = run.options.sync || run.name == Name::FillSync;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for turn in first..end {
        let number = if run.name.is_fill_in_order() { turn } else { run.sampler.draw(&mut rng) };
        run.keys.write(number, &mut key);
        run.values.write(&key, run.epoch, run.options.value_bytes, &mut value);
        run.store.put(&key, &value, sync)?;
        run.ledger.wrote(number);
        pace.tally.written_bytes += (key.len() + value.len()) as u64;
        if !pace.lap() {
            break;
        }
    }
    Ok(())
}
