#!/usr/bin/env python3
"""What a scrape of 30,000 proxies costs: its time and size, its effect on traffic, and the memory of their series.

Usage: tests/interop/scrape.py [--gateway PROGRAM] [--proxies N] [--rounds N] [--probes N] [--workers N]
Each proxy gets one request, so that it has all the series it ever has. Then /metrics is read in each format; and a client asks 1,000 times
a second, in turns alone and while Prometheus's format is read again and again. Prints sizes, times and the client's latencies. Exits 1 when
a scrape takes more than 1 s or 60 MB, a request fails, or a read adds more than --slack to the median of the rounds' 99th percentiles.
Its latencies mean something only on a machine that does nothing else.
"""

import argparse
import asyncio
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MAX_SECONDS = 1.0
MAX_BYTES = 60_000_000
RATE = 1000
FORMATS = {
    "text": "text/plain",
    "OpenMetrics": "application/openmetrics-text; version=1.0.0",
    "protobuf": "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
}


def spec(http, admin, target, proxies, workers):
    """Every other proxy has an upstream of its own with two targets; the rest have one target each."""
    upstreams = [{"id": f"upstream-{n}", "targets": [{"host": "127.0.0.1", "port": target}, {"host": "127.0.0.2", "port": target}]}
                 for n in range(0, proxies, 2)]
    def proxy(n):
        backend = {"upstream_id": f"upstream-{n}"} if n % 2 == 0 else {"backend_host": "127.0.0.1", "backend_port": target}
        return {"id": f"proxy-{n:05}", "listen_path": f"/p{n}", **backend}
    return {
        "gateway": {"http": f"127.0.0.1:{http}", "https": "off", "admin": f"127.0.0.1:{admin}", "workers": workers},
        "upstreams": upstreams,
        "proxies": [proxy(n) for n in range(proxies)],
    }


def free_ports(count):
    found = [socket.socket() for _ in range(count)]
    for one in found:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in found]
    for one in found:
        one.close()
    return ports


def rss(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS")


async def ask(reader, writer, path):
    """One request over a kept connection; its latency in milliseconds."""
    begun = time.perf_counter()
    writer.write(f"GET {path} HTTP/1.1\r\nhost: a.test\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head[:20]:
        sys.exit(f"{path}: {head.decode(errors='replace')}")
    await reader.readexactly(2)
    return (time.perf_counter() - begun) * 1000


async def touch_all(port, proxies, connections=20):
    async def some(first):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for n in range(first, proxies, connections):
            await ask(reader, writer, f"/p{n}")
        writer.close()
    await asyncio.gather(*(some(first) for first in range(connections)))


async def probe(port, proxies, count):
    """So many requests at an even pace; their latencies."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    latencies, begun = [], time.perf_counter()
    for n in range(count):
        await asyncio.sleep(max(0.0, begun + n / RATE - time.perf_counter()))
        latencies.append(await ask(reader, writer, f"/p{n % proxies}"))
    writer.close()
    return latencies


# Answers everything with two bytes until its standard input ends: a process of its own too.
ORIGIN = """
import asyncio, sys
async def serve(reader, writer):
    try:
        while True:
            await reader.readuntil(b"\\r\\n\\r\\n")
            writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\nok")
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        writer.close()
async def run():
    for host in ("127.0.0.1", "127.0.0.2"):
        await asyncio.start_server(serve, host, int(sys.argv[1]))
    print("up", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
asyncio.run(run())
"""


# Reads a page again and again and prints how long each took and how long it was, until its standard input ends: a process of its own,
# since reading takes processor time too.
READER = """
import select, sys, time, urllib.request
while not select.select([sys.stdin], [], [], 0)[0]:
    begun = time.perf_counter()
    size = len(urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers={"accept": sys.argv[2]}), timeout=60).read())
    print(time.perf_counter() - begun, size, flush=True)
    time.sleep(float(sys.argv[3]))
"""


def reads(url, accept, times):
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        body = urllib.request.urlopen(urllib.request.Request(url, headers={"accept": accept}), timeout=60).read()
        taken.append((time.perf_counter() - begun, len(body), body.count(b"\n")))
    return taken


async def beside(args, url, port):
    """The 99th percentiles of the rounds: alone, and beside reads."""
    alone, disturbed = [], []
    for number in range(args.rounds + 1):
        for into, is_read in ((alone, False), (disturbed, True)):
            reader = None
            if is_read:
                command = [sys.executable, "-c", READER, url, FORMATS["text"], str(args.pause)]
                reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            latencies = await probe(port, args.proxies, args.probes)
            if reader:
                reader.stdin.close()
                reader.wait()
            if number:  # the first round warms connections up
                into.append(statistics.quantiles(latencies, n=100))
    return alone, disturbed


def show(name, rounds):
    print(f"  {name:16} p50 {statistics.median(r[49] for r in rounds):7.3f} ms   p99 {statistics.median(r[98] for r in rounds):7.3f} ms")


async def run(args, folder):
    http, admin, target = free_ports(3)
    file = pathlib.Path(folder, "spec.json")
    file.write_text(json.dumps(spec(http, admin, target, args.proxies, args.workers)))
    origin = subprocess.Popen([sys.executable, "-c", ORIGIN, str(target)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    origin.stdout.readline()
    process = subprocess.Popen([args.gateway, "run", "--spec", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", http), 1).close()
                break
            except OSError:
                if time.monotonic() > until or process.poll() is not None:
                    sys.exit("the gateway does not listen")
                time.sleep(0.1)
        url = f"http://127.0.0.1:{admin}/metrics"
        before = rss(process.pid)
        await touch_all(http, args.proxies)
        print(f"{args.proxies} proxies; memory {before:.0f} MiB, {rss(process.pid):.0f} MiB once each has had a request")
        failed = False
        loop = asyncio.get_running_loop()
        for name, accept in FORMATS.items():
            taken = await loop.run_in_executor(None, reads, url, accept, 5)
            seconds, size, lines = statistics.median(t[0] for t in taken), taken[-1][1], taken[-1][2]
            failed |= seconds > MAX_SECONDS or size > MAX_BYTES
            print(f"  {name:16} {seconds * 1000:7.0f} ms   {size / 1e6:6.1f} MB   {lines} lines")
        print(f"  memory after that {rss(process.pid):.0f} MiB")
        alone, disturbed = await beside(args, url, http)
        show("alone", alone)
        show("beside reads", disturbed)
        added = statistics.median(d[98] - a[98] for a, d in zip(alone, disturbed))
        print(f"  a read adds {added:+.3f} ms to the 99th percentile, bound {args.slack} ms")
        return failed or added > args.slack
    finally:
        process.terminate()
        process.wait()
        origin.stdin.close()
        origin.wait()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gateway", default=str(ROOT / "target/release/ferrum-edge"))
    parser.add_argument("--proxies", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--probes", type=int, default=5000, help="requests of a round")
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between two reads")
    parser.add_argument("--slack", type=float, default=0.5, help="milliseconds that a read may add to the 99th percentile")
    parser.add_argument("--workers", type=int, default=1)
    return parser.parse_args()


def main():
    with tempfile.TemporaryDirectory() as folder:
        return 1 if asyncio.run(run(arguments(), folder)) else 0


if __name__ == "__main__":
    sys.exit(main())
