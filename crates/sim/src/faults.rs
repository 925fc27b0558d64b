//! Steps that cut power, kill the process, break or fill the device, and damage files.

use media::{Fault, Freeze, Medium, OpKind, Purpose, Rule};
use terracedb::ErrorKind;

use crate::compare::show;
use crate::history::ProcessEnd;
use crate::step_error::{Outcome, StepError, ensure};
use crate::world::World;

impl World {
    /// Cuts power or kills the process after some more device operations.
    pub(crate) fn cut_later(&mut self) -> Outcome {
        if self.cut.is_none() {
            let end = if self.rng.one_in(3) { ProcessEnd::Process } else { ProcessEnd::Power };
            let operations = if self.rng.one_in(2) { 8 } else { 120 };
            let when = if self.rng.one_in(3) {
                Freeze::AtSync(self.device.syncs() + self.rng.below(operations / 4))
            } else {
                Freeze::AtChange(self.device.changes() + self.rng.below(operations))
            };
            self.note(format!("  {end:?} at {when:?}"));
            self.device.freeze(when);
            self.cut = Some(end);
        }
        Ok(())
    }

    /// Makes some later operations of the device and of the tier fail.
    pub(crate) fn break_device(&mut self) -> Outcome {
        const PURPOSES: [Purpose; 6] = [
            Purpose::Log,
            Purpose::Manifest,
            Purpose::Flush,
            Purpose::Compaction,
            Purpose::Ingest,
            Purpose::Data,
        ];
        self.break_tier()?;
        let on = [OpKind::Read, OpKind::Write, OpKind::Sync, OpKind::Names];
        let on = on[self.rng.below(4) as usize];
        let fault = match on {
            OpKind::Write | OpKind::Names if self.rng.one_in(2) => Fault::NoSpace,
            OpKind::Read if self.rng.one_in(2) => Fault::Flip,
            _ => Fault::Io,
        };
        let mut rule = Rule::new(on, fault).after(self.rng.below(12)).times(1 + self.rng.below(3));
        if on != OpKind::Names && self.rng.one_in(2) {
            rule = rule.purpose(PURPOSES[self.rng.below(6) as usize]);
        }
        self.note(format!("  {rule:?}"));
        self.device.inject(rule)?;
        self.broken = true;
        if matches!(on, OpKind::Sync | OpKind::Names) {
            self.lossy_after = self.lossy_after.or(Some(self.device.struck()));
        }
        Ok(())
    }

    /// Makes later syncs of the log do nothing.
    pub(crate) fn lose_syncs(&mut self) -> Outcome {
        let rule = Rule::new(OpKind::Sync, Fault::Lost).purpose(Purpose::Log).times(u64::MAX);
        Ok(self.device.inject(rule)?)
    }

    /// Fills the device except for a few bytes.
    pub(crate) fn fill_device(&mut self) -> Outcome {
        let used: u64 = self.device.list()?.iter().map(|file| file.len).sum();
        let left = [0, 4096, 64 << 10, 1 << 20][self.rng.below(4) as usize];
        self.note(format!("  full but for {left}"));
        self.device.set_capacity(Some(used + left));
        self.broken = true;
        Ok(())
    }

    /// Heals the device. The store then continues by itself, unless its writers are poisoned.
    pub(crate) fn heal(&mut self) -> Outcome {
        self.device.heal();
        self.device.set_capacity(None);
        self.heal_tier();
        self.broken = false;
        Ok(())
    }

    /// Damages a byte of a table, and bytes of the tier. Reads then return the right value or report
    /// corruption. Afterwards the table's byte is restored.
    pub(crate) fn damage(&mut self) -> Outcome {
        self.damage_tier()?;
        if self.broken || self.cut.is_some() {
            return Ok(());
        }
        let mut tables = self.device.list()?;
        tables.retain(|file| file.name.ends_with(".table") && file.len > 0);
        let Some(number) = self.pick(tables.len()) else { return Ok(()) };
        let file = &tables[number];
        let (at, mask) = (self.rng.below(file.len), 1 << self.rng.below(8));
        self.device.flip(&file.name, at, mask)?;
        self.note(format!("  damaged {} at {at} of {}", file.name, file.len));
        let now = self.now();
        let mut corrupt = 0;
        for (name, incarnation) in self.history.live.clone() {
            let keyspace = self.keyspace(name)?;
            let model = self.history.current.at(incarnation, now);
            for number in 0..=self.keys {
                let key = crate::cells::key(number);
                match keyspace.get(&key) {
                    Ok(got) => {
                        let expected = model.get(&key).map(Vec::as_slice);
                        ensure!(got.as_deref() == expected, "get {} under damage", show(&key));
                    }
                    Err(error) if error.kind() == ErrorKind::Corrupt => corrupt += 1,
                    Err(error) => return Err(error.into()),
                }
            }
            // The entries before the damage must be right.
            let is_ordered = keyspace.hashed_policy().is_none();
            let mut in_order = model.keys();
            let walked = keyspace.entries().map(|mut entries| {
                entries.try_for_each(|entry| {
                    let (key, value) = entry?;
                    let is_next =
                        !is_ordered || in_order.next().is_some_and(|next| key == next.as_slice());
                    let right = is_next && model.get(&*key).is_some_and(|v| value == v.as_slice());
                    if right {
                        Ok(())
                    } else {
                        Err(StepError::Wrong(format!("{} under damage", show(&key))))
                    }
                })
            });
            match walked {
                Ok(Err(StepError::Refused(error))) | Err(error)
                    if error.kind() == ErrorKind::Corrupt => {}
                Ok(walked) => walked?,
                Err(error) => return Err(error.into()),
            }
        }
        self.note(format!("  {corrupt} gets report corruption"));
        let name = file.name.clone();
        let steps = self.rng.below(6);
        self.work(steps);
        if self.device.list()?.iter().any(|file| file.name == name) {
            self.device.flip(&name, at, mask)?;
        }
        Ok(())
    }
}
