"""An HTTP/3 client by aioquic: posts a body to a URL and wants it back. Usage: h3.py URL BYTES"""

import asyncio
import ssl
import sys
from urllib.parse import urlparse

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration


class Client(QuicConnectionProtocol):
    """One request, one answer."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.status, self.body = None, b""
        self.done = asyncio.get_running_loop().create_future()

    async def post(self, url, body):
        stream = self._quic.get_next_available_stream_id()
        head = {":method": "POST", ":scheme": "https", ":authority": url.netloc, ":path": url.path or "/"}
        self.http.send_headers(stream, [(k.encode(), v.encode()) for k, v in head.items()])
        self.http.send_data(stream, body, end_stream=True)
        self.transmit()
        return await asyncio.wait_for(self.done, 20)

    def quic_event_received(self, event):
        for said in self.http.handle_event(event):
            if isinstance(said, HeadersReceived) and self.status is None:
                self.status = dict(said.headers)[b":status"]
            elif isinstance(said, DataReceived):
                self.body += said.data
            if getattr(said, "stream_ended", False) and not self.done.done():
                self.done.set_result((self.status, self.body))


async def main(url, size):
    parts = urlparse(url)
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, verify_mode=ssl.CERT_NONE)
    configuration.server_name = "localhost"
    async with connect(parts.hostname, parts.port, configuration=configuration, create_protocol=Client) as client:
        body = b"q" * size
        status, got = await client.post(parts, body)
        if status != b"200" or got != body:
            sys.exit(f"status {status}, {len(got)} bytes of {size} came back")


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
