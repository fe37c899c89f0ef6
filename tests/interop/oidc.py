#!/usr/bin/env python3
"""Logs in and out at real OpenID providers in a real browser, through the plugin `oidc`.

Usage: tests/interop/oidc.py [--gateway PROGRAM] [--modules FOLDER] [--keycloak FOLDER] [PROVIDER...]
Providers are `node` (npm oidc-provider) and `keycloak`. FOLDER of --modules is where `npm install oidc-provider puppeteer-core` was
run, that of --keycloak an unpacked Keycloak. Says for each check whether it held, and exits 1 if one did not.
"""

import argparse
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "conformance"))
from stand import Failed, free_ports, wait_for  # noqa: E402

SECRET = "a secret of the gateway, long enough"


class Origin(http.server.BaseHTTPRequestHandler):
    """Says who the gateway says the caller is, and whether it saw a session's cookie."""

    def do_GET(self):
        user, cookie = self.headers.get("x-user", "nobody"), "ferrum_session" in self.headers.get("cookie", "")
        body = f"{self.path} as {user}{' with the cookie' if cookie else ''}".encode()
        self.send_response(200)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Browser:
    def __init__(self, modules, chromium):
        command = ["node", str(HERE / "oidc" / "browser.mjs"), chromium]
        self.process = subprocess.Popen(command, cwd=modules, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = json.loads(self.process.stdout.readline())["ready"]

    def __getattr__(self, command):
        def ask(**rest):
            self.process.stdin.write(json.dumps({"command": command, **rest}) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline())
            if "error" in answer:
                raise Failed(f"{command}: {answer['error']} at {answer['url']}")
            return answer

        return ask

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=20)


def get(url, form=None, headers=None, method=None, document=None):
    data = urllib.parse.urlencode(form).encode() if form else json.dumps(document).encode() if document is not None else None
    request = urllib.request.Request(url, data=data, headers=headers or {}, method=method)
    if document is not None:
        request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Node:
    """npm oidc-provider."""

    sends_long_tokens = False

    def __init__(self, stand):
        self.stand, self.port = stand, stand.ports["provider"]
        self.issuer = f"http://127.0.0.1:{self.port}"
        command = ["node", str(HERE / "oidc" / "op.mjs"), str(self.port), stand.app, stand.backchannel]
        self.process = subprocess.Popen(command, cwd=stand.args.modules, stdout=subprocess.PIPE, stderr=stand.log, text=True)
        stand.processes.append(self.process)
        if self.process.stdout.readline() != "ready\n":
            raise Failed("oidc-provider does not start")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def log_in(self, browser):
        browser.form(fields={"input[name=login]": "ann", "input[name=password]": "x"}, submit="button[type=submit]")
        return browser.form(fields={}, submit="button[type=submit]")  # consent

    def log_out(self, browser):
        """At the provider, without the gateway."""
        browser.open(url=f"{self.issuer}/session/end")
        browser.form(fields={}, submit="button[name=logout]")

    def confirm(self, browser):
        if browser.has(selector="button[name=logout]")["has"]:
            browser.form(fields={}, submit="button[name=logout]")

    def is_asking(self, page):
        return page["url"].startswith(self.issuer)

    def count(self, grant):
        return int(get(f"{self.issuer}/count/{grant}")[1])

    def rotate(self):
        return False


class Keycloak:
    """A realm of Keycloak's."""

    sends_long_tokens = True

    def __init__(self, stand):
        self.port = stand.ports["provider"]
        self.base = f"http://127.0.0.1:{self.port}"
        self.issuer = f"{self.base}/realms/r"
        environment = {**os.environ, "KC_BOOTSTRAP_ADMIN_USERNAME": "admin", "KC_BOOTSTRAP_ADMIN_PASSWORD": "admin"}
        environment["JAVA_OPTS_KC_HEAP"] = "-Xms64m -Xmx512m"
        command = [str(pathlib.Path(stand.args.keycloak) / "bin" / "kc.sh"), "start-dev", "--http-host=127.0.0.1",
                   f"--http-port={self.port}", "--http-management-port=" + str(stand.ports["management"])]
        stand.processes.append(subprocess.Popen(command, env=environment, stdout=stand.log, stderr=stand.log))
        for _ in range(240):
            try:
                if get(f"{self.base}/realms/master")[0] == 200:
                    break
            except OSError:
                pass
            time.sleep(0.5)
        self.admin(f"/admin/realms", {
            "realm": "r", "enabled": True, "accessTokenLifespan": 5, "sslRequired": "none", "eventsEnabled": True,
            "enabledEventTypes": ["REFRESH_TOKEN", "CODE_TO_TOKEN"], "eventsListeners": ["jboss-logging"],
            "users": [{"username": "ann", "enabled": True, "email": "ann@a.test", "emailVerified": True, "firstName": "A", "lastName": "N",
                       "credentials": [{"type": "password", "value": "open sesame"}]}],
            "clients": [{
                "clientId": "edge", "secret": SECRET, "redirectUris": [f"{stand.app}/oidc/callback"], "standardFlowEnabled": True,
                "attributes": {"pkce.code.challenge.method": "S256", "backchannel.logout.url": stand.backchannel,
                               "backchannel.logout.session.required": "true", "post.logout.redirect.uris": f"{stand.app}/bye"},
            }],
        })

    def admin(self, path, document=None, method=None):
        form = {"grant_type": "password", "client_id": "admin-cli", "username": "admin", "password": "admin"}
        token = json.loads(get(f"{self.base}/realms/master/protocol/openid-connect/token", form)[1])["access_token"]
        status, text = get(self.base + path, headers={"authorization": f"Bearer {token}"}, document=document, method=method)
        if status >= 300:
            raise Failed(f"Keycloak answers {path} with {status}: {text}")
        return json.loads(text) if text else None

    def log_in(self, browser):
        return browser.form(fields={"#username": "ann", "#password": "open sesame"}, submit="#kc-login")

    def log_out(self, browser):
        user = self.admin("/admin/realms/r/users?username=ann")[0]["id"]
        self.admin(f"/admin/realms/r/users/{user}/logout", document={}, method="POST")

    def confirm(self, browser):
        if browser.has(selector="#kc-logout")["has"]:
            browser.form(fields={}, submit="#kc-logout")

    def is_asking(self, page):
        return page["url"].startswith(self.issuer)

    def count(self, grant):
        kind = {"refresh_token": "REFRESH_TOKEN", "authorization_code": "CODE_TO_TOKEN"}[grant]
        return len(self.admin(f"/admin/realms/r/events?type={kind}&max=1000"))

    def rotate(self):
        realm = self.admin("/admin/realms/r")["id"]
        self.admin("/admin/realms/r/components", {
            "name": "next", "providerId": "rsa-generated", "providerType": "org.keycloak.keys.KeyProvider", "parentId": realm,
            "config": {"priority": ["200"]},
        })
        return True


class Stand:
    def __init__(self, args):
        self.args, self.processes = args, []
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="oidc-"))
        self.log = open(self.folder / "log", "w")
        names = ["http", "https", "provider", "management"]
        self.ports = dict(zip(names, free_ports(len(names))))
        self.app = f"https://app.localhost:{self.ports['https']}"
        self.backchannel = f"http://127.0.0.1:{self.ports['http']}/oidc/backchannel"
        self.origin = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
        threading.Thread(target=self.origin.serve_forever, daemon=True).start()

    def gateway(self, issuer):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=app.localhost",
                        "-addext", "subjectAltName=DNS:app.localhost", "-keyout", str(self.folder / "key.pem"), "-out",
                        str(self.folder / "cert.pem")], check=True, capture_output=True)
        settings = {
            "issuer": issuer, "client_id": "edge", "client_secret": SECRET, "session_secret": "thirty-two bytes or more of a secret",
            "scopes": ["openid", "profile", "email"], "claims_to_headers": {"sub": "x-user"}, "leeway": 0,
            "backchannel_logout_path": "/oidc/backchannel", "post_logout_redirect_uri": f"{self.app}/bye",
        }
        spec = {
            "gateway": {
                "http": f"127.0.0.1:{self.ports['http']}", "https": f"127.0.0.1:{self.ports['https']}", "admin": "off",
                "tls": {"certificates": [{"cert_path": "cert.pem", "key_path": "key.pem"}]},
            },
            "proxies": [
                {"id": "app", "listen_path": "/", "backend_scheme": "http", "backend_host": "127.0.0.1",
                 "backend_port": self.origin.server_address[1]},
                {"id": "bye", "listen_path": "/bye", "backend_scheme": "http", "backend_host": "127.0.0.1",
                 "backend_port": self.origin.server_address[1]},
            ],
            "plugin_configs": [{"id": "login", "plugin_name": "oidc", "scope": "proxy", "proxy_id": "app", "config": settings}],
        }
        (self.folder / "spec.json").write_text(json.dumps(spec))
        command = [self.args.gateway, "run", "--spec", str(self.folder / "spec.json"), "-v"]
        self.processes.append(subprocess.Popen(command, stdout=self.log, stderr=self.log))
        wait_for(self.ports["http"])

    def end(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
        self.origin.shutdown()


def expect(what, holds, seen=""):
    if not holds:
        raise Failed(f"{what}: {seen}")


def checks(stand, provider, browser):
    app = stand.app

    def session():
        return [cookie for cookie in browser.cookies()["cookies"] if cookie["name"].startswith("ferrum_session")]

    def enters(path="/hello?x=1"):
        browser.fresh()
        page = browser.open(url=app + path)
        expect("the browser is sent to the provider", provider.is_asking(page), page)
        return provider.log_in(browser)

    def login():
        page = enters()
        expect("it comes back to the page it asked for", page["url"] == f"{app}/hello?x=1", page)
        expect("the target is told who it is", " as " in page["text"] and "nobody" not in page["text"], page)
        expect("the target does not see the cookie", "with the cookie" not in page["text"], page)
        cookies = session()
        good = all(cookie["httpOnly"] and cookie["secure"] and cookie["sameSite"] == "Lax" for cookie in cookies)
        expect("the cookies are Secure, HttpOnly and Lax", cookies and good, cookies)
        if provider.sends_long_tokens:
            expect("a long session is split", len(cookies) > 1 and all(len(c["value"]) < 4096 for c in cookies), len(cookies))

    def again():
        page = browser.open(url=f"{app}/again")
        expect("the session goes on", page["text"].startswith("/again as "), page)

    def refreshes_once():
        before = provider.count("refresh_token")
        time.sleep(7)  # The access token has expired.
        statuses = browser.fetches(url=f"{app}/fetched", many=10)["statuses"]
        expect("all requests of the page pass", statuses == [200] * 10, statuses)
        refreshed = provider.count("refresh_token") - before
        expect("the tokens are refreshed once", refreshed == 1, refreshed)

    def forged():
        for query in ["code=x&state=y", "error=access_denied&state=y", "state=y", "code=x"]:
            page = browser.open(url=f"{app}/oidc/callback?{query}")
            expect(f"a callback that nobody asked for ({query}) logs nobody in", page["status"] in (400, 401, 403), page)
        browser.fresh()
        status, _ = get(stand.backchannel, form={"logout_token": "eyJhbGciOiJub25lIn0.e30."})
        expect("a forged logout token is refused", status == 400, status)

    def page_without_login():
        status, text = get(f"http://127.0.0.1:{stand.ports['http']}/api", headers={"accept": "application/json"})
        expect("what is no page is answered with 401", status == 401, (status, text))

    def front_channel():
        enters()
        page = browser.open(url=f"{app}/oidc/logout")
        provider.confirm(browser)
        expect("the session's cookies are gone", not session(), session())
        page = browser.open(url=f"{app}/hello")
        expect("a login is needed again", provider.is_asking(page), page)
        page = provider.log_in(browser)
        expect("and possible", page["text"].startswith("/hello as "), page)

    def back_channel():
        enters()
        provider.log_out(browser)
        for _ in range(50):  # The provider tells the gateway soon after.
            page = browser.open(url=f"{app}/hello")
            if provider.is_asking(page):
                return
            time.sleep(0.1)
        raise Failed(f"the session goes on: {page}")

    def rotated_keys():
        enters()
        if provider.rotate():
            page = enters()
            expect("tokens by the new key are good", page["text"].startswith("/hello?x=1 as "), page)

    return [login, again, refreshes_once, page_without_login, forged, front_channel, back_channel, rotated_keys]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gateway", default=str(ROOT / "target" / "debug" / "ferrum-edge"))
    parser.add_argument("--modules", default=str(ROOT / "target" / "interop" / "node"))
    parser.add_argument("--keycloak", default=str(ROOT / "target" / "interop" / "keycloak"))
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    providers = {"node": Node, "keycloak": Keycloak}
    wrong = 0
    for name in args.names or providers:
        if name == "keycloak" and not pathlib.Path(args.keycloak).is_dir():
            print(f"-    {name}: not installed at {args.keycloak}")
            continue
        stand, browser = Stand(args), None
        failed = 0
        try:
            provider = providers[name](stand)
            stand.gateway(provider.issuer)
            browser = Browser(args.modules, shutil.which("chromium"))
            for check in checks(stand, provider, browser):
                label = f"{name}: {check.__name__.replace('_', ' ')}"
                try:
                    check()
                    print(f"ok   {label}", flush=True)
                except (Failed, OSError, ValueError) as error:
                    failed += 1
                    print(f"FAIL {label}: {error}", flush=True)
        finally:
            if browser:
                browser.end()
            stand.end()
        if failed:
            print(f"{failed} failed; what gateway and provider wrote: {stand.folder / 'log'}")
        else:
            shutil.rmtree(stand.folder)
        wrong += failed
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
