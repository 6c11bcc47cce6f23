"""The command line: ``puma-coffea``. Each command only calls the library."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from puma_coffea.exceptions import PumaCoffeaError
from puma_coffea.tables import summary_tables

# As in puma_coffea.processors, which imports coffea: too heavy for --help.
DEFAULT_METHODS = ("none", "chs", "softkiller", "puppi", "puma", "truth")

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def _root() -> None:
    """Pile-up mitigation for coffea analyses."""


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the result.")] = Path(
        "demo"
    ),
    workers: Annotated[int, typer.Option(help="Processes.")] = 2,
) -> None:
    """Run every method on real events that travel with the package, and write a report."""
    from puma_coffea.reporting import write_report
    from puma_coffea.running import run as run_files
    from puma_coffea.sample import demo_fileset

    console = Console()
    with demo_fileset() as fileset:
        result = run_files(
            [fileset],
            output,
            executor="futures",
            workers=workers,
            chunksize=20,
            status=sys.stderr.isatty(),
        )
    for table in summary_tables(result):
        console.print(table)
    console.print(
        f"Report: {write_report(result, output / 'report')}", highlight=False, soft_wrap=True
    )


@app.command()
def run(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES...",
            help="ROOT or Parquet files, globs, lists (.txt) or filesets (.json); name=FILE sets the dataset.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the result.")],
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas; module:function for your own.")
    ] = ",".join(DEFAULT_METHODS),
    vertexing: Annotated[str, typer.Option(help="truth, reco or reference.")] = "truth",
    executor: Annotated[str, typer.Option(help="iterative, futures or dask.")] = "iterative",
    workers: Annotated[int, typer.Option(help="Processes of futures and of a local dask.")] = 2,
    scheduler: Annotated[str | None, typer.Option(help="Address of a dask scheduler.")] = None,
    chunksize: Annotated[int, typer.Option(help="Events per chunk, at most.")] = 100,
    max_events: Annotated[int | None, typer.Option(help="Events per dataset, at most.")] = None,
    skip_bad_files: Annotated[
        bool, typer.Option("--skip-bad-files", help="Leave out what cannot be read, and say so.")
    ] = False,
    root: Annotated[bool, typer.Option("--root", help="Write histograms.root too.")] = False,
) -> None:
    """Missing momentum, dijet mass and recoil for every method, from files to an output folder."""
    from puma_coffea.running import run as run_files

    sys.path.insert(0, "")  # a user's own method stands in the current folder
    result = run_files(
        inputs,
        output,
        methods=[name.strip() for name in methods.split(",") if name.strip()],
        vertexing=vertexing,
        executor="dask" if scheduler else executor,
        workers=workers,
        scheduler=scheduler,
        chunksize=chunksize,
        max_events=max_events,
        skip_bad_files=skip_bad_files,
        root=root,
        status=sys.stderr.isatty(),
    )
    console = Console()
    for table in summary_tables(result):
        console.print(table)
    console.print(
        f"Output: {output}/   Report: puma-coffea report {output}", highlight=False, soft_wrap=True
    )


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Output folder of a run.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for the page; default FOLDER/report."),
    ] = None,
) -> None:
    """Draw the figures of a run and one page that holds them all."""
    from puma_coffea.outputs import read_output
    from puma_coffea.reporting import write_report

    target = output or (folder if folder.is_dir() else folder.parent) / "report"
    Console().print(
        f"Report: {write_report(read_output(folder), target)}", highlight=False, soft_wrap=True
    )


@app.command()
def prepare(
    inputs: Annotated[
        list[str], typer.Argument(metavar="FILES...", help="Delphes files, as for run.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the Parquet files.")],
    vertexing: Annotated[str, typer.Option(help="truth, reco or reference.")] = "truth",
    executor: Annotated[str, typer.Option(help="iterative, futures or dask.")] = "iterative",
    workers: Annotated[int, typer.Option(help="Processes of futures and of a local dask.")] = 2,
    scheduler: Annotated[str | None, typer.Option(help="Address of a dask scheduler.")] = None,
    chunksize: Annotated[int, typer.Option(help="Events per file, at most.")] = 200,
    max_events: Annotated[int | None, typer.Option(help="Events per dataset, at most.")] = None,
) -> None:
    """Delphes files to Parquet samples, which training reads; goes on where it was stopped."""
    from puma_coffea.running import prepare as prepare_files

    made = prepare_files(
        inputs,
        output,
        vertexing=vertexing,
        executor="dask" if scheduler else executor,
        workers=workers,
        scheduler=scheduler,
        chunksize=chunksize,
        max_events=max_events,
        status=sys.stderr.isatty(),
    )
    Console().print(
        f"{made['events']} events in {len(made['files'])} files: {output}/", highlight=False
    )


@app.command()
def overlay(
    hard: Annotated[
        list[str], typer.Argument(metavar="HARD...", help="Parquet samples without pile-up.")
    ],
    pileup: Annotated[list[str], typer.Option(help="Parquet sample whose pile-up is used.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The new Parquet sample.")],
    events: Annotated[int, typer.Option(min=1, help="Number of events.")] = 1000,
    skip: Annotated[int, typer.Option(min=0, help="Hard events to leave out first.")] = 0,
    seed: Annotated[int, typer.Option(help="Of what is laid over what.")] = 1,
) -> None:
    """Lay hard events over the pile-up of others: more events to judge or train with."""
    from puma_coffea.training.data import write_overlaid

    made = write_overlaid(hard, pileup, output, events, skip, seed)
    Console().print(f"{made} events: {output}", highlight=False, soft_wrap=True)


@app.command()
def simulate(
    processes: Annotated[
        list[str],
        typer.Argument(
            metavar="PROCESS...",
            help="Names or files of Pythia settings (.cmnd); events take turns.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The new Parquet sample.")],
    events: Annotated[int, typer.Option(min=1, help="Number of events.")] = 1000,
    pileup: Annotated[
        str, typer.Option(help="Mean number of interactions, or a range to draw it from: 0-200.")
    ] = "140",
    interactions: Annotated[
        int, typer.Option(min=1, help="Size of the pool that pile-up is drawn from.")
    ] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Of everything.")] = 1,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
) -> None:
    """Simulate events with Pythia and a small copy of the CMS Phase-II detector."""
    from puma_coffea.simulation.events import mean_range, write_simulated

    with _file_progress() as progress:
        made = write_simulated(
            processes, output, events, mean_range(pileup), interactions, seed, workers, progress
        )
    Console().print(f"{made} events: {output}", highlight=False, soft_wrap=True)


@app.command()
def train(
    config: Annotated[
        Path, typer.Argument(help="YAML file: name, data, and what differs from the preset.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of the training; resumed if it exists.")
    ],
    preset: Annotated[str, typer.Option(help="default, fine-tune or paper.")] = "default",
    cache: Annotated[
        Path | None, typer.Option(help="Folder for prepared tokens; default OUTPUT/cache.")
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Log to OUTPUT/tensorboard beside log.csv.")
    ] = False,
) -> None:
    """Train a model; under torchrun, on several processes or GPUs."""
    from puma_coffea.training.command import train_with_progress

    done = train_with_progress(config, output, preset, cache, tensorboard)
    found = f"Best width over tuned PUPPI: {done.best:.3f}"
    if not done.found_better:
        found += f", that of {done.config.start} before the first step: nothing was gained."
    found += f"\nModel: puma-coffea export {output}"
    Console().print(found, highlight=False, soft_wrap=True)


@app.command()
def export(
    checkpoint: Annotated[Path, typer.Argument(help="Folder of a training, or its checkpoint.pt.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model folder to write.")],
    metrics: Annotated[
        Path | None, typer.Option(help="Figures for the card, from 'puma-coffea evaluate --json'.")
    ] = None,
    calibrate: Annotated[
        Path | None,
        typer.Option(help="Fit a calibration to held-out events; the training's cache."),
    ] = None,
    shift: Annotated[
        float, typer.Option(help="Add this to every logit: 0.1 raises the response by 0.01.")
    ] = 0.0,
) -> None:
    """Make a model folder of a training's best parameters."""
    from puma_coffea.training.command import export_model

    path = export_model(checkpoint, output, metrics, calibrate, shift)
    Console().print(f"Model: {path}", highlight=False, soft_wrap=True)


@app.command()
def evaluate(
    inputs: Annotated[list[str], typer.Argument(metavar="FILES...", help="As for run.")],
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas.")
    ] = "puppi,puma,truth",
    reference: Annotated[str, typer.Option(help="Method that ratios are taken to.")] = "puppi",
    max_events: Annotated[int | None, typer.Option(help="Events per dataset, at most.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all figures here.")
    ] = None,
) -> None:
    """Widths, responses and paired ratios of methods on samples with truth."""
    from puma_coffea.evaluate import evaluate as evaluate_files
    from puma_coffea.tables import evaluation_tables, write_evaluation

    names = [name.strip() for name in methods.split(",") if name.strip()]
    results = evaluate_files(inputs, names, reference, max_events)
    for table in evaluation_tables(results, reference):
        Console().print(table)
    if json_file is not None:
        command = f"puma-coffea evaluate {' '.join(inputs)} --methods {methods}"
        write_evaluation(results, names, command, json_file)
        Console().print(f"Figures: {json_file}", highlight=False, soft_wrap=True)


@app.command()
def weights(
    inputs: Annotated[list[str], typer.Argument(metavar="FILES...", help="As for run.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the weights.")],
    methods: Annotated[
        str, typer.Option("--methods", "--method", help="Methods, separated by commas.")
    ] = "puma",
    form: Annotated[str, typer.Option("--format", help="parquet, root or both.")] = "both",
    vertexing: Annotated[str, typer.Option(help="truth, reco or reference.")] = "truth",
    chunksize: Annotated[int, typer.Option(help="Events in memory at a time.")] = 100,
) -> None:
    """Every candidate's weight as Parquet, and as ROOT friend trees beside the original's."""
    from puma_coffea.weights_io import write_weights

    sys.path.insert(0, "")  # a user's own method stands in the current folder
    with _file_progress() as progress:
        written = write_weights(
            inputs,
            output,
            methods=[name.strip() for name in methods.split(",") if name.strip()],
            vertexing=vertexing,
            form=form,
            chunksize=chunksize,
            progress=progress,
        )
    for path in written:
        Console().print(f"Weights: {path}", highlight=False, soft_wrap=True)


@app.command()
def display(
    file: Annotated[str, typer.Argument(help="A Delphes file or a Parquet sample.")],
    event: Annotated[int, typer.Option("--event", "-n", help="Its number in the file.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Picture; default NAME_eventN.png.")
    ] = None,
    method: Annotated[str, typer.Option(help="Whose weights are shown.")] = "puma",
    vertexing: Annotated[str, typer.Option(help="truth, reco or reference.")] = "truth",
) -> None:
    """Draw an event in the eta-phi plane: cluster order, true weights, weights of a method."""
    from puma_coffea.display import display as draw

    sys.path.insert(0, "")
    path = draw(file, event, output, method_name=method, vertexing=vertexing)
    Console().print(f"Picture: {path}", highlight=False, soft_wrap=True)


@app.command()
def bench(
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all figures here.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="One turn on two events: does it run?")
    ] = False,
) -> None:
    """Measure the speed of everything on this machine, against its peers."""
    from puma_coffea.benchmarks.running import bench as measure
    from puma_coffea.benchmarks.table import bench_table

    console = Console(stderr=True)
    with console.status("bench") as status:
        found = measure(quick, lambda subject: status.update(f"measuring: {subject}"))
    # Wide enough for its rows where there is no terminal to ask.
    Console(width=None if sys.stdout.isatty() else 100).print(bench_table(found))
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=2) + "\n")
        Console().print(f"Figures: {json_file}", highlight=False, soft_wrap=True)


models = typer.Typer(invoke_without_command=True, help="The shipped models, and any model folder.")
app.add_typer(models, name="models")
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


@models.callback()
def _models(context: typer.Context, as_json: AsJson = False) -> None:
    if context.invoked_subcommand is None:
        list_(as_json)


@models.command("list")
def list_(as_json: AsJson = False) -> None:
    """The models that come with the package."""
    from puma_coffea.puma.catalogue import list_models, models_table

    _answer(list_models(), models_table, as_json)


@models.command()
def show(
    model: Annotated[str, typer.Argument(metavar="NAME|FOLDER", help="Name, folder or .pt file.")],
    as_json: AsJson = False,
) -> None:
    """The card of a model."""
    from puma_coffea.puma.catalogue import card_page, show_model

    _answer(show_model(model), card_page, as_json)


@models.command()
def verify(
    model: Annotated[str, typer.Argument(metavar="NAME|FOLDER", help="Name, folder or .pt file.")],
    as_json: AsJson = False,
) -> None:
    """Check a model's card, the hash of every file, and that the numbers fit the card."""
    from puma_coffea.puma.catalogue import verdict, verify_model

    _answer(verify_model(model), verdict, as_json)


def _answer(answer: Any, shown: Callable[[Any], Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(answer))
    else:
        Console().print(shown(answer), highlight=False)


@contextmanager
def _file_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Bars on a terminal's standard error; call with a file or a step, how much is done, in all."""
    from rich.progress import Progress

    bars = Progress(console=Console(stderr=True), disable=not sys.stderr.isatty())
    tasks: dict[str, Any] = {}

    def update(file: str, done: int, total: int) -> None:
        if file not in tasks:
            tasks[file] = bars.add_task(Path(file).name, total=total)
        bars.update(tasks[file], completed=done)

    with bars:
        yield update


def main() -> None:
    """Run the command line; a refusal is one sentence on standard error and exit code 2."""
    try:
        app()
    except PumaCoffeaError as error:
        console = Console(stderr=True)
        console.print(
            f"[bold red]puma-coffea:[/] {escape(str(error))}", highlight=False, soft_wrap=True
        )
        sys.exit(2)
