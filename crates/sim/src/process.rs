//! Processes: the resources that stores share, which end with the process. Devices and the SCM tier survive
//! it.

use std::sync::Arc;

use base::Executor;
use engine::OffloadsMerges as _;
use terracedb::Resources;

use crate::history::ProcessEnd;
use crate::step_error::Outcome;
use crate::world::World;

impl World {
    /// Begins a process, unless one is running.
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
        let builder = match &self.workers {
            Some(workers) => builder.offload(Arc::clone(workers) as _),
            None => builder,
        };
        self.resources = Some(builder.build()?);
        Ok(())
    }

    /// The resources of the running process.
    pub(crate) fn resources(&self) -> &Resources {
        self.resources.as_ref().unwrap()
    }

    /// Ends the process in good order, with its store closed.
    pub(crate) fn end_process(&mut self) -> Outcome {
        self.sum_tier();
        self.resources = None;
        self.workers.iter().for_each(|workers| workers.process_ended());
        self.leave_tier(None)
    }

    /// Kills the process or the machine: only the devices' contents survive.
    pub(crate) fn die(&mut self, left: ProcessEnd) -> Outcome {
        self.sum_tier();
        self.leave_tier(Some(left))?;
        self.end_users();
        (self.db, self.resources) = (None, None);
        self.workers.iter().for_each(|workers| workers.process_ended());
        Ok(())
    }
}
