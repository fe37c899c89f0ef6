#!/usr/bin/env python3
"""Clients and servers of others through the gateway. See CONTRIBUTING.md for what has to be installed.

Usage: tests/interop/run.py [--gateway PROGRAM] [--bench PROGRAM] [NAME...]
Runs all checks, or those whose name begins with one of NAME; says for each whether it held, and exits 1 if one did not.
"""

import argparse
import http.server
import json
import os
import pathlib
import queue
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GRPC = [
    "empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream",
    "timeout_on_sleeping_server", "cancel_after_begin", "cancel_after_first_response", "status_code_and_message",
    "special_status_message", "unimplemented_method", "unimplemented_service", "custom_metadata",
]
PORTS = ["http", "https", "dns", "tcp_tls", "dtls", "dtls_to", "dtls_far", "quic", "quic_a", "quic_b", "grpc_h2c", "grpc_tls", "named", "both"]


class Failed(Exception):
    """A check did not hold."""


def free_ports(names):
    """Ports nobody uses, for TCP and UDP."""
    held, ports = [], {}
    for name in names:
        while True:
            tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            tcp.bind(("127.0.0.1", 0))
            port = tcp.getsockname()[1]
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            held += [tcp, udp]
            try:
                udp.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports[name] = port
            break
    for each in held:
        each.close()
    return ports


class Stand:
    """The gateway, what stands behind it, and where they are."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="interop-"))
        self.processes, self.tools = [], tools()
        self.ports = free_ports(PORTS)

    def begin(self, args):
        self.certificate()
        bench = [args.bench, "backend", "--threads", "1"]
        backend = subprocess.Popen(bench, stdout=subprocess.PIPE, text=True)
        self.processes.append(backend)
        self.echo = {name: where for name, where in json.loads(backend.stdout.readline()).items() if name != "pid"}
        self.servers()
        (self.folder / "spec.yaml").write_text(self.spec())
        self.log = open(self.folder / "gateway.log", "w")
        self.start([args.gateway, "run", "--spec", str(self.folder / "spec.yaml"), "-v"], self.log)
        wait_for(self.ports["http"])

    def start(self, command, log=subprocess.DEVNULL):
        self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def certificate(self):
        names = "subjectAltName=DNS:localhost,DNS:*.test.google.fr,DNS:*.interop.test,IP:127.0.0.1"
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        ca = ["-x509", "-days", "2", "-subj", "/CN=interop CA", "-keyout", self.file("ca-key.pem"), "-out", self.file("ca.pem")]
        run(["openssl", "req", *key, *ca])
        by = ["-x509", "-days", "2", "-CA", self.file("ca.pem"), "-CAkey", self.file("ca-key.pem")]
        run(["openssl", "req", *key, *by, "-subj", "/CN=localhost", "-addext", names, "-addext",
             "basicConstraints=critical,CA:FALSE", "-keyout", self.file("key.pem"), "-out", self.file("cert.pem")])

    def file(self, name):
        return str(self.folder / name)

    def servers(self):
        ports = self.ports
        if self.tools["dnsmasq"]:
            self.start([self.tools["dnsmasq"], "-k", "-C", "/dev/null", "--no-resolv", "--no-hosts",
                        "--pid-file=", f"--port={ports['named']}", "--listen-address=127.0.0.1", "--bind-interfaces",
                        "--address=/interop.test/192.0.2.7", "--txt-record=long.interop.test," + "x" * 200,
                        "--user=" + os.environ.get("USER", "root")])
        if self.tools["grpc-server"]:
            self.start([self.tools["grpc-server"], f"--port={ports['grpc_h2c']}"])
            self.start([self.tools["grpc-server"], f"--port={ports['grpc_tls']}", "--use_tls",
                        f"--tls_cert_file={self.file('cert.pem')}", f"--tls_key_file={self.file('key.pem')}"])
        if self.tools["peers"]:
            for name in "ab":
                where = f"127.0.0.1:{ports['quic_' + name]}"
                self.start([self.tools["peers"], "h3-server", where, self.file("cert.pem"), self.file("key.pem"), name])
            where = f"127.0.0.1:{ports['both']}"
            self.start([self.tools["peers"], "both", where, self.file("cert.pem"), self.file("key.pem")])

    def spec(self):
        ports, echo = self.ports, {name: where.rsplit(":", 1)[1] for name, where in self.echo.items()}

        def proxy(name, scheme, port, **fields):
            fields = {"id": name, "backend_scheme": scheme, "backend_host": "127.0.0.1", "backend_port": int(port), **fields}
            return "  - " + json.dumps(fields)

        def web(name, hosts, scheme, port, **fields):
            return proxy(name, scheme, port, **{"hosts": hosts, "listen_path": "/", "strip_listen_path": False, **fields})

        proxies = [
            web("web", ["127.0.0.1", "localhost"], "http", echo["http"]),
            # The path is for clients without TLS, whose authority is an address.
            web("grpc", ["127.0.0.1", "h2c.test.google.fr"], "http", ports["grpc_h2c"], backend_http_version="2",
                 listen_path="/grpc.testing.TestService"),
            web("grpc-unknown", ["127.0.0.1", "h2c.test.google.fr"], "http", ports["grpc_h2c"],
                 backend_http_version="2", listen_path="/grpc.testing.UnimplementedService"),
            web("grpc-tls", ["tls.test.google.fr"], "https", ports["grpc_tls"], backend_http_version="2",
                 backend_tls_server_ca_cert_path=self.file("ca.pem"), backend_tls_server_name="localhost"),
            web("both", ["both.interop.test"], "https", ports["both"], backend_tls_server_name="localhost",
                 backend_tls_server_ca_cert_path=self.file("ca.pem")),
            proxy("dns-udp", "udp", ports["named"], listen_port=ports["dns"]),
            proxy("dns-tcp", "tcp", ports["named"], listen_port=ports["dns"]),
            proxy("tcp-tls", "tcp", echo["tcp"], listen_port=ports["tcp_tls"], frontend_tls=True),
            proxy("dtls", "udp", echo["udp"], listen_port=ports["dtls"], frontend_tls=True),
            proxy("dtls-to", "dtls", ports["dtls_far"], listen_port=ports["dtls_to"], backend_tls_server_name="localhost",
                  backend_tls_server_ca_cert_path=self.file("ca.pem")),
        ]
        for name in "ab":
            proxies.append(proxy(f"quic-{name}", "udp", ports["quic_" + name], listen_port=ports["quic"],
                                 passthrough=True, hosts=[f"{name}.interop.test"]))
        head = {"gateway": {
            "http": f"127.0.0.1:{ports['http']}", "https": f"127.0.0.1:{ports['https']}", "http3": True, "admin": "off",
            "stream_address": "127.0.0.1",
            "tls": {"certificates": [{"cert_path": self.file("cert.pem"), "key_path": self.file("key.pem")}],
                    "early_data": True},
        }}
        return f"gateway: {json.dumps(head['gateway'])}\nproxies:\n" + "\n".join(proxies) + "\n"

    def end(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(20)


def tools():
    """Programs by what they are for; None for those that are not installed."""
    folder = pathlib.Path(os.environ.get("INTEROP_BIN", ROOT / "target" / "interop"))
    beside = {"grpc-client": "client", "grpc-server": "server", "peers": "interop"}
    found = {name: shutil.which(name) for name in ["dig", "dnsmasq", "curl", "openssl", "chromium"]}
    found["dnsmasq"] = found["dnsmasq"] or shutil.which("dnsmasq", path="/usr/sbin")
    found |= {name: shutil.which(str(folder / program)) for name, program in beside.items()}
    found["python-h3"] = shutil.which(str(folder / "venv" / "bin" / "python"))
    return found


def wait_for(port):
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise Failed(f"nobody listens on port {port}")


def run(command, wanted=None, text=None, timeout=60):
    """Runs a command that has to succeed, and to say `wanted`."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise Failed(f"{command[0]} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-600:]}")
    if wanted is not None and wanted not in done.stdout:
        raise Failed(f"{command[0]} said {done.stdout.strip()[-300:]!r}, not {wanted!r}")
    return done.stdout


def check_dig_udp(stand):
    ask = [stand.tools["dig"], "@127.0.0.1", "-p", str(stand.ports["dns"]), "+short", "+tries=2", "+time=3"]
    for n in range(20):
        run([*ask, f"host{n}.interop.test"], "192.0.2.7")
    run([*ask, "+bufsize=4096", "long.interop.test", "TXT"], "x" * 200)


def check_dig_tcp(stand):
    ask = [stand.tools["dig"], "@127.0.0.1", "-p", str(stand.ports["dns"]), "+short", "+tcp", "+tries=2", "+time=3"]
    for n in range(5):
        run([*ask, f"host{n}.interop.test"], "192.0.2.7")


def talk(stand, options, port):
    """Has lines echoed to openssl, which ends when its input does."""
    command = [stand.tools["openssl"], "s_client", "-quiet", "-no_ign_eof", "-connect", f"127.0.0.1:{port}", *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True) as client:
        for n in range(5):
            client.stdin.write(f"line {n}\n")
            client.stdin.flush()
            got = client.stdout.readline()
            if got != f"line {n}\n":
                raise Failed(f"openssl heard {got!r}")
        client.stdin.close()


def check_openssl_tls12(stand):
    talk(stand, ["-tls1_2"], stand.ports["tcp_tls"])


def check_openssl_tls13(stand):
    talk(stand, ["-tls1_3"], stand.ports["tcp_tls"])


def check_openssl_dtls(stand):
    talk(stand, ["-dtls1_2"], stand.ports["dtls"])


def check_pion_dtls(stand):
    run([stand.tools["peers"], "dtls", f"127.0.0.1:{stand.ports['dtls']}"])


def check_openssl_dtls_target(stand):
    """A plain client; the gateway speaks DTLS to the target, whose people type what it says."""
    command = [stand.tools["openssl"], "s_server", "-4", "-dtls1_2", "-quiet", "-port", str(stand.ports["dtls_far"]),
               "-cert", stand.file("cert.pem"), "-key", stand.file("key.pem")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        time.sleep(0.5)
        client.settimeout(10)
        client.connect(("127.0.0.1", stand.ports["dtls_to"]))
        try:
            for n in range(3):
                client.send(f"up {n}\n".encode())
                got = server.stdout.readline()
                server.stdin.write(f"down {n}\n")
                server.stdin.flush()
                back = client.recv(4096)
                if (got, back) != (f"up {n}\n", f"down {n}\n".encode()):
                    raise Failed(f"openssl heard {got!r}, the client {back!r}")
        finally:
            server.kill()


def curl(stand, url, *options):
    body = "c" * 100_000
    (stand.folder / "body").write_text(body)
    got = run([stand.tools["curl"], "-sS", "--fail", "-k", "--max-time", "20", "-w", " %{http_version}", "--data-binary",
               "@" + stand.file("body"), *options, url])
    text, version = got.rsplit(" ", 1)
    if text != body:
        raise Failed(f"{len(text)} bytes of {len(body)} came back")
    return version


def check_curl_h1(stand):
    if curl(stand, f"http://127.0.0.1:{stand.ports['http']}/echo") != "1.1":
        raise Failed("another version")
    curl(stand, f"https://127.0.0.1:{stand.ports['https']}/echo", "--http1.1")
    curl(stand, f"http://127.0.0.1:{stand.ports['http']}/echo", "-H", "transfer-encoding: chunked")


def check_curl_h2(stand):
    if curl(stand, f"https://127.0.0.1:{stand.ports['https']}/echo", "--http2") != "2":
        raise Failed("another version")
    curl(stand, f"http://127.0.0.1:{stand.ports['http']}/echo", "--http2-prior-knowledge")


def grpc(stand, host, port, *options):
    failed = []
    for case in GRPC:
        try:
            run([stand.tools["grpc-client"], "--server_host=127.0.0.1", f"--server_port={port}", f"--test_case={case}",
                 *host, *options])
        except (Failed, subprocess.TimeoutExpired) as error:
            failed.append(f"{case}: {error}")
    if failed:
        raise Failed("; ".join(failed))


def check_grpc_h2c_to_h2c(stand):
    grpc(stand, [], stand.ports["http"])


def check_grpc_tls_to_h2c(stand):
    grpc(stand, ["--server_host_override=h2c.test.google.fr"], stand.ports["https"], "--use_tls", "--use_test_ca",
         f"--ca_file={stand.file('ca.pem')}")


def check_grpc_tls_to_tls(stand):
    grpc(stand, ["--server_host_override=tls.test.google.fr"], stand.ports["https"], "--use_tls", "--use_test_ca",
         f"--ca_file={stand.file('ca.pem')}")


def check_h3_quic_go(stand):
    run([stand.tools["peers"], "h3", f"https://127.0.0.1:{stand.ports['https']}/echo", "localhost"])


def check_h3_quic_go_early(stand):
    run([stand.tools["peers"], "h3-early", f"https://127.0.0.1:{stand.ports['https']}/", "both.interop.test"])


def check_openssl_early(stand):
    """The same over TCP; openssl says itself whether what it sent early was accepted."""
    request = "GET / HTTP/1.1\r\nhost: both.interop.test\r\nconnection: close\r\n\r\n"
    (stand.folder / "request").write_text(request)
    command = [stand.tools["openssl"], "s_client", "-connect", f"127.0.0.1:{stand.ports['https']}", "-ign_eof",
               "-servername", "both.interop.test"]
    run([*command, "-sess_out", stand.file("session")], "early=", text=request)
    said = run([*command, "-sess_in", stand.file("session"), "-early_data", stand.file("request")], "early=1")
    if "Early data was accepted" not in said:
        raise Failed("the early data was not accepted")


def check_alt_svc_quic_go(stand):
    """A target that offers HTTP/3 over TCP is asked over what it offers in the end."""
    port = stand.ports["https"]
    ask = [stand.tools["curl"], "-sS", "--fail", "-k", "--max-time", "20", "--resolve", f"both.interop.test:{port}:127.0.0.1",
           f"https://both.interop.test:{port}/"]
    until, heard = time.monotonic() + 20, ""
    while heard != "HTTP/3.0":
        heard = run(ask).split(" ")[0]
        if time.monotonic() > until:
            raise Failed(f"the target is still asked in {heard}")


def check_h3_aioquic(stand):
    for size in (1, 1000, 500_000):
        run([stand.tools["python-h3"], str(HERE / "h3.py"), f"https://127.0.0.1:{stand.ports['https']}/echo", str(size)])


def check_quic_passthrough(stand):
    for name in "ab":
        url = f"https://127.0.0.1:{stand.ports['quic']}/"
        run([stand.tools["peers"], "h3", url, f"{name}.interop.test", name])


def check_quic_passthrough_moving(stand):
    run([stand.tools["peers"], "moving", f"127.0.0.1:{stand.ports['quic']}", "b.interop.test", "b"])


PAGE = """<!doctype html><title>interop</title><script>
const socket = new WebSocket("ws://127.0.0.1:PORT/ws");
const sent = ["text \\u00e9", "x".repeat(200000)];
let next = 0;
const say = text => fetch("/said?" + encodeURIComponent(text));
socket.onopen = () => socket.send(sent[0]);
socket.onmessage = message => {
  if (message.data !== sent[next]) return say("wrong");
  if (++next < sent.length) socket.send(sent[next]); else socket.close(1000, "done");
};
socket.onclose = event => say(`closed ${event.code} after ${next}`);
</script>"""


def check_chromium_websocket(stand):
    said = queue.Queue()

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path.startswith("/said?"):
                said.put(urllib.parse.unquote(self.path.partition("?")[2]))
            body = PAGE.replace("PORT", str(stand.ports["http"])).encode()
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [stand.tools["chromium"], "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
                   f"--user-data-dir={stand.folder}/profile", f"http://127.0.0.1:{server.server_address[1]}/"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
            try:
                got = said.get(timeout=60)
            except queue.Empty:
                got = "nothing"
            finally:
                browser.terminate()
                server.shutdown()
    if got != "closed 1000 after 2":
        raise Failed(f"the page said {got!r}")


NEEDS = {
    "dig": ["dig", "dnsmasq"], "openssl": ["openssl"], "pion_dtls": ["peers"], "curl": ["curl"],
    "grpc": ["grpc-client", "grpc-server"], "h3_quic": ["peers"], "h3_aio": ["python-h3"], "quic": ["peers"],
    "chromium": ["chromium"], "alt_svc": ["peers", "curl"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gateway", default=str(ROOT / "target" / "debug" / "ferrum-edge"))
    parser.add_argument("--bench", default=str(ROOT / "target" / "debug" / "proto_bench"))
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    checks = {name[6:]: check for name, check in globals().items() if name.startswith("check_")}
    chosen = [name for name in checks if not args.names or any(name.startswith(wanted) for wanted in args.names)]
    stand, wrong = Stand(), 0
    try:
        stand.begin(args)
        for name in chosen:
            needs = next((needs for begins, needs in NEEDS.items() if name.startswith(begins)), [])
            missing = [tool for tool in needs if not stand.tools[tool]]
            if missing:
                print(f"-    {name}: not installed: {', '.join(missing)}")
                continue
            try:
                checks[name](stand)
                print(f"ok   {name}", flush=True)
            except (Failed, OSError, subprocess.TimeoutExpired) as error:
                wrong += 1
                print(f"FAIL {name}: {error}", flush=True)
    finally:
        stand.end()
    if wrong:
        print(f"{wrong} failed; the gateway's log: {stand.file('gateway.log')}")
    else:
        shutil.rmtree(stand.folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
