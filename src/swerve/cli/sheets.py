"""Tables of figures in every form: on the terminal, as Markdown, as LaTeX, and their rows as CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from swerve.cli.common import figures, file_target, json_option, plain, write_json
from swerve.core.errors import SwerveError

#: Characters that LaTeX reads as commands, and signs that its fonts lack.
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "×": r"$\times$", "÷": r"$\div$", "±": r"$\pm$", "−": "$-$",
    "≤": r"$\leq$", "≥": r"$\geq$", "–": "--", "…": r"\ldots{}", "α": r"$\alpha$", "γ": r"$\gamma$", "δ": r"$\delta$",
    "ε": r"$\epsilon$", "Δ": r"$\Delta$", "√": r"$\sqrt{}$",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Sheet:
    """A table as it is shown: a title, headings, and rows of text; the first column has names."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]

    def as_markdown(self) -> str:
        """Return the table as Markdown, the names as code."""
        lines = [f"**{self.title}**", "", piped(self.heads), "|---" + "|---:" * (len(self.heads) - 1) + "|"]
        lines += [piped([f"`{name}`", *rest]) for name, *rest in self.rows]
        return "\n".join(lines) + "\n"

    def as_latex(self) -> str:
        """Return the table as LaTeX with the lines of the package booktabs."""
        body = [rf"\texttt{{{tex(name)}}} & " + " & ".join(map(tex, rest)) + r" \\" for name, *rest in self.rows]
        return "\n".join(
            [
                r"\begin{table}", rf"\caption{{{tex(self.title)}}}", rf"\begin{{tabular}}{{l{'r' * (len(self.heads) - 1)}}}",
                r"\toprule", " & ".join(map(tex, self.heads)) + r" \\", r"\midrule", *body,
                r"\bottomrule", r"\end{tabular}", r"\end{table}", "",
            ]
        )  # fmt: skip

    def as_figures(self) -> Any:
        """Return the table for the terminal."""
        table = figures(self.title, *self.heads)
        for row in self.rows:
            table.add_row(*map(escape, row))
        return table


def one_line(text: str) -> str:
    """Return a text without line breaks."""
    return " ".join(text.split())


def piped(cells: Sequence[str]) -> str:
    """Return a line of a table in Markdown."""
    return f"| {' | '.join(one_line(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def tex(text: str) -> str:
    """Return a text for LaTeX.

    >>> tex("bwc(margin_2=0.1) 12 %")
    'bwc(margin\\\\_2=0.1) 12 \\\\%'
    """
    return "".join(LATEX.get(sign, sign) for sign in one_line(text))


def flat(row: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Return a row of figures without tables inside it; lists are texts with spaces.

    >>> flat({"name": "ts", "counters": {"clicks": 3.0}, "seeds": [0, 1], "sd": None})
    {'name': 'ts', 'counters.clicks': 3.0, 'seeds': '0 1', 'sd': ''}
    """
    out: dict[str, Any] = {}
    for key, value in plain(row).items():
        if isinstance(value, dict):
            out |= flat(value, f"{before}{key}.")
        else:
            listed = " ".join(map(str, value)) if isinstance(value, list) else value
            out[f"{before}{key}"] = "" if listed is None else listed
    return out


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows of figures as CSV: the keys of the JSON are the columns."""
    lines = [flat(row) for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for line in lines for key in line)), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


csv_option = click.option(
    "--csv", "csv_to", metavar="FILE", callback=file_target,
    help="Write the figures as CSV to FILE, or with - to standard output instead of the table.",
)  # fmt: skip
latex_option = click.option(
    "--latex", "latex_to", metavar="FILE", callback=file_target,
    help="Write the tables as LaTeX (package booktabs) to FILE, or with - to standard output instead of the table.",
)  # fmt: skip


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for other forms of a table: `json_to`, `csv_to` and `latex_to`."""
    return csv_option(latex_option(json_option(command)))


def one_output(**targets: Any) -> None:
    """Refuse several forms of a table on standard output, or in one file."""
    files = [target for target in targets.values() if isinstance(target, str) and target != "-"]
    twice = next((target for target in files if files.count(target) > 1), None)
    if twice is not None:
        raise SwerveError(f"{twice} is not allowed for two forms of the table; each needs a file of its own")
    said = [f"--{name}" for name, target in targets.items() if target in ("-", True)]
    if len(said) > 1:
        raise SwerveError(f"{said[0]} is not allowed with {said[1]} to standard output; use {said[1]} FILE")


def write_forms(
    json_to: str | None,
    csv_to: str | None,
    latex_to: str | None,
    rows: Sequence[dict[str, Any]],
    sheets: Sequence[Sheet],
    note: str,
) -> bool:
    """Write the figures in every form that is asked for; return True if one of them replaces the table on standard output."""
    replaced = write_json(json_to, list(rows))
    texts = {csv_to: as_csv(rows)} if csv_to is not None else {}
    if latex_to is not None:
        texts[latex_to] = "\n".join(sheet.as_latex() for sheet in sheets) + f"% {one_line(note)}\n"
    for target, text in texts.items():
        if target == "-":
            click.echo(text, nl=False)
            replaced = True
        elif target is not None:
            Path(target).write_text(text, encoding="utf-8")
    return replaced
