//! Objects: the operations on a bucket that backups need, each safe to send twice.
//!
//! Uploads carry an MD5, which the store compares before it accepts them. An answer that was lost is found
//! out: a created object is read back, a completed upload is looked for.

use std::collections::BTreeMap;

use base::{Error, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use md5::{Digest as _, Md5};
use rusty_s3::Method;

use crate::client::{Answer, Call, Client};
use crate::manifest::BYTES_MAX;
use crate::response::{text, texts};

/// Objects that one list may have: a bound against a store that never ends its list.
const LIST_PAGES_MAX: usize = 10_000;
/// Parts of an upload, as S3 limits them.
pub(crate) const PARTS_MAX: u64 = 10_000;

/// The MD5 of a part, by which the store is asked about it.
pub(crate) type PartHash = [u8; 16];

/// The hash of `bytes`.
pub(crate) fn part_hash(bytes: &[u8]) -> PartHash {
    Md5::digest(bytes).into()
}

/// The entity tag of an upload in parts, as S3 computes it. Stores that encrypt have other tags.
pub(crate) fn upload_tag(parts: &[PartHash]) -> String {
    let hash = Md5::digest(parts.concat());
    format!("{}-{}", hex(&hash), parts.len())
}

/// The hash in hexadecimal digits, as an entity tag has it.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An entity tag without its quotes.
fn unquoted(tag: &str) -> &str {
    let tag = tag.strip_prefix("&quot;").unwrap_or(tag);
    let tag = tag.strip_suffix("&quot;").unwrap_or(tag);
    tag.trim_matches('"')
}

/// The outcome of a conditional creation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Creation {
    /// The object is the caller's, now or since a try with a lost answer.
    Created,
    /// Another object has the key: its content.
    Taken(Vec<u8>),
}

/// An upload in parts that is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upload {
    pub(crate) key: String,
    pub(crate) id: String,
}

/// A part that the store has: its entity tag and its length, bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredPart {
    pub(crate) tag: String,
    pub(crate) len: u64,
}

fn md5_header(body: &[u8]) -> (&'static str, String) {
    ("content-md5", BASE64.encode(part_hash(body)))
}

fn bad_answer(what: &str) -> Error {
    Error::retry("answer of the object store").expected(what)
}

/// The whole object; none if there is no object.
pub(crate) fn get(client: &Client, key: &str, bytes_max: usize) -> Result<Option<Vec<u8>>> {
    let call = Call { known: &[404], bytes_max, ..Call::new(Method::Get, Some(key)) };
    let answer = client.call(&call)?;
    must_be_of_key(client, &answer)?;
    Ok((answer.status != 404).then_some(answer.body))
}

/// A missing bucket is an error, and no missing object.
fn must_be_of_key(client: &Client, answer: &Answer) -> Result<()> {
    if answer.status == 404 && text(answer.text(), "Code") == "NoSuchBucket" {
        let error = Error::invalid("bucket").at(client.location().bucket());
        return Err(error.expected("one that exists"));
    }
    Ok(())
}

/// `len` bytes of an object from `at`.
///
/// # Errors
/// `Corrupt` if the object is missing or ends earlier.
pub(crate) fn get_range(client: &Client, key: &str, at: u64, len: usize) -> Result<Vec<u8>> {
    let missing = |got: &str| {
        let error = Error::corrupt("object").at(client.location().name(key).unwrap_or(key));
        Err(error.expected(format_args!("{len} bytes at offset {at}")).got(got))
    };
    let end = at.saturating_add(len as u64).saturating_sub(1);
    let call = Call {
        headers: vec![("range", format!("bytes={at}-{end}"))],
        known: &[404, 416],
        bytes_max: len,
        ..Call::new(Method::Get, Some(key))
    };
    let answer = client.call(&call)?;
    must_be_of_key(client, &answer)?;
    match answer.status {
        404 => return missing("no such object"),
        416 => return missing("a shorter object"),
        206 => {
            let range = answer.header("content-range");
            let start = range.strip_prefix("bytes ").and_then(|range| range.split('-').next());
            if start.and_then(|start| start.parse().ok()) != Some(at) {
                return Err(bad_answer("the range that was asked for").got(range));
            }
        }
        _ if at == 0 => {}
        status => return Err(bad_answer("a range of the object").got(status)),
    }
    if answer.body.len() != len {
        return missing(&format!("{} bytes", answer.body.len()));
    }
    Ok(answer.body)
}

/// Length and entity tag of an object; none if there is no object.
pub(crate) fn head(client: &Client, key: &str) -> Result<Option<StoredPart>> {
    let call = Call { known: &[404], ..Call::new(Method::Head, Some(key)) };
    let answer = client.call(&call)?;
    if answer.status == 404 {
        return Ok(None);
    }
    let len = answer.header("content-length").parse();
    let len = len.map_err(|_| bad_answer("a length").at(key))?;
    Ok(Some(StoredPart { tag: unquoted(answer.header("etag")).to_owned(), len }))
}

/// Writes an object, in place of any other.
pub(crate) fn put(client: &Client, key: &str, body: &[u8]) -> Result<()> {
    let headers = vec![md5_header(body)];
    client.call(&Call { headers, body, ..Call::new(Method::Put, Some(key)) }).map(drop)
}

/// Writes an object if its key is free. `body` must be one that no other caller writes.
pub(crate) fn create(client: &Client, key: &str, body: &[u8]) -> Result<Creation> {
    let headers = vec![md5_header(body), ("if-none-match", "*".to_owned())];
    let known = &[412];
    let answer =
        client.call(&Call { headers, body, known, ..Call::new(Method::Put, Some(key)) })?;
    if answer.status != 412 {
        return Ok(Creation::Created);
    }
    // The first try may have created it, and its answer was lost.
    match get(client, key, BYTES_MAX)? {
        Some(found) if found == body => Ok(Creation::Created),
        Some(found) => Ok(Creation::Taken(found)),
        None => Err(bad_answer("the object that has the key").at(key).got("none")),
    }
}

/// Whether the store refuses to create an object that exists.
pub(crate) fn refuses_second(client: &Client, key: &str, body: &[u8]) -> Result<bool> {
    let headers = vec![md5_header(body), ("if-none-match", "*".to_owned())];
    let known = &[412];
    let call = Call { headers, body, known, ..Call::new(Method::Put, Some(key)) };
    Ok(client.call(&call)?.status == 412)
}

/// Removes an object; there may be none.
pub(crate) fn remove(client: &Client, key: &str) -> Result<()> {
    client.call(&Call { known: &[404], ..Call::new(Method::Delete, Some(key)) }).map(drop)
}

/// Every object with a key that starts with `prefix`.
pub(crate) fn list(client: &Client, prefix: &str) -> Result<Vec<String>> {
    let mut keys = Vec::new();
    let mut token: Option<String> = None;
    for _ in 0..LIST_PAGES_MAX {
        let mut call = Call::new(Method::Get, None);
        if let Some(token) = &token {
            call.query.push(("continuation-token", token.clone()));
        }
        call.query.push(("list-type", "2".to_owned()));
        call.query.push(("prefix", prefix.to_owned()));
        let answer = client.call(&call)?;
        let xml = answer.text();
        if !xml.contains("ListBucketResult") {
            return Err(bad_answer("a list of objects"));
        }
        keys.extend(texts(xml, &["Key"]).into_iter().map(|(_, key)| key.to_owned()));
        token = match text(xml, "IsTruncated") {
            "true" => Some(text(xml, "NextContinuationToken").to_owned()),
            _ => return Ok(keys),
        };
    }
    Err(bad_answer("a list of objects that ends"))
}

/// Every upload that is not complete, of a key that starts with `prefix`.
pub(crate) fn list_uploads(client: &Client, prefix: &str) -> Result<Vec<Upload>> {
    let mut uploads = Vec::new();
    let mut marker: Option<(String, String)> = None;
    for _ in 0..LIST_PAGES_MAX {
        let mut call = Call::new(Method::Get, None);
        if let Some((key, _)) = &marker {
            call.query.push(("key-marker", key.clone()));
        }
        call.query.push(("prefix", prefix.to_owned()));
        if let Some((_, id)) = &marker {
            call.query.push(("upload-id-marker", id.clone()));
        }
        call.query.push(("uploads", String::new()));
        let answer = client.call(&call)?;
        let xml = answer.text();
        if !xml.contains("ListMultipartUploadsResult") {
            return Err(bad_answer("a list of uploads"));
        }
        let mut key = "";
        for (name, text) in texts(xml, &["Key", "UploadId"]) {
            if name == "Key" {
                key = text;
            } else {
                uploads.push(Upload { key: key.to_owned(), id: text.to_owned() });
            }
        }
        if text(xml, "IsTruncated") != "true" {
            return Ok(uploads);
        }
        let next = |name| text(xml, name).to_owned();
        marker = Some((next("NextKeyMarker"), next("NextUploadIdMarker")));
    }
    Err(bad_answer("a list of uploads that ends"))
}

/// Begins an upload in parts.
pub(crate) fn begin_upload(client: &Client, key: &str) -> Result<Upload> {
    let query = vec![("uploads", String::new())];
    let answer = client.call(&Call { query, ..Call::new(Method::Post, Some(key)) })?;
    match text(answer.text(), "UploadId") {
        "" => Err(bad_answer("the number of an upload").at(key)),
        id => Ok(Upload { key: key.to_owned(), id: id.to_owned() }),
    }
}

/// Sends part `number`, which counts from 1. Returns its entity tag; none if there is no such upload.
pub(crate) fn put_part(
    client: &Client,
    upload: &Upload,
    number: u64,
    body: &[u8],
) -> Result<Option<String>> {
    let call = Call {
        query: vec![("partNumber", number.to_string()), ("uploadId", upload.id.clone())],
        headers: vec![md5_header(body)],
        body,
        known: &[404],
        ..Call::new(Method::Put, Some(&upload.key))
    };
    let answer = client.call(&call)?;
    must_be_of_key(client, &answer)?;
    if answer.status == 404 {
        return Ok(None);
    }
    match unquoted(answer.header("etag")) {
        "" => Err(bad_answer("the tag of a part").at(&upload.key)),
        tag => Ok(Some(tag.to_owned())),
    }
}

/// The parts that the store has, by number. None if there is no such upload.
pub(crate) fn list_parts(client: &Client, upload: &Upload) -> Result<BTreeMap<u64, StoredPart>> {
    let mut parts = BTreeMap::new();
    let mut marker: Option<String> = None;
    for _ in 0..PARTS_MAX {
        let mut call = Call { known: &[404], ..Call::new(Method::Get, Some(&upload.key)) };
        if let Some(marker) = marker.take() {
            call.query.push(("part-number-marker", marker));
        }
        call.query.push(("uploadId", upload.id.clone()));
        let answer = client.call(&call)?;
        let xml = answer.text();
        if answer.status == 404 {
            return Ok(BTreeMap::new());
        }
        let (mut number, mut tag) = (0, "");
        // Each part has all three; their order differs among stores.
        let mut len = None;
        for (name, text) in texts(xml, &["PartNumber", "ETag", "Size"]) {
            match name {
                "PartNumber" => number = text.parse().unwrap_or(0),
                "ETag" => tag = unquoted(text),
                _ => len = text.parse().ok(),
            }
            if let (1.., false, Some(bytes)) = (number, tag.is_empty(), len) {
                parts.insert(number, StoredPart { tag: tag.to_owned(), len: bytes });
                (number, tag, len) = (0, "", None);
            }
        }
        if text(xml, "IsTruncated") != "true" {
            return Ok(parts);
        }
        marker = Some(text(xml, "NextPartNumberMarker").to_owned());
    }
    Err(bad_answer("a list of parts that ends"))
}

/// The outcome of the completion of an upload.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    Done,
    /// There is no such upload: it was completed, by a try with a lost answer or by another writer, or it was
    /// aborted.
    Gone,
}

/// Makes the object of an upload with the parts of `tags`.
pub(crate) fn complete_upload(
    client: &Client,
    upload: &Upload,
    tags: &[String],
) -> Result<Completion> {
    let mut body = String::from("<CompleteMultipartUpload>");
    for (number, tag) in (1u64..).zip(tags) {
        body += &format!("<Part><PartNumber>{number}</PartNumber><ETag>\"{tag}\"</ETag></Part>");
    }
    body += "</CompleteMultipartUpload>";
    let call = Call {
        query: vec![("uploadId", upload.id.clone())],
        body: body.as_bytes(),
        known: &[404],
        ..Call::new(Method::Post, Some(&upload.key))
    };
    let answer = client.call(&call)?;
    must_be_of_key(client, &answer)?;
    Ok(if answer.status == 404 { Completion::Gone } else { Completion::Done })
}

/// Ends an upload without an object; there may be none.
pub(crate) fn abort_upload(client: &Client, upload: &Upload) -> Result<()> {
    let query = vec![("uploadId", upload.id.clone())];
    let call = Call { query, known: &[404], ..Call::new(Method::Delete, Some(&upload.key)) };
    client.call(&call).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_those_of_s3() {
        // The MD5 of nothing, and that of two such hashes.
        let empty = part_hash(b"");
        assert_eq!(hex(&empty), "d41d8cd98f00b204e9800998ecf8427e");
        let two = Md5::digest([empty, empty].concat());
        assert_eq!(upload_tag(&[empty, empty]), format!("{}-2", hex(&two)));
        assert_eq!(
            (unquoted("\"ab\""), unquoted("&quot;ab&quot;"), unquoted("ab")),
            ("ab", "ab", "ab")
        );
    }
}
