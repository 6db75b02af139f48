"""Asks the processor for memory ahead of its use: a row that is not in a cache takes longer to arrive than a decision takes."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, overload
from numba.np.arrayobj import make_array

LINE = 8  # words of eight bytes that arrive together
FOR_WRITING, STAYS, DATA = 1, 3, 1  # arguments of LLVM's `prefetch`: it is written, used soon and often, and no code


def fetch(words: Any, row: Any) -> None:
    """Ask for a row of a table of words. Does nothing in plain Python."""


@intrinsic
def _ask_for(typing: Any, words: Any, row: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        table = make_array(signature.args[0])(context, builder, values[0])
        place = cgutils.get_item_pointer(context, builder, signature.args[0], table, list(values[1:]))
        number, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        asking = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(asking, [builder.bitcast(place, pointer), number(FOR_WRITING), number(STAYS), number(DATA)])
        return context.get_dummy_value()

    return types.void(words, types.intp, types.intp), generate


def _fetch(words, row):
    for word in range(0, words.shape[1], LINE):
        _ask_for(words, row, word)


@overload(fetch)
def _(words, row):
    return _fetch


fetch.compiled = _fetch  # type: ignore[attr-defined]  # lets the fingerprint of code see the compiled form
