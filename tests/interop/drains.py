#!/usr/bin/env python3
"""Restarts the gateway under load, and counts the requests that are lost.

Usage: tests/interop/drains.py [--gateway PROGRAM] [--bench PROGRAM] [--restarts N] [NAME...]
HTTP/1.1 and HTTP/2 (plain and over TLS): the next gateway listens on the same port before SIGTERM ends the one before.
HTTP/3: the next one starts when the one before has ended, because both would share the packets of one UDP port.
Every connection keeps its requests coming all the while. Exits 1 when a request is lost. Needs openssl.
"""

import argparse
import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAUSE = 0.4  # seconds between two restarts


def free_port():
    """A port nobody uses, for TCP and UDP."""
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            tcp.bind(("127.0.0.1", 0))
            try:
                udp.bind(tcp.getsockname())
                return tcp.getsockname()[1]
            except OSError:
                continue


class Stand:
    """Where the gateways of one run listen, and what is behind them."""

    def __init__(self, args):
        self.args, self.folder = args, pathlib.Path(tempfile.mkdtemp(prefix="drains-"))
        self.http, self.https = free_port(), free_port()
        cert, key = self.folder / "cert.pem", self.folder / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                        "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
        self.backend = subprocess.Popen([args.bench, "backend", "--threads", "1"], stdout=subprocess.PIPE, text=True)
        echo = json.loads(self.backend.stdout.readline())["http"].rsplit(":", 1)[1]
        head = {"http": f"127.0.0.1:{self.http}", "https": f"127.0.0.1:{self.https}", "http3": True, "admin": "off", "workers": 2,
                "share_ports": True,
                "tls": {"certificates": [{"cert_path": str(cert), "key_path": str(key)}]}}
        proxy = {"id": "p", "listen_path": "/", "backend_scheme": "http", "backend_host": "127.0.0.1", "backend_port": int(echo)}
        (self.folder / "spec.yaml").write_text(f"gateway: {json.dumps(head)}\nproxies:\n  - {json.dumps(proxy)}\n")
        self.log = open(self.folder / "log", "w")

    def gateway(self):
        """A gateway that listens."""
        process = subprocess.Popen([self.args.gateway, "run", "-v", "--spec", str(self.folder / "spec.yaml")],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in process.stderr:
            self.log.write(line)
            if '"message":"serving"' in line:
                # Its log goes on into a pipe that is never read; the gateway has to bear that.
                return process
        sys.exit(f"the gateway does not start; see {self.folder / 'log'}")

    def restarts(self, overlap):
        """Restarts the gateway as often as asked."""
        current = self.first
        for _ in range(self.args.restarts):
            time.sleep(PAUSE)
            after = self.gateway() if overlap else None
            current.send_signal(signal.SIGTERM)
            current.wait(60)
            current = after or self.gateway()
        return current

    def run(self, name, url, options, overlap):
        self.first = self.gateway()
        seconds = int(self.args.restarts * (PAUSE + 1.5)) + 4
        result = self.folder / f"{name}.json"
        bench = subprocess.Popen([self.args.bench, "run", url, "--method", "POST", "-c", "40", "-d", f"{seconds}s", "-w", "1s", "-t", "1", "-q",
                                  "--json", str(result), *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1)
        begun = time.monotonic()
        last = self.restarts(overlap)
        took = time.monotonic() - begun
        bench.wait(seconds + 60)
        last.terminate()
        last.wait(60)
        return faults(json.loads(result.read_text())), took < seconds

    def end(self):
        self.backend.terminate()


def faults(report):
    """Requests that were answered, and faults by kind."""
    found, answered = {}, 0

    def walk(value):
        nonlocal answered
        if isinstance(value, dict):
            for key, inner in value.items():
                if key == "faults" and isinstance(inner, dict):
                    for kind, count in inner.items():
                        found[kind] = found.get(kind, 0) + (count[0] if isinstance(count, list) else count)
                elif key == "completed" and isinstance(inner, int):
                    answered += inner
                else:
                    walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(report)
    return answered, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateway", default=str(ROOT / "target/release/ferrum-edge"))
    parser.add_argument("--bench", default=str(ROOT / "target/release/proto_bench"))
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("name", nargs="*")
    args = parser.parse_args()
    stand, lost = Stand(args), False
    runs = [
        ("http1", f"http://127.0.0.1:{stand.http}/", [], True),
        ("http1-tls", f"https://127.0.0.1:{stand.https}/", [], True),
        ("h2c", f"h2c://127.0.0.1:{stand.http}/", ["-m", "4"], True),
        ("h2", f"h2://127.0.0.1:{stand.https}/", ["-m", "4"], True),
        ("h3", f"h3://127.0.0.1:{stand.https}/", ["-m", "4"], False),
    ]
    for name, url, options, overlap in runs:
        if args.name and not any(name.startswith(wanted) for wanted in args.name):
            continue
        (answered, found), covered = stand.run(name, url, options, overlap)
        lost |= bool(found) or not covered or not answered
        print(f"{name:10} {answered:9} answered, {sum(found.values()):5} lost {found or ''}{'' if covered else ' (load ended early)'}", flush=True)
    stand.end()
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
