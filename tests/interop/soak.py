#!/usr/bin/env python3
"""Ten protocols for a while through one gateway whose configuration, certificates, targets and database keep changing.

Usage: tests/interop/soak.py [--gateway PROGRAM] [--bench PROGRAM] [--minutes N] [--rate N]

Every few seconds something happens: a reload, a change through the admin API, another certificate, a target that is killed and
comes back, the database (PostgreSQL where it is installed, else SQLite) that restarts. It fails when a request or message goes wrong
(but for those in flight to the target that is killed), when a request of the ledger has no record or two, when memory,
descriptors, threads or tasks grow, and when something stays open after the load has ended.
"""

import argparse
import collections
import glob
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "conformance"))
from stand import ROOT, Failed, Stand, free_ports, wait_for  # noqa: E402

TOKEN = "the-token-of-the-soak-32-characters"
SAMPLE, CHUNK = 5, 15
# What may be more at the end than before: a share, and a fixed room for what comes in steps.
ROOM = {"resident": (1.15, 24 << 20), "descriptors": (1.10, 40), "threads": (1.0, 6)}


class Database:
    """PostgreSQL in a folder of its own; `None` where it is not installed."""

    def __init__(self, folder, port):
        self.folder, self.port = folder, port
        self.bin = pathlib.Path(sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1])
        self.data = folder.path / "postgres"
        self.data.mkdir()
        if os.getuid() == 0:
            shutil.chown(self.data, "postgres")
            folder.path.chmod(0o755)
        self.run([self.bin / "initdb", "-A", "trust", "-U", "ferrum", "-D", self.data])
        self.start()
        deadline = time.monotonic() + 30
        while self.run([self.bin / "createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "ferrum", "soak"], check=False):
            if time.monotonic() > deadline:
                raise Failed("PostgreSQL does not start")
            time.sleep(0.2)

    def run(self, command, check=True):
        as_user = {"user": "postgres", "cwd": "/"} if os.getuid() == 0 else {}
        return subprocess.run([str(each) for each in command], capture_output=True, check=check, **as_user).returncode

    def start(self):
        as_user = {"user": "postgres", "cwd": "/"} if os.getuid() == 0 else {}
        self.process = subprocess.Popen([str(self.bin / "postgres"), "-D", str(self.data), "-p", str(self.port), "-k", "", "-c", "listen_addresses=127.0.0.1",
                                         "-c", "fsync=off"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **as_user)

    def restart(self):
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(20)
        time.sleep(random.uniform(0.5, 4))
        self.start()


class Soak:
    """Everything that runs beside the gateway."""

    def __init__(self, stand, args):
        self.stand, self.args, self.until = stand, args, 0
        self.problems, self.done, self.counts = [], threading.Event(), collections.Counter()
        self.asked = []
        names = ["http", "https", "admin", "tcp", "tls", "udp", "dtls", "db", "flap"]
        self.ports = dict(zip(names, free_ports(len(names))))

    def begin(self):
        folder, ports = self.stand.folder, self.ports
        folder.authority()
        self.pair = folder.certificate("shown")
        self.echo = self.stand.backend()
        self.flap()
        self.database = Database(folder, ports["db"]) if glob.glob("/usr/lib/postgresql/*/bin") else None
        url = f"postgres://ferrum@127.0.0.1:{ports['db']}/soak" if self.database else f"sqlite:{folder.file('soak.db')}"
        environment = {"FERRUM_MODE": "database", "FERRUM_DB_URL": url, "FERRUM_ADMIN_TOKEN": TOKEN, "FERRUM_DB_ENCRYPTION_KEY": "ab" * 32}
        if self.database:
            subprocess.run([self.args.gateway, "migrate", "--db-url", url], check=True, capture_output=True)
        self.gateway = self.stand.gateway({"gateway": {
            "http": f"127.0.0.1:{ports['http']}", "https": f"127.0.0.1:{ports['https']}", "http3": True, "admin": f"127.0.0.1:{ports['admin']}",
            "stream_address": "127.0.0.1", "workers": 2, "tls": {"certificates": [self.pair]},
            "access_log": {"path": folder.file("access.log")}}}, ports["admin"], environment)
        self.api("POST", "/v1/batch", self.objects())
        wait_for(ports["http"])

    def objects(self):
        echo = self.echo

        def proxy(name, scheme, port, **more):
            return {"id": name, "backend_scheme": scheme, "backend_host": "127.0.0.1", "backend_port": port, **more}

        return {"upstreams": [{"id": "two", "targets": [{"host": "127.0.0.1", "port": echo["http"]}, {"host": "127.0.0.1", "port": self.ports["flap"]}]}],
                "proxies": [
                    proxy("web", "http", echo["http"], listen_path="/", strip_listen_path=False),
                    proxy("grpc", "http", echo["h2c"], listen_path="/bench.Echo", backend_http_version="2", strip_listen_path=False),
                    {"id": "flap", "listen_path": "/flap", "backend_scheme": "http", "upstream_id": "two"},
                    proxy("tcp", "tcp", echo["tcp"], listen_port=self.ports["tcp"]),
                    proxy("tcp-tls", "tcp", echo["tcp"], listen_port=self.ports["tls"], frontend_tls=True),
                    proxy("udp", "udp", echo["udp"], listen_port=self.ports["udp"]),
                    proxy("udp-dtls", "udp", echo["udp"], listen_port=self.ports["dtls"], frontend_tls=True),
                ]}

    def flap(self):
        """The target that comes and goes."""
        self.flapping = subprocess.Popen([self.args.bench, "backend", "--protocol", "http", "--port", str(self.ports["flap"]), "--threads", "1"],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def api(self, method, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.ports['admin']}{path}", method=method, data=json.dumps(body).encode() if body else None,
                                         headers={"authorization": f"Bearer {TOKEN}", "content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def problem(self, what):
        self.problems.append(what)
        print(f"     {what}", flush=True)

    def load(self, name, target, *options):
        """One protocol, in chunks, so that connections come and go."""
        while time.monotonic() < self.until:
            seconds = max(1, min(CHUNK, int(self.until - time.monotonic())))
            done = subprocess.run([self.args.bench, "run", target, "--method", "POST", "-c", "4", "-r", str(self.args.rate), "-d", f"{seconds}s", "-w", "0s", "-t", "1",
                                   "--timeout", "30s", "-q", "--json", "-", *options], capture_output=True, text=True, check=False)
            try:
                result = json.loads(done.stdout)["rows"][0]["rounds"][0]
            except (ValueError, LookupError):
                self.problem(f"{name}: {done.stderr.strip()[-300:]}")
                continue
            self.counts[name] += result["completed"]
            wrong = {status: count for status, count in result["statuses"].items() if status not in ("200", "0")}
            if result["faults"] or wrong:
                self.problem(f"{name}: {result['faults']} {wrong}")

    def ledger(self):
        """Requests that are counted one by one: each has to have exactly one record."""
        number, connection = 0, None
        while not self.done.is_set():
            number += 1
            try:
                connection = connection or http.client.HTTPConnection("127.0.0.1", self.ports["http"], timeout=30)
                connection.request("GET", f"/ledger?n={number}")
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    self.problem(f"ledger: request {number} got {answer.status}")
                self.asked.append(number)
            except (OSError, http.client.HTTPException) as error:
                self.problem(f"ledger: request {number}: {error!r}")
                connection = None
            time.sleep(0.01)

    def events(self):
        """Something happens every few seconds."""
        happenings = [self.reload, self.change, self.certificate, self.target]
        if self.database:
            happenings.append(self.database.restart)
        while time.monotonic() < self.until - 5:
            happening = random.choice(happenings)
            try:
                happening()
                self.counts[f"({happening.__name__})"] += 1
            except (OSError, Failed) as error:
                # While the database restarts, writes are refused.
                self.counts[f"({happening.__name__} refused: {getattr(error, 'code', type(error).__name__)})"] += 1
            time.sleep(random.uniform(1, 3))

    def reload(self):
        self.gateway.send_signal(signal.SIGHUP)

    def change(self):
        self.api("PUT", "/v1/proxies/extra", {"listen_path": f"/extra{random.randrange(1000)}", "backend_scheme": "http", "backend_host": "127.0.0.1",
                                              "backend_port": self.echo["http"]})
        if random.random() < 0.5:
            self.api("DELETE", "/v1/proxies/extra")

    def certificate(self):
        self.stand.folder.certificate("shown")
        self.reload()

    def target(self):
        self.flapping.kill()
        self.flapping.wait()
        time.sleep(random.uniform(0.2, 2))
        self.flap()

    def sample(self):
        process = pathlib.Path(f"/proc/{self.gateway.pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line)
        return {"resident": int(status["VmRSS"].split()[0]) << 10, "descriptors": len(list((process / "fd").iterdir())),
                "threads": int(status["Threads"])}

    def run(self):
        ports, begun = self.ports, time.monotonic()
        self.until = begun + 60 * self.args.minutes
        http1, https = f"127.0.0.1:{ports['http']}", f"127.0.0.1:{ports['https']}"
        lanes = [("HTTP/1.1", f"http://{http1}/echo"), ("HTTP/1.1 over TLS", f"https://{https}/echo"), ("HTTP/2", f"h2://{https}/echo"),
                 ("h2c", f"h2c://{http1}/echo"), ("HTTP/3", f"h3://{https}/echo"), ("gRPC", f"grpc://{http1}/bench.Echo/Unary"),
                 ("WebSocket", f"ws://{http1}/ws"), ("TCP", f"tcp://127.0.0.1:{ports['tcp']}"), ("TLS", f"tls://127.0.0.1:{ports['tls']}"),
                 ("UDP", f"udp://127.0.0.1:{ports['udp']}"), ("DTLS", f"dtls://127.0.0.1:{ports['dtls']}")]
        threads = [threading.Thread(target=self.load, args=lane) for lane in lanes]
        threads.append(threading.Thread(target=self.load, args=("flap", f"http://{http1}/flap", "--method", "GET", "--expect-size", "64")))
        threads += [threading.Thread(target=self.events), threading.Thread(target=self.ledger)]
        for thread in threads:
            thread.start()
        samples = []
        while time.monotonic() < self.until:
            time.sleep(SAMPLE)
            if self.gateway.poll() is not None:
                self.problem("the gateway ended")
                break
            samples.append(self.sample())
        for thread in threads[:-1]:
            thread.join()
        self.done.set()
        threads[-1].join()
        return samples

    def judge(self, samples):
        quarter = max(1, len(samples) // 4)
        for name, (share, room) in ROOM.items():
            early = statistics.median(sample[name] for sample in samples[quarter:2 * quarter] or samples)
            late = statistics.median(sample[name] for sample in samples[-quarter:])
            print(f"     {name}: {early:,.0f} in the second quarter, {late:,.0f} in the last")
            if late > early * share + room:
                self.problem(f"{name} grew from {early:,.0f} to {late:,.0f}")
        self.closed()
        self.records()
        log = pathlib.Path(self.stand.folder.file("gateway.log")).read_text()
        for line in log.splitlines():
            if "panicked" in line:
                self.problem(line[:300])

    def closed(self):
        """Once the load has ended, nothing stays open."""
        deadline = time.monotonic() + 150
        while (left := self.api("GET", "/v1/sessions?limit=5"))["open"]:
            if time.monotonic() > deadline:
                return self.problem(f"sessions stay open: {left}")
            time.sleep(1)

    def records(self):
        self.gateway.send_signal(signal.SIGTERM)
        self.gateway.wait(60)
        seen = collections.Counter()
        for line in pathlib.Path(self.stand.folder.file("access.log")).read_text().splitlines():
            record = json.loads(line)
            if record.get("url.path") == "/ledger":
                seen[int(record["url.query"].partition("=")[2])] += 1
        wrong = [number for number in self.asked if seen[number] != 1] + [number for number, times in seen.items() if times > 1]
        print(f"     ledger: {len(self.asked)} requests, {sum(seen.values())} records")
        if wrong:
            self.problem(f"requests without exactly one record: {wrong[:20]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gateway", default=str(ROOT / "target" / "debug" / "ferrum-edge"))
    parser.add_argument("--bench", default=str(ROOT / "target" / "debug" / "proto_bench"))
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--rate", type=int, default=20, help="requests a second for each protocol")
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    with Stand(args) as stand:
        soak = Soak(stand, args)
        try:
            soak.begin()
            soak.judge(soak.run())
        finally:
            soak.flapping.kill()
            if getattr(soak, "database", None):
                soak.database.process.kill()
        for name, count in sorted(soak.counts.items()):
            print(f"     {count:8} {name}")
        if soak.problems:
            args.keep = True
        print(f"{len(soak.problems)} problems")
        return 1 if soak.problems else 0


if __name__ == "__main__":
    sys.exit(main())
