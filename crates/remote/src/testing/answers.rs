//! The store of the test server: objects and uploads, and the answer to each request.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rusty_s3::Method;
use url::Url;

use super::{FakeS3, Fault, Seen};
use crate::objects::{hex, part_hash, upload_tag};

/// Objects of one list.
const LIST_MAX: usize = 7;

/// An answer.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    fn good(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, headers: Vec::new(), body: body.into() }
    }

    pub(super) fn error(status: u16, code: &str) -> Self {
        let body = format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>as told</Message></Error>"
        );
        Self { status, headers: Vec::new(), body: body.into_bytes() }
    }

    fn tagged(tag: &str) -> Self {
        Self { headers: vec![("ETag", format!("\"{tag}\""))], ..Self::good("") }
    }
}

/// An upload in parts.
pub(super) struct Upload {
    pub(super) key: String,
    pub(super) parts: BTreeMap<u64, Vec<u8>>,
}

#[derive(Default)]
pub(super) struct Store {
    pub(super) objects: BTreeMap<String, Vec<u8>>,
    pub(super) uploads: BTreeMap<String, Upload>,
    pub(super) old_keys: BTreeSet<String>,
    uploads_begun: u64,
}

impl Store {
    pub(super) fn answer(
        &mut self,
        seen: &Seen,
        body: &[u8],
        ignores_condition: bool,
        fault: Fault,
    ) -> Answer {
        if let Some(refused) = must_be_signed(seen) {
            return refused;
        }
        if seen.bucket != "shop" {
            return Answer::error(404, "NoSuchBucket");
        }
        if let Some(stated) = seen.headers.get("content-md5")
            && *stated != BASE64.encode(part_hash(body))
        {
            return Answer::error(400, "BadDigest");
        }
        let query = |name: &str| seen.query.get(name).cloned();
        let (id, uploads) = (query("uploadId"), query("uploads").is_some());
        match (seen.method.as_str(), seen.key.as_str()) {
            ("GET", "") if uploads => self.list_uploads(seen),
            ("GET", "") if query("list-type").is_some() => self.list(seen, fault),
            (_, "") => Answer::error(501, "NotImplemented"),
            ("GET", _) if id.is_some() => self.list_parts(&id.unwrap(), seen),
            ("POST", key) if uploads => self.begin(key),
            ("PUT", _) if id.is_some() => {
                let number = query("partNumber").unwrap().parse().unwrap();
                match self.uploads.get_mut(&id.unwrap()) {
                    Some(upload) => {
                        upload.parts.insert(number, body.to_vec());
                        Answer::tagged(&hex(&part_hash(body)))
                    }
                    None => Answer::error(404, "NoSuchUpload"),
                }
            }
            ("POST", _) if id.is_some() => self.complete(&id.unwrap(), body),
            ("DELETE", _) if id.is_some() => match self.uploads.remove(&id.unwrap()) {
                Some(_) => Answer { status: 204, ..Answer::good("") },
                None => Answer::error(404, "NoSuchUpload"),
            },
            ("PUT", key) => {
                let is_new = seen.headers.get("if-none-match").is_some_and(|it| it == "*");
                if is_new && !ignores_condition && self.objects.contains_key(key) {
                    return Answer::error(412, "PreconditionFailed");
                }
                self.objects.insert(key.to_owned(), body.to_vec());
                Answer::tagged(&hex(&part_hash(body)))
            }
            ("DELETE", key) => {
                self.objects.remove(key);
                Answer { status: 204, ..Answer::good("") }
            }
            ("GET" | "HEAD", key) => self.get(key, seen),
            _ => Answer::error(501, "NotImplemented"),
        }
    }

    fn get(&self, key: &str, seen: &Seen) -> Answer {
        let Some(content) = self.objects.get(key) else { return Answer::error(404, "NoSuchKey") };
        let Some(range) = seen.headers.get("range") else {
            let mut answer = Answer::tagged(&hex(&part_hash(content)));
            answer.body.clone_from(content);
            if seen.method == "HEAD" {
                answer.headers.push(("content-length", content.len().to_string()));
            }
            return answer;
        };
        let (from, to) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap());
        if from >= content.len() {
            return Answer::error(416, "InvalidRange");
        }
        let to = to.min(content.len() - 1);
        let range = format!("bytes {from}-{to}/{}", content.len());
        let headers = vec![("content-range", range)];
        Answer { status: 206, headers, body: content[from..=to].to_vec() }
    }

    fn list(&self, seen: &Seen, fault: Fault) -> Answer {
        let (prefix, after) = (&seen.query["prefix"], seen.query.get("continuation-token"));
        let keys: Vec<&String> = match fault {
            Fault::OldList => self.old_keys.iter().collect(),
            _ => self.objects.keys().collect(),
        };
        let is_wanted =
            |key: &&&String| key.starts_with(prefix) && after.is_none_or(|after| **key > after);
        let keys: Vec<_> = keys.iter().filter(is_wanted).take(LIST_MAX + 1).collect();
        let is_cut = keys.len() > LIST_MAX;
        let mut xml =
            format!("<ListBucketResult xmlns=\"http://x\"><IsTruncated>{is_cut}</IsTruncated>");
        for key in keys.iter().take(LIST_MAX) {
            xml += &format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>");
        }
        if is_cut {
            xml +=
                &format!("<NextContinuationToken>{}</NextContinuationToken>", keys[LIST_MAX - 1]);
        }
        Answer::good(xml + "</ListBucketResult>")
    }

    fn list_uploads(&self, seen: &Seen) -> Answer {
        let mut xml = "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>".to_owned();
        let prefix = &seen.query["prefix"];
        for (id, upload) in self.uploads.iter().filter(|(_, it)| it.key.starts_with(prefix)) {
            xml += &format!("<Upload><Key>{}</Key><UploadId>{id}</UploadId></Upload>", upload.key);
        }
        Answer::good(xml + "</ListMultipartUploadsResult>")
    }

    fn list_parts(&self, id: &str, seen: &Seen) -> Answer {
        let Some(upload) = self.uploads.get(id) else { return Answer::error(404, "NoSuchUpload") };
        let after = seen.query.get("part-number-marker").map_or(0, |it| it.parse().unwrap());
        let parts: Vec<_> = upload.parts.range(after + 1..).take(LIST_MAX + 1).collect();
        let is_cut = parts.len() > LIST_MAX;
        let mut xml = format!("<ListPartsResult><IsTruncated>{is_cut}</IsTruncated>");
        for (number, part) in parts.iter().take(LIST_MAX) {
            let (tag, len) = (hex(&part_hash(part)), part.len());
            xml += &format!(
                "<Part><ETag>&quot;{tag}&quot;</ETag><PartNumber>{number}</PartNumber>\
                 <Size>{len}</Size></Part>"
            );
        }
        if is_cut {
            let last = parts[LIST_MAX - 1].0;
            xml += &format!("<NextPartNumberMarker>{last}</NextPartNumberMarker>");
        }
        Answer::good(xml + "</ListPartsResult>")
    }

    fn begin(&mut self, key: &str) -> Answer {
        self.uploads_begun += 1;
        let id = format!("upload-{}", self.uploads_begun);
        self.uploads.insert(id.clone(), Upload { key: key.to_owned(), parts: BTreeMap::new() });
        Answer::good(format!(
            "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
        ))
    }

    fn complete(&mut self, id: &str, body: &[u8]) -> Answer {
        let Some(upload) = self.uploads.get(id) else { return Answer::error(404, "NoSuchUpload") };
        let xml = std::str::from_utf8(body).unwrap();
        let named = crate::response::texts(xml, &["PartNumber", "ETag"]);
        let (mut content, mut hashes) = (Vec::new(), Vec::new());
        for pair in named.chunks(2) {
            let number: u64 = pair[0].1.parse().unwrap();
            let part = upload.parts.get(&number);
            let Some(part) =
                part.filter(|part| pair[1].1.trim_matches('"') == hex(&part_hash(part)))
            else {
                return Answer::error(400, "InvalidPart");
            };
            content.extend_from_slice(part);
            hashes.push(part_hash(part));
        }
        let upload = self.uploads.remove(id).unwrap();
        self.objects.insert(upload.key, content);
        Answer::good(format!(
            "<CompleteMultipartUploadResult><ETag>{}</ETag></CompleteMultipartUploadResult>",
            upload_tag(&hashes)
        ))
    }
}

/// The refusal of a request whose signature is not that of the key's secret.
fn must_be_signed(seen: &Seen) -> Option<Answer> {
    let of = |name: &str| seen.signature.get(name).map_or("", String::as_str);
    let credential: Vec<&str> = of("X-Amz-Credential").split('/').collect();
    if credential.first() != Some(&FakeS3::KEY) {
        return Some(Answer::error(403, "InvalidAccessKeyId"));
    }
    let method = match seen.method.as_str() {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "PUT" => Method::Put,
        "POST" => Method::Post,
        _ => Method::Delete,
    };
    let url = format!("http://{}/{}/{}", seen.headers["host"], seen.bucket, seen.key);
    let date = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", of("X-Amz-Date")).unwrap();
    let named = of("X-Amz-SignedHeaders").split(';').filter(|name| *name != "host");
    let headers: Vec<_> = named
        .map(|name| (name.to_owned(), seen.headers.get(name).cloned().unwrap_or_default()))
        .collect();
    let token = seen.signature.get("X-Amz-Security-Token").map(String::as_str);
    let expected = rusty_s3::signing::sign(
        &date.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp(),
        method,
        Url::parse(&url).unwrap(),
        FakeS3::KEY,
        FakeS3::SECRET,
        token,
        credential[2],
        of("X-Amz-Expires").parse().unwrap(),
        seen.query.iter().map(|(name, value)| (name.as_str(), value.as_str())),
        headers.iter().map(|(name, value)| (name.as_str(), value.as_str())),
    );
    let is_good = expected
        .query_pairs()
        .any(|(name, value)| name == "X-Amz-Signature" && value == of("X-Amz-Signature"));
    (!is_good).then(|| Answer::error(403, "SignatureDoesNotMatch"))
}
