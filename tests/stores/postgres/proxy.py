"""A relay between a store and its server that loses connections at chosen moments, or deals out server connections as
a pooler in transaction mode does.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections import Counter
from typing import Final, Literal
from urllib.parse import urlsplit, urlunsplit

# What is sent to commit a transaction, and what is in every write that is one statement.
COMMIT: Final = b"\0COMMIT\0"
QUICK: Final = b"guarded_"

_READY: Final = b"Z"
_SYNC: Final = b"S\0\0\0\4"
_GOODBYE: Final = b"SFATAL\0VFATAL\0C08P01\0Mserver conn crashed?\0\0"

How = Literal["request", "answer", "late", "fatal", "swallow"]


class Relay:
    """Relays connections, each on a thread of its own.

    Armed with a marker, it strikes at the next request that holds it: "request" cuts the connection before the server
    gets it, "answer" after the server has answered, "late" cuts it at once and lets the server have it on `release`,
    "fatal" is as "answer", but says goodbye as a pooler does whose server is gone; "swallow" takes the request and does
    nothing.
    With more than one server connection per client, each transaction goes to the next of them, the first not to that
    which the client was told of. Words that are `unknown` reach the server as others, which it does not know either.
    While it `is_mute`, it accepts connections, as a pooler does, and answers no request.
    """

    def __init__(self, url: str, *, servers: int = 1, unknown: tuple[bytes, ...] = ()) -> None:
        self._parts = urlsplit(url)
        self._servers = servers
        self._unknown = unknown
        self.disguised: Counter[bytes] = Counter()
        self._door = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._marker: bytes | None = None
        self._how: How = "request"
        self._passing = 0
        self._late: list[tuple[socket.socket, bytes]] = []
        self._open: set[socket.socket] = set()
        self.refuses = False
        self.is_mute = False
        self.struck = threading.Event()
        self.switches = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        user = self._parts.netloc.rpartition("@")[0]
        place = f"127.0.0.1:{self._door.getsockname()[1]}"
        netloc = f"{user}@{place}" if user else place
        query = f"{self._parts.query}&sslmode=disable&gssencmode=disable".lstrip("&")
        return urlunsplit(self._parts._replace(netloc=netloc, query=query))

    def arm(self, marker: bytes, how: How, *, passing: int = 0) -> None:
        """Strike at a request with this marker, once so many of them have passed."""
        self.struck.clear()
        with self._lock:
            self._marker, self._how, self._passing = marker, how, passing

    def release(self) -> None:
        """Let the server have what came late, and wait until it has dealt with it."""
        for server, data in self._late:
            server.settimeout(10)
            server.sendall(data)
            received = b""
            while not _is_ready(received):
                more = server.recv(1 << 16)
                if not more:
                    break
                received += more
            server.close()
        self._late.clear()

    def cut(self) -> None:
        """Cut every connection."""
        with self._lock:
            for each in self._open:
                _shut(each)

    def close(self) -> None:
        self._door.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            if self.refuses:
                client.close()
                continue
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        servers = [
            socket.create_connection((self._parts.hostname or "localhost", self._parts.port or 5432))
            for _ in range(self._servers)
        ]
        ends = [client, *servers]
        with self._lock:
            self._open.update(ends)
        try:
            self._serve(client, servers)
        except OSError:
            pass
        finally:
            with self._lock:
                self._open.difference_update(ends)
            late = {server for server, _ in self._late}
            for each in ends:
                if each not in late:
                    each.close()

    def _serve(self, client: socket.socket, servers: list[socket.socket]) -> None:
        if len(servers) > 1:
            _start_others(client, servers)
        current = len(servers) - 1
        cutting = saying = False
        answer = b""
        frames = _Frames()
        while True:
            readable, _, _ = select.select([client, servers[current]], [], [])
            if client in readable:
                data = client.recv(1 << 16)
                if not data:
                    return
                data = self._disguise(data)
                how = self._strikes(data)
                if how == "request":
                    self.struck.set()
                    return
                if how == "late":
                    while _SYNC not in data[-10:]:  # a request may come in several parts
                        data += client.recv(1 << 16)
                    self._late.append((servers[current], data))
                    self.struck.set()
                    return
                if how == "swallow" or (self.is_mute and data[:1] != b"\0"):
                    self.struck.set()
                    while client.recv(1 << 16):
                        continue
                    return
                saying = saying or how == "fatal"
                cutting = cutting or how in ("answer", "fatal")
                servers[current].sendall(data)
            if servers[current] in readable:
                data = servers[current].recv(1 << 16)
                if not data:
                    return
                if cutting:
                    answer += data
                    if _is_ready(answer):
                        if saying:
                            client.sendall(b"E" + struct.pack(">I", 4 + len(_GOODBYE)) + _GOODBYE)
                        self.struck.set()
                        return
                    continue
                client.sendall(data)
                if len(servers) > 1 and frames.feed(data) == b"I":
                    current = (current + 1) % len(servers)
                    frames = _Frames()
                    self.switches += 1

    def _disguise(self, data: bytes) -> bytes:
        for word in self._unknown:
            if word in data:
                with self._lock:
                    self.disguised[word] += 1
                data = data.replace(word, b"X" * len(word))
        return data

    def _strikes(self, data: bytes) -> How | None:
        with self._lock:
            if self._marker is None or self._marker not in data:
                return None
            if self._passing:
                self._passing -= 1
                return None
            self._marker = None
            return self._how


class _Frames:
    """Follows what a server says, message by message."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes | None:
        """The state of the transaction, if the server has just said that it is ready for more; else None."""
        self._rest += data
        state = None
        while len(self._rest) >= 5:
            (length,) = struct.unpack_from(">I", self._rest, 1)
            if len(self._rest) < 1 + length:
                break
            state = self._rest[5:6] if self._rest[:1] == _READY else None
            self._rest = self._rest[1 + length :]
        return state if not self._rest else None


def _start_others(client: socket.socket, servers: list[socket.socket]) -> None:
    """Log in on every server connection with what the client says; it gets the answers of the first."""
    hello = client.recv(1 << 16)
    for server in servers:
        server.sendall(hello)
    for index, server in enumerate(servers):
        frames = _Frames()
        while True:
            data = server.recv(1 << 16)
            if not data:
                raise OSError("the server hung up")
            if index == 0:
                client.sendall(data)
            if frames.feed(data) is not None:
                break


def _is_ready(answer: bytes) -> bool:
    return answer[-6:-1] == b"Z\0\0\0\5"


def _shut(each: socket.socket) -> None:
    try:
        each.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
