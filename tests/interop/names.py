#!/usr/bin/env python3
"""Measures what a TLS connection that is forwarded by server name costs beside many names: one proxy with one name, and many proxies.

Usage: tests/interop/names.py [--gateway PROGRAM] [--bench PROGRAM] [--proxies 1000] [--names 10] [--slices 9] [--seconds 2] [--most 1.02]

Two gateways with one worker each, on one core; the backend and the load generator, which checks every answer, have the other one. Each
request is a new connection, whose name is in the middle of the list. Figures are user and system CPU time of the gateway by connection, in
slices in turns. Exits 1 when the median of the ratios is more than `--most`, or when descriptors or memory are left behind. Needs a machine
that does nothing else.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from fastcgi import ROOT, free_port, pinned, start, wait

NAME = "localhost"


def gateway(program, folder, backend, proxies, names):
    """Starts a gateway whose proxies have so many names each, on one port. Returns the port and the process."""
    port = free_port()
    head = {"http": "off", "https": "off", "admin": "off", "workers": 1}
    lines = [f"gateway: {json.dumps(head)}", "proxies:"]
    for number in range(proxies):
        hosts = [f"name-{number}-{name}.example.test" for name in range(names)]
        if number == proxies // 2:
            hosts[names // 2] = NAME
        lines.append("  - " + json.dumps({"id": f"p{number}", "listen_port": port, "backend_scheme": "tcp", "passthrough": True, "hosts": hosts,
                                          "backend_host": "127.0.0.1", "backend_port": backend}))
    spec = folder / f"{proxies}.yaml"
    spec.write_text("\n".join(lines) + "\n")
    process = start([program, "run", "--spec", str(spec)], 0)
    wait(port)
    return port, process


def cost(args, port, pid):
    """Microseconds of CPU time a connection, and connections a second."""
    command = [args.bench, "run", f"tls://{NAME}:{port}", "--fresh", "--pid", str(pid), "-c", "8", "-t", "1", "-w", "300ms", "-d",
               f"{args.seconds}s", "-q", "--json", "-"]
    done = subprocess.run(command, capture_output=True, preexec_fn=pinned(1), check=False)
    taken = json.loads(done.stdout)["rows"][0]["rounds"][0]
    if taken["faults"]:
        sys.exit(f"port {port}: {taken['faults']}")
    return taken["subject"]["cpu_us_per_request"], taken["rate"]


def held(pid):
    """Descriptors, and KiB of anonymous memory."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))
    return len(os.listdir(f"/proc/{pid}/fd")), memory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateway", default=str(ROOT / "target/release/ferrum-edge"))
    parser.add_argument("--bench", default=str(ROOT / "target/release/proto_bench"))
    parser.add_argument("--proxies", type=int, default=1000)
    parser.add_argument("--names", type=int, default=10)
    parser.add_argument("--slices", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--most", type=float, default=1.02)
    args = parser.parse_args()
    processes = []
    with tempfile.TemporaryDirectory(prefix="names-") as name:
        folder = pathlib.Path(name)
        try:
            backend = subprocess.Popen([args.bench, "backend", "-p", "tls"], stdout=subprocess.PIPE, text=True, preexec_fn=pinned(1))
            processes.append(backend)
            port = int(json.loads(backend.stdout.readline())["tls"].rpartition(":")[2])
            subjects = {"one name": gateway(args.gateway, folder, port, 1, 1),
                        f"{args.proxies * args.names} names": gateway(args.gateway, folder, port, args.proxies, args.names)}
            processes += [process for _, process in subjects.values()]
            figures = {who: [] for who in subjects}
            for port, process in subjects.values():
                cost(args, port, process.pid)
            time.sleep(1)
            before = {who: held(process.pid) for who, (_, process) in subjects.items()}
            for _ in range(args.slices):
                for who, (port, process) in subjects.items():
                    figures[who].append(cost(args, port, process.pid))
            time.sleep(2)
            after = {who: held(process.pid) for who, (_, process) in subjects.items()}
        finally:
            for process in processes:
                process.terminate()
                process.wait()
    for who, all_of_it in figures.items():
        costs = sorted(us for us, _ in all_of_it)
        rate = statistics.median(rate for _, rate in all_of_it)
        print(f"{who:14} {statistics.median(costs):6.1f} us a connection ({costs[0]:.1f} to {costs[-1]:.1f}), {rate:.0f}/s; "
              f"descriptors {before[who][0]} -> {after[who][0]}, KiB {before[who][1]} -> {after[who][1]}")
    one, many = figures.values()
    ratio = statistics.median(many[n][0] / one[n][0] for n in range(args.slices))
    print(f"many / one: {ratio:.3f}")
    left = any(after[who][0] > before[who][0] + 8 or after[who][1] > before[who][1] * 1.1 + 1024 for who in subjects)
    sys.exit(ratio > args.most or left)


if __name__ == "__main__":
    main()
