//! Tests: hashed keyspaces in the manifest, and the format versions that they need.

use std::sync::Arc;

use base::{Discard, ErrorKind, HashKey, HashedPolicy, KeyspaceId, StoreId};
use media::{Access, Medium, MemoryMedium, Purpose};

use super::tests::{created, golden};
use super::*;

fn hashed_edits() -> Vec<Edit> {
    let created = |keyspace, name: &str, hash_key, policy| Edit::KeyspaceCreated {
        keyspace: KeyspaceId(keyspace),
        kind: KeyspaceKind::Hashed {
            hash_key: HashKey::new(hash_key),
            policy,
            base_filter_bits: 0,
        },
        name: name.into(),
    };
    let discard = Discard::Priority("score".into());
    vec![
        created(1, "keep", std::array::from_fn(|at| at as u8), HashedPolicy::Keep),
        created(300, "win", [0xf0; 16], HashedPolicy::Window { bytes: 8 << 30, discard }),
    ]
}

#[test]
fn hashed_keyspaces_keep_their_hash_key_and_policy() {
    let mut body = Vec::new();
    hashed_edits().iter().for_each(|edit| edit.encode(&mut body));
    let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(body == golden(include_str!("../golden/manifest_hashed.hex")), "{hex}");
    assert_eq!(Edit::decode_all(&body).unwrap(), hashed_edits());
    for cut in 1..body.len() {
        let _ = Edit::decode_all(&body[..cut]);
        for bit in 0..8 {
            let mut damaged = body.clone();
            damaged[cut] ^= 1 << bit;
            let other = Edit::decode_all(&damaged);
            assert!(!other.is_ok_and(|other| other == hashed_edits()), "byte {cut} bit {bit}");
        }
    }

    let mut state = ManifestState::default();
    hashed_edits().into_iter().for_each(|edit| state.apply(edit).unwrap());
    let mut again = ManifestState::default();
    state.edits().into_iter().for_each(|edit| again.apply(edit).unwrap());
    assert_eq!(again, state);
    assert_eq!(state.keyspaces[&KeyspaceId(1)].kind.to_string(), "hashed keep");
    let window = state.keyspaces[&KeyspaceId(300)].kind.to_string();
    assert_eq!(window, "hashed window=8.0 GiB,priority=score");
}

/// The filter bits of a base are stored only where there are some, and only version 3 has them.
#[test]
fn filter_bits_of_a_base_are_stored_where_they_are_set() {
    let kind = |base_filter_bits| KeyspaceKind::Hashed {
        hash_key: HashKey::new(std::array::from_fn(|at| at as u8)),
        policy: HashedPolicy::Keep,
        base_filter_bits,
    };
    let created = |bits| Edit::KeyspaceCreated {
        keyspace: KeyspaceId(1),
        kind: kind(bits),
        name: "keep".into(),
    };
    let encoded = |bits| {
        let mut body = Vec::new();
        created(bits).encode(&mut body);
        body
    };
    assert_eq!((created(0).format_version(), created(1).format_version()), (2, 3));
    assert_eq!(encoded(0).len() + 1, encoded(10).len());
    assert!(
        encoded(8) == golden(include_str!("../golden/manifest_filtered.hex")),
        "{:02x?}",
        encoded(8)
    );
    for bits in 0..=BASE_FILTER_BITS_MAX {
        assert_eq!(Edit::decode_all(&encoded(bits)).unwrap(), [created(bits)]);
        assert_eq!(kind(bits).base_filter_bits(), bits);
    }
    for bits in [0, 11, 255] {
        let mut wrong = encoded(1);
        *wrong.last_mut().unwrap() = bits;
        assert_eq!(Edit::decode_all(&wrong).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    assert_eq!(kind(8).to_string(), "hashed keep, base-filter-bits 8");
}

/// Readers from before version 7 would take the log for one whose records die when they are flushed.
#[test]
fn a_resident_keyspace_needs_version_7() {
    let kind = KeyspaceKind::Hashed {
        hash_key: HashKey::new(std::array::from_fn(|at| at as u8)),
        policy: HashedPolicy::Resident,
        base_filter_bits: 0,
    };
    assert!(kind.is_resident() && !kind.is_window());
    assert_eq!(kind.to_string(), "hashed resident");
    let (keyspace, name) = (KeyspaceId(1), "keep".into());
    let created = Edit::KeyspaceCreated { keyspace, kind, name };
    assert_eq!(created.format_version(), 7);
    let mut body = Vec::new();
    created.encode(&mut body);
    assert_eq!(body, golden(include_str!("../golden/manifest_resident.hex")), "{body:02x?}");
    assert_eq!(Edit::decode_all(&body).unwrap(), [created]);
}

/// Readers of version 3 would decode windows that retain entries, but cannot evict from them.
#[test]
fn windows_that_retain_entries_need_version_4() {
    let kind = |discard| KeyspaceKind::Hashed {
        hash_key: HashKey::new([7; 16]),
        policy: HashedPolicy::Window { bytes: 1 << 20, discard },
        base_filter_bits: 0,
    };
    let version = |discard| {
        let (keyspace, name) = (KeyspaceId(1), "win".into());
        Edit::KeyspaceCreated { keyspace, kind: kind(discard), name }.format_version()
    };
    let discards = || [Discard::Fifo, Discard::Clock, Discard::Priority("a".into())];
    assert_eq!(discards().map(version), [2, 4, 4]);
    assert_eq!(kind(Discard::Clock).window_bytes(), [0x80, 0x80, 0x40, 2]);
    // Tables state the same policies.
    for kind in discards().map(kind) {
        let bytes = kind.window_bytes();
        assert_eq!(KeyspaceKind::of_tables(kind.key_form(), &bytes), kind);
        let cut = KeyspaceKind::of_tables(kind.key_form(), &bytes[..bytes.len() - 1]);
        assert_eq!(cut.policy(), Some(&HashedPolicy::Keep));
        assert_eq!(KeyspaceKind::of_tables(base::KeyForm::Plain, &bytes), KeyspaceKind::Ordered);
    }
}

/// Scenario: the first hashed keyspace of a store is created; a binary that knows only version 1 must say
/// that the store is newer, not that it is damaged.
#[test]
fn the_first_hashed_keyspace_raises_the_format_version() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    // An older binary wrote the file: the present one begins a file of the version that opens need.
    let (bytes, _) = encode(StoreId(7), &ManifestState::default(), 1).unwrap();
    let file = medium.create(&file_name(1), Access::Bytes, 1 << 20).unwrap();
    file.store(0, &bytes, Purpose::Manifest).unwrap();
    let found = recover(&*medium, false).unwrap().unwrap();
    let manifest = Manifest::resume(Arc::clone(&medium), found).unwrap();
    let version = || {
        let listed = medium.list().unwrap();
        let name = listed.iter().map(|file| file.name.clone()).max().unwrap();
        let bytes = reader::read_file(&*medium, &name).unwrap();
        (name, u32::from_le_bytes(bytes[8..12].try_into().unwrap()))
    };
    manifest.append(vec![created(9, "ordered")]).unwrap();
    assert_eq!(version(), (file_name(1), 1));
    let [_, window] = hashed_edits().try_into().unwrap();
    manifest.append(vec![window]).unwrap();
    assert_eq!(version(), (file_name(2), 5));
    manifest.append(vec![created(301, "more")]).unwrap();
    assert_eq!(version(), (file_name(2), 5));
    let state = manifest.state();
    drop(manifest);
    let found = recover(&*medium, false).unwrap().unwrap();
    assert_eq!(found.state, state);
    let resumed = Manifest::resume(Arc::clone(&medium), found).unwrap();
    resumed.append(vec![Edit::KeyspaceDropped { keyspace: KeyspaceId(300) }]).unwrap();
    assert_eq!(version(), (file_name(2), 5));
    let state = resumed.state();
    drop(resumed);
    // The headers are lost: salvage finds the version that fits the records' checksums.
    let file = medium.open(&file_name(2), Access::Bytes).unwrap();
    file.store(0, &[0xff; 1024], Purpose::Manifest).unwrap();
    let salvage = salvage_state(&*medium, StoreId(7)).unwrap();
    assert_eq!((salvage.highest, salvage.state), (2, state.clone()));
    Manifest::start(Arc::clone(&medium), StoreId(7), state, 3).unwrap();
    assert_eq!(version(), (file_name(3), 5));
}
