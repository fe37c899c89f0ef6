#!/usr/bin/env python3
"""Runs foreign conformance suites against the gateway, and prints one table of their scores.

Usage: tests/conformance/run.py [--gateway PROGRAM] [--bench PROGRAM] [--keep] [--seed N] [--seconds N] [NAME...]
`tests/conformance/setup.sh` installs the suites; one that is missing is left out, and said so. NAME is the beginning of a
suite's name, as in the table of `--list`. Known exceptions are printed with their reasons; the exit code is 1 when anything
else failed.
"""

import argparse
import importlib
import pathlib
import sys
import time

from stand import ROOT, Failed, Missing

SUITES = [
    ("framing", "HTTP/1 requests and responses on the edge of RFC 9112, judged by what forgiving targets read"),
    ("h2", "h2spec over TLS and with prior knowledge"),
    ("h3", "aioquic and quic-go over HTTP/3"),
    ("websocket", "Autobahn's cases, passed through and with messages inspected, with compression and limits"),
    ("clients", "curl, dig, OpenSSL, gRPC's interop clients and quic-go through the gateway"),
    ("tls", "tlsfuzzer and sslyze, with an RSA and an ECDSA certificate side by side"),
    ("dtls", "DTLS clients and servers of OpenSSL, GnuTLS, wolfSSL and pion"),
    ("proxy_header", "PROXY protocol headers of HAProxy and curl, and broken ones, on http and stream ports"),
    ("importers", "random configurations of nginx, HAProxy and Caddy beside what the gateway imports from them"),
    ("openapi", "schemathesis against the admin API's description"),
    ("metrics", "promtool against /metrics and the alert rules"),
    ("restarts", "twenty restarts with --replace under the load of ten protocols"),
    ("browser", "Chromium over HTTP/1.1, HTTP/2, HTTP/3 and WebSockets"),
]


def table(scores):
    """The scores, the exceptions with their reasons, and what failed."""
    width = max(len(score.suite) for score in scores)
    print(f"\n{'suite':<{width}}  passed  total  known  failed")
    for score in scores:
        print(f"{score.suite:<{width}}  {score.passed:>6}  {score.total:>5}  {len(score.known) + score.excused:>5}  {len(score.failed):>6}")
    for title, pairs in (("known exceptions", "known"), ("failed", "failed")):
        lines = [f"  {score.suite}: {case}: {why}" for score in scores for case, why in getattr(score, pairs)]
        if lines:
            print(f"\n{title}:", *lines, sep="\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gateway", default=str(ROOT / "target" / "debug" / "ferrum-edge"))
    parser.add_argument("--bench", default=str(ROOT / "target" / "debug" / "proto_bench"))
    parser.add_argument("--keep", action="store_true", help="leaves configurations and logs behind")
    parser.add_argument("--seed", type=int, help="where suites with random input start; drawn, and printed, without it")
    parser.add_argument("--seconds", type=float, help="how long each part of a suite with random input goes on")
    parser.add_argument("--list", action="store_true", help="lists the suites")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    args.gateway, args.bench = (str(pathlib.Path(each).resolve()) for each in (args.gateway, args.bench))
    if args.list:
        for name, about in SUITES:
            print(f"{name:<13} {about}")
        return 0
    scores, broken = [], 0
    for name, _ in SUITES:
        if args.names and not any(name.startswith(wanted) for wanted in args.names):
            continue
        began = time.monotonic()
        try:
            found = importlib.import_module(name).suites(args)
        except Missing as missing:
            print(f"-    {name}: not installed: {missing}", flush=True)
            continue
        except Failed as error:
            broken += 1
            print(f"FAIL {name}: {error}", flush=True)
            continue
        scores += found
        good = not any(score.failed for score in found)
        print(f"{'ok  ' if good else 'FAIL'} {name} ({time.monotonic() - began:.0f} s)", flush=True)
    if scores:
        table(scores)
    return 1 if broken or any(score.failed for score in scores) else 0


if __name__ == "__main__":
    sys.exit(main())
