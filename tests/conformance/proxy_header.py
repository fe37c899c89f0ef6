"""PROXY protocol headers on http, https and stream ports: HAProxy's and curl's, good ones by hand, and broken ones."""

import http.server
import socket
import socketserver
import ssl
import struct
import threading
import time

from stand import Failed, Score, Server, Stand, free_ports, run, tool, wait_for

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def crc32c(data):
    table = 0x82F63B78
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (table if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def v2(command=0x21, family=0x11, addresses=None, extensions=b"", length=None):
    if addresses is None:
        addresses = socket.inet_aton("192.0.2.7") + socket.inet_aton("198.51.100.9") + struct.pack(">HH", 1234, 443)
    body = addresses + extensions
    return SIGNATURE + bytes([command, family]) + struct.pack(">H", len(body) if length is None else length) + body


def extension(kind, value):
    return bytes([kind]) + struct.pack(">H", len(value)) + value


def checksummed(wrong=False):
    head = v2(extensions=extension(3, b"\0\0\0\0"))
    crc = crc32c(head) ^ (1 if wrong else 0)
    return head[:-4] + struct.pack(">I", crc)


SIX = socket.inet_pton(socket.AF_INET6, "2001:db8::7") + socket.inet_pton(socket.AF_INET6, "2001:db8::9") + struct.pack(">HH", 1, 2)
CLIENT = "192.0.2.7"
# What is sent and who the client is then; None where the connection is to be closed.
HEADERS = [
    ("v1 TCP4", b"PROXY TCP4 192.0.2.7 198.51.100.9 1234 443\r\n", CLIENT),
    ("v1 TCP6", b"PROXY TCP6 2001:db8::7 2001:db8::9 1 2\r\n", "2001:db8::7"),
    ("v1 UNKNOWN", b"PROXY UNKNOWN\r\n", "127.0.0.1"),
    ("v1 UNKNOWN with more", b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", "127.0.0.1"),
    ("v2 TCP4", v2(), CLIENT),
    ("v2 TCP6", v2(family=0x21, addresses=SIX), "2001:db8::7"),
    ("v2 LOCAL", v2(command=0x20, family=0, addresses=b""), "127.0.0.1"),
    ("v2 with extensions", v2(extensions=extension(2, b"a.test") + extension(4, b"\0" * 20)), CLIENT),
    ("v2 with a checksum", checksummed(), CLIENT),
    ("v2 of 60 KB", v2(extensions=extension(0xE0, b"x" * 60_000)), CLIENT),
    ("v2 of a Unix socket", v2(family=0x31, addresses=b"\0" * 216), "127.0.0.1"),
    ("no header", b"", None),
    ("v1 with one space too many", b"PROXY  TCP4 192.0.2.7 198.51.100.9 1234 443\r\n", None),
    ("v1 with an address of the other family", b"PROXY TCP4 2001:db8::7 2001:db8::9 1 2\r\n", None),
    ("v1 with a port beyond 65535", b"PROXY TCP4 192.0.2.7 198.51.100.9 70000 443\r\n", None),
    ("v1 without an end", b"PROXY TCP4 192.0.2.7 198.51.100.9 1234 443" + b" " * 100, None),
    ("v2 with a wrong checksum", checksummed(wrong=True), None),
    ("v2 with an extension beyond its end", v2(extensions=b"\xe0\xff\xff\x00"), None),
    ("v2 of version 3", v2(command=0x31), None),
    ("v2 too short for its addresses", v2(addresses=b"\0" * 4), None),
]


class Whoami(http.server.BaseHTTPRequestHandler):
    """Says what the gateway says of the client."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = (self.headers.get("x-forwarded-for") or "").encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Said(socketserver.BaseRequestHandler):
    """A target of a stream proxy that sends the header on: says who it names."""

    def handle(self):
        data = b""
        while b"\n" not in data[16:]:
            more = self.request.recv(65536)
            if not more:
                return
            data += more
        self.request.sendall(data.split(b"\r\n")[0].split(b" ")[2] + b"\n")


def read(connection):
    connection.settimeout(5)
    got = b""
    try:
        while more := connection.recv(65536):
            got += more
    except (ConnectionResetError, BrokenPipeError):
        pass
    except TimeoutError as error:
        raise Failed("the connection stays open") from error
    return got


def ask(port, header, encrypted, request):
    connection = socket.create_connection(("127.0.0.1", port), 5)
    with connection:
        try:
            connection.sendall(header)
            if encrypted:
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                connection = context.wrap_socket(connection, server_hostname="localhost")
            connection.sendall(request)
        except (ConnectionResetError, BrokenPipeError, ssl.SSLError):
            return b""
        return read(connection)


def check_http(port, header, wanted, encrypted):
    got = ask(port, header, encrypted, b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
    if wanted is None:
        if got:
            raise Failed(f"answered: {got[:60]!r}")
    elif got.rsplit(b"\r\n", 1)[-1].decode() != wanted:
        raise Failed(f"the client is {got[-80:]!r}, not {wanted}")


def check_stream(port, header, wanted):
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        try:
            connection.sendall(header)
            connection.sendall(b"hello\n")
            got = connection.recv(100) if wanted is not None else read(connection)
        except (ConnectionResetError, BrokenPipeError):
            got = b""
    if wanted is None:
        if got:
            raise Failed(f"answered: {got!r}")
    elif got.strip().decode() != wanted:
        raise Failed(f"the target was told {got!r}, not {wanted}")


def check_haproxy(stand, kind, ports, to):
    """HAProxy in front of the gateway, as people have it."""
    here, = free_ports(1)
    mode = "http" if to == "http" else "tcp"
    spec = stand.folder.write(f"haproxy-{kind}-{to}.cfg", f"""
defaults
    mode {mode}
    timeout connect 5s
    timeout client 5s
    timeout server 5s
listen l
    bind 127.0.0.1:{here}
    server s 127.0.0.1:{ports[to]} {kind}
""")
    stand.processes.start([tool("haproxy"), "-db", "-f", spec])
    wait_for(here)
    if to == "tcp":
        return check_stream(here, b"", "127.0.0.1")
    said = run([tool("curl"), "-sSk", "--max-time", "10", f"{to}://127.0.0.1:{here}/"])
    if said != "127.0.0.1":
        raise Failed(f"the client is {said!r}")


def check_curl(ports, to, more, wanted):
    said = run([tool("curl"), "-sSk", "--max-time", "10", *more, f"{to}://127.0.0.1:{ports[to]}/"])
    if said != wanted:
        raise Failed(f"the client is {said!r}, not {wanted!r}")


def suites(args):
    """Every header on every kind of port, then HAProxy and curl."""
    names = ["http", "https", "tcp"]
    ports = dict(zip(names, free_ports(3)))
    whoami = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Whoami)
    with Server(Said) as said, whoami, Stand(args) as stand:
        for server in (said, whoami):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        stand.folder.authority()
        pair = stand.folder.certificate()
        stand.gateway({
            "gateway": {"http": f"127.0.0.1:{ports['http']}", "https": f"127.0.0.1:{ports['https']}", "admin": "off", "workers": 1,
                        "stream_address": "127.0.0.1", "accept_proxy_protocol": True, "trusted_proxies": ["127.0.0.1"],
                        "tls": {"certificates": [pair]}},
            "proxies": [
                {"id": "web", "listen_path": "/", "backend_scheme": "http", "backend_host": "127.0.0.1", "backend_port": whoami.server_port},
                {"id": "tcp", "backend_scheme": "tcp", "backend_host": "127.0.0.1", "backend_port": said.port, "listen_port": ports["tcp"],
                 "accept_proxy_protocol": True, "send_proxy_protocol": 1},
            ]}, ports["http"])
        time.sleep(0.2)
        scores = [Score("PROXY protocol, http"), Score("PROXY protocol, https"), Score("PROXY protocol, stream")]
        for name, header, wanted in HEADERS:
            scores[0].check(name, check_http, ports["http"], header, wanted, False)
            scores[1].check(name, check_http, ports["https"], header, wanted, True)
            scores[2].check(name, check_stream, ports["tcp"], header, "127.0.0.1" if wanted == "127.0.0.1" else wanted)
        others = Score("PROXY protocol, HAProxy and curl")
        for to in names:
            for kind in ("send-proxy", "send-proxy-v2"):
                others.check(f"HAProxy {kind} to {to}", check_haproxy, stand, kind, ports, to)
        for to in ("http", "https"):
            others.check(f"curl --haproxy-protocol to {to}", check_curl, ports, to, ["--haproxy-protocol"], "127.0.0.1")
        return [*scores, others]
