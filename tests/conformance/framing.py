"""An HTTP/1 framing corpus: requests and responses that two readers could take differently, through the gateway.

Each request has the statuses that are right for it. What reaches the target is read by readers that forgive everything
(`readers.py`): they have to agree about it, and find no more requests than were sent.
"""

import re
import socket
import socketserver
import threading
import time

import readers
from stand import Failed, Score, Server, Stand, free_ports

H = b"Host: a.test\r\n"
OK, BAD = {200}, {400}
CHUNKED = b"POST /t HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n"


def chunked(line, rest=b"hello\r\n0\r\n\r\n"):
    return CHUNKED + line + rest


def coding(value, body=b"5\r\nhello\r\n0\r\n\r\n", more=b""):
    return b"POST /t HTTP/1.1\r\n" + H + more + b"Transfer-Encoding: " + value + b"\r\n\r\n" + body


def length(value, body=b"hello", more=b""):
    return b"POST /t HTTP/1.1\r\n" + H + more + b"Content-Length: " + value + b"\r\n\r\n" + body


def field(line, method=b"GET"):
    return method + b" /t HTTP/1.1\r\n" + H + line + b"\r\n\r\n"


def first(line, host=H):
    return line + b"\r\n" + host + b"\r\n"


REQUESTS = [
    ("plain", first(b"GET /t HTTP/1.1"), OK),
    ("chunked", chunked(b"5\r\n"), OK),
    ("chunk size in capitals and with zeros", chunked(b"0005\r\n"), OK),
    ("chunk extension", chunked(b"5;a=b\r\n"), OK),
    ("chunk extension, quoted", chunked(b'5;a="b;c"\r\n'), OK),
    ("chunk extension without value", chunked(b"5;a\r\n"), OK),
    ("chunk extension with spaces where RFC 9112 lets them", chunked(b"5 ; a = b\r\n"), OK | BAD),
    ("trailers", CHUNKED + b"5\r\nhello\r\n0\r\nX-A: b\r\n\r\n", OK),
    *[(f"chunk size {line!r}", chunked(line + b"\r\n"), BAD) for line in [
        b"5;", b"5 ", b" 5", b"\t5", b"+5", b"-5", b"0x5", b"5h", b"", b";a", b"5;bad[=x", b"5;=x", b"5;a=", b"5;a\x00",
        b"5;a=\x7f", b'5;a="b', b"5,5", b"5 5", b"5.0", b"\xef\xbc\x95", b"fffffffffffffffff", b"5\r", b"5;a\rb", b"5;;a", b"5;a b"]],
    ("chunk size ends with LF", chunked(b"5\n"), BAD),
    ("chunk extension ends with LF", chunked(b"5;a=b\n"), BAD),
    ("chunk data ends with LF", chunked(b"5\r\n", b"hello\n0\r\n\r\n"), BAD),
    ("chunk data ends with CR", chunked(b"5\r\n", b"hello\r0\r\n\r\n"), BAD),
    ("chunk data too long", chunked(b"5\r\n", b"hello!\r\n0\r\n\r\n"), BAD),
    ("last chunk ends with LF", chunked(b"5\r\n", b"hello\r\n0\n\n"), BAD),
    ("end of trailers with LF", chunked(b"5\r\n", b"hello\r\n0\r\n\n"), BAD),
    ("trailer line with LF", chunked(b"5\r\n", b"hello\r\n0\r\nX-A: b\n\r\n"), BAD),
    ("trailer without colon", chunked(b"5\r\n", b"hello\r\n0\r\nX-A\r\n\r\n"), BAD),
    ("trailer folded", chunked(b"5\r\n", b"hello\r\n0\r\nX-A: b\r\n c\r\n\r\n"), BAD),
    ("trailer with a name of framing", chunked(b"5\r\n", b"hello\r\n0\r\nContent-Length: 9\r\n\r\n"), OK | BAD),
    *[(f"transfer coding {value!r}", coding(value), wanted) for value, wanted in [
        (b"chunked", OK), (b"Chunked", OK), (b"CHUNKED", OK), (b"gzip, chunked", {400, 501}), (b"chunked, gzip", BAD), (b"identity", BAD),
        (b"", BAD), (b"chunked, chunked", BAD), (b"chunked,", OK | BAD), (b",chunked", OK | BAD), (b"x", {400, 501}), (b"chunked;a=b", {400, 501}),
        (b"\x0bchunked", BAD), (b"chunked\x00", BAD), (b'"chunked"', {400, 501}), (b"chunked identity", {400, 501}), (b"identity, chunked", {400, 501}),
        (b"\r\n chunked", BAD), (b"xchunked", {400, 501}), (b"chunke", {400, 501})]],
    ("transfer codings in two lines", coding(b"chunked", more=b"Transfer-Encoding: gzip\r\n"), {400, 501}),
    ("chunked in two lines", coding(b"chunked", more=b"Transfer-Encoding: chunked\r\n"), BAD),
    ("coding and length", coding(b"chunked", more=b"Content-Length: 5\r\n"), BAD),
    ("coding and length 0", coding(b"chunked", more=b"Content-Length: 0\r\n"), BAD),
    ("coding and length behind it", length(b"5", more=b"Transfer-Encoding: chunked\r\n"), BAD),
    ("coding in HTTP/1.0", coding(b"chunked").replace(b"HTTP/1.1", b"HTTP/1.0"), BAD),
    ("coding with a space before the colon", field(b"Transfer-Encoding : chunked"), BAD),
    ("coding with an underscore", field(b"Transfer_Encoding: chunked"), OK | BAD),
    ("length", length(b"5"), OK),
    *[(f"length {value!r}", length(value), wanted) for value, wanted in [
        (b"+5", BAD), (b"-5", BAD), (b"0x5", BAD), (b"5 5", BAD), (b"5,5", OK | BAD), (b"5, 6", BAD), (b"", BAD), (b"5;", BAD), (b"5.0", BAD), (b"\xd9\xa5", BAD),
        (b"05", OK | BAD), (b"99999999999999999999", {400, 413}), (b"5\x0b", BAD), (b"5\x00", BAD), (b"five", BAD), (b"5\r\n 6", BAD)]],
    ("two lengths alike", length(b"5", more=b"Content-Length: 5\r\n"), OK | BAD),
    ("two lengths", length(b"5", more=b"Content-Length: 6\r\n"), BAD),
    ("length with a space before the colon", b"POST /t HTTP/1.1\r\n" + H + b"Content-Length : 5\r\n\r\nhello", BAD),
    ("length with an underscore", b"POST /t HTTP/1.1\r\n" + H + b"Content_Length: 5\r\n\r\n", OK | BAD),
    *[(f"field {line!r}", field(line), wanted) for line, wanted in [
        (b"X-A: b", OK), (b"X-A:b", OK), (b"X-A:", OK), (b"X-A: \xe9", OK), (b"X-A : b", BAD), (b" X-A: b", BAD), (b"X-A", BAD), (b": b", BAD), (b"X A: b", BAD), (b"X-A: b\x00", BAD),
        (b"X-A: b\rc", BAD), (b"X-A: b\nc", BAD), (b"X-A: b\nContent-Length: 5", BAD), (b"X-A: b\r\n c", BAD), (b"X-A: b\r\n\tc", BAD), (b"X\x00A: b", BAD), (b"X\x7fA: b", BAD),
        (b"X\xe9: b", BAD), (b"X-A: \x01", BAD), (b"X-A: b\r", BAD), (b"X(A): b", BAD), (b"\x0bX-A: b", BAD), (b"X-A: b\x0b", BAD), (b"X-A: b\x7f", BAD)]],
    *[(f"first line {line!r}", first(line), wanted) for line, wanted in [
        (b"GET  /t HTTP/1.1", BAD), (b"GET /t  HTTP/1.1", BAD), (b"GET /t HTTP/1.1 ", BAD), (b" GET /t HTTP/1.1", BAD), (b"GET\t/t HTTP/1.1", BAD), (b"GET /t\tHTTP/1.1", BAD), (b"GET /t HTTP/1.1\r", BAD),
        (b"GET /t http/1.1", BAD), (b"GET /t HTTP/1.10", BAD), (b"GET /t HTTP/01.1", BAD), (b"GET /t HTTP/2.0", {400, 505}), (b"GET /t HTTP/1.2", {200, 400, 505}), (b"GET /t HTTP/0.9", {400, 505}), (b"GET /t HTTP/1", BAD),
        (b"GET /t", BAD), (b"GET", BAD), (b"G\x00T /t HTTP/1.1", BAD), (b"G@T /t HTTP/1.1", BAD), (b"GET /\x00t HTTP/1.1", BAD), (b"GET /t\x7f HTTP/1.1", BAD), (b"GET /t\xe9 HTTP/1.1", OK | BAD),
        (b"GET t HTTP/1.1", BAD), (b"GET * HTTP/1.1", BAD), (b"GET /t#f HTTP/1.1", OK | BAD), (b"GET ftp://a.test/t HTTP/1.1", BAD), (b"GET //a.test HTTP/1.1", OK | BAD),
        (b"GET http://a.test/t HTTP/1.1", OK), (b"GET http://a.test:99999/t HTTP/1.1", BAD), (b"GET http:///t HTTP/1.1", BAD), (b"GET http://u:p@a.test/t HTTP/1.1", BAD), (b"GET HTTP://a.test/t HTTP/1.1", OK),
        (b"GET http://a.test:/t HTTP/1.1", OK | BAD), (b"GET http://a.test:0x50/t HTTP/1.1", BAD), (b"GET javascript:alert(1) HTTP/1.1", BAD), (b"OPTIONS * HTTP/1.1", OK)]],
    ("no Host", first(b"GET /t HTTP/1.1", b""), BAD),
    ("no Host, absolute form", first(b"GET http://a.test/t HTTP/1.1", b""), BAD),
    ("no Host in HTTP/1.0", first(b"GET /t HTTP/1.0", b""), OK | {404}),
    ("two Hosts", first(b"GET /t HTTP/1.1", H + H), BAD),
    ("a wrong Host, absolute form", first(b"GET http://a.test/t HTTP/1.1", b"Host: a b\r\n"), BAD),
    *[(f"Host {value!r}", first(b"GET /t HTTP/1.1", b"Host: " + value + b"\r\n"), BAD) for value in [
        b"", b"a b", b"a.test:99999", b"a.test:x", b"a/b", b"a,b", b"a.test\x00", b"u@a.test", b"[::1", b"a.test:-1", b"a\xe9", b"a?b", b"a#b", b"a\\b"]],
    ("all lines end with LF", b"GET /t HTTP/1.1\nHost: a.test\n\n", BAD),
    ("the first line ends with LF", b"GET /t HTTP/1.1\n" + H + b"\r\n", BAD),
    ("the head ends with LF", b"GET /t HTTP/1.1\r\n" + H + b"\n", BAD),
    ("lines end with CR", b"GET /t HTTP/1.1\rHost: a.test\r\r", BAD | {"waits"}),
    ("empty lines before a request", b"\r\n\r\n" + first(b"GET /t HTTP/1.1"), OK),
    ("expects 100-continue", length(b"5", more=b"Expect: 100-continue\r\n"), OK),
    ("expects something else", length(b"5", more=b"Expect: 200-ok\r\n"), {417}),
    ("CONNECT", first(b"CONNECT a.test:80 HTTP/1.1"), {400, 404, 405, 501}),
    ("TRACE with a body", length(b"5").replace(b"POST", b"TRACE"), {400, 405}),
    ("names with hop-by-hop meaning", field(b"Connection: close, Content-Length\r\nContent-Length: 0"), OK | BAD),
    ("Connection names the Host", field(b"Connection: close, Host"), OK | BAD),
    ("an upgrade to h2c", field(b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk"), OK | BAD),
]

R = b"HTTP/1.1 200 OK\r\n"
RESPONSES = [
    ("plain", R + b"Content-Length: 5\r\n\r\nhello", OK, b"hello"),
    ("chunked", R + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", OK, b"hello"),
    ("until the end", R + b"\r\nhello", OK, b"hello"),
    ("two lengths", R + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", {502}, None),
    ("coding and length", R + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", {502}, None),
    ("coding not chunked at the end", R + b"Transfer-Encoding: chunked, gzip\r\n\r\n5\r\nhello\r\n0\r\n\r\n", {502}, None),
    *[(f"length {value!r}", R + b"Content-Length: " + value + b"\r\n\r\nhello", {502}, None) for value in [b"+5", b"-1", b"5x", b"", b"0x5", b"5, 6"]],
    *[(f"chunk size {line!r}", R + b"Transfer-Encoding: chunked\r\n\r\n" + line + b"\r\nhello\r\n0\r\n\r\n", {502, "cut"}, None)
      for line in [b"5;", b"5 ", b"0x5", b"5;bad[=x", b"5;a\x00", b"+5", b""]],
    ("chunk lines with LF", R + b"Transfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n", {502, "cut"}, None),
    ("trailers end with LF", R + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\n", {502, "cut"}, None),
    ("field with a space before the colon", R + b"X-A : b\r\nContent-Length: 0\r\n\r\n", {502}, None),
    ("field with NUL", R + b"X-A: b\x00\r\nContent-Length: 0\r\n\r\n", {502}, None),
    ("field with a bare CR", R + b"X-A: b\rc\r\nContent-Length: 0\r\n\r\n", {502}, None),
    ("folded field", R + b"X-A: b\r\n c\r\nContent-Length: 0\r\n\r\n", {200, 502}, None),
    ("first line HTTP/2.0", b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", {502}, None),
    ("status 99", b"HTTP/1.1 99 Low\r\nContent-Length: 0\r\n\r\n", {502}, None),
    ("status 2000", b"HTTP/1.1 2000 High\r\nContent-Length: 0\r\n\r\n", {502}, None),
    ("101 that nobody asked for", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", {502}, None),
    ("two responses", R + b"Content-Length: 0\r\n\r\n" + R + b"Content-Length: 4\r\n\r\nevil", OK, b""),
    ("204 with a body", b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", {204, 502}, None),
    ("cut off", R + b"Content-Length: 9\r\n\r\nhello", {502, "cut"}, None),
    ("cut off in chunks", R + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel", {502, "cut"}, None),
    ("not HTTP", b"hello\r\n\r\n", {502}, None),
]


class Forgiving(socketserver.BaseRequestHandler):
    """Answers whatever could be a request, and keeps what came."""

    def handle(self):
        data, answered = b"", 0
        most = readers.READERS[-1]
        with self.server.lock:
            self.server.connections.append(kept := bytearray())
        while more := self.request.recv(65536):
            data += more
            kept += more
            found = [each for each in most.requests(data)[0] if each != "unfinished"]
            for _ in found[answered:]:
                self.request.sendall(R + b"Content-Length: 0\r\n\r\n")
            answered = len(found)


class Scripted(socketserver.BaseRequestHandler):
    """Answers a request with what its path names."""

    def handle(self):
        data = b""
        while b"\r\n\r\n" not in data:
            more = self.request.recv(65536)
            if not more:
                return
            data += more
        self.request.sendall(RESPONSES[int(data.split(b" ")[1].rsplit(b"/", 1)[1])][1])


def ask(port, raw, end=b""):
    """All that comes back for some bytes, until the connection is closed or silent."""
    with socket.create_connection(("127.0.0.1", port), 5) as client:
        client.sendall(raw)
        got, client_timeout = b"", 0.4
        client.settimeout(5)
        try:
            while more := client.recv(65536):
                got += more
                client.settimeout(client_timeout)
        except TimeoutError:
            return got, False
        except ConnectionResetError:
            pass
        return got, True


def statuses(got):
    """The statuses of final responses in what came back."""
    found = [int(part[:3]) for part in got.split(b"HTTP/1.1 ")[1:] if part[:3].isdigit()]
    return [each for each in found if each >= 200]


def check_request(port, origin, raw, wanted):
    with origin.lock:
        origin.connections.clear()
    got, closed = ask(port, raw)
    told = statuses(got) or ([] if closed or got else ["waits"])
    if told == ["waits"] and "waits" in wanted:
        return
    if len(told) != 1 or told[0] not in wanted:
        raise Failed(f"status {told or got[:60]}, not {wanted}")
    if told[0] >= 400 and told[0] not in (404, 405, 417) and not closed:
        raise Failed("refused, but the connection stays open")
    if told[0] >= 400 and closed and b"connection: close" not in got.lower():
        raise Failed("closed without Connection: close")
    time.sleep(0.005)
    with origin.lock:
        reached = [bytes(each) for each in origin.connections]
    for data in reached:
        if (told := readers.disagreement(data)) is not None and 200 in wanted:
            raise Failed(f"targets read it differently: {told}; it got {data!r}")
    count = sum(len([each for each in readers.READERS[-1].requests(data)[0] if each != "unfinished"]) for data in reached)
    if count > 1:
        raise Failed(f"{count} requests reached the target: {reached}")


def check_response(port, number, wanted, body):
    got, _ = ask(port, f"GET /r/{number} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n".encode())
    told = statuses(got)
    head, _, rest = got.partition(b"\r\n\r\n")
    if b"evil" in got:
        raise Failed("the client got a second response")
    if told[:1] == [200] and "cut" in wanted:
        declared = re.search(rb"content-length: (\d+)", head.lower())
        whole = rest.endswith(b"0\r\n\r\n") if declared is None else len(rest) == int(declared.group(1))
        if whole:
            raise Failed(f"a broken body looks whole: {got!r}")
        return
    if len(told) != 1 or told[0] not in wanted:
        raise Failed(f"status {told or got[:80]}, not {wanted}")
    if body is not None and body not in rest:
        raise Failed(f"{rest!r} instead of {body!r}")


def suites(args):
    """The corpus in both directions."""
    http, = free_ports(1)
    with Server(Forgiving) as forgiving, Server(Scripted) as scripted, Stand(args) as stand:
        forgiving.lock, forgiving.connections = threading.Lock(), []
        for server in (forgiving, scripted):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        proxy = {"backend_scheme": "http", "backend_host": "127.0.0.1", "strip_listen_path": False}
        stand.gateway({
            "gateway": {"http": f"127.0.0.1:{http}", "admin": "off", "workers": 1},
            "proxies": [
                {"id": "t", "listen_path": "/", "backend_port": forgiving.port, **proxy},
                {"id": "r", "listen_path": "/r", "backend_port": scripted.port, **proxy},
            ]}, http)
        requests = Score("HTTP/1 framing, requests")
        for name, raw, wanted in REQUESTS:
            requests.check(name, check_request, http, forgiving, raw, wanted)
        responses = Score("HTTP/1 framing, responses")
        for number, (name, _, wanted, body) in enumerate(RESPONSES):
            responses.check(name, check_response, http, number, wanted, body)
        return [requests, responses]
