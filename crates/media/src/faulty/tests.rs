//! The faulty device behaves as the fault model of docs/media.md says, over many seeds.

use std::collections::BTreeSet;
use std::time::Duration;

use base::{Clock, ErrorKind, ManualClock};

use super::*;
use crate::Op;

const SECTOR: usize = 512;

fn filled(pages: usize, byte: u8) -> Buf {
    let mut buf = Buf::pages(pages);
    buf.fill(byte);
    buf
}

fn write(file: &dyn File, at: u64, pages: usize, byte: u8) -> Result<()> {
    file.write(at, filled(pages, byte), Purpose::Flush).1
}

fn read(file: &dyn File, at: u64) -> Result<Buf> {
    let (buf, result) = file.read(at, Buf::pages(1), Purpose::Data);
    result.map(|()| buf)
}

/// A file of one synced page of ones.
fn synced_page(device: &Faulty, name: &str) -> Arc<dyn File> {
    let file = device.create(name, Access::Direct, 0).unwrap();
    write(&*file, 0, 1, 1).unwrap();
    file.sync(Purpose::Flush).unwrap();
    device.sync_names(&[]).unwrap();
    file
}

#[test]
fn synced_content_survives_and_each_unsynced_sector_survives_by_itself() {
    let device = Faulty::new(1);
    let file = synced_page(&device, "a");
    write(&*file, 0, 1, 2).unwrap();
    file.sync(Purpose::Flush).unwrap();
    // Pending: one page over synced content, and two pages past the durable length.
    write(&*file, 0, 1, 3).unwrap();
    write(&*file, 4096, 2, 4).unwrap();

    let mut lens = BTreeSet::new();
    let (mut kept, mut lost) = ([0; 24], [0; 24]);
    let (mut torn, mut reordered) = (0, 0);
    for seed in 0..2000 {
        let image = device.crash_image(seed).unwrap().content("a").unwrap();
        lens.insert(image.len());
        assert!(image.len() >= 4096, "seed {seed}: the synced length is kept");
        let mut whole = Vec::new();
        for (number, sector) in image.chunks(SECTOR).enumerate() {
            let (old, new) = if number < 8 { (2, 3) } else { (0, 4) };
            assert!(sector.iter().all(|byte| *byte == sector[0]), "seed {seed}: half a sector");
            assert!(sector[0] == old || sector[0] == new, "seed {seed}: {}", sector[0]);
            whole.push(sector[0] == new);
            *if sector[0] == new { &mut kept[number] } else { &mut lost[number] } += 1;
        }
        let first: BTreeSet<bool> = whole[..8].iter().copied().collect();
        torn += u32::from(first.len() == 2);
        reordered += u32::from(first == [false].into() && whole[8..].contains(&true));
        lost[whole.len()..].iter_mut().for_each(|count| *count += 1);
    }
    assert!(kept.iter().chain(&lost).all(|count| *count > 50), "kept {kept:?} lost {lost:?}");
    assert!(torn > 50 && reordered > 50, "{torn} torn, {reordered} reordered");
    assert_eq!(lens, [4096, 12288].into());

    // The same seed gives the same image, and the death of the process loses nothing.
    let image = |seed| device.crash_image(seed).unwrap().content("a");
    assert_eq!(image(7), image(7));
    let seen = device.process_death_image().unwrap().content("a").unwrap();
    assert!(seen[..4096].iter().all(|b| *b == 3) && seen[4096..].iter().all(|b| *b == 4));
}

#[test]
fn stores_in_one_sector_survive_in_order_and_may_be_cut() {
    let device = Faulty::new(1);
    let file = device.create("log", Access::Bytes, 4096).unwrap();
    file.sync(Purpose::Log).unwrap();
    device.sync_names(&[]).unwrap();
    for record in 0..4 {
        file.store(record * 100, &[record as u8 + 1; 100], Purpose::Log).unwrap();
    }
    let mut records = [0; 5];
    let mut cut = 0;
    for seed in 0..1000 {
        let image = device.crash_image(seed).unwrap().content("log").unwrap();
        let there = image.iter().take_while(|byte| **byte != 0).count();
        assert!(image[there..].iter().all(|byte| *byte == 0), "seed {seed}: a gap in a sector");
        assert!(image[..there].iter().enumerate().all(|(at, byte)| *byte as usize == at / 100 + 1));
        if there % 100 == 0 { records[there / 100] += 1 } else { cut += 1 }
    }
    assert!(records.iter().all(|count| *count > 10) && cut > 50, "{records:?}, {cut} cut");
}

#[test]
fn a_renamed_name_survives_only_with_earlier_changes_of_its_names() {
    let device = Faulty::new(1);
    let _old = synced_page(&device, "current");
    let _dead = synced_page(&device, "dead");
    let new = device.create("new", Access::Direct, 0).unwrap();
    write(&*new, 0, 1, 9).unwrap();
    new.sync(Purpose::Manifest).unwrap();
    device.rename("new", "current").unwrap();
    device.remove("dead").unwrap();

    let mut seen = BTreeSet::new();
    for seed in 0..500 {
        let image = device.crash_image(seed).unwrap();
        let names: Vec<String> = image.list().unwrap().into_iter().map(|file| file.name).collect();
        let current = image.content("current").unwrap();
        // The rename is atomic: the old content, or the new.
        assert!(current == [1; 4096] || current == [9; 4096], "seed {seed}");
        assert!(!names.contains(&"new".to_owned()) || current[0] == 1, "seed {seed}: two names");
        seen.insert((names, current[0]));
    }
    // The file is created or not, and if so renamed or not; the other file is removed or not.
    assert_eq!(seen.len(), 6, "{seen:?}");

    device.sync_names(&[]).unwrap();
    let image = device.crash_image(1).unwrap();
    assert_eq!(image.content("current").unwrap(), [9; 4096]);
    assert_eq!(image.list().unwrap().len(), 1);
    // A durable name does not make content durable: the file exists and may be empty.
    device.create("empty", Access::Bytes, 8192).unwrap();
    device.sync_names(&[]).unwrap();
    let len = |seed| device.crash_image(seed).unwrap().content("empty").unwrap().len();
    let lens: BTreeSet<usize> = (0..100).map(len).collect();
    assert_eq!(lens, [0, 8192].into());
}

#[test]
fn a_failed_sync_is_final() {
    let (mut lost, mut stale) = (0, 0);
    for seed in 0..100 {
        let device = Faulty::new(seed);
        let file = synced_page(&device, "a");
        write(&*file, 0, 1, 2).unwrap();
        device.inject(Rule::new(OpKind::Sync, Fault::Io)).unwrap();
        let error = file.sync(Purpose::Flush).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        // The next sync succeeds and makes nothing of the lost content durable.
        file.sync(Purpose::Flush).unwrap();
        let images: BTreeSet<Vec<u8>> =
            (0..5).map(|crash| device.crash_image(crash).unwrap().content("a").unwrap()).collect();
        assert_eq!(images.len(), 1, "settled");
        let durable = images.first().unwrap();
        let seen = read(&*file, 0).unwrap();
        lost += u32::from(durable[..] != [2; 4096]);
        stale += u32::from(durable[..] != seen[..]);
    }
    assert!(lost > 10 && stale > 5, "{lost} lost, {stale} seen but not durable");
}

#[test]
fn a_full_device_refuses_writes_until_space_is_freed() {
    let device = Faulty::new(1);
    device.set_capacity(Some(10_000));
    let file = device.create("a", Access::Direct, 0).unwrap();
    write(&*file, 0, 2, 1).unwrap();
    let error = write(&*file, 8192, 1, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    let error = device.create("b", Access::Bytes, 4096).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(device.open("b", Access::Bytes).is_err(), "a refused file is not there");
    write(&*file, 0, 2, 2).unwrap();
    read(&*file, 4096).unwrap();
    // Within the reserved length a store cannot run out of space.
    let log = device.create("log", Access::Bytes, 1000).unwrap();
    log.store(0, &[1; 1000], Purpose::Log).unwrap();
    device.remove("a").unwrap();
    write(&*device.create("c", Access::Direct, 0).unwrap(), 0, 2, 1).unwrap();
    device.set_capacity(None);
    write(&*log, 0, 100, 1).unwrap();
}

#[test]
fn a_rule_strikes_matching_operations_after_its_count_and_as_often_as_it_says() {
    let device = Faulty::new(1);
    let (table, log) = (synced_page(&device, "1.table"), synced_page(&device, "1.log"));
    let rule = Rule::new(OpKind::Read, Fault::Io).name("table").purpose(Purpose::Data);
    device.inject(rule.after(1).times(2)).unwrap();
    read(&*log, 0).unwrap();
    table.read(0, Buf::pages(1), Purpose::Scrub).1.unwrap();
    read(&*table, 0).unwrap();
    for _ in 0..2 {
        let error = read(&*table, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("1.table"), "{error}");
    }
    read(&*table, 0).unwrap();
    assert_eq!(device.struck(), 2);

    // The rules apply to queues too.
    device.inject(Rule::new(OpKind::Read, Fault::Io)).unwrap();
    let mut queue = device.queue(1).unwrap();
    let op = Op::Read { at: 0, buf: Buf::pages(1) };
    let request = crate::Request { file: table, op, purpose: Purpose::Data, token: 1 };
    queue.submit(request).unwrap();
    let mut out = Vec::new();
    queue.complete(1, &mut out).unwrap();
    assert!(out[0].result.is_err());

    for nonsense in [
        Rule::new(OpKind::Read, Fault::Torn),
        Rule::new(OpKind::Sync, Fault::NoSpace),
        Rule::new(OpKind::Names, Fault::Io).purpose(Purpose::Log),
    ] {
        assert_eq!(device.inject(nonsense).unwrap_err().kind(), ErrorKind::Invalid);
    }
    device.inject(Rule::new(OpKind::Names, Fault::Io).times(9)).unwrap();
    assert!(device.create("x", Access::Bytes, 0).is_err() && device.remove("1.log").is_err());
    device.heal();
    device.remove("1.log").unwrap();
}

#[test]
fn each_kind_of_write_fault_leaves_its_content() {
    let device = Faulty::new(3);
    let (a, b) = (synced_page(&device, "a"), synced_page(&device, "b"));
    let bad = |fault, byte| {
        device.inject(Rule::new(OpKind::Write, fault).name("a")).unwrap();
        write(&*a, 0, 1, byte)
    };
    bad(Fault::Lost, 2).unwrap();
    assert_eq!(read(&*a, 0).unwrap()[..], [1; 4096]);

    bad(Fault::Misdirected { name: Some("b".to_owned()), at: 0 }, 3).unwrap();
    assert_eq!((read(&*a, 0).unwrap()[0], read(&*b, 0).unwrap()[0]), (1, 3));
    bad(Fault::Misdirected { name: None, at: 4096 }, 4).unwrap();
    assert_eq!((read(&*a, 0).unwrap()[0], read(&*a, 4096).unwrap()[0]), (1, 4));

    bad(Fault::Torn, 5).unwrap();
    let torn: BTreeSet<u8> = read(&*a, 0).unwrap().iter().copied().collect();
    assert_eq!(torn, [1, 5].into());

    bad(Fault::Flip, 6).unwrap();
    let bits: u32 = read(&*a, 0).unwrap().iter().map(|byte| (byte ^ 6).count_ones()).sum();
    assert_eq!(bits, 1);
    device.inject(Rule::new(OpKind::Read, Fault::Flip)).unwrap();
    let first = read(&*b, 0).unwrap();
    assert_ne!(first[..], read(&*b, 0).unwrap()[..], "the flip was in the buffer, not at rest");

    assert_eq!(bad(Fault::NoSpace, 7).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(
        (read(&*a, 0).unwrap()[0], read(&*a, 0).unwrap()[2048]),
        (7, read(&*a, 0).unwrap()[4095])
    );
    assert_eq!(bad(Fault::Io, 8).unwrap_err().kind(), ErrorKind::Corrupt);

    device.inject(Rule::new(OpKind::Sync, Fault::Lost)).unwrap();
    write(&*b, 0, 1, 9).unwrap();
    b.sync(Purpose::Flush).unwrap();
    let lied = (0..50).any(|seed| device.crash_image(seed).unwrap().content("b").unwrap()[0] != 9);
    assert!(lied, "a lost sync makes nothing durable");
}

#[test]
fn flipped_bits_stay_flipped() {
    let device = Faulty::new(1);
    let file = synced_page(&device, "a");
    device.flip("a", 700, 0x81).unwrap();
    assert_eq!(read(&*file, 0).unwrap()[700], 0x80);
    assert_eq!(device.crash_image(1).unwrap().content("a").unwrap()[700], 0x80);
    assert!(device.flip("a", 4096, 1).is_err() && device.flip("b", 0, 1).is_err());
}

#[test]
fn a_delay_waits_on_the_device_clock() {
    let clock = Arc::new(ManualClock::default());
    let device = Faulty::new(1).with_pace(Pace::manual(Arc::clone(&clock)));
    let file = synced_page(&device, "a");
    device.inject(Rule::new(OpKind::Read, Fault::Delay(Duration::from_millis(30)))).unwrap();
    assert_eq!(read(&*file, 0).unwrap()[0], 1);
    assert_eq!(clock.monotonic(), Duration::from_millis(30));
}

/// A toy log: each record is a page, synced before it counts as acknowledged. The first run counts the
/// crash points, later runs crash at each of them.
#[test]
fn a_script_can_be_crashed_at_each_sync_and_each_change() {
    fn script(device: &Faulty) -> u64 {
        let file = device.create("journal", Access::Direct, 0).unwrap();
        device.sync_names(&[]).unwrap();
        let mut acknowledged = 0;
        for record in 0..5u64 {
            write(&*file, record * 4096, 1, record as u8 + 1).unwrap();
            file.sync(Purpose::Log).unwrap();
            if !device.is_frozen() {
                acknowledged += 1;
            }
        }
        acknowledged
    }
    let counted = Faulty::new(1);
    assert_eq!(script(&counted), 5);
    assert_eq!((counted.syncs(), counted.changes()), (6, 6));
    let moments = (0..6).flat_map(|n| [Freeze::AtSync(n), Freeze::AtChange(n)]);
    for moment in moments {
        let device = Faulty::new(1);
        device.freeze(moment);
        let acknowledged = script(&device);
        assert!(device.is_frozen() && acknowledged < 5, "{moment:?}");
        let mut records = BTreeSet::new();
        for seed in 0..50 {
            let image = device.crash_image(seed).unwrap().content("journal").unwrap_or_default();
            let pages = image.chunks(4096).enumerate();
            let whole = pages.take_while(|(at, page)| page.iter().all(|b| *b == *at as u8 + 1));
            records.insert(whole.count() as u64);
        }
        // Every acknowledged record survives; at most the record in progress does besides.
        let most = if moment == Freeze::AtSync(0) || moment == Freeze::AtChange(0) { 0 } else { 1 };
        let expected: BTreeSet<u64> = (acknowledged..=acknowledged + most).collect();
        assert_eq!(records, expected, "{moment:?}");
        // A new device continues from the crash image.
        let next = Faulty::over(&device.crash_image(3).unwrap(), 9).unwrap();
        assert_eq!(next.list().unwrap(), device.crash_image(3).unwrap().list().unwrap());
    }
}

/// Synced content is durable under its second name once that name is durable.
#[test]
fn a_linked_file_survives_once_its_name_is_durable() {
    for seed in 0..50 {
        let (from, to) = (Faulty::new(seed), Faulty::new(seed + 1));
        let file = from.create("a", Access::Direct, 0).unwrap();
        let mut buf = Buf::pages(1);
        buf.fill(7);
        file.write(0, buf, Purpose::Flush).1.unwrap();
        file.sync(Purpose::Flush).unwrap();
        assert!(from.link("a", &to).unwrap());
        let early = to.crash_image(seed).unwrap().content("a");
        assert!(early.is_none_or(|content| content == [7; 4096]), "seed {seed}");
        to.sync_names(&[]).unwrap();
        from.remove("a").unwrap();
        let late = to.crash_image(seed).unwrap().content("a");
        assert_eq!(late, Some(vec![7; 4096]), "seed {seed}");
    }
}

/// As storage-class memory, an unsynced line survives, is lost, or is torn at its words; a fenced one
/// survives.
#[test]
fn each_unfenced_line_survives_or_is_torn_by_itself() {
    let device = Faulty::new(1).with_lines();
    let file = device.create("a", Access::Bytes, 4096).unwrap();
    file.store(0, &[1; 256], Purpose::Log).unwrap();
    file.sync(Purpose::Log).unwrap();
    device.sync_names(&[]).unwrap();
    file.store(64, &[2; 256], Purpose::Log).unwrap();
    let (mut lost, mut kept, mut torn) = ([0; 4], [0; 4], [0; 4]);
    for seed in 0..3000 {
        let image = device.crash_image(seed).unwrap().content("a").unwrap();
        assert!(image[..64].iter().all(|byte| *byte == 1), "seed {seed}: a fenced line survives");
        assert!(image[320..].iter().all(|byte| *byte == 0), "seed {seed}");
        for (number, line) in image[64..320].chunks(64).enumerate() {
            let old = if number < 3 { 1 } else { 0 };
            let words: Vec<bool> = line.chunks(8).map(|word| word[0] == 2).collect();
            assert!(line.chunks(8).all(|word| word == [2; 8] || word == [old; 8]), "seed {seed}");
            match words.iter().filter(|is_new| **is_new).count() {
                0 => lost[number] += 1,
                8 => kept[number] += 1,
                _ => torn[number] += 1,
            }
        }
    }
    for counts in [lost, kept, torn] {
        assert!(counts.iter().all(|count| *count > 100), "{lost:?} {kept:?} {torn:?}");
    }
}
