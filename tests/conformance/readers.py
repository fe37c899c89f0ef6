"""Readers of HTTP/1.1 requests that forgive what RFC 9112 does not: each in its own way, as servers in the field do.

Whatever the gateway sends on must mean the same to all of them: as many requests, with the same first lines and bodies.
"""

import re


class Reader:
    """How one server reads. Every option is a leniency that some server has or had."""

    def __init__(self, name, **options):
        self.name = name
        self.bare_lf = options.get("bare_lf", False)              # a line ends with LF alone
        self.length_wins = options.get("length_wins", False)      # Content-Length before Transfer-Encoding
        self.last_length = options.get("last_length", False)      # the last of several lengths, not the first
        self.any_coding = options.get("any_coding", False)        # "chunked" anywhere in the field
        self.loose_names = options.get("loose_names", False)      # spaces, underscores, control bytes in names
        self.loose_size = options.get("loose_size", False)        # "0x5", "+5", "5 ;x", "5junk" as chunk sizes
        self.fold = options.get("fold", False)                    # a line that begins with a space goes on

    def line(self, data, at):
        """The line at a place and where the next one begins; None when it has no end."""
        end = data.find(b"\n" if self.bare_lf else b"\r\n", at)
        if end < 0:
            return None
        text = data[at:end]
        return (text[:-1] if self.bare_lf and text.endswith(b"\r") else text), end + (1 if self.bare_lf else 2)

    def head(self, data, at):
        """The lines of a head and where its body begins."""
        lines = []
        while True:
            found = self.line(data, at)
            if found is None:
                return None
            text, at = found
            if text == b"":
                if lines:
                    return lines, at
                continue
            if self.fold and lines and text[:1] in b" \t":
                lines[-1] += b" " + text.strip()
            else:
                lines.append(text)

    def fields(self, lines):
        lengths, codings = [], []
        for text in lines[1:]:
            name, _, value = text.partition(b":")
            name, value = name.lower(), value.strip(b" \t")
            if self.loose_names:
                name = re.sub(rb"[\x00-\x20\x7f-\xff]", b"", name).replace(b"_", b"-")
                value = value.strip(b"\x0b\x0c\x00 \t")
            if name == b"content-length":
                lengths += [part.strip() for part in value.split(b",")]
            elif name == b"transfer-encoding":
                codings += [part.strip().lower() for part in value.split(b",")]
        return lengths, codings

    def size(self, text):
        text = text.split(b";")[0]
        if not self.loose_size:
            return int(text, 16) if re.fullmatch(rb"[0-9a-fA-F]+", text) else None
        found = re.match(rb"[\s+]*(?:0[xX])?([0-9a-fA-F]+)", text)
        return int(found.group(1), 16) if found else None

    def chunks(self, data, at):
        body = b""
        while True:
            found = self.line(data, at)
            if found is None or (size := self.size(found[0])) is None:
                return None
            at = found[1]
            if size == 0:
                while True:
                    found = self.line(data, at)
                    if found is None:
                        return None
                    at = found[1]
                    if found[0] == b"":
                        return body, at
            if len(data) < at + size:
                return None
            body += data[at:at + size]
            found = self.line(data, at + size)
            if found is None or found[0] != b"":
                return None
            at = found[1]

    def body(self, data, at, lines):
        lengths, codings = self.fields(lines)
        chunked = any(b"chunked" in each for each in codings) if self.any_coding else codings[-1:] == [b"chunked"]
        if chunked and not (self.length_wins and lengths):
            return self.chunks(data, at)
        if not lengths:
            return b"", at
        length = lengths[-1 if self.last_length else 0].lstrip(b"+")
        if not length.isdigit() or len(data) < at + int(length):
            return None
        return data[at:at + int(length)], at + int(length)

    def requests(self, data):
        """What it reads: first lines and bodies. What it waits for the rest of is `unfinished`."""
        found, at = [], 0
        while data[at:].strip(b"\r\n"):
            head = self.head(data, at)
            body = self.body(data, head[1], head[0]) if head else None
            if body is None:
                return found + ["unfinished"], at
            found.append((head[0][0], body[0]))
            at = body[1]
        return found, at


READERS = [
    Reader("strict"),
    Reader("LF ends lines", bare_lf=True),
    Reader("lengths win", length_wins=True),
    Reader("the last length", last_length=True),
    Reader("chunked anywhere", any_coding=True),
    Reader("loose names", loose_names=True),
    Reader("loose sizes", loose_size=True),
    Reader("folded lines", fold=True),
    Reader("all at once", bare_lf=True, last_length=True, any_coding=True, loose_names=True, loose_size=True, fold=True),
]


def disagreement(data):
    """What two readers read otherwise in what a target got, or None."""
    want = READERS[0].requests(data)[0]
    for reader in READERS[1:]:
        got = reader.requests(data)[0]
        if got != want:
            return f"{reader.name}: {got} instead of {want}"
    return None
