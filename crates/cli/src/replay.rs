//! `terrace replay`.

use terracedb::{Error, Result};
use workload::replay::{Options, run as replay};
use workload::trace::{Format, Trace, YcsbSize, open_ycsb};

use crate::engine::EngineStore;
use crate::output::Output;
use crate::progress::Progress;
use crate::{Outcome, args, stats};

pub(crate) fn run(args: args::Replay) -> Result<Outcome> {
    let mut trace = open(&args)?;
    let store = EngineStore::open(args.data.as_deref(), None, &args.engine)?;
    let mut out = Output::new();
    if !args.json {
        out.line(store.banner())?;
        out.flush()?;
    }
    let options = Options { value_bytes: args.value_size, limit: args.limit, ..Options::default() };
    let progress = Progress::new("replay");
    let report = replay(store.engine(), &mut *trace, &options, &mut |tick| {
        progress.show(tick.done, tick.total);
    })?;
    drop(progress);
    if args.json {
        let line = serde_json::to_string(&report);
        out.line(line.map_err(|e| Error::invalid("report").caused_by(e))?)?;
    } else {
        out.line(&report)?;
    }
    out.flush()?;
    if let Some(path) = &args.stats {
        stats::save(store.engine().db(), path)?;
    }
    if report.figures.wrong > 0 {
        return Err(Error::corrupt("answers")
            .expected("every value its key's")
            .got(report.figures.wrong));
    }
    Ok(Outcome::Done)
}

/// The trace; a YCSB workload with the sizes asked for.
fn open(args: &args::Replay) -> Result<Box<dyn Trace>> {
    let args::Replay { records, operations, .. } = *args;
    let format = Format::asked_or_of_name(args.format, &args.file)?;
    if format == Format::Ycsb {
        return open_ycsb(&args.file, YcsbSize { records, operations }, args.seed);
    }
    for (flag, given) in [("--records", records), ("--operations", operations)] {
        if given.is_some() {
            return Err(Error::invalid(flag)
                .expected("--format ycsb: a recorded trace has its own length; --limit cuts it")
                .got(format_args!("--format {format}")));
        }
    }
    format.open(&args.file)
}
