"""The driver of NVIDIA's GPUs by `ctypes`: its start, memory, queues, code and launches. Nothing here imports Numba.

Starting the driver takes about as long as importing everything else. `begin` does it in the background, and the others wait for it.
Each thread has a queue of its own; what several threads launch runs at the same time.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

LIBRARY = "libcuda.so.1"
#: Queues between which the GPU chooses; the driver reads it once. Threads that share one may wait for each other.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

#: Attributes of a device, by their numbers in the driver's interface.
MAJOR, MINOR, POOLS = 75, 76, 115
#: Attributes of a pool of memory: bytes that it keeps when they are free, and whether one queue waits for another to get some.
KEEP_FREED, WAIT_TO_REUSE = 4, 3
#: Who waits for the GPU sleeps; local memory grows with the largest kernel and is kept: a change waits for everything that runs.
SLEEP, KEEP_LOCAL = 4, 16
NON_BLOCKING = 1  # a queue that does not wait for the default one
OUT_OF_MEMORY = 2
NAME_LENGTH = 256
WORD = ctypes.c_int64

_own = threading.local()
_starting = threading.Lock()
_began: list[threading.Thread] = []


class DriverError(Exception):
    """The driver refused a call."""


class Driver:
    """The started driver, with the first GPU in use."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL(LIBRARY)
        except OSError:
            raise DriverError(f"the driver is missing ({LIBRARY})") from None
        self.call("cuInit", 0)
        count, device, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        if count.value == 0:
            raise DriverError("there is none")
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.device = device.value
        with contextlib.suppress(DriverError):  # somebody else has it in use already, as they like it
            self.call("cuDevicePrimaryCtxSetFlags_v2", self.device, SLEEP | KEEP_LOCAL)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.context = context
        self.capability = self.attribute(MAJOR), self.attribute(MINOR)
        self.pooled = bool(self.attribute(POOLS))
        if self.pooled:  # freed memory stays here: handing it back would wait for everything that runs
            pool, all_of_it, never = ctypes.c_void_p(), ctypes.c_uint64(2**64 - 1), ctypes.c_int(0)
            self.call("cuDeviceGetDefaultMemPool", ctypes.byref(pool), self.device)
            self.call("cuMemPoolSetAttribute", pool, KEEP_FREED, ctypes.byref(all_of_it))
            self.call("cuMemPoolSetAttribute", pool, WAIT_TO_REUSE, ctypes.byref(never))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver; raise if it fails."""
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(code, ctypes.byref(text))
            reason = (text.value or b"").decode() or f"error {code}"
            if code == OUT_OF_MEMORY:
                raise MemoryError(f"the GPU: {reason}")
            raise DriverError(f"{reason} ({name})")

    def attribute(self, number: int) -> int:
        """Return an attribute of the device."""
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, self.device)
        return value.value

    @property
    def name(self) -> str:
        """The name of the GPU."""
        text = ctypes.create_string_buffer(NAME_LENGTH)
        self.call("cuDeviceGetName", text, NAME_LENGTH, self.device)
        return text.value.decode()

    @property
    def free(self) -> int:
        """The bytes that are free in the GPU's memory."""
        self.stream()
        free, whole = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(whole))
        return free.value

    def stream(self) -> ctypes.c_void_p:
        """Return this thread's queue."""
        if not hasattr(_own, "stream"):
            self.call("cuCtxSetCurrent", self.context)
            made = ctypes.c_void_p()
            self.call("cuStreamCreate", ctypes.byref(made), NON_BLOCKING)
            _own.stream = made
        stream: ctypes.c_void_p = _own.stream
        return stream

    def wait(self) -> None:
        """Wait until everything in this thread's queue is done."""
        self.call("cuStreamSynchronize", self.stream())

    # ------------------------------------------------------------------ memory
    def allocate(self, size: int) -> int:
        """Return the address of new memory."""
        address, stream, least = ctypes.c_uint64(), self.stream(), max(1, size)
        if self.pooled:
            self.call("cuMemAllocAsync", ctypes.byref(address), ctypes.c_size_t(least), stream)
        else:
            self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(least))
        return address.value

    def release(self, address: int, stream: ctypes.c_void_p) -> None:
        """Free memory when its queue has come so far."""
        with contextlib.suppress(DriverError):  # at the end of the process the driver may be gone
            self.stream()
            if self.pooled:
                self.call("cuMemFreeAsync", ctypes.c_uint64(address), stream)
            else:
                self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def upload(self, address: int, array: np.ndarray[Any, Any]) -> None:
        """Copy an array to an address, and wait for it."""
        source = ctypes.c_void_p(array.ctypes.data)
        self.call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), source, ctypes.c_size_t(array.nbytes), self.stream())
        self.wait()

    def download(self, array: np.ndarray[Any, Any], address: int) -> None:
        """Fill an array from an address, and wait for it."""
        target = ctypes.c_void_p(array.ctypes.data)
        self.call("cuMemcpyDtoHAsync_v2", target, ctypes.c_uint64(address), ctypes.c_size_t(array.nbytes), self.stream())
        self.wait()

    # ------------------------------------------------------------------ code
    def load(self, code: bytes, entry: str) -> ctypes.c_void_p:
        """Load the machine code of a kernel; return its function."""
        self.stream()
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(code))
        self.call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(entry.encode()))
        return function

    def launch(self, function: ctypes.c_void_p, blocks: int, threads: int, arguments: Sequence[Any]) -> None:
        """Put a kernel into this thread's queue. The driver copies the arguments, which are `ctypes` values."""
        pointers = (ctypes.c_void_p * len(arguments))(*[ctypes.addressof(argument) for argument in arguments])
        self.call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, self.stream(), pointers, None)


class DeviceArray:
    """An array in the GPU's memory, one row after the other. The memory is freed with the last array that lies in it."""

    def __init__(self, shape: int | tuple[int, ...], dtype: Any, inside: DeviceArray | None = None, address: int = 0) -> None:
        self.shape = shape if isinstance(shape, tuple) else (shape,)
        self.dtype, self.inside = np.dtype(dtype), inside
        self.size = math.prod(self.shape)
        self.nbytes = self.size * self.dtype.itemsize
        if inside is None:
            self.stream = started().stream()
            self.address = started().allocate(self.nbytes)
        else:
            self.address = address

    def __len__(self) -> int:
        return self.shape[0]

    def __del__(self) -> None:
        if getattr(self, "inside", self) is None and hasattr(self, "address"):
            started().release(self.address, self.stream)

    def view(self, dtype: Any) -> DeviceArray:
        """Return the same memory as items of another type, in one row."""
        return DeviceArray(self.nbytes // np.dtype(dtype).itemsize, dtype, self, self.address)

    def part(self, begin: int, length: int) -> DeviceArray:
        """Return so many items of the first axis from `begin` on."""
        step = self.nbytes // self.shape[0] if self.shape[0] else 0
        return DeviceArray((length, *self.shape[1:]), self.dtype, self, self.address + begin * step)

    def arguments(self) -> list[Any]:
        """Return the array as a kernel receives it: no owners, items, bytes of one, address, shape, strides."""
        strides = [math.prod(self.shape[axis + 1 :]) * self.dtype.itemsize for axis in range(len(self.shape))]
        return [WORD(item) for item in (0, 0, self.size, self.dtype.itemsize, self.address, *self.shape, *strides)]


_driver: list[Driver | Exception] = []


def started() -> Driver:
    """Return the driver, started once. Raise its reason each time if it cannot start."""
    if not _driver:
        with _starting:
            if not _driver:
                try:
                    _driver.append(Driver())
                except Exception as error:
                    _driver.append(error)
    found = _driver[0]
    if isinstance(found, Driver):
        return found
    raise found


def begin() -> None:
    """Start the driver in the background. It works outside of Python's lock, while the caller imports."""

    def start() -> None:
        with contextlib.suppress(Exception):  # whoever needs the GPU is told
            started()

    if not _began:
        _began.append(threading.Thread(target=start, daemon=True, name="gpu"))
        _began[0].start()
