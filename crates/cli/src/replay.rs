//! `terrace replay`.

use terracedb::{Error, Result};
use workload::replay::{Options, run as replay};

use crate::engine::EngineStore;
use crate::progress::Progress;
use crate::{Outcome, args};

pub(crate) fn run(args: args::Replay) -> Result<Outcome> {
    let mut trace = args.format.open(&args.file)?;
    let store = EngineStore::open(args.data.as_deref(), None, &args.engine)?;
    if !args.json {
        println!("{}", store.banner());
    }
    let options = Options { value_bytes: args.value_size, limit: args.limit, ..Options::default() };
    let progress = Progress::new("replay");
    let report = replay(&store, &mut *trace, &options, &mut |tick| {
        progress.show(tick.done, tick.total);
    })?;
    drop(progress);
    if args.json {
        let line = serde_json::to_string(&report);
        println!("{}", line.map_err(|e| Error::invalid("report").caused_by(e))?);
    } else {
        println!("{report}");
    }
    if report.figures.wrong > 0 {
        return Err(Error::corrupt("answers")
            .expected("every value its key's")
            .got(report.figures.wrong));
    }
    Ok(Outcome::Done)
}
