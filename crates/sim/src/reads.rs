//! Steps that read: current data, snapshots, and cursors and iterators that stay open over several steps.

use std::time::UNIX_EPOCH;

use terracedb::{Cursor, Expiry};

use crate::cells::Model;
use crate::compare::{self, Entries, entries, show, some_entries, within};
use crate::step_error::{Outcome, ensure};
use crate::users::OpenRead;
use crate::world::World;

impl World {
    pub(crate) fn get(&mut self) -> Outcome {
        let Some((name, incarnation)) = self.some_keyspace() else { return Ok(()) };
        let keyspace = self.keyspace(name)?;
        let now = self.now();
        let key = self.key();
        let expected = self.history.current.get(incarnation, &key, now);
        match self.rng.below(5) {
            0 => {
                let there = keyspace.contains_key(&key)?;
                ensure!(there == expected.is_some(), "contains_key {} of `{name}`", show(&key));
            }
            1 => {
                let expiry = keyspace.expiry(&key)?;
                ensure!(expiry.is_some() == expected.is_some(), "expiry of {}", show(&key));
                let unix_ms = self.history.current.of(incarnation).expiry(&key, now);
                let right = match (unix_ms, expiry) {
                    (Some(0), Some(expiry)) => expiry == Expiry::Never,
                    (Some(unix_ms), Some(Expiry::At(at))) => at
                        .duration_since(UNIX_EPOCH)
                        .is_ok_and(|at| at.as_millis() == u128::from(unix_ms)),
                    // A value with operands may have any expiry.
                    (None, _) => true,
                    _ => false,
                };
                ensure!(right, "expiry of {}: {expiry:?}, expected {unix_ms:?}", show(&key));
            }
            2 => self.get_queued(name)?,
            _ => {
                let got = keyspace.get(&key)?;
                ensure!(
                    got.as_deref() == expected.as_deref(),
                    "get {} of `{name}`: {:?}, expected {:?}",
                    show(&key),
                    got.as_deref().map(show),
                    expected.as_deref().map(show)
                );
            }
        }
        self.answered(expected);
        Ok(())
    }

    /// Many gets, by `multi_get` or through a read queue.
    fn get_queued(&mut self, name: &str) -> Outcome {
        let keyspace = self.keyspace(name)?;
        let now = self.now();
        let model = self.history.current.at(self.history.live[name], now);
        let keys: Vec<_> = (0..self.rng.below(40)).map(|_| self.key()).collect();
        let results = if self.rng.one_in(2) {
            keyspace.multi_get(&keys)?
        } else {
            let mut queue = self.db().read_queue(1 + self.rng.clone().below(16) as usize)?;
            let mut done = Vec::new();
            for (token, key) in (0..).zip(&keys) {
                while queue.room() == 0 {
                    queue.wait(1, &mut done)?;
                }
                keyspace.submit(&mut queue, key, token)?;
            }
            while queue.in_flight() > 0 {
                queue.wait(1, &mut done)?;
            }
            queue.poll(&mut done)?;
            ensure!(done.len() == keys.len(), "{} of {} gets completed", done.len(), keys.len());
            done.sort_by_key(|completed| completed.token);
            done.into_iter().map(|completed| completed.result).collect()
        };
        let what = format!("queued gets of `{name}`");
        compare::values(&keys, results, &model, &what, |key| keyspace.get(key))?;
        let found: Vec<_> = keys.iter().map(|key| model.get(key).map(Vec::as_slice)).collect();
        self.answered(found);
        Ok(())
    }

    pub(crate) fn scan(&mut self) -> Outcome {
        let Some((name, incarnation)) = self.some_keyspace() else { return Ok(()) };
        let keyspace = self.keyspace(name)?;
        let now = self.now();
        let model = self.history.current.at(incarnation, now);
        if self.is_hashed(incarnation) {
            let found = compare::sorted(keyspace.entries()?)?;
            let expected: Entries = model.into_iter().collect();
            self.answered(&found);
            return compare::same(&found, &expected, &format!("entries of `{name}`"));
        }
        if self.rng.one_in(5) {
            let prefix = format!("key{:04}", self.rng.below(self.keys / 10 + 1)).into_bytes();
            let found = entries(keyspace.prefix(&prefix)?)?;
            let with = model.into_iter().filter(|(key, _)| key.starts_with(&prefix)).collect();
            self.answered(&found);
            return compare::same(&found, &with, &format!("prefix {} of `{name}`", show(&prefix)));
        }
        let span = self.span();
        let mut expected = within(&model, &span);
        let most = if self.rng.one_in(3) { usize::MAX } else { self.rng.below(10) as usize };
        let iter = keyspace.range(span.clone())?;
        let backwards = self.rng.one_in(2);
        let found = some_entries(iter, backwards, most, &mut expected)?;
        self.answered(&found);
        let way = if backwards { " backwards" } else { "" };
        let span = crate::writes::show_span(&span);
        compare::same(&found, &expected, &format!("range {span} of `{name}`{way}"))
    }

    pub(crate) fn read_all(&mut self) -> Outcome {
        let now = self.now();
        for (name, incarnation) in self.history.live.clone() {
            let model = self.history.current.at(incarnation, now);
            let keyspace = self.keyspace(name)?;
            compare::all(&keyspace, &model, &mut self.rng)?;
            self.answered(&model);
        }
        Ok(())
    }

    /// Opens a cursor or an iterator that stays open during later steps.
    pub(crate) fn hold(&mut self) -> Outcome {
        if self.open_reads.len() >= 4 {
            let gone = self.rng.below(4) as usize;
            self.open_reads.swap_remove(gone);
            return Ok(());
        }
        let Some((name, incarnation)) = self.some_ordered_keyspace() else { return Ok(()) };
        let keyspace = self.keyspace(name)?;
        let now = self.now();
        // Half of them read a snapshot.
        let past = self.pick(self.snapshots.len()).filter(|_| self.rng.one_in(2));
        let (model, snapshot) = match past {
            Some(number) => {
                let (snapshot, state) = &self.snapshots[number];
                (state.at(incarnation, now), Some(snapshot))
            }
            None => (self.history.current.at(incarnation, now), None),
        };
        if self.rng.one_in(2) {
            let cursor = Box::new(match snapshot {
                Some(snapshot) => snapshot.cursor(&keyspace)?,
                None => keyspace.cursor()?,
            });
            self.open_reads.push(OpenRead::Cursor { cursor, model, at: None });
        } else {
            let span = crate::cells::span(&mut self.rng, self.keys, self.keys);
            let iter = Box::new(match snapshot {
                Some(snapshot) => snapshot.range(&keyspace, span.clone())?,
                None => keyspace.range(span.clone())?,
            });
            self.open_reads.push(OpenRead::Iter { iter, remaining: within(&model, &span).into() });
        }
        Ok(())
    }

    /// Moves an open cursor or iterator.
    pub(crate) fn walk(&mut self) -> Outcome {
        let Some(number) = self.pick(self.open_reads.len()) else { return Ok(()) };
        let mut open = self.open_reads.swap_remove(number);
        for _ in 0..1 + self.rng.below(12) {
            match &mut open {
                OpenRead::Cursor { cursor, model, at } => self.walk_cursor(cursor, model, at)?,
                OpenRead::Iter { iter, remaining } => {
                    let front = self.rng.one_in(2);
                    let found = if front { iter.next() } else { iter.next_back() };
                    let found =
                        found.transpose()?.map(|(key, value)| (key.to_vec(), value.to_vec()));
                    let expected = if front { remaining.pop_front() } else { remaining.pop_back() };
                    let key = |entry: &Option<(Vec<u8>, Vec<u8>)>| {
                        entry.as_ref().map(|(key, value)| (show(key), show(value)))
                    };
                    ensure!(
                        found == expected,
                        "open iterator, front {front}: {:?}, expected {:?}",
                        key(&found),
                        key(&expected)
                    );
                }
            }
        }
        self.open_reads.push(open);
        Ok(())
    }

    fn walk_cursor(
        &mut self,
        cursor: &mut Cursor,
        model: &Model,
        at: &mut Option<Vec<u8>>,
    ) -> Outcome {
        let probe = self.key();
        let first_from = |key: &Vec<u8>, skip| model.range(key.clone()..).nth(skip);
        let last_before = |key: &Vec<u8>| model.range(..key.clone()).next_back();
        let (what, valid, expected) = match (self.rng.below(10), &*at) {
            (0, _) => ("seek_to_first", cursor.seek_to_first()?, model.iter().next()),
            (1, _) => ("seek_to_last", cursor.seek_to_last()?, model.iter().next_back()),
            (2, _) => ("seek", cursor.seek(&probe)?, first_from(&probe, 0)),
            (3, _) | (_, None) => ("seek_before", cursor.seek_before(&probe)?, last_before(&probe)),
            (4..7, Some(here)) => ("next", cursor.next()?, first_from(here, 1)),
            (_, Some(here)) => ("prev", cursor.prev()?, last_before(here)),
        };
        let found = cursor.key().zip(cursor.value());
        let expected = expected.map(|(key, value)| (key.as_slice(), value.as_slice()));
        ensure!(
            valid == expected.is_some() && found == expected,
            "{what} of an open cursor from {:?}, {}: {:?}, expected {:?}",
            at.as_deref().map(show),
            show(&probe),
            found.map(|(key, _)| show(key)),
            expected.map(|(key, _)| show(key))
        );
        *at = expected.map(|(key, _)| key.to_vec());
        Ok(())
    }

    pub(crate) fn take_snapshot(&mut self) -> Outcome {
        if self.snapshots.len() < 5 {
            self.snapshots.push((self.db().snapshot(), self.history.current.clone()));
        }
        Ok(())
    }

    pub(crate) fn drop_snapshot(&mut self) -> Outcome {
        if let Some(number) = self.pick(self.snapshots.len()) {
            self.snapshots.swap_remove(number);
        }
        Ok(())
    }

    /// A read of a snapshot sees the writes up to its seqno, with the expiry of the current time.
    pub(crate) fn read_snapshot(&mut self) -> Outcome {
        let Some(number) = self.pick(self.snapshots.len()) else { return Ok(()) };
        let now = self.now();
        for (name, incarnation) in self.history.live.clone() {
            let keyspace = self.keyspace(name)?;
            let span = self.span();
            let keys: Vec<_> = (0..self.rng.below(10)).map(|_| self.key()).collect();
            let (snapshot, state) = &self.snapshots[number];
            let model = state.at(incarnation, now);
            let what = format!("snapshot at {} of `{name}`", snapshot.seqno());
            let found = if keyspace.hashed_policy().is_some() {
                let found = compare::sorted(snapshot.entries(&keyspace)?)?;
                compare::same(&found, &model.clone().into_iter().collect(), &what)?;
                found
            } else {
                let mut expected = within(&model, &span);
                let found = entries(snapshot.range(&keyspace, span.clone())?)?;
                compare::same(&found, &expected, &what)?;
                expected.reverse();
                let found = entries(snapshot.range(&keyspace, span)?.rev())?;
                compare::same(&found, &expected, &format!("{what} backwards"))?;
                found
            };
            let get = |key: &[u8]| snapshot.get(&keyspace, key);
            compare::values(&keys, snapshot.multi_get(&keyspace, &keys)?, &model, &what, get)?;
            let ones = keys.iter().map(|key| get(key)).collect();
            compare::values(&keys, ones, &model, &what, get)?;
            self.answered(found);
        }
        Ok(())
    }
}
