//! The admin port of `terrace serve`: the page in a browser, the dashboard in Prometheus, and the planner.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::serve_client::*;
use crate::support::*;

/// A port that was free a moment ago.
pub(crate) fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(socket, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut text = String::new();
    socket.read_to_string(&mut text)?;
    Ok(text)
}

pub(crate) fn body(address: SocketAddr, path: &str) -> String {
    get(address, path).unwrap().split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// A program of this name in the path of the environment.
fn program(names: &[&str]) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let all = std::env::split_paths(&folders)
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    all.into_iter().find(|path| path.is_file())
}

/// A process that ends with the test.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server whose store has something to show: flushed tables, hits in several places, errors, a window.
fn busy(scratch: &Scratch) -> (Server, SocketAddr) {
    let admin = free();
    let options = ["--admin", &admin.to_string(), "--database", "1=window=4MiB"];
    let server = Server::start(&scratch.path("data"), &options);
    work(&server, 3000);
    (server, admin)
}

fn work(server: &Server, keys: usize) {
    let mut client = server.client();
    for number in 0..keys {
        client.say(&format!("SET key:{number} {number:0>200}"));
    }
    client.say("SAVE");
    for number in (0..keys + 100).step_by(7) {
        client.say(&format!("GET key:{number}"));
    }
    client.say("NOSUCH");
}

#[test]
fn statistics_are_json_and_the_metrics_have_histograms() {
    let scratch = Scratch::new();
    let (_server, admin) = busy(&scratch);
    let statistics: Value = serde_json::from_str(&body(admin, "/stats.json")).unwrap();
    let counts = statistics["server"]["latency"]["counts"].as_array().unwrap();
    let bounds = statistics["server"]["latency"]["bounds_us"].as_array().unwrap();
    assert_eq!(counts.len(), bounds.len() + 1);
    let sum: u64 = counts.iter().map(|count| count.as_u64().unwrap()).sum();
    assert!(sum >= 3000, "{sum}");
    assert!(statistics["store"]["memory"]["limit"].as_u64().unwrap() > 0);
    let metrics = body(admin, "/metrics");
    for line in
        ["terrace_command_duration_seconds_bucket{le=\"+Inf\"} ", "terrace_compactions_total "]
    {
        assert!(metrics.contains(line), "{metrics}");
    }
    // Every family has its kind, and no line is twice.
    let names: Vec<_> = metrics.lines().filter(|line| !line.starts_with('#')).collect();
    let mut unique: Vec<_> =
        names.iter().filter_map(|line| line.rsplit_once(' ')).map(|it| it.0).collect();
    unique.sort_unstable();
    let all = unique.len();
    unique.dedup();
    assert_eq!(unique.len(), all, "{metrics}");
    let head = get(admin, "/").unwrap();
    assert!(head.starts_with("HTTP/1.0 200 OK\r\nContent-Type: text/html"), "{head}");
    assert!(head.contains("default-src 'none'"));
}

#[test]
fn a_plan_is_made_for_a_running_server() {
    let scratch = Scratch::new();
    let (_server, admin) = busy(&scratch);
    let plan = terrace(&["plan", "--addr", &admin.to_string(), "--json"]);
    let plan: Value =
        serde_json::from_str(&plan.out).unwrap_or_else(|_| panic!("{} {}", plan.out, plan.err));
    assert!(plan.is_object());
    let nobody = free().to_string();
    assert!(terrace(&["plan", "--addr", &nobody]).bad(2).contains(&nobody));
}

/// The page in a browser: it fetches statistics and draws them, and reports no error.
#[test]
fn the_page_draws_its_charts_in_a_browser() {
    let Some(browser) = program(&["chromium", "chromium-browser", "google-chrome"]) else {
        eprintln!("skipped: no chromium in the path (apt-get install chromium)");
        return;
    };
    let scratch = Scratch::new();
    let (server, admin) = busy(&scratch);
    let profile = format!("--user-data-dir={}", scratch.arg("profile"));
    let mut browser = Command::new(browser);
    browser.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        &profile,
    ]);
    // Virtual time: it stands still while a fetch is under way.
    browser.args(["--virtual-time-budget=8000", "--dump-dom", &format!("http://{admin}/")]);
    work(&server, 100);
    let output = browser.stdin(Stdio::null()).stderr(Stdio::null()).output().unwrap();
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.contains("<p id=\"error\" hidden"), "{page}");
    for chart in ["throughput", "latency", "hits", "memory", "compaction", "curve"] {
        let svg = page.split_once(&format!("<svg id=\"{chart}\"")).expect(chart).1;
        let points = svg.split_once("data-points=\"").expect(chart).1.split_once('"').unwrap().0;
        assert!(points.parse::<u32>().unwrap() >= 2, "{chart}: {points} points");
        let drawn = svg.split_once("</svg>").unwrap().0;
        assert!(drawn.contains("<poly") && !drawn.contains("NaN"), "{chart}: {drawn}");
    }
    assert!(page.contains("memtable ") && page.contains("of pages"), "{page}");
    assert!(page.contains("(the limit now)"), "{page}");
}

/// The names of metrics in an expression.
fn metrics_of(expression: &str) -> Vec<&str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = expression.split(|letter| !is_part(letter));
    words.filter(|word| word.starts_with("terrace_")).collect()
}

/// Every expression of the dashboard is about metrics that exist, and Prometheus finds data for it.
#[test]
fn the_dashboard_shows_data_in_every_panel() {
    let scratch = Scratch::new();
    let (server, admin) = busy(&scratch);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/grafana-dashboard.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions: Vec<_> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(expressions.len() > 20);
    let served = body(admin, "/metrics");
    for expression in &expressions {
        let names = metrics_of(expression);
        assert!(!names.is_empty(), "{expression}");
        for name in names {
            let has = |line: &str| {
                line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']))
            };
            assert!(served.lines().any(has), "{name} is not served: {expression}");
        }
    }
    let Some(prometheus) = program(&["prometheus"]) else {
        eprintln!("skipped: prometheus is not installed, so the expressions were not evaluated");
        return;
    };
    let config = scratch.path("prometheus.yml");
    fs::write(
        &config,
        format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\nscrape_configs:\n\
         - job_name: terrace\n  static_configs: [{{targets: ['{admin}']}}]\n"
        ),
    )
    .unwrap();
    let listen = free();
    let mut command = Command::new(prometheus);
    command.arg(format!("--config.file={}", config.display()));
    command.arg(format!("--storage.tsdb.path={}", scratch.arg("tsdb")));
    command.arg(format!("--web.listen-address={listen}"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _prometheus = Child(command.spawn().unwrap());
    let evaluate = |expression: &str| -> Option<Value> {
        let letter = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        };
        let query: String = expression.bytes().map(letter).collect();
        let text = get(listen, &format!("/api/v1/query?query={query}")).ok()?;
        let text = text.split_once("\r\n\r\n")?.1;
        // The answer is in chunks, or whole.
        let json = text.get(text.find('{')?..=text.rfind('}')?)?;
        let answer: Value = serde_json::from_str(json).ok()?;
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        let found = answer["data"]["result"].clone();
        (!found.as_array()?.is_empty()).then_some(found)
    };
    let until = Instant::now() + Duration::from_secs(120);
    for expression in &expressions {
        loop {
            // Scrapes go on meanwhile; a rate needs two with commands between them.
            work(&server, 50);
            if evaluate(expression).is_some() {
                break;
            }
            assert!(Instant::now() < until, "no data: {expression}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
