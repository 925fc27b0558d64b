//! The HTTP of the test server: requests with a length, answers with a length.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use super::Fault;
use super::answers::Answer;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `GET`, `PUT` and so on.
    pub method: String,
    /// The key of the object; empty for the bucket.
    pub key: String,
    /// The bucket.
    pub bucket: String,
    /// The query, without the signature's.
    pub query: BTreeMap<String, String>,
    /// The headers, in lower case.
    pub headers: BTreeMap<String, String>,
    /// The query of the signature.
    pub(super) signature: BTreeMap<String, String>,
}

impl Seen {
    /// Whether it is this method with this parameter in its query.
    #[must_use]
    pub fn is(&self, method: &str, parameter: &str) -> bool {
        self.method == method && self.query.contains_key(parameter)
    }

    /// Whether it creates a manifest.
    #[must_use]
    pub fn is_publication(&self) -> bool {
        self.method == "PUT" && self.key.contains("/manifest/")
    }
}

/// Decodes the percent encoding of a part of a URL.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next().unwrap(), rest.next().unwrap()];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// Reads a request and its body; none at the end of the connection.
pub(super) fn read(stream: &mut BufReader<TcpStream>) -> Option<(Seen, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if !matches!(stream.read_line(&mut head), Ok(1..)) {
            return None;
        }
    }
    let mut lines = head.lines();
    let first = lines.next().unwrap().to_owned();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let len = headers.get("content-length").map_or(0, |len| len.parse().unwrap());
    let mut body = vec![0; len];
    stream.read_exact(&mut body).ok()?;
    let (method, rest) = first.split_once(' ').unwrap();
    let target = rest.split_once(' ').unwrap().0;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = decoded(path);
    let (bucket, key) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    });
    let (signature, query) = pairs.partition(|(name, _)| name.starts_with("X-Amz-"));
    let (method, key, bucket) = (method.to_owned(), key.to_owned(), bucket.to_owned());
    Some((Seen { method, key, bucket, query, headers, signature }, body))
}

/// Waits until the client closes the connection.
pub(super) fn wait_for_end(stream: &mut impl Read) {
    let mut byte = [0];
    while matches!(stream.read(&mut byte), Ok(1)) {}
}

/// Writes an answer; false if the connection is to be closed.
pub(super) fn write(stream: &mut TcpStream, seen: &Seen, answer: &Answer, fault: Fault) -> bool {
    let mut head = format!("HTTP/1.1 {} X\r\n", answer.status);
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let is_head = seen.method == "HEAD";
    if !is_head {
        head += &format!("content-length: {}\r\n", answer.body.len());
    }
    head += "\r\n";
    let body: &[u8] = if is_head { &[] } else { &answer.body };
    let whole = [head.as_bytes(), body].concat();
    match fault {
        Fault::Cut => {
            let _ = stream.write_all(&whole[..whole.len() - body.len().div_ceil(2)]);
            false
        }
        Fault::Slow => {
            let pieces = whole.chunks(whole.len().div_ceil(20));
            pieces.into_iter().all(|piece| {
                std::thread::sleep(std::time::Duration::from_millis(2));
                stream.write_all(piece).is_ok()
            })
        }
        _ => stream.write_all(&whole).is_ok(),
    }
}
