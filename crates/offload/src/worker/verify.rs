//! A connection that verifies the outputs of another worker: near the storage, so that they do not cross the
//! link to the host.
//!
//! Every page is read, as the host would; and every entry is decoded, so that the sums, counts and filters in
//! the tables are those of their entries. The worker needs the store's directory.

use std::sync::Arc;
use std::time::Duration;

use base::{Account, Budget, Clock, Error, Result, SystemClock, put_bytes};
use compact::{Env, Job, Outcome, Verification};
use media::Medium;
use table::{StoreDictionaries, Table};

use super::job::{Grant, Running, finish, own_cpu_time, refuse, shared_directory, step_with_beats};
use super::{Client, Shared};
use crate::message::{PROOF_BYTES, Progress, VerifyRequest};
use crate::{Frame, FrameKind, Link};

/// Memory of a verification, bytes: buffers and one block.
const VERIFY_BYTES: u64 = 4 << 20;

/// Memory of an open output, bytes.
const TABLE_BYTES: u64 = 64 << 10;

/// Serves a connection with the request `first`.
///
/// # Errors
/// Those of the link, and damage of the outputs; the host was told.
pub(super) fn serve(mut link: Box<dyn Link>, shared: &Arc<Shared>, first: &Frame) -> Result<()> {
    let ids = (first.job, first.epoch);
    let (request, grant) = match prepare(first, shared) {
        Ok(prepared) => prepared,
        Err(error) => {
            refuse(&mut *link, ids, &error)?;
            return Err(error);
        }
    };
    let Request { job, outcome, medium, proof } = request;
    let mut body = vec![1];
    put_bytes(&mut body, &proof);
    link.send(&Frame { kind: FrameKind::Accept, job: ids.0, epoch: ids.1, body })?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let client = Client::new(link, ids, shared.options.timing, clock);
    let ended = verify(&job, outcome, medium, &client, shared, grant.bytes());
    finish(&client, FrameKind::Verified, ended.map(|progress| progress.encode()))
}

struct Request {
    job: Job,
    outcome: Outcome,
    medium: Arc<dyn Medium>,
    proof: [u8; PROOF_BYTES],
}

fn prepare<'a>(first: &Frame, shared: &'a Shared) -> Result<(Request, Grant<'a>)> {
    let request = VerifyRequest::decode(&first.body)?;
    let (job, outcome) = (Job::decode(&request.job)?, Outcome::decode(&request.outcome)?);
    if (job.id, job.epoch) != (first.job, first.epoch) {
        return Err(Error::corrupt("outputs to verify").expected("those of the job of the frame"));
    }
    outcome.expect(&job)?;
    let (medium, proof) = shared_directory(request.proof, shared).ok_or_else(|| {
        Error::invalid("outputs to verify").expected("a store whose directory this worker has")
    })?;
    let bytes = VERIFY_BYTES
        + shared.options.link_bytes()
        + (outcome.tables.len() as u64).saturating_mul(TABLE_BYTES);
    let slot = Running::start(shared).ok_or_else(|| Error::retry("slots of a worker"))?;
    Ok((Request { job, outcome, medium, proof }, Grant::take(shared, bytes, slot)?))
}

/// The work in progress.
enum Stage {
    Pages(Box<Verification>),
    /// The tables whose entries are left to decode.
    Entries(Vec<Arc<Table>>),
}

fn verify(
    job: &Job,
    outcome: Outcome,
    medium: Arc<dyn Medium>,
    client: &Client,
    shared: &Shared,
    memory: u64,
) -> Result<Progress> {
    let began = own_cpu_time();
    let account =
        Budget::new(memory - shared.options.link_bytes().min(memory)).account("verification");
    let store = job.store;
    let dictionaries = StoreDictionaries::new(Arc::clone(&medium), store, account.clone());
    let env = Env {
        medium,
        dictionaries: Arc::new(dictionaries),
        operators: Arc::clone(&shared.options.operators),
        account: account.clone(),
        tables: account.clone(),
        read_bytes: 0,
        value_bytes_max: 0,
        engine: None,
        sums_entries: true,
    };
    let verification = Verification::new(job, outcome, &env, &account)?;
    let mut stage = Stage::Pages(Box::new(verification));
    let mut bytes_read = 0;
    let (bytes_read, cpu): (u64, Duration) = step_with_beats(client, shared, began, || {
        match &mut stage {
            Stage::Pages(verification) => {
                let tables = verification.step(&mut |_| {})?;
                bytes_read = verification.bytes_read();
                if let Some(tables) = tables {
                    stage = Stage::Entries(tables);
                }
            }
            Stage::Entries(tables) => match tables.pop() {
                Some(table) => bytes_read += check(&table, &account)?,
                None => return Ok((bytes_read, Some(bytes_read))),
            },
        }
        Ok((bytes_read, None))
    })?;
    Ok(Progress { bytes_read, cpu })
}

/// Decodes every entry of `table`. Returns the bytes read.
fn check(table: &Table, account: &Account) -> Result<u64> {
    let report = table.check(account, &mut |_, _| {})?;
    match report.listed.first() {
        None => Ok(u64::from(report.pages) * base::limits::PAGE_BYTES as u64),
        Some(damage) => Err(Error::corrupt("output of a job")
            .at(table::file_name(table.id()))
            .got(damage.to_string())),
    }
}
