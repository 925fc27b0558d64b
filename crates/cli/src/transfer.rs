//! `terrace import` and `terrace export`: data sets from and to Redis.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use base::format_count;
use clap::Subcommand;
use serde_json::json;
use server::transfer::{
    Source, SourceTls, Tally, export as write_commands, import_from, import_rdb,
};
use terracedb::{Error, Result};

use crate::config::{Config, Flags};
use crate::outcome::Outcome;
use crate::output::print_result;
use crate::progress::Progress;
use crate::shared_args::OutputArgs;
use crate::{interrupt, new_store, place};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    command: Option<ImportCommand>,
    #[arg(
        long,
        value_name = "URL",
        requires = "data",
        help = "A running server, read by SCAN and by type: \
                redis://[[USER:]PASSWORD@]HOST[:PORT][/DATABASE]; rediss:// is encrypted"
    )]
    from: Option<Source>,
    /// For rediss://: the authorities of the server's certificate, in PEM [default: those of the system]
    #[arg(long, value_name = "FILE", requires = "from")]
    tls_ca: Option<PathBuf>,
    /// For rediss://: the certificate to present, in PEM
    #[arg(long, value_name = "FILE", requires = "from", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// For rediss://: the private key of --tls-cert, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The store's directory; it is created if it is missing
    #[arg(long, value_name = "DIR", requires = "from", value_parser = place::store())]
    data: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Subcommand)]
enum ImportCommand {
    /// Add the keys of a dump file of Redis
    RedisRdb {
        /// The dump file, such as dump.rdb; `-` is standard input
        file: PathBuf,
        #[command(flatten)]
        target: Target,
    },
}

/// The store, and the output.
#[derive(Debug, clap::Args)]
struct Target {
    /// The store's directory; it is created if it is missing
    #[arg(long, value_name = "DIR", value_parser = place::store())]
    data: PathBuf,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// The store's directory
    #[arg(long, value_name = "DIR", value_parser = place::store())]
    data: PathBuf,
    /// The file to write; `-` is standard output
    file: PathBuf,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    output: OutputArgs,
}

/// Adds the keys of a dump file or of a server to a store. An import that fails or is interrupted leaves the
/// keys that it has added; it can be repeated.
///
/// # Errors
/// That the source is damaged or unreachable; those of the store.
pub(crate) fn import(args: &ImportArgs) -> Result<Outcome> {
    match (&args.command, &args.from, &args.data) {
        (Some(ImportCommand::RedisRdb { file, target }), ..) => {
            let (input, length) = open(file)?;
            let bar = Progress::of_bytes("import");
            let config = Config::of_store(&target.data, &target.flags)?;
            let tally = new_store::with_kept_writes(&config, |db| {
                let tally = import_rdb(db.clone(), input, |done| {
                    bar.show(done, length);
                    interrupt::check("import")
                });
                tally.map_err(|stopped| stopped.error("dump file", file.display()))
            });
            drop(bar);
            let tally = tally?;
            report(tally, &target.output)
        }
        (None, Some(from), Some(data)) => {
            let tls = SourceTls {
                authorities: args.tls_ca.clone(),
                own: args.tls_cert.clone().zip(args.tls_key.clone()),
            };
            if !from.is_encrypted() && (tls.authorities.is_some() || tls.own.is_some()) {
                return Err(
                    Error::invalid("--from").expected("rediss:// beside --tls-ca and --tls-cert")
                );
            }
            let bar = Progress::new("import");
            let tally = new_store::with_kept_writes(&Config::of_store(data, &args.flags)?, |db| {
                let tally = import_from(db.clone(), from, &tls, |done, total| {
                    bar.show(done, Some(total.max(done)));
                    interrupt::check("import")
                });
                tally.map_err(|stopped| stopped.error("import", "the source"))
            });
            drop(bar);
            report(tally?, &args.output)
        }
        _ => Err(Error::invalid("import").expected("redis-rdb FILE, or --from URL --data DIR")),
    }
}

/// Opens the dump file. Returns it with its length in bytes, `None` for a pipe.
fn open(path: &Path) -> Result<(Box<dyn Read>, Option<u64>)> {
    if path == Path::new("-") {
        return Ok((Box::new(BufReader::new(interrupt::Stdin::new())), None));
    }
    let refused = |error: std::io::Error| {
        Error::invalid("dump file").at(path.display()).expected("a readable file").got(error)
    };
    let file = File::open(path).map_err(refused)?;
    let length = file.metadata().map_err(refused)?;
    let length = length.is_file().then_some(length.len());
    Ok((Box::new(BufReader::with_capacity(1 << 20, file)), length))
}

fn report(tally: Tally, output: &OutputArgs) -> Result<Outcome> {
    let skipped: Vec<_> =
        tally.skipped.iter().map(|(kind, count)| format_count(*count, kind)).collect();
    let mut text = format!(
        "{} with {}, {} had expired",
        format_count(tally.keys, "key"),
        format_count(tally.elements, "element"),
        tally.expired
    );
    if !skipped.is_empty() {
        text += &format!("; left out, because this store has no such type: {}", skipped.join(", "));
    }
    let json = json!({
        "keys": tally.keys,
        "elements": tally.elements,
        "expired": tally.expired,
        "skipped": tally.skipped,
    });
    print_result(output.json, &json, &text)?;
    Ok(Outcome::Done)
}

/// Writes the keys of a store as commands of the Redis protocol.
///
/// # Errors
/// That the file cannot be written; those of the store.
pub(crate) fn export(args: &ExportArgs) -> Result<Outcome> {
    let db = Config::of_store(&args.data, &args.flags)?.open(false)?;
    let bar = Progress::new("export");
    if !db.keyspaces().iter().any(|keyspace| keyspace.name() == "redis.keys") {
        return Err(Error::not_found("data of a server").at(args.data.display()));
    }
    let progress = |done| {
        bar.show(done, None);
        interrupt::check("export")
    };
    let place = args.file.display();
    let io = |error| Error::io("write", "export", error);
    let exported = if args.file == Path::new("-") {
        write_commands(db, &mut BufWriter::new(std::io::stdout().lock()), progress)
    } else {
        let file = File::create(&args.file).map_err(io)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let exported = write_commands(db, &mut out, progress);
        if exported.is_ok() {
            out.flush().and_then(|()| out.get_ref().sync_all()).map_err(io)?;
        }
        exported
    };
    drop(bar);
    let exported = exported.map_err(|stopped| stopped.error("export", place))?;
    if args.file != Path::new("-") {
        let json = json!({ "keys": exported.keys, "commands": exported.commands });
        let text = format!(
            "{} in {}",
            format_count(exported.keys, "key"),
            format_count(exported.commands, "command")
        );
        print_result(args.output.json, &json, &text)?;
    }
    Ok(Outcome::Done)
}
