"""An original and the gateway with its import, side by side, before targets that tell what reached them."""

import dataclasses
import http.client
import json
import os
import re
import socket
import socketserver
import subprocess
import threading

from importing.drawing import without
from importing.known import plain
from stand import Failed, Server, free_ports, wait_for

# Fields of requests that the two programs are known to write each in its own way.
OWN_REQUEST_FIELDS = frozenset("""accept-encoding authorization connection content-length forwarded keep-alive te
transfer-encoding upgrade user-agent via x-consumer-groups x-consumer-id x-consumer-username x-credential-identifier
x-forwarded-for x-forwarded-host x-forwarded-port x-forwarded-proto x-real-ip x-request-id""".split())
# The same of responses.
OWN_RESPONSE_FIELDS = frozenset("""accept-ranges allow alt-svc cache-status connection content-length content-type date
etag keep-alive last-modified location proxy-connection proxy-status retry-after server transfer-encoding vary via
www-authenticate x-origin x-request-id""".split())
UNRESERVED = re.compile("%(2d|2e|5f|7e|3[0-9]|[46][1-9a-f]|[57][0-9a])", re.I)
NAMED = ("converted", "not needed")  # Outcomes in an import's report that lose nothing.


@dataclasses.dataclass(frozen=True)
class Answer:
    """What came back for a request; `status` is 444 where the connection was closed, and 0 where nothing came."""

    status: int
    target: str = ""
    location: str = ""
    text: str = ""
    seen: tuple = ()
    fields: tuple = ()


@dataclasses.dataclass(frozen=True)
class Difference:
    """A request that was answered in two ways.

    `resolved` is what the original says to the path without dot segments, where it has some, and how that differs.
    """

    kind: str
    request: tuple
    theirs: Answer
    ours: Answer
    resolved: Answer | None = None
    resolved_kind: str = ""

    def signature(self):
        return self.kind, self.theirs.status, self.ours.status // 100

    def __str__(self):
        method, host, path, field = self.request
        told = [f"{method} {path}, Host: {host}" + (f", {field!r}" if field else "")]
        for who, one, other in (("original", self.theirs, self.ours), ("gateway", self.ours, self.theirs)):
            parts = {name: value for name, value in dataclasses.asdict(one).items() if value}
            for name in ("seen", "fields"):
                if name in parts:
                    parts[name] = [line for line in parts[name] if line not in getattr(other, name)]
            told.append(f"{who}: " + ", ".join(f"{name} {value}" for name, value in parts.items() if value))
        return "\n      ".join(told)


@dataclasses.dataclass
class Outcome:
    """What came of one configuration.

    `invalid` has the original's refusal of it, `trouble` what went wrong with the import or the gateway, and `losses`
    are what the import's report names.
    """

    invalid: str = ""
    trouble: str = ""
    losses: list = dataclasses.field(default_factory=list)
    differences: list = dataclasses.field(default_factory=list)


class Target(socketserver.StreamRequestHandler):
    """Answers every request with what it saw of it."""

    def handle(self):
        try:
            while head := self.head():
                self.answer(*head)
        except (OSError, ValueError):
            pass

    def head(self):
        """The first line and the fields of the next request, with its body read."""
        lines = []
        while (line := self.rfile.readline()).strip():
            lines.append(line.decode("latin-1").strip())
        if not lines:
            return None
        sizes = [int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")]
        self.rfile.read(sizes[0] if sizes else 0)
        if any(line.lower().startswith("transfer-encoding:") for line in lines):
            while size := int(self.rfile.readline().split(b";")[0], 16):
                self.rfile.read(size + 2)
            self.rfile.readline()
        return lines[0], lines[1:]

    def answer(self, line, fields):
        body = json.dumps([line, *fields])
        head = ["HTTP/1.1 200 OK", f"X-Origin: {self.server.name}", "X-Secret: s3", "X-Powered-By: php",
                "Content-Type: text/plain", "Cache-Control: max-age=5", f"Content-Length: {len(body)}", "", ""]
        self.wfile.write(("\r\n".join(head) + ("" if line.startswith("HEAD") else body)).encode())


def start_targets():
    """Four targets: name to port."""
    ports = {}
    for name in "ABCD":
        server = Server(Target)
        server.name, ports[name] = name, server.port
        threading.Thread(target=server.serve_forever, daemon=True).start()
    return ports


def field_lines(fields, without):
    return tuple(sorted(f"{name.lower()}: {value.strip()}" for name, value in fields if name.lower() not in without))


def seen_by_target(body):
    """The request as the target told it, without what each program writes in its own way."""
    line, *fields = json.loads(body)
    line = re.sub(r"\??( HTTP/1\.[01])?$", "", line)
    line = UNRESERVED.sub(lambda found: chr(int(found[1], 16)), line)
    return (line, *field_lines([field.partition(":")[::2] for field in fields], OWN_REQUEST_FIELDS))


def send(port, request):
    """One request by hand; the response, and its body."""
    method, host, path, field = request
    body = "hi" if method in ("POST", "PUT") else ""
    head = [f"{method} {path} HTTP/1.1", f"host: {host}", *([field] if field else []),
            *(["content-length: 2"] if body else []), "connection: close", "", body]
    with socket.create_connection(("127.0.0.1", port), 3) as client:
        client.sendall("\r\n".join(head).encode("latin-1"))
        response = http.client.HTTPResponse(client, method=method)
        response.begin()
        return response, response.read().decode("latin-1")


def ask(ports, request):
    """The answer to a request; one for `HOST@2` goes to the second port."""
    method, host, path, field = request
    host, second, _ = host.partition("@2")
    port, request = ports[1] if second else ports[0], (method, host, path, field)
    try:
        response, body = send(port, request)
    except TimeoutError:
        return Answer(0)
    except (OSError, http.client.HTTPException):
        return Answer(444)
    fields, target = response.getheaders(), response.getheader("x-origin", "")
    location = response.getheader("location", "").replace(f":{port}", "")
    bare = re.escape(host.split(":")[0].rstrip("."))
    location = re.sub(rf"^http://({bare}\.?|{re.escape(host)})(?=/|$)", "", location, flags=re.I)
    kind = response.getheader("content-type", "").split(";")[0]
    fixed = not target and response.status == 200 and body and "<html" not in body
    told = [line for line in field_lines(fields, OWN_RESPONSE_FIELDS) if target or line != "cache-control: no-cache"]
    return Answer(response.status, target, location, f"{kind} {body}" if fixed else "",
                  seen_by_target(body) if target and method != "HEAD" and response.status == 200 else (), tuple(told))


def own_error(answer):
    return not answer.target and answer.status >= 400


def refused(answer):
    return own_error(answer) and answer.status not in (502, 504)


def compare(theirs, ours):
    """The kind of a difference: `OPEN` when a target answers what the original refuses."""
    if theirs == ours or not theirs.status or own_error(theirs) and refused(ours):
        return ""
    if refused(theirs):
        return "OPEN" if ours.target else "answered"
    if refused(ours):
        return "refused"
    parts = ("status", "target", "location", "text", "seen", "fields")
    return next((part for part in parts if getattr(theirs, part) != getattr(ours, part)), "")


class Pair:
    """Runs configurations of one original beside their import."""

    def __init__(self, stand, original, program):
        self.stand, self.original, self.program = stand, original, program
        self.targets, self.folder = start_targets(), stand.folder

    def filled(self, text, ports, dead):
        """A configuration with addresses and folders."""
        for name, target in self.targets.items():
            text = text.replace(f"@{name}@", f"127.0.0.1:{target}")
        text = text.replace("@DEAD@", f"127.0.0.1:{dead}").replace("@PORT@", str(ports[0]))
        text = text.replace("@PORT2@", str(ports[1]))
        return text.replace("@DIR@", str(self.folder.path))

    def start(self, command, port, log):
        """A process that listens, or why it does not."""
        self.folder.write(log, "")
        home = {name: str(self.folder.path) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
        process = self.stand.processes.start(command, log, env={**os.environ, **home}, stdin=subprocess.DEVNULL)
        for _ in range(100):
            if process.poll() is not None:
                break
            try:
                wait_for(port, 0.03)
                return process, ""
            except Failed:
                continue
        self.stop(process)
        return None, self.log(log) or "it does not listen"

    def stop(self, process):
        process.kill()
        process.wait()
        self.stand.processes.all.remove(process)

    def log(self, name):
        return (self.folder.path / name).read_text(errors="replace").strip()

    def run(self, text, requests):
        """Starts both and sends the same to both."""
        dead, *ports = free_ports(5)
        theirs, ours = ports[:2], ports[2:]
        file = self.folder.write(self.original.FILE, self.filled(text, theirs, dead))
        if "@PORT2@" not in text:
            theirs, ours = [theirs[0]] * 2, [ours[0]] * 2
        command = self.original.command(self.program, file, str(self.folder.path))
        process, why = self.start(command, theirs[0], "original.log")
        if not process:
            return Outcome(invalid=why)
        try:
            return self.beside(file, requests, theirs, ours)
        finally:
            self.stop(process)

    def imported(self, file):
        """The gateway's configuration for a file, and what the report says is lost or differs."""
        report = self.folder.file("report.json")
        command = [self.stand.args.gateway, "import", "--from", self.original.FORMAT, "--report", report, file]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            raise Failed(f"import ends with {done.returncode}: {done.stderr[-800:]}")
        with open(report) as read:
            found = [one for one in json.load(read)["findings"] if one["outcome"] not in NAMED]
        return done.stdout, [one for one in found if "default_bind" not in one["what"]]

    def unnamed(self, tree):
        """A tree without what its report names, so that whatever differs is nowhere named."""
        dead, *port = free_ports(3)
        for _ in range(4):
            file = self.folder.write(self.original.FILE, self.filled(self.original.write(tree), port, dead))
            try:
                _, losses = self.imported(file)
            except Failed:
                break
            if not losses:
                break
            tree, _ = without(tree, {one["line"] for one in losses}, self.original.ENDS)
        return tree

    def beside(self, file, requests, theirs, ours):
        """The import of a file that the original serves, and its requests."""
        try:
            written, losses = self.imported(file)
        except Failed as error:
            return Outcome(trouble=str(error))
        outcome = Outcome(losses=losses)
        for one, other in zip(theirs, ours):
            # Conditions name ports, too.
            written = re.sub(rf"(?<=[:-])( ?){one}\b", rf"\g<1>{other}", written)
        spec = self.folder.write("gateway.yaml", written)
        command = [self.stand.args.gateway, "run", "--admin-port", "0", "--spec", spec]
        edge, why = self.start(command, ours[0], "gateway.log")
        if not edge:
            outcome.trouble = f"the import does not start: {why[-1500:]}"
            return outcome
        try:
            outcome.differences = [found for each in requests if (found := self.difference(each, theirs, ours))]
            ended = edge.poll()
        finally:
            self.stop(edge)
        if ended is not None or "panicked" in self.log("gateway.log"):
            outcome.trouble = f"the gateway panicked or ended: {self.log('gateway.log')[-1500:]}"
        return outcome

    def difference(self, request, theirs, ours):
        """What differs twice: the first request of a program that just started may be lost."""
        for _ in range(2):
            one, other = ask(theirs, request), ask(ours, request)
            kind = compare(one, other)
            if not kind:
                return None
        method, host, path, field = request
        if plain(path) == path:
            return Difference(kind, request, one, other)
        resolved = ask(theirs, (method, host, plain(path) or "/", field))
        return Difference(kind, request, one, other, resolved, compare(resolved, other))
