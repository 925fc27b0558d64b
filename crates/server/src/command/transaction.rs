//! MULTI, EXEC, DISCARD, WATCH and UNWATCH. The commands of an EXEC run under the locks of all their keys,
//! and their writes are one commit. A command that reads a whole database sees the writes before it: they are
//! committed first.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::keys::stored;
use crate::acl::Denied;
use crate::args;
use crate::reply::{Done, Fail};
use crate::session::{Queued, Session, held_bytes};
use crate::spec::Run;
use crate::unit::Unit;

pub(crate) fn multi(session: &mut Session, _args: &[Vec<u8>]) -> Done {
    if session.queued.is_some() {
        return Err(Fail::new("ERR MULTI calls can not be nested"));
    }
    session.queued = Some(Queued::new(&session.shared.keys.account));
    session.reply.ok();
    Ok(())
}

pub(crate) fn discard(session: &mut Session, _args: &[Vec<u8>]) -> Done {
    if session.queued.take().is_none() {
        return Err(Fail::new("ERR DISCARD without MULTI"));
    }
    session.unwatch();
    session.reply.ok();
    Ok(())
}

pub(crate) fn watch(session: &mut Session, args: &[Vec<u8>]) -> Done {
    if session.queued.is_some() {
        return Err(Fail::new("ERR WATCH inside MULTI is not allowed"));
    }
    for key in args.iter().skip(1) {
        let key = stored(session, key);
        if session.watched.contains(&key) {
            continue;
        }
        let shared = Arc::clone(&session.shared);
        let _held = shared.locks.lock(std::iter::once(&key));
        // A key that has expired is missing, and its removal no change.
        let mut unit = Unit::new(&shared.keys);
        unit.expire(&key)?;
        session.commit(&mut unit)?;
        if !session.watched_charge.try_grow(held_bytes(&key)) {
            return Err(Fail::no_memory());
        }
        shared.watches.watch(&key, &session.mark);
        session.watched.insert(key);
    }
    session.reply.ok();
    Ok(())
}

pub(crate) fn unwatch(session: &mut Session, _args: &[Vec<u8>]) -> Done {
    session.unwatch();
    session.reply.ok();
    Ok(())
}

pub(crate) fn exec(session: &mut Session, _args: &[Vec<u8>]) -> Done {
    let Some(queued) = session.queued.take() else {
        return Err(Fail::new("ERR EXEC without MULTI"));
    };
    if queued.is_broken {
        session.unwatch();
        return Err(Fail::new("EXECABORT Transaction discarded because of previous errors."));
    }
    let shared = Arc::clone(&session.shared);
    // A SELECT among the commands changes the database of the later ones: lock their keys in all that it may
    // be.
    let mut databases = vec![session.database];
    for (spec, request) in &queued.requests {
        if spec.name == "select"
            && let Some(arg) = request.get(1)
            && let Ok(database) = args::database(arg, "")
        {
            databases.push(database);
        }
    }
    let mut keys: Vec<_> = queued
        .requests
        .iter()
        .flat_map(|(spec, request)| databases.iter().flat_map(|it| spec.locked_keys(request, *it)))
        .chain(session.watched.iter().cloned())
        .collect();
    let is_all = queued.requests.iter().any(|(spec, _)| spec.has("all_keys"));
    let _held = if is_all { shared.locks.lock_all() } else { shared.lock_for_writing(&mut keys) };
    let mut is_changed = session.mark.load(Ordering::SeqCst);
    if !is_changed && !session.watched.is_empty() {
        // A key that expired while it was watched has changed.
        let mut unit = Unit::new(&shared.keys);
        for key in &session.watched {
            is_changed |= unit.has_expired(key)?;
        }
    }
    session.unwatch();
    if is_changed {
        session.reply.null_array();
        return Ok(());
    }
    session.is_executing = true;
    let executed = execute(session, &queued);
    session.is_executing = false;
    // Also if it failed: the writes before a command on a whole database are committed.
    session.serve_waiters();
    executed
}

/// Executes the queued commands, and commits their writes.
fn execute(session: &mut Session, queued: &Queued) -> Done {
    session.reply.array(queued.requests.len());
    let mut unit = Unit::new(&session.shared.keys);
    for (spec, request) in &queued.requests {
        let before = session.reply.bytes.len() - session.reply_start;
        unit.begin();
        // The rules of the user may have changed since the command was queued.
        let is_permitted = session.check_permission(spec, request).map_err(|denied| {
            let reason = match denied {
                Denied::Command(_) => "no permission to execute the command or subcommand",
                Denied::Key(_) => "no permission to touch the specified keys",
                Denied::Channel(_) => {
                    "no permission to access one of the channels used as arguments"
                }
            };
            Fail::new(format!(
                "NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
                 EXEC call. This command is no longer allowed for the following reason: {reason}"
            ))
        });
        let outcome = match spec.run {
            _ if is_permitted.is_err() => is_permitted,
            Run::Keys(_) => session.run_in(&mut unit, spec, request, &mut None),
            Run::Session(run) => {
                if spec.has("whole_database") {
                    session.commit(&mut unit)?;
                }
                run(session, request)
            }
        };
        if let Err(fail) = outcome {
            // The commands before and after the one that failed are executed.
            unit.roll_back();
            session.reply.bytes.truncate(session.reply_start + before);
            session.reply.error(&fail);
        }
        session.reply.check_length()?;
    }
    session.commit(&mut unit)
}
