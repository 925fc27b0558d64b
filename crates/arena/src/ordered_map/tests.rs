use super::*;

#[cfg(feature = "shuttle")]
mod on_shuttle;
#[cfg(not(feature = "shuttle"))]
mod on_threads;
