//! `terrace inspect`.

use terracedb::Result;

use crate::{Outcome, args};

pub(crate) fn run(_args: args::Inspect) -> Result<Outcome> {
    Ok(Outcome::Done)
}
