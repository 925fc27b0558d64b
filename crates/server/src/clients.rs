//! [`Client`]: the part of a connection that other threads use: they list it, send it messages, and end it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;

use terracedb::memory::{Account, Charge};

use crate::glob;
use crate::reply::Reply;

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) address: String,
    pub(crate) local: String,
    pub(crate) since: Instant,
    pub(crate) info: Mutex<Info>,
    /// Messages of other clients, not sent yet.
    pub(crate) messages: Mutex<Messages>,
    pub(crate) has_message: Notify,
    pub(crate) is_killed: AtomicBool,
    pub(crate) output_bytes_max: usize,
}

/// Messages, and their memory.
#[derive(Debug)]
pub(crate) struct Messages {
    bytes: Vec<u8>,
    charge: Charge,
}

impl Messages {
    pub(crate) fn new(account: &Account) -> Self {
        Self { bytes: Vec::new(), charge: account.empty_charge() }
    }
}

/// The fields of CLIENT LIST that commands change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Info {
    pub(crate) name: Vec<u8>,
    pub(crate) database: u8,
    pub(crate) last: String,
    pub(crate) user: String,
    pub(crate) is_resp3: bool,
    pub(crate) library: (String, String),
    pub(crate) channels: usize,
    pub(crate) patterns: usize,
}

impl Client {
    /// Ends the connection.
    pub(crate) fn kill(&self) {
        self.is_killed.store(true, Ordering::Release);
        self.has_message.notify_one();
    }

    /// Sends a message. A client that reads too slowly is cut off.
    pub(crate) fn send(&self, message: &[u8]) {
        let mut messages = self.messages.lock();
        let is_too_long = messages.bytes.len() + message.len() > self.output_bytes_max;
        // Twice the length: the vector doubles as it grows.
        let missing = (2 * (messages.bytes.len() + message.len()) as u64)
            .saturating_sub(messages.charge.bytes());
        if is_too_long || !messages.charge.try_grow(missing) {
            drop(messages);
            return self.kill();
        }
        messages.bytes.extend_from_slice(message);
        drop(messages);
        self.has_message.notify_one();
    }

    /// The messages that are not sent yet.
    pub(crate) fn take_messages(&self) -> Vec<u8> {
        let mut messages = self.messages.lock();
        // The caller holds at most one such batch, which is as long as a reply may be.
        messages.charge.shrink_to(0);
        std::mem::take(&mut messages.bytes)
    }

    /// Whether it has subscriptions.
    pub(crate) fn is_subscriber(&self) -> bool {
        let info = self.info.lock();
        info.channels + info.patterns > 0
    }

    /// The name of its user.
    pub(crate) fn user(&self) -> String {
        self.info.lock().user.clone()
    }

    /// A line of CLIENT LIST.
    pub(crate) fn line(&self) -> String {
        let info = self.info.lock();
        format!(
            "id={} addr={} laddr={} fd=0 name={} age={} idle=0 flags=N db={} sub={} psub={} ssub=0 multi=-1 \
             qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 \
             tot-mem=0 events=r cmd={} \
             user={} redir=-1 resp={} lib-name={} lib-ver={}\n",
            self.id,
            self.address,
            self.local,
            String::from_utf8_lossy(&info.name),
            self.since.elapsed().as_secs(),
            info.database,
            info.channels,
            info.patterns,
            if info.last.is_empty() { "NULL" } else { &info.last },
            info.user,
            if info.is_resp3 { 3 } else { 2 },
            info.library.0,
            info.library.1,
        )
    }
}

/// The connections and their subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    pub(crate) connected: Mutex<BTreeMap<u64, Arc<Client>>>,
    next: AtomicU64,
    channels: Mutex<Topics>,
    patterns: Mutex<Topics>,
}

type Topics = HashMap<Vec<u8>, BTreeMap<u64, Arc<Client>>>;

impl Clients {
    /// A number for a new client.
    pub(crate) fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn count(&self) -> usize {
        self.connected.lock().len()
    }

    fn topics(&self, is_pattern: bool) -> &Mutex<Topics> {
        if is_pattern { &self.patterns } else { &self.channels }
    }

    pub(crate) fn subscribe(&self, client: &Arc<Client>, topic: &[u8], is_pattern: bool) {
        let mut topics = self.topics(is_pattern).lock();
        topics.entry(topic.to_vec()).or_default().insert(client.id, Arc::clone(client));
    }

    pub(crate) fn unsubscribe(&self, client: &Client, topic: &[u8], is_pattern: bool) {
        let mut topics = self.topics(is_pattern).lock();
        if let Some(subscribers) = topics.get_mut(topic) {
            subscribers.remove(&client.id);
            if subscribers.is_empty() {
                topics.remove(topic);
            }
        }
    }

    /// Sends `message` to the subscribers of `channel`. Returns how many got it.
    pub(crate) fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        let deliver = |client: &Client, parts: &[&[u8]]| {
            let mut reply = Reply { bytes: Vec::new(), is_resp3: client.info.lock().is_resp3 };
            reply.push(parts.len());
            parts.iter().for_each(|part| reply.bulk(part));
            client.send(&reply.bytes);
        };
        let mut count = 0;
        for client in self.channels.lock().get(channel).into_iter().flat_map(BTreeMap::values) {
            deliver(client, &[b"message", channel, message]);
            count += 1;
        }
        for (pattern, clients) in &*self.patterns.lock() {
            if glob::matches(pattern, channel) {
                for client in clients.values() {
                    deliver(client, &[b"pmessage", pattern, channel, message]);
                    count += 1;
                }
            }
        }
        count
    }

    /// Channels with subscribers that match `pattern`.
    pub(crate) fn channels(&self, pattern: &[u8]) -> Vec<Vec<u8>> {
        let channels = self.channels.lock();
        channels.keys().filter(|channel| glob::matches(pattern, channel)).cloned().collect()
    }

    /// Whether `client` has a topic that `may` does not permit. It is called with the topic, and whether that
    /// is a pattern.
    pub(crate) fn has_topic_beyond(&self, client: u64, may: impl Fn(&[u8], bool) -> bool) -> bool {
        let has = |topics: &Mutex<Topics>, is_pattern| {
            let topics = topics.lock();
            let own = |clients: &BTreeMap<u64, Arc<Client>>| clients.contains_key(&client);
            topics.iter().any(|(topic, clients)| own(clients) && !may(topic, is_pattern))
        };
        has(&self.channels, false) || has(&self.patterns, true)
    }

    pub(crate) fn subscribers(&self, channel: &[u8]) -> usize {
        self.channels.lock().get(channel).map_or(0, BTreeMap::len)
    }

    pub(crate) fn patterns(&self) -> usize {
        self.patterns.lock().len()
    }
}
