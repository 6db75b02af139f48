"""A log that is read and folded in shards gives the bytes of one pass over it, whatever the pieces and the order of their ends."""

from __future__ import annotations

import gzip
import json
import pickle
import random
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from swerve.core.errors import SwerveError
from swerve.evaluate import estimators, pieces, shifts
from swerve.evaluate.folding import work
from swerve.evaluate.history import CURVE, Histories, Watched
from swerve.evaluate.judging import Least, judge
from swerve.evaluate.lists import Shown
from swerve.evaluate.model import Model
from swerve.evaluate.rates import Mean, Rates
from swerve.evaluate.readers import common_format, read, source
from swerve.evaluate.sharding import judge_shards, log_of, read_shards
from swerve.evaluate.tally import Tally
from swerve.evaluate.targets import Policy, target_of

#: Queries that are watched, so that most are forgotten in between; rows of the policy; bytes of a piece, pieces of a round.
MOST, ROWS, BYTES, AT_ONCE = 6, 5, 900, 3
NAMES = ("swerve", "clicks", "given", "uniform")


def anywhere(orders: list[tuple[Any, ...]]):
    """Do pieces of work as nodes do: on copies, and in any order."""
    copied = [pickle.loads(pickle.dumps(order)) for order in orders]
    for number in random.Random(len(orders)).sample(range(len(copied)), len(copied)):
        yield number, pickle.loads(pickle.dumps(work(*copied[number])))


def text_of(tally: Tally, histories: Histories, judgements: Any) -> str:
    """Return everything that an evaluation says of a log."""
    found = shifts.find(histories, 0.5)
    model = Model(histories, found)
    segments = {query: [(one.lists, one.attractive.tobytes()) for one in own] for query, own in model.queries.items()}
    plain = {query: repr(history.plain()) for query, history in histories}
    return repr((tally.facts(), msgspec.to_builtins(found), segments, model.weight, plain, msgspec.to_builtins(judgements)))


def one_pass(paths: list[Path], form: str, columns: tuple[str, ...], names: tuple[str, ...]) -> str:
    tally, histories, least = Tally(), Histories(MOST), Least()
    for entry in read(paths, form, columns, tally=tally):
        histories.add(entry)
        least.add(entry)
    targets = [Policy(ROWS) if name == "swerve" else target_of(name) for name in names]
    return text_of(tally, histories, judge(read(paths, form, columns), targets, least.by_slot, MOST))


def sharded(paths: list[Path], form: str, columns: tuple[str, ...], names: tuple[str, ...]) -> str:
    log, told = log_of(paths, form, columns, anywhere)._replace(at_once=AT_ONCE), [0]
    found = read_shards(log, told.append, most=MOST)
    assert told == sorted(told) and told[-1] == sum(map(source.size_of, paths))
    judgements = judge_shards(log, names, found.least.by_slot, most=MOST, rows=ROWS)
    return text_of(found.tally, found.histories(), judgements)


def plain_lines(lists: int, seed: int) -> list[str]:
    """Lines of a plain log whose queries come and go, with all that can be wrong with a line."""
    rng, lines = random.Random(seed), []
    for number in range(lists):
        query = f"q{min(int(rng.paretovariate(0.8)), 12) + number // 80}"
        shown = rng.sample([f"{query}-{result}" for result in range(7)], rng.choice([1, 3, 5]))
        line: dict[str, Any] = {"time": 1.7e9 + 60 * number, "query": query, "shown": shown, "propensities": [0.5] * len(shown)}
        line["clicks"] = [result for at, result in enumerate(shown) if rng.random() < 0.6 / (1 + at)]
        if rng.random() < 0.5:
            line["given"] = sorted(shown)
        if rng.random() < 0.2:
            del line["propensities"]
        line["signals"] = {"rain": rng.random()}
        if number % 50 == 20:
            line[f"column{number}"] = 1
        lines.append(json.dumps(line))
    lines[7:7] = ["", "no JSON", "[1, 2]", '{"query": "q1"}', "x" * 3000]
    lines[lists - 20 : lists - 20] = ['{"shown": ["a"]}', "no JSON"]
    return lines


def csv_lines(lists: int, quoted: bool) -> str:
    rng, lines = random.Random(3), ["time,query,shown,clicks,propensities"]
    for number in range(lists):
        shown = rng.sample("abcd", 3)
        query = f'"q\n{number % 9}"' if quoted and number > lists / 2 else f"q{number % 9}"
        lines.append(f"{number},{query},{'|'.join(shown)},{shown[0] if rng.random() < 0.4 else ''},{'|'.join(['0.25'] * 3)}")
    lines[5:5] = ["too,few"]
    return "\n".join(lines)


def dsjson_lines(lists: int) -> str:
    rng, lines = random.Random(4), []
    for _ in range(lists):
        action = rng.choice([1, 2, 3])
        line = {
            "_label_cost": -float(rng.random() < 0.3), "_label_Action": action, "_label_probability": 0.25, "a": [1, 2, 3],
            "p": [0.25, 0.25, 0.5], "Timestamp": "2024-05-01T00:00:00Z", "c": {"term": f"t{rng.randrange(9)}"},
        }  # fmt: skip
        lines.append(json.dumps(line))
    return "\n".join([*lines[:9], "{}", *lines[9:]])


def bandit_lines(lists: int) -> str:
    rng, lines = random.Random(5), ["timestamp,item_id,position,click,propensity_score,who"]
    for number in range(lists):
        user = f"u{min(int(rng.paretovariate(0.8)), 12)}"
        lines.append(f"{number},{rng.randrange(6)},{rng.choice([1, 1, 1, 2, 3])},{int(rng.random() < 0.3)},0.2,{user}")
    return "\n".join(lines)


def ubi_lines(lists: int) -> str:
    rng, lines = random.Random(6), []
    for number in range(lists):
        query = {"query_id": str(number), "user_query": f"q{number % 9}", "query_response_hit_ids": rng.sample("abcde", 4)}
        lines.append(json.dumps({**query, "timestamp": 1000 + number}))
        if number > 4:
            click = {"action_name": "click", "query_id": str(number - 4), "timestamp": 1000.5 + number}
            lines.append(json.dumps({**click, "event_attributes": {"position": {"ordinal": rng.randrange(1, 5)}}}))
    return "\n".join(lines)


def written(folder: Path, name: str) -> tuple[list[Path], tuple[str, ...], tuple[str, ...]]:
    """Write a log; return its files, the mapping of its columns, and the targets that it allows."""
    one, two, columns, names = folder / "one", folder / "two", (), NAMES
    if name in ("plain", "gzip"):
        text = "\ufeff" + "\n".join(plain_lines(260, 1))
        one.write_bytes(gzip.compress(text.encode()) if name == "gzip" else text.encode())
        two.write_text("\n".join(plain_lines(60, 2)) + "\n")
        return [one, two], ("signal.wet=signals.rain",), names
    if name == "csv":
        one.write_text(csv_lines(150, quoted=False))
        two.write_text(csv_lines(150, quoted=True) + "\n")
        return [one, two], columns, ("swerve", "clicks")
    one.write_text({"dsjson": dsjson_lines, "bandit": bandit_lines, "ubi": ubi_lines}[name](450))
    columns = {"dsjson": ("query=c.term",), "bandit": ("query=who",)}.get(name, ())
    return [one], columns, ("swerve", "clicks", "uniform") if name == "dsjson" else ("swerve", "clicks") if name == "bandit" else ()


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("name", ["plain", "gzip", "csv", "dsjson", "bandit", "ubi"])
def test_shards_give_the_bytes_of_one_pass(tmp_path, monkeypatch, name):
    monkeypatch.setattr(pieces, "BYTES", BYTES)
    monkeypatch.setattr(pieces, "LISTS", 17)
    for module in (pieces, source):
        monkeypatch.setattr(module, "LONGEST", 2000)
    monkeypatch.setattr(estimators, "FEWEST", 1.0)  # small logs are estimated too
    monkeypatch.setattr(estimators, "INSIDE", -9.0)
    monkeypatch.setattr(estimators, "SURELY", 0.0)
    paths, columns, names = written(tmp_path, name)
    form = common_format(paths)
    made = list(pieces.pieces(paths, form, log_of(paths, form, columns, anywhere).columns))
    assert len(made) > 2 * AT_ONCE
    assert all(isinstance(each, pieces.Cut) for each in made) == (name not in ("csv", "ubi"))
    expected = one_pass(paths, form, columns, names)
    assert [expected.count(f"'{kind}': {{'value'") for kind in ("replay", "dr")] == [len(names)] * 2
    assert sharded(paths, form, columns, names) == expected


def test_a_log_without_a_mapped_column_and_one_that_is_cut_off_are_told_as_in_one_pass(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "BYTES", BYTES)
    path = tmp_path / "log"
    path.write_text("\n".join(plain_lines(60, 1)))
    for columns, words in ((("query=nowhere",), r"no line has the mapped column nowhere \(for query\); the first line has time"),):
        for run in (one_pass, sharded):
            with pytest.raises(SwerveError, match=words):
                run([path], "plain", columns, ())
    packed = gzip.compress(path.read_bytes())
    path.write_bytes(packed[: len(packed) // 2])
    said = []
    for run in (one_pass, sharded):
        with pytest.raises(SwerveError, match="the file cannot be read any further") as caught:
            run([path], "plain", (), ())
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_queries_are_watched_alike_one_by_one_and_many_at_a_time():
    rng, one, many = random.Random(1), Watched(8), Watched(8)
    for size in (3, 40, 1, 200):
        queries = [f"q{int(rng.paretovariate(0.6)) % 60}" for _ in range(size)]
        distinct = list(dict.fromkeys(queries))
        codes = np.array([distinct.index(query) for query in queries])
        assert many.add_all(distinct, codes).tolist() == [one.add(query) for query in queries]
        assert list(many.lists.items()) == list(one.lists.items())
    assert one.forgotten == many.forgotten > 20


def test_the_mean_rate_is_the_same_one_by_one_and_many_at_a_time():
    rng, rates, mean = random.Random(2), Rates(), Mean()
    lists = []
    for _ in range(500):
        top, size = rng.choice([1, 1, 4, 9]), rng.randrange(1, 14)
        clicks = [position for position in range(top, top + size) if rng.random() < 0.3]
        lists.append(Shown(0.0, "q", [str(result) for result in range(size)], clicks, top=top))
    priors = []
    for entry in lists:
        priors.append(rates.prior)
        rates.learn(entry)
    facts = np.array([(entry.top, len(entry.shown), len(entry.clicks)) for entry in lists])
    found = [mean.before(*facts[low:high].T) for low, high in ((0, 0), (0, 1), (1, 300), (300, 500))]
    assert np.concatenate(found).tolist() == priors
    assert (mean.clicks, mean.examined) == (rates.clicks, rates.examined)
    assert len(CURVE) < 14
