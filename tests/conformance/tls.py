"""TLS: tlsfuzzer's conversations and sslyze's scan, with an RSA and an ECDSA certificate side by side, and nginx beside it.

tlsfuzzer scripts are asked for every conversation they have; those that fail with nginx on the same machine as well are known
exceptions. sslyze compares what is offered with nginx's.
"""

import os
import pathlib
import re
import subprocess

from stand import TOOLS, Failed, Missing, Score, Stand, free_ports, run, tool, wait_for

FUZZER = pathlib.Path(os.environ.get("TLSFUZZER", TOOLS / "tlsfuzzer"))
# Scripts of tlsfuzzer that need nothing but a server, with their options.
SCRIPTS = {
    "test-aes-gcm-nonces.py": [], "test-alpn-negotiation.py": [], "test-atypical-padding.py": [], "test-ccs.py": [], "test-chacha20.py": ["-d"],
    "test-client-hello-max-size.py": [], "test-clienthello-md5.py": ["-d"], "test-connection-abort.py": [], "test-conversation.py": ["-d"],
    "test-early-application-data.py": [], "test-ecdhe-padded-shared-secret.py": [], "test-ecdhe-rsa-key-exchange.py": [],
    "test-ecdhe-rsa-key-share-random.py": [], "test-empty-extensions.py": [], "test-extended-master-secret-extension.py": ["-d"],
    "test-extensions.py": [], "test-fallback-scsv.py": ["--tls-1.3", "-d"], "test-fuzzed-MAC.py": [], "test-fuzzed-ciphertext.py": ["-d"], "test-fuzzed-finished.py": ["-d"],
    "test-hello-request-by-client.py": ["-d"], "test-invalid-cipher-suites.py": ["-d"], "test-invalid-client-hello.py": [],
    "test-invalid-client-hello-w-record-overflow.py": [], "test-invalid-compression-methods.py": [], "test-invalid-content-type.py": [],
    "test-invalid-server-name-extension.py": [], "test-invalid-session-id.py": ["-d"], "test-invalid-version.py": ["-d"], "test-large-hello.py": ["-d"],
    "test-message-duplication.py": ["-d"], "test-message-skipping.py": ["-d"], "test-no-heartbeat.py": [], "test-record-layer-fragmentation.py": ["-d"],
    "test-renegotiation-disabled-client-hello.py": ["-d"], "test-sig-algs.py": [], "test-sslv2-force-cipher.py": ["-d"], "test-sslv2-connection.py": ["-d"], "test-SSLv3-padding.py": [],
    "test-truncating-of-client-hello.py": [], "test-truncating-of-finished.py": [], "test-truncating-of-kRSA-client-key-exchange.py": [],
    "test-tls13-ccs.py": [], "test-tls13-connection-abort.py": [], "test-tls13-conversation.py": [], "test-tls13-count-tickets.py": [], "test-tls13-crfg-curves.py": [],
    "test-tls13-dhe-shared-secret-padding.py": [], "test-tls13-ecdhe-curves.py": [], "test-tls13-empty-alert.py": [], "test-tls13-ffdhe-groups.py": [],
    "test-tls13-finished.py": ["-n", "40"], "test-tls13-finished-plaintext.py": [], "test-tls13-hrr.py": [], "test-tls13-invalid-ciphers.py": [],
    "test-tls13-keyshare-omitted.py": [], "test-tls13-keyupdate.py": [], "test-tls13-large-number-of-extensions.py": [], "test-tls13-legacy-version.py": [], "test-tls13-minerva.py": None,
    "test-tls13-multiple-ccs-messages.py": [], "test-tls13-nociphers.py": [], "test-tls13-non-support.py": None, "test-tls13-obsolete-curves.py": [],
    "test-tls13-record-layer-limits.py": [], "test-tls13-record-padding.py": [], "test-tls13-rsa-signatures.py": [], "test-tls13-serverhello-random.py": [],
    "test-tls13-session-resumption.py": [], "test-tls13-shuffled-extentions.py": [], "test-tls13-signature-algorithms.py": ["-n", "40"], "test-tls13-symetric-ciphers.py": ["-n", "40"],
    "test-tls13-unrecognised-groups.py": [], "test-tls13-version-negotiation.py": [], "test-tls13-zero-content-type.py": [], "test-tls13-zero-length-data.py": [],
    "test-unsupported-curve-fallback.py": [], "test-version-numbers.py": ["-d"], "test-x25519.py": [], "test-zero-length-data.py": ["-d"],
}


SUITES = "it begins with suites that rustls leaves out: CBC, DHE or RSA key exchange"
GROUPS = "rustls has X25519, P-256, P-384 and the hybrid with ML-KEM; other groups are passed over (RFC 8446 §4.2.7)"
ALERTS = "refused, with another alert than the script wants or by closing"
# Conversations that nginx with OpenSSL passes and rustls can't or need not, by script.
KNOWN = {
    "test-tls13-ffdhe-groups.py": GROUPS, "test-tls13-obsolete-curves.py": GROUPS, "test-tls13-ecdhe-curves.py": GROUPS,
    "test-tls13-crfg-curves.py": GROUPS, "test-tls13-dhe-shared-secret-padding.py": GROUPS, "test-tls13-symetric-ciphers.py": "rustls has no CCM",
    "test-tls13-version-negotiation.py": "it falls back to suites of TLS 1.2 that rustls leaves out",
    "test-version-numbers.py": SUITES, "test-fallback-scsv.py": SUITES, "test-connection-abort.py": SUITES, "test-large-hello.py": SUITES,
    "test-tls13-legacy-version.py": "legacy_version counts for nothing beside supported_versions (RFC 8446 §4.2.1)",
    "test-tls13-record-layer-limits.py": ALERTS, "test-tls13-zero-content-type.py": ALERTS, "test-tls13-finished.py": ALERTS,
    "test-tls13-zero-length-data.py": ALERTS, "test-tls13-keyshare-omitted.py": ALERTS, "test-tls13-keyupdate.py": ALERTS,
    "test-tls13-large-number-of-extensions.py": ALERTS, "test-truncating-of-client-hello.py": ALERTS,
    "test-invalid-client-hello-w-record-overflow.py": ALERTS,
    "test-tls13-connection-abort.py": "the response comes before the ticket",
    "test-tls13-rsa-signatures.py": "a signature algorithm that its key does not have is passed over for one that it has",
    "test-ecdhe-padded-shared-secret.py": GROUPS,
}


def fuzzed(script, more, port):
    """The conversations of a script that failed, or an error; `None` where it could not be run."""
    python = TOOLS / "venv" / "bin" / "python"
    environment = {**os.environ, "PYTHONPATH": str(FUZZER)}
    command = [str(python), str(FUZZER / "scripts" / script), "-h", "127.0.0.1", "-p", str(port), *more]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False, env=environment, cwd=FUZZER)
    except subprocess.TimeoutExpired:
        return 1, {"the whole script": "took more than 150 s"}
    total = re.search(r"^TOTAL: (\d+)", done.stdout, re.M)
    failed = re.search(r"^FAILED:\n((?:\t.*\n?)+)", done.stdout, re.M)
    names = re.findall(r"^\t'(.*)'", failed[1], re.M) if failed else []
    if total is None:
        return 1, {"the whole script": (done.stderr or done.stdout).strip()[-160:]}
    return int(total[1]), dict.fromkeys(names, "failed")


def nginx(stand, port, pairs):
    """nginx with the same certificates."""
    certificates = "".join(f"ssl_certificate {pair['cert_path']}; ssl_certificate_key {pair['key_path']};" for pair in pairs)
    spec = stand.folder.write("nginx.conf", f"""
daemon off; pid {stand.folder.file('nginx.pid')}; error_log {stand.folder.file('nginx.log')};
events {{}}
http {{
  access_log off;
  server {{ listen 127.0.0.1:{port} ssl http2; {certificates} ssl_protocols TLSv1.2 TLSv1.3; location / {{ return 200 "hello"; }} }}
}}""")
    stand.processes.start([tool("nginx"), "-c", spec, "-p", str(stand.folder.path)])
    wait_for(port)


def tlsfuzzer(ours, theirs):
    score = Score("tlsfuzzer")
    for script, more in SCRIPTS.items():
        if more is None or not (FUZZER / "scripts" / script).exists():
            continue
        total, failed = fuzzed(script, more, ours)
        score.total += total
        score.passed += total - len(failed)
        if not failed:
            continue
        _, beside = fuzzed(script, more, theirs)
        reasons = {}
        for case, why in failed.items():
            reason = "fails with nginx as well" if case in beside or "the whole script" in beside else KNOWN.get(script)
            reason = reason or (SUITES if "sanity" in failed else None)
            if reason is None:
                score.failed.append((f"{script}: {case}", why))
            else:
                reasons.setdefault(reason, []).append(case)
        # A line a script and reason: there are hundreds of conversations.
        score.known += [(f"{script}: {len(cases)} conversations", reason) for reason, cases in reasons.items()]
        score.excused += sum(len(cases) - 1 for cases in reasons.values())
    return score


def offered(port):
    """What sslyze finds: accepted suites by version, and the rest of what servers are judged by."""
    import sslyze
    location = sslyze.ServerNetworkLocation(hostname="localhost", ip_address="127.0.0.1", port=port)
    scanner = sslyze.Scanner()
    commands = sslyze.ScanCommand
    scanner.queue_scans([sslyze.ServerScanRequest(server_location=location)])
    result = next(iter(scanner.get_results()))
    scans = result.scan_result
    suites = {version: {each.cipher_suite.name for each in getattr(scans, f"{version}_cipher_suites").result.accepted_cipher_suites}
              for version in ("ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1", "tls_1_2", "tls_1_3")}
    wrong = {
        "Heartbleed": scans.heartbleed.result.is_vulnerable_to_heartbleed,
        "CCS injection": scans.openssl_ccs_injection.result.is_vulnerable_to_ccs_injection,
        "ROBOT": "VULNERABLE" in str(scans.robot.result.robot_result) and "NOT_VULNERABLE" not in str(scans.robot.result.robot_result),
        "compression": scans.tls_compression.result.supports_compression,
        "renegotiation by clients": scans.session_renegotiation.result.is_vulnerable_to_client_renegotiation_dos,
    }
    kinds = {type(each.received_certificate_chain[0].public_key()).__name__ for each in scans.certificate_info.result.certificate_deployments}
    curves = {each.name for each in scans.elliptic_curves.result.supported_curves or ()}
    return suites, wrong, kinds, curves


def sslyze_score(ours, theirs):
    score = Score("sslyze")
    mine, wrong, kinds, curves = offered(ours)
    beside, _, _, _ = offered(theirs)
    for version, suites in mine.items():
        more = suites - beside[version]
        score.add(f"{version}: no suite that nginx does not take", ", ".join(sorted(more)) or None)
    for version in ("tls_1_2", "tls_1_3"):
        score.add(f"{version}: is spoken", None if mine[version] else "no suite")
    for name, found in wrong.items():
        score.add(f"no {name}", "found" if found else None)
    score.add("RSA and ECDSA certificates", None if len(kinds) == 2 else f"only {kinds}")
    score.add("X25519 and P-256", None if len(curves & {"X25519", "secp256r1"}) == 2 else f"only {curves}")
    return score


def check_certificate(port, kind, version, folder):
    """A client that can only take one kind of certificate gets that kind."""
    options = ["-tls1_2", "-cipher", f"ECDHE-{kind}-AES128-GCM-SHA256"] if version == "1.2" else \
        ["-tls1_3", "-sigalgs", "rsa_pss_rsae_sha256" if kind == "RSA" else "ecdsa_secp256r1_sha256"]
    said = run([tool("openssl"), "s_client", "-connect", f"127.0.0.1:{port}", "-servername", "localhost", "-CAfile", folder.file("ca.pem"),
                "-verify_return_error", *options], text="")
    wanted = "Peer signature type: RSA" if kind == "RSA" else "Peer signature type: ECDSA"
    if wanted not in said:
        raise Failed(f"another certificate: {re.findall('Peer signature type.*', said)}")


def suites(args):
    ours, theirs, http = free_ports(3)
    with Stand(args) as stand:
        stand.folder.authority()
        pairs = [stand.folder.certificate("rsa", key="rsa"), stand.folder.certificate("ecdsa")]
        echo = stand.backend()["http"]
        stand.gateway({
            "gateway": {"http": f"127.0.0.1:{http}", "https": f"127.0.0.1:{ours}", "admin": "off", "tls": {"certificates": pairs}},
            "proxies": [{"id": "web", "listen_path": "/", "backend_scheme": "http", "backend_host": "127.0.0.1", "backend_port": echo}]}, ours)
        nginx(stand, theirs, pairs)
        scores = [Score("certificates by key")]
        for kind in ("RSA", "ECDSA"):
            for version in ("1.2", "1.3"):
                scores[0].check(f"{kind} over TLS {version}", check_certificate, ours, kind, version, stand.folder)
        try:
            scores.append(sslyze_score(ours, theirs))
        except ImportError:
            print("     sslyze is not installed (run this with the Python that setup.sh made)")
        if (FUZZER / "scripts").is_dir():
            scores.append(tlsfuzzer(ours, theirs))
        else:
            print(f"     tlsfuzzer is not at {FUZZER}")
        return scores
