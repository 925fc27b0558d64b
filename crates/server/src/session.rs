//! [`Session`]: the state of a connection, and the execution of its requests. No I/O on the socket here:
//! requests go in, replies come out. A session runs on one thread at a time: the connection's own executes
//! what data in memory decides ([`Session::run_at_once`]), and one of the pool that may wait for the store
//! all else ([`Session::run`]).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use terracedb::memory::{Account, Charge};

use crate::acl::User;
use crate::blocking::{Block, State, Waiter};
use crate::clients::Client;
use crate::permission::permission_error;
use crate::reply::{Done, Fail, Reply};
use crate::resp::{Request, request_bytes};
use crate::shared::Shared;
use crate::spec::{Call, Run, Spec, Table};
use crate::unit::Unit;
use crate::watch::Mark;

/// The commands between MULTI and EXEC.
pub(crate) struct Queued {
    pub(crate) requests: Vec<(&'static Spec, Request)>,
    charge: Charge,
    /// A command was refused: EXEC fails.
    pub(crate) is_broken: bool,
}

impl Queued {
    pub(crate) fn new(account: &Account) -> Self {
        Self { requests: Vec::new(), charge: account.empty_charge(), is_broken: false }
    }

    /// Adds a request, unless the queue is too long or there is no memory.
    fn add(&mut self, spec: &'static Spec, request: &Request, bytes_max: usize) -> Done {
        let bytes = request_bytes(request) as u64;
        let text = if self.charge.bytes() + bytes > bytes_max as u64 {
            "ERR the transaction is longer than the query buffer"
        } else if !self.charge.try_grow(bytes) {
            "OOM there is no memory for the commands of the transaction"
        } else {
            self.requests.push((spec, request.clone()));
            return Ok(());
        };
        self.is_broken = true;
        self.requests.clear();
        self.charge.shrink_to(0);
        Err(Fail::new(text))
    }
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
    /// The commands that the client may call.
    pub(crate) table: &'static Table,
    pub(crate) reply: Reply,
    pub(crate) database: u8,
    pub(crate) is_authenticated: bool,
    /// The user that the client is, once it is authenticated.
    pub(crate) user: Arc<User>,
    pub(crate) queued: Option<Queued>,
    pub(crate) watched: BTreeSet<Vec<u8>>,
    pub(crate) mark: Mark,
    pub(crate) channels: BTreeSet<Vec<u8>>,
    pub(crate) patterns: BTreeSet<Vec<u8>>,
    /// The memory of `watched`, and that of `channels` and `patterns`.
    pub(crate) watched_charge: Charge,
    pub(crate) topics_charge: Charge,
    pub(crate) replies: Replies,
    /// A write was committed since the last sync.
    pub(crate) has_written: bool,
    /// The connection ends once the replies are sent.
    pub(crate) is_closing: bool,
    /// The place of the present request's reply in `reply`.
    pub(crate) reply_start: usize,
    /// Keys that got a value, and are not yet offered to the clients that wait for them.
    pub(crate) created: Vec<Vec<u8>>,
    /// EXEC executes the commands now.
    pub(crate) is_executing: bool,
    /// The client waits for a key.
    pub(crate) blocked: Option<Blocked>,
    /// The thread may not wait for the store.
    pub(crate) is_at_once: bool,
    /// The present request would have had to wait, and did nothing.
    pub(crate) must_wait: bool,
}

/// A client that waits.
#[derive(Debug)]
pub(crate) struct Blocked {
    pub(crate) waiter: Arc<Waiter>,
    /// `None`: it waits for ever.
    pub(crate) until: Option<Instant>,
}

impl Session {
    pub(crate) fn new(shared: &Arc<Shared>, client: &Arc<Client>, table: &'static Table) -> Self {
        let user = Arc::clone(shared.users.default());
        let rules = user.rules();
        Self {
            shared: Arc::clone(shared),
            client: Arc::clone(client),
            table,
            reply: Reply::default(),
            database: 0,
            is_authenticated: rules.is_on && rules.has_no_password,
            user,
            queued: None,
            watched: BTreeSet::new(),
            mark: Arc::new(AtomicBool::new(false)),
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            watched_charge: shared.keys.account.empty_charge(),
            topics_charge: shared.keys.account.empty_charge(),
            replies: Replies::On,
            has_written: false,
            is_closing: false,
            reply_start: 0,
            created: Vec::new(),
            is_executing: false,
            blocked: None,
            is_at_once: false,
            must_wait: false,
        }
    }

    /// Whether replies are sent once their writes are durable.
    pub(crate) fn is_synced(&self) -> bool {
        self.shared.config.append_fsync == crate::AppendFsync::Always
    }

    /// Whether a write whose reply was not sent may not be durable, and has to be.
    pub(crate) fn must_sync(&self) -> bool {
        self.has_written && self.is_synced()
    }

    /// Whether the next request is to be executed.
    pub(crate) fn may_go_on(&self) -> bool {
        !self.is_closing
            && self.blocked.is_none()
            && !self.client.is_killed.load(Ordering::Acquire)
            && self.reply.bytes.len() < OUTPUT_BYTES
    }

    /// Executes `requests` in order, as long as the replies fit the output buffer; returns those that are
    /// left.
    pub(crate) fn run(&mut self, requests: Vec<Request>) -> Vec<Request> {
        let mut requests = requests.into_iter();
        while self.may_go_on()
            && let Some(request) = requests.next()
        {
            let left = self.execute(request);
            debug_assert!(left.is_none(), "a session that may wait executes every request");
        }
        let must_sync = self.must_sync();
        self.has_written = false;
        if must_sync && let Err(error) = self.shared.keys.db.sync() {
            // The writes may not be durable, so none of their replies may say that they are.
            self.reply.bytes.clear();
            self.reply.error(&Fail::from(error));
            self.is_closing = true;
        }
        requests.collect()
    }

    /// Executes `request`. Returns it if it has to wait and the thread may not.
    pub(crate) fn execute(&mut self, request: Request) -> Option<Request> {
        let start = Instant::now();
        self.reply_start = self.reply.bytes.len();
        let is_skipped = match self.replies {
            Replies::On | Replies::SkipNext => false,
            Replies::Off | Replies::Skip => true,
        };
        let outcome = self.dispatch(&request);
        if std::mem::take(&mut self.must_wait) {
            self.reply.bytes.truncate(self.reply_start);
            return Some(request);
        }
        self.shared.counts.commands.fetch_add(1, Ordering::Relaxed);
        if let Err(fail) = outcome {
            self.shared.counts.failed.fetch_add(1, Ordering::Relaxed);
            self.reply.bytes.truncate(self.reply_start);
            // A reply that was too long has much memory.
            self.reply.bytes.shrink_to(OUTPUT_BYTES);
            self.reply.error(&fail);
        }
        if is_skipped && self.replies != Replies::On || self.replies == Replies::SkipNext {
            self.reply.bytes.truncate(self.reply_start);
        }
        self.replies = match self.replies {
            Replies::SkipNext => Replies::Skip,
            Replies::Skip => Replies::On,
            kept => kept,
        };
        let took = start.elapsed();
        self.shared.counts.latency.add(took);
        self.note_slow(request, took);
        None
    }

    fn dispatch(&mut self, request: &Request) -> Done {
        // A web page makes a browser send these to any port of its machine; nothing after them is executed.
        let name = request.first().map_or(&[][..], Vec::as_slice);
        if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
            self.is_closing = true;
            return Err(Fail::new("ERR HTTP is not spoken here"));
        }
        let spec =
            find(self.table, request).and_then(|spec| self.check(spec, request).map(|()| spec));
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
            queued.add(spec, request, self.shared.config.query_bytes_max)?;
            self.reply.simple("QUEUED");
            return Ok(());
        }
        if self.is_at_once && !self.is_quick(spec, request) {
            self.must_wait = true;
            return Ok(());
        }
        match spec.run {
            Run::Keys(_) if self.is_at_once => self.run_alone_at_once(spec, request),
            Run::Session(run) => {
                let locks = Arc::clone(&self.shared);
                let _held = spec.has("all_keys").then(|| locks.locks.lock_all());
                run(self, request)
            }
            Run::Keys(_) => self.run_alone(spec, request),
        }
    }

    /// Checks that the session may run the command.
    pub(crate) fn check(&self, spec: &Spec, request: &Request) -> Done {
        if !self.table.is_subcommand(spec.name, request.get(1)) {
            let name = request.get(1).map_or(&[][..], Vec::as_slice);
            return Err(Fail::unknown_subcommand(&spec.name.to_ascii_uppercase(), name));
        }
        if !spec.takes(request.len()) {
            return Err(Fail::arity(spec.name));
        }
        if !self.is_authenticated && !spec.has("no_auth") {
            return Err(Fail::new("NOAUTH Authentication required."));
        }
        self.check_permission(spec, request).map_err(|denied| permission_error(&denied))?;
        if self.queued.is_some() && spec.has("no_multi") {
            return Err(Fail::new("ERR Command not allowed inside a transaction"));
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
        let shared = Arc::clone(&self.shared);
        let mut keys = spec.locked_keys(request, self.database);
        if !spec.has("write") {
            // A read takes no lock: a command that reads one row needs none, and others read a snapshot.
            let mut unit = Unit::reading(&shared.keys, keys.len() > 1);
            return self.run_in(&mut unit, spec, request, &mut None);
        }
        let _held = shared.lock_for_writing(&mut keys);
        let (mut unit, mut block) = (Unit::new(&shared.keys), None);
        self.run_in(&mut unit, spec, request, &mut block)?;
        self.commit(&mut unit)?;
        if let Some(block) = block {
            self.wait(block);
        }
        self.serve_waiters();
        Ok(())
    }

    /// Executes a command on keys in `unit`, without committing it. Outside of a transaction it may ask to
    /// wait.
    pub(crate) fn run_in(
        &mut self,
        unit: &mut Unit,
        spec: &Spec,
        args: &[Vec<u8>],
        block: &mut Option<Block>,
    ) -> Done {
        let Run::Keys(run) = spec.run else { return Ok(()) };
        let (database, can_block) = (self.database, !self.is_executing);
        run(&mut Call { args, unit, reply: &mut self.reply, database, can_block, block })
    }

    pub(crate) fn commit(&mut self, unit: &mut Unit) -> Done {
        let written = unit.commit(&self.shared.write_options())?;
        if !written.keys.is_empty() {
            self.has_written = true;
            self.shared.watches.written(&written.keys);
            self.created.extend(written.created);
        }
        Ok(())
    }

    /// Begins to wait. The caller holds the locks of the keys.
    fn wait(&mut self, block: Block) {
        let Block { keys, serve, timeout_ms } = block;
        let waiter = Arc::new(Waiter {
            client: Arc::clone(&self.client),
            keys,
            serve,
            is_resp3: self.reply.is_resp3,
            state: parking_lot::Mutex::new(State::Waiting),
            done: tokio::sync::Notify::new(),
        });
        self.shared.waiters.add(&waiter);
        let until = (timeout_ms > 0)
            .then(|| Instant::now().checked_add(Duration::from_millis(timeout_ms)))
            .flatten();
        self.blocked = Some(Blocked { waiter, until });
    }

    /// Serves the clients that wait for keys that got a value. The caller holds the locks of these keys and
    /// of those that elements may move to.
    pub(crate) fn serve_waiters(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut ready: VecDeque<_> = std::mem::take(&mut self.created).into();
        // Each turn serves a client, which then waits no more, or finishes a key.
        while let Some(key) = ready.pop_front() {
            for waiter in shared.waiters.of(&key) {
                if waiter.client.is_killed.load(Ordering::Acquire) || !waiter.begin() {
                    continue;
                }
                let mut reply = Reply { bytes: Vec::new(), is_resp3: waiter.is_resp3 };
                let served = self.serve(&waiter, &key, &mut reply);
                match served {
                    Ok(Some(created)) => ready.extend(created),
                    Ok(None) => {
                        waiter.give_back();
                        continue;
                    }
                    Err(fail) => {
                        reply.bytes.clear();
                        reply.error(&fail);
                    }
                }
                shared.waiters.remove(&waiter);
                waiter.reply(reply.bytes);
            }
        }
    }

    /// Serves one waiting client; returns the keys that got a value by it, or `None` if there is nothing
    /// for it.
    fn serve(
        &mut self,
        waiter: &Waiter,
        key: &[u8],
        reply: &mut Reply,
    ) -> Result<Option<Vec<Vec<u8>>>, Fail> {
        let mut unit = Unit::new(&self.shared.keys);
        let value = unit.get(key)?;
        if value.is_none_or(|value| value.kind != waiter.serve.kind()) {
            return Ok(None);
        }
        waiter.serve.serve(&mut unit, key, reply)?;
        let written = unit.commit(&self.shared.write_options())?;
        self.has_written = true;
        self.shared.watches.written(&written.keys);
        Ok(Some(written.created))
    }

    /// The reply to a client that waited: that of its pop, or of a timeout. `None`: it is being served.
    pub(crate) fn end_wait(&mut self, is_timeout: bool) -> bool {
        let Some(blocked) = &self.blocked else { return true };
        let waiter = Arc::clone(&blocked.waiter);
        let before = self.reply.bytes.len();
        match waiter.take() {
            Some(reply) => {
                self.reply.bytes.extend_from_slice(&reply);
                self.has_written = true;
            }
            None if is_timeout && waiter.end(State::Ended) => self.reply.null_array(),
            None => return false,
        }
        if self.replies == Replies::Off {
            self.reply.bytes.truncate(before);
        }
        self.shared.waiters.remove(&waiter);
        self.blocked = None;
        true
    }

    pub(crate) fn unwatch(&mut self) {
        let watched = std::mem::take(&mut self.watched);
        self.shared.watches.unwatch(&watched, &self.mark);
        self.watched_charge.shrink_to(0);
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
        self.topics_charge.shrink_to(0);
        let mut info = self.client.info.lock();
        (info.channels, info.patterns) = (0, 0);
    }
}

/// The memory of a watched key or a topic: in the session, in the shared table, and the nodes of both.
pub(crate) fn held_bytes(name: &[u8]) -> u64 {
    2 * name.len() as u64 + 256
}

/// A session returns to its connection when its replies have this length, bytes, so that they are sent
/// meanwhile.
const OUTPUT_BYTES: usize = 256 << 10;

/// The command of a request.
pub(crate) fn find(table: &Table, request: &Request) -> Result<&'static Spec, Fail> {
    let name = request.first().map_or(&[][..], Vec::as_slice);
    table.find(name).ok_or_else(|| {
        if let Some(reason) = table.absent(name) {
            return Fail::new(format!("ERR {reason}"));
        }
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
        if let Some(blocked) = self.blocked.take() {
            blocked.waiter.end(State::Ended);
            self.shared.waiters.remove(&blocked.waiter);
        }
        self.unwatch();
        self.leave_topics();
    }
}
