use base::{Account, Budget, Rng, key_hash};

use super::*;

const PAGE: u64 = PAGE_BYTES;

/// Asks for `count` keys, and returns the rules at the end.
fn rules_after(contest: &Contest, count: u64, mut key: impl FnMut(u64) -> u64) -> Rules {
    for at in 0..count {
        let hash = key_hash(&key(at).to_le_bytes());
        contest.ask(hash, PAGE as usize, PageKind::Data, || 8000 * PAGE);
    }
    contest.rules()
}

fn contest() -> Contest {
    Contest::new(&Account::unlimited("contest"), Subject::Pages, 8000 * PAGE)
}

#[test]
fn a_loop_longer_than_the_cache_is_guarded_and_recent_keys_are_not() {
    let contest = contest();
    assert_eq!(contest.rules(), Rules::Open);
    let guarded = rules_after(&contest, 150_000, |at| at % 10_000);
    assert_ne!(guarded, Rules::Open);
    // Keys that are used four times within an eighth of the cache, and never again: the last rules to keep
    // a part of the old keys lose.
    let mut rng = Rng::new(1);
    let recent = rules_after(&contest, 400_000, |at| (1 << 32) + at / 4 + rng.below(2000));
    assert_eq!(recent, Rules::Open);
}

#[test]
fn a_contest_charges_its_memory_and_stays_within_it() {
    let budget = Budget::new(1 << 20);
    let account = budget.account("contest");
    let contest = Contest::new(&account, Subject::Rows, 1 << 30);
    assert_eq!((account.used(), contest.bytes()), (BYTES_MAX, BYTES_MAX));
    let mut rng = Rng::new(2);
    for at in 0..400_000u64 {
        let (hash, cache) = (rng.next_u64(), (1 + at % 7) << 27);
        contest.ask(hash, 100 + (hash % 500) as usize, PageKind::Data, || cache);
        if at % 10_000 == 0 {
            let state = contest.state.as_ref().unwrap().lock();
            let bytes = state.simulations.bytes() as u64;
            assert!(bytes <= BYTES_MAX, "{bytes}");
        }
    }
    drop(contest);
    assert_eq!(account.used(), 0);
    let none = Contest::new(&Budget::new(1000).account("none"), Subject::Rows, 1 << 30);
    assert_eq!(rules_after(&none, 100_000, |at| at % 10_000), Rules::Open);
    let small = Contest::new(&account, Subject::Pages, 8 << 20);
    assert_eq!((small.bytes(), account.used()), (0, 0));
}
