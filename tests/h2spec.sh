#!/bin/sh
# h2spec (https://github.com/summerwind/h2spec) against the gateway, over TLS and with prior knowledge.
#
# Usage: tests/h2spec.sh [GATEWAY]   (default: target/release/ferrum-edge; H2SPEC names another h2spec)
# Needs openssl, python3 and h2spec: go install github.com/summerwind/h2spec/cmd/h2spec@latest
set -eu
gateway=${1:-target/release/ferrum-edge}
h2spec=${H2SPEC:-h2spec}
work=$(mktemp -d)
pids=
trap 'kill $pids 2>/dev/null || true; rm -rf "$work"' EXIT

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
    -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null

# An origin that reads requests to their end before it answers, and a few free ports.
cat > "$work/origin.py" <<'PYTHON'
import socket, socketserver, sys

class Origin(socketserver.StreamRequestHandler):
    def handle(self):
        while True:
            head = []
            while (line := self.rfile.readline()) not in (b"\r\n", b""):
                head.append(line.lower())
            if not head:
                return
            for line in head:
                if line.startswith(b"content-length:"):
                    if len(self.rfile.read(int(line.split(b":")[1]))) < int(line.split(b":")[1]):
                        return
                elif line.startswith(b"transfer-encoding:"):
                    while size := int(self.rfile.readline() or b"0", 16):
                        self.rfile.read(size + 2)
                    self.rfile.readline()
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 64\r\n\r\n" + b"x" * 64)

class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

server = Server(("127.0.0.1", 0), Origin)
free = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(server.server_address[1], *[port.getsockname()[1] for port in free], flush=True)
for port in free:
    port.close()
server.serve_forever()
PYTHON
python3 "$work/origin.py" > "$work/ports" 2>/dev/null &
pids="$pids $!"
while ! read -r origin http https 2>/dev/null < "$work/ports" || [ -z "$https" ]; do :; done

cat > "$work/spec.yaml" <<YAML
gateway:
  http: 127.0.0.1:$http
  https: 127.0.0.1:$https
  tls: {certificates: [{cert_path: $work/cert.pem, key_path: $work/key.pem}]}
proxies:
  - {id: all, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: $origin}
YAML
"$gateway" run --spec "$work/spec.yaml" > "$work/log" 2>&1 &
pids="$pids $!"
until python3 -c "import socket; socket.create_connection(('127.0.0.1', $https))" 2>/dev/null; do :; done

failed=0
echo "over TLS"
"$h2spec" -h 127.0.0.1 -p "$https" -t -k -o 3 > "$work/tls" || true
echo "with prior knowledge"
"$h2spec" -h 127.0.0.1 -p "$http" -o 3 > "$work/plain" || true
for run in tls plain; do
    sed -n '/^Failures:/,$p' "$work/$run"
    tail -1 "$work/$run"
    others=$(sed -n '/^Failures:/,$p' "$work/$run" | grep '×' || true)
    # The plain port speaks HTTP/1.1 too: what does not begin with the preface is refused by its rules, with a 400.
    [ "$run" = plain ] && others=$(echo "$others" | grep -v 'Sends invalid connection preface' || true)
    [ -z "$others" ] || failed=1
done
exit $failed
