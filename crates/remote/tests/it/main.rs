//! Backups of whole stores in an object store: a server in the process, with and without faults.

extern crate terrace_remote as remote;

#[cfg(test)]
mod backups;
#[cfg(test)]
mod cold;
#[cfg(test)]
mod crashes;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod kills;
#[cfg(test)]
mod real;
#[cfg(test)]
mod support;
#[cfg(test)]
mod uploads;
#[cfg(test)]
mod writers;
