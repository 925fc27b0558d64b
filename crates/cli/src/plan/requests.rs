//! The requests of an object store below the caches, in dollars a month, as text and as JSON.

use base::format_bytes;
use serde_json::{Value, json};
use terracedb::Result;
use workload::plan::{Demand, ObjectStore, Plan, Planned, Prices, Requests};

use super::report::server;
use crate::output::Output;

/// Prints the dollars of the cost-efficient mixes, or of all.
pub(super) fn table(
    plan: &Plan,
    prices: &Prices,
    demand: &Demand,
    all: bool,
    rate: f64,
    store: ObjectStore,
    out: &mut Output,
) -> Result<()> {
    out.line(format_args!(
        "\nwith an object store below the caches, {rate} lookups a second; its {} cost $ {:.2} a month",
        format_bytes(demand.footprint as u64),
        store.storage(demand.footprint),
    ))?;
    out.line(format_args!(
        "  {:<8}{:>10}{:>10}{:>12}{:>14}{:>16}{:>16}",
        "server", "dram", "scm", "GET/s", "GET $/month", "GiB dram saves", "GiB scm saves"
    ))?;
    for (index, mix) in plan.mixes.iter().enumerate() {
        let is_chosen = plan.chosen == Some(index);
        if !all && !mix.is_efficient && !is_chosen {
            continue;
        }
        let Requests { per_second, dollars, saved_by_dram, saved_by_scm } =
            store.requests(mix, demand, prices, rate);
        out.line(format_args!(
            "{} {:<8}{:>10}{:>10}{per_second:>12.1}{dollars:>14.2}{saved_by_dram:>16.2}{saved_by_scm:>16.2}",
            if is_chosen { '>' } else { ' ' },
            server(prices, mix),
            format_bytes(mix.mix.dram as u64),
            format_bytes(mix.mix.scm as u64),
        ))?;
    }
    Ok(())
}

/// The dollars of one mix.
pub(super) fn json(
    mix: &Planned,
    prices: &Prices,
    demand: &Demand,
    (rate, store): (f64, ObjectStore),
) -> Value {
    let Requests { per_second, dollars, saved_by_dram, saved_by_scm } =
        store.requests(mix, demand, prices, rate);
    json!({
        "lookups_per_sec": rate,
        "gets_per_sec": per_second,
        "get_dollars_per_month": dollars,
        "storage_dollars_per_month": store.storage(demand.footprint),
        "dollars_saved_per_gib": { "dram": saved_by_dram, "scm": saved_by_scm },
    })
}
