use std::collections::{HashMap, VecDeque};
use std::io::Cursor;
use std::path::PathBuf;

use base::{Account, Result, Rng, key_hash};
use cache::curve::{Contest, MissCurve, Point, Simulations, Subject};
use cache::{PageKind, rows::Ghost, rows::policy};

use super::*;
use crate::Zipf;
use crate::trace::{Access, Format, Trace};

/// The cache policy run on every key exactly, for entries of one size.
struct Exact {
    capacity: usize,
    new: VecDeque<u64>,
    main: VecDeque<u64>,
    heat: HashMap<u64, u8>,
    ghost: Ghost,
    admission: policy::Admission,
    /// The rules to follow; without it they are open.
    contest: Option<Contest>,
}

impl Exact {
    fn miss_ratio(mut cache: Self, stream: &[u64]) -> f64 {
        let misses = stream.iter().filter(|key| !cache.ask(**key)).count();
        misses as f64 / stream.len() as f64
    }

    fn new(capacity: usize) -> Self {
        let ghost = Ghost::new(policy::ghost_entries(policy::Rules::Open, capacity));
        let (new, main, heat, admission) = Default::default();
        Self { capacity, new, main, heat, ghost, admission, contest: None }
    }

    fn following(capacity: usize) -> Self {
        let account = Account::unlimited("contest");
        let contest = Contest::new(&account, Subject::Pages, (capacity * 4096) as u64);
        assert!(contest.bytes() > 0, "{capacity} entries are too few for a contest");
        Self { contest: Some(contest), ..Self::new(capacity) }
    }

    fn ask(&mut self, key: u64) -> bool {
        self.ask_with(key, &mut |_, _| {})
    }

    /// Looks up `key`, admits it if it misses, and calls `on_evict` with each evicted key and its queue.
    fn ask_with(&mut self, key: u64, on_evict: &mut dyn FnMut(u64, policy::Queue)) -> bool {
        if let Some(contest) = &self.contest {
            contest.ask(key, 4096, PageKind::Data, || (self.capacity * 4096) as u64);
        }
        if let Some(heat) = self.heat.get_mut(&key) {
            *heat = (*heat + 1).min(3);
            return true;
        }
        let rules = self.contest.as_ref().map(Contest::rules).unwrap_or_default();
        self.ghost.set_len(policy::ghost_entries(rules, self.capacity));
        let recalled = self.ghost.recall(key);
        let entered = self.admission.queue_of_admitted(rules, recalled);
        while self.heat.len() >= self.capacity {
            let queue = policy::victim(rules, self.new.len() as u64, self.main.len() as u64);
            let list = if queue == policy::Queue::New { &mut self.new } else { &mut self.main };
            let oldest = list.pop_front().unwrap();
            self.admission.note_turn(queue, self.heat[&oldest]);
            match policy::verdict(queue, self.heat[&oldest]) {
                policy::Verdict::Keep(heat) => {
                    self.heat.insert(oldest, heat);
                    self.main.push_back(oldest);
                }
                policy::Verdict::Evict { remember } => {
                    self.heat.remove(&oldest);
                    on_evict(oldest, queue);
                    if remember {
                        self.ghost.remember(oldest);
                    }
                }
            }
        }
        self.heat.insert(key, 0);
        match entered {
            policy::Queue::New => self.new.push_back(key),
            policy::Queue::Main => self.main.push_back(key),
        }
        false
    }
}

/// Compares the miss ratios from a sample with exact ones, for caches of 1, 5, 10 and 25 % of the footprint.
fn compare(name: &str, stream: &[u64]) {
    let footprint = stream.iter().collect::<std::collections::HashSet<_>>().len();
    let sizes = [1, 5, 10, 25].map(|percent| (footprint * percent / 100).max(16));
    let bytes = sizes.map(|size| size as u64 * 4096);
    // The memory that a store with 512 MiB gives its page simulations.
    let mut sampled = Simulations::new(Subject::Pages, &bytes, 1.0, (512 << 20) / 420);
    for key in stream {
        sampled.ask(*key, 4096, PageKind::Data);
    }
    let curve = sampled.curve(stream.len() as u64);
    for (size, bytes) in sizes.into_iter().zip(bytes) {
        let (told, exact) =
            (curve.miss_ratio(bytes as f64), Exact::miss_ratio(Exact::new(size), stream));
        let rate = sampled.rate();
        println!("{name}: {size} of {footprint}, 1 in {:.0}: {told:.4}, {exact:.4}", 1.0 / rate);
        assert!((told - exact).abs() < 0.02, "{name} at {size}: {told}, exactly {exact}");
    }
}

/// A scan of `length` caches over and over, mixed with as many zipfian reads: a cache follows the contest of
/// rules, and so does the sample of the planner, at each size.
#[test]
fn a_sample_of_a_loop_is_within_five_points() {
    let capacity = 4000;
    for length in [0.5, 1.0, 2.0, 4.0] {
        let (zipf, mut rng) = (Zipf::new(40_000, 0.9).unwrap(), Rng::new(7));
        let looped = (capacity as f64 * length) as u64;
        let key = |at: u64| match at % 2 {
            0 => (1 << 32) + at / 2 % looped,
            _ => zipf.draw(&mut rng),
        };
        let stream: Vec<_> =
            (0..300_000).map(key).map(|key| key_hash(&key.to_le_bytes())).collect();
        let bytes = [1, 2, 4].map(|part| (capacity * part / 2 * 4096) as u64);
        let mut sampled = Simulations::following(Subject::Pages, &bytes, 1.0, 256 << 10);
        for key in &stream {
            sampled.ask(*key, 4096, PageKind::Data);
        }
        assert!(sampled.rate() < 0.4, "{}", sampled.rate());
        let curve = sampled.curve(stream.len() as u64);
        // A cache of half the size has too little memory for a contest.
        for (size, bytes) in [(capacity, bytes[1]), (2 * capacity, bytes[2])] {
            let told = curve.miss_ratio(bytes as f64);
            let exact = Exact::miss_ratio(Exact::following(size), &stream);
            println!(
                "loop of {length}: {size}, 1 in {:.0}: {told:.4}, {exact:.4}",
                1.0 / sampled.rate()
            );
            assert!(
                (told - exact).abs() < 0.05,
                "loop of {length}, {size}: {told}, exactly {exact}"
            );
        }
    }
}

fn zipfian(keys: u64, count: usize) -> Vec<u64> {
    let (zipf, mut rng) = (Zipf::new(keys, 0.99).unwrap(), Rng::new(1));
    (0..count).map(|_| key_hash(&zipf.draw(&mut rng).to_le_bytes())).collect()
}

#[test]
fn a_sample_of_a_zipfian_stream_is_within_two_points() {
    compare("zipfian 0.99", &zipfian(200_000, 600_000));
}

/// On the traces in the directory that `TERRACE_TRACES` names. They are public, and not part of the
/// repository.
#[test]
fn a_sample_of_a_trace_is_within_two_points() {
    let Some(directory) = std::env::var_os("TERRACE_TRACES").map(PathBuf::from) else {
        println!("skipped: TERRACE_TRACES names no directory of traces");
        return;
    };
    let traces = [
        ("OLTP.lis.zst", Format::Lis),
        ("P3.lis.zst", Format::Lis),
        ("scarab-recs.trace.xz", Format::U64Be),
        ("web07.trace.xz", Format::U32),
        ("cloudPhysicsIO.oracleGeneral.bin", Format::OracleGeneral),
    ];
    for (name, format) in traces {
        let Ok(mut trace) = format.open(&directory.join(name)) else {
            println!("skipped: {name} is not in {}", directory.display());
            continue;
        };
        let (mut keys, mut access) = (Vec::new(), Access::default());
        while trace.next(&mut access).unwrap() {
            keys.push(key_hash(&access.key));
        }
        compare(name, &keys);
    }
}

/// A zipfian trace of `count` reads of `keys` keys.
fn trace(keys: u64, count: usize) -> impl FnMut() -> Result<Box<dyn Trace>> {
    let (zipf, mut rng) = (Zipf::new(keys, 0.99).unwrap(), Rng::new(3));
    let scrambled = |rank: u64| rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1 << 40);
    let bytes: Vec<u8> =
        (0..count).flat_map(|_| scrambled(zipf.draw(&mut rng)).to_be_bytes()).collect();
    move || Format::U64Be.read("trace", Box::new(Cursor::new(bytes.clone())))
}

fn prices() -> Prices {
    let tier = |dollars: f64, latency: f64, cpu: f64| Tier {
        dollars,
        watts: dollars / 100.0,
        latency,
        stalls: latency < 1.0,
        cpu,
        pages: 1e6,
    };
    let server = |name: &str, cores: f64, dollars: f64, dram_max: f64| Server {
        name: name.to_owned(),
        cores,
        dollars,
        watts: dollars / 10.0,
        dram_max,
    };
    Prices {
        object_store: None,
        name: "test".to_owned(),
        dram: tier(10.0, 0.1, 0.0),
        scm: tier(4.0, 0.4, 0.2),
        flash: tier(0.0, 80.0, 8.0),
        processor: Processor { row: 0.6, page: 2.5, in_flight: 16.0 },
        servers: vec![server("one", 16.0, 3000.0, 64.0), server("two", 32.0, 6000.0, 256.0)],
        sources: Vec::new(),
    }
}

#[test]
fn a_survey_gives_the_demand_at_each_size_of_the_row_cache() {
    let demand = survey(&mut trace(50_000, 400_000), &Layout::default()).unwrap();
    assert_eq!(demand.operations, 400_000);
    let [none, .., all] = &demand.behind[..] else { panic!("{demand:?}") };
    assert_eq!((none.row_bytes, none.row_misses), (0.0, 1.0));
    // If all rows fit, only first reads miss: one per distinct key, about 40,000.
    assert!((0.05..0.12).contains(&all.row_misses), "{}", all.row_misses);
    let everything = all.reads(1e12, 0.0, false);
    assert_eq!(everything.ends[2], 0.0);
    let first_reads = everything.flash * 400_000.0 * 4096.0;
    assert!(first_reads / demand.footprint > 0.8, "{first_reads} of {}", demand.footprint);
    for behind in &demand.behind {
        let reads = behind.reads(demand.footprint / 20.0, demand.footprint / 5.0, false);
        let sum: f64 = reads.ends.iter().sum();
        assert!((sum - 1.0).abs() < 1e-9, "{reads:?}");
        assert!((reads.dram + reads.scm + reads.flash - behind.lookups).abs() < 1e-6);
        let stay = behind.reads(demand.footprint / 20.0, demand.footprint / 5.0, true);
        // No page is in both tiers, so together they hold more pages.
        assert_eq!(stay.dram, 0.0);
        assert!(stay.flash <= reads.flash && stay.flash > 0.0);
        let more = behind.reads(demand.footprint / 10.0, demand.footprint / 5.0, false);
        assert!(more.flash <= reads.flash && more.hit_ratio() >= reads.hit_ratio());
    }
    let large = demand.clone().scaled(100.0);
    let [small, large] = [(&demand, 1.0), (&large, 100.0)].map(|(demand, times)| {
        let dram = demand.footprint / 10.0;
        let mix = Mix { dram, scm: 3.0 * dram };
        let outcome = mix.outcome(demand, &prices(), &prices().servers[0]).unwrap();
        (outcome.throughput, outcome.cache_dollars * 100.0 / times)
    });
    assert!((small.0 / large.0 - 1.0).abs() < 1e-3 && (small.1 / large.1 - 1.0).abs() < 1e-3);
}

/// Reads of keys of which many share a page: after one lap of new keys, all are read again.
#[test]
fn a_new_key_misses_although_its_neighbours_are_cached() {
    let keys = 0..2000u64;
    let bytes: Vec<u8> = keys.clone().chain(keys).flat_map(u64::to_be_bytes).collect();
    let mut open = || Format::U64Be.read("trace", Box::new(Cursor::new(bytes.clone())));
    let demand = survey(&mut open, &Layout::default()).unwrap();
    let most = demand.splits(1e9, 0.0, false).map(|it| it.hit_ratio()).fold(0.0, f64::max);
    assert!((most - 0.5).abs() < 1e-3, "{most}");
}

/// More memory is never worse, and no step of an eighth more jumps: neither at the sizes of the simulated row
/// caches, nor where DRAM begins to hold all metadata.
#[test]
fn hits_grow_without_steps() {
    let demand = survey(&mut trace(50_000, 400_000), &Layout::default()).unwrap();
    let hits = |dram: f64| {
        let splits = demand.splits(dram, 0.0, false).map(|it| it.hit_ratio());
        splits.fold(0.0, f64::max)
    };
    let sizes = (0..60).map(|step| demand.footprint * 0.002 * 1.125f64.powi(step));
    let hits: Vec<_> = sizes.map(hits).collect();
    assert!(hits[0] > 0.05, "less DRAM than metadata serves something: {hits:?}");
    for pair in hits.windows(2) {
        assert!(pair[1] >= pair[0] - 0.002 && pair[1] < pair[0] + 0.06, "{hits:?}");
    }
}

#[test]
fn mixes_are_ordered_by_price_and_the_cheapest_at_the_target_is_chosen() {
    let demand = survey(&mut trace(50_000, 200_000), &Layout::default()).unwrap().scaled(20_000.0);
    let question = |target| Question { target, ..Question::default() };
    let best = plan(&demand, &prices(), &question(None));
    assert!(best.mixes.len() > 100);
    assert!(best.mixes.is_sorted_by(|one, other| one.outcome.dollars <= other.outcome.dollars));
    let efficient: Vec<_> = best.mixes.iter().filter(|it| it.is_efficient).collect();
    assert!(efficient.len() > 2);
    assert!(efficient.is_sorted_by(|a, b| a.outcome.throughput < b.outcome.throughput));
    for target in [Target::Hit(0.85), Target::Latency(20.0), Target::Throughput(1e6)] {
        let plan = plan(&demand, &prices(), &question(Some(target)));
        let chosen = plan.chosen.unwrap();
        for (place, mix) in plan.mixes.iter().enumerate() {
            assert!(place >= chosen || !target.is_reached(&mix.outcome), "{target:?}");
        }
        assert!(target.is_reached(&plan.mixes[chosen].outcome));
    }
    assert_eq!(plan(&demand, &prices(), &question(Some(Target::Hit(1.0)))).chosen, None);
    let one = Question { dram: vec![1e9], scm: vec![0.0], target: None };
    assert_eq!(plan(&demand, &prices(), &one).mixes.len(), 2);
    // Only the larger server holds 100 GB of DRAM.
    let one = Question { dram: vec![1e11], scm: vec![0.0], target: None };
    assert_eq!(plan(&demand, &prices(), &one).mixes.len(), 1);
}

#[test]
fn throughput_is_bounded_by_latency_cores_or_devices() {
    let miss = |ratio: f64| MissCurve {
        accesses: 1000,
        points: vec![Point { bytes: 1 << 30, misses: 1000.0 * ratio }],
    };
    let demand = |ratio| Demand {
        operations: 1000,
        behind: vec![BehindRowCache {
            row_misses: 1.0,
            lookups: 1.0,
            pages: miss(ratio),
            ..BehindRowCache::default()
        }],
        ..Demand::default()
    };
    let mix = Mix { dram: 8e9, scm: 0.0 };
    let outcome = |ratio, prices: &Prices| mix.outcome(&demand(ratio), prices, &prices.servers[0]);
    let fast = outcome(0.0, &prices()).unwrap();
    assert_eq!((fast.limit, fast.throughput), (Limit::Processor, 1e6 / 2.6 * 16.0));
    let mut slow = prices();
    slow.processor.in_flight = 1.0;
    let waiting = outcome(1.0, &slow).unwrap();
    assert_eq!((waiting.limit, waiting.latency.round()), (Limit::Latency, 91.0));
    slow.processor.in_flight = 1e3;
    slow.flash.pages = 1e5;
    let bound = outcome(0.5, &slow).unwrap();
    assert_eq!((bound.limit, bound.throughput.round()), (Limit::Flash, 200_000.0));
    assert!((bound.reads.hit_ratio() - 0.5).abs() < 1e-9);
    assert!((fast.cache_dollars - 8e9 / (1u64 << 30) as f64 * 10.0).abs() < 1e-6);
    assert_eq!(fast.dollars - fast.cache_dollars, 3000.0);
}

#[test]
fn the_curves_of_a_store_give_its_demand() {
    let points = |misses: [f64; 2]| {
        let sizes = [1 << 20, 1 << 24].into_iter().zip(misses);
        sizes.map(|(bytes, misses)| Point { bytes, misses }).collect()
    };
    let rows = MissCurve { accesses: 900, points: points([450.0, 90.0]) };
    let pages = MissCurve { accesses: 1000, points: points([400.0, 100.0]) };
    let demand = Demand::measured(1000, &rows, &pages, 500);
    let [none, small, large] = &demand.behind[..] else { panic!() };
    assert_eq!((none.row_misses, none.lookups), (1.0, 2.0));
    assert!((small.row_misses - 0.55).abs() < 1e-9 && (small.lookups - 1.1).abs() < 1e-9);
    assert!((large.row_misses - 0.19).abs() < 1e-9);
    assert!((small.reads(f64::from(1 << 24) * 1.03, 0.0, false).flash - 0.11).abs() < 1e-9);
    let empty = Demand::measured(0, &MissCurve::default(), &MissCurve::default(), 0);
    assert!(empty.behind[0].reads(1e9, 1e9, true).flash.is_finite());
}

#[test]
fn a_trace_without_reads_is_refused() {
    let mut open = || Format::U64Be.read("trace", Box::new(Cursor::new(Vec::new())));
    assert!(survey(&mut open, &Layout::default()).is_err());
    let puts = "0,a,1,10,1,set,0\n";
    let mut open =
        || Format::TwitterCsv.read("trace", Box::new(Cursor::new(puts.as_bytes().to_vec())));
    assert!(survey(&mut open, &Layout::default()).is_err());
}

/// Misses of rows in DRAM and SCM with the policy of `cache::scm`, in the second half of `stream`: DRAM
/// demotes evicted rows, hits in SCM are promoted and stay in SCM, and a clock hand spares rows that were
/// used twice.
fn misses_of_both(stream: &[u64], dram: usize, scm: usize) -> usize {
    let (mut above, mut below) = (Exact::new(dram), HashMap::<u64, u8>::new());
    let (mut order, mut misses) = (VecDeque::new(), 0);
    for (at, key) in stream.iter().enumerate() {
        let mut left = Vec::new();
        if above.ask_with(*key, &mut |gone, queue| left.push((gone, queue))) {
            continue;
        }
        match below.get_mut(key) {
            Some(heat) => *heat = (*heat + 1).min(3),
            None => misses += usize::from(at >= stream.len() / 2),
        }
        for (key, queue) in left {
            // A row that was used once evicts no other.
            let is_cold = queue == policy::Queue::New && below.len() >= scm;
            if is_cold || below.contains_key(&key) {
                continue;
            }
            while below.len() >= scm {
                let oldest = order.pop_front().unwrap();
                match below.get_mut(&oldest) {
                    Some(heat) if *heat > 0 => {
                        *heat -= 1;
                        order.push_back(oldest);
                    }
                    _ => drop(below.remove(&oldest)),
                }
            }
            below.insert(key, 0);
            order.push_back(key);
        }
    }
    misses
}

#[test]
fn rows_of_both_tiers_hit_like_one_cache() {
    for skew in [0.99, 0.8] {
        let (zipf, mut rng) = (Zipf::new(40_000, skew).unwrap(), Rng::new(5));
        let stream: Vec<_> =
            (0..500_000).map(|_| key_hash(&zipf.draw(&mut rng).to_le_bytes())).collect();
        let half = stream.len() / 2;
        for (dram, scm) in [(3200, 800), (1600, 800), (1600, 1600), (1600, 6400), (800, 6400)] {
            let mut one = Exact::new(demand::held_rows(f64::from(dram), f64::from(scm)) as usize);
            let hits: Vec<_> = stream.iter().map(|key| one.ask(*key)).collect();
            let told = hits[half..].iter().filter(|hit| !**hit).count() as f64 / half as f64;
            let exact = misses_of_both(&stream, dram as usize, scm as usize) as f64 / half as f64;
            println!("rows, {skew}: {dram} + {scm} of 40,000: {told:.4}, {exact:.4}");
            assert!(
                (told - exact).abs() < 0.012,
                "{skew}: {dram} + {scm}: {told}, exactly {exact}"
            );
        }
    }
}

/// Misses in 1000 lookups at 1, 4, 16, 64 and 256 MiB.
fn curve(misses: [f64; 5]) -> MissCurve {
    let sizes = [1u64, 4, 16, 64, 256].into_iter().zip(misses);
    let points = sizes.map(|(mib, misses)| Point { bytes: mib << 20, misses }).collect();
    MissCurve { accesses: 1000, points }
}

const MIB: f64 = (1u64 << 20) as f64;

#[test]
fn rows_in_scm_save_flash_reads_if_they_hit_more_than_pages() {
    let rows = curve([500.0, 350.0, 200.0, 100.0, 50.0]);
    let pages = curve([990.0, 980.0, 960.0, 900.0, 700.0]);
    let demand = Demand::measured(1000, &rows, &pages, 0);
    let (dram, scm) = (16.0 * MIB, 64.0 * MIB);
    let least = |splits: &mut dyn Iterator<Item = Reads>| {
        splits.min_by(|one, other| one.flash.total_cmp(&other.flash)).unwrap()
    };
    let best = least(&mut demand.splits(dram, scm, true));
    let before = least(&mut demand.splits(dram, scm, true).filter(|it| it.scm_row_bytes == 0.0));
    assert!(best.flash < 0.85 * before.flash, "{best:?}, {before:?}");
    assert!(best.scm_rows > 0.0 && best.scm_row_bytes <= scm * 14.0 / 16.0);
    for reads in demand.splits(dram, scm, true) {
        let sum: f64 = reads.ends.iter().sum();
        assert!(
            (sum - 1.0).abs() < 1e-9 && reads.ends.iter().all(|part| *part >= 0.0),
            "{reads:?}"
        );
        assert!(reads.ends[2] >= reads.scm_rows && reads.scm_rows >= 0.0, "{reads:?}");
    }
    // 16 MiB of rows in DRAM and 56 MiB of SCM hit like 60.8 MiB of rows, nearly all the way from 16 to 64.
    let most = demand.splits(dram, scm, true).find(|it| it.row_bytes == dram).unwrap();
    assert_eq!(most.scm_row_bytes, 56.0 * MIB);
    let part = 0.93 * 0.86 * 56.0 / 48.0;
    assert!((most.scm_rows - 0.1 * part).abs() < 1e-9, "{most:?}");
    assert!((most.scm + most.flash - (0.2 - 0.1 * part)).abs() < 1e-9, "{most:?}");
    // The chosen split has rows in SCM.
    let planned = Mix { dram, scm }.outcome(&demand, &prices(), &prices().servers[0]).unwrap();
    assert!(planned.reads.scm_row_bytes > 0.0);
    let blocks = Prices { scm: Tier { stalls: false, ..prices().scm }, ..prices() };
    let planned = Mix { dram, scm }.outcome(&demand, &blocks, &blocks.servers[0]).unwrap();
    assert_eq!((planned.reads.scm_row_bytes, planned.reads.scm_rows), (0.0, 0.0));
}

#[test]
fn scm_has_rows_only_if_it_is_memory_and_the_workload_has_rows() {
    let (dram, scm) = (16.0 * MIB, 64.0 * MIB);
    let pages = curve([990.0, 950.0, 850.0, 600.0, 200.0]);
    let demand = Demand::measured(1000, &curve([500.0, 350.0, 200.0, 100.0, 50.0]), &pages, 0);
    let each = |demand: &Demand, scm: f64, stay_below: bool| -> Vec<_> {
        let fit = demand.behind.iter().filter(|it| it.row_bytes <= dram);
        fit.map(|it| it.reads(dram - it.row_bytes, scm, stay_below)).collect()
    };
    for (scm, stay_below) in [(scm, false), (0.0, true), (0.0, false)] {
        let splits: Vec<_> = demand.splits(dram, scm, stay_below).collect();
        let known = each(&demand, scm, stay_below);
        assert!(known.iter().all(|it| splits.contains(it)) && splits.len() > known.len());
        assert!(splits.iter().all(|it| it.scm_row_bytes == 0.0));
    }
    let no_rows = Demand::measured(1000, &MissCurve::default(), &pages, 0);
    let splits: Vec<_> = no_rows.splits(dram, scm, true).collect();
    assert_eq!(splits, each(&no_rows, scm, true));
    assert_eq!(splits.len(), 1);
}

#[test]
fn a_row_in_scm_costs_the_processor_a_row_and_waits_less_than_a_page() {
    let behind = |mib: f64, row_misses: f64| BehindRowCache {
        row_bytes: mib * MIB,
        row_misses,
        lookups: row_misses,
        pages: curve([0.0; 5]),
    };
    // Rows answer half of the lookups in 16 MiB of DRAM, and the other half in 32 MiB of SCM.
    let behind = vec![behind(16.0, 0.5), behind(16.0 + 32.0 * 0.86 * 0.93, 0.0)];
    let demand = Demand { operations: 1000, behind, ..Demand::default() };
    let mix = Mix { dram: 16.0 * MIB, scm: 64.0 * MIB };
    let mut cheap = prices();
    cheap.scm.cpu = 0.0;
    let outcome = mix.outcome(&demand, &cheap, &cheap.servers[0]).unwrap();
    // Of all splits with the same answers, the one with the fewest rows in SCM wins.
    assert_eq!(outcome.reads.scm_row_bytes, 32.0 * MIB);
    assert!((outcome.reads.scm_rows - 0.5).abs() < 1e-9);
    assert!((outcome.reads.ends[2] - 0.5).abs() < 1e-9);
    assert!((outcome.cpu - (0.6 + 0.5 * 0.4 / 2.0)).abs() < 1e-9, "{outcome:?}");
    // In the pages per second of the tier, a row counts as a page.
    cheap.scm.pages = 1000.0;
    let bound = mix.outcome(&demand, &cheap, &cheap.servers[0]).unwrap();
    assert_eq!((bound.limit, bound.throughput.round()), (Limit::Scm, 2000.0));
}
