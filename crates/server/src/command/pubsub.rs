//! PUBLISH, SUBSCRIBE, PSUBSCRIBE and PUBSUB. A subscriber that does not read is cut off at its buffer limit.

use std::collections::BTreeSet;

use crate::args;
use crate::reply::{Done, Fail};
use crate::session::{Session, held_bytes};

pub(crate) fn publish(session: &mut Session, args: &[Vec<u8>]) -> Done {
    let (Some(channel), Some(message)) = (args.get(1), args.get(2)) else {
        return Err(Fail::syntax());
    };
    let count = session.shared.clients.publish(channel, message);
    session.reply.count(count);
    Ok(())
}

fn topics(session: &mut Session, is_pattern: bool) -> &mut BTreeSet<Vec<u8>> {
    if is_pattern { &mut session.patterns } else { &mut session.channels }
}

/// Gives back the memory of one topic.
fn release(session: &mut Session, topic: &[u8]) {
    let charge = &mut session.topics_charge;
    charge.shrink_to(charge.bytes().saturating_sub(held_bytes(topic)));
}

/// Subscribes to a topic, whose memory is charged.
fn join(session: &mut Session, topic: &[u8], is_pattern: bool) {
    match topics(session, is_pattern).insert(topic.to_vec()) {
        true => session.shared.clients.subscribe(&session.client, topic, is_pattern),
        false => release(session, topic),
    }
}

/// Leaves a topic. Messages that came before stand before the reply, or before that of the EXEC; none of the
/// topic comes behind it.
fn leave(session: &mut Session, topic: &[u8], is_pattern: bool) {
    if topics(session, is_pattern).remove(topic) {
        release(session, topic);
    }
    session.shared.clients.unsubscribe(&session.client, topic, is_pattern);
    // A client of RESP2 got its subscriptions within this EXEC: it expects no message before the reply.
    let is_unexpected = session.is_executing && !session.reply.is_resp3;
    if !is_unexpected {
        let (at, messages) = (session.reply_start, session.client.take_messages());
        session.reply_start += messages.len();
        session.reply.bytes.splice(at..at, messages);
    } else if session.channels.is_empty() && session.patterns.is_empty() {
        drop(session.client.take_messages());
    }
}

fn change(session: &mut Session, topics: &[Vec<u8>], is_pattern: bool, is_added: bool) -> Done {
    let name = match (is_pattern, is_added) {
        (false, true) => "subscribe",
        (true, true) => "psubscribe",
        (false, false) => "unsubscribe",
        (true, false) => "punsubscribe",
    };
    let own = if is_pattern { &session.patterns } else { &session.channels };
    let all: Vec<_> = match (topics, is_added) {
        ([], false) => own.iter().cloned().collect(),
        _ => topics.to_vec(),
    };
    if all.is_empty() {
        session.reply.push(3);
        session.reply.bulk(name);
        session.reply.null();
        session.reply.count(session.channels.len() + session.patterns.len());
    }
    let bytes = all.iter().map(|topic| held_bytes(topic)).sum();
    if is_added && !session.topics_charge.try_grow(bytes) {
        return Err(Fail::no_memory());
    }
    for topic in &all {
        match is_added {
            true => join(session, topic, is_pattern),
            false => leave(session, topic, is_pattern),
        }
        session.reply.push(3);
        session.reply.bulk(name);
        session.reply.bulk(topic);
        session.reply.count(session.channels.len() + session.patterns.len());
    }
    let mut info = session.client.info.lock();
    (info.channels, info.patterns) = (session.channels.len(), session.patterns.len());
    Ok(())
}

pub(crate) fn subscribe(session: &mut Session, args: &[Vec<u8>]) -> Done {
    change(session, args.get(1..).unwrap_or_default(), false, true)
}

pub(crate) fn psubscribe(session: &mut Session, args: &[Vec<u8>]) -> Done {
    change(session, args.get(1..).unwrap_or_default(), true, true)
}

pub(crate) fn unsubscribe(session: &mut Session, args: &[Vec<u8>]) -> Done {
    change(session, args.get(1..).unwrap_or_default(), false, false)
}

pub(crate) fn punsubscribe(session: &mut Session, args: &[Vec<u8>]) -> Done {
    change(session, args.get(1..).unwrap_or_default(), true, false)
}

pub(crate) fn pubsub(session: &mut Session, args: &[Vec<u8>]) -> Done {
    let clients = &session.shared.clients;
    match (args.get(1).map(|arg| args::option(arg)).as_deref(), args.get(2..).unwrap_or_default()) {
        (Some("CHANNELS"), []) => session.reply.bulks(&clients.channels(b"*")),
        (Some("CHANNELS"), [pattern]) => session.reply.bulks(&clients.channels(pattern)),
        (Some("NUMSUB"), channels) => {
            session.reply.array(2 * channels.len());
            for channel in channels {
                session.reply.bulk(channel);
                session.reply.count(clients.subscribers(channel));
            }
        }
        (Some("NUMPAT"), []) => session.reply.count(clients.patterns()),
        _ => return Err(Fail::syntax()),
    }
    Ok(())
}
