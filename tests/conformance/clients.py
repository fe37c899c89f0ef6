"""Clients and servers of others through the gateway: dig, curl, OpenSSL, gRPC's interop clients, quic-go's passthrough."""

import os
import shutil
import subprocess
import time

import stand as shared
from stand import TOOLS, Failed, Score, free_ports, run, wait_for

GRPC = [
    "empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream",
    "timeout_on_sleeping_server", "cancel_after_begin", "cancel_after_first_response", "status_code_and_message",
    "special_status_message", "unimplemented_method", "unimplemented_service", "custom_metadata",
]
PORTS = ["http", "https", "dns", "tcp_tls", "quic", "quic_a", "quic_b", "grpc_h2c", "grpc_tls", "named", "both"]


class Stand(shared.Stand):
    """The gateway, what stands behind it, and where they are."""

    def __init__(self, args):
        super().__init__(args)
        self.tools = tools()
        self.ports = dict(zip(PORTS, free_ports(len(PORTS))))

    def begin(self):
        self.certificate()
        self.echo = self.backend()
        self.servers()
        self.gateway(self.spec(), self.ports["http"])

    def start(self, command):
        self.processes.start(command)

    def certificate(self):
        self.folder.authority()
        self.folder.certificate(names=("localhost", "*.test.google.fr", "*.interop.test"))

    def file(self, name):
        return self.folder.file(name)

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
                        f"--tls_cert_file={self.file('cert.pem')}", f"--tls_key_file={self.file('cert-key.pem')}"])
        if self.tools["peers"]:
            for name in "ab":
                where = f"127.0.0.1:{ports['quic_' + name]}"
                self.start([self.tools["peers"], "h3-server", where, self.file("cert.pem"), self.file("cert-key.pem"), name])
            where = f"127.0.0.1:{ports['both']}"
            self.start([self.tools["peers"], "both", where, self.file("cert.pem"), self.file("cert-key.pem")])

    def spec(self):
        ports, echo = self.ports, self.echo

        def proxy(name, scheme, port, **fields):
            return {"id": name, "backend_scheme": scheme, "backend_host": "127.0.0.1", "backend_port": port, **fields}

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
                 backend_tls_ca_path=self.file("ca.pem"), backend_tls_server_name="localhost"),
            web("both", ["both.interop.test"], "https", ports["both"], backend_tls_server_name="localhost",
                 backend_tls_ca_path=self.file("ca.pem")),
            proxy("dns-udp", "udp", ports["named"], listen_port=ports["dns"]),
            proxy("dns-tcp", "tcp", ports["named"], listen_port=ports["dns"]),
            proxy("tcp-tls", "tcp", echo["tcp"], listen_port=ports["tcp_tls"], frontend_tls=True),
        ]
        for name in "ab":
            proxies.append(proxy(f"quic-{name}", "udp", ports["quic_" + name], listen_port=ports["quic"],
                                 passthrough=True, hosts=[f"{name}.interop.test"]))
        return {"gateway": {
            "http": f"127.0.0.1:{ports['http']}", "https": f"127.0.0.1:{ports['https']}", "http3": True, "admin": "off",
            "stream_address": "127.0.0.1",
            "tls": {"certificates": [{"cert_path": self.file("cert.pem"), "key_path": self.file("cert-key.pem")}], "early_data": True},
        }, "proxies": proxies}


def tools():
    """Programs by what they are for; None for those that are not installed."""
    folder = TOOLS
    beside = {"grpc-client": "client", "grpc-server": "server", "peers": "interop"}
    found = {name: shutil.which(name) for name in ["dig", "dnsmasq", "curl", "openssl"]}
    found["dnsmasq"] = found["dnsmasq"] or shutil.which("dnsmasq", path="/usr/sbin")
    found |= {name: shutil.which(str(folder / program)) for name, program in beside.items()}
    return found


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


def curl(stand, url, *options):
    body = "c" * 100_000
    stand.folder.write("body", body)
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


def check_h3_quic_go_early(stand):
    run([stand.tools["peers"], "h3-early", f"https://127.0.0.1:{stand.ports['https']}/", "both.interop.test"])


def check_openssl_early(stand):
    """The same over TCP; openssl says itself whether what it sent early was accepted."""
    request = "GET / HTTP/1.1\r\nhost: both.interop.test\r\nconnection: close\r\n\r\n"
    stand.folder.write("request", request)
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


def check_quic_passthrough(stand):
    for name in "ab":
        url = f"https://127.0.0.1:{stand.ports['quic']}/"
        run([stand.tools["peers"], "h3", url, f"{name}.interop.test", name])


def check_quic_passthrough_moving(stand):
    run([stand.tools["peers"], "moving", f"127.0.0.1:{stand.ports['quic']}", "b.interop.test", "b"])


NEEDS = {
    "dig": ["dig", "dnsmasq"], "openssl": ["openssl"], "openssl_early": ["openssl", "peers"], "curl": ["curl"],
    "grpc": ["grpc-client", "grpc-server"], "h3_quic": ["peers"], "quic": ["peers"], "alt_svc": ["peers", "curl"],
}


def suites(args):
    """Each check; those whose programs are not installed are left out."""
    score = Score("clients of others")
    with Stand(args) as stand:
        stand.begin()
        for name, check in [(name[6:], check) for name, check in globals().items() if name.startswith("check_")]:
            needs = max((begins for begins in NEEDS if name.startswith(begins)), key=len)
            missing = [tool for tool in NEEDS[needs] if not stand.tools[tool]]
            if missing:
                print(f"     {name} is left out: {', '.join(missing)} is not installed")
            else:
                score.check(name, check, stand)
    return [score]
