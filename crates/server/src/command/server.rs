//! Commands on the server: INFO, CONFIG, COMMAND, SLOWLOG, MEMORY, SHUTDOWN, and the store's own KV commands.

use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use super::keys::stored;
use crate::args;
use crate::keys::{DATABASES, now_ms};
use crate::reply::{Done, Fail, Reply};
use crate::session::Session;
use crate::spec::Spec;
use crate::value::Kind;

/// That the command has no such subcommand.
pub(super) fn unknown(command: &str, args: &[Vec<u8>]) -> Fail {
    Fail::unknown_subcommand(command, args.get(1).map_or(&[][..], Vec::as_slice))
}

pub(super) fn subcommand(args: &[Vec<u8>]) -> String {
    args.get(1).map_or_else(String::new, |arg| args::option(arg))
}

pub(crate) fn time(session: &mut Session, _args: &[Vec<u8>]) -> Done {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    session.reply.array(2);
    session.reply.bulk(since.as_secs().to_string());
    session.reply.bulk(since.subsec_micros().to_string());
    Ok(())
}

/// FUNCTION: there are no functions, so FLUSH and LIST have nothing to do.
pub(crate) fn function(session: &mut Session, args: &[Vec<u8>]) -> Done {
    match subcommand(args).as_str() {
        "FLUSH" => session.reply.ok(),
        "LIST" => session.reply.array(0),
        _ => return Err(Fail::new("ERR functions are not supported")),
    }
    Ok(())
}

pub(crate) fn role(session: &mut Session, _args: &[Vec<u8>]) -> Done {
    session.reply.array(3);
    session.reply.bulk("master");
    session.reply.integer(0);
    session.reply.array(0);
    Ok(())
}

pub(crate) fn info(session: &mut Session, args: &[Vec<u8>]) -> Done {
    let wanted: Vec<_> = args.iter().skip(1).map(|arg| args::option(arg)).collect();
    let is_wanted = |section: &str| {
        wanted.is_empty()
            || wanted.iter().any(|name| {
                matches!(name.as_str(), "ALL" | "DEFAULT" | "EVERYTHING") || name == section
            })
    };
    let mut text = String::new();
    for (section, lines) in [
        ("Server", server_info as fn(&Session) -> String),
        ("Clients", clients_info),
        ("Memory", memory_info),
        ("Persistence", persistence_info),
        ("Stats", stats_info),
        ("Replication", |_| "role:master\r\nconnected_slaves:0\r\n".to_owned()),
        ("Tiering", tiering_info),
        ("Databases", databases_info),
        ("Cluster", |_| "cluster_enabled:0\r\n".to_owned()),
        ("Keyspace", keyspace_info),
    ] {
        if is_wanted(&section.to_ascii_uppercase()) {
            let gap = if text.is_empty() { "" } else { "\r\n" };
            // Writing to a string cannot fail.
            let _written = write!(text, "{gap}# {section}\r\n{}", lines(session));
        }
    }
    session.reply.bulk(text);
    Ok(())
}

fn server_info(session: &Session) -> String {
    let up = session.shared.started.elapsed().as_secs();
    format!(
        "redis_version:7.0.15\r\nterracedb_version:{}\r\nredis_mode:standalone\r\n\
         os:Linux\r\narch_bits:64\r\n\
         process_id:{}\r\ntcp_port:{}\r\nuptime_in_seconds:{up}\r\nuptime_in_days:{}\r\n",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        session.shared.config.listen.port(),
        up / 86_400,
    )
}

fn clients_info(session: &Session) -> String {
    let shared = &session.shared;
    format!(
        "connected_clients:{}\r\nmaxclients:{}\r\nblocked_clients:{}\r\n",
        shared.clients.count(),
        shared.config.clients_max,
        shared.waiters.count(),
    )
}

fn memory_info(session: &Session) -> String {
    let memory = session.shared.keys.db.statistics().memory;
    let mut text = format!(
        "used_memory:{}\r\nused_memory_human:{}\r\nmaxmemory:{}\r\nmaxmemory_human:{}\r\n\
         maxmemory_policy:{}\r\n",
        memory.used,
        terracedb::stats::format_bytes(memory.used),
        memory.limit,
        terracedb::stats::format_bytes(memory.limit),
        session
            .shared
            .keys
            .space(session.database)
            .map_or("noeviction", |space| space.kind.policy()),
    );
    for component in &memory.components {
        let name = component.name.replace(' ', "_");
        let _written = write!(text, "used_memory_{name}:{}\r\n", component.used);
    }
    text
}

fn persistence_info(session: &Session) -> String {
    let statistics = session.shared.keys.db.statistics();
    format!(
        "loading:0\r\naof_enabled:1\r\nappendfsync:{}\r\nrdb_bgsave_in_progress:0\r\n\
         rdb_last_save_time:{}\r\n\
         log_bytes:{}\r\nwrites_refused:{}\r\n",
        session.shared.config.append_fsync.name(),
        session.shared.last_save.load(Ordering::Relaxed),
        statistics.log_bytes,
        u8::from(statistics.poisoned.is_some()),
    )
}

fn stats_info(session: &Session) -> String {
    let (counts, keys) = (&session.shared.counts, &session.shared.keys);
    let statistics = keys.db.statistics();
    let evicted = statistics.keyspaces.iter().map(|own| own.evicted_entries).sum::<u64>();
    let hits = statistics.hits;
    let found = hits.memtable + hits.row + hits.page + hits.scm + hits.flash;
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    format!(
        "total_connections_received:{}\r\ntotal_commands_processed:{}\r\ntotal_net_input_bytes:{}\r\n\
         total_net_output_bytes:{}\r\nrejected_connections:{}\r\nexpired_keys:{}\r\n\
         evicted_keys:{evicted}\r\n\
         keyspace_hits:{found}\r\n\
         keyspace_misses:{}\r\ntotal_error_replies:{}\r\nclient_output_buffer_limit_disconnections:{}\r\n\
         pubsub_patterns:{}\r\n",
        load(&counts.connections),
        load(&counts.commands),
        load(&counts.input_bytes),
        load(&counts.output_bytes),
        load(&counts.rejected),
        load(&keys.expired),
        hits.absent,
        load(&counts.failed),
        load(&counts.cut_off),
        session.shared.clients.patterns(),
    )
}

/// The databases that are not ordered: their kinds and evictions.
fn databases_info(session: &Session) -> String {
    let mut text = String::new();
    let statistics = session.shared.keys.db.statistics();
    for (number, space) in session.shared.keys.spaces().iter().enumerate() {
        if space.is_ordered() {
            continue;
        }
        let own = statistics.keyspaces.iter().find(|own| own.name == space.keyspace.name());
        let (entries, bytes) = own.map_or((0, 0), |own| (own.evicted_entries, own.evicted_bytes));
        let kind = space.kind.to_string().replace(' ', "");
        let _written = write!(
            text,
            "database{number}:kind={kind},policy={},evicted_keys={entries},evicted_bytes={bytes}\r\n",
            space.kind.policy(),
        );
    }
    text
}

fn tiering_info(session: &Session) -> String {
    let statistics = session.shared.keys.db.statistics();
    let hits = &statistics.hits;
    format!(
        "hits_memtable:{}\r\nhits_row:{}\r\nhits_page:{}\r\nhits_scm:{}\r\nhits_flash:{}\r\n\
         compaction_debt_bytes:{}\r\n",
        hits.memtable, hits.row, hits.page, hits.scm, hits.flash, statistics.compaction.debt_bytes
    )
}

fn keyspace_info(session: &Session) -> String {
    let mut text = String::new();
    for database in 0..DATABASES {
        let count = session.shared.keys.count(database);
        if count > 0 {
            let _written = write!(text, "db{database}:keys={count},expires=0,avg_ttl=0\r\n");
        }
    }
    text
}

fn describe(reply: &mut Reply, spec: &Spec) {
    reply.array(10);
    reply.bulk(spec.name);
    reply.integer(spec.arity);
    let flags: Vec<_> = spec.flags.iter().filter(|flag| REDIS_FLAGS.contains(*flag)).collect();
    reply.array(flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
    let (first, last, step) = spec.keys;
    [first, last, step].into_iter().for_each(|number| reply.integer(number));
    let categories: Vec<_> = [
        ("write", "@write"),
        ("readonly", "@read"),
        ("admin", "@admin"),
        ("pubsub", "@pubsub"),
        ("fast", "@fast"),
    ]
    .into_iter()
    .filter(|(flag, _)| spec.has(flag))
    .collect();
    reply.array(categories.len());
    categories.iter().for_each(|(_, category)| reply.simple(category));
    // Tips, key specifications and subcommands: none.
    (0..3).for_each(|_| reply.array(0));
}

/// The flags of Redis among those of the table.
const REDIS_FLAGS: [&str; 9] =
    ["write", "readonly", "denyoom", "fast", "admin", "pubsub", "noscript", "loading", "no_auth"];

pub(crate) fn command(session: &mut Session, args: &[Vec<u8>]) -> Done {
    let rest = args.get(2..).unwrap_or_default();
    let (table, reply) = (session.table, &mut session.reply);
    match (subcommand(args).as_str(), rest) {
        ("", _) => {
            reply.array(table.commands.len());
            table.commands.iter().for_each(|spec| describe(reply, spec));
        }
        ("COUNT", []) => reply.count(table.commands.len()),
        ("LIST", []) => {
            reply.bulks(&table.commands.iter().map(|spec| spec.name).collect::<Vec<_>>())
        }
        ("INFO", names) => {
            let specs: Vec<_> = match names {
                [] => table.commands.iter().map(Some).collect(),
                names => names.iter().map(|name| table.find(name)).collect(),
            };
            reply.array(specs.len());
            for spec in specs {
                match spec {
                    Some(spec) => describe(reply, spec),
                    None => reply.null_array(),
                }
            }
        }
        ("DOCS", names) => {
            let known = names.iter().filter_map(|name| table.find(name));
            let specs: Vec<_> =
                if names.is_empty() { table.commands.iter().collect() } else { known.collect() };
            reply.map(specs.len());
            for spec in specs {
                reply.bulk(spec.name);
                reply.map(1);
                reply.bulk("arity");
                reply.integer(spec.arity);
            }
        }
        ("GETKEYS", [name, ..]) => {
            let spec =
                table.find(name).ok_or_else(|| Fail::new("ERR Invalid command specified"))?;
            if !spec.takes(rest.len()) {
                return Err(Fail::new("ERR Invalid number of arguments specified for command"));
            }
            let keys = spec.keys_of(rest);
            if keys.is_empty() {
                return Err(Fail::new("ERR The command has no key arguments"));
            }
            reply.bulks(&keys);
        }
        _ => return Err(unknown("COMMAND", args)),
    }
    Ok(())
}

/// The option SAMPLES of MEMORY USAGE, which changes nothing: the sizes of rows are averaged over a hundred.
fn check_samples(options: &[Vec<u8>]) -> Done {
    match options {
        [] => Ok(()),
        [name, count] if args::option(name) == "SAMPLES" => args::positive(count).map(drop),
        _ => Err(Fail::syntax()),
    }
}

/// The flags of a saving command, of which none changes a flush.
fn check_options(args: &[Vec<u8>], known: &[&str]) -> Done {
    for arg in args.iter().skip(1) {
        if !known.contains(&args::option(arg).as_str()) {
            return Err(Fail::syntax());
        }
    }
    Ok(())
}

pub(crate) fn memory(session: &mut Session, args: &[Vec<u8>]) -> Done {
    match (subcommand(args).as_str(), args.get(2)) {
        ("USAGE", Some(key)) => {
            let key = stored(session, key);
            check_samples(args.get(3..).unwrap_or_default())?;
            let mut unit = crate::unit::Unit::reading(&session.shared.keys, false);
            match unit.get(&key)? {
                Some(value) => session.reply.count(unit.stored_bytes(&key, &value)?),
                None => session.reply.null(),
            }
            Ok(())
        }
        _ => Err(unknown("MEMORY", args)),
    }
}

pub(crate) fn bgsave(session: &mut Session, args: &[Vec<u8>]) -> Done {
    check_options(args, &["SCHEDULE"])?;
    session.shared.keys.db.flush()?;
    session.shared.last_save.store(now_ms() / 1000, Ordering::Relaxed);
    session.reply.simple("Background saving started");
    Ok(())
}

pub(crate) fn save(session: &mut Session, _args: &[Vec<u8>]) -> Done {
    session.shared.keys.db.flush()?;
    session.shared.last_save.store(now_ms() / 1000, Ordering::Relaxed);
    session.reply.ok();
    Ok(())
}

pub(crate) fn lastsave(session: &mut Session, _args: &[Vec<u8>]) -> Done {
    let last = session.shared.last_save.load(Ordering::Relaxed);
    session.reply.integer(i64::try_from(last).unwrap_or(i64::MAX));
    Ok(())
}

pub(crate) fn shutdown(session: &mut Session, args: &[Vec<u8>]) -> Done {
    if args.get(1).is_some_and(|arg| args::option(arg) == "ABORT") {
        // A shutdown waits for nothing, so none is ever in progress here.
        return Err(match args.len() {
            2 => Fail::new("ERR No shutdown in progress."),
            _ => Fail::syntax(),
        });
    }
    // The store is always closed whole: nothing is left unsaved, and nothing is written twice.
    check_options(args, &["SAVE", "NOSAVE", "NOW", "FORCE"])?;
    let has = |name: &str| args.iter().any(|arg| args::option(arg) == name);
    if has("SAVE") && has("NOSAVE") {
        return Err(Fail::syntax());
    }
    session.is_closing = true;
    session.shared.stop();
    Ok(())
}

/// KV.COMPACT: compacts the store, and replies when that is done.
pub(crate) fn kv_compact(session: &mut Session, _args: &[Vec<u8>]) -> Done {
    session.shared.keys.db.compact()?;
    session.reply.ok();
    Ok(())
}

/// KV.SCAN start end [COUNT n]: keys of strings and their values in key order, from `start` (`-`: the
/// first) up to `end`, which is not part of the range (`+`: none).
pub(crate) fn kv_scan(session: &mut Session, args: &[Vec<u8>]) -> Done {
    let (Some(start), Some(end)) = (args.get(1), args.get(2)) else { return Err(Fail::syntax()) };
    let count = match args.get(3..).unwrap_or_default() {
        [] => 100,
        [name, count] if args::option(name) == "COUNT" => {
            let count = usize::try_from(args::integer(count)?).ok().filter(|count| *count > 0);
            count.ok_or_else(Fail::syntax)?.min(10_000)
        }
        _ => return Err(Fail::syntax()),
    };
    let start = if start == b"-" { vec![session.database] } else { stored(session, start) };
    let end = if end == b"+" { vec![session.database + 1] } else { stored(session, end) };
    let (mut found, now, mut bytes) = (Vec::new(), now_ms(), 0);
    let mut from = Some(start);
    while let Some(start) = from.take().filter(|start| *start < end) {
        let (page, next) =
            session.shared.keys.page(&start, count.clamp(1, 1000), now, Some(Kind::String))?;
        let mut unit = crate::unit::Unit::reading(&session.shared.keys, false);
        from = next;
        for key in page {
            if key >= end || found.len() == count || bytes > 16 << 20 {
                from = None;
                break;
            }
            // The key may have another type since it was listed.
            if let Some(value) = unit.get(&key)?.filter(|value| value.kind == Kind::String) {
                bytes += key.len() + value.bytes.len();
                found.push((key, value.bytes));
            }
        }
    }
    session.reply.array(2 * found.len());
    for (key, value) in found {
        session.reply.bulk(key.get(1..).unwrap_or_default());
        session.reply.bulk(value);
    }
    Ok(())
}
