#!/usr/bin/env python3
"""What plugins, tracing and logs add to the processor time of one proxied HTTP/1.1 request.

Usage: tests/interop/costs.py [--gateway PROGRAM] [--bench PROGRAM] [--connections N] [--rounds N] [--seconds S] [ROW...]
Gateways with one worker each on core 0 have a proxy for each row; backend and generator (proto_bench, which checks every answer)
share core 1. The rows are measured in slices, in turns, all with the same request headers, so that a machine that changes
changes for all of them. Prints the CPU microseconds of a request, the cost beside the row without plugins (the median of the
rounds' ratios, with their quartiles), and the bound. Exits 1 when a median is above its bound.
"""

import argparse
import base64
import hashlib
import hmac
import http.server
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SECRET = "0123456789abcdef0123456789abcdef"
ORIGIN = "https://shop.example"
KEY = "key-of-the-bench"
SCRIPT = 'fn on_request(request) { let n = 0; for i in 0..9 { n += i; } request.set_header("x-tier", "gold"); }'
TRACES = {"sampler": "traceidratio", "exporter": {"endpoint": "{collector}"}}

# Row: plugins with their settings, settings of the gateway, and by how much a request may cost more, in percent.
ROWS = {
    "none": ([], {}, None),
    "key_auth + access_control": ([("key_auth", {}), ("access_control", {"allowed_consumers": ["bench"]})], {}, 3),
    "rate_limiting": ([("rate_limiting", {"limits": [{"rate": 1_000_000}]})], {}, 3),
    "rate_limiting, no headers": ([("rate_limiting", {"limits": [{"rate": 1_000_000}], "headers": "none"})], {}, 3),
    "cors": ([("cors", {"allowed_origins": [ORIGIN]})], {}, 2),
    "ip_restriction": ([("ip_restriction", {"deny": ["10.0.0.0/8", "2001:db8::/32"]})], {}, 2),
    "jwt_auth HS256": ([("jwt_auth", {"cached_tokens": 0})], {}, 12),
    "jwt_auth HS256, cached": ([("jwt_auth", {})], {}, 6),
    "script, 50 operations": ([("script", {"source": SCRIPT})], {}, 10),
    "traces, 1 %": ([("otel_tracing", {**TRACES, "sample_ratio": 0.01})], {}, 2),
    "traces, 100 %": ([("otel_tracing", {**TRACES, "sample_ratio": 1})], {}, 15),
    "access log to a file": ([], {"access_log": {"sinks": [{"name": "file", "file": {"path": "{folder}/access.log"}}]}}, 4),
}


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes spans and forgets them."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = self.headers["content-length"]
        if length is None:
            self.close_connection = True
        else:
            self.rfile.read(int(length))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def token():
    def part(value):
        return base64.urlsafe_b64encode(value).rstrip(b"=")

    head = part(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
    claims = part(json.dumps({"sub": "bench", "exp": 4102444800}).encode())
    signed = head + b"." + claims
    return (signed + b"." + part(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest())).decode()


def path(row):
    """As long for one row as for another: each byte of a path costs something."""
    return f"/row-{list(ROWS).index(row):02}"


def spec(listen, backend, rows):
    """A gateway for rows that have the same settings of the gateway."""
    host, port = backend.rsplit(":", 1)
    proxies, plugins = [], []
    for number, row in enumerate(rows):
        proxies.append({"id": f"row-{number}", "listen_path": path(row), "backend_host": host, "backend_port": int(port)})
        for name, config in ROWS[row][0]:
            plugins.append({"id": f"{name}-{number}", "plugin_name": name, "scope": "proxy", "proxy_id": f"row-{number}",
                            "config": config})
    return {
        "gateway": {"http": listen, "https": "off", "admin": "off", "workers": 1, **ROWS[rows[0]][1]},
        "consumers": [{"id": "bench", "username": "bench", "credentials": {"key_auth": KEY, "jwt_auth": SECRET}}],
        "proxies": proxies,
        "plugin_configs": plugins,
    }


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def pinned(core):
    return lambda: os.sched_setaffinity(0, {core})


class Gateway:
    """A gateway that is up, for some of the rows."""

    def __init__(self, program, folder, backend, collector, rows):
        self.rows = rows
        self.listen = f"127.0.0.1:{free_port()}"
        text = json.dumps(spec(self.listen, backend, rows))
        file = pathlib.Path(folder, f"{self.listen}.json")
        file.write_text(text.replace("{folder}", folder).replace("{collector}", collector))
        self.process = subprocess.Popen([program, "run", "--spec", str(file)], stdout=subprocess.DEVNULL, preexec_fn=pinned(0))
        self.wait_until_it_listens()

    def wait_until_it_listens(self):
        host, port = self.listen.rsplit(":", 1)
        until = time.monotonic() + 20
        while time.monotonic() < until and self.process.poll() is None:
            try:
                return socket.create_connection((host, int(port)), 1).close()
            except OSError:
                time.sleep(0.1)
        raise SystemExit("the gateway does not listen")

    def url(self, row):
        return f"http://{self.listen}{path(row)}"

    def guards_hold(self):
        """Rows that identify callers refuse those without a credential: what is measured is done."""
        for row in self.rows:
            if any(name.endswith("_auth") for name, _ in ROWS[row][0]) and status(self.url(row)) != 401:
                raise SystemExit(f"{row}: a request without a credential is not refused")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def status(url):
    try:
        return urllib.request.urlopen(urllib.request.Request(url, data=b"x")).status
    except urllib.error.HTTPError as error:
        return error.code


def measure(args, url, pid):
    headers = {"x-api-key": KEY, "origin": ORIGIN, "authorization": f"Bearer {token()}"}
    command = [args.bench, "run", url, "--method", "POST", "--pid", str(pid), "-c", str(args.connections), "-t", "1", "-d", f"{args.seconds}s",
               "-w", "200ms", "-q", "--json", "-"]
    for name, value in headers.items():
        command += ["-H", f"{name}: {value}"]
    done = subprocess.run(command, check=True, capture_output=True, preexec_fn=pinned(1))
    taken = json.loads(done.stdout)["rows"][0]["rounds"][0]
    if taken["faults"] or set(taken["statuses"]) != {"200"}:
        raise SystemExit(f"{url}: {taken['statuses']} {taken['faults']}")
    return taken["subject"]["cpu_us_per_request"]


def measured(args, rows, gateways):
    costs = {row: [] for row in rows}
    for number in range(args.rounds + 1):
        for gateway in gateways:
            for row in gateway.rows:
                cost = measure(args, gateway.url(row), gateway.process.pid)
                if number:  # the first round warms caches and pools up
                    costs[row].append(cost)
    return costs


def report(costs):
    failed = False
    print(f"{'row':28} {'us':>7} {'cost':>8} {'quartiles':>17} {'bound':>7}")
    for row, values in costs.items():
        bound = ROWS[row][2]
        if bound is None:
            print(f"{row:28} {statistics.median(values):7.2f}")
            continue
        ratios = [(mine / bare - 1) * 100 for mine, bare in zip(values, costs["none"])]
        low, middle, high = statistics.quantiles(ratios, n=4)
        failed |= middle > bound
        print(f"{row:28} {statistics.median(values):7.2f} {middle:+7.1f}% {low:+7.1f} {high:+7.1f} % {bound:+6}%")
    return failed


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gateway", default=str(ROOT / "target/release/ferrum-edge"))
    parser.add_argument("--bench", default=str(ROOT / "target/release/proto_bench"))
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows that have this in their name; all without it")
    return parser.parse_args()


def main():
    args = arguments()
    rows = [row for row in ROWS if row == "none" or not args.rows or any(part in row for part in args.rows)]
    alike = {}
    for row in rows:
        alike.setdefault(json.dumps(ROWS[row][1]), []).append(row)
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    spans = f"http://127.0.0.1:{collector.server_port}"
    backend = subprocess.Popen([args.bench, "backend", "-p", "http", "-t", "1", "--exit-with-stdin"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, preexec_fn=pinned(1))
    echo = json.loads(backend.stdout.readline())["http"]
    gateways = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for some in alike.values():
                gateways.append(Gateway(args.gateway, folder, echo, spans, some))
                gateways[-1].guards_hold()
            return 1 if report(measured(args, rows, gateways)) else 0
        finally:
            for gateway in gateways:
                gateway.stop()
            backend.stdin.close()
            backend.wait()


if __name__ == "__main__":
    os.sched_setaffinity(0, {1})  # what this script itself does, the collector among it, is not the gateway's
    sys.exit(main())
