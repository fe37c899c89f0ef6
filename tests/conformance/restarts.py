"""Ten protocols under load while the gateway is replaced twenty times: no request is lost.

proto_bench loads every protocol at once, checks each byte of each answer, and fails a run with a single fault. Meanwhile successors
take over with `--replace`, with more and fewer workers, and some successors are killed at their start. Streams and WebSockets stay
with the gateway that opened them (`drain_streams: wait`).
"""

import json
import os
import pathlib
import signal
import subprocess
import time

from stand import Failed, Score, Stand, free_ports, wait_for

RESTARTS = 20
# From one restart to the next.
PAUSE = 1.5
CONNECTIONS = 4
WORKERS = [2, 3, 1, 2]
# Successors that are killed so many seconds after their start, by the number of their restart; the gateway before them goes on.
KILLED = {4: 0.0, 9: 0.02, 14: 0.1}


def spec(stand, ports, backend, workers):
    def proxy(name, scheme, target, **more):
        return {"id": name, "backend_scheme": scheme, "backend_host": "127.0.0.1", "backend_port": backend[target], **more}

    def web(name, target, scheme="http"):
        return proxy(name, scheme, target, listen_path=f"/{name}", strip_listen_path=False, backend_http_version="1.1")

    http, https, admin, tcp, tls, udp, dtls = ports
    return {
        "gateway": {
            "http": f"127.0.0.1:{http}", "https": f"127.0.0.1:{https}", "http3": True, "admin": f"127.0.0.1:{admin}", "workers": workers,
            "stream_address": "127.0.0.1", "drain_timeout": "60s", "drain_streams": "wait",
            "tls": {"certificates": [stand.folder.certificate()]},
        },
        "proxies": [
            web("web", "http"),
            proxy("grpc", "http", "h2c", listen_path="/bench.Echo", strip_listen_path=False, backend_http_version="2"),
            proxy("tcp", "tcp", "tcp", listen_port=tcp),
            proxy("tls", "tcp", "tcp", listen_port=tls, frontend_tls=True),
            proxy("udp", "udp", "udp", listen_port=udp),
            proxy("dtls", "udp", "udp", listen_port=dtls, frontend_tls=True),
        ],
    }


def urls(ports):
    http, https, _, tcp, tls, udp, dtls = ports
    return {
        "HTTP/1.1": f"http://127.0.0.1:{http}/web", "HTTP/1.1 over TLS": f"https://127.0.0.1:{https}/web",
        "HTTP/2": f"h2://127.0.0.1:{https}/web", "HTTP/3": f"h3://127.0.0.1:{https}/web", "gRPC": f"grpc://127.0.0.1:{http}",
        "WebSocket": f"ws://127.0.0.1:{http}/web", "TCP": f"tcp://127.0.0.1:{tcp}", "TLS": f"tls://127.0.0.1:{tls}",
        "UDP": f"udp://127.0.0.1:{udp}", "DTLS": f"dtls://127.0.0.1:{dtls}",
    }


class Gateways:
    """The gateway of a pid file, and those that it replaced."""

    def __init__(self, stand, write):
        self.stand, self.write, self.started = stand, write, 0

    def start(self):
        path = self.write(WORKERS[self.started % len(WORKERS)])
        self.started += 1
        return self.stand.processes.start(
            [self.stand.args.gateway, "run", "--spec", path, "--pid-file", self.stand.folder.file("pid"), "--replace"], "gateway.log",
            env={**os.environ, "FERRUM_STATE": self.stand.folder.file("state")})

    def current(self):
        return int(pathlib.Path(self.stand.folder.file("pid")).read_text())

    def replace(self, number):
        before, process = self.current(), self.start()
        if number in KILLED:
            time.sleep(KILLED[number])
            process.kill()
            process.wait()
            return
        until = time.monotonic() + 20
        while self.current() != process.pid:
            if process.poll() is not None or time.monotonic() > until:
                raise Failed(f"restart {number}: {before} was not replaced (exit code {process.poll()})")
            time.sleep(0.02)


def load(stand, name, url, seconds):
    method = [] if name in ("TCP", "TLS", "UDP", "DTLS", "WebSocket", "gRPC") else ["--method", "POST"]
    return subprocess.Popen([stand.args.bench, "run", url, "-c", str(CONNECTIONS), "-t", "1", "-w", "1s", "-d", f"{seconds}s", *method,
                             "-q", "--json", stand.folder.file(f"{name.replace('/', '-')}.json")],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def suites(args):
    score = Score("restarts")
    with Stand(args) as stand:
        stand.folder.authority()
        backend, ports = stand.backend(), free_ports(7)

        def write(workers):
            return stand.folder.write("spec.yaml", json.dumps(spec(stand, ports, backend, workers)))

        gateways = Gateways(stand, write)
        gateways.start()
        try:
            wait_for(ports[0])
        except Failed as error:
            raise Failed(f"{error}: {pathlib.Path(stand.folder.file('gateway.log')).read_text()[-800:]}") from error
        seconds = int(RESTARTS * (PAUSE + 1)) + 5
        loads = {name: load(stand, name, url, seconds) for name, url in urls(ports).items()}
        time.sleep(2)
        for number in range(RESTARTS):
            gateways.replace(number)
            time.sleep(PAUSE)
        for name, process in loads.items():
            said, _ = process.communicate(timeout=seconds + 60)
            error = None if process.returncode == 0 else said.strip()[-600:]
            score.add(f"{name}: {RESTARTS} restarts", error)
        os.kill(gateways.current(), signal.SIGTERM)
    return [score]
