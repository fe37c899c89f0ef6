//! A server that answers with more than anybody asked for.

use std::sync::atomic::AtomicU64;

use gateway_core::plugin::world::files::Files;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::connect::{RedisConnection, connect};
use super::*;

/// Bytes that an attack has; without a bound all are taken.
const ATTACK: usize = 128 << 20;
/// Bytes of an answer that are taken, with what the sockets between hold.
const TAKEN: usize = 32 << 20;

/// An attack: what it begins with, what is repeated, and how the error begins.
struct Attack {
    head: &'static [u8],
    rest: &'static [u8],
    error: &'static str,
}

const ATTACKS: [Attack; 9] = [
    Attack { head: b"+", rest: b"aaaaaaaaaaaaaaaa", error: "a line of an answer of Redis has more than" },
    Attack { head: b"-ERR ", rest: b"aaaaaaaaaaaaaaaa", error: "a line of an answer of Redis has more than" },
    Attack {
        head: b"$274877906944\r\n",
        rest: b"aaaaaaaaaaaaaaaa",
        error: "an answer of Redis has more than",
    },
    Attack { head: b"=536870912\r\n", rest: b"txt:aaaaaaaaaaaa", error: "an answer of Redis has more than" },
    Attack {
        head: b"*1000000000\r\n",
        rest: b":0\r\n:0\r\n:0\r\n:0\r\n",
        error: "an answer of Redis has more than 65536 values",
    },
    Attack {
        head: b"%1000000000\r\n",
        rest: b":0\r\n:0\r\n:0\r\n:0\r\n",
        error: "an answer of Redis has more than 65536 values",
    },
    Attack {
        head: b"",
        rest: b"*1\r\n*1\r\n*1\r\n*1\r\n",
        error: "an answer of Redis has more than 16 lists",
    },
    Attack {
        head: b"*60000\r\n",
        rest: b"$80\r\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n",
        error: "an answer of Redis has more than 4194304 bytes",
    },
    Attack { head: b"", rest: b">1\r\n+message\r\n\r\n", error: "an answer of Redis begins with `>`" },
];

/// Answers as a server does until it is asked for `word`, and attacks then. Says how many bytes were taken.
async fn hostile(mut client: TcpStream, port: u16, word: &str, attack: &Attack) -> Option<usize> {
    let mut asked = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let read = client.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        asked.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&asked).into_owned();
        if text.contains(word) {
            break;
        }
        // A command is there as a whole: what tests ask for is small.
        for command in text.split('*').filter(|command| !command.is_empty()) {
            let answer = if command.contains("SLOTS") {
                format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
            } else if command.contains("GET-MASTER") {
                format!("*2\r\n$9\r\n127.0.0.1\r\n$5\r\n{port:05}\r\n")
            } else if command.contains("ROLE") {
                "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n".to_owned()
            } else {
                "+OK\r\n".to_owned()
            };
            client.write_all(answer.as_bytes()).await.ok()?;
        }
        asked.clear();
    }
    let chunk = attack.rest.repeat(4096);
    let mut taken = 0;
    client.write_all(attack.head).await.ok()?;
    while taken < ATTACK {
        if client.write_all(&chunk).await.is_err() {
            break;
        }
        taken += chunk.len();
    }
    Some(taken)
}

/// Connects to a server that attacks when it is asked for `word`, and runs a script: the error of either, and the most bytes that
/// one connection took.
async fn attacked(mode: &str, word: &'static str, attack: &'static Attack) -> (String, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (said, mut taken) = tokio::sync::mpsc::unbounded_channel();
    let server = tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let said = said.clone();
            tokio::spawn(
                async move { hostile(client, port, word, attack).await.map(|taken| said.send(taken)) },
            );
        }
    });
    let mut settings = at(port);
    settings["mode"] = mode.into();
    settings["connect_timeout"] = json!("20s");
    if mode == "sentinel" {
        settings["master_name"] = "m".into();
    }
    let servers = servers(&settings);
    let world = World::default();
    let files: &Arc<dyn Files> = world.files();
    let error = match connect(&servers["main"], files, &Arc::new(AtomicU64::new(0))).await {
        Err(why) => why.to_string(),
        Ok(mut connection) => {
            let mut call = COUNT.prepare_invoke();
            call.key("k");
            let ran = tokio::time::timeout(Duration::from_secs(20), connection.invoke(&call)).await;
            let is_cluster = matches!(connection, RedisConnection::Cluster { .. });
            match ran {
                Ok(answer) => answer.unwrap_err().to_string(),
                // It tries again at other nodes until whoever asked gives up.
                Err(_) if is_cluster => attack.error.to_owned(),
                Err(_) => "no answer".to_owned(),
            }
        }
    };
    let first = taken.recv().await.unwrap();
    server.abort();
    (error, first)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_bounded_on_every_way_to_a_server() {
    let ways = [
        ("single", "SETINFO"),
        ("single", "EVALSHA"),
        ("sentinel", "GET-MASTER"),
        ("sentinel", "ROLE"),
        ("sentinel", "EVALSHA"),
        ("cluster", "SLOTS"),
        ("cluster", "EVALSHA"),
    ];
    for (mode, word) in ways {
        for attack in &ATTACKS {
            let name =
                format!("{mode} at {word}: {}{}", attack.head.escape_ascii(), attack.rest.escape_ascii());
            let (error, taken) = attacked(mode, word, attack).await;
            assert!(taken < TAKEN, "{name}: {taken} bytes were taken");
            // A cluster tells that it has no node, and the log why.
            assert!(mode == "cluster" || error.contains(attack.error), "{name}: {error}");
        }
    }
}

/// What a plugin stores comes back, and no more than that.
#[tokio::test]
async fn an_answer_may_have_what_plugins_store() {
    static GET: LazyLock<Script> = LazyLock::new(|| Script::new("return string.rep('a', tonumber(ARGV[1]))"));
    let redis = redis(&[]);
    let (link, _world, _task) = running(&at(redis.port));
    link.becomes(true).await;
    let ask = async |bytes: u64| link.ask(Command::new(&GET, vec!["k".into()]).arg(bytes.to_string())).await;
    let size = |answer: Result<Value, Away>| match answer {
        Ok(Value::BulkString(bytes)) => bytes.len() as u64,
        other => panic!("{other:?}"),
    };
    assert_eq!(size(ask(4 << 20 >> 1).await), 2 << 20);
    assert_eq!(ask(6 << 20).await, Err(Away));
    let world = World::default();
    world.use_redis(Some(&servers(&at(redis.port))));
    let link = Arc::new(RedisLink::new(&main_connection(), &world).storing(8 << 20));
    let (_handle, control) = TaskControl::new();
    tokio::spawn(link.clone().run(control));
    link.becomes(true).await;
    let ask = async |bytes: u64| link.ask(Command::new(&GET, vec!["k".into()]).arg(bytes.to_string())).await;
    assert_eq!(size(ask(8 << 20).await), 8 << 20);
    assert_eq!(ask(13 << 20).await, Err(Away));
}
