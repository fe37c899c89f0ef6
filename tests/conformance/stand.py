"""What the suites share: the gateway under test, origins, certificates, ports, and the score of a suite."""

import dataclasses
import json
import os
import pathlib
import shutil
import socket
import socketserver
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TOOLS = pathlib.Path(os.environ.get("CONFORMANCE_TOOLS", ROOT / "target" / "conformance"))


class Failed(Exception):
    """A check failed."""


class Missing(Exception):
    """A program that the suite needs is not installed."""


@dataclasses.dataclass
class Score:
    """What came out of one suite: how many cases passed, and which did not.

    `known` are failures that are meant to be, each with its reason; `failed` are those nobody expected.
    """

    suite: str
    passed: int = 0
    total: int = 0
    known: list = dataclasses.field(default_factory=list)
    excused: int = 0  # cases of `known` beyond one for each line of it
    failed: list = dataclasses.field(default_factory=list)

    def add(self, case, error, known=()):
        """Counts a case; `error` is None where it passed. `known` has pairs of a part of a case's name and a reason."""
        self.total += 1
        if error is None:
            self.passed += 1
            return
        reason = next((reason for part, reason in known if part in case), None)
        if reason is None:
            self.failed.append((case, str(error)))
        else:
            self.known.append((case, reason))

    def check(self, case, function, *args, known=()):
        """Runs a case that raises when it fails."""
        try:
            function(*args)
        except (Failed, OSError, EOFError, subprocess.TimeoutExpired) as error:
            self.add(case, f"{type(error).__name__}: {error}" if not isinstance(error, Failed) else error, known)
        else:
            self.add(case, None)


def tool(name, *others):
    """A program that `setup.sh` or the system installed."""
    found = shutil.which(str(TOOLS / name)) or shutil.which(str(TOOLS / "venv" / "bin" / name))
    for each in (name, *others):
        found = found or shutil.which(each) or shutil.which(each, path="/usr/sbin:/sbin")
    if not found:
        raise Missing(name)
    return found


def free_ports(count):
    """Ports nobody uses, for TCP and UDP alike."""
    held, ports = [], []
    while len(ports) < count:
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        tcp.bind(("127.0.0.1", 0))
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        held += [tcp, udp]
        try:
            udp.bind(tcp.getsockname())
        except OSError:
            continue
        ports.append(tcp.getsockname()[1])
    for each in held:
        each.close()
    return ports


def wait_for(port, seconds=30):
    """Waits until somebody listens on a TCP port."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise Failed(f"nobody listens on port {port}")


def run(command, wanted=None, text=None, timeout=60):
    """Runs a command that has to succeed, and to say `wanted`."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise Failed(f"{command[0]} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-600:]}")
    if wanted is not None and wanted not in done.stdout:
        raise Failed(f"{command[0]} said {done.stdout.strip()[-300:]!r}, not {wanted!r}")
    return done.stdout


class Folder:
    """A temporary folder with a CA and certificates of it."""

    def __init__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="conformance-"))

    def file(self, name):
        return str(self.path / name)

    def write(self, name, text):
        (self.path / name).write_text(text)
        return self.file(name)

    def authority(self, name="ca", by=None):
        """A CA, or one below another."""
        signed = ["-CA", self.file(f"{by}.pem"), "-CAkey", self.file(f"{by}-key.pem")] if by else []
        run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", *signed,
             "-subj", f"/CN=conformance {name}", "-addext", "basicConstraints=critical,CA:TRUE",
             "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout", self.file(f"{name}-key.pem"),
             "-out", self.file(f"{name}.pem")])

    def certificate(self, name="cert", key="ec", names=("localhost",), by="ca"):
        """`NAME.pem` and `NAME-key.pem`, for some names and 127.0.0.1; `key` is `ec` or `rsa`."""
        kind = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"] if key == "ec" else ["rsa:2048"]
        listed = ",".join([f"DNS:{each}" for each in names] + ["IP:127.0.0.1"])
        run(["openssl", "req", "-x509", "-newkey", *kind, "-nodes", "-days", "2", "-CA", self.file(f"{by}.pem"),
             "-CAkey", self.file(f"{by}-key.pem"), "-subj", f"/CN={names[0]}", "-addext", f"subjectAltName={listed}",
             "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", self.file(f"{name}-key.pem"),
             "-out", self.file(f"{name}.pem")])
        return {"cert_path": self.file(f"{name}.pem"), "key_path": self.file(f"{name}-key.pem")}

    def append(self, name, other):
        """Puts another file behind one."""
        self.write(name, (self.path / name).read_text() + (self.path / other).read_text())

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)


class Processes:
    """Programs in the background that end with the suite."""

    def __init__(self, folder):
        self.folder, self.all = folder, []

    def start(self, command, log="processes.log", **options):
        with open(self.folder.file(log), "a") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, **options)
        self.all.append(process)
        return process

    def end(self):
        for process in reversed(self.all):
            process.terminate()
        for process in self.all:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


class Stand:
    """A folder and the programs in it, as a context: `with Stand(args) as stand`."""

    def __init__(self, args):
        self.args, self.folder = args, Folder()
        self.processes = Processes(self.folder)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.processes.end()
        if kind is None and not self.args.keep:
            self.folder.remove()
        else:
            print(f"     files and logs are in {self.folder.path}")

    def gateway(self, spec, ready, environment=None, options=()):
        """The gateway with a configuration; `ready` is the TCP port that tells when it serves."""
        path = self.folder.write("spec.yaml", json.dumps(spec))
        process = self.processes.start([self.args.gateway, "run", "--spec", path, "-v", *options], "gateway.log",
                                       env={**os.environ, **(environment or {})})
        try:
            wait_for(ready)
        except Failed as error:
            raise Failed(f"{error}: {pathlib.Path(self.folder.file('gateway.log')).read_text()[-800:]}") from error
        return process

    def backend(self):
        """The echo servers of proto_bench: protocol to port."""
        process = subprocess.Popen([self.args.bench, "backend", "--threads", "1"], stdout=subprocess.PIPE, text=True)
        self.processes.all.append(process)
        where = json.loads(process.stdout.readline())
        return {name: int(address.rsplit(":", 1)[1]) for name, address in where.items() if name != "pid"}


class Server(socketserver.ThreadingTCPServer):
    """A TCP server whose connections each get a thread; `port` is where it listens."""

    daemon_threads, allow_reuse_address = True, True

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.port = self.server_address[1]

    def handle_error(self, request, client_address):
        pass
