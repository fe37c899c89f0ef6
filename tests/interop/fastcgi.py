#!/usr/bin/env python3
"""Measures what a PHP request costs in the gateway and in nginx, in front of the same PHP-FPM, in slices in turns.

Usage: tests/interop/fastcgi.py [--gateway PROGRAM] [--bench PROGRAM] [--slices 9] [--seconds 2] [--connections 8] [--size 1000]
           [--closing] [--most 0.9]

One core has the subject, the other one PHP-FPM and the load generator. Figures are user and system CPU time of the subject's process alone, by
request. Exits 1 when the gateway's median is more than `--most` of nginx's. Needs nginx, php-fpm and a machine that does nothing else.
"""

import argparse
import glob
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


# Connections that nginx keeps to PHP-FPM; each keeps one of its processes, also while the gateway is measured.
MOST_KEPT = 16


def free_port():
    with socket.socket() as tcp:
        tcp.bind(("127.0.0.1", 0))
        return tcp.getsockname()[1]


def pinned(core):
    return lambda: os.sched_setaffinity(0, {core % os.cpu_count()})


def start(command, core, **options):
    return subprocess.Popen(command, preexec_fn=pinned(core), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)


def wait(port):
    for _ in range(200):
        with socket.socket() as tcp:
            if tcp.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit(f"nothing listens on port {port}")


def php(folder, size):
    (folder / "www").mkdir()
    (folder / "www/index.php").write_text(f"<?php header('Content-Type: text/plain'); echo str_repeat('x', {size});")
    (folder / "fpm.conf").write_text(f"[global]\nerror_log = {folder}/fpm.log\ndaemonize = no\n[www]\nlisten = {folder}/fpm.sock\npm = static\n"
                                     f"pm.max_children = {4 * MOST_KEPT}\nlisten.mode = 0666\nuser = nobody\ngroup = nogroup\n")
    program = sorted(glob.glob("/usr/sbin/php-fpm*"))[-1]
    process = start([program, "-y", str(folder / "fpm.conf"), "-R"], 1)
    for _ in range(200):
        if (folder / "fpm.sock").exists():
            return process
        time.sleep(0.05)
    sys.exit("php-fpm does not start")


def nginx(folder, port, keeps):
    kept, keep = (f"keepalive {MOST_KEPT};", "fastcgi_keep_conn on;") if keeps else ("", "")
    (folder / "nginx.conf").write_text(f"""
worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log; daemon off; master_process off;
events {{}}
http {{
  access_log off; keepalive_requests 100000000; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream php {{ server unix:{folder}/fpm.sock; {kept} }}
  server {{
    listen 127.0.0.1:{port}; root {folder}/www;
    location / {{ include /etc/nginx/fastcgi_params; fastcgi_param SCRIPT_FILENAME $document_root/index.php; {keep} fastcgi_pass php; }}
  }}
}}""")
    return start(["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")], 0)


def gateway(program, folder, port, keeps):
    head = {"http": f"127.0.0.1:{port}", "https": "off", "admin": "off", "workers": 1}
    proxy = {"id": "php", "listen_path": "/", "backend_protocol": "fastcgi", "backend_host": f"unix:{folder}/fpm.sock",
             "fastcgi": {"root": f"{folder}/www", "index": "index.php", "keep_alive": keeps}}
    (folder / "spec.yaml").write_text(f"gateway: {json.dumps(head)}\nproxies:\n  - {json.dumps(proxy)}\n")
    return start([program, "run", "--spec", str(folder / "spec.yaml")], 0)


def cost(args, port, pid):
    """Microseconds of CPU time a request."""
    command = [args.bench, "run", f"http://127.0.0.1:{port}/", "--expect-size", str(args.size), "--pid", str(pid), "-c", str(args.connections),
               "-t", "1", "-w", "300ms", "-d", f"{args.seconds}s", "-q", "--json", "-"]
    done = subprocess.run(command, capture_output=True, preexec_fn=pinned(1), check=False)
    taken = json.loads(done.stdout)["rows"][0]["rounds"][0]
    if taken["faults"] or set(taken["statuses"]) != {"200"}:
        sys.exit(f"port {port}: {taken['faults']} {taken['statuses']}")
    return taken["subject"]["cpu_us_per_request"], taken["rate"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateway", default=str(ROOT / "target/release/ferrum-edge"))
    parser.add_argument("--bench", default=str(ROOT / "target/release/proto_bench"))
    parser.add_argument("--slices", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--closing", action="store_true", help="closes the connection to PHP-FPM after each request, as both do by default")
    parser.add_argument("--most", type=float, default=0.9)
    args = parser.parse_args()
    processes = []
    with tempfile.TemporaryDirectory(prefix="fastcgi-") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        try:
            processes.append(php(folder, args.size))
            ports = {"nginx": free_port(), "gateway": free_port()}
            subjects = {"nginx": nginx(folder, ports["nginx"], not args.closing), "gateway": gateway(args.gateway, folder, ports["gateway"], not args.closing)}
            processes += subjects.values()
            for port in ports.values():
                wait(port)
            figures = {who: [] for who in subjects}
            for _ in range(args.slices):
                for who, process in subjects.items():
                    figures[who].append(cost(args, ports[who], process.pid))
        finally:
            for process in processes:
                process.terminate()
                process.wait()
    medians = {}
    for who, all_of_it in figures.items():
        costs = sorted(us for us, _ in all_of_it)
        medians[who] = statistics.median(costs)
        rate = statistics.median(rate for _, rate in all_of_it)
        print(f"{who:8} {medians[who]:6.1f} us a request ({costs[0]:.1f} to {costs[-1]:.1f}), {rate:.0f}/s")
    ratio = medians["gateway"] / medians["nginx"]
    print(f"gateway / nginx: {ratio:.2f}")
    sys.exit(ratio > args.most)


if __name__ == "__main__":
    main()
