"""Chromium: a page and its requests over HTTP/1.1, HTTP/2 and HTTP/3, and a WebSocket over each of the first two. HTTP/3 also through a
proxy that forwards QUIC by server name, on a port where nothing else answers.

The browser is told which certificate to believe by the hash of its key, as QUIC takes no certificate that is merely ignored.
"""

import base64
import hashlib
import http.server
import queue
import subprocess
import threading
import urllib.parse

from stand import Failed, Score, Stand, free_ports, run, tool

PAGE = """<!doctype html><title>conformance</title><script>
const wanted = "VERSION", ws = "WEBSOCKET";
const say = text => fetch("/said?" + encodeURIComponent(text));
const talk = () => new Promise(done => {
  const socket = new WebSocket(ws), sent = ["text \\u00e9", "x".repeat(200000)];
  let next = 0;
  socket.onopen = () => socket.send(sent[0]);
  socket.onmessage = message => {
    if (message.data !== sent[next]) return done("wrong");
    if (++next < sent.length) socket.send(sent[next]); else socket.close(1000, "done");
  };
  socket.onclose = event => done(`closed ${event.code} after ${next}`);
});
(async () => {
  let version = "";
  for (let n = 0; n < 20 && version !== wanted; n++) {
    const path = `/echo?${n}`, body = "b".repeat(50000 + n);
    const got = await (await fetch(path, {method: "POST", body})).text();
    if (got !== body) return say(`${got.length} of ${body.length} bytes came back`);
    version = performance.getEntriesByName(new URL(path, location).href)[0].nextHopProtocol;
    await new Promise(done => setTimeout(done, 100));
  }
  say(`${version}, ${ws ? await talk() : "no socket"}`);
})();
</script>"""


class Page(http.server.BaseHTTPRequestHandler):
    """The page, an echo, and a place for what the page says."""

    protocol_version = "HTTP/1.1"

    def answer(self, body, kind="text/html"):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path.startswith("/said?"):
            self.server.said.put(urllib.parse.unquote(self.path.partition("?")[2]))
        version, ws = self.server.wanted
        self.answer(PAGE.replace("VERSION", version).replace("WEBSOCKET", ws).encode())

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["content-length"])), "text/plain")

    def log_message(self, *_):
        pass


def check(stand, page, url, version, ws, options):
    page.wanted = (version, ws)
    while not page.said.empty():
        page.said.get()
    command = [tool("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--remote-debugging-port=0",
               f"--user-data-dir={stand.folder.file('profile-' + url.split(':', 2)[2].strip('/') + version.replace('/', '-'))}", *options, url]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
        try:
            got = page.said.get(timeout=60)
        except queue.Empty:
            got = "nothing"
        finally:
            browser.terminate()
    wanted = f"{version}, {'closed 1000 after 2' if ws else 'no socket'}"
    if got != wanted:
        raise Failed(f"the page said {got!r}, not {wanted!r}")


def suites(args):
    score = Score("Chromium")
    http1, https, passed, nowhere = free_ports(4)
    tool("chromium")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as page, Stand(args) as stand:
        page.said, page.wanted = queue.Queue(), ("", "")
        threading.Thread(target=page.serve_forever, daemon=True).start()
        stand.folder.authority()
        pair = stand.folder.certificate()
        key = run(["openssl", "x509", "-in", pair["cert_path"], "-pubkey", "-noout"])
        der = base64.b64decode("".join(line for line in key.splitlines() if not line.startswith("-")))
        believed = "--ignore-certificate-errors-spki-list=" + base64.b64encode(hashlib.sha256(der).digest()).decode()
        echo = stand.backend()["http"]
        proxy = {"backend_scheme": "http", "backend_host": "127.0.0.1", "strip_listen_path": False}
        quic = {"listen_port": passed, "backend_scheme": "udp", "passthrough": True, "backend_host": "127.0.0.1"}
        stand.gateway({
            "gateway": {"http": f"127.0.0.1:{http1}", "https": f"127.0.0.1:{https}", "http3": True, "admin": "off", "tls": {"certificates": [pair]}},
            "proxies": [{"id": "page", "listen_path": "/", "backend_port": page.server_port, **proxy},
                        {"id": "ws", "listen_path": "/ws", "backend_port": echo, **proxy},
                        {"id": "by-name", "hosts": ["passed.test"], "backend_port": https, **quic},
                        {"id": "others", "hosts": ["*.test"], "backend_port": nowhere, **quic}]}, http1)
        score.check("HTTP/1.1 and a WebSocket", check, stand, page, f"http://localhost:{http1}/", "http/1.1", f"ws://localhost:{http1}/ws", [])
        score.check("HTTP/2 and a WebSocket", check, stand, page, f"https://localhost:{https}/", "h2", f"wss://localhost:{https}/ws",
                    [believed, "--disable-quic"])
        score.check("HTTP/3", check, stand, page, f"https://127.0.0.1:{https}/", "h3", "",
                    [believed, f"--origin-to-force-quic-on=127.0.0.1:{https}"])
        score.check("HTTP/3 by server name", check, stand, page, f"https://passed.test:{passed}/", "h3", "",
                    [believed, "--host-resolver-rules=MAP *.test 127.0.0.1", f"--origin-to-force-quic-on=passed.test:{passed}"])
    return [score]
