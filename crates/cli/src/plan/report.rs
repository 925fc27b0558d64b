//! A plan as a text table and as JSON.

use base::format_bytes;
use serde_json::{Value, json};
use terracedb::Result;
use workload::plan::{Demand, Limit, ObjectStore, Outcome, Plan, Planned, Prices};

use super::requests;
use crate::output::Output;

/// Prints the cost-efficient mixes, or all of them.
pub(super) fn table(plan: &Plan, prices: &Prices, all: bool, out: &mut Output) -> Result<()> {
    out.line(format_args!("prices {}\n", prices.name))?;
    out.line(format_args!(
        "  {:<8}{:>10}{:>10}{:>7}{:>7}{:>7}{:>7}{:>10}{:>12} {:<10}{:>9}{:>8}{:>10}{:>7}",
        "server",
        "dram",
        "scm",
        "row%",
        "dram%",
        "scm%",
        "flash%",
        "mean us",
        "ops/s",
        "bound by",
        "cache $",
        "cache W",
        "server $",
        "W"
    ))?;
    for (index, mix) in plan.mixes.iter().enumerate() {
        let is_chosen = plan.chosen == Some(index);
        if !all && !mix.is_efficient && !is_chosen {
            continue;
        }
        let mark = match (is_chosen, mix.is_efficient) {
            (true, _) => '>',
            (false, true) => '*',
            (false, false) => ' ',
        };
        let outcome = &mix.outcome;
        let [row, dram, scm, flash] = outcome.reads.ends.map(|part| 100.0 * part);
        out.line(format_args!(
            "{mark} {:<8}{:>10}{:>10}{row:>7.1}{dram:>7.1}{scm:>7.1}{flash:>7.1}{:>10.2}{:>12.0} {:<10}\
             {:>9.0}{:>8.1}{:>10.0}{:>7.0}",
            server(prices, mix),
            format_bytes(mix.mix.dram as u64),
            format_bytes(mix.mix.scm as u64),
            outcome.latency,
            outcome.throughput,
            outcome.limit.name(),
            outcome.cache_dollars,
            outcome.cache_watts,
            outcome.dollars,
            outcome.watts,
        ))?;
    }
    out.line("\n* cost-efficient: every mix with more throughput costs more; > chosen")
}

/// The name of a mix's server.
pub(super) fn server<'a>(prices: &'a Prices, mix: &Planned) -> &'a str {
    prices.servers.get(mix.server).map_or("", |server| &server.name)
}

/// The plan as one object.
///
/// `store`: lookups a second, and the object store whose requests are priced.
pub(super) fn json(
    plan: &Plan,
    prices: &Prices,
    demand: &Demand,
    store: Option<(f64, ObjectStore)>,
) -> Value {
    let mix = |mix: &Planned| {
        let mut told = mix_to_json(mix, prices);
        if let (Some(store), Some(fields)) = (store, told.as_object_mut()) {
            let requests = requests::json(mix, prices, demand, store);
            fields.insert("object_store".to_owned(), requests);
        }
        told
    };
    let mixes: Vec<_> = plan.mixes.iter().map(mix).collect();
    let sources = prices.sources.iter().map(|(of, source)| (of.clone(), json!(source)));
    json!({
        "operations": demand.operations,
        "footprint_bytes": demand.footprint,
        "prices": { "name": prices.name, "sources": Value::Object(sources.collect()) },
        "chosen": plan.chosen.and_then(|index| mixes.get(index)).cloned(),
        "mixes": mixes,
    })
}

fn mix_to_json(mix: &Planned, prices: &Prices) -> Value {
    let Outcome { reads, latency, cpu, throughput, limit, .. } = mix.outcome;
    let [row, dram, scm, flash] = reads.ends;
    json!({
        "server": server(prices, mix),
        "dram_bytes": mix.mix.dram,
        "scm_bytes": mix.mix.scm,
        "row_bytes": reads.row_bytes,
        "scm_row_bytes": reads.scm_row_bytes,
        "scm_row_hit_ratio": reads.scm_rows,
        "hit_ratio": { "row": row, "dram": dram, "scm": scm, "flash": flash },
        "pages_per_op": { "dram": reads.dram, "scm": reads.scm, "flash": reads.flash },
        "mean_us": latency,
        "cpu_us": cpu,
        "ops_per_sec": throughput,
        "bound_by": Limit::name(limit),
        "cache": { "dollars": mix.outcome.cache_dollars, "watts": mix.outcome.cache_watts },
        "whole": { "dollars": mix.outcome.dollars, "watts": mix.outcome.watts },
        "ops_per_sec_per_dollar": throughput / mix.outcome.dollars.max(f64::MIN_POSITIVE),
        "ops_per_sec_per_watt": throughput / mix.outcome.watts.max(f64::MIN_POSITIVE),
        "efficient": mix.is_efficient,
    })
}
