//! Copies the golden files, as bytes, into the corpora of the targets that parse them. So every run
//! starts from valid input, and the seeds follow the formats.

use std::fs;
use std::path::Path;

/// Target, golden file, and number of bytes to skip at its start.
const SEEDS: &[(&str, &str, usize)] = &[
    ("batch", "base/golden/batch.hex", 0),
    ("batch", "base/golden/batch_kinds.hex", 0),
    ("dictionary", "table/golden/dictionary.hex", 0),
    ("dump", "tools/golden/dump.hex", 0),
    ("index_checkpoint", "tree/golden/index_checkpoint.hex", 0),
    ("hot_pages", "cache/golden/hot-pages.hex", 0),
    ("hot_pages", "cache/golden/hot-pages-1.hex", 0),
    // The target adds the frame to its input.
    ("job", "compact/golden/job.hex", 12),
    ("job", "compact/golden/outcome.hex", 12),
    ("job", "compact/golden/job-2.hex", 12),
    ("job", "compact/golden/outcome-2.hex", 12),
    // The Begin record, and the batch after it.
    ("log_record", "wal/golden/segment.hex", 4096),
    ("log_record", "wal/golden/segment.hex", 4096 + 37),
    ("log_device", "wal/golden/log-device.hex", 0),
    ("log_segment", "wal/golden/segment.hex", 0),
    ("log_segment", "wal/golden/segment_fenced.hex", 0),
    ("log_segment", "wal/golden/segment_gap.hex", 0),
    ("manifest_edits", "manifest/golden/manifest_placed.hex", 0),
    ("manifest_edits", "manifest/golden/manifest_reached.hex", 0),
    ("table_file", "table/golden/table.hex", 0),
    ("table_file", "table/golden/table_2.hex", 0),
    ("table_file", "table/golden/table_3.hex", 0),
    ("table_file", "table/golden/table_4.hex", 0),
    ("table_file", "table/golden/table_5.hex", 0),
    ("table_file", "table/golden/table_6.hex", 0),
    ("values_file", "table/golden/values.hex", 0),
];

/// A YCSB workload, and a line or record or two of the other trace formats, each after the byte that chooses
/// the format.
const TRACES: [(&str, &[u8]); 5] = [
    ("oracle", b"\0\x01\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"),
    ("lis", b"\x0110 3 0 1\n12 1 0 2\n"),
    ("u64be", b"\x02\0\0\0\0\0\0\0\x07"),
    ("twitter", b"\x040,key,3,100,1,get,0\n1,key,3,0,1,delete,0\n"),
    (
        "ycsb",
        b"\x05recordcount=5\noperationcount=9\nreadproportion=0.5\nscanproportion=0.5\n\
          requestdistribution=zipfian\n",
    ),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for &(target, golden, skipped) in SEEDS {
        let path = Path::new("../crates").join(golden);
        let mut bytes = golden_bytes(&path);
        bytes.drain(..skipped);
        // Trailing zeros only slow the fuzzer down.
        if !target.starts_with("table") && target != "values_file" {
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            bytes.truncate(used);
        }
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        if target == "table_file" {
            for (number, page) in bytes.chunks(4096).enumerate() {
                write("table_page", &format!("golden-{stem}-{number}"), page);
                write("table_block", &format!("golden-{stem}-{number}"), &page[24..]);
            }
        }
        write(target, &format!("golden-{stem}-{skipped}"), &bytes);
    }
    manifest(&golden_bytes(Path::new("../crates/manifest/golden/manifest.hex")));
    for (name, bytes) in TRACES {
        write("trace", name, bytes);
    }
}

/// Writes the seeds of the manifest. The golden file has one header and one record, without the gaps that a
/// manifest has between them.
fn manifest(golden: &[u8]) {
    let (header, record) = golden.split_at(40);
    let mut file = header.to_vec();
    file.resize(512, 0);
    file.extend_from_within(..512);
    file.extend_from_slice(record);
    write("manifest", "golden", &file);
    let length: [u8; 4] = record[4..8].try_into().expect("four bytes");
    write("manifest_edits", "golden", &record[24..24 + u32::from_le_bytes(length) as usize]);
}

fn golden_bytes(path: &Path) -> Vec<u8> {
    println!("cargo::rerun-if-changed={}", path.display());
    decode(&fs::read_to_string(path).expect("a golden file"))
}

fn write(target: &str, name: &str, bytes: &[u8]) {
    let folder = Path::new("corpus").join(target);
    fs::create_dir_all(&folder).expect("a corpus folder");
    fs::write(folder.join(name), bytes).expect("a seed");
}

/// The bytes of a golden file: hexadecimal words, `#` comments, and `N * XX` for a run of a byte.
fn decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some((count, byte)) = line.split_once(" * ") {
            let count: usize = count.parse().expect("a count");
            let byte = u8::from_str_radix(byte, 16).expect("two hexadecimal digits");
            bytes.resize(bytes.len() + count, byte);
            continue;
        }
        let digits: String = line.split_whitespace().collect();
        for pair in digits.as_bytes().chunks(2) {
            let pair = str::from_utf8(pair).expect("digits");
            bytes.push(u8::from_str_radix(pair, 16).expect("two hexadecimal digits"));
        }
    }
    bytes
}
