"""Check that the documentation is complete, or regenerate its generated parts with --write.

- Every package has a page; every command, option, spec and field is documented in a generated part that is up to date.
- Every table and list that the technical report takes from another page is as it is there.
- Every link between pages has a target.
- Every environment variable that the sources read is documented.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import click

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "swerve"


def commands() -> str:
    """Return the reference of the command line, from the commands themselves."""
    from swerve.cli import COMMANDS, app

    out: list[str] = []

    def describe(command: click.Command, path: str) -> None:
        context = click.Context(command, info_name=path)
        help_text = inspect.cleandoc(command.help or "")
        arguments = " ".join(p.make_metavar(context) for p in command.params if isinstance(p, click.Argument))
        out.append(f"### `{' '.join(filter(None, [path, arguments]))}`\n\n{help_text}\n")
        rows = []
        for option in command.params:
            record = option.get_help_record(context) if isinstance(option, click.Option) else None
            if record:
                rows.append(f"| `{record[0]}` | {' '.join(record[1].split())} |".replace("  ", " "))
        if rows:
            out.append("| option | meaning |\n|---|---|\n" + "\n".join(rows) + "\n")
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                if child is not None:
                    describe(child, f"{path} {name}")

    root = click.Context(app, info_name="swerve")
    for name in sorted(COMMANDS):
        found = app.get_command(root, name)
        if found is not None:
            describe(found, f"swerve {name}")
    return "\n".join(out)


def parameters() -> str:
    """Return every spec class of the package with its fields, defaults and ranges."""
    from swerve.cli.list import parameters as fields_of, summary
    from swerve.core.parse import spec_classes

    out: list[str] = []
    ours = [cls for cls in spec_classes().values() if cls.__module__.startswith("swerve.")]
    for part in sorted({cls.__module__.split(".")[1] for cls in ours}):
        out.append(f"## {part}\n")
        for cls in sorted((c for c in ours if c.__module__.split(".")[1] == part), key=lambda c: c.__name__):
            out.append(f"### `{cls.__name__}`\n\n{summary(cls)}\n")
            fields = fields_of(cls)
            if fields:
                out.append("| field | default | allowed |\n|---|---|---|")
                for name, field in fields.items():
                    default = "–" if field["default"] is None else f"`{field['default']!r}`"
                    out.append(f"| `{name}` | {default} | {field['allowed']} |")
                out.append("")
    return "\n".join(out)


def configuration() -> str:
    """Return every field of the service's configuration, by section."""
    from swerve.cli.config import toml
    from swerve.service.config.callers import ApiKey, Namespace
    from swerve.service.config.learning import EventKind
    from swerve.service.config.load import all_fields
    from swerve.service.config.proxying import Rule
    from swerve.service.config.sections import sections

    out: list[str] = []
    section = ""
    for field in all_fields():
        if field.section != section:
            section = field.section
            title = f"[[{section}]]" if section in ("security.api_keys", "proxy.rules") else f"[{section}]"
            inner = {"feedback.events.KIND": EventKind, "namespaces.NAME": Namespace, "proxy.rules": Rule}
            about = inspect.getdoc(sections().get(section) or inner.get(section, ApiKey))
            head = "| name | default | allowed | meaning |\n|---|---|---|---|"
            out.append(f"\n### `{title}`\n\n{about}\n\n{variables(section, field.name)}\n\n{head}")
        default = "–" if field.default is None else f"`{toml(field.default)}`"
        out.append(f"| `{field.name}` | {default} | {field.allowed} | {field.meaning} |")
    return "\n".join(out).lstrip()


def variables(section: str, field: str) -> str:
    """Say how the settings of a section are set by environment variables."""
    from swerve.service.config.environment import variable_of

    path = section.split(".")
    if section in ("security.api_keys", "proxy.rules"):
        return f"As a variable: `{variable_of(*path)}` has the whole list, in TOML."
    if path[-1].isupper():  # a name that people choose is written as it is
        before = variable_of(*path[:-1])
        return f"As variables: `{before}__{path[-1]}__FIELD`, such as `{before}__{path[-1].lower()}__{field.upper()}`."
    return f"As variables: `{variable_of(section)}__FIELD`, such as `{variable_of(section, field)}`."


GENERATED = {
    "cli.md": ("commands", commands),
    "configuration.md": ("configuration", configuration),
    "parameters.md": ("parameters", parameters),
}


def generated(page: str) -> str:
    """Return the text of a page with its generated part regenerated."""
    marker, make = GENERATED[page]
    text = (DOCS / page).read_text(encoding="utf-8")
    start, end = f"<!-- generated: {marker} -->", "<!-- end -->"
    head, _, rest = text.partition(start)
    _, _, tail = rest.partition(end)
    return f"{head}{start}\n\n{make().rstrip()}\n\n{end}{tail}"


TAKEN = re.compile(
    r"<!-- taken: (?P<page>[\w.-]+)#(?P<anchor>[\w-]+), (?P<kind>table|list) (?P<number>\d+) -->\n.*?<!-- end -->", re.S
)
KINDS = {"table": "|", "list": "- "}


def anchor_of(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


def block(page: str, anchor: str, kind: str, number: int) -> str:
    """Return a table or a list of a page: the NUMBER-th below the heading with this anchor, with links from the report's folder."""
    below, found = "", []
    for part in re.split(r"\n{2,}", (DOCS / page).read_text(encoding="utf-8")):
        if part.startswith("#"):
            below = anchor_of(part.splitlines()[0].lstrip("#"))
        elif below == anchor and part.startswith(KINDS[kind]):
            found.append(part.strip())
    if len(found) < number:
        raise LookupError(f"docs/{page} has no {kind} {number} below #{anchor}")
    return re.sub(
        r"\]\((?![a-z]+:)([^)]*)\)",
        lambda link: f"]({'../' + (page if link[1].startswith('#') else '')}{link[1]})",
        found[number - 1],
    )


def with_taken(text: str) -> str:
    """Return a page with the tables and lists that it takes from other pages as they are there."""

    def fresh(found: re.Match[str]) -> str:
        head = found[0].partition("\n")[0]
        return f"{head}\n\n{block(found['page'], found['anchor'], found['kind'], int(found['number']))}\n\n<!-- end -->"

    return TAKEN.sub(fresh, text)


def problems() -> list[str]:
    """Return all errors in the documentation."""
    found: list[str] = []
    for report in DOCS.glob("report/*.md"):
        text = report.read_text(encoding="utf-8")
        try:
            if text != with_taken(text):
                found.append(f"docs/report/{report.name} is out of date; run `python tools/check_docs.py --write`")
        except LookupError as error:
            found.append(f"docs/report/{report.name}: {error}")
    for package in sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py")):
        if not (DOCS / f"{package}.md").exists():
            found.append(f"package swerve.{package} has no page docs/{package}.md")
    for page in GENERATED:
        if (DOCS / page).read_text(encoding="utf-8") != generated(page):
            found.append(f"docs/{page} is out of date; run `python tools/check_docs.py --write`")
    pages = [
        *DOCS.glob("*.md"),
        *DOCS.glob("report/*.md"),
        *(ROOT / "examples").glob("*.md"),
        *(ROOT / "clients").glob("*/README.md"),
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "CONTRIBUTING.md",
    ]
    for page_path in pages:
        text = page_path.read_text(encoding="utf-8")
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if "://" not in link and not (page_path.parent / link).exists():
                found.append(f"{page_path.relative_to(ROOT)}: the link {link} leads nowhere")
    documented = "\n".join(path.read_text(encoding="utf-8") for path in pages)
    for source in PACKAGE.rglob("*.py"):
        for variable in re.findall(r"SWERVE_[A-Z_]+", source.read_text(encoding="utf-8")):
            if variable not in documented:
                found.append(f"{source.relative_to(ROOT)}: the variable {variable} is not documented")
    return found


def main() -> None:
    if "--write" in sys.argv[1:]:
        for page in GENERATED:
            (DOCS / page).write_text(generated(page), encoding="utf-8")
        for report in DOCS.glob("report/*.md"):
            report.write_text(with_taken(report.read_text(encoding="utf-8")), encoding="utf-8")
    found = problems()
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
