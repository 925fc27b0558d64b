//! CONFIG and SLOWLOG.

use std::sync::atomic::Ordering;

use super::server::{subcommand, unknown};
use crate::args;
use crate::glob;
use crate::keys::DATABASES;
use crate::reply::{Done, Fail};
use crate::session::Session;

/// The settings that CONFIG GET shows.
fn settings(session: &Session) -> Vec<(&'static str, String)> {
    let (config, db) = (&session.shared.config, &session.shared.keys.db);
    let (bind, port) = (config.listen.ip().to_string(), config.listen.port().to_string());
    // Of the database that the client has selected.
    let policy = session.shared.keys.space(session.database);
    let policy = policy.map_or("noeviction", |space| space.kind.policy());
    let acl_file = config.acl_file.as_ref().map(|path| path.display().to_string());
    let mut all = vec![
        ("aclfile", acl_file.unwrap_or_default()),
        ("appendfsync", config.append_fsync.name().to_owned()),
        ("appendonly", "yes".to_owned()),
        ("bind", bind),
        ("databases", DATABASES.to_string()),
        ("maxclients", config.clients_max.to_string()),
        ("maxmemory", db.settings().memory.to_string()),
        ("maxmemory-policy", policy.to_owned()),
        ("port", port),
        ("proto-max-bulk-len", crate::value::STRING_BYTES_MAX.to_string()),
        ("save", String::new()),
    ];
    let threshold_us = session.shared.slow_threshold_us.load(Ordering::Relaxed);
    all.push(("slowlog-log-slower-than", threshold_us.to_string()));
    all.push(("slowlog-max-len", session.shared.slow.lock().entries_max.to_string()));
    all.extend(session.shared.keys.limits.all());
    all
}

/// Checks a setting of CONFIG SET, and changes it if `is_checked`.
fn change(session: &Session, name: &str, value: &[u8], is_checked: bool) -> Done {
    let failed = |reason: &str| {
        Fail::new(format!(
            "ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"
        ))
    };
    let number =
        || args::integer(value).map_err(|_| failed("argument couldn't be parsed into an integer"));
    let in_range = |number: i64, least: i64, most: i64| {
        let is_in = (least..=most).contains(&number);
        let text = format!("argument must be between {least} and {most} inclusive");
        if is_in { Ok(number) } else { Err(failed(&text)) }
    };
    if let Some(limit) = session.shared.keys.limits.find(name) {
        let number = in_range(number()?, i64::from(i32::MIN), i64::MAX)?;
        if is_checked {
            limit.store(number, Ordering::Relaxed);
        }
        return Ok(());
    }
    match name {
        "slowlog-log-slower-than" => {
            let number = in_range(number()?, -1, i64::MAX)?;
            if is_checked {
                session.shared.slow_threshold_us.store(number, Ordering::Relaxed);
            }
            Ok(())
        }
        "slowlog-max-len" => {
            let number = in_range(number()?, 0, 10_000)?;
            if is_checked {
                session.shared.slow.lock().limit(usize::try_from(number).unwrap_or(0));
            }
            Ok(())
        }
        // A setting of the command line may be set to the value that it has.
        _ if settings(session)
            .iter()
            .any(|(known, now)| *known == name && now.as_bytes() == value) =>
        {
            Ok(())
        }
        _ if settings(session).iter().any(|(known, _)| *known == name) => {
            Err(failed("can't set immutable config"))
        }
        _ => Err(Fail::new(format!(
            "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
        ))),
    }
}

pub(crate) fn config(session: &mut Session, args: &[Vec<u8>]) -> Done {
    let rest = args.get(2..).unwrap_or_default();
    match (subcommand(args).as_str(), rest) {
        ("GET", [_, ..]) => {
            let mut found = settings(session);
            found.retain(|(name, _)| {
                rest.iter()
                    .any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
            });
            session.reply.map(found.len());
            for (name, value) in found {
                session.reply.bulk(name);
                session.reply.bulk(value);
            }
            Ok(())
        }
        ("SET", [_, _, ..]) if rest.len().is_multiple_of(2) => {
            // All of them, or none.
            for is_checked in [false, true] {
                for pair in rest.chunks(2) {
                    let [name, value] = pair else { continue };
                    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
                    change(session, &name, value, is_checked)?;
                }
            }
            session.reply.ok();
            Ok(())
        }
        ("RESETSTAT", []) => {
            let counts = &session.shared.counts;
            for counter in [
                &counts.connections,
                &counts.commands,
                &counts.failed,
                &counts.input_bytes,
                &counts.output_bytes,
                &counts.rejected,
                &counts.cut_off,
                &session.shared.keys.expired,
            ] {
                counter.store(0, Ordering::Relaxed);
            }
            session.reply.ok();
            Ok(())
        }
        ("REWRITE", []) => Err(Fail::new("ERR The server is running without a config file")),
        (name @ ("GET" | "SET" | "RESETSTAT" | "REWRITE"), _) => {
            Err(Fail::arity(&format!("config|{}", name.to_ascii_lowercase())))
        }
        _ => Err(unknown("CONFIG", args)),
    }
}

pub(crate) fn slowlog(session: &mut Session, args: &[Vec<u8>]) -> Done {
    let mut slow = session.shared.slow.lock();
    match (subcommand(args).as_str(), args.get(2)) {
        ("LEN", None) => session.reply.count(slow.entries.len()),
        ("RESET", None) => {
            slow.entries.clear();
            session.reply.ok();
        }
        ("GET", most) => {
            let most = most.map_or(Ok(10), |most| args::integer(most))?;
            let refused = || Fail::new("ERR count should be greater than or equal to -1");
            let most = match most {
                -1 => usize::MAX,
                most => usize::try_from(most).map_err(|_| refused())?,
            };
            session.reply.array(slow.entries.len().min(most));
            for entry in slow.entries.iter().take(most) {
                session.reply.array(6);
                session.reply.integer(entry.id as i64);
                session.reply.integer(entry.unix_s as i64);
                session.reply.integer(entry.took.as_micros() as i64);
                session.reply.bulks(&entry.args);
                session.reply.bulk(&entry.address);
                session.reply.bulk(&entry.name);
            }
        }
        ("HELP", None) => session.reply.bulks(&[
            "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "GET [<count>]",
            "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
            "LEN",
            "    Return the length of the slowlog.",
            "RESET",
            "    Reset the slowlog.",
            "HELP",
            "    Print this help.",
        ]),
        _ => return Err(unknown("SLOWLOG", args)),
    }
    Ok(())
}
