"""Bodies as they pass: where a body ends, without copying or changing it, and what a chunked one says."""

from __future__ import annotations

from swerve.proxy.heads import CHUNKED, MOST_HEAD, UNTIL_CLOSE

#: Bytes of the line of a chunk: its size, and extensions that nobody uses.
MOST_LINE = 1024
#: Digits of a chunk's size.
MOST_DIGITS = 15
HEX = frozenset(b"0123456789abcdefABCDEF")
SIZE, DATA, AFTER, TRAILER = range(4)


class BadBody(Exception):  # noqa: N818 - names what came
    """A body whose chunks cannot be read; the message says why."""


class Counted:
    """A body of a known length, or one that lasts until the connection closes."""

    __slots__ = ("left",)

    def __init__(self, length: int) -> None:
        self.left = length

    @property
    def done(self) -> bool:
        """Whether the body is complete."""
        return self.left == 0

    def feed(self, data: bytes | bytearray) -> int:
        """Take bytes; return how many of them belong to the body."""
        if self.left == UNTIL_CLOSE:
            return len(data)
        taken = min(self.left, len(data))
        self.left -= taken
        return taken


class Chunks:
    """A chunked body. Its lines must end in CR LF, and its sizes must be plain hexadecimal numbers."""

    __slots__ = ("_left", "_line", "_stage", "_trailers", "content", "done")

    def __init__(self, content: bytearray | None = None) -> None:
        self._stage, self._left, self._line, self._trailers, self.done = SIZE, 0, bytearray(), 0, False
        self.content = content  # collects the decoded body, if it is wanted

    def feed(self, data: bytes | bytearray) -> int:
        """Take bytes; return how many of them belong to the body. Raises `BadBody`."""
        at, length = 0, len(data)
        while at < length and not self.done:
            if self._stage == DATA:
                taken = min(self._left, length - at)
                if self.content is not None:
                    self.content += data[at : at + taken]
                self._left -= taken
                at += taken
                if self._left == 0:
                    self._stage = AFTER
                continue
            end = data.find(b"\n", at)
            stop = length if end < 0 else end + 1
            self._line += data[at:stop]
            at = stop
            if len(self._line) > MOST_LINE:
                raise BadBody("the line of a chunk is too long")
            if end >= 0:
                self._whole_line(bytes(self._line))
                self._line.clear()
        return at

    def _whole_line(self, line: bytes) -> None:
        if not line.endswith(b"\r\n") or b"\r" in line[:-2] or b"\x00" in line:
            raise BadBody("a line of a chunk does not end in CR LF")
        line = line[:-2]
        if self._stage == AFTER:
            if line:
                raise BadBody("a chunk is longer than its size")
            self._stage = SIZE
        elif self._stage == SIZE:
            digits = line.partition(b";")[0].rstrip(b" \t") if b";" in line else line
            if not digits or len(digits) > MOST_DIGITS or not HEX.issuperset(digits):
                raise BadBody("the size of a chunk is no number")
            self._left = int(digits, 16)
            self._stage = DATA if self._left else TRAILER
        else:
            self._trailers += len(line)
            if self._trailers > MOST_HEAD:
                raise BadBody("the trailers are too long")
            if line[:1] in (b" ", b"\t"):
                raise BadBody("a trailer is folded over two lines")
            self.done = not line


Body = Counted | Chunks


def body_of(framing: int) -> Body:
    """Return the reader of a body by its framing."""
    return Chunks() if framing == CHUNKED else Counted(framing)
