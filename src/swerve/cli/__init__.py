"""The command line: `swerve COMMAND`. Each command is a module of its own, imported when it is called."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

#: Command → the module of this package that holds it, and the line that `swerve --help` shows.
COMMANDS = {
    "backup": "a copy of the store, checked, while the service runs",
    "bench": "how fast, how small: the kernels beside plain C and other libraries",
    "bounds": "what the paper proves for a problem, and what BWC measures on it",
    "compare": "policies beside each other on the workloads, with paired differences",
    "config": "check the service's configuration, or show it with its defaults",
    "demo": "see it swerve: the service, a search engine, simulated users and a page",
    "keys": "make an API key for the service, or a new key for its tokens",
    "list": "policies, building blocks and environments, with their parameters",
    "replay": "recorded requests through the ranker again, compared with what was shown",
    "reproduce": "the paper's experiments, our figures beside the printed ones",
    "restore": "a backup, checked, in the place of a store",
    "serve": "rank and learn behind a search box: the HTTP service",
    "simulate": "play policies in an environment and report their regret",
    "verify": "is a store whole? structure, log, records, secrets",
}


class Lazy(click.Group):
    """A group that imports a command only when it is asked for: `swerve --help` starts at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"swerve.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from swerve.core.errors import nearest

            ctx.fail(f"unknown command {args[0]!r}{nearest(args[0], COMMANDS)} (known: {', '.join(sorted(COMMANDS))})")
        return super().resolve_command(ctx, args)


def print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Say the version and stop."""
    if wanted and not ctx.resilient_parsing:
        from swerve import __version__

        click.echo(f"swerve {__version__}")
        ctx.exit()


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=print_version, help="Show the version and stop."
)
def app() -> None:
    """Swerve keeps the right search result on top when a query's intent shifts."""


def main() -> None:
    """Run the command line; what a user did wrong is one line, not a traceback."""
    from swerve.core.errors import SwerveError

    try:
        code = app.main(standalone_mode=False)
    except SwerveError as error:
        click.echo(f"swerve: {error}", err=True)
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("swerve: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        click.echo(f"swerve: {error}", err=True)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
