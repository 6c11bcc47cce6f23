"""The command line: ``puma-coffea``. Each command only calls the library."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from puma_coffea.exceptions import PumaCoffeaError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def _root() -> None:
    """Pile-up mitigation for coffea analyses."""


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Folder for the plot.")] = Path("demo"),
) -> None:
    """Compare the methods on real events that travel with the package."""
    from puma_coffea.demo import compare, draw, table

    console = Console()
    results = compare()
    console.print(table(results))
    console.print(f"Plot: {draw(results, output)}")


def main() -> None:
    """Run the command line; a refusal is one sentence on standard error and exit code 2."""
    try:
        app()
    except PumaCoffeaError as error:
        Console(stderr=True).print(f"[bold red]puma-coffea:[/] {error}", highlight=False)
        sys.exit(2)
