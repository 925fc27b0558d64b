//! Collections: [`Members`] is a hash, a set or a sorted set; [`List`] is a list.
//!
//! A small collection stands in the value of its key ([`inline`]): one row an operation. Beyond 128
//! elements or 4 KiB it becomes a large one, and stays one until it is deleted: each element is a row of
//! `redis.parts`, and the value is its [`crate::value::Head`]. The rows begin with the number of the
//! collection and not with its key, so a rename moves no row, and a delete is one range delete whatever the
//! size.

pub(crate) mod inline;
mod list;
mod members;
pub(crate) mod score;

pub(crate) use inline::Member;
pub(crate) use list::{List, Side};
pub(crate) use members::Members;
pub(crate) use score::{END, payload, score_of};
