//! `terrace bench`.

use terracedb::{Error, Result};
use workload::bench::{Bench, Options, Report};

use crate::engine::EngineStore;
use crate::output::Output;
use crate::progress::Progress;
use crate::{Outcome, args};

pub(crate) fn run(args: args::Bench) -> Result<Outcome> {
    let options = Options {
        num: args.num,
        key_bytes: args.key_size,
        value_bytes: args.value_size,
        compression_ratio: args.compression_ratio,
        threads: args.threads,
        depth: args.depth,
        duration: args.duration,
        distribution: args.distribution,
        sync: args.sync,
        existing: args.existing,
        seed: args.seed,
    };
    options.check()?;
    let store = EngineStore::open(args.data.as_deref(), Some(args.existing), &args.engine)?;
    let mut bench = Bench::new(&store, options)?;
    let mut out = Output::new();
    if !args.json {
        out.line(store.banner())?;
        out.flush()?;
    }
    let mut wrong = 0;
    for name in args.names {
        let progress = Progress::new(name.name());
        let report = bench.run(name, &mut |tick| match (tick.total, args.duration) {
            (None, Some(duration)) => progress.show_time(tick.elapsed, duration),
            (total, _) => progress.show(tick.done, total),
        })?;
        drop(progress);
        print(&mut out, &report, args.json)?;
        wrong += report.figures.wrong;
    }
    if wrong > 0 {
        return Err(Error::corrupt("answers").expected("every value its key's").got(wrong));
    }
    Ok(Outcome::Done)
}

/// One line for each workload, at once: whoever reads along may wait for the next for long.
fn print(out: &mut Output, report: &Report, json: bool) -> Result<()> {
    if json {
        let line = serde_json::to_string(report);
        out.line(line.map_err(|e| Error::invalid("report").caused_by(e))?)?;
    } else {
        out.line(report)?;
    }
    out.flush()
}
