//! A process: what its stores share, which goes when it ends. What outlives it lies on devices, or below
//! DRAM.

use std::sync::Arc;

use base::Executor;
use terracedb::Resources;

use crate::history::ProcessEnd;
use crate::step_error::Outcome;
use crate::world::World;

impl World {
    /// One begins, unless one goes on.
    pub(crate) fn begin_process(&mut self) -> Outcome {
        if self.resources.is_some() {
            return Ok(());
        }
        let builder = Resources::builder()
            .memory(self.variant.memory)
            .page_cache_max(self.variant.page_cache)
            .executor(Arc::clone(&self.executor) as Arc<dyn Executor>);
        let builder = if self.variant.has_rows { builder } else { builder.without_rows() };
        let builder = match self.begin_tier()? {
            Some(scm) => builder.scm(scm),
            None => builder,
        };
        self.resources = Some(builder.build()?);
        Ok(())
    }

    /// What the one that runs has.
    pub(crate) fn resources(&self) -> &Resources {
        self.resources.as_ref().unwrap()
    }

    /// It ends in good order, its store closed.
    pub(crate) fn end_process(&mut self) -> Outcome {
        self.sum_tier();
        self.resources = None;
        self.leave_tier(None)
    }

    /// It dies, or its machine does: nothing is left but what lies on devices now.
    pub(crate) fn die(&mut self, left: ProcessEnd) -> Outcome {
        self.sum_tier();
        self.leave_tier(Some(left))?;
        self.end_users();
        (self.db, self.resources) = (None, None);
        Ok(())
    }
}
