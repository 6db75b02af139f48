"""The load sends the stated requests at the stated rate, and counts the full wait of a caller."""

import contextlib
import itertools
import socket
import threading
import time

import pytest

from swerve.bench.load import Connection, drive
from swerve.core.errors import SwerveError

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine"
REQUEST = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi"


class Responder:
    """A minimal server: the n-th request, of any connection, gets `answer(n)`."""

    def __init__(self, answer):
        self.answer, self.count, self.seen, self.lock = answer, 0, [], threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def accept(self):
        while True:
            try:
                line, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self.talk, args=(line,))
            self.threads.append(thread)
            thread.start()

    def talk(self, line):
        with line, contextlib.suppress(ConnectionError):  # a failing load closes the connection
            while data := line.recv(65536):
                with self.lock:
                    number, self.count = self.count, self.count + 1
                    self.seen.append(data)
                for part in self.answer(number):
                    line.sendall(part)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join()


def test_every_request_is_sent_once_and_answered():
    requests = [b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n%03d" % number for number in range(50)]
    with Responder(lambda number: [ANSWER]) as server:
        turn = drive(server.port, requests, 4, 10.0)
    assert sorted(server.seen) == requests
    assert turn.answers == 50 and turn.degraded == 0 and turn.seconds < 10.0
    assert 0.0 < turn.p50 <= turn.p99


def test_answers_in_pieces_are_put_together():
    pieces = [ANSWER[:10], ANSWER[10:30], ANSWER[30:]]

    def slowly(number):
        for piece in pieces:
            yield piece
            time.sleep(0.002)

    with Responder(slowly) as server:
        line = Connection(server.port)
        assert line.call(REQUEST) == b"fine"
        assert line.call(REQUEST) == b"fine"
        line.socket.close()


def test_degraded_answers_are_counted():
    degraded = b'HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{"degraded":true}'
    with Responder(lambda number: [degraded if number % 5 == 0 else ANSWER]) as server:
        turn = drive(server.port, itertools.repeat(REQUEST, 20), 2, 10.0)
    assert turn.degraded == 4


def test_a_refusal_ends_the_load_with_its_words():
    refusal = b"HTTP/1.1 422 Unprocessable\r\ncontent-length: 9\r\n\r\nno reason"
    with Responder(lambda number: [refusal]) as server, pytest.raises(SwerveError, match=r"refused.*422(.|\n)*no reason"):
        drive(server.port, itertools.repeat(REQUEST, 20), 2, 10.0)


def test_a_rate_is_kept():
    with Responder(lambda number: [ANSWER]) as server:
        turn = drive(server.port, itertools.repeat(REQUEST), 4, 0.5, rate=200.0)
    assert 99 <= turn.answers <= 101
    assert turn.seconds == pytest.approx(0.5, abs=0.1)


def test_who_waits_behind_a_slow_answer_is_counted_as_waiting():
    """One connection, a request due every 5 ms, the first answered after 200 ms: the following requests were due meanwhile."""

    def once_slow(number):
        if number == 0:
            time.sleep(0.2)
        yield ANSWER

    with Responder(once_slow) as server:
        turn = drive(server.port, itertools.repeat(REQUEST, 40), 1, 5.0, rate=200.0)
    assert turn.answers == 40
    assert turn.p50 > 0.05  # half were due before the first answer; measured from their sending, each would take a millisecond
