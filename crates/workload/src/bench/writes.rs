//! The workloads that write.

use base::{Result, Rng};

use super::{Draws, Kind, Name, Pace, Run};

/// Writes or deletes the keys of `thread`, until its share or the run ends.
pub(super) fn run(run: &Run<'_>, thread: usize, rng: Rng, pace: &mut Pace<'_>) -> Result<()> {
    if run.options.batch > 1 && run.name != Name::DeleteRandom {
        return in_batches(run, thread, rng, pace);
    }
    one_by_one(run, thread, rng, pace)
}

fn one_by_one(run: &Run<'_>, thread: usize, mut rng: Rng, pace: &mut Pace<'_>) -> Result<()> {
    let sync = run.options.sync || run.name == Name::FillSync;
    let mut draws = Draws::new(&run.source);
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for operation in run.share(thread) {
        let number = if run.name.is_fill_in_order() { operation } else { draws.draw(&mut rng) };
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

/// As [`one_by_one`], with several entries per write. Each entry counts as one operation, with the latency of
/// its write.
fn in_batches(run: &Run<'_>, thread: usize, mut rng: Rng, pace: &mut Pace<'_>) -> Result<()> {
    let sync = run.options.sync || run.name == Name::FillSync;
    let mut draws = Draws::new(&run.source);
    let mut entries = vec![(0, Vec::new(), Vec::new()); run.options.batch];
    let mut operations = run.share(thread);
    loop {
        let mut count = 0;
        for (entry, operation) in entries.iter_mut().zip(&mut operations) {
            let (number, key, value) = entry;
            *number = if run.name.is_fill_in_order() { operation } else { draws.draw(&mut rng) };
            run.layout.write(*number, key);
            run.values.write(key, run.epoch, run.sizes.draw(&mut rng), value);
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        let batch: Vec<(&[u8], &[u8])> =
            entries.iter().take(count).map(|(_, key, value)| (&**key, &**value)).collect();
        run.store.put_batch(&batch, sync)?;
        for (number, key, value) in entries.iter().take(count) {
            run.ledger.wrote(*number);
            pace.tally.written_bytes += (key.len() + value.len()) as u64;
        }
        if !pace.lap_many(count as u64) {
            return Ok(());
        }
    }
}

/// Overwrites keys until the readers of the run are done.
pub(super) fn beside_readers(run: &Run<'_>, mut rng: Rng, pace: &mut Pace<'_>) -> Result<()> {
    let mut draws = Draws::new(&run.source);
    let (mut key, mut value) = (Vec::new(), Vec::new());
    loop {
        let number = draws.draw(&mut rng);
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
