//! The parser of requests: arrays of bulk strings, and inline commands.
//!
//! It does no I/O: bytes go in, whole requests come out. Every length is checked before memory is taken for
//! it, and a request that breaks the protocol ends the connection. The limits are those of Redis 7.0: a
//! request has at most 1,048,576 arguments; an inline request and a line with a length have at most 64 KiB.
//! Cost: one pass, and a copy of each argument. Any thread.

/// A request: the command's name and its arguments.
pub(crate) type Request = Vec<Vec<u8>>;

/// The memory of a parsed request, bytes.
pub(crate) fn request_bytes(request: &Request) -> usize {
    request.iter().map(|arg| arg.capacity() + 24).sum::<usize>() + 24
}

/// The longest inline request, and the longest line with a length, bytes.
const LINE_BYTES_MAX: usize = 64 << 10;
/// The most arguments of a request.
const ARGS_MAX: i64 = 1 << 20;
/// The limits before AUTH.
const STRANGER_ARGS_MAX: i64 = 10;
const STRANGER_BULK_MAX: usize = 16_384;

/// The parser's state between two pieces of input.
#[derive(Debug)]
pub(crate) struct Parser {
    input: Vec<u8>,
    /// Bytes of `input` that were parsed.
    at: usize,
    args: Request,
    /// Arguments of the present request that are still to come.
    missing: i64,
    /// The length of the argument that comes next.
    length: Option<usize>,
    bulk_bytes_max: usize,
    /// The client has not authenticated itself: its requests are short.
    is_stranger: bool,
}

/// How the input breaks the protocol: the text of Redis's error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) String);

fn broken<T>(text: impl Into<String>) -> Result<T, Broken> {
    Err(Broken(format!("ERR Protocol error: {}", text.into())))
}

impl Parser {
    /// A parser of requests with arguments of at most `bulk_bytes_max` bytes.
    pub(crate) fn new(bulk_bytes_max: usize) -> Self {
        let (input, args) = (Vec::new(), Vec::new());
        Self { input, at: 0, args, missing: 0, length: None, bulk_bytes_max, is_stranger: false }
    }

    /// Whether the client is authenticated. The requests of a stranger have the limits of Redis.
    pub(crate) fn trust(&mut self, is_trusted: bool) {
        self.is_stranger = !is_trusted;
    }

    /// Adds input.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.at > 0 {
            self.input.drain(..self.at);
            self.at = 0;
        }
        self.input.extend_from_slice(bytes);
    }

    /// Bytes in memory: input that is not parsed, and arguments of an unfinished request.
    pub(crate) fn bytes(&self) -> usize {
        self.input.capacity() + self.args.iter().map(|arg| arg.len() + 24).sum::<usize>()
    }

    /// Gives back the memory of the input if all of it was parsed.
    pub(crate) fn release_idle(&mut self) {
        if self.at == self.input.len() {
            (self.input, self.at) = (Vec::new(), 0);
        }
    }

    /// The next whole request; `None` if more input is needed. An empty request is skipped.
    ///
    /// # Errors
    /// [`Broken`]: the connection must be closed.
    pub(crate) fn next(&mut self) -> Result<Option<Request>, Broken> {
        loop {
            if self.missing == 0 {
                let Some(first) = self.rest().first() else { return Ok(None) };
                if *first != b'*' {
                    let Some(line) = self.line("too big inline request")? else { return Ok(None) };
                    let Some(args) = split(&line) else {
                        return broken("unbalanced quotes in request");
                    };
                    if args.is_empty() {
                        continue;
                    }
                    return Ok(Some(args));
                }
                let Some(line) = self.line("too big mbulk count string")? else { return Ok(None) };
                let count = number(line.get(1..).unwrap_or_default());
                let Some(count) = count.filter(|count| *count <= ARGS_MAX) else {
                    return broken("invalid multibulk length");
                };
                if count <= 0 {
                    continue;
                }
                if self.is_stranger && count > STRANGER_ARGS_MAX {
                    return broken("unauthenticated multibulk length");
                }
                self.missing = count;
            }
            while self.missing > 0 {
                let Some(arg) = self.argument()? else { return Ok(None) };
                self.args.push(arg);
                self.missing -= 1;
            }
            return Ok(Some(std::mem::take(&mut self.args)));
        }
    }

    fn argument(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        let length = match self.length {
            Some(length) => length,
            None => {
                let Some(line) = self.line("too big bulk count string")? else { return Ok(None) };
                let first = line.first().copied().unwrap_or(b' ');
                if first != b'$' {
                    return broken(format!("expected '$', got '{}'", char::from(first)));
                }
                let length = number(line.get(1..).unwrap_or_default());
                let length = length.and_then(|length| usize::try_from(length).ok());
                let Some(length) = length.filter(|length| *length <= self.bulk_bytes_max) else {
                    return broken("invalid bulk length");
                };
                if self.is_stranger && length > STRANGER_BULK_MAX {
                    return broken("unauthenticated bulk length");
                }
                *self.length.insert(length)
            }
        };
        let Some(arg) = self.rest().get(..length + 2) else { return Ok(None) };
        let arg = arg.get(..length).unwrap_or_default().to_vec();
        self.at += length + 2;
        self.length = None;
        Ok(Some(arg))
    }

    fn rest(&self) -> &[u8] {
        self.input.get(self.at..).unwrap_or_default()
    }

    /// The next line, without its end.
    fn line(&mut self, too_long: &str) -> Result<Option<Vec<u8>>, Broken> {
        let window = self.rest();
        let window = window.get(..LINE_BYTES_MAX).unwrap_or(window);
        let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
            return if window.len() == LINE_BYTES_MAX { broken(too_long) } else { Ok(None) };
        };
        let line = window.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
        self.at += end + 1;
        Ok(Some(line))
    }
}

fn number(text: &[u8]) -> Option<i64> {
    // No sign `+`, no leading zeros.
    crate::args::integer(text).ok()
}

/// The arguments of an inline request, as `sdssplitargs` of Redis: quotes and escapes. `None`: unbalanced
/// quotes.
fn split(line: &[u8]) -> Option<Request> {
    let (mut args, mut rest) = (Vec::new(), line.iter().copied().peekable());
    loop {
        while rest.next_if(u8::is_ascii_whitespace).is_some() {}
        let Some(&first) = rest.peek() else { return Some(args) };
        let mut arg = Vec::new();
        let quote = (first == b'"' || first == b'\'').then_some(first);
        if quote.is_some() {
            rest.next();
        }
        loop {
            match (rest.next(), quote) {
                (None, None) => break,
                (None, Some(_)) => return None,
                (Some(byte), Some(end)) if byte == end => {
                    // A closing quote ends the argument.
                    if rest.peek().is_some_and(|byte| !byte.is_ascii_whitespace()) {
                        return None;
                    }
                    break;
                }
                (Some(b'\\'), Some(b'\'')) if rest.peek() == Some(&b'\'') => {
                    arg.extend(rest.next())
                }
                (Some(b'\\'), Some(b'"')) => match rest.next()? {
                    b'n' => arg.push(b'\n'),
                    b'r' => arg.push(b'\r'),
                    b't' => arg.push(b'\t'),
                    b'b' => arg.push(8),
                    b'a' => arg.push(7),
                    b'x' => {
                        let mut digit = || char::from(rest.next()?).to_digit(16);
                        let byte = digit()? * 16 + digit()?;
                        arg.push(byte as u8);
                    }
                    byte => arg.push(byte),
                },
                (Some(byte), None) if byte.is_ascii_whitespace() => break,
                (Some(byte), _) => arg.push(byte),
            }
        }
        args.push(arg);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(input: &[u8], piece: usize) -> Result<Vec<Request>, Broken> {
        let mut parser = Parser::new(1 << 20);
        let mut requests = Vec::new();
        for piece in input.chunks(piece) {
            parser.push(piece);
            while let Some(request) = parser.next()? {
                requests.push(request);
            }
        }
        Ok(requests)
    }

    /// However the input is cut, the requests are the same.
    #[test]
    fn requests_do_not_depend_on_the_pieces_of_the_input() {
        let input = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING \"a\\x41\\n b\" 'it\\'s'\r\n\r\n\
            *0\r\n*1\r\n$0\r\n\r\nQUIT\n";
        let request = |args: &[&str]| args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
        let expected: Vec<Request> = vec![
            request(&["GET", "k"]),
            request(&["PING", "aA\n b", "it's"]),
            request(&[""]),
            request(&["QUIT"]),
        ];
        for piece in 1..input.len() {
            assert_eq!(parse(input, piece).unwrap(), expected, "{piece}");
        }
    }

    #[test]
    fn a_broken_request_is_refused_before_memory_is_taken() {
        for (input, error) in [
            ("*1048577\r\n", "invalid multibulk length"),
            ("*x\r\n", "invalid multibulk length"),
            ("*1\r\n+3\r\n", "expected '$', got '+'"),
            ("*1\r\n$9999999999\r\n", "invalid bulk length"),
            ("*1\r\n$-1\r\n", "invalid bulk length"),
            ("*1\r\n$+4\r\n", "invalid bulk length"),
            ("*01\r\n", "invalid multibulk length"),
            ("SET \"a\r\n", "unbalanced quotes in request"),
        ] {
            let Broken(text) = parse(input.as_bytes(), 3).unwrap_err();
            assert_eq!(text, format!("ERR Protocol error: {error}"), "{input:?}");
        }
        let mut long = vec![b'a'; LINE_BYTES_MAX + 1];
        assert!(parse(&long, 4096).unwrap_err().0.ends_with("too big inline request"));
        long[0] = b'*';
        assert!(parse(&long, 4096).unwrap_err().0.ends_with("too big mbulk count string"));
    }

    #[test]
    fn random_bytes_never_panic_and_take_no_more_memory_than_they_are() {
        let mut state = 1_u64;
        for _ in 0..2000 {
            let input: Vec<u8> = (0..200)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    b"*$\r\n0123456789\"'\\ax-"[(state >> 33) as usize % 20]
                })
                .collect();
            let mut parser = Parser::new(1 << 20);
            parser.push(&input);
            while let Ok(Some(_)) = parser.next() {}
            assert!(parser.bytes() < 20_000, "{}", parser.bytes());
        }
    }
}
