"""Compiling kernels for a GPU to machine code. This is the only module that names `numba.cuda`; a warm cache does without it.

The results have the bytes of the processor's: products and sums are not contracted into one rounding. Tables of constants lie in
global memory, where threads of a warp may read different places at once; in constant memory such reads wait for each other.

A kernel whose code another process can import is compiled in one of its own (`python -m swerve.simulate.gpu_compiler`), so that all
kernels of a sweep are compiled at once. No GPU is needed to compile.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import importlib
import importlib.metadata
import logging
import os
import pickle
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from swerve.core.cache import without_collecting
from swerve.core.loading import MODULES, files, load_file
from swerve.core.spec import Spec, walk
from swerve.simulate import gpu_kernels

log = logging.getLogger("swerve.gpu")

#: The modules that have all policies and environments of Swerve.
CATALOGUE = ("swerve.policies", "swerve.environments")
#: Characters of the code of a kernel from which on it is `smaller`.
LARGE = 1_500_000
#: Lines of a function that is called twice from which on it is not inlined; the second is for those that kernels ask to inline.
MAY_BE_INLINED, MUST_BE_INLINED = 20, 100
INLINED = "alwaysinline"
FUNCTION = re.compile(r"^define ([^\n]*)\n\{\n(.*?)^\}", re.DOTALL | re.MULTILINE)
NAME, CALL = re.compile(r'@"?([^"(]+)"?\('), re.compile(r'call [^@\n]*@"?([^"(\n]+)"?\(')
#: From this major version on, chips have instructions that only they have, and machine code for them alone.
OWN_CODE = 9

_alone = threading.Lock()
#: Processes that compile at the same time.
_turns = threading.BoundedSemaphore(os.cpu_count() or 1)

#: The type of an argument: that of the items of an array and its dimensions, or a number.
Kind = tuple[np.dtype[Any], int] | type
Capability = tuple[int, int]


@functools.cache
def version() -> str:
    """Return the version of the compiler."""
    return importlib.metadata.version("numba-cuda")


@functools.cache
def numba_cuda() -> Any:
    """Return Numba's target for GPUs, or its simulator, and give it to the kernels."""
    if not hasattr(np, "row_stack"):  # NumPy 2.5 dropped the name, and numba-cuda still asks for it
        np.row_stack = np.vstack
    cuda = importlib.import_module("numba.cuda")
    vars(gpu_kernels)["cuda"] = cuda
    return cuda


def example(kind: Kind) -> Any:
    """Return a value of a kind."""
    return kind(1) if isinstance(kind, type) else np.zeros((0,) * kind[1], kind[0])


def smaller(code: str | list[str]) -> list[str]:
    """Return the modules of a kernel, each once; those of a large kernel with functions that are called instead of inlined.

    Numba names a module once for each path that leads to it. A kernel that is larger than the cache of instructions waits for them
    in every round.
    """
    modules = list(dict.fromkeys([code] if isinstance(code, str) else code))
    if sum(map(len, modules)) < LARGE:
        return modules
    calls = Counter(name for module in modules for name in CALL.findall(module))

    def apart(found: re.Match[str]) -> str:
        head, body = found.groups()
        name = NAME.search(head)
        least = MUST_BE_INLINED if INLINED in head else MAY_BE_INLINED
        if name is None or calls[name[1]] < 2 or body.count("\n") < least:
            return found[0]
        return f"define {head.replace(INLINED, '')} noinline\n{{\n{body}}}"

    return [FUNCTION.sub(apart, module) for module in modules]


@contextlib.contextmanager
def exactly(capability: Capability) -> Iterator[Any]:
    """Compile inside the block for such a GPU, without contraction, and with tables of constants in global memory.

    Numba has no switch for either, and asks the GPU that is there what it can do.
    """
    from unittest import mock  # takes longer to import than a kernel to load

    nvvm, compiler, dispatcher = (
        importlib.import_module(f"numba.cuda.{name}") for name in ("cudadrv.nvvm", "compiler", "dispatcher")
    )
    plain = nvvm.compile_ir
    asked = mock.Mock(return_value=mock.Mock(compute_capability=capability))
    with (
        mock.patch.object(nvvm, "compile_ir", lambda code, **options: plain(smaller(code), **{**options, "fma": False})),
        mock.patch.object(nvvm, "ADDRSPACE_CONSTANT", nvvm.ADDRSPACE_GLOBAL),
        mock.patch.object(dispatcher, "get_current_device", asked),
        mock.patch.object(compiler, "get_current_device", asked),
    ):
        yield compiler


def translated(function: Callable[..., None], kinds: Sequence[Kind], capability: Capability, form: str) -> tuple[str, Any]:
    """Return the name of a kernel's entry and its code for arguments of these kinds, in a form: `asm` (PTX) or `cubin`."""
    numba_cuda()
    from numba import typeof, types

    named = (*capability, "a") if capability[0] >= OWN_CODE else capability
    with exactly(capability) as compiler:
        done = compiler.compile_cuda(
            function, types.void, tuple(typeof(example(kind)) for kind in kinds), nvvm_options={"fastmath": False, "opt": 3},
            cc=capability,
        )  # fmt: skip
        library, entry = done.library, done.fndesc.llvm_func_name
        library._entry_name = entry
        compiler.kernel_fixup(library.get_function(entry), False)
        return entry, library.get_asm_str(cc=named) if form == "asm" else bytes(library.get_cubin(cc=named).code)


@dataclasses.dataclass(frozen=True)
class Order:
    """A kernel to compile: the function of `gpu_kernels` that makes it with its arguments, what must be imported, and for what."""

    maker: str
    named: dict[str, Any]
    modules: tuple[str, ...]
    loaded: tuple[str, ...]
    kinds: tuple[Kind, ...]
    capability: Capability

    def function(self) -> Callable[..., None]:
        """Make the kernel's function."""
        for path in self.loaded:
            load_file(Path(path), "--load")
        for name in (*CATALOGUE, *self.modules):
            importlib.import_module(name)
        found: Any = getattr(gpu_kernels, self.maker)
        function: Callable[..., None] = found(**self.named) if self.named else found
        return function


def order_of(function: Callable[..., None], specs: Sequence[Spec], kinds: tuple[Kind, ...], capability: Capability) -> Order:
    """Return the order for a kernel."""
    maker, named = getattr(function, "made", (function.__name__, {}))
    modules = {type(part).__module__ for spec in specs for part in walk(spec)}
    own = tuple(sorted(name for name in modules if not name.startswith(("swerve.", MODULES))))
    return Order(maker, named, own, tuple(map(str, files())), kinds, capability)


def machine_code(
    function: Callable[..., None], specs: Sequence[Spec], kinds: tuple[Kind, ...], capability: Capability, apart: bool
) -> tuple[str, bytes]:
    """Return the name of a kernel's entry and its machine code; compile it in a process of its own if it may be `apart`."""
    if apart:
        asked = pickle.dumps(order_of(function, specs, kinds, capability))
        with _turns:
            done = subprocess.run([sys.executable, "-m", __name__], input=asked, capture_output=True, check=False)
        if done.returncode == 0:
            found: tuple[str, bytes] = pickle.loads(done.stdout)
            return found
        log.warning("a kernel is compiled in this process: %s", done.stderr.decode(errors="replace").strip().rpartition("\n")[2])
    with _alone, without_collecting():
        return translated(function, kinds, capability, "cubin")


def main() -> None:
    """Compile the kernel that standard input orders; write the name of its entry and its machine code to standard output."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may be written there
    gc.disable()
    order: Order = pickle.loads(sys.stdin.buffer.read())
    found = translated(order.function(), order.kinds, order.capability, "cubin")
    with out:
        out.write(pickle.dumps(found))


if __name__ == "__main__":
    from swerve.simulate import gpu_compiler  # the classes of an order are those of the module, not of `__main__`

    gpu_compiler.main()
