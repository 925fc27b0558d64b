//! Every reader on small generated files, on damaged ones, and on the real traces in the folder that
//! `TERRACE_DATA` names.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;

use base::{ErrorKind, Rng};

use super::*;

fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let options = lzma_rust2::XzOptions::with_preset(1);
    let mut writer = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

fn read_all(format: Format, path: &Path) -> Result<Vec<Access>> {
    collected(format.open(path)?)
}

fn collected(mut trace: Box<dyn Trace>) -> Result<Vec<Access>> {
    let (mut access, mut all) = (Access::default(), Vec::new());
    while trace.next(&mut access)? {
        all.push(access.clone());
    }
    Ok(all)
}

fn number(access: &Access) -> u64 {
    u64::from_be_bytes(access.key[..].try_into().unwrap())
}

fn record(key: u64, size: u32) -> [u8; 24] {
    let mut record = [0xee; 24];
    record[4..12].copy_from_slice(&key.to_le_bytes());
    record[12..16].copy_from_slice(&size.to_le_bytes());
    record
}

#[test]
fn oracle_general_reads_objects_and_sizes() {
    let bytes = [record(1, 512), record(u64::MAX, 0), record(1, 70_000)].concat();
    let (_folder, path) = file("t.bin", &bytes);
    let all = read_all(Format::OracleGeneral, &path).unwrap();
    let seen: Vec<_> = all.iter().map(|access| (number(access), access.value_bytes)).collect();
    assert_eq!(seen, [(1, Some(512)), (u64::MAX, Some(0)), (1, Some(70_000))]);
    assert!(all.iter().all(|access| access.op == Op::GetOrPut));
}

#[test]
fn numeric_keys_are_big_endian() {
    let (_folder, path) = file("t", &[0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 7, 0xff, 0, 0, 1]);
    let keys =
        |format| -> Vec<u64> { read_all(format, &path).unwrap().iter().map(number).collect() };
    assert_eq!(keys(Format::U64Be), [0x102, 0x0000_0007_ff00_0001]);
    assert_eq!(keys(Format::U32), [0, 0x102, 7, 0xff00_0001]);
}

#[test]
fn lis_expands_ranges() {
    let (_folder, path) = file("t.lis", b"5 3 0 0\r\n\n9 0 0 1\n 18446744073709551614 1 0 2");
    let keys: Vec<u64> = read_all(Format::Lis, &path).unwrap().iter().map(number).collect();
    assert_eq!(keys, [5, 6, 7, u64::MAX - 1]);
}

#[test]
fn twitter_operations_become_accesses() {
    let text = "0,a,1,10,4,get,0\n0,b,c,3,0,4,gets,0\n1,a,1,20,4,set,60\n1,a,1,0,4,cas,9\n\
                2,a,1,5,4,incr,0\n3,a,1,0,4,delete,0\n";
    let (_folder, path) = file("t.csv", text.as_bytes());
    let all = read_all(Format::TwitterCsv, &path).unwrap();
    let seen: Vec<_> = all
        .iter()
        .map(|access| (access.op, std::str::from_utf8(&access.key).unwrap(), access.value_bytes))
        .collect();
    assert_eq!(
        seen,
        [
            (Op::GetOrPut, "a", Some(10)),
            (Op::GetOrPut, "b,c", None),
            (Op::Put, "a", Some(20)),
            (Op::Put, "a", Some(0)),
            (Op::Update, "a", Some(5)),
            (Op::Delete, "a", None),
        ]
    );
}

/// The extension names the compression; concatenated streams read as one.
#[test]
fn compressed_files_read_like_plain_ones() {
    let (mut rng, seed) = Rng::from_env();
    let mut bytes = vec![0; 400_000];
    rng.fill(&mut bytes);
    let (_plain_folder, path) = file("t", &bytes);
    let plain = read_all(Format::U64Be, &path).unwrap();
    assert_eq!(plain.len(), 50_000);
    let (_xz_folder, path) = file("t.xz", &[xz(&bytes[..160_000]), xz(&bytes[160_000..])].concat());
    assert_eq!(read_all(Format::U64Be, &path).unwrap(), plain, "TERRACE_SEED={seed}");
    let mut trace = Format::U64Be.open(&path).unwrap();
    while trace.next(&mut Access::default()).unwrap() {}
    let Position { done, total } = trace.position();
    assert_eq!((done, total), (path.metadata().unwrap().len(), done));
    #[cfg(feature = "zstd")]
    {
        let (_folder, path) = file("t.zst", &zstd::bulk::compress(&bytes, 1).unwrap());
        assert_eq!(read_all(Format::U64Be, &path).unwrap(), plain, "TERRACE_SEED={seed}");
    }
}

#[test]
fn an_error_names_the_place_of_damage() {
    for (format, bytes, place) in [
        (Format::OracleGeneral, &record(1, 1)[..23], "byte 0 of"),
        (Format::U64Be, &[0; 15][..], "byte 8 of"),
        (Format::U32, &[0; 6][..], "byte 4 of"),
        (Format::Lis, b"1 1 0 0\n1 x 0 0\n", "line 2 of"),
        (Format::Lis, b"1 99999999999 0 0\n", "line 1 of"),
        (Format::Lis, b"18446744073709551615 1 0 0\n", "line 1 of"),
        (Format::Lis, b"1 1 0\n", "line 1 of"),
        (Format::Lis, b"1 1 0 0 0\n", "line 1 of"),
        (Format::TwitterCsv, b"0,a,1,1,1,get,0\n0,a,1,1,get,0\n", "line 2 of"),
        (Format::TwitterCsv, b"0,a,1,1,1,steal,0\n", "line 1 of"),
        (Format::TwitterCsv, b"0,,0,1,1,get,0\n", "line 1 of"),
        (Format::TwitterCsv, b"\xff\xfe\n", "line 1 of"),
    ] {
        let (_folder, path) = file("t", bytes);
        let error = read_all(format, &path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.place().unwrap().contains(place), "{error}");
        assert!(error.to_string().len() < 400, "{error}");
    }
    let (_folder, path) = file("t", &vec![b'7'; 1 << 20]);
    assert_eq!(read_all(Format::Lis, &path).unwrap_err().kind(), ErrorKind::Corrupt);
    let folder = path.parent().unwrap();
    assert_eq!(read_all(Format::Lis, folder).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(read_all(Format::Lis, &folder.join("no")).unwrap_err().kind(), ErrorKind::Invalid);
}

/// Whatever the bytes, a reader ends with accesses or an error. Compressed input is damaged after
/// compression, so that the damage reaches the decoders.
#[test]
fn garbage_never_panics() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let plain = b"7 2 0 0\n9 1 0 1\n".repeat(200);
    let packed = xz(&plain);
    #[cfg(feature = "zstd")]
    let zipped = zstd::bulk::compress(&plain, 1).unwrap();
    for turn in 0..600 {
        let mut noise = vec![0; rng.below(300) as usize];
        rng.fill(&mut noise);
        let (name, bytes) = match turn % 3 {
            0 => ("t", noise),
            1 => ("t.xz", mangled(&packed, &mut rng)),
            #[cfg(feature = "zstd")]
            _ => ("t.zst", mangled(&zipped, &mut rng)),
            #[cfg(not(feature = "zstd"))]
            _ => ("t", mangled(&plain, &mut rng)),
        };
        for format in Format::ALL {
            let source = Box::new(std::io::Cursor::new(bytes.clone()));
            if let Err(error) = format.read(name, source).and_then(collected) {
                let kind = error.kind();
                assert!(matches!(kind, ErrorKind::Corrupt | ErrorKind::Invalid), "{error}");
            }
        }
    }
}

fn mangled(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=rng.below(3) {
        let at = rng.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << rng.below(8);
    }
    if rng.one_in(2) {
        bytes.truncate(rng.below(bytes.len() as u64) as usize);
    }
    bytes
}

fn ycsb(text: &str, size: YcsbSize) -> (Vec<Access>, Vec<Access>) {
    let (_folder, path) = file("workload", text.as_bytes());
    let mut trace = open_ycsb(&path, size, 1).unwrap();
    let mut access = Access::default();
    let (mut loaded, mut run) = (Vec::new(), Vec::new());
    while trace.load(&mut access).unwrap() {
        loaded.push(access.clone());
    }
    while trace.next(&mut access).unwrap() {
        run.push(access.clone());
    }
    (loaded, run)
}

/// The mix is that of the file, records exist before they are accessed, and the load phase puts each record
/// once.
#[test]
fn ycsb_generates_the_mix_of_its_file() {
    let text = "recordcount=500\noperationcount=20000\nreadproportion=0.4\nupdateproportion=0.2\n\
                insertproportion=0.1\nscanproportion=0.2\nreadmodifywriteproportion=0.1\n\
                requestdistribution=zipfian\nmaxscanlength=10\nfieldlength=7\n";
    let (loaded, run) = ycsb(text, YcsbSize::default());
    let mut known: BTreeSet<Vec<u8>> = loaded.iter().map(|access| access.key.clone()).collect();
    assert_eq!((loaded.len(), known.len()), (500, 500));
    assert!(loaded.iter().all(|access| access.op == Op::Put && access.value_bytes == Some(70)));
    let (mut ops, mut inserts) = (BTreeMap::new(), 0);
    for access in &run {
        let op = match access.op {
            Op::Scan(length) => {
                assert!((1..=10).contains(&length));
                "scan"
            }
            Op::Put if known.insert(access.key.clone()) => {
                inserts += 1;
                "insert"
            }
            Op::Put => "update",
            Op::Get => "read",
            Op::Update => "modify",
            other => panic!("{other:?}"),
        };
        assert!(known.contains(&access.key), "{access:?} was not inserted yet");
        *ops.entry(op).or_insert(0) += 1;
    }
    assert_eq!(run.len(), 20_000);
    assert!(inserts > 1500);
    for (op, expected) in
        [("read", 8000), ("update", 4000), ("insert", 2000), ("scan", 4000), ("modify", 2000)]
    {
        assert!(i32::abs_diff(ops[op], expected) < 400, "{ops:?}");
    }
}

#[test]
fn ycsb_keys_and_sizes_are_those_of_ycsb() {
    let size = YcsbSize { records: Some(3), operations: Some(5) };
    let (loaded, run) = ycsb("recordcount=9\nreadproportion=1\nupdateproportion=0\n", size);
    assert_eq!((loaded.len(), run.len()), (3, 5));
    assert_eq!(loaded[0].value_bytes, Some(1000));
    // The key of the first record of every YCSB load with hashed inserts.
    assert_eq!(loaded[0].key, b"user6284781860667377211");
    let (ordered, _) = ycsb("insertorder=ordered\nzeropadding=5\n", size);
    assert_eq!(ordered[2].key, b"user00002");
}

#[test]
fn ycsb_latest_follows_the_inserts() {
    let text = "insertorder=ordered\nzeropadding=12\nreadproportion=0.5\nupdateproportion=0\n\
                insertproportion=0.5\nrequestdistribution=latest\n";
    let size = YcsbSize { records: Some(1000), operations: Some(50_000) };
    let (_, run) = ycsb(text, size);
    let late = &run[40_000..];
    let reads: Vec<_> = late.iter().filter(|access| access.op == Op::Get).collect();
    let old = reads.iter().filter(|access| access.key < b"user000000001000".to_vec()).count();
    assert!(old * 5 < reads.len(), "{old} of {} reads ask for the first records", reads.len());
}

#[test]
fn the_extension_names_the_format() {
    for (name, format) in [
        ("OLTP.lis.zst", Format::Lis),
        ("a/cloudPhysicsIO.oracleGeneral.bin", Format::OracleGeneral),
        ("w.oracleGeneral.xz", Format::OracleGeneral),
        ("zipfian.u64be.xz", Format::U64Be),
        ("web.u32", Format::U32),
        ("cluster52.csv.zst", Format::TwitterCsv),
        ("a.ycsb", Format::Ycsb),
    ] {
        assert_eq!(Format::of_name(Path::new(name)).unwrap(), format, "{name}");
    }
    for name in ["web07.trace.xz", "lis", "", "x.bin", "u32.xz"] {
        let error = Format::of_name(Path::new(name)).unwrap_err().to_string();
        assert!(error.contains("--format"), "{name}: {error}");
    }
}

#[test]
fn ycsb_refuses_workloads_that_it_cannot_run() {
    for text in [
        "requestdistribution=hotspot\n",
        "recordcount=many\n",
        "recordcount=0\n",
        "readproportion=2\n",
        "readproportion=0\nupdateproportion=0\n",
        "readproportion=NaN\n",
        "fieldlength=99999999999\n",
    ] {
        let (_folder, path) = file("workload", text.as_bytes());
        let error = Format::Ycsb.open(&path).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{text}: {error}");
    }
}

/// The public traces as a whole, against counts and sizes from other tools.
#[test]
fn real_traces_read_to_their_end() {
    let Some(data) = std::env::var_os("TERRACE_DATA").map(PathBuf::from) else {
        println!("skipped: set TERRACE_DATA to a folder with traces/ and ycsb/ to run this test");
        return;
    };
    for (name, format, accesses, distinct) in REAL_TRACES {
        if !cfg!(feature = "zstd") && name.ends_with(".zst") {
            continue;
        }
        let path = data.join("traces").join(name);
        let mut trace = format.open(&path).unwrap();
        let (mut access, mut count, mut keys) = (Access::default(), 0, BTreeSet::new());
        while trace.next(&mut access).unwrap() {
            count += 1;
            keys.insert(number(&access));
        }
        assert_eq!((count, keys.len()), (accesses, distinct), "{name}");
    }
    for workload in ["a", "b", "c", "d", "e", "f"] {
        let path = data.join("ycsb").join(format!("workload{workload}"));
        assert_eq!(read_all(Format::Ycsb, &path).unwrap().len(), 1000, "{workload}");
    }
}

const REAL_TRACES: [(&str, Format, u64, usize); 5] = [
    ("scarab-recs.trace.xz", Format::U64Be, 1_245_184, 258_368),
    ("web07.trace.xz", Format::U32, 76_118, 20_484),
    ("OLTP.lis.zst", Format::Lis, 914_145, 186_880),
    ("P3.lis.zst", Format::Lis, 3_912_296, 762_543),
    ("cloudPhysicsIO.oracleGeneral.bin", Format::OracleGeneral, 113_872, 48_974),
];
