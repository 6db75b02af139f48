"""The command line: `swerve COMMAND`. Each command is a module of its own, imported when it is called."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

#: Command → the line that `swerve --help` shows. The module of this package with the command's name holds it.
COMMANDS = {
    "audit": "list what operators did on a running service: rules, shifts and ramps",
    "backup": "copy the store and check the copy, while the service runs",
    "bench": "measure speed and size: the kernels beside plain C and other libraries",
    "bounds": "compute the paper's bounds for a problem, and measure BWC on it",
    "check": "check your own policies, classifiers, detectors and environments",
    "compare": "compare policies on the workloads, with paired differences",
    "config": "check the service's configuration, or show it with its defaults",
    "delete": "delete a query or a result for good, from a running service or a store",
    "demo": "see it swerve: the service, a search engine, simulated users and a page",
    "evaluate": "read search logs: which queries shift, and what another ranking would bring",
    "experiment": "show the experiment of a running service, ramp it or end it",
    "export": "write everything that a store has learnt as JSON lines or Parquet",
    "keys": "make an API key for the service, or a new key for its tokens",
    "learn": "build a store from logs, so that a service begins warm",
    "list": "list policies, building blocks and environments with their parameters",
    "proxy": "stand in front of a search engine, and re-rank its searches",
    "replay": "replay recorded requests and compare the rankings with those shown",
    "reproduce": "run the paper's experiments and show our figures beside the printed ones",
    "restore": "check a backup and put it in place of a store",
    "rules": "pin, block and boost results of a running service, or switch its policy off",
    "serve": "rank and learn behind a search box: the HTTP service",
    "simulate": "play policies in an environment and report their regret",
    "verify": "check a store: structure, log, records, secrets",
}

#: Exit codes: the request was wrong; the system refused; interrupted (128 + SIGINT, as shells report it).
WRONG, REFUSED, INTERRUPTED = 2, 1, 130
#: Characters per line of `--help`: wider lines are hard to read.
HELP_WIDTH = 110


class Lazy(click.Group):
    """A group that imports a command only when it is called, so that `swerve --help` starts at once."""

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
    """Print the version and exit."""
    if wanted and not ctx.resilient_parsing:
        from swerve import __version__

        click.echo(f"swerve {__version__}")
        ctx.exit()


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=print_version, help="Show the version and stop."
)
def app() -> None:
    """Swerve re-ranks search results from clicks, and follows when a query's intent shifts."""


def main() -> None:
    """Run the command line; report a user's mistake in one line, without a traceback."""
    if {"gpu", "--on=gpu"} & set(sys.argv):  # its driver starts while the command is imported
        from swerve.core import gpu_driver

        gpu_driver.begin()
    from swerve.core.errors import SwerveError

    try:
        code = app.main(standalone_mode=False)
    except SwerveError as error:
        click.echo(f"swerve: {error}", err=True)
        sys.exit(WRONG)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("swerve: interrupted", err=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        click.echo(f"swerve: {error}", err=True)
        sys.exit(REFUSED)
    sys.exit(code if isinstance(code, int) else 0)
