//! [`Session`]: the state of a connection, and the execution of its requests. No I/O on the socket here:
//! requests go in, replies come out. A session runs on one thread at a time, one of the pool that may wait
//! for the store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::clients::Client;
use crate::keys::{Unit, now_ms, stored_key};
use crate::reply::{Done, Fail, Reply};
use crate::resp::Request;
use crate::shared::{SLOW, Shared, Slow};
use crate::spec::{Call, Find, Run, Spec};
use crate::watch::Mark;

/// The commands between MULTI and EXEC.
#[derive(Default)]
pub(crate) struct Queued {
    pub(crate) requests: Vec<(&'static Spec, Request)>,
    bytes: usize,
    /// A command was refused: EXEC fails.
    pub(crate) is_broken: bool,
}

/// Which replies CLIENT REPLY lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    On,
    Off,
    /// The next reply is skipped.
    SkipNext,
    /// This reply is skipped.
    Skip,
}

/// A connection's state.
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Arc<Client>,
    /// Finds a command by its name.
    find: Find,
    pub(crate) reply: Reply,
    pub(crate) database: u8,
    pub(crate) is_authenticated: bool,
    pub(crate) queued: Option<Queued>,
    pub(crate) watched: Vec<Vec<u8>>,
    pub(crate) mark: Mark,
    pub(crate) channels: BTreeSet<Vec<u8>>,
    pub(crate) patterns: BTreeSet<Vec<u8>>,
    pub(crate) replies: Replies,
    /// A write was committed since the last sync.
    pub(crate) has_written: bool,
    /// The connection ends once the replies are sent.
    pub(crate) is_closing: bool,
}

impl Session {
    pub(crate) fn new(shared: &Arc<Shared>, client: &Arc<Client>, find: Find) -> Self {
        Self {
            shared: Arc::clone(shared),
            client: Arc::clone(client),
            find,
            reply: Reply::default(),
            database: 0,
            is_authenticated: shared.config.password.is_none(),
            queued: None,
            watched: Vec::new(),
            mark: Arc::new(AtomicBool::new(false)),
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            replies: Replies::On,
            has_written: false,
            is_closing: false,
        }
    }

    /// Executes `requests` in order, as long as the replies fit the output buffer; returns those that are
    /// left.
    pub(crate) fn run(&mut self, requests: Vec<Request>) -> Vec<Request> {
        let mut requests = requests.into_iter();
        while !self.is_closing
            && !self.client.is_killed.load(Ordering::Acquire)
            && self.reply.bytes.len() < OUTPUT_BYTES
            && let Some(request) = requests.next()
        {
            self.execute(request);
        }
        if std::mem::take(&mut self.has_written)
            && self.shared.config.append_fsync == crate::AppendFsync::Always
            && let Err(error) = self.shared.keys.db.sync()
        {
            // The writes may not be durable, so none of their replies may say that they are.
            self.reply.bytes.clear();
            self.reply.error(&Fail::from(error));
            self.is_closing = true;
        }
        requests.collect()
    }

    fn execute(&mut self, request: Request) {
        let start = Instant::now();
        let before = self.reply.bytes.len();
        self.shared.counts.commands.fetch_add(1, Ordering::Relaxed);
        let is_skipped = match self.replies {
            Replies::On | Replies::SkipNext => false,
            Replies::Off | Replies::Skip => true,
        };
        let outcome = self.dispatch(&request);
        if let Err(fail) = outcome {
            self.shared.counts.failed.fetch_add(1, Ordering::Relaxed);
            self.reply.bytes.truncate(before);
            self.reply.error(&fail);
        }
        if is_skipped && self.replies != Replies::On || self.replies == Replies::SkipNext {
            self.reply.bytes.truncate(before);
        }
        self.replies = match self.replies {
            Replies::SkipNext => Replies::Skip,
            Replies::Skip => Replies::On,
            kept => kept,
        };
        let took = start.elapsed();
        if took >= SLOW {
            self.note_slow(request, took);
        }
    }

    fn note_slow(&self, mut args: Request, took: std::time::Duration) {
        args.truncate(32);
        args.iter_mut().for_each(|arg| arg.truncate(128));
        let address = self.client.address.clone();
        let name = self.client.info.lock().name.clone();
        let slow = Slow { id: 0, unix_s: now_ms() / 1000, took, args, address, name };
        self.shared.slow.lock().add(slow);
    }

    fn dispatch(&mut self, request: &Request) -> Done {
        // A web page makes a browser send these to any port of its machine; nothing after them is executed.
        let name = request.first().map_or(&[][..], Vec::as_slice);
        if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
            self.is_closing = true;
            return Err(Fail::new("ERR HTTP is not spoken here"));
        }
        let spec =
            find(self.find, request).and_then(|spec| self.check(spec, request).map(|()| spec));
        let spec = match spec {
            Ok(spec) => spec,
            Err(fail) => {
                if let Some(queued) = &mut self.queued {
                    queued.is_broken = true;
                }
                return Err(fail);
            }
        };
        spec.name.clone_into(&mut self.client.info.lock().last);
        if let Some(queued) = self.queued.as_mut().filter(|_| !spec.has("during_multi")) {
            queued.bytes += request.iter().map(|arg| arg.len() + 64).sum::<usize>();
            if queued.bytes > self.shared.config.query_bytes_max {
                queued.is_broken = true;
                queued.requests.clear();
                return Err(Fail::new("ERR the transaction is longer than the query buffer"));
            }
            queued.requests.push((spec, request.clone()));
            self.reply.simple("QUEUED");
            return Ok(());
        }
        match spec.run {
            Run::Session(run) => {
                let locks = Arc::clone(&self.shared);
                let _held = spec.has("all_keys").then(|| locks.locks.lock_all());
                run(self, request)
            }
            Run::Keys(_) => self.run_alone(spec, request),
        }
    }

    /// Checks that the session may run the command.
    fn check(&self, spec: &Spec, request: &Request) -> Done {
        if !spec.takes(request.len()) {
            return Err(Fail::arity(spec.name));
        }
        if !self.is_authenticated && !spec.has("no_auth") {
            return Err(Fail::new("NOAUTH Authentication required."));
        }
        let is_subscribed = !self.channels.is_empty() || !self.patterns.is_empty();
        if is_subscribed && !self.reply.is_resp3 && !spec.has("while_subscribed") {
            let name = spec.name;
            return Err(Fail::new(format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
                 RESET are \
                 allowed in this context"
            )));
        }
        Ok(())
    }

    /// Executes a command on keys outside of a transaction.
    fn run_alone(&mut self, spec: &Spec, request: &Request) -> Done {
        let keys: Vec<_> =
            spec.keys_of(request).into_iter().map(|key| stored_key(self.database, key)).collect();
        let shared = Arc::clone(&self.shared);
        // A read of one key sees one state without a lock.
        let _held = (spec.has("write") || keys.len() > 1).then(|| shared.locks.lock(keys.iter()));
        let mut unit = Unit::new(&self.shared.keys);
        self.run_in(&mut unit, spec, request)?;
        self.commit(&mut unit)
    }

    /// Executes a command on keys in `unit`, without committing it.
    pub(crate) fn run_in(&mut self, unit: &mut Unit, spec: &Spec, args: &[Vec<u8>]) -> Done {
        let Run::Keys(run) = spec.run else { return Ok(()) };
        let database = self.database;
        run(&mut Call { args, unit, reply: &mut self.reply, database })
    }

    pub(crate) fn commit(&mut self, unit: &mut Unit) -> Done {
        let written = unit.commit(&self.shared.write_options())?;
        if !written.is_empty() {
            self.has_written = true;
            self.shared.watches.written(&written);
        }
        Ok(())
    }

    pub(crate) fn unwatch(&mut self) {
        let watched = std::mem::take(&mut self.watched);
        self.shared.watches.unwatch(&watched, &self.mark);
        self.mark = Arc::new(AtomicBool::new(false));
    }

    /// Leaves every channel and pattern.
    pub(crate) fn leave_topics(&mut self) {
        for (topics, is_pattern) in [
            (std::mem::take(&mut self.channels), false),
            (std::mem::take(&mut self.patterns), true),
        ] {
            for topic in topics {
                self.shared.clients.unsubscribe(&self.client, &topic, is_pattern);
            }
        }
        let mut info = self.client.info.lock();
        (info.channels, info.patterns) = (0, 0);
    }
}

/// A session returns to its connection when its replies have this length, bytes, so that they are sent
/// meanwhile.
const OUTPUT_BYTES: usize = 256 << 10;

/// The command of a request.
fn find(find: Find, request: &Request) -> Result<&'static Spec, Fail> {
    let name = request.first().map_or(&[][..], Vec::as_slice);
    find(name).ok_or_else(|| {
        let text = |arg: &[u8]| {
            let arg = arg.get(..128).unwrap_or(arg);
            format!("'{}'", String::from_utf8_lossy(arg))
        };
        let args: String = request.iter().skip(1).take(20).map(|arg| text(arg) + " ").collect();
        Fail::new(format!("ERR unknown command {}, with args beginning with: {args}", text(name)))
    })
}

impl Drop for Session {
    fn drop(&mut self) {
        self.unwatch();
        self.leave_topics();
    }
}
