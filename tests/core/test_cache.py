"""Compiled code on disk: reused when nothing has changed, never stale, and optional."""

from __future__ import annotations

import importlib
import linecache
import logging
import os
import shutil
import subprocess
import sys

import numba
import pytest
from core.caching import DECIDE, SOURCE, run

from swerve import UCB1, Fleet, Thompson
from swerve.core import cache, digest, engine, verbs

BANDIT = """
from swerve.bandits.ucb1 import UCB1
from swerve.core.contract import select
{imports}

class Mine(UCB1):
    pass

@select.register(Mine)
def _(spec, row, pool, available, now):
    return {rule}
"""

HELPER = """
from swerve.core.verbs import kernel
{imports}
CONSTANT = {value}

@kernel
def pick():
    return {rule}
"""


def test_a_users_bandit_and_its_helpers_are_never_stale(tmp_path):
    """In separate processes: cold, cached, after an edit of the bandit, after an edit of the helper."""
    bandit, helper = tmp_path / "mine.py", tmp_path / "helper_of_mine.py"
    helper.write_text(HELPER.format(imports="", value=0, rule=0))
    bandit.write_text(BANDIT.format(imports="from helper_of_mine import pick", rule="pick()"))
    code = DECIDE.format(module="mine", cls="Mine")
    assert run(code, tmp_path)[0] == ["0", "0"]
    assert run(code, tmp_path)[0] == ["0", "1"]  # unchanged: loaded from disk
    bandit.write_text(BANDIT.format(imports="from helper_of_mine import pick", rule="pick() + 1"))
    assert run(code, tmp_path)[0] == ["1", "0"]
    helper.write_text(HELPER.format(imports="", value=0, rule=1))
    assert run(code, tmp_path)[0] == ["2", "0"]


COMBINATOR = """
from swerve import UCB1
from swerve.core.contract import observe
from swerve.core.spec import Spec
from swerve.core.wrapping import wrapping

@wrapping{without}
class Outer(Spec):
    bandit: Spec = UCB1()
"""


def test_a_users_combinator_is_cached_and_what_it_passes_on_counts(tmp_path):
    """Verbs that are passed on are created while a process runs; the next process still finds their compiled code."""
    module = tmp_path / "outer.py"
    code = DECIDE.format(module="outer", cls="Outer")
    module.write_text(COMBINATOR.format(without=""))
    assert run(code, tmp_path)[0] == ["0", "0"]
    assert run(code, tmp_path)[0] == ["0", "1"]
    module.write_text(COMBINATOR.format(without="(without=(observe,))"))
    assert run(code, tmp_path)[0] == ["0", "0"]


WAYS = {
    "its own source": ("", "{edit}"),
    "a function by name": ("from {helper} import pick", "pick()"),
    "a function of a module": ("import {helper}", "{helper}.pick()"),
    "a function under another name": ("from {helper} import pick as choose", "choose()"),
    "a constant by name": ("from {helper} import CONSTANT", "CONSTANT"),
    "a constant of a module": ("import {helper}", "{helper}.CONSTANT"),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_edit_anywhere_behind_a_users_kernel_names_another_folder(tmp_path, monkeypatch, way):
    name = f"mine_{list(WAYS).index(way)}"
    helper = f"{name}_helper"
    imports, rule = WAYS[way]
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    digests = []
    for edit in (0, 1, 0):
        (tmp_path / f"{helper}.py").write_text(HELPER.format(imports="", value=edit, rule=edit))
        (tmp_path / f"{name}.py").write_text(
            BANDIT.format(imports=imports.format(helper=helper), rule=rule.format(helper=helper, edit=edit))
        )
        for module in (name, helper):
            sys.modules.pop(module, None)
        importlib.invalidate_caches()
        linecache.checkcache()
        digests.append(engine.select_one.digest(importlib.import_module(name).Mine()))
    assert digests[0] == digests[2]
    assert digests[0] != digests[1]
    assert None not in digests


@pytest.mark.parametrize(
    ("near", "mine"),
    [
        (("import {far}", "{far}.pick()"), ("from {near} import pick", "pick()")),
        (("from {far} import pick as pick_far", "pick_far()"), ("import {near}", "{near}.pick()")),
    ],
    ids=["by name, then of a module", "of a module, then by name"],
)
def test_a_helper_of_a_helper_counts(tmp_path, monkeypatch, near, mine):
    names = {"far": f"far_{len(mine[1])}", "near": f"near_{len(mine[1])}", "mine": f"mine_{len(mine[1])}_far"}
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    digests = []
    for edit in (0, 1):
        (tmp_path / f"{names['far']}.py").write_text(HELPER.format(imports="", value=0, rule=edit))
        (tmp_path / f"{names['near']}.py").write_text(
            HELPER.format(imports=near[0].format(**names), value=0, rule=near[1].format(**names))
        )
        (tmp_path / f"{names['mine']}.py").write_text(BANDIT.format(imports=mine[0].format(**names), rule=mine[1].format(**names)))
        for module in names.values():
            sys.modules.pop(module, None)
        importlib.invalidate_caches()
        linecache.checkcache()
        digests.append(engine.select_one.digest(importlib.import_module(names["mine"]).Mine()))
    assert digests[0] != digests[1]


def test_our_own_kernels_are_never_stale(tmp_path):
    """A copy of the package with an edited kernel uses the cache that the original has filled."""
    copy = tmp_path / "src"
    shutil.copytree(SOURCE / "swerve", copy / "swerve", ignore=shutil.ignore_patterns("__pycache__"))
    code = DECIDE.format(module="swerve", cls="UCB1")
    assert run(code, tmp_path, source=copy)[0] == ["0", "0"]
    assert run(code, tmp_path, source=copy)[0] == ["0", "1"]
    kernel = copy / "swerve" / "bandits" / "ucb1.py"
    text = kernel.read_text()
    assert text.count("if index > best:") == 1
    kernel.write_text(text.replace("if index > best:", "if index >= best:"))  # the last of equals wins
    assert run(code, tmp_path, source=copy)[0] == ["2", "0"]


#: One edit each of a kernel, a kernel's helper, an entry point, a default verb, a compiled replacement of a function, and a
#: constant.
EDITS = [
    ("bandits/ucb1.py", "if index > best:", "if index >= best:"),
    ("core/tables.py", "& np.int64(1) != 0", "& np.int64(1) == 1"),
    ("core/engine.py", "NOTHING_TO_SHOW if arm < 0", "NOTHING_TO_SHOW if arm <= -1"),
    (
        "core/contract.py",
        "def _nothing(spec, *args):  # type: ignore[no-untyped-def]\n    return 0",
        "def _nothing(spec, *args):\n    return 1",
    ),
    ("core/rng.py", "np.uint64(a) + np.uint64(b)", "np.uint64(b) + np.uint64(a)"),
    ("core/rng.py", "S11 = np.uint64(11)", "S11 = np.uint64(12)"),
]


@pytest.fixture(scope="module")
def unedited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(SOURCE / "swerve", folder / "src" / "swerve", ignore=shutil.ignore_patterns("__pycache__"))
    return folder, digest_in(folder)


def digest_in(folder):
    """Return the digest of a policy that draws, computed by the package in that folder."""
    code = """
        from swerve import UCB1, Thompson
        from swerve.core.engine import select_one
        print(select_one.digest(Thompson()), select_one.digest(UCB1()))
    """
    return run(code, folder, source=folder / "src")[0]


@pytest.mark.parametrize("edit", EDITS, ids=[f"{path}: {old[:24]}" for path, old, _ in EDITS])
def test_an_edit_of_ours_names_another_folder(unedited, edit):
    folder, before = unedited
    path, old, new = edit
    kernel = folder / "src" / "swerve" / path
    text = kernel.read_text()
    if old not in text:
        old, new = (part.replace("  # type: ignore[no-untyped-def]", "") for part in (old, new))
    assert text.count(old) == 1, f"{old!r} is no longer in {path}: edit something else"
    kernel.write_text(text.replace(old, new))
    try:
        after = digest_in(folder)
    finally:
        kernel.write_text(text)
    if path == "core/rng.py":
        assert after[0] != before[0]  # Thompson sampling draws; UCB1 does not, and keeps its code
        assert after[1] == before[1]
    else:
        assert after[1] != before[1]


def test_without_a_place_to_write_it_works_and_says_so_once(tmp_path):
    code = """
        from swerve import Fleet, UCB1
        fleet = Fleet(UCB1(), queries=1, arms=3)
        decision = fleet.select(0)
        print(decision.arm, fleet.reward(0, decision))
    """
    out, error = run(code, tmp_path, SWERVE_CACHE_DIR=None, XDG_CACHE_HOME=None, HOME="/dev/null")
    assert out == ["0", "True"]
    assert len(error.splitlines()) == 1, error
    assert "not cached" in error


def test_a_cache_that_cannot_be_written_is_said_once(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SWERVE_CACHE_DIR", str(tmp_path / "file" / "cache"))
    cache.cache_root.cache_clear()
    try:
        with caplog.at_level(logging.INFO, logger="swerve.cache"):
            for entry in (engine.restart_one, engine.evict_one, engine.begin_pools):
                cache.compiled(entry.plain, "digest")
        assert len(caplog.records) == 1
        assert "not cached" in caplog.text
    finally:
        cache.cache_root.cache_clear()


def test_other_packages_keep_their_cache_folder(monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", "/somewhere/else")
    Fleet(UCB1(), queries=1, arms=3)
    cache.compiled(engine.restart_one.plain, engine.restart_one.digest(UCB1()))
    assert numba.config.CACHE_DIR == "/somewhere/else"
    monkeypatch.setattr(numba, "njit", lambda **options: lambda function: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cache.compiled(engine.restart_one.plain, engine.restart_one.digest(UCB1()))
    assert numba.config.CACHE_DIR == "/somewhere/else"


def test_values_share_a_folder_and_classes_do_not():
    assert engine.select_one.digest(UCB1()) == engine.select_one.digest(UCB1(alpha=2))
    assert engine.select_one.digest(UCB1()) != engine.select_one.digest(Thompson())
    assert engine.select_one.digest(UCB1()) != engine.update_one.digest(UCB1())


def test_versions_are_part_of_the_name(monkeypatch):
    before = engine.select_one.digest(UCB1())
    digest._fingerprint.cache_clear()
    monkeypatch.setattr(digest, "VERSIONS", "others")
    try:
        assert engine.select_one.digest(UCB1()) != before
    finally:
        digest._fingerprint.cache_clear()


@pytest.mark.parametrize(("where", "name"), [(cache, "OPTIONS"), (verbs, "FROM_KERNELS")], ids=["entries", "kernels"])
def test_the_settings_of_the_compiler_are_part_of_the_name(monkeypatch, where, name):
    before = engine.select_one.digest(UCB1())
    digest._fingerprint.cache_clear()
    monkeypatch.setattr(where, name, {**getattr(where, name), "boundscheck": True})
    try:
        assert engine.select_one.digest(UCB1()) != before
    finally:
        digest._fingerprint.cache_clear()


def test_the_fingerprint_does_not_depend_on_what_else_is_imported():
    """A service and a simulation share what one of them has compiled."""
    ask = """
from swerve import Swerve, Thompson
from swerve.core import engine
from swerve.serving.calls import rank_many
from swerve.signals import Senses
print(engine.select_one.digest(Thompson()), rank_many.digest(Swerve(), Senses()))
"""
    codes = (ask, f"import swerve.environments, swerve.simulate, swerve.policies, swerve.demo.server, swerve.cli.demo\n{ask}")
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    runs = [subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True) for code in codes]
    assert runs[0].stdout == runs[1].stdout != ""


def test_a_start_does_not_import_scipys_linear_algebra_and_that_of_others_still_compiles():
    pytest.importorskip("scipy")
    code = "import sys, numba, numpy as np, swerve; fleet = swerve.Fleet(swerve.UCB1(), queries=2, arms=2); fleet.select(0); "
    code += "assert 'scipy.linalg' not in sys.modules; two = np.full((2, 2), 2.0); "
    code += "print(numba.njit(lambda a: a @ a)(two).tolist(), 'scipy.linalg' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[[8.0, 8.0], [8.0, 8.0]] True"
