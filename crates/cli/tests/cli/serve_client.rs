//! A server as a process, and a small client of the Redis protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::support::*;

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Reply>),
    Set(Vec<Reply>),
    Push(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Double(String),
}

pub(crate) struct Client(pub(crate) BufReader<TcpStream>);

/// The bytes of a request.
fn encoded<T: AsRef<[u8]>>(args: &[T]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args.iter().map(AsRef::as_ref) {
        request.extend(format!("${}\r\n", arg.len()).bytes());
        request.extend_from_slice(arg);
        request.extend_from_slice(b"\r\n");
    }
    request
}

impl Client {
    pub(crate) fn connect(address: &str) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        // A server that does not answer fails the test instead of hanging it.
        socket.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        Self(BufReader::new(socket))
    }

    pub(crate) fn send(&mut self, args: &[&[u8]]) {
        self.try_send(args).unwrap();
    }

    pub(crate) fn try_send(&mut self, args: &[&[u8]]) -> std::io::Result<()> {
        self.0.get_mut().write_all(&encoded(args))
    }

    /// Sends all `requests` with one write, and returns the replies.
    pub(crate) fn pipeline<T: AsRef<[u8]>>(&mut self, requests: &[Vec<T>]) -> Vec<Reply> {
        let bytes: Vec<u8> = requests.iter().flat_map(|args| encoded(args)).collect();
        self.0.get_mut().write_all(&bytes).unwrap();
        requests.iter().map(|_| self.try_read().unwrap()).collect()
    }

    /// As [`Client::pipeline`], of commands whose arguments have no spaces.
    pub(crate) fn say_all(&mut self, texts: &[&str]) -> Vec<Reply> {
        let requests: Vec<Vec<&str>> = texts.iter().map(|text| text.split(' ').collect()).collect();
        self.pipeline(&requests)
    }

    pub(crate) fn try_read(&mut self) -> std::io::Result<Reply> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let text = line.trim_end()[1..].to_owned();
        Ok(match line.as_bytes()[0] {
            b'+' => Reply::Simple(text),
            b'-' => Reply::Error(text),
            b':' => Reply::Int(text.parse().unwrap()),
            b'$' if text == "-1" => Reply::Null,
            b'*' if text == "-1" => Reply::Null,
            b'$' => {
                let mut bytes = vec![0; text.parse::<usize>().unwrap() + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Bulk(bytes)
            }
            b'_' => Reply::Null,
            b',' => Reply::Double(text),
            kind @ (b'*' | b'~' | b'>') => {
                let count: usize = text.parse().unwrap();
                let elements = (0..count).map(|_| self.try_read()).collect::<Result<_, _>>()?;
                match kind {
                    b'*' => Reply::Array(elements),
                    b'~' => Reply::Set(elements),
                    _ => Reply::Push(elements),
                }
            }
            b'%' => {
                let count: usize = text.parse().unwrap();
                let mut pair = || Ok::<_, std::io::Error>((self.try_read()?, self.try_read()?));
                Reply::Map((0..count).map(|_| pair()).collect::<Result<_, _>>()?)
            }
            other => panic!("reply type {other}"),
        })
    }

    /// A count of INFO's statistics.
    pub(crate) fn count(&mut self, name: &str) -> u64 {
        let Reply::Bulk(text) = self.say("INFO stats") else { panic!() };
        let text = String::from_utf8(text).unwrap();
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| *field == name).unwrap().1.trim().parse().unwrap()
    }

    /// Lookups of keys so far.
    pub(crate) fn lookups(&mut self) -> u64 {
        self.count("keyspace_hits") + self.count("keyspace_misses")
    }

    pub(crate) fn call(&mut self, args: &[&[u8]]) -> Reply {
        self.send(args);
        self.try_read().unwrap()
    }

    /// Calls a command whose arguments have no spaces.
    pub(crate) fn say(&mut self, text: &str) -> Reply {
        self.call(&text.split(' ').map(str::as_bytes).collect::<Vec<_>>())
    }
}

pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start(data: &Path, options: &[&str]) -> Self {
        let data = data.to_str().unwrap();
        let args = ["serve", "--data", data, "--listen", "127.0.0.1:0", "--memory", "64MiB"];
        Self::of(command(args.iter().chain(options)))
    }

    /// Starts the server with a limit of open files; what it says on standard error goes to `errors`.
    pub(crate) fn start_with_files(data: &Path, files: u32, errors: &Path) -> Self {
        let mut command = limited(data, files, &["--threads", "2"]);
        command.stderr(fs::File::create(errors).unwrap());
        Self::of(command)
    }

    fn of(mut command: std::process::Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("ready: ").expect(&line).to_owned();
        Self { child, address }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.address)
    }

    /// Ends it by SIGTERM, and returns its exit status.
    pub(crate) fn stop(mut self) -> Option<i32> {
        let id = self.child.id().to_string();
        assert!(std::process::Command::new("kill").arg(&id).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server with a limit of open files, soft and hard.
pub(crate) fn limited(data: &Path, files: u32, options: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")]);
    command.args([env!("CARGO_BIN_EXE_terrace"), "serve", "--data", data.to_str().unwrap()]);
    command.args(["--listen", "127.0.0.1:0", "--memory", "64MiB"]).args(options);
    command.stdin(Stdio::null());
    command
}

pub(crate) fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

pub(crate) fn ok() -> Reply {
    Reply::Simple("OK".into())
}
