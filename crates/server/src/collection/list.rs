//! [`List`]: a list. A large one has a row an element, behind database and number: the place of the element
//! (8 bytes, big-endian, the sign bit turned). Places are consecutive, so an index is one read, and a push
//! or a pop at either end one row. An insert or a removal within a long list moves the elements of its
//! shorter side.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};

use bytes::Bytes;

use super::inline;
use crate::part::part_row;
use crate::reply::Fail;
use crate::take::Take;
use crate::unit::Unit;
use crate::value::{Head, Kind, Value};

#[derive(Debug)]
enum Form {
    Inline { elements: VecDeque<Bytes>, bytes: usize },
    Large { id: u64, first: i64, count: usize },
}

/// One end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// A list, opened for one command.
#[derive(Debug)]
pub(crate) struct List {
    key: Vec<u8>,
    expiry: u64,
    form: Form,
    is_changed: bool,
}

impl List {
    /// The list at the stored key `key`; an empty one if there is none.
    ///
    /// # Errors
    /// If the value has another type; those of the store.
    pub(crate) fn open(unit: &mut Unit, key: &[u8]) -> Result<Self, Fail> {
        let Some(value) = unit.get_kind(key, Kind::List)? else {
            let form = Form::Inline { elements: VecDeque::new(), bytes: 0 };
            return Ok(Self { key: key.to_vec(), expiry: 0, form, is_changed: false });
        };
        let form = match value.head()? {
            Some(Head { id, count, start }) => {
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                Form::Large { id, first: start.cast_signed(), count }
            }
            None => {
                let elements = inline::decode(Kind::List, &value.bytes)?;
                let elements = elements.into_iter().map(|(element, _)| element).collect();
                Form::Inline { elements, bytes: value.bytes.len() }
            }
        };
        Ok(Self { key: key.to_vec(), expiry: value.expiry, form, is_changed: false })
    }

    pub(crate) fn len(&self) -> usize {
        match &self.form {
            Form::Inline { elements, .. } => elements.len(),
            Form::Large { count, .. } => *count,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn row(&self, id: u64, place: i64) -> Vec<u8> {
        let database = self.key.first().copied().unwrap_or(0);
        part_row(database, id, &(place.cast_unsigned() ^ 1 << 63).to_be_bytes())
    }

    /// The row of element `at` of a large list.
    fn row_at(&self, at: usize) -> Option<Vec<u8>> {
        match self.form {
            Form::Large { id, first, .. } => {
                Some(self.row(id, first.wrapping_add_unsigned(at as u64)))
            }
            Form::Inline { .. } => None,
        }
    }

    /// Adds an element at one end.
    ///
    /// # Errors
    /// If there is no memory.
    pub(crate) fn push(&mut self, unit: &mut Unit, side: Side, element: &[u8]) -> Result<(), Fail> {
        self.is_changed = true;
        let element = Bytes::copy_from_slice(element);
        match &mut self.form {
            Form::Inline { elements, bytes } => {
                *bytes += inline::size(Kind::List, &element, &[]);
                match side {
                    Side::Left => elements.push_front(element),
                    Side::Right => elements.push_back(element),
                }
                if elements.len() > inline::COUNT_MAX || *bytes > inline::BYTES_MAX {
                    self.enlarge(unit)?;
                }
                Ok(())
            }
            Form::Large { first, count, .. } => {
                if side == Side::Left {
                    *first = first.wrapping_sub(1);
                }
                *count += 1;
                let at = if side == Side::Left { 0 } else { *count - 1 };
                self.put(unit, at, Some(element))
            }
        }
    }

    /// Stages the row of element `at` of a large list.
    fn put(&mut self, unit: &mut Unit, at: usize, element: Option<Bytes>) -> Result<(), Fail> {
        match self.row_at(at) {
            Some(row) => unit.set_part(row, element),
            None => Ok(()),
        }
    }

    /// Makes a small list a large one.
    fn enlarge(&mut self, unit: &mut Unit) -> Result<(), Fail> {
        let Form::Inline { elements, .. } = &mut self.form else { return Ok(()) };
        let elements = std::mem::take(elements);
        self.form = Form::Large { id: unit.keys.new_id(), first: 0, count: elements.len() };
        for (at, element) in elements.into_iter().enumerate() {
            self.put(unit, at, Some(element))?;
        }
        Ok(())
    }

    /// Removes the element at one end, and returns it.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn pop(&mut self, unit: &mut Unit, side: Side) -> Result<Option<Bytes>, Fail> {
        let Some(last) = self.len().checked_sub(1) else { return Ok(None) };
        let at = if side == Side::Left { 0 } else { last };
        let element = self.get(unit, at)?;
        self.is_changed = true;
        match &mut self.form {
            Form::Inline { elements, bytes } => {
                let removed = match side {
                    Side::Left => elements.pop_front(),
                    Side::Right => elements.pop_back(),
                };
                let size = removed.map_or(0, |it| inline::size(Kind::List, &it, &[]));
                *bytes = bytes.saturating_sub(size);
            }
            Form::Large { .. } => {
                self.put(unit, at, None)?;
                self.shrink(side, 1);
            }
        }
        Ok(element)
    }

    /// Leaves out `count` elements at one end of a large list, and deletes their rows.
    fn shrink(&mut self, side: Side, less: usize) {
        if let Form::Large { first, count, .. } = &mut self.form {
            if side == Side::Left {
                *first = first.wrapping_add_unsigned(less as u64);
            }
            *count = count.saturating_sub(less);
        }
    }

    /// Element `at`.
    ///
    /// # Errors
    /// Those of the store; that a row is missing.
    pub(crate) fn get(&self, unit: &Unit, at: usize) -> Result<Option<Bytes>, Fail> {
        if at >= self.len() {
            return Ok(None);
        }
        match (&self.form, self.row_at(at)) {
            (Form::Inline { elements, .. }, _) => Ok(elements.get(at).cloned()),
            (_, Some(row)) => {
                let element = unit.part(&row)?;
                Ok(Some(element.ok_or_else(missing)?))
            }
            (_, None) => Ok(None),
        }
    }

    /// Replaces element `at`, which exists.
    ///
    /// # Errors
    /// If there is no memory.
    pub(crate) fn set(&mut self, unit: &mut Unit, at: usize, element: &[u8]) -> Result<(), Fail> {
        self.is_changed = true;
        let element = Bytes::copy_from_slice(element);
        match &mut self.form {
            Form::Inline { elements, bytes } => {
                if let Some(place) = elements.get_mut(at) {
                    *bytes = (*bytes + element.len()).saturating_sub(place.len());
                    *place = element;
                }
                if *bytes > inline::BYTES_MAX {
                    self.enlarge(unit)?;
                }
                Ok(())
            }
            Form::Large { .. } => self.put(unit, at, Some(element)),
        }
    }

    /// Calls `visit` with the elements of `range`, or in reverse, until it breaks.
    ///
    /// # Errors
    /// Those of the store and of `visit`.
    pub(crate) fn walk(
        &self,
        unit: &Unit,
        range: Range<usize>,
        is_reverse: bool,
        mut visit: impl FnMut(usize, &Bytes) -> Result<ControlFlow<()>, Fail>,
    ) -> Result<(), Fail> {
        let range = range.start.min(self.len())..range.end.min(self.len());
        match (&self.form, self.row_at(range.start), self.row_at(range.end)) {
            (_, Some(from), Some(to)) => {
                let (mut places, mut is_whole) = (range, true);
                unit.walk(&from, &to, is_reverse, |_, element| {
                    let at = if is_reverse { places.next_back() } else { places.next() };
                    let step = visit(at.ok_or_else(missing)?, element)?;
                    is_whole = step.is_continue();
                    Ok(step)
                })?;
                // A reply says the number of its elements before them.
                if is_whole && !places.is_empty() { Err(missing()) } else { Ok(()) }
            }
            (Form::Inline { elements, .. }, ..) => {
                let mut places = range;
                while let Some(at) = if is_reverse { places.next_back() } else { places.next() } {
                    let Some(element) = elements.get(at) else { break };
                    if visit(at, element)?.is_break() {
                        break;
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The elements of `range`. Their memory is charged to `unit`.
    ///
    /// # Errors
    /// Those of the store; that there is no memory.
    pub(crate) fn slice(&self, unit: &mut Unit, range: Range<usize>) -> Result<Vec<Bytes>, Fail> {
        let (mut found, mut charged) = (Vec::new(), Take::new(unit));
        self.walk(unit, range, false, |_, element| {
            charged.add(element.len())?;
            found.push(Bytes::copy_from_slice(element));
            Ok(ControlFlow::Continue(()))
        })?;
        charged.keep(unit);
        Ok(found)
    }

    /// Inserts an element before element `at`.
    ///
    /// # Errors
    /// As [`List::slice`].
    pub(crate) fn insert(
        &mut self,
        unit: &mut Unit,
        at: usize,
        element: &[u8],
    ) -> Result<(), Fail> {
        self.is_changed = true;
        if let Form::Inline { elements, bytes } = &mut self.form {
            elements.insert(at.min(elements.len()), Bytes::copy_from_slice(element));
            *bytes += inline::size(Kind::List, element, &[]);
            if elements.len() > inline::COUNT_MAX || *bytes > inline::BYTES_MAX {
                self.enlarge(unit)?;
            }
            return Ok(());
        }
        let length = self.len();
        let element = Bytes::copy_from_slice(element);
        if at < length / 2 {
            let moved = self.slice(unit, 0..at)?;
            self.push(unit, Side::Left, b"")?;
            for (place, old) in moved.into_iter().chain([element]).enumerate() {
                self.put(unit, place, Some(old))?;
            }
        } else {
            let moved = self.slice(unit, at..length)?;
            self.push(unit, Side::Right, b"")?;
            for (place, old) in std::iter::once(element).chain(moved).enumerate() {
                self.put(unit, at + place, Some(old))?;
            }
        }
        Ok(())
    }

    /// Removes the elements at `places`, which are sorted.
    ///
    /// # Errors
    /// As [`List::slice`].
    pub(crate) fn remove(&mut self, unit: &mut Unit, places: &[usize]) -> Result<(), Fail> {
        let (Some(&first), Some(&last)) = (places.first(), places.last()) else { return Ok(()) };
        self.is_changed = true;
        if let Form::Inline { elements, bytes } = &mut self.form {
            for at in places.iter().rev() {
                let removed = elements.remove(*at).unwrap_or_default();
                *bytes = bytes.saturating_sub(inline::size(Kind::List, &removed, &[]));
            }
            return Ok(());
        }
        let length = self.len();
        let mut gone = places.iter().copied().peekable();
        let is_left_shorter = last + 1 < length - first;
        // The elements between the first removed one and the end move up to it; or those up to the last
        // one, from the front.
        let range = if is_left_shorter { 0..last + 1 } else { first..length };
        let mut kept = Vec::new();
        for (at, element) in self.slice(unit, range.clone())?.into_iter().enumerate() {
            match gone.next_if_eq(&(range.start + at)) {
                Some(_) => {}
                None => kept.push(element),
            }
        }
        let start = if is_left_shorter { range.end - kept.len() } else { range.start };
        for (at, element) in kept.into_iter().enumerate() {
            self.put(unit, start + at, Some(element))?;
        }
        let side = if is_left_shorter { Side::Left } else { Side::Right };
        self.cut(unit, side, places.len())
    }

    /// Removes `count` elements at one end.
    ///
    /// # Errors
    /// If there is no memory.
    pub(crate) fn cut(&mut self, unit: &mut Unit, side: Side, count: usize) -> Result<(), Fail> {
        if count == 0 {
            return Ok(());
        }
        self.is_changed = true;
        let length = self.len();
        let count = count.min(length);
        let gone = if side == Side::Left { 0..count } else { length - count..length };
        if let Form::Inline { elements, bytes } = &mut self.form {
            let removed = elements.drain(gone);
            let sizes = removed.map(|element| inline::size(Kind::List, &element, &[]));
            let size: usize = sizes.sum();
            *bytes = bytes.saturating_sub(size);
            return Ok(());
        }
        // The delete of the whole list is one range delete.
        if count < length {
            for at in gone {
                self.put(unit, at, None)?;
            }
        }
        self.shrink(side, count);
        Ok(())
    }

    /// Stages the list, if it was changed; an empty one is a delete of its key.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn save(self, unit: &mut Unit) -> Result<(), Fail> {
        if !self.is_changed {
            return Ok(());
        }
        let value = (!self.is_empty()).then(|| {
            let (bytes, is_large) = match self.form {
                Form::Inline { elements, .. } => {
                    let elements: Vec<_> =
                        elements.into_iter().map(|element| (element, Bytes::new())).collect();
                    (inline::encode(Kind::List, &elements), false)
                }
                Form::Large { id, first, count } => {
                    let start = first.cast_unsigned();
                    (Head { id, count: count as u64, start }.encode(), true)
                }
            };
            Value { kind: Kind::List, expiry: self.expiry, is_large, is_wide: false, bytes }
        });
        unit.set(&self.key, value)
    }
}

fn missing() -> Fail {
    Fail::new("ERR an element of the list is missing")
}
