"""promtool and Prometheus: what /metrics says in both formats while traffic passes, and the alert rules of `deploy/observability/`."""

import json
import pathlib
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

from stand import ROOT, Failed, Score, Stand, free_ports, run, tool


def check_metrics(admin, accept):
    request = urllib.request.Request(f"http://127.0.0.1:{admin}/metrics", headers={"accept": accept} if accept else {})
    with urllib.request.urlopen(request, timeout=10) as answer:
        text = answer.read().decode()
    if "openmetrics" in accept:
        if not text.endswith("# EOF\n"):
            raise Failed("OpenMetrics without an end")
        return
    done = subprocess.run([tool("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0 or done.stderr.strip():
        raise Failed((done.stderr + done.stdout).strip()[-600:])


def query(port, expression):
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(url, timeout=10) as answer:
        result = json.load(answer)["data"]["result"]
    return [float(series["value"][1]) for series in result]


def check_native(admin, requests):
    """Prometheus takes the native histograms, which no text format has, and computes with them."""
    with tempfile.TemporaryDirectory() as folder:
        (port,) = free_ports(1)
        config = pathlib.Path(folder) / "prometheus.yml"
        config.write_text(json.dumps({"scrape_configs": [{
            "job_name": "edge", "scrape_interval": "1s", "static_configs": [{"targets": [f"127.0.0.1:{admin}"]}]}]}))
        process = subprocess.Popen(
            [tool("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}",
             "--enable-feature=native-histograms"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            counts = []
            for _ in range(60):
                time.sleep(0.5)
                try:
                    counts = query(port, "histogram_count(http_server_request_duration_seconds)")
                except OSError:
                    continue
                if counts:
                    break
            if sum(counts) != requests:
                raise Failed(f"{requests} requests are {counts} in Prometheus")
            median, = query(port, "histogram_quantile(0.5, sum(http_server_request_duration_seconds))")
            if not 0 < median < 10:
                raise Failed(f"the median is {median} s")
            by_proxy = query(port, "sum(histogram_count(ferrum_proxy_request_duration_seconds))")
            if by_proxy != [requests]:
                raise Failed(f"{requests} requests are {by_proxy} by proxy")
            for name in ("ferrum_config_revision", "ferrum_proxy_requests_total", "up"):
                if not query(port, name):
                    raise Failed(f"{name} did not come")
        finally:
            process.terminate()
            process.wait(20)


def suites(args):
    http, admin, tcp, udp = free_ports(4)
    score = Score("promtool")
    with Stand(args) as stand:
        echo = stand.backend()

        def proxy(name, **more):
            return {"id": name, "backend_host": "127.0.0.1", **more}

        stand.gateway({
            "gateway": {"http": f"127.0.0.1:{http}", "admin": f"127.0.0.1:{admin}", "stream_address": "127.0.0.1"},
            "proxies": [proxy("web", listen_path="/", backend_scheme="http", backend_port=echo["http"]),
                        proxy("gone", listen_path="/gone", backend_scheme="http", backend_port=1),
                        proxy("tcp", listen_port=tcp, backend_scheme="tcp", backend_port=echo["tcp"]),
                        proxy("udp", listen_port=udp, backend_scheme="udp", backend_port=echo["udp"])],
            "plugin_configs": [{"id": "limit", "plugin_name": "rate_limiting", "scope": "global", "config": {"limits": [{"rate": 3, "per": "1m"}]}}],
        }, admin)
        for path in ("", "a", "gone", "a", "a", "a"):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{http}/{path}", timeout=10).read()
            except urllib.error.HTTPError:
                pass
        for accept in ("", "application/openmetrics-text; version=1.0.0"):
            score.check(f"/metrics as {accept or 'text'}", check_metrics, admin, accept)
        score.check("native histograms in Prometheus", check_native, admin, 6)
    for rules in sorted((ROOT / "deploy/observability").rglob("*.y*ml")):
        text = rules.read_text()
        if "groups:" in text:
            score.check(f"rules of {rules.name}", run, [tool("promtool"), "check", "rules", str(rules)])
    return [score]
