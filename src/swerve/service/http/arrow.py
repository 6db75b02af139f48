"""Batches of rankings as Arrow streams: the body of `POST /v1/rank/batch`, and its answer.

The columns of an answer are the fields of `RankResponse`, and `error` for a refused entry; what JSON leaves out is null.

Tests: tests/service/test_arrow.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from swerve.service.http.bodies import BYTES_PER_STEP, few
from swerve.service.http.schemas import one_limit
from swerve.service.ranking_batches import Batching, Part
from swerve.service.turns import Turns
from swerve.serving.arrow import (
    BATCH,
    BOOL,
    DICTIONARY,
    FLOAT,
    INT,
    LIST,
    SCHEMA,
    STRUCTURE,
    TEXT,
    Field,
    fields_of,
    messages,
    torn,
)
from swerve.serving.arrow_writing import END, Sent, schema_of
from swerve.serving.bulk import Bulk, Decisions
from swerve.serving.gathering import Gathered, check_fields
from swerve.serving.kernels import EXPLORED, PHASE
from swerve.serving.messages import Problem, RankResponse
from swerve.serving.sealing import RESULT_ENDS, SHARE_ENDS, SWAP_ENDS, TOKEN_ENDS

#: Steps are larger than those of JSON, because less is done for each byte.
STEP = 4 * BYTES_PER_STEP
#: Answers without columns that are written together.
TOGETHER = 32


def text(name: str) -> Field:
    """Return a column of texts."""
    return Field(name, TEXT)


def whole(name: str) -> Field:
    """Return a column of whole numbers."""
    return Field(name, INT, "<i8")


def listed(name: str, item: Field) -> Field:
    """Return a column of lists."""
    return Field(name, LIST, children=(item,))


#: The columns of an answer.
RULED = Field("item", STRUCTURE, children=(text("kind"), whole("rule"), text("result"), whole("position")))
ERROR = Field("error", STRUCTURE, children=(text("code"), text("message"), text("field"), whole("limit")))
FIELDS = (
    text("decision"), listed("ranking", text("item")), listed("propensities", Field("item", FLOAT, "<f8")), whole("explored"),
    whole("phase"), Field("degraded", BOOL), listed("swapped", whole("item")), Field("shadow", BOOL), listed("ruled", RULED),
    text("arm"), text("guarded"), ERROR,
)  # fmt: skip
HEAD = schema_of(FIELDS)
#: Those that are null for requests that are decided in columns.
RARE = FIELDS[8:]


# read -----------------------------------------------------------------------------------------------------------------------------


async def parts_of(body: bytes, batching: Batching, turns: Turns) -> list[Part]:
    """Return the parts of a body; raises `Refused` if it is not a stream, or has other columns than requests have."""
    limits, bulk, fields = batching.ranking.limits, batching.bulk, None
    numbers, entry_bytes = batching.ranking.ranker.settings.numbers, one_limit(batching.ranking.limits)
    found, count = list[Gathered](), 0
    for message in messages(body):
        await turns()
        if fields is None:
            if message.kind != SCHEMA:
                raise torn("it does not begin with its schema")
            fields = fields_of(message)
            check_fields(fields)
        elif message.kind == BATCH:
            found.append(Gathered(body, message, fields, numbers, limits, entry_bytes))
            count += max(len(found[-1]), 1)  # an empty one takes time too
            few(count, limits.batch)
        else:
            raise torn("it has dictionaries" if message.kind == DICTIONARY else "it has a second schema")
    if fields is None:
        raise torn("it has no schema")
    parts = list[Part]()
    for gathered in found:
        await turns()
        gathered.begin()
        if len(body) <= STEP:
            bulk.gather(gathered, 0, len(gathered))
        else:
            await _gather(bulk, gathered, turns)
        if batching.plain:
            parts.append(await batching.part(gathered, turns))
            continue
        part = Part(None, [])
        for index in range(len(gathered)):
            await turns()
            part.entries.append(batching.decoded(gathered, index))
        parts.append(part)
    return parts


async def _gather(bulk: Bulk, gathered: Gathered, turns: Turns) -> None:
    """Read the entries of a batch, so many at a time that it takes a turn."""
    ends, first = np.cumsum(gathered.weights), 0
    while first < len(gathered):
        await turns()
        so_far = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, so_far + STEP)), first + 1)
        bulk.gather(gathered, first, min(last, len(gathered)))
        first = last


# write ----------------------------------------------------------------------------------------------------------------------------


class Columns:
    """Answers as batches of a stream."""

    def columns(self, bulk: Bulk, decided: Decisions) -> bytes:
        """Return the answers to requests that were decided in columns, as a batch."""
        said, count, estimated = bulk.said_in_columns(decided), len(decided.asks), bulk.ranker.settings.draws > 0
        sent, ends = Sent(count), said.ends
        sent.node(count, None)
        sent.buffers(ends[TOKEN_ENDS].tobytes(), said.signed.tobytes())
        sent.node(count, None)
        sent.buffers(ends[RESULT_ENDS].tobytes())
        sent.node(len(said.text_ends) - 1, None)
        sent.buffers(said.text_ends.tobytes(), said.texts.tobytes())
        if estimated:
            sent.node(count, None)
            sent.buffers(ends[SHARE_ENDS].tobytes())
            sent.node(len(said.shares), None)
            sent.buffers(said.shares.tobytes())
        else:
            sent.nothing(FIELDS[2])
        explored = decided.asks[:, EXPLORED] + 1
        sent.node(count, explored > 0)
        sent.buffers(explored.tobytes())
        sent.node(count, None)
        sent.buffers(decided.asks[:, PHASE].tobytes())
        sent.node(count, None)
        sent.buffers(bytes(-(-count // 8)))
        swaps = ends[SWAP_ENDS]
        sent.node(count, swaps[1:] > swaps[:-1])
        sent.buffers(swaps.tobytes())
        sent.node(len(said.swaps), None)
        sent.buffers(said.swaps.tobytes())
        sent.node(count, None)
        sent.buffers(bytes(-(-count // 8)))
        sent.nothing(*RARE)
        return sent.message()

    def one(self, answer: RankResponse | Problem) -> RankResponse | Problem:
        """Return one answer, which becomes part of a batch later."""
        return answer


async def stream_of(pieces: Sequence[Any], turns: Turns) -> bytes:
    """Return the stream of answers: batches, and single answers, which become batches."""
    out, held = [HEAD], list[Any]()
    for piece in pieces:
        if isinstance(piece, bytes):
            await _flush(out, held, turns)
            out.append(piece)
        else:
            held.append(piece)
            if len(held) >= TOGETHER:
                await _flush(out, held, turns)
    await _flush(out, held, turns)
    return b"".join([*out, END])


async def _flush(out: list[bytes], held: list[Any], turns: Turns) -> None:
    if held:
        await turns()
        out.append(batch_of(held))
        held.clear()


def batch_of(answers: Sequence[RankResponse | Problem]) -> bytes:
    """Return answers as a batch."""
    sent = Sent(len(answers))
    for field in FIELDS:
        values = [getattr(answer, field.name, None) for answer in answers]
        if any(value is not None for value in values):
            put_values(sent, field, values)
        else:
            sent.nothing(field)
    return sent.message()


def put_values(sent: Sent, field: Field, values: Sequence[Any]) -> None:
    """Add a column, or a child of one, of plain values; None is null."""
    count, valid = len(values), np.array([value is not None for value in values], np.bool_)
    sent.node(count, valid)
    if field.kind == TEXT:
        data = [b"" if value is None else value.encode() for value in values]
        sent.buffers(np.cumsum([0, *map(len, data)], dtype=np.int32).tobytes(), b"".join(data))
    elif field.kind == LIST:
        lists = [() if value is None else value for value in values]
        sent.buffers(np.cumsum([0, *map(len, lists)], dtype=np.int32).tobytes())
        put_values(sent, field.children[0], [value for each in lists for value in each])
    elif field.kind == STRUCTURE:
        for child in field.children:
            put_values(sent, child, [getattr(value, child.name, None) for value in values])
    elif field.kind == BOOL:
        sent.buffers(np.packbits(np.array([bool(value) for value in values], np.bool_), bitorder="little").tobytes())
    else:
        sent.buffers(np.array([0 if value is None else value for value in values], field.form).tobytes())
