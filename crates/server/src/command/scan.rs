//! The options of SCAN, HSCAN, SSCAN and ZSCAN, and the pages of the last three. Their cursor is a hash, so
//! the server remembers nothing for them.

use crate::args;
use crate::collection::{Member, Members};
use crate::glob;
use crate::reply::{Done, Fail, Reply};
use crate::spec::Call;

/// The most elements of one page, whatever COUNT says.
const MOST: usize = 100_000;

#[derive(Debug)]
pub(crate) struct Options<'a> {
    pub(crate) cursor: u64,
    pub(crate) pattern: Option<&'a [u8]>,
    pub(crate) count: usize,
    /// The argument of TYPE, which only SCAN has.
    pub(crate) kind: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    /// The options of a request with its cursor in argument `at`.
    ///
    /// # Errors
    /// If the cursor or an option is invalid.
    pub(crate) fn parse(args: &'a [Vec<u8>], at: usize) -> Result<Self, Fail> {
        let cursor = args.get(at).map(|arg| String::from_utf8_lossy(arg).parse::<u64>());
        let Some(Ok(cursor)) = cursor else { return Err(Fail::new("ERR invalid cursor")) };
        let mut parsed = Self { cursor, pattern: None, count: 10, kind: None };
        let mut options = args.get(at + 1..).unwrap_or_default().iter();
        while let Some(name) = options.next() {
            let value = options.next().ok_or_else(Fail::syntax)?;
            match args::option(name).as_str() {
                "MATCH" => parsed.pattern = Some(value),
                "COUNT" => {
                    let number = usize::try_from(args::integer(value)?).ok();
                    let count = number.filter(|count| *count > 0).ok_or_else(Fail::syntax)?;
                    parsed.count = count.min(MOST);
                }
                "TYPE" if at == 1 => parsed.kind = Some(value),
                _ => return Err(Fail::syntax()),
            }
        }
        Ok(parsed)
    }

    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, text))
    }
}

/// Replies with a page of a collection; `write` writes a member, and returns the number of its replies.
///
/// # Errors
/// Those of the store and of `write`.
pub(crate) fn reply_page(
    call: &mut Call<'_>,
    of: &Members,
    options: &Options<'_>,
    write: fn(&mut Reply, &Member) -> Result<usize, Fail>,
) -> Done {
    let (page, next) = of.page(call.unit, options.cursor, options.count)?;
    let mut body = Reply { bytes: Vec::new(), is_resp3: call.reply.is_resp3 };
    let mut count = 0;
    for member in page.iter().filter(|(member, _)| options.matches(member)) {
        count += write(&mut body, member)?;
    }
    call.reply.array(2);
    call.reply.bulk(next.to_string());
    call.reply.array(count);
    call.reply.bytes.extend_from_slice(&body.bytes);
    call.reply.check_length()
}
