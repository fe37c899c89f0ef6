#!/usr/bin/env python3
"""What 1,000 wrong logins a second, and a million distinct callers of a rate limit, cost other traffic.

Usage: tests/interop/admission.py [--gateway PROGRAM] [--seconds N] [--keys N] [--workers N]
A client asks for a fixed answer 200 times a second, first alone, then beside each load; prints its latencies, what became of the
logins, and the gateway's memory. Exits 1 when a request of that client fails, a login is let in, or the keys take more memory than is
configured and 16 MiB. Latencies are printed and not judged: this script takes processor time as well.
"""

import argparse
import asyncio
import base64
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HASH = "$2b$10$abcdefghijklmnopqrstuu23JPZtHcGhwXSF41f93o/7vBdDut3Xu"
PROBES = 200
LOGINS = 1000
PIPELINE = 100
KEY_BYTES = 32
ROOM_MIB = 16


def spec(port, keys, workers):
    fixed = {"plugin_name": "request_termination", "scope": "proxy", "config": {"status_code": 200, "body": "ok"}}
    target = {"backend_host": "127.0.0.1", "backend_port": 1}
    return {
        "gateway": {"http": f"127.0.0.1:{port}", "https": "off", "admin": "off", "workers": workers},
        "consumers": [{"id": "ann", "username": "ann", "credentials": {"basic_auth": {"password_hash": HASH}}}],
        "proxies": [{"id": name, "listen_path": f"/{name}", **target} for name in ("open", "login", "keys")],
        "plugin_configs": [
            {"id": "fixed-open", "proxy_id": "open", **fixed},
            {"id": "fixed-login", "proxy_id": "login", "after": "basic_auth", **fixed},
            {"id": "fixed-keys", "proxy_id": "keys", "after": "rate_limiting", **fixed},
            {"id": "passwords", "plugin_name": "basic_auth", "scope": "proxy", "proxy_id": "login", "config": {}},
            {"id": "limit", "plugin_name": "rate_limiting", "scope": "proxy", "proxy_id": "keys",
             "config": {"limits": [{"rate": 10, "per": "1m"}], "limit_by": "header:x-key", "max_keys": keys}},
        ],
    }


def rss(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS")


def start(program, keys, workers):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="admission-"))
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    (folder / "spec.json").write_text(json.dumps(spec(port, keys, workers)))
    log = open(folder / "log", "w")
    process = subprocess.Popen([program, "run", "--spec", str(folder / "spec.json")], stdout=log, stderr=log)
    until = time.monotonic() + 20
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process, port
        except OSError:
            time.sleep(0.1)
    process.kill()
    sys.exit((folder / "log").read_text())


async def answer(reader):
    """The status of one response, whose body is read."""
    head = await reader.readuntil(b"\r\n\r\n")
    lower = head.lower()
    length = int(lower.split(b"content-length:")[1].split(b"\r\n")[0]) if b"content-length:" in lower else 0
    await reader.readexactly(length)
    return int(head.split(b" ", 2)[1])


async def probe(port, until):
    """Latencies in milliseconds, by when each was due: waiting for the one before counts."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    took, begun, failed = [], time.monotonic(), 0
    while not until.is_set():
        due = begun + len(took) / PROBES
        await asyncio.sleep(max(0, due - time.monotonic()))
        writer.write(b"GET /open HTTP/1.1\r\nhost: a\r\n\r\n")
        failed += await answer(reader) != 200
        took.append((time.monotonic() - due) * 1000)
    writer.close()
    if failed:
        sys.exit(f"{failed} of {len(took)} other requests failed")
    return sorted(took)


def shown(name, took):
    at = lambda share: took[min(len(took) - 1, int(len(took) * share))]
    print(f"{name:32} {len(took):6} requests: p50 {at(0.5):.2f} ms, p99 {at(0.99):.2f} ms, worst {took[-1]:.2f} ms", flush=True)


async def beside(name, port, load):
    until = asyncio.Event()
    probing = asyncio.create_task(probe(port, until))
    result = await load
    until.set()
    shown(name, await probing)
    return result


async def logins(port, seconds):
    """Wrong logins at a fixed rate, each with a password of its own; how many got which status."""
    counts, numbers = {}, iter(range(LOGINS * seconds))
    begun = time.monotonic()

    async def one():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for n in numbers:
            await asyncio.sleep(max(0, begun + n / LOGINS - time.monotonic()))
            credentials = base64.b64encode(f"ann:wrong-{n}".encode()).decode()
            writer.write(f"GET /login HTTP/1.1\r\nhost: a\r\nauthorization: Basic {credentials}\r\n\r\n".encode())
            status = await answer(reader)
            counts[status] = counts.get(status, 0) + 1
        writer.close()

    await asyncio.gather(*(one() for _ in range(200)))
    print(f"  {sum(counts.values())} logins in {time.monotonic() - begun:.1f} s: {counts}")
    if 200 in counts:
        sys.exit("a wrong password was let in")


async def callers(port, keys):
    """As many requests as keys, each of another caller."""
    numbers, counts = iter(range(0, keys, PIPELINE)), {}

    async def one():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for first in numbers:
            for n in range(first, first + PIPELINE):
                writer.write(f"GET /keys HTTP/1.1\r\nhost: a\r\nx-key: {n}\r\n\r\n".encode())
            for _ in range(PIPELINE):
                status = await answer(reader)
                counts[status] = counts.get(status, 0) + 1
        writer.close()

    begun = time.monotonic()
    await asyncio.gather(*(one() for _ in range(8)))
    print(f"  {keys} keys in {time.monotonic() - begun:.1f} s: {counts}")


async def run(args, process, port):
    shown("alone", await alone(port, args.seconds))
    await beside(f"beside {LOGINS} wrong logins/s", port, logins(port, args.seconds))
    before = rss(process.pid)
    await beside(f"beside {args.keys} distinct keys", port, callers(port, args.keys))
    grown, limit = rss(process.pid) - before, args.keys * KEY_BYTES / 2**20 + ROOM_MIB
    print(f"  memory {before:.1f} MiB before, {grown:.1f} MiB more after; {limit - ROOM_MIB:.1f} MiB are configured")
    if grown > limit:
        sys.exit("that is more than is configured")


async def alone(port, seconds):
    until = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, until.set)
    return await probe(port, until)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateway", default=str(ROOT / "target/release/ferrum-edge"))
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    process, port = start(args.gateway, args.keys, args.workers)
    try:
        asyncio.run(run(args, process, port))
    finally:
        process.terminate()
        process.wait(20)


if __name__ == "__main__":
    main()
