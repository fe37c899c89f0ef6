#!/usr/bin/env python3
"""The OpenTelemetry Collector, with the configuration that observability/ ships, takes traces, metrics and logs of a gateway.

Usage: tests/interop/collector.py [--gateway PROGRAM] [--collector PROGRAM] [--requests N]
Builds the Collector from its Go modules into target/interop/collector, once (Go 1.25 or later; some minutes, 1 GB of Go's caches).
For each of grpc, http/protobuf and http/json: all that was made is sent and arrives; a Collector that is stopped and started again, that
is away with a small queue, and that stands still for longer than the exporter waits costs what is counted, and traffic goes on.
Exits 1 when a request fails, when what is counted is not what was made, or when something that counts as sent did not arrive or came twice.
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
VERSION = "0.160.0"
BUILDER = f"go.opentelemetry.io/collector/cmd/builder@v{VERSION}"
MODULES = {
    "receivers": [f"go.opentelemetry.io/collector/receiver/otlpreceiver v{VERSION}"],
    "processors": [f"go.opentelemetry.io/collector/processor/batchprocessor v{VERSION}"],
    "exporters": [f"go.opentelemetry.io/collector/exporter/debugexporter v{VERSION}"],
}
WAIT = 90


def build(folder):
    """The Collector's program, built when it is not there."""
    program = folder / "otelcol"
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {"dist": {"name": "otelcol", "output_path": str(folder / "source"), "module": "otelcol"}}
    manifest |= {kind: [{"gomod": module} for module in modules] for kind, modules in MODULES.items()}
    (folder / "builder.json").write_text(json.dumps(manifest))
    subprocess.run(["go", "run", BUILDER, "--skip-compilation", "--config", str(folder / "builder.json")], check=True, cwd=folder)
    subprocess.run(["go", "build", "-trimpath", "-ldflags=-s -w", "-o", str(program), "."], check=True, cwd=folder / "source")
    return program


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def until(what, holds):
    """Waits until something holds."""
    last = time.monotonic() + WAIT
    while not holds():
        if time.monotonic() > last:
            raise SystemExit(f"{what}: it did not come to that in {WAIT} s")
        time.sleep(0.02)


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


class Origin(socketserver.ThreadingTCPServer):
    """Answers every request with two bytes."""

    allow_reuse_address = True
    daemon_threads = True

    class RequestHandlerClass(socketserver.StreamRequestHandler):
        def handle(self):
            while line := self.rfile.readline():
                if line == b"\r\n":
                    self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.RequestHandlerClass)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Collector:
    """The Collector with the shipped configuration on ports of its own. What it printed is read when it has ended."""

    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)
        self.ports = {"4317": free_port(), "4318": free_port()}
        text = (ROOT / "deploy/observability/collector.yaml").read_text()
        for shipped, own in self.ports.items():
            assert f":{shipped}" in text, "the shipped configuration has another port"
            text = text.replace(f":{shipped}", f":{own}")
        (self.folder / "collector.yaml").write_text(text)
        self.runs, self.process = 0, None
        self.start()

    def endpoint(self, protocol):
        return f"http://127.0.0.1:{self.ports['4317' if protocol == 'grpc' else '4318']}"

    def start(self):
        self.runs += 1
        log = open(self.folder / f"collector.{self.runs}.log", "wb")
        command = [self.program, "--config", str(self.folder / "collector.yaml")]
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        log.close()
        until("the Collector listens", lambda: self.process.poll() is None and all(map(listens, self.ports.values())))

    def stop(self):
        """Ends it; it passes on what it has taken."""
        self.process.terminate()
        self.process.wait(WAIT)

    def taken(self):
        """The spans' ids, the paths of log records, and the names of metrics that it has printed."""
        spans, logs, metrics = [], [], set()
        for number in range(1, self.runs + 1):
            text = (self.folder / f"collector.{number}.log").read_text(errors="replace")
            # A span is printed with its id in the fourth line.
            spans += re.findall(r"^Span #\d+\n(?:.*\n){2}\s+ID\s+: ([0-9a-f]{16})$", text, re.M)
            logs += re.findall(r"^Body: Str\(GET (\S+) \d+\)$", text, re.M)
            metrics |= set(re.findall(r"^\s+-> Name: (\S+)$", text, re.M))
        return spans, logs, metrics


class Gateway:
    """A gateway that traces, logs and counts everything to the Collector."""

    def __init__(self, program, folder, origin, collector, protocol, queue):
        self.http, self.admin, self.made = free_port(), free_port(), 0
        exporter = {"endpoint": collector.endpoint(protocol), "protocol": protocol, "timeout": "1000ms"}
        sink = {"name": "otlp", "otlp": exporter, "interval": "50ms", "queue": queue["records"], "batch": 20, "retry_for": f"{queue['retry']}ms"}
        traces = {"exporter": exporter, "queue": {"max_spans": 2 * queue["records"], "max_batch": 40, "interval": "50ms",
                                                  "retry_for": f"{queue['retry']}ms"}}
        spec = {
            "gateway": {"http": f"127.0.0.1:{self.http}", "https": "off", "admin": f"127.0.0.1:{self.admin}", "workers": 1,
                        "access_log": {"sinks": [sink]}, "metrics": {"otlp": {"exporter": exporter, "interval": "500ms"}}},
            "proxies": [{"id": "shop", "listen_path": "/", "backend_host": "127.0.0.1", "backend_port": origin.server_address[1]}],
            "plugin_configs": [{"id": "traces", "plugin_name": "otel_tracing", "scope": "global", "config": traces}],
        }
        file = pathlib.Path(folder, f"gateway.{self.http}.json")
        file.write_text(json.dumps(spec))
        self.log = open(pathlib.Path(folder, f"gateway.{self.http}.log"), "wb")
        self.process = subprocess.Popen([program, "run", "--spec", str(file)], stdout=self.log, stderr=self.log)
        until("the gateway listens", lambda: self.process.poll() is None and listens(self.http) and listens(self.admin))
        self.client = http.client.HTTPConnection("127.0.0.1", self.http, timeout=10)

    def ask(self, count):
        """So many requests, each with a path of its own: two spans and a record each."""
        for _ in range(count):
            self.client.request("GET", f"/{self.made}")
            answer = self.client.getresponse()
            if answer.status != 200 or answer.read() != b"ok":
                raise SystemExit(f"traffic suffers: {answer.status}")
            self.made += 1

    def counts(self):
        """What became of spans and of records, by outcome."""
        page = urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=10).read().decode()
        found = {"spans": {}, "records": {}}
        for kind, name in (("spans", "ferrum_otel_spans_total"), ("records", "ferrum_access_log_sink_records_total")):
            for labels, value in re.findall(rf"^{name}{{(.*)}} (\d+)$", page, re.M):
                found[kind][re.search(r'outcome="(\w+)"', labels)[1]] = int(value)
        return found

    def settled(self):
        """Waits until each span and record is counted as something."""
        wanted = (2 * self.made, self.made)
        until("all is counted", lambda: tuple(sum(kind.values()) for kind in self.counts().values()) == wanted)
        return self.counts()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(WAIT)
        self.log.close()


ROOMY = {"records": 10_000, "retry": 60_000}
TIGHT = {"records": 50, "retry": 0}


def alive(gateway, collector, requests):
    gateway.ask(requests)
    until("metrics are there", lambda: "metrics" in collector_log(collector))


def collector_log(collector):
    return (collector.folder / f"collector.{collector.runs}.log").read_text(errors="replace").lower()


def flapping(gateway, collector, requests):
    for _ in range(3):
        gateway.ask(requests // 6)
        collector.stop()
        gateway.ask(requests // 6)
        collector.start()


def away(gateway, collector, requests):
    gateway.ask(20)
    until("the first ones are sent", lambda: gateway.counts()["records"].get("sent") == 20 and gateway.counts()["spans"].get("sent") == 40)
    collector.stop()
    gateway.ask(requests)
    gateway.settled()
    collector.start()
    gateway.ask(20)


def standing_still(gateway, collector, requests):
    gateway.ask(20)
    os.kill(collector.process.pid, signal.SIGSTOP)
    try:
        gateway.ask(requests)
        until("a request took too long", lambda: gateway.counts()["spans"].get("failed", 0) > 0)
    finally:
        os.kill(collector.process.pid, signal.SIGCONT)


# Name, what happens, the gateway's queue, whether anything may be lost, whether what is counted as lost may still arrive.
SCENARIOS = [
    ("alive", alive, ROOMY, False, False),
    ("stopped and started", flapping, ROOMY, False, False),
    ("away", away, TIGHT, True, False),
    ("standing still", standing_still, TIGHT, True, True),
]


def run(args, protocol, scenario, folder):
    name, happens, queue, may_lose, may_arrive = scenario
    origin = Origin()
    collector = Collector(args.collector, folder)
    gateway = Gateway(args.gateway, folder, origin, collector, protocol, queue)
    try:
        happens(gateway, collector, args.requests)
        counts = gateway.settled()
    finally:
        gateway.stop()
        collector.stop()
        origin.shutdown()
    spans, logs, metrics = collector.taken()
    problems = []
    for kind, came, made in (("spans", spans, 2 * gateway.made), ("records", logs, gateway.made)):
        sent = counts[kind].get("sent", 0)
        lost = made - sent
        if lost and not may_lose:
            problems.append(f"{lost} {kind} were lost")
        if may_lose and not lost:
            problems.append(f"no {kind} were lost: nothing was tried")
        if len(set(came)) < sent:
            problems.append(f"{sent} {kind} were sent and {len(set(came))} came")
        if not may_arrive and (len(came) > sent or len(set(came)) != len(came)):
            problems.append(f"{sent} {kind} were sent and {len(came)} came, {len(set(came))} different ones")
        shown = ", ".join(f"{outcome} {count}" for outcome, count in counts[kind].items() if count)
        print(f"  {protocol:14} {name:20} {kind:8} made {made:5}  {shown}; came {len(came)}", flush=True)
    wanted = {"http_server_request_duration_seconds", "ferrum_proxy_requests_total", "process_cpu_seconds_total"}
    names = {re.sub(r"_total$", "", metric) for metric in metrics}
    if name == "alive" and (missing := {re.sub(r"_total$", "", metric) for metric in wanted} - names):
        problems.append(f"metrics are missing: {sorted(missing)}, there are {sorted(names)[:10]}")
    for problem in problems:
        print(f"  {protocol} {name}: {problem}", flush=True)
    return bool(problems)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gateway", default=str(ROOT / "target/release/ferrum-edge"))
    parser.add_argument("--collector", help="its program; built when this is left out")
    parser.add_argument("--requests", type=int, default=300)
    return parser.parse_args()


def main():
    args = arguments()
    args.collector = args.collector or str(build(ROOT / "target/interop/collector"))
    failed = False
    for protocol in ("grpc", "http/protobuf", "http/json"):
        for scenario in SCENARIOS:
            with tempfile.TemporaryDirectory() as folder:
                failed |= run(args, protocol, scenario, folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
