//! One gateway takes the place of another on the same ports.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{Folder, Gateway, ferrum_edge, get, spec, until};

/// Ports that nobody listens on.
fn ports<const N: usize>() -> [u16; N] {
    let held = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    held.each_ref().map(|listener| listener.local_addr().unwrap().port())
}

/// The usual configuration on these ports.
fn at(text: &str, [http, admin]: [u16; 2]) -> String {
    with_workers(2, text, [http, admin])
}

fn with_workers(workers: usize, text: &str, [http, admin]: [u16; 2]) -> String {
    spec(workers, text)
        .replace("http: '127.0.0.1:0'", &format!("http: '127.0.0.1:{http}'"))
        .replace("admin: '127.0.0.1:0'", &format!("admin: '127.0.0.1:{admin}'"))
}

fn replacing(folder: &Folder) -> Gateway {
    Gateway::start(folder, |command| _ = command.args(["--replace", "--pid-file", "pid"]))
}

/// A gateway that stops waits for a second for the next request of a client. One that a busy machine lets ask so late
/// may find its connection closed.
const LATE: Duration = Duration::from_millis(500);

/// A connection, and when its last request was sent: the gateway's second begins between that and the client's reading of
/// the answer, which is late on a busy machine too.
type Kept = (BufReader<TcpStream>, Instant);

/// Asks over one connection as long as it is kept; `None` when a request got no answer.
fn ask(kept: &mut Option<Kept>, to: SocketAddr) -> Option<()> {
    let asked = Instant::now();
    let (mut tcp, last) = match kept.take() {
        Some(kept) => kept,
        None => (BufReader::new(TcpStream::connect(to).ok()?), asked),
    };
    let mut is_late = false;
    let answer = (|| {
        let sent = tcp.get_mut().write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        is_late = last.elapsed() > LATE;
        sent.ok()?;
        let (mut length, mut closes, mut line) = (0, false, String::new());
        loop {
            line.clear();
            tcp.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
            let lower = line.to_ascii_lowercase();
            length =
                lower.strip_prefix("content-length: ").map_or(Some(length), |it| it.trim().parse().ok())?;
            closes |= lower.starts_with("connection: close");
            if line == "\r\n" {
                break;
            }
        }
        tcp.read_exact(&mut vec![0; length]).ok()?;
        Some(closes)
    })();
    match answer {
        Some(closes) => {
            *kept = (!closes).then_some((tcp, asked));
            Some(())
        }
        None => is_late.then_some(()),
    }
}

/// Requests by the metrics of a gateway.
fn counted(gateway: &Gateway) -> u64 {
    let page = get(gateway.admin, "/metrics");
    let series = page.lines().filter(|line| line.starts_with("ferrum_proxy_requests_total{"));
    series.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

#[test]
fn a_gateway_takes_the_place_of_another_and_no_request_is_lost() {
    let folder = Folder::new();
    let ports = ports();
    folder.write("ferrum.yaml", &at("'0'", ports));
    let mut current = replacing(&folder);
    let (stop, answered, http) = (AtomicBool::new(false), AtomicU64::new(0), current.http);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut kept = None;
                while !stop.load(Ordering::Relaxed) {
                    assert!(ask(&mut kept, http).is_some(), "a request got no answer");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // As many listeners as before, more and fewer.
        for (number, workers) in [2, 3, 1, 2, 4].into_iter().enumerate() {
            let before = answered.load(Ordering::Relaxed);
            until("clients are served", || answered.load(Ordering::Relaxed) > before + 20);
            folder.write("ferrum.yaml", &with_workers(workers, &format!("'{number}'"), ports));
            let next = replacing(&folder);
            assert_eq!(current.wait(), Some(0), "{}", current.log());
            assert_eq!(folder.read("pid").trim(), next.pid().to_string());
            assert!(get(next.http, "/").ends_with(&format!("\r\n\r\n{number}")));
            assert_eq!(next.status()["pid"], next.pid());
            let so_far = answered.load(Ordering::Relaxed);
            until("counters continue", || counted(&next) >= so_far);
            current = next;
        }
        stop.store(true, Ordering::Relaxed);
    });
    // Those of this test, and some that were cut off while a connection closed; nothing twice.
    let (counted, answered) = (counted(&current), answered.load(Ordering::Relaxed));
    assert!((answered..answered + 100).contains(&counted), "{counted} requests counted of {answered}");
    current.signal("TERM");
    assert_eq!(current.wait(), Some(0));
    assert!(!folder.exists("pid"), "the last one removes its file");
}

#[test]
fn a_port_in_use_is_refused_without_being_asked_to_share_it() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &at("x", ports()));
    let current = replacing(&folder);
    let second = ferrum_edge(&folder).args(["run", "--pid-file", "other"]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another process listens there"), "{second:?}");
    assert!(get(current.http, "/").ends_with("\r\n\r\nx"), "the first one goes on");
    assert_eq!(folder.read("pid").trim(), current.pid().to_string());
}

#[test]
fn a_pid_file_is_no_other_file_and_no_other_gateways() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "x"));
    let run = || ferrum_edge(&folder).args(["run", "--pid-file", "pid"]).output().unwrap();
    folder.write("pid", "precious\n");
    let refused = run();
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("something else than a process id"),
        "{refused:?}"
    );
    assert_eq!(folder.read("pid"), "precious\n");
    folder.write("pid", "");
    let mut current = Gateway::start(&folder, |command| _ = command.args(["--pid-file", "pid"]));
    assert_eq!(folder.read("pid").trim(), current.pid().to_string());
    // Its ports are free ones, so that only the file is in the way.
    let refused = run();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains(&format!("another gateway runs with the pid file pid, process {}", current.pid())),
        "{said}"
    );
    assert_eq!(folder.read("pid").trim(), current.pid().to_string());
    // What was put there meanwhile stays.
    folder.write("pid", "precious\n");
    current.signal("TERM");
    assert_eq!(current.wait(), Some(0));
    assert_eq!(folder.read("pid"), "precious\n");
}

#[test]
fn nobody_but_a_gateway_is_replaced() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &at("x", ports()));
    let mut stranger = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    folder.write("pid", &stranger.id().to_string());
    // Its number was given to another program, which is left alone.
    let mut gateway = replacing(&folder);
    assert!(gateway.log().contains("is left over from a gateway that has ended"), "{}", gateway.log());
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
    assert!(stranger.try_wait().unwrap().is_none(), "it goes on");
    // Somebody answers for the gateway all the same.
    folder.write("pid", &stranger.id().to_string());
    let answering = std::os::unix::net::UnixListener::bind(folder.path("pid.sock")).unwrap();
    let refused = ferrum_edge(&folder).args(["run", "--replace", "--pid-file", "pid"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("can't be replaced"), "{refused:?}");
    drop(answering);
    // One that has ended is nobody.
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    let mut gateway = replacing(&folder);
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
    let misused = ferrum_edge(&folder).args(["run", "--replace"]).output().unwrap();
    assert_eq!(misused.status.code(), Some(2), "it has to know whom");
}

/// In a container each run may have the same process id.
#[test]
fn a_file_with_its_own_process_id_is_left_over() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &at("x", ports()));
    let mut gateway = Gateway::start(&folder, |command| {
        let program = command.get_program().to_owned();
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", "echo $$ > pid; exec \"$0\" \"$@\" --replace --pid-file pid"])
            .arg(program)
            .args(arguments);
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell.current_dir(command.get_current_dir().unwrap());
        shell.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        *command = shell;
    });
    assert!(get(gateway.http, "/").ends_with("\r\n\r\nx"), "it does not end itself");
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
}

#[test]
fn a_gateway_of_another_file_is_not_replaced() {
    let (folder, other) = (Folder::new(), Folder::new());
    other.write("ferrum.yaml", &at("other", ports()));
    let current = replacing(&other);
    folder.write("ferrum.yaml", &at("x", ports()));
    // The process id was given to another gateway.
    folder.write("pid", &current.pid().to_string());
    let refused = || ferrum_edge(&folder).args(["run", "--replace", "--pid-file", "pid"]).output().unwrap();
    let said = refused();
    assert_eq!(said.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&said.stderr).contains("does not answer on pid.sock"), "{said:?}");
    // One that answers there, and is not the one of the file.
    std::os::unix::fs::symlink(other.path("pid.sock"), folder.path("pid.sock")).unwrap();
    let mut stranger = replacing(&{
        let third = Folder::new();
        third.write("ferrum.yaml", &at("third", ports()));
        third
    });
    folder.write("pid", &stranger.pid().to_string());
    let said = refused();
    assert_eq!(said.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&said.stderr).contains("is not the gateway of this pid file"),
        "{said:?}"
    );
    assert!(get(current.http, "/").ends_with("\r\n\r\nother"), "both go on");
    assert!(get(stranger.http, "/").ends_with("\r\n\r\nthird"), "both go on");
    stranger.signal("TERM");
    assert_eq!(stranger.wait(), Some(0));
}

#[test]
fn one_gateway_at_a_time_takes_a_place() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &at("x", ports()));
    let current = replacing(&folder);
    let lock = std::fs::File::options().write(true).open(folder.path("pid.lock")).unwrap();
    lock.lock().unwrap();
    let refused = ferrum_edge(&folder).args(["run", "--replace", "--pid-file", "pid"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is just taking the place"), "{refused:?}");
    drop(lock);
    let next = replacing(&folder);
    assert!(get(next.http, "/").ends_with("\r\n\r\nx"));
    drop(current);
}

/// What fails before a gateway serves changes nothing of the one that does.
#[test]
fn a_refused_start_takes_nothing_away() {
    let folder = Folder::new();
    let ports @ [http, _] = ports();
    let sockets = "http_socket: http.sock, admin_socket: admin.sock, congestion_control: reno, https: off";
    let text = |text: &str, admin: u16| at(text, [http, admin]).replace("https: off", sockets);
    folder.write("ferrum.yaml", &text("x", ports[1]));
    let current = replacing(&folder);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    folder.write("ferrum.yaml", &text("y", taken.local_addr().unwrap().port()));
    for arguments in [["--pid-file", "pid"], ["--pid-file", "nowhere/pid"]] {
        let refused = ferrum_edge(&folder).args(["run", "--replace"]).args(arguments).output().unwrap();
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        for socket in ["http.sock", "admin.sock"] {
            std::os::unix::net::UnixStream::connect(folder.path(socket)).expect("it is still there");
        }
        assert!(get(current.http, "/").ends_with("\r\n\r\nx"));
        assert_eq!(folder.read("pid").trim(), current.pid().to_string());
    }
    let left = std::fs::read_dir(folder.path(".")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with(".ferrum")).collect();
    assert!(left.is_empty(), "{left:?} stay behind");
}

/// Who asks for health or status is not answered by the one that drains.
#[test]
fn the_admin_api_is_the_new_ones_while_the_old_one_drains() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &at("x", ports()));
    let mut current = replacing(&folder);
    // A request that is on its way keeps the old one draining.
    let mut held = TcpStream::connect(current.http).unwrap();
    held.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n").unwrap();
    until("it is accepted", || current.status()["connections"] != 0);
    let next = replacing(&folder);
    until("the old one drains", || current.log().contains("\"draining\""));
    until("only the new one answers", || (0..20).all(|_| next.status()["pid"] == next.pid()));
    held.write_all(b"\r\n").unwrap();
    let mut answer = String::new();
    held.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nx"), "{answer}");
    assert_eq!(current.wait(), Some(0));
}

#[test]
fn a_stopped_gateway_is_named() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &at("x", ports()));
    let mut current = replacing(&folder);
    let named = format!("process {} is stopped", current.pid());
    // It serves a moment before it lets others take its place.
    until("the stopped process is named", || {
        current.signal("STOP");
        let refused = ferrum_edge(&folder).args(["run", "--replace", "--pid-file", "pid"]).output().unwrap();
        current.signal("CONT");
        String::from_utf8_lossy(&refused.stderr).contains(&named)
    });
    current.signal("TERM");
    assert_eq!(current.wait(), Some(0));
}

#[test]
fn a_successor_that_sigusr2_starts_takes_over() {
    let folder = Folder::new();
    let ports = ports();
    folder.write("ferrum.yaml", &at("'before'", ports));
    let mut before = replacing(&folder);
    let (http, own) = (before.http, before.pid().to_string());
    folder.write("ferrum.yaml", &at("'after'", ports));
    before.signal("USR2");
    let pid = || folder.read("pid").trim().to_owned();
    until("the successor has the place", || !pid().is_empty() && pid() != own);
    until("the successor serves", || get(http, "/").ends_with("\r\n\r\nafter"));
    let killed = std::process::Command::new("kill").args(["-TERM", &pid()]).status().unwrap();
    assert!(killed.success());
    // Its log goes to the pipe of the process before it, which is read to its end.
    assert_eq!(before.wait(), Some(0), "{}", before.log());
    assert!(!folder.exists("pid"), "the successor removes its file");
}

#[test]
fn sigusr2_without_replace_changes_nothing() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "'same'"));
    let mut gateway = Gateway::start(&folder, |_| {});
    gateway.signal("USR2");
    until("it is said why", || {
        gateway.log().contains("SIGUSR2 is ignored: start the gateway with --pid-file")
    });
    assert!(get(gateway.http, "/").ends_with("\r\n\r\nsame"));
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
}

#[test]
fn a_successor_that_fails_is_in_log_and_status() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &at("x", ports()));
    let gateway = replacing(&folder);
    folder.write("ferrum.yaml", "proxies: [{ id: x, listen_pat: / }]\n");
    gateway.signal("USR2");
    let status = || {
        let output = ferrum_edge(&folder).args(["status", "--admin", &gateway.admin.to_string()]).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    until("the successor has failed", || status().contains("successor_failed"));
    assert!(gateway.log().contains("the successor did not take over"), "{}", gateway.log());
    assert!(get(gateway.http, "/").ends_with("\r\n\r\nx"));
}

/// A service manager with a watchdog hears from the gateway in time.
#[test]
fn the_watchdog_is_told_that_the_gateway_works() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "'0'"));
    let socket = std::os::unix::net::UnixDatagram::bind(folder.path("notify")).unwrap();
    socket.set_read_timeout(Some(crate::process::TIMEOUT)).unwrap();
    let path = folder.path("notify");
    let mut gateway = Gateway::start(&folder, |command| {
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    });
    let (mut told, mut buffer) = (Vec::new(), [0; 256]);
    while told.iter().filter(|text: &&String| text.starts_with("WATCHDOG=1")).count() < 3 {
        let length = socket.recv(&mut buffer).expect("it is told in time");
        told.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
    }
    assert!(told[0].starts_with("READY=1"), "{told:?}");
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
}

#[test]
fn replace_shares_no_port_with_a_gateway_of_another_pid_file() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &at("x", ports()));
    let current = replacing(&folder);
    let second = ferrum_edge(&folder).args(["run", "--pid-file", "other", "--replace"]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    let owner = format!("process {} (ferrum-edge) listens on {}", current.pid(), current.http);
    assert!(said.contains(&owner) || said.contains(&format!("listens on {}", current.admin)), "{said}");
    assert!(get(current.http, "/").ends_with("\r\n\r\nx"), "the first one goes on");
}
