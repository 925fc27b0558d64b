//! Runs one case of the comparison on this engine alone, without building the other engines.
//!
//! `cargo run --release -p terrace-workload --example case -- NAME [full|quick|tiny] [DIR]`

use std::path::PathBuf;

use base::{Error, Result};
use terrace_workload::cases::{CASES, Case, Compression, Progress, Scale};
use terrace_workload::{Engine, Store};
use terracedb::{Codec, Db};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut arguments = arguments.iter().map(String::as_str);
    let Some(name) = arguments.next() else {
        for Case { name, summary, .. } in CASES {
            println!("{name:<17} {summary}");
        }
        return Ok(());
    };
    let case = Case::named(name)?;
    let scale = arguments.next().map_or(Ok(Scale::Quick), Scale::named)?;
    let scratch = tempfile::tempdir().map_err(|e| Error::io("create", "a directory", e))?;
    let dir = arguments.next().map_or_else(|| scratch.path().to_owned(), PathBuf::from);
    let codec = match case.compression {
        Compression::Lz4 => Codec::Lz4,
        Compression::Zstd => Codec::Zstd,
    };
    let open = || {
        let builder = Db::builder(&dir).memory(case.memory(scale, true)).codec(codec);
        builder.open().and_then(Engine::new)
    };
    if let Some(report) = case.load(&open()?, scale, 0)? {
        println!("{report}");
    }
    let mut wrong = 0;
    let mut reopen = || open().map(|engine| Box::new(engine) as Box<dyn Store>);
    case.run(&mut reopen, scale, 0, &mut |progress| {
        if let Progress::Ended(step, report, _) = progress {
            println!("{:<24} {report}", step.label);
            println!("{:<24} {:.2} s of CPU", "", report.figures.cpu_seconds);
            for (purpose, it) in &report.figures.device.by_purpose {
                let (read, written) = (it.read_bytes >> 20, it.write_bytes >> 20);
                println!("{:<24} {purpose}: {read} MiB read, {written} MiB written", "");
            }
            wrong += report.figures.wrong;
        }
    })?;
    if wrong > 0 {
        return Err(Error::corrupt("answers").expected("every value its key's").got(wrong));
    }
    Ok(())
}
