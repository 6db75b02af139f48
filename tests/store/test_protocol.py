"""The protocol that every engine implements."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from store.rows import key, newer, row

from swerve.core.errors import SwerveError
from swerve.core.examination import SLOTS
from swerve.serving.outcomes import GONE, Outcome, encode
from swerve.store import Batch, Entries, Fenced, Row, Store, StoreError, open_store
from swerve.store.protocol import Damaged


def test_every_engine_is_a_store(store):
    assert isinstance(store, Store)


def test_rows_come_back_in_the_order_of_the_keys_and_none_for_a_stranger(store):
    store.checkpoint(Batch([row(i) for i in range(5)]))
    assert store.load([key(3), key(99), key(0)]) == [row(3), None, row(0)]
    assert store.load([]) == []
    assert store.load([key(1), key(1)]) == [row(1), row(1)]


def test_many_rows_in_one_batch_and_one_load(store):
    """More rows than fit into one statement of any engine."""
    rows = [row(i) for i in range(1203)]
    store.checkpoint(Batch(rows, [(i, i % 3) for i in range(1203)]))
    store.checkpoint(Batch([newer(old, record=b"second") for old in rows]))
    assert {found.record for found in store.load([old.key for old in rows])} == {b"second"}
    assert store.outcomes(list(range(2000))) == {i: i % 3 for i in range(1203)}
    assert store.count() == 1203


def test_a_newer_version_replaces_everything(store):
    store.checkpoint(Batch([row(1)]))
    second = Row(key(1), 2, 7, 20_001, 9, 1.5e9, b"", b"\x00" * 30)
    store.checkpoint(Batch([second]))
    assert store.load([key(1)]) == [second]
    assert store.count() == 1


def test_what_is_committed_is_there_when_the_store_is_opened_again(url):
    first = open_store(url)
    first.checkpoint(Batch([row(1)], [(1 << 40 | 5, 2)], {"classifier": b"abc"}))
    first.close()
    second = open_store(url)
    assert second.load([key(1)]) == [row(1)]
    assert second.outcomes([1 << 40 | 5, 6]) == {1 << 40 | 5: 2}
    assert second.groups() == {("classifier", "0"): b"abc"}
    assert second.count() == 1
    second.close()


def test_a_batch_for_an_owner_of_before_is_refused_and_nothing_is_written(url):
    first = open_store(url)
    first.checkpoint(Batch([row(1)], [(7, 1)], {"g": b"old"}, epoch=first.epoch))
    epoch = first.epoch
    first.close()
    second = open_store(url)
    assert second.epoch > epoch
    with pytest.raises(Fenced) as caught:
        second.checkpoint(Batch([row(5), row(1, version=2)], [(8, 1)], {"g": b"new"}, begin=0, epoch=epoch))
    assert caught.value.kind == "conflict" and not caught.value.uncertain
    assert second.load([key(1), key(5)]) == [row(1), None]
    assert second.outcomes([7, 8]) == {7: 1}
    assert second.groups() == {("g", "0"): b"old"}
    assert second.count() == 1
    second.close()


def entry(number: int) -> Entries:
    return Entries(number.to_bytes(8, "little"), 1)


def read(store: Store, start: int | None = None) -> list[int]:
    """Return the entries of the log from a number on, whose content is their number."""
    found = []
    for block in store.tail(start):
        some = [int.from_bytes(block.content[at : at + 8], "little") for at in range(0, len(block.content), 8)]
        assert some == list(range(block.first, block.end))
        found += some
    return found


def test_what_is_appended_is_there_for_the_next_owner(url):
    first = open_store(url)
    assert (first.begin, first.end) == (0, 0)
    assert first.append([entry(0), entry(1)], 5.0) == 2
    assert first.append([], 5.0) == first.end == 2
    assert first.append([entry(2)], 6.0) == 3
    first.close()
    second = open_store(url)
    assert (second.begin, second.end, second.last) == (0, 3, 6.0)
    assert read(second) == [0, 1, 2]
    assert second.append([entry(3)], 7.0) == 4
    assert read(second) == [0, 1, 2, 3]
    second.close()


def test_a_checkpoint_says_from_where_the_log_must_be_played(url):
    store = open_store(url)
    store.append([entry(0), entry(1)], 5.0)
    store.append([entry(2)._replace(anew=True), entry(3)], 6.0)
    store.checkpoint(Batch([row(1)], begin=2))
    assert (store.begin, store.end, read(store)) == (2, 4, [2, 3])
    store.checkpoint(Batch([row(2)]))  # nothing new about the log
    assert store.begin == 2
    store.close()
    store = open_store(url)
    assert (store.begin, store.end, read(store), read(store, 0)) == (2, 4, [2, 3], [0, 1, 2, 3])
    store.checkpoint(Batch(begin=4))
    assert read(store) == []
    store.close()


def test_the_log_loses_generations_that_are_old_and_not_needed(url):
    store = open_store(url)
    for number in range(6):
        store.append([entry(number)._replace(anew=number % 2 == 0)], 10.0 * number)

    def begins(block):
        return block.first % 2 == 0

    assert store.shrink(1e9, begins) == 0  # all of it is needed
    store.checkpoint(Batch(begin=4))
    assert store.shrink(5.0, begins) == 0
    assert store.shrink(15.0, begins) == 1
    assert read(store, 2) == [2, 3, 4, 5]
    assert store.shrink(1e9, begins) == 1
    assert read(store) == [4, 5]
    store.close()


def test_content_of_the_log_is_replaced(url):
    store = open_store(url)
    store.append([Entries(b"a secret", 1)], 5.0)
    store.scrub(lambda content: content.replace(b"secret", b"------"), 6.0)
    assert [block.content for block in store.tail()] == [b"a ------"]
    store.append([Entries(b"another.", 1)], 7.0)
    store.close()
    store = open_store(url)
    assert [(block.first, block.content) for block in store.tail()] == [(0, b"a ------"), (1, b"another.")]
    store.close()


def test_a_later_outcome_takes_the_place_of_the_earlier_one(store):
    """Feedback for a decision arrives in several requests: its id is no conflict, whatever was stored for it."""
    store.checkpoint(Batch([row(1)], [(6, 9), (7, 1)]))
    store.checkpoint(Batch([newer(row(1))], [(7, 2), (8, 0)]))
    assert store.outcomes([6, 7, 8, 9]) == {6: 9, 7: 2, 8: 0}
    store.checkpoint(Batch([], [(7, 0), (7 << 40, 5)]))
    assert store.outcomes([7, 7 << 40]) == {7: 0, 7 << 40: 5}
    assert store.expire(0, 8) == (0, 2)  # each id was kept once


def test_of_two_outcomes_for_one_decision_in_a_batch_the_later_counts(store):
    store.checkpoint(Batch([], [(3, 1), (4, 1), (3, 2**70), (3, 2)]))
    assert store.outcomes([3, 4]) == {3: 2, 4: 1}


#: Around the widths in which an engine may keep a number: small, 63, 64 and 65 bits, and the longest outcome that there is.
LARGE = [
    0,
    1,
    255,
    256,
    2**31,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    2**64 + 1,
    encode(Outcome(3, 1023, 1023, 1023, True, (GONE,) * SLOTS)),
]


def test_outcomes_of_any_size_come_back(url):
    first = open_store(url)
    first.checkpoint(Batch([], list(enumerate(LARGE))))
    assert first.outcomes(range(len(LARGE))) == dict(enumerate(LARGE))
    first.checkpoint(
        Batch([], list(enumerate(reversed(LARGE))))
    )  # a long one takes the place of a short one, and the other way round
    first.close()
    second = open_store(url)
    assert second.outcomes(range(len(LARGE))) == dict(enumerate(reversed(LARGE)))
    second.close()


@given(st.dictionaries(st.integers(0, 20), st.integers(0, 2**200), max_size=10))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_outcome_comes_back(store, used):
    store.checkpoint(Batch([], list(used.items())))
    assert store.outcomes(list(used)) == used


def test_a_batch_that_is_tried_again_is_written_once(store):
    """After an uncertain checkpoint the caller sends the same again."""
    batch = Batch([row(1)], [(7, 2)])
    store.checkpoint(batch)
    store.checkpoint(batch)
    assert store.load([key(1)]) == batch.rows
    assert store.outcomes([7]) == dict(batch.used)
    assert store.count() == 1


@pytest.mark.parametrize("batch", [Batch([row(1), row(1)], [(3, 1)]), Batch([row(2, 2), row(2, 2)], [(3, 1)])])
def test_a_batch_that_names_a_row_twice_is_refused(store, batch):
    store.checkpoint(Batch([row(2)]))
    with pytest.raises(SwerveError, match="twice"):
        store.checkpoint(batch)
    assert store.count() == 1
    assert store.outcomes([3]) == {}


def test_an_empty_batch_is_no_trouble(store):
    store.checkpoint(Batch())
    assert store.count() == 0


def test_each_worker_keeps_its_own_groups(url):
    for worker in ("a", "b"):
        store = open_store(url, worker=worker)
        store.checkpoint(Batch(groups={"classifier": f"of {worker}".encode(), "season": b"s"}))
        store.checkpoint(Batch(groups={"season": f"later, {worker}".encode()}))
        store.close()
    store = open_store(url, worker="c")
    assert store.groups() == {
        ("classifier", "a"): b"of a", ("season", "a"): b"later, a", ("classifier", "b"): b"of b", ("season", "b"): b"later, b",
    }  # fmt: skip
    store.close()


def test_scan_by_traffic_and_by_shift(store):
    store.checkpoint(Batch([row(i, level=i % 4, shifted=1e9 + i if i % 3 == 0 else 0.0) for i in range(12)]))
    busy = store.scan("traffic", 5)
    assert [found.level for found in busy] == [3, 3, 3, 2, 2]
    assert store.scan("shifted", 10) == [row(i, level=i % 4, shifted=1e9 + i) for i in (9, 6, 3, 0)]
    store.checkpoint(Batch([newer(row(9, level=1, shifted=1e9 + 9), shifted=0.0), newer(row(1, level=1), shifted=2e9, level=5)]))
    assert [found.key for found in store.scan("shifted", 2)] == [key(1), key(6)]
    assert store.scan("traffic", 1)[0].key == key(1)
    assert store.scan("shifted", 0) == []


def test_scan_refuses_an_order_that_it_does_not_know(store):
    with pytest.raises(SwerveError, match="order = 'alphabet' is not allowed; order must be one of traffic, shifted"):
        store.scan("alphabet", 1)


def test_expire_takes_the_oldest_first_and_no_more_than_asked(store):
    store.checkpoint(Batch([row(i, day=100 + i) for i in range(10)], [(i, 1) for i in range(10)]))
    assert store.expire(106, 4, limit=2) == (2, 2)
    assert store.load([key(i) for i in range(3)]) == [None, None, row(2, day=102)]
    assert store.outcomes(list(range(10))) == dict.fromkeys(range(2, 10), 1)
    assert store.expire(106, 4) == (4, 2)
    assert store.expire(106, 4) == (0, 0)
    assert store.count() == 4


def test_a_row_seen_again_does_not_expire(store):
    store.checkpoint(Batch([row(1, day=100), row(2, day=100)]))
    store.checkpoint(Batch([newer(row(1, day=100), day=200)]))
    assert store.expire(150, 0) == (1, 0)
    assert [found is None for found in store.load([key(1), key(2)])] == [False, True]


def test_an_expired_row_can_be_written_again(store):
    store.checkpoint(Batch([row(1, day=100)]))
    store.expire(101, 0)
    assert store.load([key(1)]) == [None]
    store.checkpoint(Batch([row(1, version=2)]))
    assert store.load([key(1)]) == [row(1, version=2)]


def test_every_start_is_a_life_of_its_own(url):
    lives = []
    for _ in range(4):
        store = open_store(url)
        lives.append(store.begin_life())
        assert [store.life_id(life.mark) for life in lives] == [life.id for life in lives]
        store.close()
    assert len({life.store for life in lives}) == 1
    assert len({life.mark for life in lives}) == 4
    ids = [life.id for life in lives]
    assert ids == sorted(set(ids))


def test_a_life_that_the_store_does_not_know_gets_a_number_that_no_other_has(url):
    """As after a restore, when the life began after the backup was made."""
    store = open_store(url)
    life = store.begin_life()
    stranger = store.life_id(12345)
    assert stranger != life.id
    assert store.life_id(12345) == stranger
    assert store.begin_life().id not in (life.id, stranger)
    store.close()


def test_rows_belong_to_the_secrets_they_were_written_under(url):
    store = open_store(url)
    assert store.claim(b"one") and store.claim(b"two")  # without rows the secrets may change
    store.checkpoint(Batch([row(1)]))
    assert store.claim(b"two") and not store.claim(b"one")
    store.close()
    store = open_store(url)
    assert not store.claim(b"one")
    assert store.claim(b"two")
    store.close()


def test_layouts_have_ids_that_stay(url):
    store = open_store(url)
    first, second = store.add_layout("one"), store.add_layout("two")
    assert store.add_layout("one") == first != second
    store.close()
    store = open_store(url)
    assert store.layouts() == {first: "one", second: "two"}
    store.close()


def test_probe_says_nothing_while_all_is_well_and_leaves_nothing(store):
    store.checkpoint(Batch([row(1)]))
    for _ in range(3):
        store.probe()
    assert store.count() == 1
    assert store.load([key(1)]) == [row(1)]


def test_a_closed_store_says_so_and_can_be_closed_twice(store):
    store.close()
    store.close()
    for call in (lambda: store.load([key(1)]), lambda: store.checkpoint(Batch([row(1)])), store.probe, store.begin_life):
        with pytest.raises(StoreError, match="closed") as caught:
            call()
        assert caught.value.kind == "gone"


def test_reopen_finds_the_same_store(store):
    store.checkpoint(Batch([row(1)]))
    assert store.reopen() is True
    assert store.load([key(1)]) == [row(1)]
    store.checkpoint(Batch([row(1, version=2)]))
    assert store.count() == 1


def test_readers_and_a_writer_at_once_see_whole_batches_only(store):
    """Each batch writes two rows with the same version; one load never returns two different versions."""
    store.checkpoint(Batch([row(1), row(2)]))
    stop, seen, trouble = threading.Event(), [], []

    def read() -> None:
        try:
            while not stop.is_set():
                one, two = store.load([key(1), key(2)])
                seen.append((one.version, two.version))
                store.scan("traffic", 2)
                store.outcomes([1, 2, 3])
        except Exception as error:
            trouble.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for version in range(2, 120):
        store.checkpoint(Batch([row(1, version), row(2, version)], [(version, 1)]))
    stop.set()
    for thread in threads:
        thread.join()
    assert not trouble
    assert all(one == two for one, two in seen)
    assert len(set(seen)) > 1


def test_writers_in_many_threads_lose_nothing(store):
    def write(number: int) -> None:
        for version in range(1, 21):
            store.checkpoint(Batch([row(number, version)], [(number * 100 + version, 1)]))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.load([key(i) for i in range(4)]) == [row(i, 20) for i in range(4)]
    assert len(store.outcomes([i * 100 + v for i in range(4) for v in range(1, 21)])) == 80


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("checkpoint"), st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), max_size=4, unique_by=lambda x: x[0])
        ),
        st.tuples(st.just("expire"), st.integers(0, 4)),
        st.tuples(st.just("reopen"), st.none()),
    ),
    max_size=25,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=steps)
def test_any_sequence_agrees_with_a_dictionary(engine, steps, tmp_path_factory):
    """The engine agrees with a store in a dictionary."""
    store = open_store(engine(tmp_path_factory.mktemp("any")))
    model: dict[bytes, Row] = {}
    for what, detail in steps:
        if what == "checkpoint":
            rows = [row(number, version, day=version) for number, version in detail]
            store.checkpoint(Batch(rows))
            model |= {r.key: r for r in rows}
        elif what == "expire":
            old = [k for k, r in model.items() if r.day < detail]
            assert store.expire(detail, 0) == (len(old), 0)
            for k in old:
                del model[k]
        else:
            store.reopen()
        assert store.load([key(i) for i in range(6)]) == [model.get(key(i)) for i in range(6)]
        assert store.count() == len(model)
    store.close()


def test_the_checksum_covers_every_field():
    first = row(1)
    changes = {"key": key(2), "version": 2, "layout": 2, "day": 1, "level": 1, "shifted": 1.0, "record": b"x", "names": b"other"}
    others = [replace(first, **{name: value}) for name, value in changes.items()]
    assert first.checksum() == row(1).checksum()
    assert len({first.checksum(), *(other.checksum() for other in others)}) == 9


def test_errors_say_what_and_whom():
    fenced = Fenced(Path("x.db"), 3, 4)
    assert "x.db has an owner of epoch 4, and this process has epoch 3" in str(fenced)
    assert fenced.kind == "conflict"
    damaged = Damaged(key(1), 4, "unreadable")
    assert (damaged.kind, damaged.key, damaged.keys, damaged.version) == ("corrupt", key(1), (key(1),), 4)
