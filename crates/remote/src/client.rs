//! Client: signed requests to a bucket, each tried again while the store's trouble may pass.
//!
//! A request is a number of tries with growing waits ([`crate::retry`]); each try has limits on the time
//! without progress. Requests are such that a second arrival changes nothing, so an answer that was lost is
//! found by asking again. Threads: any. Cost: a connection each, kept for the next request.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{Cancel, Error, ErrorKind, Result};
use media::Pace;
use parking_lot::Mutex;
use rusty_s3::{Bucket, Method, UrlStyle};
use ureq::http::{HeaderMap, Request};
use url::Url;

use crate::options::Options;
use crate::{Credentials, Location, response, retry};

/// Longest body of an answer that is not an object, bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Longest body of an error that is read, bytes.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// A signature is valid this long, seconds.
const SIGNED_SECONDS: u64 = 900;
const CONNECT_MAX: Duration = Duration::from_secs(10);
const RESOLVE_MAX: Duration = Duration::from_secs(10);

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    /// The key of the object; none for the bucket.
    pub(crate) key: Option<&'a str>,
    /// Ascending by name.
    pub(crate) query: Vec<(&'static str, String)>,
    /// Ascending by name, in lower case. Signed.
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: &'a [u8],
    /// Answers other than success that the caller knows, and that end the tries.
    pub(crate) known: &'a [u16],
    /// Longest body of a good answer, bytes.
    pub(crate) bytes_max: usize,
}

impl<'a> Call<'a> {
    pub(crate) fn new(method: Method, key: Option<&'a str>) -> Self {
        let (query, headers) = (Vec::new(), Vec::new());
        Self { method, key, query, headers, body: &[], known: &[], bytes_max: ANSWER_BYTES_MAX }
    }
}

/// An answer: a success, or one that the caller knows.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body as text; empty if it is none.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_default()
    }

    /// A header as text; empty if there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        header(&self.headers, name)
    }
}

/// The outcome of one try.
enum Tried {
    Done(Answer),
    /// Worth another try, after the wait that the store asked for.
    Passing(Error, Option<Duration>),
}

/// A bucket, and the right to use it. Clones share connections and credentials.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    agent: ureq::Agent,
    bucket: Bucket,
    location: Location,
    credentials: Arc<Mutex<Credentials>>,
    /// Credentials may be read again.
    is_renewable: bool,
    cancel: Cancel,
    pace: Pace,
    tries: Arc<AtomicU64>,
}

impl Client {
    /// A client of the bucket at `location`.
    ///
    /// # Errors
    /// `Invalid` if there are no credentials, or if the endpoint is no URL.
    pub(crate) fn new(location: &Location, options: &Options) -> Result<Self> {
        let region = options.region.clone();
        let given = options.endpoint.clone();
        let has_endpoint = given.is_some();
        let endpoint = given.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let refused = |got: &dyn std::fmt::Display| {
            Error::invalid("endpoint of the object store")
                .expected("a URL http://HOST:PORT or https://HOST")
                .got(format_args!("`{}`: {got}", endpoint.escape_debug()))
        };
        let url: Url = endpoint.parse().map_err(|error| refused(&error))?;
        let (name, dotted) = (location.bucket().to_owned(), location.bucket().contains('.'));
        let style = if has_endpoint || dotted { UrlStyle::Path } else { UrlStyle::VirtualHost };
        let bucket = Bucket::new(url, style, name, region).map_err(|error| refused(&error))?;
        let credentials = match &options.credentials {
            Some(credentials) => credentials.clone(),
            None => Credentials::of_environment()?,
        };
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_resolve(Some(RESOLVE_MAX))
            .timeout_connect(Some(CONNECT_MAX))
            .timeout_per_read(Some(options.stall))
            .timeout_per_write(Some(options.stall))
            .user_agent(concat!("terracedb/", env!("CARGO_PKG_VERSION")));
        Ok(Self {
            agent: config.build().new_agent(),
            bucket,
            location: location.clone(),
            credentials: Arc::new(Mutex::new(credentials)),
            is_renewable: options.credentials.is_none(),
            cancel: options.cancel.clone(),
            pace: options.pace.clone(),
            tries: Arc::new(AtomicU64::new(0)),
        })
    }

    /// This client, for requests that nothing ends early.
    pub(crate) fn never_cancelled(&self) -> Self {
        Self { cancel: Cancel::new(), ..self.clone() }
    }

    pub(crate) fn location(&self) -> &Location {
        &self.location
    }

    /// Fails with `Cancelled` once requests are to end.
    pub(crate) fn check(&self) -> Result<()> {
        self.cancel.check("request to the object store")
    }

    /// Makes a request until the store has answered it.
    ///
    /// # Errors
    /// `Invalid` if the store refuses it, with the store's reason; `Retry` if the last try failed, too, with
    /// the reason of that try; `NoSpace`; `Cancelled`.
    pub(crate) fn call(&self, call: &Call<'_>) -> Result<Answer> {
        let mut next = 0;
        loop {
            self.check()?;
            next += 1;
            let (error, asked) = match self.attempt(call)? {
                Tried::Done(answer) => return Ok(answer),
                Tried::Passing(error, asked) => (error, asked),
            };
            if next >= retry::TRIES_MAX {
                return Err(error.expected(format_args!("an answer within {next} tries")));
            }
            let noise = getrandom::u64().unwrap_or(self.tries.load(Ordering::Relaxed));
            self.wait(retry::wait(next, asked, noise))?;
        }
    }

    /// Waits in steps, so that a cancellation is noticed.
    fn wait(&self, time: Duration) -> Result<()> {
        const STEP: Duration = Duration::from_millis(200);
        let mut left = time;
        while !left.is_zero() {
            self.check()?;
            let step = left.min(STEP);
            self.pace.wait(step);
            left -= step;
        }
        Ok(())
    }

    fn attempt(&self, call: &Call<'_>) -> Result<Tried> {
        // A number for messages and noise alone.
        self.tries.fetch_add(1, Ordering::Relaxed);
        let credentials = self.credentials.lock().clone();
        let failed = |error: ureq::Error| {
            let subject = Error::retry("request to the object store").at(self.place(call));
            Ok(Tried::Passing(subject.got(&error), None))
        };
        let answer = match self.agent.run(self.request(call, &credentials)?) {
            Ok(answer) => answer,
            Err(error) => return failed(error),
        };
        let (parts, mut body) = answer.into_parts();
        let status = parts.status.as_u16();
        let is_good = parts.status.is_success();
        let most = if is_good { call.bytes_max } else { ANSWER_BYTES_MAX };
        let mut bytes = Vec::new();
        // Also an error with the status of a success is read.
        let limit = most.max(ERROR_BYTES_MAX) as u64 + 1;
        let read = body.as_reader().take(limit).read_to_end(&mut bytes);
        if let Err(error) = read {
            return failed(ureq::Error::Io(error));
        }
        let answer = Answer { status, headers: parts.headers, body: bytes };
        let code = if status == 206 { "" } else { response::error_code(answer.text()) };
        if answer.body.len() > most && code.is_empty() {
            return Err(Error::invalid("answer of the object store")
                .at(self.place(call))
                .expected(format_args!("at most {most} bytes")));
        }
        // The completion of an upload may fail after its status was sent.
        if (is_good && code.is_empty()) || call.known.contains(&status) {
            return Ok(Tried::Done(answer));
        }
        if (is_good && status == 200) || retry::is_passing(status, code) {
            let asked = answer.header("retry-after").parse().ok().map(Duration::from_secs);
            let error = Error::retry("object store").at(self.place(call));
            return Ok(Tried::Passing(error.got(told(&answer)), asked));
        }
        if self.renew(&credentials, code)? {
            let error = Error::retry("credentials of the object store").got("renewed ones");
            return Ok(Tried::Passing(error, None));
        }
        Err(self.refusal(call, &answer))
    }

    fn request<'b>(&self, call: &Call<'b>, credentials: &Credentials) -> Result<Request<&'b [u8]>> {
        let url = match call.key {
            Some(key) => self.bucket.object_url(key),
            None => self.bucket.base_url().clone(),
        };
        let signed = rusty_s3::signing::sign(
            &jiff::Timestamp::now(),
            call.method,
            url,
            &credentials.key,
            &credentials.secret,
            credentials.token.as_deref(),
            self.bucket.region(),
            SIGNED_SECONDS,
            call.query.iter().map(|(name, value)| (*name, value.as_str())),
            call.headers.iter().map(|(name, value)| (*name, value.as_str())),
        );
        let mut request = Request::builder().method(call.method.to_str()).uri(signed.as_str());
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        let request = request.body(call.body);
        request.map_err(|error| Error::invalid("request to the object store").caused_by(error))
    }

    /// Reads the credentials again if the store says with `code` that the `used` ones are not valid any
    /// more. Returns whether there are others.
    fn renew(&self, used: &Credentials, code: &str) -> Result<bool> {
        let is_old = matches!(code, "ExpiredToken" | "InvalidToken" | "InvalidAccessKeyId");
        if !is_old || !self.is_renewable {
            return Ok(false);
        }
        let found = Credentials::of_environment()?;
        let is_other = found != *used;
        *self.credentials.lock() = found;
        Ok(is_other)
    }

    /// The error of a request that the store refuses for good.
    fn refusal(&self, call: &Call<'_>, answer: &Answer) -> Error {
        let code = response::error_code(answer.text());
        let got = told(answer);
        let error = |subject: &'static str, expected: &str| {
            Error::invalid(subject).at(self.place(call)).expected(expected).got(&got)
        };
        match (answer.status, code) {
            (301 | 307 | 308, _) | (400, "AuthorizationHeaderMalformed") => {
                let region = answer.header("x-amz-bucket-region");
                let error = error("region of the bucket", "the one that is named with --region");
                if region.is_empty() { error } else { error.expected(format_args!("`{region}`")) }
            }
            (_, "ExpiredToken") => {
                error("credentials of the object store", "a session that has not expired")
            }
            (_, "RequestTimeTooSkewed") => {
                error("clock of this machine", "the object store's time, to 15 minutes")
            }
            (401 | 403, _) | (400, "InvalidToken" | "InvalidAccessKeyId") => {
                error("credentials of the object store", "a valid key with the right to do this")
            }
            (404, "NoSuchBucket") => error("bucket", "one that exists"),
            (501, _) => error("object store", "one that supports the request"),
            (507, _) | (_, "QuotaExceeded" | "XMinioStorageFull") => {
                Error::new(ErrorKind::NoSpace, "object store").at(self.place(call)).got(&got)
            }
            _ => error("request to the object store", "success"),
        }
    }

    /// The place of a request, for errors.
    fn place(&self, call: &Call<'_>) -> String {
        let verb = call.method.to_str();
        match call.key.and_then(|key| self.location.name(key)) {
            Some(name) => format!("{verb} {}, {}", name, self.location),
            None => format!("{verb} {}", self.location),
        }
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Status, code and message of an answer.
fn told(answer: &Answer) -> String {
    const LONGEST: usize = 200;
    let text = answer.text();
    let message: String = response::text(text, "Message").chars().take(LONGEST).collect();
    let words = [response::error_code(text), &message].map(|word| word.escape_debug().to_string());
    words
        .iter()
        .filter(|word| !word.is_empty())
        .fold(answer.status.to_string(), |told, word| told + " " + word)
}
