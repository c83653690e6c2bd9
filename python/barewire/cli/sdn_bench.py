# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire sdn bench`: measures strategies on real switches."""

import secrets
import sys
from contextlib import ExitStack
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console

from barewire.cli import complete, options
from barewire.cli.directories import results_directory
from barewire.cli.output import print_document
from barewire.cli.progress import progress_bar
from barewire.cli.sdn_simulate import JOBS, check_sizes, counts_of, parse_shape
from barewire.errors import WrongUse
from barewire.sdn.simulate import RingPlan, Shape, TrainingPlan
from barewire.sdn.simulate.placement import workers
from barewire.topology import parse, with_rate
from barewire.topology.rate import check_rate, parse_rate

DEFAULT_STRATEGIES = ("stp", "traffic", "ecmp-published", "isolated", "least-loaded", "planned")
LATENCY_STRATEGIES = ("stp", "least-loaded", "planned")
REPLAYED_STRATEGIES = ("ecmp", "least-loaded", "planned")
_JOBS = "The jobs"
# By workload: of rings and shuffles, and of latencies, whose exchanges are short but must be many for a percentile.
_EFFORTS = {"rings": (5, 2), "measurements": (2, 10)}


def _defaults(name: str) -> str:
    usual, of_latency = _EFFORTS[name]
    return f"{usual}; latency: {of_latency}"


class ExperimentName(StrEnum):
    """The workload to measure."""

    ring = "ring"
    shuffle = "shuffle"
    both = "both"
    latency = "latency"
    allreduce = "allreduce"
    tree = "tree"
    moe = "moe"
    pipeline = "pipeline"
    mixed = "mixed"
    shuffles = "shuffles"


class FabricName(StrEnum):
    """The fabric of the rings' messages."""

    tcp = "tcp"
    barewire = "barewire"


class ShufflerName(StrEnum):
    """What shuffles."""

    replay = "replay"
    dask = "dask"
    spark = "spark"


def bench(
    workload: Annotated[
        ExperimentName,
        typer.Option(
            help="what communicates; both: rings and a shuffle, each alone and beside the other; latency: rings of 8 "
            "bytes, alone and beside a shuffle; allreduce, tree, moe, pipeline: a training job; mixed: two "
            "all-reduces, a mixture of experts and a shuffle, alone and at once; shuffles: four, alone and at once"
        ),
    ] = ExperimentName.ring,
    strategy: Annotated[list[str] | None, options.BENCH_STRATEGIES] = None,
    host_counts: options.HostCounts = None,
    topology: Annotated[str, options.TOPOLOGY] = "fat-tree:4",
    rate: Annotated[str, options.SWITCH_RATE] = "2500kbit",
    fabric: Annotated[FabricName, typer.Option(help="fabric of the rings' messages", rich_help_panel=_JOBS)] = (
        FabricName.tcp
    ),
    library: Annotated[
        str | None,
        typer.Option(
            metavar="LIBRARY",
            help="MPI library by name or folder",
            show_default="Open MPI",
            rich_help_panel=_JOBS,
            autocompletion=complete.library,
        ),
    ] = None,
    message_bytes: Annotated[int | None, options.MESSAGE_BYTES] = None,
    rings: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="random rings", show_default=_defaults("rings"), rich_help_panel=_JOBS),
    ] = None,
    measurements: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="measurements of each ring, of which the best counts; for latencies all",
            show_default=_defaults("measurements"),
            rich_help_panel=_JOBS,
        ),
    ] = None,
    exchanges: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="exchanges per measurement, which is their mean", rich_help_panel=_JOBS),
    ] = 1,
    shape: Annotated[str, options.SHAPE] = "128x4",
    volume_bytes: Annotated[int | None, options.VOLUME_BYTES] = None,
    copies: Annotated[int, options.COPIES] = 5,
    iterations: Annotated[int, options.ITERATIONS] = 3,
    compute_share: Annotated[float, options.COMPUTE_SHARE] = 0.25,
    shuffler: Annotated[
        ShufflerName,
        typer.Option(help="what shuffles: a replayed job, or real Dask or Spark", rich_help_panel=_JOBS),
    ] = ShufflerName.replay,
    announce: Annotated[bool, options.ANNOUNCE] = True,
    blocks: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="repetitions of all strategies, each with its own seeds",
            rich_help_panel=options.EFFORT,
        ),
    ] = 6,
    confidence: options.Confidence = 95,
    patience: options.Patience = 120,
    ui: Annotated[
        str | None,
        typer.Option(
            "--ui",
            metavar="ADDRESS:PORT",
            help="serve a live page of each launch's network and of the progress, with the token of `sdn start`",
        ),
    ] = None,
    seed: options.Seed = None,
    output: options.Output = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure strategies on Open vSwitch, in blocks of shuffled order, beside a non-blocking star.

    STRATEGY/sliced makes each of several jobs a tenant with an equal share of every link.

    Whether a strategy is better is said from 6 blocks on, by tests, and if no launch saturated the machine.

    By default a message of a ring or a training job is what a link carries in 160 ms, and a shuffle is in proportion to
    4 GB at 1 Gb/s. Two cores support at most 2500kbit for 16 hosts.
    """
    # Imported here: loading everything that measures takes half a second, which other commands need not wait for.
    from barewire.report.sdn import print_sdn
    from barewire.results.confidence import at_confidence
    from barewire.results.sdn import summarised
    from barewire.results.store import samples
    from barewire.sdn.bench.experiment import measure, prepared
    from barewire.sdn.bench.plan import BenchPlan, message_bytes_of, volume_bytes_of
    from barewire.sdn.bench.relay import Relay
    from barewire.sdn.token import default_token_file
    from barewire.sdn.ui.server import PAGE

    share = options.read_confidence(confidence)
    rate_bit_s = parse_rate(rate)
    check_rate(rate_bit_s)
    if rate_bit_s is None:
        raise WrongUse("--rate: strategies differ where links have a rate, such as 2500kbit")
    mappers, reducers = parse_shape(shape)
    network = with_rate(parse(topology), rate_bit_s)
    message_size = message_bytes or message_bytes_of(rate_bit_s)
    volume_size = volume_bytes or volume_bytes_of(rate_bit_s)
    check_sizes(message_size, volume_size, rate_bit_s)
    of_latency = workload is ExperimentName.latency
    if host_counts is None and of_latency:
        counts = [len(workers(network)) // 2 * 2]
    else:
        counts = counts_of(host_counts, network, jobs=JOBS.get(workload.value, 1))
    plan = BenchPlan(
        experiment=workload.value,
        topology=topology,
        network=network,
        rate_bit_s=rate_bit_s,
        policies=options.flatten(strategy or list(_strategies(workload))),
        counts=tuple(dict.fromkeys(counts)),
        blocks=blocks,
        seed=secrets.randbits(32) if seed is None else seed,
        fabric=fabric.value,
        training=TrainingPlan(message_size, iterations, compute_share),
        ring=replace(
            RingPlan(),
            message_bytes=message_size,
            rings=rings or _EFFORTS["rings"][of_latency],
            measurements=measurements or _EFFORTS["measurements"][of_latency],
            exchanges=exchanges,
        ),
        shape=Shape(mappers, reducers, volume_size, copies),
        patience_s=patience,
        shuffler=shuffler.value,
        announce=announce,
        confidence=share,
    )
    relay = None if ui is None else Relay(ui, default_token_file())
    campaign = prepared(plan, library)
    with ExitStack() as stack:
        note = None
        if relay is not None:
            stack.enter_context(relay.running())
            typer.echo(f"http://{ui}{PAGE} asks for the token in {default_token_file()}", err=True)
            campaign, note = replace(campaign, relay=relay), relay.note
        directory = stack.enter_context(results_directory(output, f"sdn-{workload.value}"))
        show = stack.enter_context(progress_bar())

        def progress(done: int, total: int, text: str) -> None:
            show(done, total, text)
            if note is not None:
                note(done, total, text)

        run = measure(campaign, directory, command=sys.argv, progress=progress)
    frame = samples(directory)
    run = at_confidence(run, frame, share)
    outcome = summarised(run, frame)
    if as_json:
        print_document("sdn bench", {"directory": str(directory), **run.to_json(), **outcome.to_json()})
        return
    print_sdn(Console(highlight=False), run, outcome)
    typer.echo(f"every sample is in {directory}; `barewire report {directory}` makes a page of it")


def _strategies(workload: ExperimentName) -> tuple[str, ...]:
    """The strategies that are measured unless others are named."""
    match workload:
        case ExperimentName.latency:
            return LATENCY_STRATEGIES
        case ExperimentName.ring | ExperimentName.shuffle | ExperimentName.both:
            return DEFAULT_STRATEGIES
    return REPLAYED_STRATEGIES
