"""A wire between two network namespaces: every packet takes a while, and some are lost. Not every kernel has `netem` for that.

    python wire.py NAMESPACE DEVICE NAMESPACE DEVICE CONTROL

makes a device (`/dev/net/tun`) in each namespace, prints a line, and carries packets between them until it is ended. CONTROL has
two numbers of eight bytes: the seconds that a packet takes each way, give or take a fifth, and the share of packets that is lost.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import itertools
import mmap
import os
import random
import selectors
import struct
import sys
import time

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CONTROL = struct.Struct("<2d")
MOST_BYTES = 65536


def enter(namespace: str) -> None:
    """Let this thread, and what it starts, be in a network namespace, named by its file."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(namespace) as file:
        if libc.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")


def device(namespace: str, name: str) -> int:
    """Make a device in a namespace; return the file of its packets."""
    enter(f"/var/run/netns/{namespace}")
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    return file


def carry(ends: dict[int, int], control: mmap.mmap) -> None:
    """Carry packets from each end to the other."""
    waiting: list[tuple[float, int, int, bytes]] = []
    order = itertools.count()
    with selectors.DefaultSelector() as ready:
        for end in ends:
            ready.register(end, selectors.EVENT_READ)
        while True:
            timeout = max(waiting[0][0] - time.monotonic(), 0.0) if waiting else None
            for key, _ in ready.select(timeout):
                seconds, lost = CONTROL.unpack_from(control)
                try:
                    packet = os.read(key.fd, MOST_BYTES)
                except OSError:  # the device is down
                    continue
                if random.random() >= lost:
                    due = time.monotonic() + seconds * random.uniform(0.8, 1.2)
                    heapq.heappush(waiting, (due, next(order), ends[key.fd], packet))
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, end, packet = heapq.heappop(waiting)
                try:
                    os.write(end, packet)
                except OSError:  # the device is down, or its queue is full: a packet is lost
                    continue


def main(first: str, name: str, second: str, other: str, path: str) -> None:
    """Make both devices, and carry."""
    ends = device(first, name), device(second, other)
    with open(path, "rb") as file:
        control = mmap.mmap(file.fileno(), CONTROL.size, access=mmap.ACCESS_READ)
    print("ready", flush=True)
    carry({ends[0]: ends[1], ends[1]: ends[0]}, control)


if __name__ == "__main__":
    main(*sys.argv[1:])
