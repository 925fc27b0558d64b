use super::*;
use crate::Charge;

fn breakdown(budget: &Budget) -> Vec<(&'static str, u64, u64)> {
    let usage = budget.usage();
    usage.accounts.iter().map(|account| (account.name, account.used, account.peak)).collect()
}

#[test] // I10
fn a_charge_over_the_limit_is_refused_and_charges_nothing() {
    let budget = Budget::new(100);
    let (one, two) = (budget.account("one"), budget.account("two"));
    let mut first = one.charge(60).unwrap();
    let error = two.charge(41).unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert_eq!((budget.used(), two.used()), (60, 0));
    assert!(first.grow(41).is_err() && !first.try_grow(41) && two.try_charge(41).is_none());
    first.grow(40).unwrap();
    first.shrink_to(10);
    assert_eq!(breakdown(&budget), [("one", 10, 100), ("two", 0, 0)]);
    assert_eq!(budget.usage().refused, 2);
    drop(first);
    assert_eq!(budget.used(), 0);
    assert_eq!(budget.account("one").peak(), 100);
}

#[test]
fn a_cap_refuses_a_charge_that_the_budget_has_room_for() {
    let budget = Budget::new(100);
    let account = budget.account("reads");
    account.set_cap(30);
    let held = account.charge(30).unwrap();
    let error = account.charge(1).unwrap_err().to_string();
    assert!(error.contains("at most 30"), "{error}");
    assert_eq!((account.used(), budget.used()), (30, 30));
    // Bytes above a lowered cap stay charged.
    account.set_cap(10);
    assert!(!account.has_room(0) && budget.account("other").charge(70).is_ok());
    drop(held);
    assert!(account.charge(10).is_ok());
}

/// A reclaimer that holds charges of 10 bytes each and records the bytes of each request.
struct TestReclaimer {
    held: Mutex<Vec<Charge>>,
    asked: Mutex<Vec<u64>>,
    budget: Budget,
}

impl TestReclaimer {
    fn new(budget: &Budget, order: ReclaimOrder, name: &'static str, count: usize) -> Arc<Self> {
        let account = match order {
            ReclaimOrder::Cache => budget.spare_account(name),
            _ => budget.account(name),
        };
        let held = (0..count).filter_map(|_| account.try_charge(10)).collect();
        let (held, asked) = (Mutex::new(held), Mutex::default());
        let reclaimer = Arc::new(Self { held, asked, budget: budget.clone() });
        let weak = Arc::downgrade(&reclaimer);
        budget.add_reclaimer(order, weak);
        reclaimer
    }

    fn asked(&self) -> Vec<u64> {
        std::mem::take(&mut self.asked.lock())
    }
}

impl Reclaim for TestReclaimer {
    fn reclaim(&self, bytes: u64) -> u64 {
        self.asked.lock().push(bytes);
        // A charge inside a reclaim must start no reclaim, or the recursion would never end.
        assert!(self.budget.account("recursion").charge(u64::MAX / 2).is_err());
        let mut held = self.held.lock();
        let count = (bytes.div_ceil(10) as usize).min(held.len());
        held.drain(..count).map(|charge| charge.bytes()).sum()
    }
}

#[test] // I10
fn a_charge_asks_reclaimers_in_order_for_the_missing_bytes() {
    let budget = Budget::new(100);
    // Registered in another order than they are asked.
    let buffers = TestReclaimer::new(&budget, ReclaimOrder::Buffers, "buffers", 3);
    let cache = TestReclaimer::new(&budget, ReclaimOrder::Cache, "cache", 4);
    let optional = TestReclaimer::new(&budget, ReclaimOrder::Optional, "optional", 2);
    assert_eq!(budget.used(), 90);
    let needed = budget.account("needed");
    let small = needed.charge(10).unwrap();
    assert_eq!((cache.asked(), optional.asked(), buffers.asked()), (vec![], vec![], vec![]));
    let first = needed.charge(15).unwrap();
    assert_eq!((cache.asked(), optional.asked(), buffers.asked()), (vec![15], vec![], vec![]));
    let second = needed.charge(40).unwrap();
    assert_eq!((cache.asked(), optional.asked()), (vec![35], vec![15]));
    assert_eq!((buffers.asked(), budget.usage().reclaimed), (vec![], 60));
    // All reclaimers together hold too little: each gives back everything, and the charge is refused.
    assert!(needed.charge(90).is_err());
    assert_eq!((buffers.held.lock().len(), needed.used()), (0, 65));
    // Dropped reclaimers are not asked.
    drop((cache, optional, buffers));
    assert!(needed.charge(90).is_err());
    drop((small, first, second));
    assert_eq!(budget.used(), 0);
}

#[test]
fn spare_accounts_start_no_reclaim_and_leave_recently_needed_memory_free() {
    let budget = Budget::new(100);
    let optional = TestReclaimer::new(&budget, ReclaimOrder::Optional, "optional", 3);
    let (cache, needed) = (budget.spare_account("cache"), budget.account("needed"));
    let pages = cache.charge(70).unwrap();
    assert!(cache.charge(1).is_err() && optional.asked().is_empty());
    drop(pages);
    drop(needed.charge(50).unwrap());
    // 30 bytes are needed now; 80 bytes were.
    assert!(cache.try_charge(21).is_none());
    let pages = cache.try_charge(20).unwrap();
    // After enough refusals the cache gets memory that no needed account used again.
    let refused = (0..3 * REFUSALS_PER_DECREASE).take_while(|_| !cache.has_room(20)).count() as u64;
    // One refusal came before.
    assert_eq!(refused, REFUSALS_PER_DECREASE - 1);
    let more = cache.try_charge(20).unwrap();
    assert!(!cache.has_room(20));
    // A needed account still gets the memory that is free.
    assert!(needed.charge(30).is_ok());
    assert_eq!(budget.usage().spare, 40);
    drop((pages, more));
    assert_eq!((budget.usage().spare, budget.used()), (0, 30));
}

/// A cache that fills up takes back what it gives, as soon as it may.
struct GreedyCache {
    account: Account,
    held: Mutex<Vec<Charge>>,
}

impl Reclaim for GreedyCache {
    fn reclaim(&self, _bytes: u64) -> u64 {
        let Some(given) = self.held.lock().pop() else { return 0 };
        let bytes = given.bytes();
        drop(given);
        // Another thread of the cache charges before the one that waits does.
        self.held.lock().extend(self.account.try_charge(bytes));
        bytes
    }
}

/// The flush of a store, which is told what the caches have left.
#[derive(Default)]
struct Told(Mutex<Vec<u64>>);

impl Reclaim for Told {
    fn reclaim(&self, _bytes: u64) -> u64 {
        0
    }

    fn others_reclaimed(&self, spare: u64) {
        self.0.lock().push(spare);
    }
}

#[test]
fn spare_accounts_leave_memory_that_is_reclaimed_for_a_waiting_charge() {
    let budget = Budget::new(100);
    let account = budget.spare_account("cache");
    let held = (0..10).map(|_| account.charge(10).unwrap()).collect();
    let cache = Arc::new(GreedyCache { account, held: Mutex::new(held) });
    let (weak, told) = (Arc::downgrade(&cache), Arc::new(Told::default()));
    budget.add_reclaimer(ReclaimOrder::Cache, weak);
    let weak = Arc::downgrade(&told);
    budget.add_reclaimer(ReclaimOrder::Buffers, weak);
    let held = budget.account("needed").charge(30).unwrap();
    assert_eq!((budget.used(), budget.usage().spare), (100, 70));
    assert_eq!(*told.0.lock(), [70], "told once, after the memory came back");
    drop(held);
    assert!(cache.account.try_charge(10).is_none(), "recently needed memory stays free");
}

#[test] // I10
fn spare_accounts_use_memory_that_is_set_aside_until_it_is_charged() {
    let budget = Budget::new(100);
    let flush = budget.set_aside("flushes", 30);
    let needed = budget.account("needed");
    let cache = TestReclaimer::new(&budget, ReclaimOrder::Cache, "cache", 10);
    assert_eq!((budget.used(), budget.usage().spare), (100, 100));
    // Others never get what is set aside, although caches would give it back.
    let held = needed.charge(70).unwrap();
    assert_eq!((budget.used(), budget.usage().spare), (100, 30));
    assert!(!needed.has_room(1) && needed.charge(1).is_err());
    // The refused charge asked the cache, in vain, and the cache keeps nothing of it.
    let asked = cache.asked();
    assert!(asked[0] == 70 && asked[1..].iter().all(|bytes| *bytes == 1), "{asked:?}");
    let flushing = flush.charge(30).unwrap();
    assert_eq!((budget.used(), budget.usage().spare), (100, 0));
    assert!(flush.charge(1).is_err());
    drop(held);
    assert!(needed.charge(71).is_err());
    let held = needed.charge(70).unwrap();
    // What the flush gives back is set aside again.
    drop(flushing);
    assert!(needed.charge(1).is_err());
    assert_eq!(budget.used(), 70);
    drop(held);
}

#[test]
fn set_limit_reclaims_and_returns_the_bytes_still_above_the_limit() {
    let budget = Budget::new(100);
    let cache = TestReclaimer::new(&budget, ReclaimOrder::Cache, "cache", 5);
    let needed = budget.account("needed");
    let held = needed.charge(40).unwrap();
    assert_eq!(budget.set_limit(60), 0);
    assert_eq!((cache.held.lock().len(), budget.used()), (2, 60));
    assert_eq!(budget.set_limit(30), 10);
    assert!(needed.charge(1).is_err());
    drop(held);
    assert_eq!(budget.set_limit(200), 0);
    assert!(needed.charge(200).is_ok());
}

#[test]
fn concurrent_charges_stay_within_the_limit_and_are_all_given_back() {
    let budget = Budget::new(1000);
    let cache = TestReclaimer::new(&budget, ReclaimOrder::Cache, "cache", 40);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (budget, spare) = (&budget, thread == 0);
            scope.spawn(move || {
                let account = match spare {
                    true => budget.spare_account("pages"),
                    false => budget.account("needed"),
                };
                for round in 0..2000 {
                    let held = account.try_charge(100 + (round * (thread + 1)) % 300);
                    assert!(budget.used() <= budget.limit());
                    drop(held);
                }
            });
        }
    });
    drop(cache);
    assert_eq!((budget.used(), budget.usage().spare), (0, 0));
}
