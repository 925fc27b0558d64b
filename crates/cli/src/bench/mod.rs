//! `terrace bench`.

mod tiers;
mod trace;

use terracedb::{Error, Result};
use workload::bench::{Bench, Event, Name, Options, Report};
use workload::trace::KeyTrace;

use crate::engine::EngineStore;
use crate::output::Output;
use crate::progress::Progress;
use crate::{Outcome, args};

pub(crate) use tiers::Args as Tiers;
pub(crate) use trace::Replayed;

pub(crate) fn run(args: args::Bench) -> Result<Outcome> {
    if let Some(args::BenchCommand::Tiers(args)) = &args.command {
        return tiers::run(args);
    }
    let trace = args.replayed.read()?;
    let options = options(&args, trace.as_ref());
    options.check()?;
    args.names.iter().try_for_each(|name| Bench::check(*name, &options, trace.as_ref()))?;
    let store = EngineStore::open(args.data.as_deref(), Some(args.existing), &args.engine)?;
    let mut bench = Bench::new(store.engine(), options)?;
    let mut out = Output::new();
    if !args.json {
        out.line(format_args!("{}, seed {}", store.banner(), args.seed))?;
        if let Some(trace) = &trace {
            let (accesses, distinct) = (trace.accesses(), trace.distinct());
            out.line(format_args!("trace of {accesses} accesses, {distinct} distinct keys"))?;
        }
        out.flush()?;
    }
    if let Some(trace) = trace {
        bench.replay(trace);
    }
    let mut wrong = 0;
    let last = args.verify.then_some(Name::Verify);
    for name in args.names.iter().copied().chain(last) {
        for name in bench.missing_load(name).into_iter().chain([name]) {
            let report = one(&mut bench, name, &args, &mut out)?;
            print(&mut out, &report, args.json)?;
            wrong += report.figures.wrong;
        }
    }
    if let Some(path) = &args.stats {
        crate::stats::save(store.engine().db(), path)?;
    }
    if wrong > 0 {
        return Err(Error::corrupt("answers").expected("every value its key's").got(wrong));
    }
    Ok(Outcome::Done)
}

fn options(args: &args::Bench, trace: Option<&KeyTrace>) -> Options {
    let first = args.names.first().map(|name| name.key_bytes());
    Options {
        num: args.num.or(trace.map(KeyTrace::distinct)).unwrap_or(Options::default().num),
        ops: args.ops.or(trace.map(KeyTrace::accesses)),
        key_bytes: args.key_size.or(first).unwrap_or(Options::default().key_bytes),
        value_bytes: args.value_size,
        compression_ratio: args.compression_ratio,
        threads: args.threads,
        depth: args.depth,
        entries: args.entries,
        batch: args.batch,
        duration: args.duration,
        rate: args.rate,
        write_rate: args.write_rate,
        report_interval: args.report_interval,
        settle: args.settle,
        distribution: args.distribution,
        sync: args.sync,
        existing: args.existing,
        seed: args.seed,
    }
}

/// Runs one workload, showing how it goes.
fn one(bench: &mut Bench<'_>, name: Name, args: &args::Bench, out: &mut Output) -> Result<Report> {
    let progress = Progress::new(name.name());
    let mut printed = Ok(());
    let report = bench.run(name, &mut |event| match event {
        Event::Tick(tick) => match (tick.total, args.duration) {
            (None, Some(duration)) => progress.show_time(tick.elapsed, duration),
            (total, _) => progress.show(tick.done, total),
        },
        Event::Interval(interval) => {
            if printed.is_ok() {
                printed = print(out, &interval, args.json);
            }
        }
    })?;
    printed.map(|()| report)
}

/// Prints at once: whoever reads along may wait for the next line for long.
fn print<T>(out: &mut Output, what: &T, json: bool) -> Result<()>
where
    T: std::fmt::Display + serde::Serialize,
{
    if json {
        let line = serde_json::to_string(what);
        out.line(line.map_err(|e| Error::invalid("report").caused_by(e))?)?;
    } else {
        out.line(what)?;
    }
    out.flush()
}
