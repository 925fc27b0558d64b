//! The ways to wait, on a simulated device in virtual time.

use base::Rng;

use super::{Plan, Slept, Strategy, WaitPlanner, choose};

/// Added by an interrupt with its wake-up, and by the end of a sleep, nanoseconds; both also cost CPU time.
const WAKE_NS: f64 = 3_000.0;
const TIMER_NS: f64 = 500.0;

/// Averages over many operations, each alone in flight.
#[derive(Debug, Default)]
struct Sum {
    /// Latency added to the device's, nanoseconds an operation.
    added: f64,
    /// CPU time, nanoseconds an operation.
    cpu: f64,
    /// The share of sleeps that were longer than the device took.
    over: f64,
    blocked: u32,
}

/// A device with latencies around `mean`, spread by `spread`; sleeps end `late` nanoseconds late.
fn run(mean: f64, spread: f64, late: f64, free_cores: usize) -> Sum {
    let (mut waits, mut rng, mut sum) = (WaitPlanner::new(), Rng::new(5), Sum::default());
    let (warm, counted) = (3000, 10_000);
    for operation in 0..warm + counted {
        let device = mean * (1.0 + spread * (rng.unit() - 0.5));
        let (took, cpu, is_complete, is_blocked) = match waits.plan(1, free_cores) {
            Plan::Block => (device + WAKE_NS, WAKE_NS, false, true),
            Plan::Poll { sleep_ns, poll_ns } => {
                let slept_ns = sleep_ns + TIMER_NS + late;
                let is_complete = slept_ns >= device;
                waits.record_sleep(Slept { slept_ns, is_complete });
                assert!(poll_ns >= device, "it is seen while looking");
                let polled = (device - slept_ns).max(0.0);
                (slept_ns.max(device), TIMER_NS + polled, is_complete, false)
            }
        };
        waits.record_latency(took);
        if operation >= warm {
            sum.added += (took - device) / f64::from(counted);
            sum.cpu += cpu / f64::from(counted);
            sum.over += f64::from(u8::from(is_complete)) / f64::from(counted);
            sum.blocked += u32::from(is_blocked);
        }
    }
    sum
}

#[test]
fn the_strategy_follows_from_latency_depth_and_free_cores() {
    use Strategy::{Adaptive, HalfMean, Interrupt};

    for (mean, in_flight, cores, wanted) in [
        (None, 1, 8, Interrupt),
        (Some(10_000.0), 1, 8, Adaptive),
        (Some(10_000.0), 3, 8, HalfMean),
        (Some(10_000.0), 4, 8, Interrupt),
        (Some(10_000.0), 1, 0, Interrupt),
        (Some(80_000.0), 1, 8, Interrupt),
    ] {
        assert_eq!(choose(mean, in_flight, cores), wanted, "{mean:?} {in_flight} {cores}");
    }
}

/// The adaptive sleep is too long less than one time in four, adds little to the latency, and costs less
/// CPU time than polling.
#[test]
fn the_adaptive_sleep_ends_just_before_the_device_does() {
    for spread in [0.0, 0.1, 0.3] {
        let sum = run(10_000.0, spread, 0.0, 4);
        assert_eq!(sum.blocked, 0);
        assert!(sum.over < 0.25, "{spread}: {sum:?}");
        assert!(sum.added < WAKE_NS / 5.0, "{spread}: {sum:?}");
        // Half of the mean would poll for five microseconds.
        assert!(sum.cpu < 4_000.0, "{spread}: {sum:?}");
    }
}

#[test]
fn the_adaptive_sleep_follows_a_device_that_gets_slower_or_faster() {
    let mut waits = WaitPlanner::new();
    (0..200).for_each(|_| waits.record_latency(10_000.0));
    for (device, most) in [(10_000.0, 10_000.0), (30_000.0, 30_000.0), (5_000.0, 5_500.0)] {
        let mut sleep = 0.0;
        for _ in 0..5000 {
            let Plan::Poll { sleep_ns, .. } = waits.plan(1, 4) else { panic!("blocked") };
            sleep = sleep_ns;
            waits.record_sleep(Slept { slept_ns: sleep_ns, is_complete: sleep_ns >= device });
            waits.record_latency(device);
        }
        assert!(sleep > device / 2.0 && sleep <= most * 1.2, "{device}: {sleep}");
    }
}

/// A system whose sleeps end 80 us late does not sleep.
#[test]
fn sleeps_that_end_late_give_way_to_interrupts() {
    let sum = run(10_000.0, 0.1, 80_000.0, 4);
    assert!(sum.blocked >= 9_990, "{sum:?}");
    assert_eq!(run(10_000.0, 0.1, 0.0, 0).blocked, 10_000, "no core is free");
    assert_eq!(run(90_000.0, 0.1, 0.0, 4).blocked, 10_000, "the device is slow");
}

#[test]
fn half_mean_sleeps_for_half_of_the_mean() {
    let mut waits = WaitPlanner::new();
    (0..200).for_each(|_| waits.record_latency(8_000.0));
    let Plan::Poll { sleep_ns, poll_ns } = waits.plan(2, 4) else { panic!("blocked") };
    assert!((sleep_ns - 4_000.0).abs() < 1.0 && poll_ns > 30_000.0, "{sleep_ns} {poll_ns}");
    // Many in flight: interrupts, and for a while afterwards.
    assert_eq!(waits.plan(9, 4), Plan::Block);
    assert_eq!(waits.plan(1, 4), Plan::Block);
}
