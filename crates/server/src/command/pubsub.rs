//! PUBLISH, SUBSCRIBE, PSUBSCRIBE and PUBSUB. A subscriber that does not read is cut off at its buffer limit.

use crate::args;
use crate::reply::{Done, Fail};
use crate::session::Session;

pub(crate) fn publish(session: &mut Session, args: &[Vec<u8>]) -> Done {
    let (Some(channel), Some(message)) = (args.get(1), args.get(2)) else {
        return Err(Fail::syntax());
    };
    let count = session.shared.clients.publish(channel, message);
    session.reply.count(count);
    Ok(())
}

fn change(session: &mut Session, topics: &[Vec<u8>], is_pattern: bool, is_added: bool) {
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
    for topic in &all {
        let own = if is_pattern { &mut session.patterns } else { &mut session.channels };
        if is_added {
            own.insert(topic.clone());
            session.shared.clients.subscribe(&session.client, topic, is_pattern);
        } else {
            own.remove(topic);
            session.shared.clients.unsubscribe(&session.client, topic, is_pattern);
            // Messages that came before stand before the reply; none of the topic comes behind it.
            session.reply.bytes.extend(session.client.take_messages());
        }
        session.reply.push(3);
        session.reply.bulk(name);
        session.reply.bulk(topic);
        session.reply.count(session.channels.len() + session.patterns.len());
    }
    let mut info = session.client.info.lock();
    (info.channels, info.patterns) = (session.channels.len(), session.patterns.len());
}

pub(crate) fn subscribe(session: &mut Session, args: &[Vec<u8>]) -> Done {
    change(session, args.get(1..).unwrap_or_default(), false, true);
    Ok(())
}

pub(crate) fn psubscribe(session: &mut Session, args: &[Vec<u8>]) -> Done {
    change(session, args.get(1..).unwrap_or_default(), true, true);
    Ok(())
}

pub(crate) fn unsubscribe(session: &mut Session, args: &[Vec<u8>]) -> Done {
    change(session, args.get(1..).unwrap_or_default(), false, false);
    Ok(())
}

pub(crate) fn punsubscribe(session: &mut Session, args: &[Vec<u8>]) -> Done {
    change(session, args.get(1..).unwrap_or_default(), true, false);
    Ok(())
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
