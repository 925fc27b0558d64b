//! Calibrates a device: the same list of loads for every kind of device.

use base::Result;

use super::device::CalibratedDevice;
use super::values::Calibration;
use crate::emulated::{Load, Measured};

/// The numbers of threads that are measured.
const THREADS: [u32; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128];

/// The shares of writes in mixed loads.
const SHARES: [f64; 6] = [0.0, 0.2, 0.25, 1.0 / 3.0, 0.5, 1.0];

/// Doubling a write within one unit increases the bandwidth at least by this factor.
const ONE_UNIT: f64 = 1.7;

/// Measures `device`, with up to `threads_max` threads except for the latencies. Calls `progress` after each
/// load with the number of loads done and the number of all loads.
///
/// # Errors
/// Errors of the device.
pub fn calibrate(
    device: &mut CalibratedDevice,
    threads_max: u32,
    mut progress: impl FnMut(usize, usize),
) -> Result<Calibration> {
    let lens: Vec<u64> = device.lens().collect();
    let threads: Vec<u32> =
        THREADS.into_iter().filter(|threads| *threads <= threads_max.max(1)).collect();
    let all = 2 + 2 * threads.len() + 2 * lens.len() + SHARES.len();
    let mut done = 0;
    let mut run = |device: &mut CalibratedDevice, load: &Load| -> Result<Measured> {
        let measured = device.run(load)?;
        done += 1;
        progress(done, all);
        Ok(measured)
    };
    let (least, plain) = (device.least(), device.load());
    let writes = Load { write_share: 1.0, ..plain };

    let facts = device.facts();
    let mut calibration = Calibration {
        place: device.place().to_owned(),
        emulated: facts.emulated.unwrap_or_default().to_owned(),
        is_byte_addressable: facts.byte_addressable,
        ..Calibration::default()
    };
    let lone = |load: Load| Load { len: least, is_dependent: true, is_sequential: false, ..load };
    // In order: random posted writes would measure how fast the medium absorbs short writes.
    let lone_write = Load { is_sequential: plain.is_sequential, ..lone(writes) };
    calibration.read_latency_ns = run(device, &lone(plain))?.quantile_ns(0.5);
    calibration.write_latency_ns = run(device, &lone_write)?.quantile_ns(0.5);
    for threads in threads {
        let reads = run(device, &Load { threads, ..plain })?.gb_per_second;
        calibration.read_threads.push((f64::from(threads), reads));
        let writes = run(device, &Load { threads, ..writes })?.gb_per_second;
        calibration.write_threads.push((f64::from(threads), writes));
    }
    let (readers, writers) = (calibration.readers(), calibration.writers());
    for len in lens {
        let random = |load: Load, threads| Load { len, threads, is_sequential: false, ..load };
        let reads = run(device, &random(plain, readers))?.gb_per_second;
        calibration.read_sizes.push((len as f64, reads));
        let writes = run(device, &random(writes, writers))?.gb_per_second;
        calibration.write_sizes.push((len as f64, writes));
    }
    for write_share in SHARES {
        let mix = Load { write_share, threads: readers.max(writers), ..plain };
        calibration.mixed.push((write_share, run(device, &mix)?.gb_per_second));
    }
    base::invariant!(done == all, "the announced number of loads is the number of loads");
    calibration.unit_bytes = match facts.byte_addressable {
        true => unit(&calibration.write_sizes).unwrap_or(least),
        false => least,
    };
    Ok(calibration)
}

/// The write size up to which doubling the bytes takes hardly longer; none if there is no such size.
fn unit(sizes: &[(f64, f64)]) -> Option<u64> {
    let mut unit = None;
    for pair in sizes.windows(2) {
        let [(_, half), (len, whole)] = pair else { break };
        if *whole < ONE_UNIT * half {
            break;
        }
        unit = Some(*len as u64);
    }
    unit
}
