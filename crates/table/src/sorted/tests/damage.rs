use super::*;

/// A small table with everything: several partitions, a run, versions, tombstones, range deletes.
pub(super) fn everything(codec: Codec) -> (Model, Vec<u8>) {
    let mut rng = Rng::new(11);
    let mut model = Model::new();
    for number in 0..4500u64 {
        let key = format!("key{number:06}").into_bytes();
        let mut value = vec![b'.'; if number == 2200 { 9000 } else { 10 }];
        let noise = value.len() / 2;
        rng.fill(&mut value[..noise]);
        if number % 10 == 3 {
            let delete = Trailer::new(Seqno::new(9000 + number), EntryKind::Delete);
            model.insert((key.clone(), Reverse(delete)), Vec::new());
        }
        model.insert((key, Reverse(put(number))), value);
    }
    for seqno in 0..2500 {
        model.insert((b"versions".to_vec(), Reverse(put(seqno))), vec![seqno as u8; 3]);
    }
    let memory = Arc::new(MemoryMedium::new());
    let shared: Arc<dyn Medium> = memory.clone();
    let mut writer = Writer::create(&shared, spec(codec), &Account::unlimited("test")).unwrap();
    for ((key, trailer), value) in &model {
        writer.add(key, trailer.0, value).unwrap();
    }
    writer.add_range_delete(b"a", b"b", &[Seqno::new(9)]).unwrap();
    writer.add_range_delete(b"x", b"y", &[Seqno::new(9), Seqno::new(4)]).unwrap();
    writer.finish().unwrap();
    (model, memory.content(&crate::file_name(TABLE)).unwrap())
}

pub(super) fn with_content(content: Vec<u8>) -> Arc<dyn Medium> {
    let memory = MemoryMedium::new();
    memory.insert(&crate::file_name(TABLE), content).unwrap();
    Arc::new(memory)
}

/// No page verifies with one of its bytes changed, or as another page (I8).
#[test]
fn a_checksum_covers_every_byte_and_the_page_number() {
    let (_, mut content) = everything(Codec::Lz4);
    let seed = base::PageSeed::new(STORE, TABLE);
    for (number, page) in (0..).zip(content.chunks_exact_mut(PAGE_BYTES)) {
        verify_page(seed, number, page).unwrap();
        assert!(verify_page(seed, number + 1, page).is_err());
        for at in 0..PAGE_BYTES {
            page[at] ^= 1 << (at % 8);
            assert!(verify_page(seed, number, page).is_err(), "byte {at} of page {number}");
            page[at] ^= 1 << (at % 8);
        }
    }
}

/// Whichever byte is flipped, every answer is correct or an error. Errors affect only keys of the
/// damaged page, keys of a metadata page's partition, and none for a page after the partitions. A check
/// finds the flip. `TERRACE_LONG` flips every byte; otherwise a sample.
#[test]
fn a_flipped_byte_costs_the_keys_of_its_page_and_no_answer_is_wrong() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let (model, content) = everything(Codec::Lz4);
    let keys: Vec<_> = model.iter().step_by(173).collect();
    let clean = open(&with_content(content.clone())).unwrap();
    assert!(clean.properties().meta_pages > 1 && clean.properties().runs > 0);
    let (mut whole, mut lost) = (0, 0);
    let step = if std::env::var_os("TERRACE_LONG").is_some() { 1 } else { 199 };
    for at in (0..content.len()).step_by(step) {
        let at = (at + rng.below(step as u64) as usize).min(content.len() - 1);
        let mut damaged = content.clone();
        damaged[at] ^= 1 << rng.below(8);
        let page = at / PAGE_BYTES;
        let location = format!("byte {} of page {page}", at % PAGE_BYTES);
        let medium = with_content(damaged);
        let table = open(&medium).unwrap_or_else(|error| panic!("{location}: {error}"));
        assert!(**table.range_deletes().unwrap() == **clean.range_deletes().unwrap(), "{location}");
        assert!(table.properties() == clean.properties(), "{location}");
        let on_page = clean.keys_on(page as u32).unwrap();
        let mut driver = Driver::new(&table);
        for ((key, trailer), value) in &keys {
            match driver.get(key, trailer.0) {
                Ok(Some((found, bytes))) => {
                    assert!(found == trailer.0 && bytes == **value, "{location}");
                }
                Ok(None) => panic!("{location} hides a version"),
                Err(error) => {
                    assert!(error.to_string().contains(&format!("page {page}")), "{error}");
                    let (from, to) =
                        on_page.as_ref().unwrap_or_else(|| panic!("{location}: {error}"));
                    assert!(key >= from && key <= to, "{location}: {error}");
                    lost += 1;
                }
            }
        }
        whole += usize::from(on_page.is_none());
        if on_page.is_none() || rng.one_in(10) {
            let report = table.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap();
            assert!(!report.is_clean(), "{location}");
            let damage = &report.listed[0];
            let reach = damage.page..damage.page + damage.pages;
            assert!(reach.contains(&(page as u32)), "{location}: {damage}");
        }
    }
    assert!(whole > 0 && lost > 0);
}

#[test]
fn a_truncated_or_foreign_file_is_refused_with_the_reason() {
    let (_, content) = everything(Codec::Lz4);
    for cut in 1..=content.len() / 512 {
        let medium = with_content(content[..content.len() - cut * 512].to_vec());
        assert!(open(&medium).is_err(), "{cut}");
    }
    assert!(open(&with_content(Vec::new())).is_err());
    assert!(open(&with_content(vec![0; 3 * PAGE_BYTES])).is_err());

    let medium = with_content(content.clone());
    let open_as = |store, table, bytes| {
        let account = Account::unlimited("test");
        let opened =
            Table::open(&*medium, store, table, bytes, None, Arc::new(NoDictionaries), &account);
        opened.map(drop).unwrap_err().to_string()
    };
    let error = open_as(StoreId(9), TABLE, None);
    assert!(error.contains("identity") && error.contains("of store"), "{error}");
    let error = open_as(STORE, TABLE, Some(4096));
    assert!(error.contains("length") && error.contains("expected 4096"), "{error}");
    let error = open_as(STORE, TableId(8), None);
    assert!(error.starts_with("invalid: "), "{error}");
    let other = MemoryMedium::new();
    other.insert(&crate::file_name(TableId(8)), content).unwrap();
    let account = Account::unlimited("test");
    let none = Arc::new(NoDictionaries);
    let error = Table::open(&other, STORE, TableId(8), None, None, none, &account).unwrap_err();
    assert!(error.to_string().contains("expected table 8"), "{error}");
}

/// A footer of a later version is not reported as damage, and the error has both versions.
#[test]
fn a_newer_format_is_refused_as_such() {
    let (_, mut content) = everything(Codec::None);
    let pages = content.len() / PAGE_BYTES;
    let (_, last) = content.split_at_mut((pages - 1) * PAGE_BYTES);
    let header = crate::page::Header::parse(last).unwrap();
    let mut footer = crate::page::payload(last, &header).unwrap().to_vec();
    footer[8..12].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
    let page = last.first_chunk_mut::<PAGE_BYTES>().unwrap();
    let seed = base::PageSeed::new(STORE, TABLE);
    crate::page::seal_page(page, seed, pages as u32 - 1, &header, &footer);
    let error = open(&with_content(content)).unwrap_err();
    assert_eq!(error.kind(), base::ErrorKind::Invalid);
    let error = error.to_string();
    assert!(error.contains("newer format") && error.contains("at most 6, got 7"), "{error}");
}

#[test]
fn a_sound_table_checks_clean_and_is_described() {
    for codec in codecs() {
        let (model, content) = everything(codec);
        let medium = with_content(content);
        let table = open(&medium).unwrap();
        let account = Account::unlimited("check");
        let mut last = (0, 0);
        let report = table.check(&account, &mut |done, total| last = (done, total)).unwrap();
        assert!(report.is_clean(), "{}", report.listed[0]);
        assert_eq!(report.entries, model.len() as u64);
        assert_eq!(last, (u64::from(report.pages), u64::from(report.pages)));
        assert_eq!(account.used(), 0);

        let mut lines = Vec::new();
        let name = crate::file_name(TABLE);
        describe(&*medium, &name, &account, true, &mut |fact| lines.push(fact.to_string()))
            .unwrap();
        let count = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
        assert_eq!(count("page "), report.pages as usize);
        assert_eq!(count("partition "), table.properties().meta_pages as usize);
        assert_eq!((count("table 7 of store"), count("damage")), (1, 0));
        assert_eq!(count("entries: 7450"), 1, "{lines:#?}");
    }
}

/// A check reports damage in several places, each with its key range, and reads the rest.
#[test]
fn a_check_continues_after_damage() {
    let (model, mut content) = everything(Codec::Lz4);
    let clean = open(&with_content(content.clone())).unwrap();
    let second = clean.top().unwrap().partition(1).unwrap();
    for page in [2, 5, second.meta_page as usize] {
        content[page * PAGE_BYTES + 1000] ^= 1;
    }
    let medium = with_content(content);
    let table = open(&medium).unwrap();
    let report = table.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap();
    let pages: Vec<u32> = report.listed.iter().map(|damage| damage.page).collect();
    assert_eq!(pages, [2, 5, second.meta_page]);
    assert!(report.entries > 0 && report.entries < model.len() as u64);
    // The reported key ranges contain exactly the unreadable keys. Exception: a key with versions on
    // both sides of a boundary is reported as a whole.
    let mut driver = Driver::new(&table);
    for ((key, trailer), _) in model.iter().filter(|((key, _), _)| key.starts_with(b"key")) {
        let lost = driver.get(key, trailer.0).is_err();
        let ranges = || report.listed.iter().filter_map(|damage| damage.keys.as_ref());
        let named = ranges().any(|(from, to)| key >= from && (key < to || to == b"versions"));
        let boundary = ranges().any(|(from, to)| key == from || key == to);
        assert!(lost == named || boundary, "{}: {lost} {named}", key.escape_ascii());
    }
    let mut lines = Vec::new();
    let (name, account) = (crate::file_name(TABLE), Account::unlimited("test"));
    describe(&*medium, &name, &account, true, &mut |fact| lines.push(fact.to_string())).unwrap();
    let damage = lines.iter().filter(|line| line.starts_with("damage: page ")).count();
    assert_eq!(damage, 4, "one metadata page twice, two data pages once");
}

/// Parsers of every part take random bytes.
#[test]
fn parsers_never_panic_on_random_bytes() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let (_, content) = everything(Codec::Lz4);
    for _ in 0..20_000 {
        let page = rng.below((content.len() / PAGE_BYTES) as u64) as usize;
        let mut page = content[page * PAGE_BYTES..(page + 1) * PAGE_BYTES].to_vec();
        for _ in 0..rng.below(8) {
            let at = match rng.below(3) {
                0 => rng.below(64),
                _ => rng.below(PAGE_BYTES as u64),
            };
            page[at as usize] = rng.next_u64() as u8;
        }
        if let Ok(meta) = MetaPage::parse(&page) {
            let _ = (meta.search(b"key000100", put(3)), meta.block_pages(2));
            let _ = meta.may_contain(3);
        }
        let _ = Footer::parse(&page, 29, 30);
        let account = Account::unlimited("test");
        let run = std::iter::once(&page[..]);
        if let Ok(bytes) = read::decode_run(run, 1, &NoDictionaries, &account)
            && let Ok(block) = block::Block::parse(&bytes, None)
        {
            let _ = block.get(b"key000100", put(3));
            let mut position = block::BlockPosition::new();
            let _ = position.last(block);
        }
        let payload = &page[24..];
        if let Ok(top) = top::Top::parse(payload) {
            let _ = (top.search(b"key000100", put(3)), top.check(9), top.partition(1));
        }
        let _ = Properties::decode(payload);
    }
}
