//! [`Reply`]: the bytes of replies, in RESP2 or RESP3, and the errors that commands reply with.

/// An error reply, without the leading `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fail(pub(crate) String);

/// The result of a command, which has written its reply.
pub(crate) type Done = Result<(), Fail>;

impl Fail {
    /// An error; its text begins with its code, such as `ERR`.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn syntax() -> Self {
        Self::new("ERR syntax error")
    }

    pub(crate) fn too_long() -> Self {
        Self::new("ERR the reply is longer than the output buffer of a client")
    }

    pub(crate) fn no_memory() -> Self {
        Self::new("OOM there is no memory for the elements of this command")
    }

    pub(crate) fn not_integer() -> Self {
        Self::new("ERR value is not an integer or out of range")
    }

    /// That `command` has no subcommand `name`.
    pub(crate) fn unknown_subcommand(command: &str, name: &[u8]) -> Self {
        let name = String::from_utf8_lossy(name.get(..128).unwrap_or(name));
        Self::new(format!("ERR unknown subcommand '{name}'. Try {command} HELP."))
    }

    pub(crate) fn wrong_type() -> Self {
        Self::new("WRONGTYPE Operation against a key holding the wrong kind of value")
    }

    pub(crate) fn arity(name: &str) -> Self {
        Self::new(format!("ERR wrong number of arguments for '{name}' command"))
    }
}

impl From<terracedb::Error> for Fail {
    fn from(error: terracedb::Error) -> Self {
        use terracedb::ErrorKind::{NoSpace, Poisoned, Retry};
        let code = match error.kind() {
            Retry => "OOM",
            NoSpace | Poisoned => "MISCONF",
            _ => "ERR",
        };
        Self(format!("{code} {error}"))
    }
}

/// Most bytes of the reply to one request of many keys: it is held whole before it is sent.
pub(crate) const REPLY_BYTES_MAX: usize = 64 << 20;

/// Replies that are not sent yet.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) bytes: Vec<u8>,
    /// The protocol is RESP3.
    pub(crate) is_resp3: bool,
}

impl Reply {
    fn line(&mut self, kind: u8, text: &[u8]) {
        self.bytes.push(kind);
        // A line ends at its first line break, so text from outside must not hold one.
        self.bytes.extend(
            text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }),
        );
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    pub(crate) fn ok(&mut self) {
        self.simple("OK");
    }

    pub(crate) fn error(&mut self, Fail(text): &Fail) {
        self.line(b'-', text.as_bytes());
    }

    pub(crate) fn integer(&mut self, value: i64) {
        self.line(b':', value.to_string().as_bytes());
    }

    pub(crate) fn count(&mut self, value: usize) {
        self.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    pub(crate) fn bulk(&mut self, value: impl AsRef<[u8]>) {
        let value = value.as_ref();
        self.line(b'$', value.len().to_string().as_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(crate) fn null(&mut self) {
        self.bytes.extend_from_slice(if self.is_resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    pub(crate) fn null_array(&mut self) {
        self.bytes.extend_from_slice(if self.is_resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    pub(crate) fn bulk_or_null(&mut self, value: Option<impl AsRef<[u8]>>) {
        match value {
            Some(value) => self.bulk(value),
            None => self.null(),
        }
    }

    pub(crate) fn array(&mut self, len: usize) {
        self.line(b'*', len.to_string().as_bytes());
    }

    /// A set of `len` members; in RESP2 an array.
    pub(crate) fn set(&mut self, len: usize) {
        self.line(if self.is_resp3 { b'~' } else { b'*' }, len.to_string().as_bytes());
    }

    /// A float; in RESP2 its text.
    pub(crate) fn double(&mut self, value: f64) {
        let text = crate::collection::score::text(value);
        match self.is_resp3 {
            true => self.line(b',', text.as_bytes()),
            false => self.bulk(text),
        }
    }

    pub(crate) fn double_or_null(&mut self, value: Option<f64>) {
        match value {
            Some(value) => self.double(value),
            None => self.null(),
        }
    }

    /// Checks that the reply to one request is not longer than a client may get.
    ///
    /// # Errors
    /// If it is.
    pub(crate) fn check_length(&self) -> Done {
        // Replies before this one are at most as long as the output buffer.
        match self.bytes.len() <= REPLY_BYTES_MAX + (256 << 10) {
            true => Ok(()),
            false => Err(Fail::too_long()),
        }
    }

    /// A map of `len` pairs; in RESP2 an array of twice as many elements.
    pub(crate) fn map(&mut self, len: usize) {
        match self.is_resp3 {
            true => self.line(b'%', len.to_string().as_bytes()),
            false => self.array(2 * len),
        }
    }

    /// An out-of-band message; in RESP2 an array.
    pub(crate) fn push(&mut self, len: usize) {
        self.line(if self.is_resp3 { b'>' } else { b'*' }, len.to_string().as_bytes());
    }

    pub(crate) fn bulks<T: AsRef<[u8]>>(&mut self, values: &[T]) {
        self.array(values.len());
        values.iter().for_each(|value| self.bulk(value));
    }
}
