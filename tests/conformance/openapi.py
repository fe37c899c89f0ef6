"""schemathesis against the admin API, by the description that it serves itself.

Every answer has to be documented, of the documented shape, and no failure of the server; requests that break the description
have to be refused. Deletions and writes go to a database of the run's own.
"""

import os
import re
import subprocess

from stand import Score, Stand, free_ports, tool

KNOWN = []
# All but those that a description can't make true: which objects there are, and what holds between fields and objects, is
# checked by the API and can't be said in a schema, so that requests that fit the schema are refused.
LEFT_OUT = "positive_data_acceptance"
TOKEN = "conformance-token-of-32-characters"
EXAMPLES = 10


def read(score, report):
    """One row an operation, from schemathesis' report in JSON lines of what it did."""
    failed = {}
    for block in re.split(r"\n_{3,}", report.partition("= FAILURES =")[2]):
        title, _, rest = block.strip("_ \n").partition("\n")
        title = title.strip("_ ")
        if found := re.findall(r"^- (.+)$", rest, re.M):
            failed[title] = "; ".join(sorted(set(found)))[:300]
    selected = re.search(r"(\d+) (?:selected|tested)", report) or re.search(r"Operations: +(\d+)", report)
    score.total = int(selected[1]) if selected else 0
    for case, what in failed.items():
        reason = next((reason for part, reason in KNOWN if part in f"{case}: {what}"), None)
        (score.known if reason else score.failed).append((case, reason or what))
    score.passed = score.total - len(failed)
    if not score.total:
        score.failed.append(("the whole run", report[-500:]))
    return score


def suites(args):
    admin, http = free_ports(2)
    score = Score("schemathesis")
    with Stand(args) as stand:
        environment = {"FERRUM_MODE": "database", "FERRUM_ADMIN_TOKEN": TOKEN, "FERRUM_DB_ENCRYPTION_KEY": "ab" * 32,
                       "FERRUM_DB_URL": f"sqlite:{stand.folder.file('store.db')}"}
        stand.gateway({"gateway": {"http": f"127.0.0.1:{http}", "admin": f"127.0.0.1:{admin}", "https": "off"}}, admin, environment)
        done = subprocess.run(
            [tool("st", "schemathesis"), "run", f"http://127.0.0.1:{admin}/v1/openapi.json", "--checks", "all", "--exclude-checks", LEFT_OUT, "--workers", "1",
             "--header", f"Authorization: Bearer {TOKEN}", "--max-examples", str(EXAMPLES), "--seed", "1", "--no-color",
             "--continue-on-failure", "--request-timeout", "20", "--exclude-path", "/v1/access-log"],
            capture_output=True, text=True, timeout=1800, check=False, env={**os.environ, "COLUMNS": "160"}, cwd=stand.folder.path)
        stand.folder.write("schemathesis.txt", done.stdout + done.stderr)
        if args.keep:
            print(done.stdout[-6000:])
        return [read(score, done.stdout)]
