//! The first frame of each side: protocol, token, and the worker's abilities.

use base::limits::OPERATOR_NAME_BYTES_MAX;
use base::{Cursor, Error, Result, put_bytes, put_u32, put_varint};
use subtle::ConstantTimeEq;

/// The version of the protocol.
pub(crate) const PROTOCOL: u32 = 3;

/// The longest token, bytes.
pub(crate) const TOKEN_BYTES_MAX: usize = 1024;

/// The longest hello, bytes.
pub(crate) const HELLO_BYTES_MAX: usize = 64 << 10;

const OPERATORS_MAX: usize = 200;

const ENGINE_NAME_BYTES_MAX: usize = 64;

const CODECS_MAX: usize = 16;

/// The host's first message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostHello {
    pub(crate) token: Vec<u8>,
}

/// The worker's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerHello {
    /// Jobs that it runs at once.
    pub(crate) slots: u32,
    /// Whether it runs whole jobs; it compresses blocks in any case.
    pub(crate) merges: bool,
    /// The engine that compresses blocks.
    pub(crate) engine: String,
    /// The merge operators that it knows.
    pub(crate) operators: Vec<String>,
    /// The codecs that it has, by their numbers.
    pub(crate) codecs: Vec<u8>,
}

fn protocol(cursor: &mut Cursor<'_>) -> Result<()> {
    match cursor.u32()? {
        PROTOCOL => Ok(()),
        other => Err(Error::invalid("protocol of the other side").expected(PROTOCOL).got(other)),
    }
}

impl HostHello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u32(&mut out, PROTOCOL);
        put_bytes(&mut out, &self.token);
        out
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("hello of a host", body);
        protocol(&mut cursor)?;
        let token = cursor.bytes(TOKEN_BYTES_MAX)?.to_vec();
        cursor.finish()?;
        Ok(Self { token })
    }

    /// Whether the token is `expected`. Takes as long for any token of that length.
    pub(crate) fn has_token(&self, expected: &[u8]) -> bool {
        self.token.ct_eq(expected).into()
    }
}

impl WorkerHello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u32(&mut out, PROTOCOL);
        put_u32(&mut out, self.slots);
        out.push(u8::from(self.merges));
        put_bytes(&mut out, self.engine.as_bytes());
        put_varint(&mut out, self.operators.len().min(OPERATORS_MAX) as u64);
        for name in self.operators.iter().take(OPERATORS_MAX) {
            put_bytes(&mut out, name.as_bytes());
        }
        put_bytes(&mut out, &self.codecs);
        out
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("hello of a worker", body);
        protocol(&mut cursor)?;
        let (slots, merges) = (cursor.u32()?, cursor.u8()? != 0);
        let engine = String::from_utf8_lossy(cursor.bytes(ENGINE_NAME_BYTES_MAX)?).into_owned();
        let mut operators = Vec::new();
        for _ in 0..cursor.length(OPERATORS_MAX)? {
            let name = cursor.bytes(OPERATOR_NAME_BYTES_MAX)?;
            operators.push(String::from_utf8_lossy(name).into_owned());
        }
        let codecs = cursor.bytes(CODECS_MAX)?.to_vec();
        cursor.finish()?;
        Ok(Self { slots, merges, engine, operators, codecs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hellos_round_trip_and_tokens_compare() {
        let host = HostHello { token: b"secret".to_vec() };
        assert_eq!(HostHello::decode(&host.encode()).unwrap(), host);
        assert!(host.has_token(b"secret"));
        assert!(!host.has_token(b"secreT") && !host.has_token(b"") && !host.has_token(b"secret1"));
        let operators = vec!["a".into(), "b".into()];
        let engine = "soft".into();
        let codecs = vec![0, 1];
        let worker = WorkerHello { slots: 3, merges: true, engine, operators, codecs };
        assert_eq!(WorkerHello::decode(&worker.encode()).unwrap(), worker);
        let mut newer = host.encode();
        newer[0] = 4;
        assert!(HostHello::decode(&newer).unwrap_err().to_string().contains("protocol"));
    }
}
