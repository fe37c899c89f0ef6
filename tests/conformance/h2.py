"""h2spec over TLS and with prior knowledge, against a target that reads requests to their end."""

import re
import socketserver
import subprocess
import threading

from stand import Score, Server, Stand, free_ports, tool

KNOWN = [("prior knowledge: 3.5. HTTP/2 Connection Preface: 2",
          "the plain port speaks HTTP/1.1 too: what does not begin with the preface is a malformed HTTP/1.1 request, answered with 400")]


class Origin(socketserver.StreamRequestHandler):
    """Reads requests to their end before it answers."""

    def handle(self):
        while True:
            head = []
            while (line := self.rfile.readline()) not in (b"\r\n", b""):
                head.append(line.lower())
            if not head:
                return
            for line in head:
                if line.startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
                    if len(self.rfile.read(length)) < length:
                        return
                elif line.startswith(b"transfer-encoding:"):
                    while size := int(self.rfile.readline() or b"0", 16):
                        self.rfile.read(size + 2)
                    self.rfile.readline()
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 64\r\n\r\n" + b"x" * 64)


def judged(title, port, more):
    """Runs h2spec; its failures by section and number."""
    score = Score(f"h2spec, {title}")
    done = subprocess.run([tool("h2spec"), "-h", "127.0.0.1", "-p", str(port), "-o", "3", *more], capture_output=True, text=True,
                          timeout=300, check=False)
    section, failures = "", {}
    for line in done.stdout.partition("Failures:")[2].splitlines():
        text = line.strip()
        if found := re.match(r"× (\d+): (.*)", text):
            failures[f"{title}: {section}: {found[1]}: {found[2]}"] = "failed"
        elif found := re.match(r"(\d+(\.\d+)*\. .*)", text):
            section = found[1]
    counts = re.search(r"(\d+) tests, (\d+) passed", done.stdout)
    total, passed = (int(counts[1]), int(counts[2])) if counts else (0, 0)
    for case, why in failures.items():
        score.add(case, why, KNOWN)
    score.passed, score.total = passed, total
    if not total or passed + len(failures) < total:
        score.add("the whole run", (done.stdout + done.stderr)[-300:])
    return score


def suites(args):
    http, https = free_ports(2)
    with Server(Origin) as origin, Stand(args) as stand:
        threading.Thread(target=origin.serve_forever, daemon=True).start()
        stand.folder.authority()
        pair = stand.folder.certificate()
        stand.gateway({
            "gateway": {"http": f"127.0.0.1:{http}", "https": f"127.0.0.1:{https}", "admin": "off", "tls": {"certificates": [pair]}},
            "proxies": [{"id": "all", "listen_path": "/", "backend_scheme": "http", "backend_host": "127.0.0.1", "backend_port": origin.port}],
        }, https)
        return [judged("TLS", https, ["-t", "-k"]), judged("prior knowledge", http, [])]
