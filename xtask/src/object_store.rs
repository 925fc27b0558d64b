//! Backups in a real S3 server: moto, of the Python package index, in an environment of its own.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::command::{self, cargo, succeeds};
use crate::test::REMOTE;
use crate::{Result, workspace};

/// The environment, below the folder of build results.
const TOOLS: &str = "target/object-store";
/// The server. The versions that the test is known to pass with.
const PACKAGES: [&str; 2] = ["moto[server]>=5.1,<6", "boto3"];
const BUCKET: &str = "terrace-tests";
/// The name of the tests.
const TEST: &str = "real::a_real_server";
/// moto takes any.
const KEY: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "testing"),
    ("AWS_SECRET_ACCESS_KEY", "testing"),
    ("AWS_DEFAULT_REGION", "us-east-1"),
];

/// Runs the test against moto. Without Python, or without a network to install it, says so and passes.
pub(crate) fn run() -> Result {
    let mut python = Command::new("python3");
    python.args(["-c", "import venv, ensurepip"]);
    if !succeeds(python) {
        eprintln!("! object store not tested: python3 with venv is missing");
        return Ok(());
    }
    let mut create = Command::new("python3");
    create.args(["-m", "venv", TOOLS]);
    command::run(create)?;
    let tool = |name: &str| {
        let mut command = Command::new(workspace::root().join(TOOLS).join("bin").join(name));
        command.envs(KEY);
        command
    };
    let mut install = tool("pip");
    install.args(["install", "--quiet"]).args(PACKAGES);
    if !succeeds(install) {
        eprintln!("! object store not tested: {} cannot be installed", PACKAGES.join(", "));
        return Ok(());
    }
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut start = tool("moto_server");
    start.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
    let mut server = Server(start.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    server.must_answer(port)?;
    let endpoint = format!("http://127.0.0.1:{port}");
    let script = format!(
        "import boto3; boto3.client('s3', endpoint_url='{endpoint}').create_bucket(Bucket='{BUCKET}')"
    );
    let mut bucket = tool("python");
    bucket.args(["-c", &script]);
    command::run(bucket)?;
    // The features of the whole workspace, for which the tests are built already.
    let words =
        ["test", "--workspace", "--features", REMOTE, "--test", "it", TEST, "--", "--ignored"];
    let mut tests = cargo(words);
    tests.envs(KEY).env("TERRACE_S3_ENDPOINT", endpoint).env("TERRACE_S3_BUCKET", BUCKET);
    command::run(tests)
}

/// A server that ends with the task.
struct Server(Child);

impl Server {
    /// Waits until it accepts connections.
    fn must_answer(&mut self, port: u16) -> Result {
        for _ in 0..600 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(());
            }
            if self.0.try_wait()?.is_some() {
                break;
            }
            sleep(Duration::from_millis(100));
        }
        Err("moto_server did not start".into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
