//! The `terrace` binary as its users meet it: what it prints, where, and its exit status.

#[cfg(test)]
mod backup;
#[cfg(test)]
mod bench;
#[cfg(test)]
mod calibrate;
#[cfg(test)]
mod check;
#[cfg(test)]
mod config;
#[cfg(test)]
mod entries;
#[cfg(test)]
mod ingest;
#[cfg(test)]
mod inspect;
#[cfg(test)]
mod keeping;
#[cfg(test)]
mod plan;
#[cfg(test)]
mod repair;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod scrub;
#[cfg(test)]
mod support;
#[cfg(test)]
mod usage;
