//! Holds a process to one core, so that two processes on one machine stand for two machines.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Holds this thread, and the threads that it starts, to the core `core` of those that it may use. Returns
/// whether it does: not if there are too few cores.
pub(crate) fn hold_to_core(core: usize) -> bool {
    let Ok(allowed) = sched_getaffinity(None) else { return false };
    let mut cores = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    if allowed.count() < 2 {
        return false;
    }
    let Some(chosen) = cores.nth(core) else { return false };
    let mut only = CpuSet::new();
    only.set(chosen);
    sched_setaffinity(None, &only).is_ok()
}
