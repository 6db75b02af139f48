"""A tap: passes a connection on and records its bytes, in both directions."""

from __future__ import annotations

import contextlib
import socket
import threading


class Tap:
    """Listens on a port of the loopback and passes everything on to another; can be cut and mended."""

    def __init__(self, upstream: int) -> None:
        self.upstream, self.cut_off = upstream, False
        self.sent, self.received = bytearray(), bytearray()  # to the upstream, and from it
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            if self.cut_off:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self.upstream))
            for sock in (near, far):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.pairs.append((near, far))
            for one, other, kept in ((near, far, self.sent), (far, near, self.received)):
                threading.Thread(target=self._pass, args=(one, other, kept), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, kept: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                kept += data
                other.sendall(data)
        for sock in (one, other):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """Begin a new record."""
        self.sent.clear()
        self.received.clear()

    def cut(self) -> None:
        """Break all connections, and every new one."""
        self.cut_off = True
        for pair in self.pairs:
            for sock in pair:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Accept connections again."""
        self.cut_off = False

    def __enter__(self) -> Tap:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.cut()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for pair in self.pairs:
            for sock in pair:
                sock.close()
