//! Sockets and threads of `terrace serve`: the unix socket, the limit of open files, a start that fails, the
//! admin port.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};

use crate::serve_client::*;
use crate::support::*;

fn ping(path: &Path) -> String {
    let mut socket = UnixStream::connect(path).unwrap();
    socket.write_all(b"PING\r\n").unwrap();
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).unwrap();
    line
}

/// The arguments of a server that cannot start.
fn refused(scratch: &Scratch, name: &str, options: &[&str]) -> String {
    let data = scratch.arg(name);
    let args = ["serve", "--data", &data, "--listen", "127.0.0.1:0", "--memory", "64MiB"];
    let args: Vec<_> = args.iter().chain(options).copied().collect();
    let run = terrace(&args);
    assert!(run.code != 0 && run.out.is_empty(), "{}", run.out);
    run.err
}

#[test]
fn the_unix_socket_is_its_owners_only_and_goes_with_the_server() {
    let scratch = Scratch::new();
    let (path, text) = (scratch.path("socket"), scratch.arg("socket"));
    let server = Server::start(&scratch.path("data"), &["--unix-socket", &text]);
    assert_eq!(ping(&path), "+PONG\r\n");
    let metadata = fs::symlink_metadata(&path).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o700);
    // The folder in which it got its mode is gone.
    let mut names: Vec<_> =
        fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["data", "socket"]);
    // The socket of a running server is not taken from it.
    refused(&scratch, "other", &["--unix-socket", &text]);
    assert_eq!(ping(&path), "+PONG\r\n");
    assert_eq!(server.stop(), Some(0));
    assert!(fs::symlink_metadata(&path).is_err());
    // A socket that no process serves is replaced; a file of another type is not.
    drop(UnixListener::bind(&path).unwrap());
    let mut server = Server::start(&scratch.path("data"), &["--unix-socket", &text]);
    assert_eq!(ping(&path), "+PONG\r\n");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = Server::start(&scratch.path("data"), &["--unix-socket", &text]);
    assert_eq!(ping(&path), "+PONG\r\n");
    drop(server);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "kept").unwrap();
    refused(&scratch, "other", &["--unix-socket", &text]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
    // A server that does not start leaves no socket.
    fs::remove_file(&path).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    refused(&scratch, "other", &["--unix-socket", &text, "--admin", &taken]);
    assert!(fs::symlink_metadata(&path).is_err());
}

/// Clients take at most half of few files, and the store has the others for its writes.
#[test]
fn clients_leave_files_to_the_store() {
    let scratch = Scratch::new();
    let errors = scratch.path("errors");
    let server = Server::start_with_files(&scratch.path("data"), 200, &errors);
    let warning = fs::read_to_string(&errors).unwrap();
    assert!(warning.contains("the limit of open files is 200: at most 100 clients"), "{warning}");
    let mut clients: Vec<_> = (0..100).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.say("PING"), Reply::Simple("PONG".into()));
    }
    let refused = server.client().try_read().unwrap();
    assert_eq!(refused, Reply::Error("ERR max number of clients reached".into()));
    let client = &mut clients[0];
    assert_eq!(
        client.say("CONFIG GET maxclients"),
        Reply::Array(vec![bulk("maxclients"), bulk("100")])
    );
    for number in 0..20 {
        assert_eq!(client.say(&format!("SET key{number} {number}")), ok());
        assert_eq!(client.say("SAVE"), ok());
    }
    assert_eq!(client.say("GET key19"), bulk("19"));
    assert_eq!(server.stop(), Some(0));
}

/// A server that cannot start all of its threads ends with an error, and those that run end with it.
#[test]
fn a_server_without_all_of_its_threads_ends() {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let server = Server::start(&data, &[]);
    assert_eq!(server.client().say("SET kept 1"), ok());
    assert_eq!(server.stop(), Some(0));
    // Every thread has files of its own.
    let run = Run::of(limited(&data, 150, &["--threads", "1000"]).output().unwrap());
    assert!(run.code != 0, "{}", run.code);
    assert_eq!(run.out, "", "not ready");
    assert!(run.err.contains("os error 24"), "{}", run.err);
    // The store was closed, and opens.
    let server = Server::start(&data, &[]);
    assert_eq!(server.client().say("GET kept"), bulk("1"));
}

#[test]
fn many_requests_on_the_admin_port_are_answered_at_once() {
    let scratch = Scratch::new();
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options = ["--admin", &port.to_string(), "--threads", "2"];
    let server = Server::start(&scratch.path("data"), &options);
    let mut client = server.client();
    assert_eq!(client.say("SET a 1"), ok());
    // Connections that send nothing, or half a request, do not delay the others.
    let mut silent: Vec<_> = (0..10).map(|_| TcpStream::connect(port).unwrap()).collect();
    for socket in silent.iter_mut().take(5) {
        socket.write_all(b"GET /met").unwrap();
    }
    std::thread::scope(|scope| {
        for number in 0..40 {
            scope.spawn(move || {
                for round in 0..3 {
                    let path = ["/metrics", "/healthz", "/other"][(number + round) % 3];
                    let mut socket = TcpStream::connect(port).unwrap();
                    write!(socket, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
                    let mut text = String::new();
                    socket.read_to_string(&mut text).unwrap();
                    let (head, body) = text.split_once("\r\n\r\n").unwrap();
                    let length = format!("Content-Length: {}", body.len());
                    assert!(head.contains(&length), "whole: {head}");
                    let status = if path == "/other" { "HTTP/1.0 404" } else { "HTTP/1.0 200 OK" };
                    assert!(head.starts_with(status), "{path}: {head}");
                    match path {
                        "/metrics" => assert!(body.contains("terrace_keys{database=\"0\"} 1\n")),
                        "/healthz" => assert_eq!(body, "ok\n"),
                        _ => {}
                    }
                }
            });
        }
        for _ in 0..200 {
            assert!(matches!(client.say("INCR a"), Reply::Int(_)));
        }
    });
    drop(silent);
    assert_eq!(server.stop(), Some(0));
}
