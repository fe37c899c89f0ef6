"""Autobahn's WebSocket cases (run by kosoku), through the gateway to an echo server and the other way round.

Bytes passed through, and messages inspected by a plugin. Limits are tried with messages of our own.
"""

import asyncio
import logging
import threading

from stand import Failed, Missing, Score, Stand, free_ports

try:
    import kosoku
    import websockets
    from websockets.asyncio.client import connect
    from websockets.asyncio.server import serve
except ImportError as error:
    raise Missing("kosoku and websockets (run this with the Python that setup.sh made)") from error

MIB = 1 << 20
# All but 9.3 to 9.8 and 12.2 to 13.7, which are the same cases with more bytes, and take an hour.
CASES = [*(f"{group}.*" for group in (1, 2, 3, 4, 5, 6, 7, 10)), "9.1.*", "9.2.*", "12.1.*", "13.1.*"]
GOOD = ("OK", "INFORMATIONAL", "NON-STRICT", "UNIMPLEMENTED", "UNCLEAN")


class Echo:
    """An echo server with compression and no limits, in a thread of its own."""

    def __init__(self):
        self.port, self.ready = None, threading.Event()
        threading.Thread(target=lambda: asyncio.run(self.main()), daemon=True).start()
        self.ready.wait(10)

    async def main(self):
        async def echo(connection):
            async for message in connection:
                await connection.send(message)

        async with serve(echo, "127.0.0.1", 0, max_size=None, ping_interval=None) as server:
            self.port = server.sockets[0].getsockname()[1]
            self.ready.set()
            await server.serve_forever()


async def judged(title, url):
    """All cases as a client of the gateway; of what a case only reports, nothing is judged."""
    score = Score(f"Autobahn, {title}")
    try:
        results = await kosoku.run_fuzzingclient(url, CASES, None, concurrency=2)
    except kosoku.FailureError as error:
        results = error.results
    for result in results:
        said = [str(getattr(each, "value", each)).upper() for each in (result.behavior, result.behavior_close)]
        score.add(f"case {result.case_id}", None if all(each in GOOD for each in said) else " and ".join(said))
    return score


async def limits(score, http):
    """Messages around a limit of 10,000 bytes, compressed and not."""
    for size, wanted in ((10_000, None), (10_001, 1009), (5_000_000, 1009)):
        for compression in (None, "deflate"):
            try:
                await limited(f"ws://127.0.0.1:{http}/limited", size, wanted, compression)
                error = None
            except (Failed, OSError, asyncio.TimeoutError, websockets.WebSocketException) as failed:
                error = f"{type(failed).__name__} {failed}"
            score.add(f"{size} bytes{', compressed' if compression else ''}", error)


async def limited(url, size, wanted, compression):
    """A message of a size; `wanted` is the close code, or None where it comes back."""
    async with connect(url, max_size=None, compression=compression) as connection:
        await connection.send("x" * size)
        try:
            got = await asyncio.wait_for(connection.recv(), 20)
        except websockets.ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd else None
            if code != wanted:
                raise Failed(f"closed with {code}, not {wanted}") from closed
            return
    if wanted is not None or len(got) != size:
        raise Failed(f"{len(got)} bytes came back")


def suites(args):
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    http, https = free_ports(2)
    echo = Echo()
    with Stand(args) as stand:
        stand.folder.authority()
        pair = stand.folder.certificate()

        def proxy(name, path, **more):
            return {"id": name, "listen_path": path, "backend_scheme": "http", "backend_host": "127.0.0.1",
                    "backend_port": echo.port, **more}

        def limit(name, size):
            return {"id": f"limit-{name}", "plugin_name": "ws_message_size_limiting", "scope": "proxy", "proxy_id": name,
                    "config": {"max_from_client": size, "max_from_target": size}}

        stand.gateway({
            "gateway": {"http": f"127.0.0.1:{http}", "https": f"127.0.0.1:{https}", "admin": "off", "tls": {"certificates": [pair]}},
            "proxies": [proxy("passed", "/"),
                        proxy("inspected", "/inspected", websocket_max_message=64 * MIB, plugins=[{"plugin_config_id": "limit-inspected"}]),
                        proxy("limited", "/limited", plugins=[{"plugin_config_id": "limit-limited"}])],
            "plugin_configs": [limit("inspected", 64 * MIB), limit("limited", 10_000)],
        }, http)
        scores = [asyncio.run(judged("passed through", f"ws://127.0.0.1:{http}/")),
                  asyncio.run(judged("inspected", f"ws://127.0.0.1:{http}/inspected"))]
        score = Score("WebSocket limits")
        asyncio.run(limits(score, http))
        return [*scores, score]
