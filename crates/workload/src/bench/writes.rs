//! The workloads that write.

use base::{Result, Rng};

use super::{Kind, Name, Pace, Run};

/// Writes or deletes the keys of `thread`, or for as long as the run lasts.
pub(super) fn run(run: &Run<'_>, thread: usize, mut rng: Rng, pace: &mut Pace<'_>) -> Result<()> {
    let (first, end) = run.share(thread);
    let end = if run.deadline().is_none() { end } else { u64::MAX };
    let sync = run.options.sync || run.name == Name::FillSync;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for turn in first..end {
        let number = if run.name.is_fill_in_order() { turn } else { run.sampler.draw(&mut rng) };
        run.layout.write(number, &mut key);
        if run.name == Name::DeleteRandom {
            value.clear();
            run.store.delete(&key, sync)?;
        } else {
            run.values.write(&key, run.epoch, run.sizes.draw(&mut rng), &mut value);
            run.store.put(&key, &value, sync)?;
        }
        run.ledger.wrote(number);
        pace.tally.written_bytes += (key.len() + value.len()) as u64;
        if !pace.lap() {
            break;
        }
    }
    Ok(())
}

/// Overwrites keys until the readers beside it are done.
pub(super) fn beside_readers(run: &Run<'_>, mut rng: Rng, pace: &mut Pace<'_>) -> Result<()> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    loop {
        let number = run.sampler.draw(&mut rng);
        run.layout.write(number, &mut key);
        run.values.write(&key, run.epoch, run.sizes.draw(&mut rng), &mut value);
        run.ledger.writing(number);
        run.store.put(&key, &value, run.options.sync)?;
        run.ledger.wrote(number);
        pace.tally.written_bytes += (key.len() + value.len()) as u64;
        if !pace.lap_as(Kind::Update) {
            return Ok(());
        }
    }
}
