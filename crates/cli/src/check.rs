//! `terrace check`.

use terracedb::Result;

use crate::{Outcome, args};

pub(crate) fn run(_args: args::Check) -> Result<Outcome> {
    Ok(Outcome::Done)
}
