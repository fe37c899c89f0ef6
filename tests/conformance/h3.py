"""HTTP/3 clients of others: the checks that QUIC's interop runs know by letters, with aioquic, and quic-go's.

V version negotiation, H handshake, C close, D data, 3 HTTP/3, R resumption, Z early data, S Retry, Q a ClientHello in several
packets, M another connection id, B a NAT that forgets, A an address that changes, U key update, d QPACK with a dynamic table.
"""

import asyncio
import logging
import socket
import ssl
import sys
import urllib.parse

from stand import Failed, Missing, Score, Stand, free_ports, run, tool

try:
    from aioquic.asyncio import connect
    from aioquic.asyncio.protocol import QuicConnectionProtocol
    from aioquic.h3.connection import H3_ALPN, H3Connection
    from aioquic.h3.events import DataReceived, HeadersReceived
    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.logger import QuicLogger
except ImportError:
    QuicConnectionProtocol = object

PATIENCE = 15


class Client(QuicConnectionProtocol):
    """Requests over HTTP/3, one after the other."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.waiting = {}

    async def ask(self, port, method="GET", path="/", body=b""):
        stream = self._quic.get_next_available_stream_id()
        head = {":method": method, ":scheme": "https", ":authority": f"localhost:{port}", ":path": path, "user-agent": "aioquic"}
        self.waiting[stream] = [None, b"", done := asyncio.get_running_loop().create_future()]
        self.http.send_headers(stream, [(k.encode(), v.encode()) for k, v in head.items()], end_stream=not body)
        if body:
            self.http.send_data(stream, body, end_stream=True)
        self.transmit()
        await asyncio.wait_for(done, PATIENCE)
        status, got, _ = self.waiting.pop(stream)
        return status, got

    def quic_event_received(self, event):
        for said in self.http.handle_event(event):
            waiting = self.waiting.get(getattr(said, "stream_id", None))
            if waiting is None:
                continue
            if isinstance(said, HeadersReceived) and waiting[0] is None:
                waiting[0] = int(dict(said.headers)[b":status"])
            elif isinstance(said, DataReceived):
                waiting[1] += said.data
            if said.stream_ended and not waiting[2].done():
                waiting[2].set_result(None)


def configuration(**more):
    made = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, verify_mode=ssl.CERT_NONE, quic_logger=QuicLogger(), **more)
    made.server_name = "localhost"
    return made


def opened(port, made, **more):
    return connect("127.0.0.1", port, configuration=made, create_protocol=Client, **more)


def packets(made, kind):
    events = [event for trace in made.quic_logger.to_dict()["traces"] for event in trace["events"]]
    return [event["data"] for event in events
            if event["name"] == "transport:packet_received" and event["data"]["header"]["packet_type"] == kind]


async def good(client, port, size=0):
    body = b"q" * size
    status, got = await client.ask(port, "POST" if size else "GET", "/echo", body)
    if status != 200 or (size and got != body):
        raise Failed(f"status {status}, {len(got)} bytes of {size} came back")


async def v(port):
    made = configuration()
    made.supported_versions.insert(0, 0x1A2A3A4A)
    async with opened(port, made) as client:
        await client.ping()
    if not packets(made, "version_negotiation"):
        raise Failed("no version negotiation")


async def h(port):
    async with opened(port, configuration()) as client:
        await client.ping()


async def c(port):
    async with opened(port, configuration()) as client:
        await client.ping()
        client.close()
        await asyncio.wait_for(client.wait_closed(), PATIENCE)


async def d(port):
    async with opened(port, configuration()) as client:
        for size in (1, 1000, 500_000):
            await good(client, port, size)


async def three(port):
    async with opened(port, configuration()) as client:
        for _ in range(3):
            await good(client, port)


async def again(port):
    """A second connection with the first one's ticket."""
    tickets = []
    async with opened(port, configuration(), session_ticket_handler=tickets.append) as client:
        await good(client, port)
        for _ in range(50):
            if tickets:
                break
            await asyncio.sleep(0.1)
    if not tickets:
        raise Failed("no ticket came")
    made = configuration(session_ticket=tickets[0])
    async with opened(port, made, wait_connected=False) as client:
        await good(client, port)
        return client._quic.tls.session_resumed, client._quic.tls.early_data_accepted


async def r(port):
    if not (await again(port))[0]:
        raise Failed("the session was not resumed")


async def z(port):
    if not (await again(port))[1]:
        raise Failed("the early data was not accepted")


async def s(port):
    """The gateway asks for a Retry when many clients' addresses are unproved: hellos that nobody goes on with."""
    silent = []
    try:
        for _ in range(FLOOD):
            made = configuration()
            client = connect("127.0.0.1", port, configuration=made, create_protocol=Mute, wait_connected=False)
            silent.append(client)
            (await client.__aenter__()).transmit()
        made = configuration()
        async with opened(port, made) as client:
            await good(client, port)
    finally:
        await asyncio.gather(*(each.__aexit__(None, None, None) for each in silent), return_exceptions=True)
    if not packets(made, "retry"):
        raise Failed(f"no Retry while {FLOOD} handshakes are under way")


FLOOD = 2000


class Mute(QuicConnectionProtocol):
    """Says hello and hears nothing."""

    def datagram_received(self, data, addr):
        pass

    async def wait_closed(self):
        pass


async def q(port):
    made = configuration(quantum_readiness_test=True)
    async with opened(port, made) as client:
        await good(client, port)


async def m(port):
    async with opened(port, configuration()) as client:
        await good(client, port)
        client.change_connection_id()
        await good(client, port)


async def moved(port, another_id):
    made = configuration()
    async with opened(port, made) as client:
        await good(client, port)
        client._transport.close()
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: client, local_addr=("::", 0))
        if another_id:
            client.change_connection_id()
        await good(client, port)
        await client.ping()
    frames = [frame["frame_type"] for packet in packets(made, "1RTT") for frame in packet["frames"]]
    if "path_challenge" not in frames:
        raise Failed("no PATH_CHALLENGE came")


async def b(port):
    await moved(port, False)


async def a(port):
    await moved(port, True)


async def u(port):
    async with opened(port, configuration()) as client:
        await good(client, port)
        client.request_key_update()
        await good(client, port, 1000)


async def dynamic(port):
    """A client that fills its table and refers to it: whatever the gateway says of its own table's size, it must answer."""
    async with opened(port, configuration()) as client:
        for _ in range(3):
            await good(client, port)
        if client.http._decoder_bytes_received is None:
            raise Failed("no QPACK stream")


AIOQUIC = {"V": v, "H": h, "D": d, "C": c, "R": r, "Q": q, "M": m, "B": b, "A": a, "U": u, "3": three, "Z": z, "S": s, "d": dynamic}


def check_aioquic(check, port):
    try:
        asyncio.run(asyncio.wait_for(check(port), 60))
    except (asyncio.TimeoutError, ConnectionError, AssertionError, KeyError, StopAsyncIteration) as error:
        raise Failed(f"{type(error).__name__} {error}") from error


def suites(args):
    """aioquic's letters, then quic-go."""
    logging.getLogger("quic").setLevel(logging.CRITICAL)
    https, http = free_ports(2)
    with Stand(args) as stand:
        stand.folder.authority()
        pair = stand.folder.certificate(names=("localhost",))
        echo = stand.backend()["http"]
        stand.gateway({
            "gateway": {"http": f"127.0.0.1:{http}", "https": f"127.0.0.1:{https}", "http3": True, "admin": "off", "workers": 1,
                        "tls": {"certificates": [pair], "early_data": True}},
            "proxies": [{"id": "web", "listen_path": "/", "backend_scheme": "http", "backend_host": "127.0.0.1", "backend_port": echo,
                         "strip_listen_path": False}]}, http)
        scores = []
        if QuicConnectionProtocol is object:
            print("     aioquic is not installed (run this with the Python that setup.sh made)")
        else:
            score = Score("aioquic")
            for letter, check in AIOQUIC.items():
                score.check(letter, check_aioquic, check, https)
            scores.append(score)
        try:
            peers, score = tool("interop"), Score("quic-go")
        except Missing as missing:
            print(f"     quic-go is left out: {missing} is not installed")
            return scores
        score.check("echo of 1 byte to 1 MiB", run, [peers, "h3", f"https://127.0.0.1:{https}/echo", "localhost"])
        return [*scores, score]
