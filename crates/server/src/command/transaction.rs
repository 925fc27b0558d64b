//! MULTI, EXEC, DISCARD, WATCH and UNWATCH. The commands of an EXEC run under the locks of all their keys,
//! and their writes are one commit. A command that reads a whole database sees the writes before it: they are
//! committed first.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::command::keys::stored;
use crate::keys::{Unit, stored_key};
use crate::reply::{Done, Fail, REPLY_BYTES_MAX};
use crate::session::{Queued, Session};
use crate::spec::Run;

pub(crate) fn multi(session: &mut Session, _args: &[Vec<u8>]) -> Done {
    if session.queued.is_some() {
        return Err(Fail::new("ERR MULTI calls can not be nested"));
    }
    session.queued = Some(Queued::default());
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
        shared.watches.watch(&key, &session.mark);
        session.watched.push(key);
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
            && let Ok(database) = super::keys::database(arg, "")
        {
            databases.push(database);
        }
    }
    let keys: Vec<_> = queued
        .requests
        .iter()
        .flat_map(|(spec, request)| spec.keys_of(request))
        .flat_map(|key| databases.iter().map(move |database| stored_key(*database, key)))
        .chain(session.watched.iter().cloned())
        .collect();
    let is_all = queued.requests.iter().any(|(spec, _)| spec.has("all_keys"));
    let _held = if is_all { shared.locks.lock_all() } else { shared.locks.lock(keys.iter()) };
    let is_changed = session.mark.load(Ordering::SeqCst);
    session.unwatch();
    if is_changed {
        session.reply.null_array();
        return Ok(());
    }
    session.reply.array(queued.requests.len());
    let mut unit = Unit::new(&session.shared.keys);
    for (spec, request) in &queued.requests {
        let before = session.reply.bytes.len();
        let outcome = match spec.run {
            // A command stages its writes after its checks, so one that fails has staged none.
            Run::Keys(_) => session.run_in(&mut unit, spec, request),
            Run::Session(run) => {
                if spec.has("whole_database") {
                    session.commit(&mut unit)?;
                }
                run(session, request)
            }
        };
        if session.reply.bytes.len() > REPLY_BYTES_MAX {
            session.reply.bytes.clear();
            session.is_closing = true;
            return Err(Fail::too_long());
        }
        if let Err(fail) = outcome {
            session.reply.bytes.truncate(before);
            session.reply.error(&fail);
        }
    }
    session.commit(&mut unit)
}
