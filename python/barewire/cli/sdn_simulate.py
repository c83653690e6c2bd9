# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire sdn simulate`: simulates strategies on networks that need not exist."""

import re
from dataclasses import replace
from enum import StrEnum
from math import inf
from typing import Annotated

import typer
from rich.box import MARKDOWN, SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from barewire.cli import options
from barewire.cli.output import print_document
from barewire.cli.progress import progress_bar
from barewire.errors import WrongUse
from barewire.report.words import decimals, percent
from barewire.sdn.published import PUBLISHED_COUNTS, is_published
from barewire.sdn.simulate import AT_ONCE, RingPlan, Series, Setup, Shape, TrainingPlan, experiment, simulations
from barewire.sdn.simulate.placement import workers
from barewire.sdn.strategies import named, names
from barewire.topology import Network, parse, with_rate
from barewire.topology.failures import failed
from barewire.topology.rate import check_rate, format_rate, parse_rate

ALL = "all"
# A simulation takes a step for each two seconds of its time at least, so what takes longer would run for days.
_OVERHEAD_MS_MAX, _MESSAGE_S_MAX, _VOLUME_S_MAX = 60_000, 3600, 1_000_000
# Table width outside a terminal: no column of a document may be truncated.
_DOCUMENT_COLUMNS = 200


class WorkloadName(StrEnum):
    """The workload to simulate."""

    ring = "ring"
    shuffle = "shuffle"
    both = "both"
    permutation = "permutation"
    allreduce = "allreduce"
    tree = "tree"
    moe = "moe"
    pipeline = "pipeline"
    mixed = "mixed"
    shuffles = "shuffles"


# Jobs on separate hosts, where there are several.
JOBS = {"both": 2, "mixed": 4}
WORKLOADS_HELP = (
    "what communicates; both: rings beside a shuffle; allreduce, tree, moe, pipeline: a training job; mixed: two "
    "all-reduces, a mixture of experts and a shuffle at once; shuffles: four shuffles at once"
)


class Transport(StrEnum):
    """The transport of the rings' messages."""

    tcp = "tcp"
    llc = "llc"


def simulate(
    topology: Annotated[str, options.TOPOLOGY] = "fat-tree:4",
    strategy: Annotated[list[str], options.STRATEGIES] = [ALL],  # noqa: B006
    workload: Annotated[WorkloadName, typer.Option(help=WORKLOADS_HELP)] = WorkloadName.ring,
    host_counts: options.HostCounts = None,
    fail: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT",
            help="what has failed: a switch (s5), the link at a port (s13:3), a share of the links between switches "
            "(2%); may be repeated, several with commas",
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(max=options.COUNT_MAX, metavar="N", help="number of different rings, jobs or permutations")
    ] = 5,
    rate: Annotated[str, options.SWITCH_RATE] = "1gbit",
    message_bytes: Annotated[int, options.MESSAGE_BYTES] = 2_000_000,
    overhead_ms: Annotated[
        float,
        typer.Option(metavar="MS", help="additional time of a message at its sender; 10 ms fits the published stp"),
    ] = 10.0,
    transport: Annotated[Transport, typer.Option(help="tcp: a connection per pair of ranks")] = Transport.tcp,
    shape: Annotated[str, options.SHAPE] = "128x4",
    volume_bytes: Annotated[int, options.VOLUME_BYTES] = 4_000_000_000,
    copies: Annotated[int, options.COPIES] = 5,
    iterations: Annotated[int, options.ITERATIONS] = 30,
    compute_share: Annotated[float, options.COMPUTE_SHARE] = 0.25,
    announce: Annotated[bool, options.ANNOUNCE] = True,
    confidence: options.Confidence = 95,
    form: Annotated[options.TableFormat, typer.Option("--format", help="form of the table")] = (
        options.TableFormat.table
    ),
    as_json: options.AsJson = False,
) -> None:
    """Simulate strategies on a network: max-min fair flows, with the controller's own plug-ins."""
    strategies = list(options.flatten(strategy))
    if not strategies:
        raise WrongUse(f"--strategy is empty; there are: {', '.join(names())}")
    share = options.read_confidence(confidence)
    rate_bit_s = parse_rate(rate)
    check_rate(rate_bit_s)
    if rate_bit_s is None:
        raise WrongUse("--rate: a simulation needs a rate, such as 1gbit")
    if not 0 <= overhead_ms <= _OVERHEAD_MS_MAX:
        raise WrongUse(f"--overhead-ms must be 0 or more, at most {_OVERHEAD_MS_MAX}, not {overhead_ms:g}")
    check_sizes(message_bytes, volume_bytes, rate_bit_s)
    mappers, reducers = parse_shape(shape)
    network = with_rate(parse(topology), rate_bit_s)
    if fail:
        network = failed(network, options.flatten(fail))
    left_out: list[str] = []
    if strategies == [ALL]:
        strategies, left_out = able(network)
    setup = Setup(
        network,
        replace(RingPlan(), message_bytes=message_bytes, overhead_s=overhead_ms / 1e3, transport=transport.value),
        Shape(mappers, reducers, volume_bytes, copies),
        TrainingPlan(message_bytes, iterations, compute_share),
        announce=announce,
    )
    counts = counts_of(host_counts, network, jobs=JOBS.get(workload.value, 1))
    total = simulations(workload.value, len(strategies), len(counts), seeds)
    done = 0
    with progress_bar() as show:

        def advance(what: str) -> None:
            nonlocal done
            show(done, total, what)
            done += 1

        simulated = experiment(setup, workload.value, strategies, counts, seeds, advance)
    series = [replace(each, confidence=share) for each in simulated]
    if as_json:
        document = {"topology": topology, "failed": list(options.flatten(fail or [])), "rate_bit_s": rate_bit_s}
        document |= {"host_counts": counts, "seeds": seeds, "confidence": share, "left_out": left_out}
        print_document("sdn simulate", {**document, "series": [part.to_json() for part in series]})
    else:
        _print(series, at_once=workload.value in AT_ONCE, markdown=form is options.TableFormat.markdown)
        if left_out:
            typer.echo(f"Left out, because the network is too large for them: {', '.join(left_out)}.")
        if host_counts is None:
            used = ", ".join(map(str, counts))
            typer.echo(f"Numbers of hosts, of {len(workers(network))}: {used}; --host-counts sets others.")


def check_sizes(message_bytes: int, volume_bytes: int, rate_bit_s: int) -> None:
    """WrongUse if links of this rate would take hours for a message, or weeks for a shuffle."""
    _check_time("--message-bytes", message_bytes, rate_bit_s, _MESSAGE_S_MAX)
    _check_time("--volume-bytes", volume_bytes, rate_bit_s, _VOLUME_S_MAX)


def _check_time(option: str, size_bytes: int, rate_bit_s: int, most_s: int) -> None:
    if 8 * size_bytes > most_s * rate_bit_s:
        raise WrongUse(
            f"{option}: a link of {format_rate(rate_bit_s)} takes more than {most_s} s for {size_bytes} bytes"
        )


def able(network: Network) -> tuple[list[str], list[str]]:
    """Return all strategies that can place flows on a network of this size, and those that cannot."""
    able_ones = [name for name in names() if len(network.switches) <= getattr(named(name), "switches_max", inf)]
    return able_ones, [name for name in names() if name not in able_ones]


def counts_of(text: str | None, network: Network, *, jobs: int = 1) -> list[int]:
    """Parse `4,8,16`; without a text the published numbers on the published network, else all hosts.

    Several jobs on separate hosts need a multiple of their number, and two hosts each.
    """
    if text is not None:
        return parse_counts(text)
    if is_published(network):
        return [count for count in PUBLISHED_COUNTS if count >= 2 * jobs]
    count = len(workers(network))
    return [count - count % jobs]


def parse_counts(text: str) -> list[int]:
    """Parse `4,8,16`."""
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,6}", word) for word in words):
        raise WrongUse(f"--host-counts takes comma-separated numbers, as in 4,8,16, not '{text}'")
    return [int(word) for word in words]


def parse_shape(text: str) -> tuple[int, int]:
    """Parse `128x4`: mappers and reducers."""
    match = re.fullmatch(r"([0-9]{1,6})[x×]([0-9]{1,6})", text)
    if match is None:
        raise WrongUse(f"--shape takes mappers x reducers, as in 128x4, not '{text}'")
    return int(match[1]), int(match[2])


def _print(series: list[Series], *, at_once: bool, markdown: bool) -> None:
    console = Console(highlight=False, width=_DOCUMENT_COLUMNS if markdown else None)
    for name, unit in dict.fromkeys((each.quantity, each.unit) for each in series):
        rows = [_row(each) for each in series if each.quantity == name]
        headings = [
            "strategy",
            "hosts",
            f"{name}, {unit}",
            f"± {percent(series[0].confidence)}",
            "of it alone" if at_once else "of a star",
            "of bound",
        ]
        table = Table(box=MARKDOWN if markdown else SIMPLE_HEAD)
        for number, heading in enumerate([*headings, "published"]):
            if any(row[number] for row in rows):
                table.add_column(heading, justify="right" if number else "left", no_wrap=not number)
            else:
                for row in rows:
                    row[number] = None
        for row in rows:
            table.add_row(*(cell for cell in row if cell is not None))
        console.print(table)
    legend = "Means over seeds; fractions are geometric means of pairs with equal seeds."
    if not at_once:
        legend += " The star has the same hosts and cannot block; the bound is an upper limit for any routing."
    if any(each.published for each in series):
        legend += " Published values are of 2 MB on links of 1 Gb/s."
    console.print(f"[dim]{legend}[/]")


def _row(series: Series) -> list[str | None]:
    digits = decimals(series.value)
    fractions = [series.fraction_of(base) for base in (series.reference, series.bound)]
    return [
        series.strategy,
        str(series.hosts),
        f"{series.value:.{digits}f}",
        f"{series.interval[1] - series.value:.{digits}f}" if series.interval else "",
        *("" if fraction is None else f"{fraction:.2f}" for fraction in fractions),
        f"{series.published:.2f}" if series.published else "",
    ]
