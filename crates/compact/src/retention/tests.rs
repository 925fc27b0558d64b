//! Retention against a model that keeps every version.

use base::Rng;
use base::limits::VALUE_BYTES_MAX;

use super::*;
use crate::KeyRange;

/// Adds numbers written as text, and combines. Refuses other text.
#[derive(Debug)]
struct Sum;

fn sum(numbers: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Option<Vec<u8>> {
    let mut total = 0u64;
    for number in numbers {
        total += std::str::from_utf8(number.as_ref()).ok()?.parse::<u64>().ok()?;
    }
    Some(total.to_string().into_bytes())
}

impl MergeOperator for Sum {
    fn name(&self) -> &str {
        "sum"
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        sum(base.iter().chain(operands))
    }

    fn combine(&self, _key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        sum(operands)
    }
}

/// Joins texts, does not combine, and panics on `!`.
#[derive(Debug)]
struct Join;

impl MergeOperator for Join {
    fn name(&self) -> &str {
        "join"
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let parts: Vec<&[u8]> = base.iter().chain(operands).copied().collect();
        assert!(!parts.contains(&&b"!"[..]), "an operator's own mistake");
        Some(parts.join(&b','))
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Version {
    key: u8,
    seqno: u64,
    kind: EntryKind,
    value: Vec<u8>,
}

/// Every version and range delete of a store; a range delete is (first key, end key, seqno).
#[derive(Clone, Debug, Default)]
struct Everything {
    versions: Vec<Version>,
    ranges: Vec<(u8, u8, u64)>,
}

/// The result of a get: no value, a value, or operands that the operator refuses (`Err`).
type Answer = Result<Option<Vec<u8>>, ()>;

impl Everything {
    /// The result of a get at seqno `at` and time `now`, computed from all versions.
    fn read(&self, key: u8, at: u64, now: u64, operator: &dyn MergeOperator) -> Answer {
        let covers =
            |(start, end, seqno): &&(u8, u8, u64)| *start <= key && key < *end && *seqno <= at;
        let deleted = self.ranges.iter().filter(covers).map(|range| range.2).max().unwrap_or(0);
        let mut seen: Vec<&Version> = self
            .versions
            .iter()
            .filter(|it| it.key == key && it.seqno <= at && it.seqno >= deleted)
            .collect();
        seen.sort_by_key(|version| std::cmp::Reverse(version.seqno));
        let (mut operands, mut base) = (Vec::new(), None);
        for version in seen {
            match version.kind {
                EntryKind::Merge => {
                    operands.push(&*version.value);
                    continue;
                }
                EntryKind::Put => base = Some(&*version.value),
                EntryKind::PutExpiring if expiry::split(&version.value).unwrap().0 > now => {
                    base = Some(&version.value[8..]);
                }
                _ => {}
            }
            break;
        }
        if operands.is_empty() {
            return Ok(base.map(<[u8]>::to_vec));
        }
        operands.reverse();
        let merge = || operator.merge(&[key], base, &operands);
        catch_panic(merge).flatten().map(Some).ok_or(())
    }
}

fn catch_panic<T>(call: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).ok()
}

const KEYS: u8 = 4;
const NOW: u64 = 1000;

fn random_version(rng: &mut Rng, seqno: u64) -> Version {
    let (kind, value) = match rng.below(8) {
        0 | 1 => (EntryKind::Put, rng.below(100).to_string().into_bytes()),
        2 => (EntryKind::Delete, Vec::new()),
        3 | 4 => {
            let expiry = [1, NOW, NOW + 1, NOW + 500][rng.below(4) as usize];
            let mut value = u64::to_le_bytes(expiry).to_vec();
            value.extend_from_slice(b"7");
            (EntryKind::PutExpiring, value)
        }
        _ if rng.one_in(12) => (EntryKind::Merge, b"!".to_vec()),
        _ => (EntryKind::Merge, rng.below(100).to_string().into_bytes()),
    };
    Version { key: rng.below(KEYS.into()) as u8, seqno, kind, value }
}

fn random_range(rng: &mut Rng, seqno: u64) -> (u8, u8, u64) {
    let start = rng.below(KEYS.into()) as u8;
    (start, start + 1 + rng.below(u64::from(KEYS - start)) as u8, seqno)
}

/// Seqnos of the range deletes over `key`, newest first.
fn covering(ranges: &[(u8, u8, u64)], key: u8) -> Vec<Seqno> {
    let over = ranges.iter().filter(|(start, end, _)| *start <= key && key < *end);
    let mut seqnos: Vec<_> = over.map(|(_, _, seqno)| Seqno::new(*seqno)).collect();
    seqnos.sort_by(|a, b| b.cmp(a));
    seqnos
}

/// The survivors of `input`, the seqno that supersedes each surviving version, and the counts.
fn survivors(
    input: &Everything,
    rules: RetentionRules,
) -> (Everything, Vec<Option<u64>>, VersionCounts) {
    let mut sorted: Vec<&Version> = input.versions.iter().collect();
    sorted.sort_by_key(|version| (version.key, std::cmp::Reverse(version.seqno)));
    let (mut kept, mut superseded) = (Everything::default(), Vec::new());
    let mut emit = |RetainedVersion { key, trailer, value, superseded_by }: RetainedVersion<'_>| {
        let (seqno, kind) = (trailer.seqno().get(), trailer.kind()?);
        kept.versions.push(Version { key: key[0], seqno, kind, value: value.to_vec() });
        superseded.push(superseded_by.map(Seqno::get));
        Ok(())
    };
    let mut retention = Retention::new(rules, &Account::unlimited("test")).unwrap();
    for Version { key, seqno, kind, value } in sorted {
        let over = covering(&input.ranges, *key);
        let trailer = Trailer::new(Seqno::new(*seqno), *kind);
        retention.version(&[*key], &over, trailer, value, &mut emit).unwrap();
    }
    retention.end_key(&mut emit).unwrap();
    for key in 0..KEYS {
        let mut seqnos = Vec::new();
        let over = covering(&input.ranges, key);
        retention.range_deletes(&[key], Some(&[key + 1]), &over, &mut seqnos);
        kept.ranges.extend(seqnos.iter().map(|seqno| (key, key + 1, seqno.get())));
    }
    (kept, superseded, *retention.counts())
}

/// I5 and the other rules: every read, current or later, finds the same result after the merge.
#[test] // I5
fn every_read_finds_the_same_result_after_a_merge() {
    let (mut rng, seed) = Rng::from_env();
    let rounds = if std::env::var_os("TERRACE_LONG").is_some() { 2_000_000 } else { 20_000 };
    std::panic::set_hook(Box::new(|info| {
        if !info.to_string().contains("own mistake") {
            eprintln!("{info}");
        }
    }));
    for round in 0..rounds {
        let operator: Arc<dyn MergeOperator> =
            if rng.one_in(2) { Arc::new(Sum) } else { Arc::new(Join) };
        let (mut input, mut older) = (Everything::default(), Everything::default());
        for seqno in 100..100 + 1 + rng.below(16) {
            match rng.one_in(6) {
                true => input.ranges.push(random_range(&mut rng, seqno)),
                false => input.versions.push(random_version(&mut rng, seqno)),
            }
        }
        let below = match rng.below(3) {
            0 => OlderRanges::nothing(),
            1 => OlderRanges::everything(),
            _ => {
                let start = rng.below(KEYS.into()) as u8;
                OlderRanges::new(vec![KeyRange::new(&[start], Some(&[start + 1]))])
            }
        };
        for seqno in 1..1 + rng.below(10) {
            let version = random_version(&mut rng, seqno);
            if below.clone().may_hold(&[version.key]) {
                older.versions.push(version);
            }
        }
        // The horizon may end below some versions: those are kept for later reads.
        let present = if rng.one_in(5) { 100 + rng.below(16) } else { 116 };
        let mut readers: Vec<u64> = (0..rng.below(4)).map(|_| 1 + rng.below(present)).collect();
        readers.push(present);
        let horizon = Horizon::new(readers.iter().map(|seqno| Seqno::new(*seqno)).collect());
        readers.extend(present..=118);
        let known = if rng.one_in(6) { None } else { Some(Arc::clone(&operator)) };
        let rules = RetentionRules {
            horizon,
            now_ms: NOW,
            older: below,
            value_bytes_max: VALUE_BYTES_MAX,
            operator: known,
        };
        let (kept, superseded, counts) = survivors(&input, rules.clone());
        assert!(counts.is_balanced(), "seed {seed} round {round}: {counts:?}");
        assert_eq!(counts.kept, kept.versions.len() as u64);
        assert!(kept.versions.is_sorted_by(|a, b| (a.key, b.seqno) < (b.key, a.seqno)));
        check_superseded(&kept, &superseded, &rules, &format!("seed {seed} round {round}"));
        let with_older = |upper: &Everything| Everything {
            versions: [&*upper.versions, &*older.versions].concat(),
            ranges: upper.ranges.clone(),
        };
        let (before, after) = (with_older(&input), with_older(&kept));
        for at in readers {
            for now in [NOW, NOW + 1, NOW + 1000] {
                for key in 0..KEYS {
                    let (was, is) = (
                        before.read(key, at, now, &*operator),
                        after.read(key, at, now, &*operator),
                    );
                    assert_eq!(
                        was, is,
                        "seed {seed} round {round}: key {key} at {at}, time {now}\n{rules:?}\n\
                         {input:?}\n{older:?}\n{kept:?}"
                    );
                }
            }
        }
    }
    let _ = std::panic::take_hook();
}

/// Superseded survivors are needed by a read between them and their superseder. Once there is no such read,
/// another merge drops them.
fn check_superseded(kept: &Everything, by: &[Option<u64>], rules: &RetentionRules, why: &str) {
    let marked = || kept.versions.iter().zip(by).filter_map(|(it, by)| Some((it.seqno, (*by)?)));
    for (seqno, by) in marked() {
        assert!(seqno < by, "{why}: {seqno} by {by}");
        assert!(rules.horizon.needs(Seqno::new(seqno), Seqno::new(by)), "{why}: {seqno} by {by}");
    }
    let Some(oldest) = marked().map(|(seqno, _)| seqno).min() else { return };
    let newest = marked().map(|(_, by)| by).max().unwrap();
    // Only reads outside these ranges, and one newer read, remain.
    let (oldest, newest) = (Seqno::new(oldest), Seqno::new(newest));
    let readers = rules.horizon.seqnos().iter().copied();
    let mut readers: Vec<_> = readers.filter(|it| *it < oldest || *it >= newest).collect();
    readers.push(Seqno::new(130));
    let later = RetentionRules { horizon: Horizon::new(readers), ..rules.clone() };
    let (_, left, counts) = survivors(kept, later);
    assert!(left.iter().flatten().next().is_none(), "{why}: {left:?}");
    let gone = counts.superseded + counts.range_deleted;
    assert_eq!(gone, marked().count() as u64, "{why}: {kept:?} {by:?}");
}

fn version(seqno: u64, kind: EntryKind, value: &[u8]) -> Version {
    Version { key: 0, seqno, kind, value: value.to_vec() }
}

fn rules(readers: &[u64], below: OlderRanges) -> RetentionRules {
    let horizon = Horizon::new(readers.iter().map(|seqno| Seqno::new(*seqno)).collect());
    let operator: Option<Arc<dyn MergeOperator>> = Some(Arc::new(Sum));
    let value_bytes_max = VALUE_BYTES_MAX;
    RetentionRules { horizon, now_ms: NOW, older: below, value_bytes_max, operator }
}

fn kept(versions: &[Version], rules: RetentionRules) -> Vec<(u64, EntryKind, Vec<u8>)> {
    let input = Everything { versions: versions.to_vec(), ranges: Vec::new() };
    let versions = survivors(&input, rules).0.versions;
    versions.into_iter().map(|it| (it.seqno, it.kind, it.value)).collect()
}

/// Each survivor carries the seqno that supersedes it.
#[test]
fn survivors_carry_the_seqno_that_supersedes_them() {
    let put = |seqno| version(seqno, EntryKind::Put, b"1");
    let delete = |seqno| version(seqno, EntryKind::Delete, b"");
    let operand = |seqno| version(seqno, EntryKind::Merge, b"2");
    let marks = |versions: &[Version], ranges: &[(u8, u8, u64)], readers: &[u64]| {
        let input = Everything { versions: versions.to_vec(), ranges: ranges.to_vec() };
        survivors(&input, rules(readers, OlderRanges::everything())).1
    };
    assert_eq!(marks(&[put(9), put(5)], &[], &[9]), [None]);
    assert_eq!(marks(&[put(9), put(5), put(3)], &[], &[4, 6, 9]), [None, Some(9), Some(5)]);
    assert_eq!(marks(&[put(9), delete(5), put(3)], &[], &[4, 6, 9]), [None, Some(9), Some(5)]);
    assert_eq!(marks(&[put(5)], &[(0, 1, 7)], &[6, 9]), [Some(7)]);
    assert_eq!(marks(&[put(9), put(5)], &[(0, 1, 7)], &[6, 9]), [None, Some(7)]);
    // Operands supersede nothing, but can be superseded.
    assert_eq!(marks(&[operand(9), put(5)], &[], &[6, 9]), [None, None]);
    assert_eq!(marks(&[put(9), operand(5), put(3)], &[], &[6, 4, 9]), [None, Some(9), Some(9)]);
}

/// The model test shows that nothing needed is dropped; this test shows that the rest is.
#[test]
fn versions_that_no_read_needs_are_dropped() {
    let put = |seqno| version(seqno, EntryKind::Put, b"1");
    let delete = |seqno| version(seqno, EntryKind::Delete, b"");
    let operand = |seqno| version(seqno, EntryKind::Merge, b"2");
    let expired = version(8, EntryKind::PutExpiring, &[1, 0, 0, 0, 0, 0, 0, 0, 9]);
    let now = [9];
    assert_eq!(kept(&[put(9), put(8), delete(7)], rules(&now, OlderRanges::everything())).len(), 1);
    assert_eq!(kept(&[delete(8), put(7)], rules(&now, OlderRanges::nothing())), []);
    assert_eq!(kept(&[expired.clone(), put(7)], rules(&now, OlderRanges::nothing())), []);
    let tombstone = vec![(8, EntryKind::Delete, Vec::new())];
    assert_eq!(kept(&[expired.clone(), put(7)], rules(&now, OlderRanges::everything())), tombstone);
    let pointer = |expiry| {
        let pointer = Pointer { file: base::TableId(1), page: 0, pages: 4, bytes: 9, expiry };
        version(8, EntryKind::PutPointer, &pointer.encode())
    };
    assert_eq!(kept(&[pointer(NOW), put(7)], rules(&now, OlderRanges::nothing())), []);
    assert_eq!(kept(&[pointer(NOW), put(7)], rules(&now, OlderRanges::everything())), tombstone);
    for stays in [0, NOW + 1] {
        assert_eq!(kept(&[pointer(stays), put(7)], rules(&now, OlderRanges::nothing())).len(), 1);
        let operands = [operand(9), pointer(stays)];
        assert_eq!(kept(&operands, rules(&now, OlderRanges::nothing())).len(), 2);
    }
    // A read at 7 needs the put, so the tombstone over it stays.
    assert_eq!(kept(&[delete(8), put(7)], rules(&[7, 9], OlderRanges::nothing())).len(), 2);
    // A read at 7 that sees an expired value, or none, must learn that the key was written since.
    let before = version(7, EntryKind::PutExpiring, &[1, 0, 0, 0, 0, 0, 0, 0, 9]);
    for newest in [delete(8), expired] {
        let kept = |readers: &[u64]| {
            kept(&[newest.clone(), before.clone()], rules(readers, OlderRanges::nothing()))
        };
        assert_eq!(kept(&[7, 9]), tombstone);
        assert_eq!(kept(&now), []);
    }
    // Operands become one value over a put, a tombstone or nothing; over an unknown base they become one
    // operand.
    let merged = |number: &[u8]| vec![(9, EntryKind::Put, number.to_vec())];
    let operands = [operand(9), operand(8), operand(7)];
    assert_eq!(kept(&operands, rules(&now, OlderRanges::nothing())), merged(b"6"));
    let with = |last: Version| [&operands[..], &[last]].concat();
    assert_eq!(kept(&with(put(6)), rules(&now, OlderRanges::everything())), merged(b"7"));
    assert_eq!(kept(&with(delete(6)), rules(&now, OlderRanges::everything())), merged(b"6"));
    let combined = vec![(9, EntryKind::Merge, b"6".to_vec())];
    assert_eq!(kept(&operands, rules(&now, OlderRanges::everything())), combined);
    // With a read at 8, the operands above 8 and those up to 8 are merged separately.
    let apart = vec![(9, EntryKind::Merge, b"2".to_vec()), (8, EntryKind::Put, b"5".to_vec())];
    assert_eq!(kept(&with(put(6)), rules(&[8, 9], OlderRanges::nothing())), apart);
}

#[test]
fn range_deletes_are_dropped_if_nothing_is_below_them() {
    let kept = |readers: &[u64], below, seqnos: &[u64]| {
        let seqnos: Vec<_> = seqnos.iter().map(|seqno| Seqno::new(*seqno)).collect();
        let mut kept = Vec::new();
        let account = Account::unlimited("test");
        let mut retention = Retention::new(rules(readers, below), &account).unwrap();
        retention.range_deletes(b"b", Some(b"d"), &seqnos, &mut kept);
        kept.into_iter().map(Seqno::get).collect::<Vec<_>>()
    };
    assert_eq!(kept(&[9], OlderRanges::everything(), &[8, 7, 3]), [8]);
    assert_eq!(kept(&[9], OlderRanges::nothing(), &[8, 7, 3]), [0; 0]);
    assert_eq!(kept(&[5, 9], OlderRanges::everything(), &[8, 7, 3]), [8, 3]);
    assert_eq!(kept(&[5, 9], OlderRanges::nothing(), &[8, 7, 3]), [8]);
    let elsewhere =
        || OlderRanges::new(vec![KeyRange::new(b"d", None), KeyRange::new(b"a", Some(b"b"))]);
    assert_eq!(kept(&[9], elsewhere(), &[8]), [0; 0]);
}

/// Operands beyond the bound, or without memory, are kept unmerged.
#[test]
fn operands_without_memory_are_kept_unmerged() {
    let operand = vec![b'1'; 100 << 10];
    let budget = base::Budget::new(300 << 10);
    let rules =
        RetentionRules { operator: Some(Arc::new(Join)), ..rules(&[100], OlderRanges::nothing()) };
    for account in [Account::unlimited("test"), budget.account("test")] {
        let mut retention = Retention::new(rules.clone(), &account).unwrap();
        let (mut entries, mut bytes) = (0, 0);
        let mut emit = |RetainedVersion { value, .. }: RetainedVersion<'_>| {
            entries += 1;
            bytes += value.iter().filter(|byte| **byte == b'1').count();
            Ok(())
        };
        for seqno in (1..=30).rev() {
            let trailer = Trailer::new(Seqno::new(seqno), EntryKind::Merge);
            retention.version(b"k", &[], trailer, &operand, &mut emit).unwrap();
        }
        retention.end_key(&mut emit).unwrap();
        // The last group of operands has nothing below it and becomes a value.
        assert!(entries > 1 && entries <= 30 && bytes == 30 * operand.len(), "{entries}");
        assert!(retention.counts().is_balanced());
    }
    assert_eq!(budget.used(), 0);
}

#[test]
fn malformed_versions_are_refused() {
    let account = Account::unlimited("test");
    for (kind, value) in [
        (EntryKind::DeleteRange, &b"x"[..]),
        (EntryKind::PutExpiring, b"short"),
        (EntryKind::PutPointer, b"short"),
    ] {
        let mut retention = Retention::new(rules(&[9], OlderRanges::nothing()), &account).unwrap();
        let trailer = Trailer::new(Seqno::new(5), kind);
        let error = retention.version(b"k", &[], trailer, value, &mut |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), base::ErrorKind::Corrupt);
    }
}

/// A table with valid checksums and a key's versions in another order: the newer one is not dropped for the
/// older one.
#[test]
fn versions_out_of_order_are_refused() {
    for kind in [EntryKind::Put, EntryKind::Delete, EntryKind::Merge] {
        let account = Account::unlimited("test");
        let mut retention = Retention::new(rules(&[9], OlderRanges::nothing()), &account).unwrap();
        let mut version = |key: &[u8], seqno| {
            let trailer = Trailer::new(Seqno::new(seqno), kind);
            retention.version(key, &[], trailer, b"", &mut |_| Ok(()))
        };
        version(b"a", 5).unwrap();
        version(b"b", 7).unwrap();
        version(b"b", 3).unwrap();
        let error = version(b"b", 4).unwrap_err();
        assert_eq!(error.kind(), base::ErrorKind::Corrupt, "{error}");
    }
}
