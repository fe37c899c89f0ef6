#!/usr/bin/env python3
"""Measures bulk responses through the gateway over a long path: HTTP/1.1, HTTP/2 and HTTP/3 at each round trip and each loss.

Usage: tests/interop/wan.py [--gateway PROGRAM] [--bench PROGRAM] [--rtt 16,80] [--loss 0,1] [--rate 100] [--size 1m] [--seconds 10]
           [--congestion cubic]

The gateway and its backend are in one network namespace, the load generator in another. Between both is a path of this program: two
TUN devices, a bottleneck with a drop-tail queue of one round trip, a delay in each direction, and random loss (the same for each row, by
its seed). It needs root, `ip` and /dev/net/tun, and no netem. Each row downloads for some seconds by one request at a time and by eight.
All versions have the same congestion control.
Prints a table of Mbit/s, and HTTP/3 beside HTTP/2. Needs openssl.
"""

import argparse
import collections
import ctypes
import fcntl
import json
import os
import pathlib
import random
import select
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CLIENT, SERVER = "10.77.0.1", "10.77.0.2"
TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 1, 0x1000, 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def run(*command):
    subprocess.run(command, check=True)


def enter(name):
    """Takes this thread into a namespace; the empty name is the one it began in."""
    path = f"/run/netns/{name}" if name else f"/proc/{os.getpid()}/ns/net"
    with open(path, encoding="ascii") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), path)


def device(namespace, name, own, other):
    """A TUN device in a namespace, with an address and a route to the other end; returns its file."""
    opened = []

    def make():
        enter(namespace)
        file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22s", name.encode(), IFF_TUN | IFF_NO_PI, b""))
        opened.append(file)

    thread = threading.Thread(target=make)  # a thread of its own: the others stay in their namespace
    thread.start()
    thread.join()
    inside = ("ip", "netns", "exec", namespace, "ip")
    run(*inside, "link", "set", "lo", "up")
    run(*inside, "address", "add", own, "peer", other, "dev", name)
    run(*inside, "link", "set", name, "mtu", "1500", "txqueuelen", "1000", "up")
    return opened[0]


class Direction:
    """Packets on their way."""

    def __init__(self, delay, loss, rate, seed):
        self.delay, self.loss, self.rate = delay, loss, rate
        self.random, self.free, self.way = random.Random(seed), 0.0, collections.deque()
        self.most = rate * max(2 * delay, 0.02)  # bytes of the queue: one round trip
        self.sent = self.lost = self.dropped = 0

    def take(self, packet, now):
        self.sent += 1
        if self.random.random() < self.loss:
            self.lost += 1
            return
        begin = max(now, self.free)
        if (begin - now) * self.rate > self.most:
            self.dropped += 1
            return
        self.free = begin + len(packet) / self.rate
        self.way.append((self.free + self.delay, packet))


class Path(threading.Thread):
    """The path between two devices, until it is ended."""

    def __init__(self, ends, rtt, loss, rate, seed):
        super().__init__(daemon=True)
        self.ends, self.ended = ends, threading.Event()
        self.ways = [Direction(rtt / 2, loss, rate, seed + n) for n in range(2)]

    def run(self):
        while not self.ended.is_set():
            now = time.monotonic()
            due = [way.way[0][0] for way in self.ways if way.way]
            wait = min(due) - now if due else 0.05
            ready, _, _ = select.select(self.ends, [], [], max(0.0, min(wait, 0.05)))
            now = time.monotonic()
            for file in ready:
                way = self.ways[self.ends.index(file)]
                for _ in range(64):
                    try:
                        way.take(os.read(file, 2048), now)
                    except BlockingIOError:
                        break
            for n, way in enumerate(self.ways):
                while way.way and way.way[0][0] <= now:
                    try:
                        os.write(self.ends[1 - n], way.way.popleft()[1])
                    except OSError:
                        way.dropped += 1

    def end(self):
        self.ended.set()
        self.join()


def gateway(args, folder):
    """A gateway and its backend in the server's namespace: processes, and the ports of http and https."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-addext", f"subjectAltName=IP:{SERVER}", "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    inside = ["ip", "netns", "exec", args.names[1]]
    backend = subprocess.Popen([*inside, args.bench, "backend", "--threads", "1"], stdout=subprocess.PIPE, text=True)
    port = json.loads(backend.stdout.readline())["http"].rsplit(":", 1)[1]
    head = {"http": f"{SERVER}:8000", "https": f"{SERVER}:8443", "http3": True, "admin": "off", "workers": 1, "congestion_control": args.congestion,
            "tls": {"certificates": [{"cert_path": str(cert), "key_path": str(key)}]}}
    proxy = {"id": "p", "listen_path": "/", "backend_host": "127.0.0.1", "backend_port": int(port)}
    (folder / "spec.yaml").write_text(f"gateway: {json.dumps(head)}\nproxies:\n  - {json.dumps(proxy)}\n")
    process = subprocess.Popen([*inside, args.gateway, "run", "-v", "--spec", str(folder / "spec.yaml")], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if '"message":"serving"' in line:
            break
        if process.poll() is not None:
            sys.exit(f"the gateway ended: {line}")
    threading.Thread(target=lambda: collections.deque(process.stderr, maxlen=0), daemon=True).start()
    return [backend, process]


def measure(args, scheme, requests):
    """Mbit/s of response bodies."""
    port = 8000 if scheme == "http" else 8443
    many = {"http": ["-c", str(requests)]}.get(scheme, ["-c", "1", "-m", str(requests)])
    url = f"{scheme}://{SERVER}:{port}/size/{args.size}"
    command = ["ip", "netns", "exec", args.names[0], args.bench, "run", url, "--method", "GET", "--expect-size", str(args.size), *many, "-t", "1",
               "-w", "2s", "-d", f"{args.seconds}s", "--timeout", "120s", "-q", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=args.seconds + 180)
    try:
        taken = json.loads(done.stdout)["rows"][0]["rounds"][0]
    except (ValueError, LookupError):
        return None, done.stderr.strip()[-200:]
    if taken["faults"]:
        return None, str(taken["faults"])
    return taken["body_bytes"] * 8 / taken["window_seconds"] / 1e6, ""


def size_of(text):
    return int(text[:-1]) << 20 if text.endswith("m") else int(text[:-1]) << 10 if text.endswith("k") else int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateway", default=str(ROOT / "target/release/ferrum-edge"))
    parser.add_argument("--bench", default=str(ROOT / "target/release/proto_bench"))
    parser.add_argument("--rtt", default="16,80", help="milliseconds")
    parser.add_argument("--loss", default="0,1", help="per cent of the packets, in each direction")
    parser.add_argument("--congestion", default="cubic", help="congestion control of the gateway, over TCP and QUIC")
    parser.add_argument("--rate", type=float, default=100, help="Mbit/s of the bottleneck")
    parser.add_argument("--size", type=size_of, default=256 << 10, help="bytes of a response")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    args.names = [f"fe-wan-{os.getpid()}-{n}" for n in range(2)]
    processes, failed = [], False
    try:
        for name in args.names:
            run("ip", "netns", "add", name)
        ends = [device(args.names[0], "wan0", CLIENT, SERVER), device(args.names[1], "wan1", SERVER, CLIENT)]
        with tempfile.TemporaryDirectory(prefix="wan-") as folder:
            processes = gateway(args, pathlib.Path(folder))
            print("| round trip | loss | at a time | HTTP/1.1 | HTTP/2 | HTTP/3 | HTTP/3 / HTTP/2 |\n|---|---|---|---|---|---|---|")
            for rtt in map(float, args.rtt.split(",")):
                for loss in map(float, args.loss.split(",")):
                    for requests in (1, 8):
                        failed |= row(args, ends, rtt, loss, requests)
    finally:
        for process in processes:
            process.terminate()
        for name in args.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
    sys.exit(failed)


def row(args, ends, rtt, loss, requests):
    figures = []
    for scheme in ("http", "h2", "h3"):
        rounds = []
        for number in range(args.rounds):
            path = Path(ends, rtt / 1e3, loss / 100, args.rate * 1e6 / 8, number)
            path.start()
            rounds.append(measure(args, scheme, requests))
            path.end()
        good = sorted(figure for figure, _ in rounds if figure is not None)
        if len(good) < len(rounds):
            print(f"{scheme}: {rounds}", file=sys.stderr)
        figures.append(good[len(good) // 2] if good else None)
    shown = [f"{figure:.1f}" if figure is not None else "failed" for figure in figures]
    ratio = figures[2] / figures[1] if figures[1] and figures[2] else 0.0
    print(f"| {rtt:.0f} ms | {loss:g} % | {requests} | {' | '.join(shown)} | {ratio:.2f} |", flush=True)
    return None in figures


if __name__ == "__main__":
    main()
