"""DTLS clients of OpenSSL, GnuTLS, wolfSSL and pion at a port that terminates DTLS, and OpenSSL as a target."""

import socket
import subprocess
import time

from stand import Failed, Missing, Score, Stand, free_ports, run, tool

LINES = [f"line {n}\n" for n in range(5)]


def talk(command):
    """Has lines echoed, each before the next is sent, by a program that copies between its streams and DTLS."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          bufsize=1) as client:
        try:
            for line in LINES:
                client.stdin.write(line)
                client.stdin.flush()
                while (got := client.stdout.readline()) != line:
                    # GnuTLS tells of its handshake first.
                    if got == "":
                        raise Failed(f"{command[0]} ended: {client.stderr.read()[-300:]}")
        except BrokenPipeError as error:
            raise Failed(f"{command[0]} ended: {client.stderr.read()[-300:]}") from error
        finally:
            client.kill()


def openssl(stand, port, identity=None, name="localhost", more=()):
    shown = ["-cert", stand.folder.file(f"{identity}.pem"), "-key", stand.folder.file(f"{identity}-key.pem")] if identity else []
    talk(["timeout", "10", tool("openssl"), "s_client", "-dtls1_2", "-quiet", "-no_ign_eof", "-servername", name, "-verify_return_error",
          "-CAfile", stand.folder.file("ca.pem"), "-connect", f"127.0.0.1:{port}", *shown, *more])


def gnutls(stand, port, identity=None, priority="NORMAL:-VERS-ALL:+VERS-DTLS1.2"):
    shown = ["--x509certfile", stand.folder.file(f"{identity}.pem"), "--x509keyfile", stand.folder.file(f"{identity}-key.pem")] if identity else []
    talk(["timeout", "10", "stdbuf", "-oL", tool("gnutls-cli"), "--udp", "--port", str(port), "--priority", priority, "--sni-hostname", "localhost",
          "--verify-hostname", "localhost", "--x509cafile", stand.folder.file("ca.pem"), *shown, "127.0.0.1"])


def wolfssl(stand, port, identity=None, version="1.2", name="localhost"):
    shown = [stand.folder.file(f"{identity}.pem"), stand.folder.file(f"{identity}-key.pem")] if identity else []
    run(["timeout", "10", tool("dtls_wolfssl"), version, name, str(port), stand.folder.file("ca.pem"), *shown])


def speaks_13():
    """Whether wolfSSL was built with DTLS 1.3, which no other client here has."""
    asked = subprocess.run([tool("dtls_wolfssl"), "1.3", "localhost", "9", "none"], capture_output=True, check=False)
    return asked.returncode != 77


def pion(stand, port, identity=None):
    shown = [stand.folder.file(f"{identity}.pem"), stand.folder.file(f"{identity}-key.pem")] if identity else []
    run(["timeout", "10", tool("interop"), "dtls", f"127.0.0.1:{port}", *shown])


def refused(client, *args):
    try:
        client(*args)
    except (Failed, subprocess.TimeoutExpired):
        return
    raise Failed("a client without a certificate got in")


def target(stand, plain, far):
    """A plain client; the gateway speaks DTLS to OpenSSL's server, whose people type what it says."""
    command = [tool("openssl"), "s_server", "-4", "-dtls1_2", "-quiet", "-port", str(far),
               "-cert", stand.folder.file("cert.pem"), "-key", stand.folder.file("cert-key.pem")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        time.sleep(0.5)
        client.settimeout(10)
        client.connect(("127.0.0.1", plain))
        try:
            for n in range(3):
                client.send(f"up {n}\n".encode())
                got = server.stdout.readline()
                server.stdin.write(f"down {n}\n")
                server.stdin.flush()
                if (got, back := client.recv(4096)) != (f"up {n}\n", f"down {n}\n".encode()):
                    raise Failed(f"openssl got {got!r}, the client {back!r}")
        finally:
            server.kill()


def suites(args):
    """Each client with and without a certificate, and what OpenSSL and GnuTLS can be told to insist on."""
    score, newer = Score("DTLS 1.2"), Score("DTLS 1.3")
    open_port, closed_port, plain, far, https, open_admin = free_ports(6)
    with Stand(args) as stand:
        stand.folder.authority()
        stand.folder.certificate("cert")
        stand.folder.certificate("other", names=("other.test",))
        stand.folder.authority("between", by="ca")
        stand.folder.certificate("chained", names=("chained.test",), by="between")
        stand.folder.append("chained.pem", "between.pem")
        stand.folder.certificate("client", names=("somebody",))
        echo = stand.backend()["udp"]
        shown = [{"cert_path": stand.folder.file(f"{name}.pem"), "key_path": stand.folder.file(f"{name}-key.pem")} for name in ("cert", "other", "chained")]

        def proxy(name, port, **more):
            return {"id": name, "backend_scheme": "udp", "backend_host": "127.0.0.1", "backend_port": echo, "listen_port": port,
                    "frontend_tls": True, **more}

        to_far = {"id": "far", "backend_scheme": "dtls", "backend_host": "127.0.0.1", "backend_port": far, "listen_port": plain,
                  "backend_tls_server_name": "localhost", "backend_tls_ca_path": stand.folder.file("ca.pem")}
        common = {"http": "off", "stream_address": "127.0.0.1", "workers": 1}
        stand.gateway({"gateway": {**common, "admin": f"127.0.0.1:{open_admin}", "tls": {"certificates": shown}, "https": "off"},
                       "proxies": [proxy("open", open_port), to_far]}, open_admin)
        stand.gateway({"gateway": {**common, "admin": f"127.0.0.1:{https}", "https": "off",
                                   "tls": {"certificates": shown, "client_ca_path": stand.folder.file("ca.pem")}},
                       "proxies": [proxy("closed", closed_port)]}, https)
        for name, client in (("OpenSSL", openssl), ("GnuTLS", gnutls), ("wolfSSL", wolfssl), ("pion", pion)):
            try:
                score.check(f"{name}: echo", client, stand, open_port)
                score.check(f"{name}: with a client certificate", client, stand, closed_port, "client")
                score.check(f"{name}: without the certificate that is asked for", refused, client, stand, closed_port)
            except Missing as missing:
                print(f"     {name} is left out: {missing} is not installed")
        score.check("OpenSSL: certificate by name", openssl, stand, open_port, None, "other.test", ("-verify_hostname", "other.test"))
        score.check("OpenSSL: a chain of which it knows the root alone", openssl, stand, open_port, None, "chained.test", ("-verify_hostname", "chained.test"))
        for group in ("P-256", "P-384:P-256", "X25519:P-256"):
            score.check(f"OpenSSL: group {group}", openssl, stand, open_port, None, "localhost", ("-groups", group))
        for cipher in ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"):
            score.check(f"OpenSSL: {cipher}", openssl, stand, open_port, None, "localhost", ("-cipher", cipher))
        score.check("OpenSSL: small datagrams", openssl, stand, open_port, None, "localhost", ("-mtu", "512"))
        score.check("OpenSSL as a target", target, stand, plain, far)
        score.check("wolfSSL: a chain of which it knows the root alone", wolfssl, stand, open_port, None, "1.2", "chained.test")
        try:
            if not speaks_13():
                raise Missing("wolfSSL with DTLS 1.3")
            newer.check("wolfSSL: echo", wolfssl, stand, open_port, None, "1.3")
            newer.check("wolfSSL: with a client certificate", wolfssl, stand, closed_port, "client", "1.3")
            newer.check("wolfSSL: without the certificate that is asked for", refused, wolfssl, stand, closed_port, None, "1.3")
            newer.check("wolfSSL: certificate by name", wolfssl, stand, open_port, None, "1.3", "other.test")
            newer.check("wolfSSL: a chain of which it knows the root alone", wolfssl, stand, open_port, None, "1.3", "chained.test")
            newer.check("wolfSSL: such a chain, with a client certificate", wolfssl, stand, closed_port, "client", "1.3", "chained.test")
            newer.check("wolfSSL: a certificate of another name", refused, wolfssl, stand, open_port, None, "1.3", "unknown.test")
        except Missing as missing:
            print(f"     DTLS 1.3 is left out: {missing} is not installed")
    return [score, newer] if newer.total else [score]
