//! Failures of the SCM tier on simulated devices and time: it slows down, its device is full or unreadable.
//! The store answers as before, reports the failure, and counts it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::{Clock, Executor, ManualClock, Rng, Stepper};
use media::scm::{Blocks, Facts, Persistence, Scm as Opened};
use media::{
    Access, Completion, Fault, Faulty, Medium, Metered, OpKind, Pace, Queue, Refused, Request, Rule,
};
use terracedb::events::{Event, Listener, Task};
use terracedb::scm::{Placement, Scm};
use terracedb::stats::ScmStatus;
use terracedb::{Db, Keyspace, Resources};

use crate::common::MEMORY;

const SIZE: u64 = 64 << 20;
const KEYS: u64 = 24_000;

/// Durations of a read of flash, and of a read of a healthy tier.
const FLASH: Duration = Duration::from_micros(100);
const WELL: Duration = Duration::from_micros(10);

/// A machine with two devices, on which reads take time.
struct Machine {
    clock: Arc<ManualClock>,
    executor: Arc<Stepper>,
    flash: Arc<Faulty>,
    below: Arc<Faulty>,
    /// Counts the requests to the tier's device.
    metered: Arc<Metered>,
    queues: Arc<Mutex<Queues>>,
    events: Arc<EventLog>,
}

/// The response to a request for a queue of the tier's device.
#[derive(Clone, Copy, PartialEq)]
enum Queues {
    Given,
    Refused,
    /// The queue is given, and fails at the first wait.
    Broken,
}

/// A queue that accepts every operation and returns none.
struct Broken(Box<dyn Queue>);

impl Queue for Broken {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        self.0.submit(request)
    }

    fn complete(&mut self, _: usize, _: &mut Vec<Completion>) -> base::Result<()> {
        Err(base::Error::invalid("broken queue"))
    }

    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }

    fn depth(&self) -> usize {
        self.0.depth()
    }
}

/// Records the events about the tier.
#[derive(Debug, Default)]
struct EventLog(Mutex<Vec<String>>);

impl Listener for EventLog {
    fn event(&self, event: &Event) {
        if let Event::TaskFailed { task: Task::Scm, .. } | Event::ScmSlow { .. } = event {
            self.0.lock().unwrap().push(event.to_string());
        }
    }
}

impl Machine {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let executor = Arc::new(Stepper::new(3, Arc::clone(&clock) as _));
        let device = |seed| Arc::new(Faulty::new(seed).with_pace(Pace::manual(Arc::clone(&clock))));
        let (flash, below) = (device(1), device(2));
        drop(below.create("tier", Access::Direct, SIZE).unwrap());
        below.open("tier", Access::Direct).unwrap().set_len(SIZE).unwrap();
        let queues = Arc::new(Mutex::new(Queues::Given));
        let metered = Arc::new(Metered::new(Arc::clone(&below) as _, Arc::clone(&clock) as _));
        let events = Arc::default();
        let machine = Self { clock, executor, flash, below, metered, queues, events };
        takes(&machine.flash, FLASH);
        takes(&machine.below, WELL);
        machine
    }

    fn open(&self) -> (Db, Keyspace) {
        let facts = Facts {
            backend: "simulated",
            byte_addressable: false,
            persistence: Persistence::Power,
            write_unit: 4096,
            read_latency: WELL,
            numa_node: None,
            emulated: None,
        };
        let (below, queues) = (Arc::clone(&self.metered), Arc::clone(&self.queues));
        let file = below.open("tier", Access::Direct).unwrap();
        let blocks = Blocks::new(file, SIZE, facts, move |depth| match *queues.lock().unwrap() {
            Queues::Given => below.queue(depth),
            Queues::Refused => Err(base::Error::retry("queue")),
            Queues::Broken => Ok(Box::new(Broken(below.queue(depth)?)) as _),
        });
        let scm = Scm::given(7, Ok(Opened::Blocks(blocks))).placement(Placement::DramFirst);
        let executor = Arc::clone(&self.executor);
        let resources = Resources::builder().memory(MEMORY).executor(executor).scm(scm);
        let builder = Db::on_medium(Arc::clone(&self.flash) as _);
        let builder = builder.resources(&resources.build().unwrap());
        let db = builder.listener(Arc::clone(&self.events) as _).open().unwrap();
        let keyspace = db.open_or_create_keyspace("k").unwrap();
        (db, keyspace)
    }

    /// Gets of skewed random keys, each verified, with background work in between.
    fn get(&self, keyspace: &Keyspace, rng: &mut Rng, gets: u64) {
        for turn in 0..gets {
            let number = rng.below(rng.clone().below(KEYS) + 1).wrapping_mul(48_271) % KEYS;
            assert_eq!(keyspace.get(key(number)).unwrap().unwrap(), value(number), "{number}");
            if turn % 8 == 0 {
                self.clock.advance(Duration::from_millis(1));
                // Bounded, because a step may wake another.
                (0..8).all(|_| self.executor.help());
            }
        }
    }

    /// A store larger than its memory, with a warm tier.
    fn warmed(&self) -> (Db, Keyspace, Rng) {
        let (db, keyspace) = self.open();
        let (mut rng, seed) = Rng::from_env();
        println!("TERRACE_SEED={seed}");
        for number in 0..KEYS {
            keyspace.put(key(number), value(number)).unwrap();
        }
        db.compact().unwrap();
        self.get(&keyspace, &mut rng, 30_000);
        let status = status(&db);
        assert!(status.failure.is_none() && !status.slow, "{status:?}");
        assert!(status.counts.hits_data > 2000, "{status:?}");
        (db, keyspace, rng)
    }
}

/// Sets the duration of reads of the device from now on.
fn takes(device: &Faulty, time: Duration) {
    device.heal();
    device.inject(Rule::new(OpKind::Read, Fault::Delay(time)).times(u64::MAX)).unwrap();
}

fn key(number: u64) -> Vec<u8> {
    format!("key {:012}", number * 7).into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    let mut value = vec![0; 1500];
    Rng::new(number).fill(&mut value);
    value
}

fn status(db: &Db) -> ScmStatus {
    db.statistics().scm.unwrap()
}

/// One page read of the tier's device per hit, however many keys a multi-get has.
#[test]
fn a_hit_in_scm_reads_one_page_of_its_device() {
    let machine = Machine::new();
    let (db, keyspace, mut rng) = machine.warmed();
    let read = || (machine.metered.snapshot().total(), status(&db).counts);
    let (before, counts) = read();
    machine.get(&keyspace, &mut rng, 10_000);
    let numbers: Vec<u64> = (0..2000).map(|_| rng.below(KEYS)).collect();
    for numbers in numbers.chunks(64) {
        let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
        assert!(
            keyspace.multi_get(&keys).unwrap().into_iter().all(|found| found.unwrap().is_some())
        );
    }
    let (after, status) = read();
    let hits = status.hits_data + status.hits_meta - counts.hits_data - counts.hits_meta;
    let read = after - before;
    assert!(hits > 1000, "{status:?}");
    assert_eq!((read.read_ops, read.read_bytes), (hits, hits * 4096), "{status:?}");
}

#[test]
fn reads_bypass_a_tier_while_it_is_slower_than_flash() {
    let machine = Machine::new();
    let (db, keyspace, mut rng) = machine.warmed();
    takes(&machine.below, Duration::from_millis(3));
    // How many gets read the tier and flash depends on what DRAM holds.
    let rounds = (0..20).take_while(|_| !status(&db).slow);
    rounds.for_each(|_| machine.get(&keyspace, &mut rng, 5000));
    let slow = status(&db);
    assert!(slow.slow && slow.counts.passed > 0, "{slow:?}");
    // Once the tier bypass is on, hardly any answer comes from SCM.
    let before = db.statistics().hits;
    machine.get(&keyspace, &mut rng, 10_000);
    let hits = db.statistics().hits;
    let (below, flash) = (hits.scm - before.scm, hits.flash - before.flash);
    assert!(flash > 1000 && below * 50 < flash, "{below} {flash}");
    takes(&machine.below, WELL);
    // A few sampled reads notice a recovery within a minute.
    let began = machine.clock.unix_millis();
    while status(&db).slow {
        machine.get(&keyspace, &mut rng, 5000);
        assert!(machine.clock.unix_millis() < began + 60_000, "{:?}", status(&db));
    }
    let before = db.statistics().hits.scm;
    machine.get(&keyspace, &mut rng, 10_000);
    assert!(db.statistics().hits.scm > before + 500, "{:?}", status(&db));
    machine.get(&keyspace, &mut rng, 1000);
    let events = machine.events.0.lock().unwrap().clone();
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(
        events[0].contains("slower than flash") && events[1].contains("serves again"),
        "{events:?}"
    );
}

/// Overlapping reads give no latency; now and then one is timed alone.
#[test]
fn multi_gets_notice_a_slow_tier_too() {
    let machine = Machine::new();
    let (db, keyspace, mut rng) = machine.warmed();
    let mut multi_get = |batches: u64| {
        for _ in 0..batches {
            let numbers: Vec<u64> = (0..64).map(|_| rng.below(KEYS)).collect();
            let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
            for (number, found) in numbers.iter().zip(keyspace.multi_get(&keys).unwrap()) {
                assert_eq!(found.unwrap().unwrap(), value(*number));
            }
            machine.clock.advance(Duration::from_millis(1));
            (0..8).all(|_| machine.executor.help());
        }
    };
    takes(&machine.flash, Duration::from_micros(300));
    multi_get(300);
    let [hit, flash] = nanos(&db);
    assert!(
        (10_000..15_000).contains(&hit) && (250_000..302_000).contains(&flash),
        "{hit} {flash}"
    );
    takes(&machine.below, Duration::from_millis(3));
    let batches = (0..100).take_while(|_| !status(&db).slow).map(|_| multi_get(20)).count();
    let [hit, _] = nanos(&db);
    assert!(status(&db).slow && hit > 300_000, "{batches} {hit}: {:?}", status(&db));
}

/// The measured durations of a page read from the tier and from flash.
fn nanos(db: &Db) -> [u32; 2] {
    let counts = status(db).counts;
    [counts.hit_nanos, counts.flash_nanos]
}

/// The tier is off from its first error on, and the store reports the reason.
fn breaks(rule: Rule, said: &str) {
    let machine = Machine::new();
    let (db, keyspace, mut rng) = machine.warmed();
    machine.below.heal();
    machine.below.inject(rule).unwrap();
    machine.get(&keyspace, &mut rng, 10_000);
    let failed = status(&db);
    assert!(failed.failure.as_ref().is_some_and(|why| why.contains(said)), "{failed:?}");
    let before = db.statistics().hits.scm;
    machine.get(&keyspace, &mut rng, 5000);
    keyspace.put("new", "value").unwrap();
    db.flush().unwrap();
    assert_eq!(keyspace.get("new").unwrap().unwrap(), "value");
    let hits = db.statistics().hits;
    assert!(hits.scm == before && hits.flash > 1000, "{hits:?}");
    let events = machine.events.0.lock().unwrap().clone();
    assert!(events.len() == 1 && events[0].contains(said), "{events:?}");
    drop((db, keyspace));
    // A working device serves its contents again at the next opening.
    takes(&machine.below, WELL);
    let (db, keyspace) = machine.open();
    machine.get(&keyspace, &mut rng, 10_000);
    let again = status(&db);
    assert!(again.failure.is_none() && again.counts.restored > 1000, "{again:?}");
    assert!(again.counts.hits_data > 500 && again.counts.damaged < 100, "{again:?}");
}

/// Multi-gets do not need the tier either.
#[test]
fn multi_gets_work_without_a_queue_of_the_tier_or_with_a_broken_one() {
    for queues in [Queues::Refused, Queues::Broken] {
        let machine = Machine::new();
        let (db, keyspace, mut rng) = machine.warmed();
        let get = |rng: &mut Rng| {
            let numbers: Vec<_> = (0..64).map(|_| rng.below(rng.clone().below(KEYS) + 1)).collect();
            let numbers = numbers.iter().map(|number| number.wrapping_mul(48_271) % KEYS);
            let numbers: Vec<_> = numbers.collect();
            let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
            let found = keyspace.multi_get(&keys).unwrap();
            for (number, found) in numbers.iter().zip(found) {
                let found = found.unwrap();
                assert_eq!(found.unwrap(), value(*number), "{number}");
            }
        };
        *machine.queues.lock().unwrap() = queues;
        (0..50).for_each(|_| get(&mut rng));
        let failure = status(&db).failure;
        assert_eq!(failure.is_some(), queues == Queues::Broken, "{failure:?}");
        // Refused queues are requested again.
        *machine.queues.lock().unwrap() = Queues::Given;
        let before = db.statistics().hits.scm;
        (0..50).for_each(|_| get(&mut rng));
        let hits = db.statistics().hits.scm - before;
        assert_eq!(hits > 100, queues == Queues::Refused, "{hits}");
    }
}

#[test]
fn a_tier_on_a_full_device_is_turned_off_and_reported() {
    breaks(Rule::new(OpKind::Write, Fault::NoSpace), "space");
}

#[test]
fn an_unreadable_tier_is_turned_off_and_reported() {
    breaks(Rule::new(OpKind::Read, Fault::Io), "tier");
}
