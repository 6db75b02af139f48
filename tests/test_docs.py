"""The documentation is complete and up to date, and its examples run."""

from __future__ import annotations

import doctest
import importlib.util
import json
import re
import sys
from pathlib import Path

import forking
import pytest

from swerve.service.config.environment import RENAMED

ROOT = Path(__file__).parent.parent


def load_checker():
    spec = importlib.util.spec_from_file_location("check_docs", ROOT / "tools" / "check_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(page: Path, language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M)


def run(*command: str, cwd: Path) -> str:
    done = forking.run(*command, cwd=cwd, timeout=300, COLUMNS="120")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_package_command_option_field_and_variable_is_documented():
    assert load_checker().problems() == []


def test_the_checker_sees_a_missing_page_a_stale_part_and_a_dead_link(tmp_path, monkeypatch):
    checker = load_checker()
    docs = tmp_path / "docs"
    docs.mkdir()
    for page in (ROOT / "docs").glob("*.md"):
        (docs / page.name).write_text(page.read_text(encoding="utf-8"), encoding="utf-8")
    (docs / "bandits.md").unlink()
    (docs / "cli.md").write_text(
        (docs / "cli.md").read_text(encoding="utf-8").replace("`--seed INTEGER`", "`--sead`"), encoding="utf-8"
    )
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        (tmp_path / name).write_text("[nowhere](docs/nowhere.md)", encoding="utf-8")
    monkeypatch.setattr(checker, "DOCS", docs)
    monkeypatch.setattr(checker, "ROOT", tmp_path)
    monkeypatch.setattr(checker, "PACKAGE", ROOT / "src" / "swerve")
    found = "\n".join(checker.problems())
    assert "has no page docs/bandits.md" in found
    assert "docs/cli.md is out of date" in found
    assert "the link docs/nowhere.md leads nowhere" in found


def test_the_example_of_the_readme_runs(tmp_path):
    example = blocks(ROOT / "README.md")[0]
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    assert re.search(r"regret [\d,]+, missed events [\d.]+", run(sys.executable, "example.py", cwd=tmp_path))


def test_the_readme_lists_every_command():
    from swerve.cli import COMMANDS

    listed = re.findall(r"^swerve (\w+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    assert sorted(listed) == sorted(COMMANDS)


def test_the_session_of_the_page_on_our_policy_runs():
    failed, tried = doctest.testfile(str(ROOT / "docs" / "beyond.md"), module_relative=False)
    assert tried >= 3
    assert failed == 0


@pytest.mark.parametrize("page", ["policies.md", "simulate.md", "experiments.md", "service.md", "serving.md", "store.md"])
def test_examples_of_the_pages_run(page, tmp_path):
    shown = blocks(ROOT / "docs" / page)
    assert shown
    for number, block in enumerate(shown):
        (tmp_path / f"block{number}.py").write_text(block, encoding="utf-8")
        run(sys.executable, f"block{number}.py", cwd=tmp_path)


def test_the_algorithms_of_the_extending_page_work_in_python_and_on_the_command_line(tmp_path):
    source = "\n\n".join(blocks(ROOT / "docs" / "extending.md"))
    (tmp_path / "my_algorithms.py").write_text(source, encoding="utf-8")
    regrets = [float(line.split()[-1]) for line in run(sys.executable, "my_algorithms.py", cwd=tmp_path).splitlines()]
    alone, cooling, with_classifier, with_oracle = regrets
    assert with_oracle < with_classifier < alone  # the page's own classifier finds most of the shifts
    assert cooling > alone  # without exploration no shift is found
    listed = json.loads(run(sys.executable, "-m", "swerve", "list", "--load", "my_algorithms.py", "--json", cwd=tmp_path))
    assert {"EpsilonGreedy", "Threshold"} <= {row["name"] for row in listed}
    composed = "BWC(Testable(EpsilonGreedy(rate=0.2), length=50), Threshold(margin=0.1))"
    where = "traffic(queries=2, impressions=2000, features=1)"
    command = ("swerve", "simulate", composed, "--load", "my_algorithms.py", "-e", where, "--runs", "1", "--json")
    rows = json.loads(run(sys.executable, "-m", *command, cwd=tmp_path))
    assert rows[0]["counters"]["rounds"] == 2000


def test_the_versions_agree():
    import swerve

    release, _, development = swerve.__version__.partition(".dev")
    latest = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)[0]
    assert latest.split(",")[0] == release
    assert ("unreleased" in latest) == bool(development)
    assert f"swerve {swerve.__version__}: " in (ROOT / "docs" / "service.md").read_text(encoding="utf-8")


def test_every_break_begins_its_line_and_an_upgrade_is_linked_from_where_people_look():
    latest = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]
    checklist, changes = latest.split("\n### Changes\n")
    entries = re.split(r"^- ", changes, flags=re.M)[1:]
    breaking = [entry for entry in entries if re.search(r"\bbreaking\b", entry, re.I)]
    assert len(breaking) > 10
    assert [entry[:80] for entry in breaking if not entry.startswith("Breaking") or len(re.findall("Breaking", entry)) > 1] == []
    refused = [*RENAMED, *RENAMED.values(), "probability_draws", "propensity_draws", "clicked", "ClientError", "swerve-client"]
    assert [name for name in refused if f"`{name}`" not in checklist and name not in checklist] == []
    for page in ("stability", "deploy", "operations"):
        assert "(../CHANGELOG.md#upgrading-from-01)" in (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"), page


def test_pins_carry_versions_and_hashes_and_no_address():
    for path in (ROOT / "requirements").glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        assert "://" not in text
        assert "index" not in text
        pins = re.findall(r"^[A-Za-z0-9_.-]+==", text, re.M)
        assert pins
        assert text.count("--hash=sha256:") >= len(pins)


def test_the_page_on_stability_knows_whether_something_is_deprecated():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    says = any(re.search(r"DeprecationWarning|[\"']deprecat", text, re.I) for text in sources)
    assert ("**Today nothing is deprecated**" in (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")) != says


def test_the_report_has_the_figures_of_the_pages_that_it_takes_them_from(tmp_path, monkeypatch):
    checker = load_checker()
    report = (ROOT / "docs" / "report" / "index.md").read_text(encoding="utf-8")
    assert checker.with_taken(report) == report
    assert len(checker.TAKEN.findall(report)) >= 10
    assert "39.3 ± 6.0" in report  # a figure of docs/paper.md
    assert checker.with_taken(report.replace("39.3 ± 6.0", "29.3 ± 6.0")) == report
    for page in (ROOT / "docs").glob("*.md"):
        text = page.read_text(encoding="utf-8").replace("39.3 ± 6.0", "38.3 ± 6.0")
        (tmp_path / page.name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(checker, "DOCS", tmp_path)
    assert "38.3 ± 6.0" in checker.with_taken(report)
    with pytest.raises(LookupError, match=r"docs/paper\.md has no table 9 below #measured"):
        checker.block("paper.md", "measured", "table", 9)


def test_the_report_has_no_measured_figure_of_its_own():
    checker = load_checker()
    prose = checker.TAKEN.sub("", (ROOT / "docs" / "report" / "index.md").read_text(encoding="utf-8"))
    assert re.findall(r"\d+\.\d+(?! )", re.sub(r"`[^`]*`", "", prose)) == []


def test_the_citation_is_that_of_this_version():
    import yaml

    import swerve

    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(cited)
    assert cited["version"] == swerve.__version__
    assert cited["references"][0]["title"] == "Adapting to the Shifting Intent of Search Queries"
