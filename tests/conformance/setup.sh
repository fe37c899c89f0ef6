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
    openssl curl dnsutils dnsmasq-base gnutls-bin libwolfssl-dev cmake make gcc libc6-dev haproxy nginx caddy prometheus chromium git python3-venv
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

# Distributions build wolfSSL without DTLS 1.3. WOLFSSL_SOURCE is a folder with its source.
if [ ! -f "$tools/wolfssl/libwolfssl.a" ]; then
  source=${WOLFSSL_SOURCE:-$tools/wolfssl-source}
  [ -d "$source" ] || try git clone -q --depth 1 --branch v5.9.4-stable https://github.com/wolfSSL/wolfssl "$source"
  try cmake -S "$source" -B "$tools/wolfssl" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DWOLFSSL_DTLS=yes -DWOLFSSL_DTLS13=yes \
    -DWOLFSSL_TLS13=yes -DWOLFSSL_SNI=yes -DWOLFSSL_EXAMPLES=no -DWOLFSSL_CRYPT_TESTS=no >/dev/null
  try cmake --build "$tools/wolfssl" >/dev/null
fi
if [ -f "$tools/wolfssl/libwolfssl.a" ]; then
  source=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$tools/wolfssl/CMakeCache.txt")
  try cc -O1 -I"$tools/wolfssl" -I"$source" -o "$tools/dtls_wolfssl" "$here/dtls_wolfssl.c" "$tools/wolfssl/libwolfssl.a" -lm -lpthread
else
  try cc -O1 -o "$tools/dtls_wolfssl" "$here/dtls_wolfssl.c" -lwolfssl
fi
exit $failed
