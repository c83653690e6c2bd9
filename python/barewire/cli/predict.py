# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire predict`: times of patterns and kernels on P ranks, from runs of two ranks."""

import itertools
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Annotated, Literal, cast

import typer
from rich.console import Console
from rich.markup import escape

from barewire.cli import complete, options
from barewire.cli.output import print_document
from barewire.cli.progress import Progress, progress_bar
from barewire.errors import WrongUse, unknown
from barewire.measure.programs import expand_sizes
from barewire.measure.recover import recover_run
from barewire.models.kernels import KERNEL_VARIANTS, Grid
from barewire.models.times import CannotSay
from barewire.report.mpi import TextTable
from barewire.report.prediction import checked_tables, errors_text, prediction_tables
from barewire.report.terminal import rich_tables
from barewire.results.confidence import as_asked
from barewire.results.held_out import check, errors
from barewire.results.model import Model, model_of, read_model, shared_cores
from barewire.results.prediction import KERNELS, Prediction, Request
from barewire.results.prediction import predict as predictions_of

_RANKS_MAX = 1_000_000


# Options that describe what --against takes from its run.
_OF_THE_RUN = ("sizes", "variants", "order", "keys", "side", "dimensions", "scaling", "compute_us")


def predict(
    context: typer.Context,
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|MODEL…",
            help="runs of two ranks, or what `model --json` printed",
            autocompletion=complete.runs,
        ),
    ],
    kernel: Annotated[
        str,
        typer.Option(metavar="NAME,NAME", help=", ".join(KERNELS), autocompletion=complete.kernels),
    ],
    ranks: Annotated[str | None, options.RANK_COUNTS] = None,
    sizes: Annotated[str | None, options.SIZES] = None,
    variants: Annotated[str | None, options.VARIANTS] = None,
    order: Annotated[str, typer.Option(metavar="E,E", help="fft: transforms of 2^E elements")] = "20",
    keys: Annotated[int, typer.Option(min=1, metavar="N", help="radix: keys of each rank")] = 524288,
    side: Annotated[str, typer.Option(metavar="N,N", help="krylov: points along each dimension of the grid")] = "128",
    dimensions: Annotated[int, typer.Option(min=2, max=3, metavar="N", help="krylov: of the grid")] = 2,
    scaling: Annotated[
        Literal["strong", "weak"], typer.Option(help="krylov: --side of the whole grid, or of each rank's part")
    ] = "strong",
    compute_us: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="US",
            help="krylov: µs of computation of one iteration on each rank, instead of what a run measured",
        ),
    ] = None,
    cores: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="cores that all ranks share",
            show_default="a lab's, else one for each rank",
        ),
    ] = None,
    subject: Annotated[str | None, options.SUBJECT] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="predict what this run measured, and print the errors",
            autocompletion=complete.runs,
        ),
    ] = None,
    confidence: options.Confidence = 95,
    as_json: options.AsJson = False,
) -> None:
    """Predict times on more ranks from what two ranks measured: patterns, collectives by algorithm, kernels.

    Several runs are used together, such as one of ping-pongs and one of a kernel on one rank. --sizes are those of
    messages, blocks, halos, or a sort's buffers; by default those measured. Without --ranks there are two.
    """
    share = options.read_confidence(confidence)
    if compute_us is not None and not compute_us < inf:
        raise WrongUse(f"--compute-us must be a number of µs from 0 on, not {compute_us:g}")
    with progress_bar("fitting"):
        model = model_from(runs)
    kernels = _parse(kernel, KERNELS, "--kernel")
    if not model.functions:
        raise WrongUse(f"{runs[0]} has no messages between two ranks: give a run of `barewire mpi pingpong` too")
    if subject is not None and subject not in model.functions:
        raise unknown("subject", subject, model.functions)
    numbers = None if ranks is None else _whole(ranks, "-n")
    if numbers is not None and max(numbers) > _RANKS_MAX:
        raise WrongUse(f"-n is at most {_RANKS_MAX}: nothing that was measured here says anything about more ranks")
    if against is not None:
        if given := [name for name in _OF_THE_RUN if options.is_given(context, name)]:
            names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
            raise WrongUse(f"omit {names} with --against, which predicts what its run measured")
        _check(model, runs, against, kernels, subject, numbers, cores, share, as_json)
        return
    orders = _whole(order, "--order")
    grids = [Grid(cast(Literal[2, 3], dimensions), points, scaling == "weak") for points in _whole(side, "--side")]
    requests = list(_requests(model, kernels, numbers or (2,), sizes, variants, orders, keys, grids, compute_us))
    with progress_bar("predicting") as progress:
        predictions, unsaid = _predict(model, requests, subject, cores or model.cores, share, progress)
    if as_json:
        document = {"runs": list(model.runs), "cannot_say": unsaid}
        print_document("predict", {**document, "predictions": [each.to_json() for each in predictions]})
        return
    _print(prediction_tables(predictions), unsaid)


def _predict(
    model: Model,
    requests: Sequence[Request],
    subject: str | None,
    cores: int | None,
    confidence: float,
    progress: Progress,
) -> tuple[list[Prediction], list[str]]:
    predictions: list[Prediction] = []
    unsaid: dict[str, None] = {}
    asked = list(itertools.product(model.functions if subject is None else [subject], requests))
    for number, (name, request) in enumerate(asked):
        progress(number, len(asked), f"{request.kernel}, {request.ranks} ranks, {name}")
        try:
            predictions += predictions_of(model, name, request, cores, confidence)
        except CannotSay as reason:
            unsaid[f"{request.kernel}, {request.ranks} ranks, {name}: cannot say: {reason}"] = None
        except ValueError as error:
            raise WrongUse(str(error)) from error
    return predictions, list(unsaid)


def _check(
    model: Model,
    runs: Sequence[Path],
    against: Path,
    kernels: Sequence[str],
    subject: str | None,
    ranks: Sequence[int] | None,
    cores: int | None,
    confidence: float,
    as_json: bool,
) -> None:
    run = as_asked(recover_run(against), against, confidence)
    if run.id in model.runs:
        raise WrongUse(f"{against} is one of {', '.join(map(str, runs))}: a prediction is checked against another run")
    with progress_bar("predicting"):
        checked, unsaid = check(model, run, kernels, subject, ranks, cores or shared_cores(run))
    if not checked and not unsaid:
        known = ", ".join(model.functions) or "none"
        raise WrongUse(f"{against} has no {' or '.join(kernels)} of a subject of the model, which are {known}")
    summary = errors(checked)
    if as_json:
        document = {
            "runs": list(model.runs),
            "against": run.id,
            "cannot_say": unsaid,
            "predictions": [each.to_json() for each in checked],
            "errors": {each.kernel: {"mean": each.mean, "worst": each.worst, "count": each.count} for each in summary},
        }
        print_document("predict", document)
        return
    _print(checked_tables(checked, summary), unsaid)
    for each in summary:
        typer.echo(errors_text(each))


def _print(tables: Sequence[TextTable], unsaid: Sequence[str]) -> None:
    console = Console(highlight=False)
    for text_table in tables:
        for table in rich_tables(text_table, console.width):
            console.print(table)
    for sentence in unsaid:
        console.print(escape(sentence), soft_wrap=True)


def model_from(paths: Sequence[Path]) -> Model:
    """The model of runs, or of one document that `model --json` printed; WrongUse for several documents."""
    files = [path for path in paths if path.is_file()]
    if files and len(paths) > 1:
        raise WrongUse(f"{files[0]} is a model: give it alone, or runs")
    return read_model(files[0]) if files else model_of([recover_run(path) for path in paths])


def _requests(
    model: Model,
    kernels: Sequence[str],
    ranks: Sequence[int],
    sizes: str | None,
    variants: str | None,
    orders: Sequence[int],
    keys: int,
    grids: Sequence[Grid],
    compute_us: float | None,
) -> Iterator[Request]:
    given = None if sizes is None else expand_sizes(sizes, 0)
    latencies = [functions["latency"].times for functions in model.functions.values() if "latency" in functions]
    measured = sorted({size for times in latencies for size in times.sizes})
    for kernel, count in itertools.product(kernels, ranks):
        known = KERNEL_VARIANTS.get(kernel)
        chosen = None if variants is None or known is None else _parse(variants, known, f"--variants of {kernel}")
        if kernel == "fft":
            yield from (Request(kernel, count, 0, order, chosen) for order in orders)
        elif kernel == "radix":
            yield from (Request(kernel, count, size, keys, chosen) for size in given or (16384,))
        elif kernel == "krylov":
            yield from (Request(kernel, count, 0, grid.side, chosen, grid.parameter, compute_us) for grid in grids)
        else:
            # A barrier has no size.
            yield from (Request(kernel, count, size) for size in ((0,) if kernel == "barrier" else given or measured))


def _parse(text: str, known: Sequence[str], option: str) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in chosen:
        if name not in known:
            raise unknown(option, name, known)
    return chosen


def _whole(text: str, option: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(options.is_whole(part) and int(part) > 0 for part in parts):
        raise WrongUse(f"{option} takes comma-separated numbers from 1, not '{text}'")
    return tuple(dict.fromkeys(int(part) for part in parts))
