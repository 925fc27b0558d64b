//! Tests of the `terrace` binary: standard output, standard error and exit status.

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
mod dump;
#[cfg(test)]
mod entries;
#[cfg(test)]
mod hashed;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod ingest;
#[cfg(test)]
mod inspect;
#[cfg(test)]
mod interrupted;
#[cfg(test)]
mod keeping;
#[cfg(test)]
mod keyspace_tables;
#[cfg(test)]
mod load;
#[cfg(test)]
mod log;
#[cfg(test)]
mod lossless;
#[cfg(test)]
#[cfg(feature = "remote")]
mod object_store;
#[cfg(test)]
mod plan;
#[cfg(test)]
mod repair;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod scrub;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod serve_acl;
#[cfg(test)]
mod serve_admin;
#[cfg(test)]
mod serve_blocking;
#[cfg(test)]
mod serve_client;
#[cfg(test)]
mod serve_collections;
#[cfg(test)]
mod serve_kinds;
#[cfg(test)]
mod serve_limits;
#[cfg(test)]
mod serve_oracle;
#[cfg(test)]
mod serve_pipelines;
#[cfg(test)]
mod serve_sockets;
#[cfg(test)]
mod serve_tls;
#[cfg(test)]
mod serve_transactions;
#[cfg(test)]
mod shell;
#[cfg(test)]
mod support;
#[cfg(test)]
mod transfer;
#[cfg(test)]
mod usage;
#[cfg(test)]
mod worker;
#[cfg(test)]
mod worker_kills;
