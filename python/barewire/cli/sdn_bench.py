# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire sdn bench`: measures strategies on real switches."""

import json
import secrets
import sys
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from barewire.cli.measuring import EFFORT, AsJson, Output, Seed, report_kept_samples
from barewire.cli.progress import progress_bar
from barewire.cli.sdn_simulate import parse_counts, parse_shape
from barewire.errors import WrongUse
from barewire.sdn.simulate import RingPlan, Shape
from barewire.topology import parse, with_rate
from barewire.topology.rate import check_rate, parse_rate

DEFAULT_STRATEGIES = "stp,traffic,ecmp-published,isolated,least-loaded,planned"
_JOBS = "The jobs"


class ExperimentName(StrEnum):
    """The workload to measure."""

    ring = "ring"
    shuffle = "shuffle"
    both = "both"


class FabricName(StrEnum):
    """The fabric of the rings' messages."""

    tcp = "tcp"
    barewire = "barewire"


def bench(
    workload: Annotated[
        ExperimentName, typer.Option(help="rings of MPI, a shuffle, or both: each alone and beside the other")
    ] = ExperimentName.ring,
    strategies: Annotated[
        str,
        typer.Option(
            help="comma-separated, parameters as in isolated:seconds=30; mpi=planned+bigdata=ecmp gives each "
            "profile its own"
        ),
    ] = DEFAULT_STRATEGIES,
    hosts: Annotated[
        str, typer.Option(help="numbers of hosts, comma-separated; in the published placement")
    ] = "4,8,16",
    topology: Annotated[str, typer.Option(help="fat-tree:K or FILE.toml")] = "fat-tree:4",
    rate: Annotated[
        str, typer.Option(help="each link's rate; two cores support at most 2500kbit for 16 hosts")
    ] = "2500kbit",
    fabric: Annotated[FabricName, typer.Option(help="fabric of the rings' messages", rich_help_panel=_JOBS)] = (
        FabricName.tcp
    ),
    library: Annotated[str | None, typer.Option(help="MPI library; default: Open MPI", rich_help_panel=_JOBS)] = (None),
    message: Annotated[
        int | None,
        typer.Option(
            min=1, help="bytes of a ring's message; default: what a link carries in 160 ms", rich_help_panel=_JOBS
        ),
    ] = None,
    rings: Annotated[int, typer.Option(min=1, help="random rings", rich_help_panel=_JOBS)] = 5,
    measurements: Annotated[
        int, typer.Option(min=1, help="measurements of each ring, of which the best counts", rich_help_panel=_JOBS)
    ] = 2,
    exchanges: Annotated[
        int, typer.Option(min=1, help="exchanges per measurement, which is their mean", rich_help_panel=_JOBS)
    ] = 1,
    shape: Annotated[str, typer.Option(help="mappers x reducers of a shuffle", rich_help_panel=_JOBS)] = "128x4",
    volume: Annotated[
        int | None,
        typer.Option(min=1, help="bytes of a shuffle; default: in proportion to 4 GB at 1 Gb/s", rich_help_panel=_JOBS),
    ] = None,
    copies: Annotated[int, typer.Option(min=1, help="parts a reducer fetches at a time", rich_help_panel=_JOBS)] = 5,
    blocks: Annotated[
        int, typer.Option(min=1, help="repetitions of all strategies, each with its own seeds", rich_help_panel=EFFORT)
    ] = 6,
    patience: Annotated[
        float, typer.Option(help="seconds without output until a launch counts as hung", rich_help_panel=EFFORT)
    ] = 120,
    seed: Seed = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Measure strategies on Open vSwitch, in blocks of shuffled order, beside a non-blocking star."""
    # Imported here: loading everything that measures takes half a second, which other commands need not wait for.
    from barewire.report.sdn import print_sdn
    from barewire.results import samples
    from barewire.results.sdn import summarised
    from barewire.sdn.bench.experiment import measure, prepared
    from barewire.sdn.bench.plan import BenchPlan, message_bytes_of, volume_bytes_of

    rate_bit_s = parse_rate(rate)
    check_rate(rate_bit_s)
    if rate_bit_s is None:
        raise WrongUse("--rate: strategies differ where links have a rate, such as 2500kbit")
    mappers, reducers = parse_shape(shape)
    plan = BenchPlan(
        experiment=workload.value,
        topology=topology,
        network=with_rate(parse(topology), rate_bit_s),
        rate_bit_s=rate_bit_s,
        policies=tuple(strategy.strip() for strategy in strategies.split(",") if strategy.strip()),
        counts=tuple(dict.fromkeys(parse_counts(hosts))),
        blocks=blocks,
        seed=secrets.randbits(32) if seed is None else seed,
        fabric=fabric.value,
        ring=replace(
            RingPlan(),
            message_bytes=message or message_bytes_of(rate_bit_s),
            rings=rings,
            measurements=measurements,
            exchanges=exchanges,
        ),
        shape=Shape(mappers, reducers, volume or volume_bytes_of(rate_bit_s), copies),
        patience_s=patience,
    )
    campaign = prepared(plan, library)
    directory = output or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-sdn-{workload.value}"
    with progress_bar(quiet=as_json) as progress, report_kept_samples(directory):
        run = measure(campaign, directory, command=sys.argv, progress=progress)
    outcome = summarised(run, samples(directory))
    if as_json:
        typer.echo(json.dumps({"directory": str(directory), **run.to_json(), **outcome.to_json()}, allow_nan=False))
        return
    print_sdn(Console(highlight=False), run, outcome)
    typer.echo(f"every sample is in {directory}; `barewire report {directory}` makes a page of it")
