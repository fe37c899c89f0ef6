#!/usr/bin/env bash
# Installs the foreign suites and clients of tests/conformance: Debian's packages, Go programs, a Python environment, and a copy of
# tlsfuzzer. Needs go. They go to target/conformance, or where CONFORMANCE_TOOLS says. What can't be had is left out, and run.py says so.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tools=${CONFORMANCE_TOOLS:-$here/../../target/conformance}
mkdir -p "$tools"
tools=$(cd "$tools" && pwd)
failed=0
try() { "$@" || { echo "not installed: $*" >&2; failed=1; }; }

if command -v apt-get >/dev/null; then
  sudo=()
  [ "$(id -u)" -eq 0 ] || sudo=(sudo -n)
  try "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq -y install --no-install-recommends \
    openssl curl dnsutils dnsmasq-base gnutls-bin libwolfssl-dev gcc libc6-dev haproxy nginx prometheus chromium git python3-venv
fi

# h2spec, gRPC's interop client and server, and the peers written for quic-go and pion.
export GOBIN=$tools
try go install github.com/summerwind/h2spec/cmd/h2spec@latest
try go install google.golang.org/grpc/interop/client@latest
try go install google.golang.org/grpc/interop/server@latest
try go build -C "$here/go" -o "$tools/interop" .

# Autobahn's cases (kosoku), aioquic, schemathesis, sslyze, and what tlsfuzzer is made of.
[ -x "$tools/venv/bin/python" ] || try python3 -m venv "$tools/venv"
try "$tools/venv/bin/pip" install -q kosoku websockets aioquic schemathesis sslyze
try "$tools/venv/bin/pip" install -q --pre tlslite-ng
if [ ! -d "$tools/tlsfuzzer/scripts" ]; then
  try git clone -q --depth 1 "${TLSFUZZER_SOURCE:-https://github.com/tlsfuzzer/tlsfuzzer}" "$tools/tlsfuzzer"
fi

try cc -O1 -o "$tools/dtls_wolfssl" "$here/dtls_wolfssl.c" -lwolfssl
exit $failed
