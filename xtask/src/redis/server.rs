//! [`Server`]: a `terrace serve` that ends with its test.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Result;
use crate::command;

pub(super) struct Server {
    child: Child,
    pub(super) port: String,
}

impl Server {
    /// Starts `program` with data in `data` and more options.
    pub(super) fn start(program: &Path, data: &Path, options: &[&str]) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--memory", "256MiB", "--data"])
            .arg(data)
            .args(options);
        command::show(&command);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let port = line.trim().rsplit_once(':').map(|(_, port)| port.to_owned());
        // Also a server without an address ends.
        let server = Self { port: port.clone().unwrap_or_default(), child };
        port.map(|_| server).ok_or_else(|| "terrace serve did not start".into())
    }

    /// Kills it.
    pub(super) fn stop(&mut self) -> Result {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Also when a step failed before.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
