use super::*;
use crate::Charge;

fn breakdown(budget: &Budget) -> Vec<(&'static str, u64, u64)> {
    let usage = budget.usage();
    usage.accounts.iter().map(|account| (account.name, account.used, account.peak)).collect()
}

#[test]
fn a_charge_over_the_limit_is_refused_and_takes_nothing() {
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
fn a_cap_refuses_though_the_budget_has_room() {
    let budget = Budget::new(100);
    let account = budget.account("reads");
    account.set_cap(30);
    let held = account.charge(30).unwrap();
    let error = account.charge(1).unwrap_err().to_string();
    assert!(error.contains("at most 30"), "{error}");
    assert_eq!((account.used(), budget.used()), (30, 30));
    // What is charged above a lower cap stays.
    account.set_cap(10);
    assert!(!account.has_room(0) && budget.account("other").charge(70).is_ok());
    drop(held);
    assert!(account.charge(10).is_ok());
}

/// A cache of charges of 10 bytes; notes when it was asked, and for how much.
struct Hoard {
    held: Mutex<Vec<Charge>>,
    asked: Mutex<Vec<u64>>,
    budget: Budget,
}

impl Hoard {
    fn new(budget: &Budget, order: ReclaimOrder, name: &'static str, count: usize) -> Arc<Self> {
        let account = match order {
            ReclaimOrder::Cache => budget.spare_account(name),
            _ => budget.account(name),
        };
        let held = (0..count).filter_map(|_| account.try_charge(10)).collect();
        let (held, asked) = (Mutex::new(held), Mutex::default());
        let hoard = Arc::new(Self { held, asked, budget: budget.clone() });
        let weak = Arc::downgrade(&hoard);
        budget.add_reclaimer(order, weak);
        hoard
    }

    fn asked(&self) -> Vec<u64> {
        std::mem::take(&mut self.asked.lock())
    }
}

impl Reclaim for Hoard {
    fn reclaim(&self, bytes: u64) -> u64 {
        self.asked.lock().push(bytes);
        // Charging here must ask nobody, or it would never end.
        assert!(self.budget.account("recursion").charge(u64::MAX / 2).is_err());
        let mut held = self.held.lock();
        let count = (bytes.div_ceil(10) as usize).min(held.len());
        held.drain(..count).map(|charge| charge.bytes()).sum()
    }
}

#[test]
fn a_refused_charge_asks_in_order_for_what_is_missing() {
    let budget = Budget::new(100);
    // Added in another order than they are asked.
    let buffers = Hoard::new(&budget, ReclaimOrder::Buffers, "buffers", 3);
    let cache = Hoard::new(&budget, ReclaimOrder::Cache, "cache", 4);
    let optional = Hoard::new(&budget, ReclaimOrder::Optional, "optional", 2);
    assert_eq!(budget.used(), 90);
    let needed = budget.account("needed");
    let small = needed.charge(10).unwrap();
    assert_eq!((cache.asked(), optional.asked(), buffers.asked()), (vec![], vec![], vec![]));
    let first = needed.charge(15).unwrap();
    assert_eq!((cache.asked(), optional.asked(), buffers.asked()), (vec![15], vec![], vec![]));
    let second = needed.charge(40).unwrap();
    assert_eq!((cache.asked(), optional.asked()), (vec![35], vec![15]));
    assert_eq!((buffers.asked(), budget.usage().reclaimed), (vec![], 60));
    // Nobody has enough: everybody gave what there was, and the charge is refused whole.
    assert!(needed.charge(90).is_err());
    assert_eq!((buffers.held.lock().len(), needed.used()), (0, 65));
    // Those that are gone are not asked.
    drop((cache, optional, buffers));
    assert!(needed.charge(90).is_err());
    drop((small, first, second));
    assert_eq!(budget.used(), 0);
}

#[test]
fn spare_accounts_ask_nobody_and_leave_what_others_took_lately() {
    let budget = Budget::new(100);
    let hoard = Hoard::new(&budget, ReclaimOrder::Optional, "optional", 3);
    let (cache, needed) = (budget.spare_account("cache"), budget.account("needed"));
    let pages = cache.charge(70).unwrap();
    assert!(cache.charge(1).is_err() && hoard.asked().is_empty());
    drop(pages);
    drop(needed.charge(50).unwrap());
    // 30 are taken, and 80 were.
    assert!(cache.try_charge(21).is_none());
    let pages = cache.try_charge(20).unwrap();
    // A cache that is refused often enough gets what nobody came back for.
    let refused = (0..3 * PATIENCE).take_while(|_| !cache.has_room(20)).count() as u64;
    // One refusal came before.
    assert_eq!(refused, PATIENCE - 1);
    let more = cache.try_charge(20).unwrap();
    assert!(!cache.has_room(20));
    // What is needed comes back at once all the same, or would if the cache were asked.
    assert!(needed.charge(30).is_ok());
    assert_eq!(budget.usage().spare, 40);
    drop((pages, more));
    assert_eq!((budget.usage().spare, budget.used()), (0, 30));
}

#[test]
fn a_lower_limit_is_told_what_is_above_it() {
    let budget = Budget::new(100);
    let cache = Hoard::new(&budget, ReclaimOrder::Cache, "cache", 5);
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
fn threads_charge_no_more_than_the_limit_and_lose_nothing() {
    let budget = Budget::new(1000);
    let cache = Hoard::new(&budget, ReclaimOrder::Cache, "cache", 40);
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
