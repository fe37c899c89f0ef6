#!/usr/bin/env python3
"""What a million UDP sessions and ten thousand idle WebSockets cost the gateway, in memory.

Usage: tests/interop/holds.py [--gateway PROGRAM] [--bench PROGRAM] [--sessions N] [--websockets N]
Prints resident memory before, at its peak and after; exits 1 when memory does not come back (within 10 MiB), a session's
first datagram is lost, or a WebSocket costs more than 12 KiB. Needs 45,000 file descriptors.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WAVE = 20_000  # sessions at a time, if there are descriptors: each is a socket of the gateway's, with its own port
WEBSOCKET_KIB = 12
RETURN_MIB = 10


def rss(pid):
    """KiB in memory."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError("no VmRSS")


def free_port(kind):
    with socket.socket(socket.AF_INET, kind) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def gateway(program, spec):
    """A gateway with one worker, once it listens."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="holds-"))
    port = free_port(socket.SOCK_STREAM)
    head = {"http": f"127.0.0.1:{port}", "https": "off", "admin": "off", "stream_address": "127.0.0.1", "workers": 1,
            "limits": {"max_connections": 1_000_000, "max_requests": 1_000_000}}
    (folder / "spec.yaml").write_text(f"gateway: {json.dumps(head)}\nproxies:\n  - {json.dumps(spec)}\n")
    log = open(folder / "log", "w")
    process = subprocess.Popen([program, "run", "--spec", str(folder / "spec.yaml")], stdout=log, stderr=log)
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            time.sleep(1)
            return process, port
        except OSError:
            time.sleep(0.1)
    process.kill()
    sys.exit((folder / "log").read_text())


def count_datagrams(server, counted):
    """The target: takes datagrams and answers none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server.settimeout(3600)
    while True:
        server.recv(64)
        counted.value += 1


def udp_sessions(program, total):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23)
    server.bind(("127.0.0.1", 0))
    counted = multiprocessing.Value("Q", 0, lock=False)
    target = multiprocessing.Process(target=count_datagrams, args=(server, counted), daemon=True)
    target.start()
    port = free_port(socket.SOCK_DGRAM)
    process, _ = gateway(program, {
        "id": "udp", "listen_port": port, "backend_scheme": "udp", "backend_host": "127.0.0.1",
        "backend_port": server.getsockname()[1], "udp_idle_timeout": 1, "udp_max_sessions": 100_000})
    before, peak, sent, lost = rss(process.pid), 0, 0, 0
    most = min(WAVE, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1000)
    while sent < total:
        wave = min(most, total - sent)
        for n in range(sent, sent + wave):
            # An address of its own for each: the whole of 127.0.0.0/8 is here.
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.bind((f"127.{1 + (n >> 16) % 250}.{n >> 8 & 255}.{n & 255}", 9))
                client.sendto(b"x", ("127.0.0.1", port))
            if n % 100 == 99:
                until = time.monotonic() + 2
                while counted.value + lost < n - 50 and time.monotonic() < until:
                    time.sleep(0.001)
                lost = max(lost, n - 50 - counted.value)
        sent += wave
        peak = max(peak, rss(process.pid))
        time.sleep(1.4)
    time.sleep(3)
    # The allocator gives pages back in its own time.
    until = time.monotonic() + 30
    while rss(process.pid) > before + RETURN_MIB * 1024 and time.monotonic() < until:
        time.sleep(1)
    after = rss(process.pid)
    descriptors = len(os.listdir(f"/proc/{process.pid}/fd"))
    process.terminate()
    process.wait(30)
    target.kill()
    print(f"{total} UDP sessions, {most} at a time: {before} KiB before, {peak} KiB at the peak, {after} KiB after; "
          f"{counted.value} first datagrams arrived; {descriptors} descriptors left open")
    return after <= before + RETURN_MIB * 1024 and counted.value == total


ASK = (b"GET /ws HTTP/1.1\r\nhost: a.test\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
       b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
HELLO = b"\x82\x85\0\0\0\0hello"


def websockets(program, bench, total):
    backend = subprocess.Popen([bench, "backend", "-p", "http", "--threads", "1"], stdout=subprocess.PIPE, text=True)
    target = json.loads(backend.stdout.readline())["http"].rsplit(":", 1)[1]
    process, port = gateway(program, {
        "id": "ws", "listen_path": "/", "backend_scheme": "http", "backend_host": "127.0.0.1",
        "backend_port": int(target), "strip_listen_path": False})
    clients = []

    def opened():
        client = socket.create_connection(("127.0.0.1", port), 20)
        client.sendall(ASK)
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(4096)
        if not head.startswith(b"HTTP/1.1 101"):
            sys.exit(f"no WebSocket: {head!r}")
        client.sendall(HELLO)
        got = head.partition(b"\r\n\r\n")[2]
        while len(got) < 7:
            got += client.recv(4096)
        clients.append(client)

    # The first ones pay for what all share.
    for _ in range(100):
        opened()
    before = rss(process.pid)
    for _ in range(total):
        opened()
    time.sleep(2)
    each = (rss(process.pid) - before) / total
    for client in clients:
        client.close()
    time.sleep(3)
    after = rss(process.pid)
    for each_process in (process, backend):
        each_process.terminate()
        each_process.wait(30)
    print(f"{total} idle WebSockets: {each:.1f} KiB each; {before} KiB before, {after} KiB once they are gone")
    return each <= WEBSOCKET_KIB


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gateway", default=str(ROOT / "target" / "release" / "ferrum-edge"))
    parser.add_argument("--bench", default=str(ROOT / "target" / "release" / "proto_bench"))
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--websockets", type=int, default=10_000)
    args = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    held = websockets(args.gateway, args.bench, args.websockets) if args.websockets else True
    if args.sessions:
        held = udp_sessions(args.gateway, args.sessions) and held
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
