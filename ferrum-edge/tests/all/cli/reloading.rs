//! What follows a reload, and what commands say of files that are broken or another program's.

use std::net::UdpSocket;

use crate::process::{Folder, Gateway, TIMEOUT, ferrum_edge, get, spec, until};

/// The configuration with these settings of the gateway.
fn with(gateway: &str) -> String {
    spec(1, "hi").replace("https: off,", &format!("https: off, {gateway},"))
}

fn sinks(names: &[&str]) -> String {
    let one = |name: &&str| format!("{{ name: {name}, interval: 100ms, file: {{ path: {name}.log }} }}");
    format!("access_log: {{ sinks: [{}] }}", names.iter().map(one).collect::<Vec<_>>().join(", "))
}

#[test]
fn records_go_where_the_newest_configuration_says() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &with(&sinks(&["kept", "gone"])));
    let gateway = Gateway::start(&folder, |_| {});
    let lines = |name: &str| folder.read(name).lines().count();
    get(gateway.http, "/first");
    until("both have the first", || lines("kept.log") == 1 && lines("gone.log") == 1);
    folder.write("ferrum.yaml", &with(&sinks(&["kept", "new"])));
    gateway.signal("HUP");
    until("it is in use", || gateway.status()["config"]["revision"] == 2);
    get(gateway.http, "/second");
    until("those of now have the second", || lines("kept.log") == 2 && lines("new.log") == 1);
    assert!(folder.read("new.log").contains("/second") && lines("gone.log") == 1);
    // One that can't be opened is a refused reload, and nothing is different.
    folder.write("ferrum.yaml", &with(&sinks(&["kept", "bad"]).replace("bad.log", "none/bad.log")));
    gateway.signal("HUP");
    until("it is refused", || gateway.status()["config"]["refused"] == 1);
    get(gateway.http, "/third");
    until("those before have the third", || lines("kept.log") == 3 && lines("new.log") == 2);
}

#[test]
fn metrics_are_pushed_where_the_newest_configuration_says() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "hi"));
    let gateway = Gateway::start(&folder, |_| {});
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let at = socket.local_addr().unwrap();
    folder.write(
        "ferrum.yaml",
        &with(&format!("metrics: {{ statsd: {{ address: 'udp://{at}', interval: 100ms }} }}")),
    );
    gateway.signal("HUP");
    let mut buffer = [0; 65_536];
    let read = socket.recv(&mut buffer).unwrap();
    assert!(String::from_utf8_lossy(&buffer[..read]).contains("http"), "a push after the reload");
}

/// A broken file is what is reloaded most often by mistake: it still says where the gateway is.
#[test]
fn the_admin_address_is_found_in_a_broken_file() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "hi"));
    let gateway = Gateway::start(&folder, |_| {});
    let settings = format!("gateway:\n  http: '127.0.0.1:0'\n  admin: '{}'\n", gateway.admin);
    for (rest, said) in [
        ("proxies: [{id: a, listen_path: nope}]\n", "`nope` doesn't begin with `/`"),
        ("proxies:\n  - id: a\n     listen_path: /\n", "this is not YAML"),
        ("proxies: [\n", "this is not YAML"),
    ] {
        folder.write("ferrum.yaml", &format!("{settings}{rest}"));
        let output = ferrum_edge(&folder).arg("reload").output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains(said), "{text}");
    }
    assert!(get(gateway.http, "/").contains("hi"), "the last good one serves");
}

#[test]
fn check_and_dump_say_what_was_meant() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", "proxies: 5\n");
    folder.write("good.yaml", &spec(1, "hi"));
    let check = |arguments: &[&str]| ferrum_edge(&folder).arg("check").args(arguments).output().unwrap();
    assert_eq!(check(&[]).status.code(), Some(3));
    assert_eq!(check(&["good.yaml"]).status.code(), Some(0));
    let kong = "_format_version: '3.0'\nservices: []\n";
    folder.write("kong.yaml", kong);
    let said = String::from_utf8(check(&["kong.yaml"]).stdout).unwrap();
    assert!(said.contains("a configuration of Kong") && said.contains("ferrum-edge import"), "{said}");
    let explained =
        ferrum_edge(&folder).args(["explain", "GET", "/", "--spec", "good.yaml"]).output().unwrap();
    let explained = String::from_utf8(explained.stdout).unwrap();
    assert!(
        explained.contains("answered:  by request_termination, with 200; no target is asked"),
        "{explained}"
    );
    assert!(!explained.contains("forwards:"), "{explained}");
    let dumped = ferrum_edge(&folder).args(["dump", "--output", "json"]).output().unwrap();
    assert_eq!(dumped.status.code(), Some(2));
    assert!(!folder.exists("json") && String::from_utf8_lossy(&dumped.stderr).contains("--format json"));
    let settings = ferrum_edge(&folder).arg("settings").output().unwrap();
    let settings = String::from_utf8(settings.stdout).unwrap();
    for name in ["FERRUM_SPEC", "FERRUM_LOG_LEVEL", "FERRUM_PID_FILE", "_FILE", "FERRUM_PROXY_HTTP_PORT"] {
        assert!(settings.contains(name), "{name}");
    }
}

/// What takes a restart is told where somebody looks, and for as long as it is so.
#[test]
fn settings_that_need_a_restart_are_told() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "hi"));
    let gateway = Gateway::start(&folder, |_| {});
    let reload = || {
        let output =
            ferrum_edge(&folder).args(["reload", "--admin", &gateway.admin.to_string()]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let warned = || {
        let listed = gateway.status()["warnings"]["list"].as_array().unwrap().clone();
        let restart = listed.into_iter().filter(|warning| warning["code"] == "restart_needed");
        restart.map(|warning| warning["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(warned(), [""; 0]);
    let changed = spec(2, "hi").replace("http: '127.0.0.1:0'", "http: '127.0.0.2:0'");
    folder.write("ferrum.yaml", &changed);
    let said = reload();
    assert!(said.contains("Revision 2 is in use."), "{said}");
    assert!(said.contains("gateway.http: ") && said.contains("gateway.workers: "), "{said}");
    assert!(said.contains("[restart_needed]"), "{said}");
    assert_eq!(warned(), ["gateway.http", "gateway.workers"]);
    folder.write("ferrum.yaml", &changed.replace("body: hi", "body: ho"));
    assert!(reload().contains("gateway.workers: "), "it is as true after the next reload");
    folder.write("ferrum.yaml", &spec(1, "hu"));
    assert!(!reload().contains("[restart_needed]"), "what it was started with is what is configured");
    assert_eq!(warned(), [""; 0]);
}

/// Rules of the firewall are part of its settings, though they are in files of their own.
#[test]
fn a_reload_reads_the_files_again_that_a_plugin_is_built_from() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("rules")).unwrap();
    folder.write(
        "rules/a.conf",
        "SecRule ARGS \"@pmFromFile words.data\" \"id:1,phase:2,deny,msg:'A word'\"\n",
    );
    folder.write("rules/words.data", "evil\n");
    let firewall =
        "  - { id: waf, plugin_name: waf, scope: global, config: { mode: block, rules: { crs: rules } } }\n";
    // What passes is sent to a target that is not there.
    let answers_itself = "plugins: [{ plugin_config_id: answer }]";
    let proxied = spec(1, "one").replace(answers_itself, "plugins: []");
    folder.write("ferrum.yaml", &format!("{proxied}{firewall}"));
    let gateway = Gateway::start(&folder, |_| {});
    let passes = |word: &str| get(gateway.http, &format!("/?q={word}")).starts_with("HTTP/1.1 502");
    assert_eq!(["evil", "vile", "good"].map(passes), [false, true, true]);
    // The configuration itself stays as it is.
    folder.write("rules/words.data", "vile\n");
    gateway.signal("HUP");
    until("the other word is refused", || !passes("vile"));
    assert_eq!(["evil", "vile", "good"].map(passes), [true, false, true]);
    // Rules that can't be used are a refused reload.
    folder.write("rules/b.conf", "SecRule ARGS \"@rx (\" \"id:2,deny\"\n");
    gateway.signal("HUP");
    until("it is refused", || gateway.status()["config"]["refused"] == 1);
    assert_eq!(["evil", "vile", "good"].map(passes), [true, false, true]);
}

/// What another gateway says of itself is no answer.
#[test]
fn a_reload_is_told_by_the_process_that_was_signalled() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "one"));
    let (told, other) = (Gateway::start(&folder, |_| {}), Gateway::start(&folder, |_| {}));
    folder.write("pid", &told.pid().to_string());
    folder.write("ferrum.yaml", &spec(1, "two"));
    for which in [["--pid", &told.pid().to_string()], ["--pid-file", "pid"]] {
        let reload = |admin: &Gateway| {
            let mut command = ferrum_edge(&folder);
            command.arg("reload").args(which).args(["--admin", &admin.admin.to_string()]).output().unwrap()
        };
        let refused = reload(&other);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains(&format!("answers at {}, {};", other.admin, other.pid())), "{said}");
        until("it is reloaded all the same", || get(told.http, "/").ends_with("\r\n\r\ntwo"));
        assert!(get(other.http, "/").ends_with("\r\n\r\none"));
        let good = reload(&told);
        assert_eq!(good.status.code(), Some(0), "{good:?}");
    }
}
