//! [`Members`]: a hash, a set or a sorted set: members, each once, with a payload: the field's value,
//! nothing, or the score.
//!
//! Rows of a large one, behind database and number: 0, the hash of the member (4 bytes), the member ->
//! payload. The hash gives scans a cursor that is a number, and random members without a walk. A sorted set
//! also has: 1, the score's order (8 bytes), the member -> nothing.

use std::ops::ControlFlow;

use bytes::Bytes;
use siphasher::sip::SipHasher13;

use super::inline::{self, Member};
use super::score::{self, score_of};
use crate::part::part_row;
use crate::reply::Fail;
use crate::take::Take;
use crate::unit::Unit;
use crate::value::{Head, Kind, Value};

const BY_MEMBER: u8 = 0;
const BY_SCORE: u8 = 1;

/// Whether a walk goes on.
pub(crate) type Step = Result<ControlFlow<()>, Fail>;

/// Of a walk: the next.
#[expect(clippy::unnecessary_wraps, reason = "the last expression of a visitor")]
pub(crate) fn go_on() -> Step {
    Ok(ControlFlow::Continue(()))
}

#[derive(Debug)]
enum Form {
    Inline { members: Vec<Member>, bytes: usize },
    Large(Head),
}

/// A hash, a set or a sorted set, opened for one command.
#[derive(Debug)]
pub(crate) struct Members {
    key: Vec<u8>,
    kind: Kind,
    expiry: u64,
    is_wide: bool,
    form: Form,
    is_changed: bool,
}

impl Members {
    /// The collection at the stored key `key`; an empty one if there is none.
    ///
    /// # Errors
    /// If the value has another type; those of the store.
    pub(crate) fn open(unit: &mut Unit, key: &[u8], kind: Kind) -> Result<Self, Fail> {
        match unit.get_kind(key, kind)? {
            Some(value) => Self::of(key, &value),
            None => Ok(Self::empty(key, kind)),
        }
    }

    /// An empty collection, to replace whatever the stored key `key` holds.
    pub(crate) fn empty(key: &[u8], kind: Kind) -> Self {
        let form = Form::Inline { members: Vec::new(), bytes: 0 };
        Self { key: key.to_vec(), kind, expiry: 0, is_wide: false, form, is_changed: false }
    }

    /// The collection of `value`, which is none of a string or a list.
    ///
    /// # Errors
    /// If the value is damaged.
    pub(crate) fn of(key: &[u8], value: &Value) -> Result<Self, Fail> {
        let form = match value.head()? {
            Some(head) => Form::Large(head),
            None => Form::Inline {
                members: inline::decode(value.kind, &value.bytes)?,
                bytes: value.bytes.len(),
            },
        };
        let (kind, expiry, is_wide) = (value.kind, value.expiry, value.is_wide);
        Ok(Self { key: key.to_vec(), kind, expiry, is_wide, form, is_changed: false })
    }

    pub(crate) fn len(&self) -> usize {
        match &self.form {
            Form::Inline { members, .. } => members.len(),
            Form::Large(head) => usize::try_from(head.count).unwrap_or(usize::MAX),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All members may be held at once.
    pub(crate) fn is_small(&self) -> bool {
        self.len() <= FEW
    }

    fn row(&self, head: &Head, tag: u8, element: &[&[u8]]) -> Vec<u8> {
        part_row(
            self.key.first().copied().unwrap_or(0),
            head.id,
            &[&[tag], element.concat().as_slice()].concat(),
        )
    }

    fn member_row(&self, head: &Head, member: &[u8]) -> Vec<u8> {
        let hash = (SipHasher13::new_with_keys(head.start, 0).hash(member) >> 32) as u32;
        self.row(head, BY_MEMBER, &[&hash.to_be_bytes(), member])
    }

    /// The payload of `member`.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn get(&self, unit: &Unit, member: &[u8]) -> Result<Option<Bytes>, Fail> {
        match &self.form {
            Form::Inline { members, .. } => {
                let found = members.iter().find(|(known, _)| known == member);
                Ok(found.map(|(_, payload)| payload.clone()))
            }
            Form::Large(head) => unit.part(&self.member_row(head, member)),
        }
    }

    /// The score of `member`.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn score(&self, unit: &Unit, member: &[u8]) -> Result<Option<f64>, Fail> {
        self.get(unit, member)?.map(|payload| score_of(&payload)).transpose()
    }

    /// Adds `member`, or changes its payload. Returns whether it is new.
    ///
    /// # Errors
    /// Those of the store; that there is no memory.
    pub(crate) fn put(
        &mut self,
        unit: &mut Unit,
        member: &[u8],
        payload: &[u8],
    ) -> Result<bool, Fail> {
        self.is_changed = true;
        let payload = Bytes::copy_from_slice(payload);
        let kind = self.kind;
        let is_new = match &mut self.form {
            Form::Inline { members, bytes } => {
                match members.iter_mut().find(|(known, _)| known == member) {
                    Some((_, old)) => {
                        *bytes = (*bytes + payload.len()).saturating_sub(old.len());
                        *old = payload.clone();
                        false
                    }
                    None => {
                        *bytes += inline::size(kind, member, &payload);
                        members.push((Bytes::copy_from_slice(member), payload.clone()));
                        true
                    }
                }
            }
            Form::Large(_) => self.put_large(unit, member, &payload)?,
        };
        if !self.is_wide {
            self.is_wide = unit.keys.limits.is_wide(kind, self.len(), member, payload.len());
        }
        if let Form::Inline { members, bytes } = &self.form
            && (members.len() > inline::COUNT_MAX || *bytes > inline::BYTES_MAX)
        {
            self.enlarge(unit)?;
        }
        Ok(is_new)
    }

    fn put_large(&mut self, unit: &mut Unit, member: &[u8], payload: &Bytes) -> Result<bool, Fail> {
        let Form::Large(mut head) = self.form else { return Ok(false) };
        let row = self.member_row(&head, member);
        let old = unit.part(&row)?;
        if self.kind == Kind::SortedSet {
            let score = score_of(payload)?;
            if let Some(old) = &old {
                let old = score_of(old)?;
                if score::order(old) != score::order(score) {
                    let row = self.row(&head, BY_SCORE, &[&score::order(old), member]);
                    unit.set_part(row, None)?;
                }
            }
            let row = self.row(&head, BY_SCORE, &[&score::order(score), member]);
            unit.set_part(row, Some(Bytes::new()))?;
        }
        unit.set_part(row, Some(payload.clone()))?;
        head.count += u64::from(old.is_none());
        self.form = Form::Large(head);
        Ok(old.is_none())
    }

    /// Makes a small collection a large one.
    fn enlarge(&mut self, unit: &mut Unit) -> Result<(), Fail> {
        let Form::Inline { members, .. } = &mut self.form else { return Ok(()) };
        let members = std::mem::take(members);
        self.form = Form::Large(Head { id: unit.keys.new_id(), count: 0, start: unit.random() });
        for (member, payload) in members {
            self.put_large(unit, &member, &payload)?;
        }
        Ok(())
    }

    /// Removes `member`, and returns its payload.
    ///
    /// # Errors
    /// As [`Members::put`].
    pub(crate) fn remove(&mut self, unit: &mut Unit, member: &[u8]) -> Result<Option<Bytes>, Fail> {
        let kind = self.kind;
        let old = match &mut self.form {
            Form::Inline { members, bytes } => {
                let at = members.iter().position(|(known, _)| known == member);
                let Some(at) = at else { return Ok(None) };
                let (member, old) = members.remove(at);
                *bytes = bytes.saturating_sub(inline::size(kind, &member, &old));
                old
            }
            Form::Large(head) => {
                let mut head = *head;
                let row = self.member_row(&head, member);
                let Some(old) = unit.part(&row)? else { return Ok(None) };
                if kind == Kind::SortedSet {
                    let order = score::order(score_of(&old)?);
                    unit.set_part(self.row(&head, BY_SCORE, &[&order, member]), None)?;
                }
                unit.set_part(row, None)?;
                head.count = head.count.saturating_sub(1);
                self.form = Form::Large(head);
                old
            }
        };
        self.is_changed = true;
        Ok(Some(old))
    }

    /// Stages the collection, if it was changed; an empty one is a delete of its key.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn save(self, unit: &mut Unit) -> Result<(), Fail> {
        if !self.is_changed {
            return Ok(());
        }
        let value = (!self.is_empty()).then(|| {
            let (bytes, is_large) = match &self.form {
                Form::Inline { members, .. } => (inline::encode(self.kind, members), false),
                Form::Large(head) => (head.encode(), true),
            };
            let (kind, expiry, is_wide) = (self.kind, self.expiry, self.is_wide);
            Value { kind, expiry, is_large, is_wide, bytes }
        });
        unit.set(&self.key, value)
    }

    /// Stages the collection as the only value of its key, also if it is empty.
    ///
    /// # Errors
    /// As [`Members::save`].
    pub(crate) fn replace(mut self, unit: &mut Unit) -> Result<(), Fail> {
        self.is_changed = true;
        self.save(unit)
    }

    /// Calls `visit` with each member and its payload: in the order of insertion, of a large one in that of
    /// the hashes.
    ///
    /// # Errors
    /// Those of the store and of `visit`; that there are more or fewer rows than members.
    pub(crate) fn walk(
        &self,
        unit: &Unit,
        mut visit: impl FnMut(&[u8], &Bytes) -> Step,
    ) -> Result<(), Fail> {
        let (mut left, mut is_whole) = (self.len(), true);
        self.walk_hashes(unit, 0, |_, member, payload| {
            // A reply says the number of its members before them.
            left = left.checked_sub(1).ok_or_else(damaged)?;
            let step = visit(member, payload)?;
            is_whole = step.is_continue();
            Ok(step)
        })?;
        if is_whole && left > 0 { Err(damaged()) } else { Ok(()) }
    }

    /// As [`Members::walk`], of a large collection from `hash` on, with the hashes. A small one is walked
    /// whole, with the hash 0.
    fn walk_hashes(
        &self,
        unit: &Unit,
        hash: u32,
        mut visit: impl FnMut(u32, &[u8], &Bytes) -> Step,
    ) -> Result<(), Fail> {
        match &self.form {
            Form::Inline { members, .. } => {
                for (member, payload) in members {
                    if visit(0, member, payload)?.is_break() {
                        break;
                    }
                }
                Ok(())
            }
            Form::Large(head) => {
                let from = self.row(head, BY_MEMBER, &[&hash.to_be_bytes()]);
                let to = self.row(head, BY_MEMBER + 1, &[]);
                unit.walk(&from, &to, false, |row, payload| {
                    let (hash, member) = split(row)?;
                    visit(u32::from_be_bytes(hash), member, payload)
                })
            }
        }
    }

    /// Every member with its payload. Their memory is charged to `unit`.
    ///
    /// # Errors
    /// Those of the store; that there is no memory.
    pub(crate) fn all(&self, unit: &mut Unit) -> Result<Vec<Member>, Fail> {
        if let Form::Inline { members, .. } = &self.form {
            return Ok(members.clone());
        }
        let (mut all, mut charged) = (Vec::new(), Take::new(unit));
        self.walk(unit, |member, payload| {
            charged.add(member.len() + payload.len())?;
            all.push((Bytes::copy_from_slice(member), Bytes::copy_from_slice(payload)));
            go_on()
        })?;
        charged.keep(unit);
        Ok(all)
    }

    /// A page of a scan from `cursor` on: members, and the cursor to go on from; 0: the scan is complete.
    /// The cursor is a hash, so members of one hash are always on one page.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn page(
        &self,
        unit: &Unit,
        cursor: u64,
        most: usize,
    ) -> Result<(Vec<Member>, u64), Fail> {
        let (mut page, mut next, mut last) = (Vec::new(), 0, None);
        let Ok(hash) = u32::try_from(cursor) else { return Ok((page, 0)) };
        let is_small = matches!(self.form, Form::Inline { .. });
        self.walk_hashes(unit, hash, |hash, member, payload| {
            if !is_small && page.len() >= most && last != Some(hash) {
                next = u64::from(hash);
                return Ok(ControlFlow::Break(()));
            }
            last = Some(hash);
            page.push((Bytes::copy_from_slice(member), Bytes::copy_from_slice(payload)));
            go_on()
        })?;
        Ok((page, next))
    }

    /// A random member: every one is as likely in a collection of at most [`FEW`], and nearly so in a
    /// larger one.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn random(&self, unit: &mut Unit) -> Result<Option<Member>, Fail> {
        let draw = unit.random();
        if self.len() <= FEW {
            let place = usize::try_from(draw % self.len().max(1) as u64).unwrap_or(0);
            let (mut at, mut found) = (0, None);
            self.walk(unit, |member, payload| {
                if at == place {
                    let copy = Bytes::copy_from_slice;
                    found = Some((copy(member), copy(payload)));
                    return Ok(ControlFlow::Break(()));
                }
                at += 1;
                go_on()
            })?;
            return Ok(found);
        }
        // The first member from a random hash on; behind the last hash, the first of all.
        for from in [(draw >> 32) as u32, 0] {
            let mut found = None;
            self.walk_hashes(unit, from, |_, member, payload| {
                let copy = Bytes::copy_from_slice;
                found = Some((copy(member), copy(payload)));
                Ok(ControlFlow::Break(()))
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// `most` different random members; all, if there are fewer.
    ///
    /// # Errors
    /// As [`Members::all`].
    pub(crate) fn sample(&self, unit: &mut Unit, most: usize) -> Result<Vec<Member>, Fail> {
        if most >= self.len() {
            return self.all(unit);
        }
        let mut sample = Vec::new();
        if self.len() > FEW && most < self.len() / 10 {
            let mut seen = std::collections::HashSet::new();
            for _ in 0..most.saturating_mul(4) {
                if sample.len() == most {
                    return Ok(sample);
                }
                if let Some((member, payload)) = self.random(unit)?
                    && seen.insert(member.clone())
                {
                    unit.take(member.len() + payload.len() + 150)?;
                    sample.push((member, payload));
                }
            }
            sample.clear();
        }
        // Each member is taken with the probability that leaves the right number.
        let (mut left, mut wanted) = (self.len() as u64, most as u64);
        let mut state = unit.random();
        let mut charged = Take::new(unit);
        self.walk(unit, |member, payload| {
            state = crate::unit::mix(state);
            if state % left.max(1) < wanted {
                charged.add(member.len() + payload.len())?;
                let copy = Bytes::copy_from_slice;
                sample.push((copy(member), copy(payload)));
                wanted -= 1;
            }
            left = left.saturating_sub(1);
            Ok(if wanted == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        charged.keep(unit);
        Ok(sample)
    }

    /// Calls `visit` with the members of a sorted set and their scores, by score and member, from `from` up
    /// to, and without, `to`: each the order of a score, then a member.
    ///
    /// # Errors
    /// Those of the store and of `visit`.
    pub(crate) fn walk_scores(
        &self,
        unit: &Unit,
        from: &[u8],
        to: &[u8],
        is_reverse: bool,
        mut visit: impl FnMut(&[u8], f64) -> Step,
    ) -> Result<(), Fail> {
        match &self.form {
            Form::Inline { members, .. } => {
                let mut sorted = Vec::with_capacity(members.len());
                for (member, payload) in members {
                    let score = score_of(payload)?;
                    let place = [&score::order(score)[..], member].concat();
                    if place.as_slice() >= from && place.as_slice() < to {
                        sorted.push((place, score));
                    }
                }
                sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
                if is_reverse {
                    sorted.reverse();
                }
                for (place, score) in sorted {
                    let member = place.get(8..).unwrap_or_default();
                    if visit(member, score)?.is_break() {
                        break;
                    }
                }
                Ok(())
            }
            Form::Large(head) => {
                let (from, to) =
                    (self.row(head, BY_SCORE, &[from]), self.row(head, BY_SCORE, &[to]));
                unit.walk(&from, &to, is_reverse, |row, _| {
                    let (order, member) = split(row)?;
                    visit(member, score::of_order(order))
                })
            }
        }
    }
}

/// Collections of at most this many members are walked for a random one.
const FEW: usize = 1000;

/// A row's part behind the tag: a hash or an order, and the member.
fn split<const N: usize>(row: &[u8]) -> Result<([u8; N], &[u8]), Fail> {
    let rest = row.get(10..).unwrap_or_default();
    let (head, member) = rest.split_first_chunk::<N>().ok_or_else(damaged)?;
    Ok((*head, member))
}

fn damaged() -> Fail {
    Fail::new("ERR a stored element is damaged")
}
