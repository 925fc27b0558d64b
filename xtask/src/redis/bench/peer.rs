//! [`Peer`]: a server that is measured, in a cgroup of its own, and its end.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Result, command, debian, workspace};

/// Cgroups of version 1.
const CGROUPS: &str = "/sys/fs/cgroup/memory";

pub(super) struct Peer {
    child: Child,
    pub(super) port: String,
    /// The server's files, deleted with it.
    pub(super) data: PathBuf,
    group: Option<PathBuf>,
}

impl Peer {
    /// redis-server with a log that is synced each second, without limits.
    pub(super) fn redis(tools: &Path) -> Result<Self> {
        Self::start("redis", &tools.join("redis-server"), None, |command, data, port| {
            command.args(["--port", port, "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(data);
            command.args(["--appendonly", "yes", "--appendfsync", "everysec"]);
        })
    }

    /// `terrace serve` with `memory` bytes.
    pub(super) fn terrace(program: &Path, memory: u64) -> Result<Self> {
        Self::serve("terrace", program, memory, &[])
    }

    /// As [`Peer::terrace`], with a window in place of an ordered keyspace: a cache, as extstore is.
    pub(super) fn window(program: &Path, memory: u64) -> Result<Self> {
        let window = format!("0=window={}", 16 * memory);
        Self::serve("window", program, memory, &["--database", &window])
    }

    fn serve(name: &str, program: &Path, memory: u64, options: &[&str]) -> Result<Self> {
        Self::start(name, program, Some(memory), |command, data, port| {
            let address = format!("127.0.0.1:{port}");
            command.args(["serve", "--listen", &address, "--memory", &memory.to_string()]);
            command.arg("--data").arg(store_in(data)).args(options);
        })
    }

    /// memcached with `memory` bytes of items, and a file for the values that do not fit.
    pub(super) fn memcached(memory: u64) -> Result<Self> {
        let tools = debian::programs(&["memcached", "libevent-2.1-7", "libsasl2-2"])?;
        Self::start("memcached", &tools.join("memcached"), Some(memory), |command, data, port| {
            let file = data.join("extstore").display().to_string();
            // Its writer looks for work 100 times a second, not once.
            let (size, sleep_us) = ((16 * memory) >> 20, 10_000);
            let options =
                format!("ext_path={file}:{size}M,ext_threads=16,ext_max_sleep={sleep_us}");
            command.args(["-u", "root", "-l", "127.0.0.1", "-p", port, "-t", "2", "-c", "1024"]);
            command.args(["-m", &(memory >> 20).to_string(), "-o", &options]);
        })
    }

    fn start(
        name: &str,
        program: &Path,
        memory: Option<u64>,
        options: impl FnOnce(&mut Command, &Path, &str),
    ) -> Result<Self> {
        let data = workspace::root().join("target/redis/bench").join(name);
        if data.exists() {
            fs::remove_dir_all(&data)?;
        }
        fs::create_dir_all(&data)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let group = memory.and_then(|memory| group(name, memory + memory / 4));
        let mut command = match &group {
            // The shell enters the group before it becomes the server.
            Some(group) => {
                let mut shell = Command::new("sh");
                let enter = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", group.display());
                shell.args(["-c", &enter, "sh"]).arg(program);
                shell
            }
            None => Command::new(program),
        };
        options(&mut command, &data, &port);
        command::show(&command);
        let child = command.process_group(0).stdout(Stdio::null()).spawn()?;
        let peer = Self { child, port, data, group };
        let begun = Instant::now();
        while TcpStream::connect(format!("127.0.0.1:{}", peer.port)).is_err() {
            if begun.elapsed() > Duration::from_secs(20) {
                return Err(format!("{name} takes no connection").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(peer)
    }

    /// The directory of the store of a `terrace serve`.
    pub(super) fn store(&self) -> PathBuf {
        store_in(&self.data)
    }

    /// Resident memory, bytes.
    pub(super) fn rss(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line
            .and_then(|it| it.trim().strip_suffix("kB"))
            .and_then(|it| it.trim().parse::<u64>().ok());
        Ok(kib.ok_or("no VmRSS in /proc/PID/status")? << 10)
    }
}

fn store_in(data: &Path) -> PathBuf {
    data.join("store")
}

/// A cgroup of at most `limit` bytes, page cache included. None without the rights or cgroups of version 1.
fn group(name: &str, limit: u64) -> Option<PathBuf> {
    let group = Path::new(CGROUPS).join(format!("bench-{}-{name}", std::process::id()));
    let made = fs::create_dir(&group)
        .and_then(|()| fs::write(group.join("memory.limit_in_bytes"), limit.to_string()));
    if let Err(error) = &made {
        eprintln!("! {name} runs without a limit of the page cache: {error}");
    }
    made.ok().map(|()| group)
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(fs::remove_dir_all(&self.data));
        self.group.iter().for_each(|group| drop(fs::remove_dir(group)));
    }
}
