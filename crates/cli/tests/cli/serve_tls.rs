//! `terrace serve` with encrypted connections.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::serve_client::*;
use crate::support::*;

type Stream = BufReader<StreamOwned<ClientConnection, TcpStream>>;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls").join(name)
}

/// A client that trusts the test authority, with a certificate of its own or without.
fn connect(address: &str, has_certificate: bool) -> Stream {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("ca.pem")).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder =
        builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let config = match has_certificate {
        false => builder.with_no_client_auth(),
        true => {
            let chain = vec![CertificateDer::from_pem_file(file("client.pem")).unwrap()];
            let key = PrivateKeyDer::from_pem_file(file("client.key")).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    BufReader::new(StreamOwned::new(connection, socket))
}

fn say(stream: &mut Stream, request: &str, reply: &str) {
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    let mut got = vec![0; reply.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), reply);
}

fn options(is_mutual: bool) -> Vec<String> {
    let names = [("--tls-cert", "server.pem"), ("--tls-key", "server.key"), ("--tls-ca", "ca.pem")];
    let names = names.iter().take(if is_mutual { 3 } else { 2 });
    names
        .flat_map(|(option, name)| [option.to_string(), file(name).display().to_string()])
        .collect()
}

#[test]
fn clients_speak_to_the_server_over_tls_and_others_get_nowhere() {
    let scratch = Scratch::new();
    let options = options(false);
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let server = Server::start(&scratch.path("data"), &options);
    let mut plain = TcpStream::connect(&server.address).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    plain.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    let mut answer = Vec::new();
    // A TLS alert, or a reset: no reply of the protocol.
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.windows(4).any(|piece| piece == b"PONG"), "{answer:?}");
    let mut stream = connect(&server.address, false);
    say(&mut stream, "PING\r\n", "+PONG\r\n");
    // More than one record each way, in one pipeline.
    let value = "v".repeat(3 << 20);
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n${}\r\n{value}\r\n", value.len());
    say(&mut stream, &set, "+OK\r\n");
    say(&mut stream, "GET a\r\n", &format!("${}\r\n{value}\r\n", value.len()));
    let pings = "PING\r\n".repeat(5000);
    say(&mut stream, &pings, &"+PONG\r\n".repeat(5000));
    // Messages arrive while nothing is asked.
    let mut other = connect(&server.address, false);
    say(&mut stream, "SUBSCRIBE c\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
    say(&mut other, "PUBLISH c hello\r\n", ":1\r\n");
    let mut message = vec![0; 41];
    let expected = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nhello\r\n";
    message.truncate(expected.len());
    stream.read_exact(&mut message).unwrap();
    assert_eq!(message, expected);
    // A renewed certificate is read at SIGHUP: a broken file leaves the old one in place.
    let id = server.child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    say(&mut connect(&server.address, false), "PING\r\n", "+PONG\r\n");
    // A client that never shakes hands does not hold the end of the server up.
    let _silent = TcpStream::connect(&server.address).unwrap();
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn with_an_authority_clients_need_a_certificate() {
    let scratch = Scratch::new();
    let options = options(true);
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let server = Server::start(&scratch.path("data"), &options);
    say(&mut connect(&server.address, true), "PING\r\n", "+PONG\r\n");
    let mut stranger = connect(&server.address, false);
    let mut answer = [0; 1];
    let sent = stranger.get_mut().write_all(b"PING\r\n");
    let refused = sent.and_then(|()| stranger.read_exact(&mut answer));
    assert!(refused.is_err(), "a stranger was served");
    say(&mut connect(&server.address, true), "PING\r\n", "+PONG\r\n");
}

#[test]
fn a_server_is_imported_over_tls_from_one_that_is_trusted() {
    let scratch = Scratch::new();
    let options = options(true);
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let server = Server::start(&scratch.path("data"), &options);
    // Longer than a record of TLS.
    let value = "v".repeat(100_000);
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n${}\r\n{value}\r\n", value.len());
    say(&mut connect(&server.address, true), &set, "+OK\r\n");
    let port = server.address.rsplit_once(':').unwrap().1;
    let url = format!("rediss://localhost:{port}");
    let (ca, copy) = (file("ca.pem").display().to_string(), scratch.arg("copy"));
    let own = ["client.pem", "client.key"].map(|name| file(name).display().to_string());
    let own = ["--tls-cert", &own[0], "--tls-key", &own[1]];
    let import = |url: &str, options: &[&str], trusted: &str| {
        let args = [&["import", "--from", url, "--data", &copy][..], options, &MEMORY[..]].concat();
        // The authorities of the system, for an import that names none.
        Run::of(
            command(args)
                .env("SSL_CERT_FILE", trusted)
                .env_remove("SSL_CERT_DIR")
                .output()
                .unwrap(),
        )
    };
    let (missing, nobody) = (scratch.arg("missing"), file("client.pem").display().to_string());
    let named = [&["--tls-ca", &ca][..], &own].concat();
    for (url, options, trusted, why) in [
        (&url, &own[..], &missing, "--tls-ca"),
        (&url, &own[..], &nobody, "UnknownIssuer"),
        (&format!("rediss://127.0.0.2:{port}"), &named, &ca, "127.0.0.2"),
        (&url, &["--tls-ca", &ca], &ca, "ertificate"),
        (&format!("redis://localhost:{port}"), &named, &ca, "rediss://"),
        (&url, &["--tls-ca", own[3]], &ca, "--tls-ca"),
    ] {
        let error = import(url, options, trusted).bad(2);
        assert!(error.contains(why), "{why}: {error}");
    }
    assert!(import(&url, &named, &missing).good().contains("1 key"));
    assert!(import(&url, &own, &ca).good().contains("1 key"));
    let server = Server::start(Path::new(&copy), &[]);
    assert_eq!(server.client().say("STRLEN a"), Reply::Int(100_000));
}

#[test]
fn unusable_certificates_are_refused_at_the_start() {
    let scratch = Scratch::new();
    let data = scratch.arg("data");
    let start = |cert: &str, key: &str| {
        let (cert, key) = (file(cert).display().to_string(), file(key).display().to_string());
        let listen = ["serve", "--data", &data, "--listen", "127.0.0.1:0", "--memory", "64MiB"];
        terrace(&[&listen[..], &["--tls-cert", &cert, "--tls-key", &key]].concat()).bad(2)
    };
    for (cert, key, named) in [
        ("missing.pem", "server.key", "--tls-cert"),
        ("server.key", "server.key", "--tls-cert"),
        ("server.pem", "server.pem", "--tls-key"),
        ("server.pem", "client.key", "--tls-key"),
    ] {
        let error = start(cert, key);
        assert!(error.contains(named), "{cert} {key}: {error}");
    }
}
