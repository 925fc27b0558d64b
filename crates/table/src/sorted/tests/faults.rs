use super::*;
use base::ErrorKind;
use media::{Fault, Faulty, OpKind, Rule};

/// Entries that fill several write buffers.
fn large(rng: &mut Rng) -> Model {
    let mut model = Model::new();
    for number in 0..3000 {
        let mut value = vec![0; 1000];
        rng.fill(&mut value);
        model.insert((format!("{number:08}").into_bytes(), Reverse(put(1))), value);
    }
    model
}

fn faulty(seed: u64) -> (Arc<Faulty>, Arc<dyn Medium>) {
    let faulty = Arc::new(Faulty::new(seed));
    let medium: Arc<dyn Medium> = faulty.clone();
    (faulty, medium)
}

/// A failed write ends the table: later calls return its error, and the file is removed.
#[test]
fn a_failed_write_poisons_the_writer_and_leaves_no_file() {
    let model = large(&mut Rng::new(1));
    for (fault, kind) in [(Fault::NoSpace, ErrorKind::NoSpace), (Fault::Io, ErrorKind::Corrupt)] {
        for after in 0..3 {
            let (device, medium) = faulty(after);
            device.inject(Rule::new(OpKind::Write, fault.clone()).after(after)).unwrap();
            let account = Account::unlimited("test");
            let mut writer = Writer::create(&medium, spec(Codec::Lz4), &account).unwrap();
            let added = model
                .iter()
                .try_for_each(|((key, trailer), value)| writer.add(key, trailer.0, value));
            assert_eq!(added.unwrap_err().kind(), kind);
            let error = writer.add(b"99999999", put(1), b"").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Poisoned);
            assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::Poisoned);
            assert!(medium.list().unwrap().is_empty());
            assert_eq!(account.used(), 0);
        }
    }
}

#[test]
fn a_failed_sync_ends_the_writer() {
    let (device, medium) = faulty(1);
    device.inject(Rule::new(OpKind::Sync, Fault::Io)).unwrap();
    let model = large(&mut Rng::new(1));
    let error = write(&medium, spec(Codec::Lz4), &model, &Account::unlimited("test")).unwrap_err();
    assert_ne!(error.kind(), ErrorKind::Retry, "{error}");
    assert!(medium.list().unwrap().is_empty());
}

/// The device reports success but lost, tore, misdirected or flipped a write. Every answer is correct or
/// an error, and a check finds the damage (I8).
#[test]
fn a_device_with_silent_faults_causes_no_wrong_answer() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let model = large(&mut rng);
    for round in 0..16 {
        let (device, medium) = faulty(rng.next_u64());
        let at = rng.below(700) * PAGE_BYTES as u64;
        let fault = match round % 4 {
            0 => Fault::Lost,
            1 => Fault::Torn,
            2 => Fault::Misdirected { name: None, at },
            _ => Fault::Flip,
        };
        device.inject(Rule::new(OpKind::Write, fault.clone()).after(rng.below(6))).unwrap();
        write(&medium, spec(Codec::Lz4), &model, &Account::unlimited("test")).unwrap();
        assert_eq!(device.struck(), 1);
        // If the end of the file is damaged, the table does not open.
        let Ok(table) = open(&medium) else { continue };
        let mut driver = Driver::new(&table);
        let mut errors = 0;
        for ((key, trailer), value) in &model {
            match driver.get(key, trailer.0) {
                Ok(found) => {
                    let (found, bytes) = found.unwrap();
                    assert!(found == trailer.0 && bytes == value, "{fault:?}");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                    errors += 1;
                }
            }
        }
        let report = table.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap();
        assert!(errors == 0 || !report.is_clean(), "{fault:?}");
    }
}

/// An unreadable sector costs only its block: the check reports it and reads the rest.
#[test]
fn a_check_reads_around_a_bad_sector() {
    let (device, medium) = faulty(1);
    let model = large(&mut Rng::new(1));
    write(&medium, spec(Codec::Lz4), &model, &Account::unlimited("test")).unwrap();
    let table = open(&medium).unwrap();
    // The third read of data fails, and so does its repetition for one block.
    let rule = Rule::new(OpKind::Read, Fault::Io).purpose(Purpose::Scrub).after(3).times(2);
    device.inject(rule).unwrap();
    let report = table.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap();
    assert_eq!((device.struck(), report.damages), (2, 1));
    assert!(report.listed[0].keys.is_some());
    let lost = model.len() as u64 - report.entries;
    assert!((1..10).contains(&lost), "{lost}");
}

/// Of 300 KiB that are free, a table of 200 KiB with values may take what it does not leave to deletes; a
/// table of deletes alone may take all.
#[test]
fn a_table_leaves_space_to_deletes() {
    let write_with = |leave: Leave, entries: u32, value: Option<usize>| {
        let (device, medium) = faulty(3);
        device.set_capacity(Some(16 << 20));
        let other = medium.create("other", media::Access::Bytes, 0).unwrap();
        other.set_len((16 << 20) - (300 << 10)).unwrap();
        let mut model = Model::new();
        for number in 0..entries {
            let kind = if value.is_some() { EntryKind::Put } else { EntryKind::Delete };
            let trailer = Trailer::new(Seqno::new(1), kind);
            let mut bytes = vec![0; value.unwrap_or(0)];
            Rng::new(number.into()).fill(&mut bytes);
            model.insert((number.to_be_bytes().to_vec(), Reverse(trailer)), bytes);
        }
        let written =
            write(&medium, Spec { leave, ..spec(Codec::Lz4) }, &model, &Account::unlimited("test"));
        if written.is_err() {
            assert_eq!(medium.list().unwrap().len(), 1, "nothing but the other file is left");
        }
        written.map(|summary| summary.file_bytes).map_err(|error| error.kind())
    };
    let bytes = write_with(Leave::Nothing, 180, Some(1000)).unwrap();
    assert!((170 << 10..250 << 10).contains(&bytes), "{bytes}");
    assert_eq!(write_with(Leave::ForDeletes, 180, Some(1000)), Err(ErrorKind::NoSpace));
    assert_eq!(write_with(Leave::HalfForDeletes, 180, Some(1000)), Err(ErrorKind::NoSpace));
    assert!(write_with(Leave::HalfForDeletes, 100, Some(1000)).is_ok());
    assert_eq!(write_with(Leave::ForDeletes, 100, Some(1000)), Err(ErrorKind::NoSpace));
    assert!(write_with(Leave::ForDeletes, 180, None).is_ok());
}
