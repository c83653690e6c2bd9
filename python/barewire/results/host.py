# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The results of a host's run: measures, crossovers, and their comparison with a stored reference."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from barewire.errors import WrongUse
from barewire.results.quantities import TIME_UNITS
from barewire.results.run import Run, Series
from barewire.stats.confidence import CONFIDENCE, with_interval_names
from barewire.stats.crossover import crossover
from barewire.stats.intervals import median_interval

HOST_SCHEMA = "barewire-host/1"
STORED_REFERENCE = Path(__file__).with_name("host_reference.json")
HOST_TEST_ORDER = (
    *(
        "memory",
        "load",
        "syscall",
        "process",
        "switch",
        "context",
        "wakeup",
        "distance",
        "transfer",
        "filesystem",
        "file",
        "send",
    ),
)


@dataclass(frozen=True)
class Measure:
    """One number of a host; `block_bytes` is None if no size applies. Values in `unit`: ns, or MB/s (10^6).

    `times_reference` is the factor by which it is better than the reference: the reference's time divided by ours, or
    our rate divided by the reference's. None if the reference lacks this measure.
    """

    name: str
    block_bytes: int | None
    unit: str
    median: float
    interval: tuple[float, float] | None
    min: float
    p99: float
    launches: int
    samples: int
    times_reference: float | None = None


@dataclass(frozen=True)
class Crossover:
    """The size up to which `first` is cheaper than `second`: median of the launches' crossovers, with its interval.

    A bound that equals `smallest_bytes` or `largest_bytes` is open: the crossover may lie beyond it.
    """

    name: str
    first: str
    second: str
    bytes: float
    interval: tuple[float, float] | None
    smallest_bytes: int
    largest_bytes: int
    launches: int


@dataclass(frozen=True)
class Reference:
    """A stored document of another run: its origin, and its measures by name and block."""

    source: str
    run: str
    environment: dict[str, Any]
    medians: dict[tuple[str, int | None], float]


# Name, test, first method, second method.
_CROSSOVERS = (
    ("copy crossover", "send", "copied", "gathered"),
    ("copy crossover, message not in the cache", "send", "copied/cold", "gathered/cold"),
    ("read against map", "file", "read", "map"),
)


def host_measures(run: Run, reference: Reference | None = None) -> list[Measure]:
    """Return all measures of `run`, in the order of `HOST_TEST_ORDER`; series without a usable sample have none."""
    order = {test: index for index, test in enumerate(HOST_TEST_ORDER)}
    series = sorted(run.series, key=lambda each: (order.get(each.test, len(order)), each.subject, each.message_bytes))
    return [_measure(each, reference) for each in series if each.median is not None]


def host_crossovers(frame: pl.DataFrame, confidence: float = CONFIDENCE) -> list[Crossover]:
    """Return a host's crossovers from its samples (columns of `SAMPLE_SCHEMA`), one per launch with both methods.

    Intervals have this confidence, a share of 1.
    """
    crossovers = []
    used = frame.filter((pl.col("phase") == "measure") & (pl.col("value") > 0))
    for name, test, first, second in _CROSSOVERS:
        selected = used.filter((pl.col("test") == test) & pl.col("subject").is_in([first, second]))
        sizes: set[int] = set()
        values = []
        for (_,), launch in selected.partition_by("launch", as_dict=True, maintain_order=True).items():
            costs = _costs(launch)
            common = sorted({size for method, size in costs if (first, size) in costs and (second, size) in costs})
            if len(common) > 1:
                sizes |= {*common}
                curves = ([costs[method, size] for size in common] for method in (first, second))
                values.append(crossover(common, *curves))
        if values:
            median, ends = float(np.median(values)), (min(sizes), max(sizes))
            interval = median_interval(values, confidence)
            crossovers.append(Crossover(name, first, second, median, interval, *ends, len(values)))
    return crossovers


def host_document(run: Run, frame: pl.DataFrame, reference: Reference | None = None) -> dict[str, Any]:
    """Return the run as a document of schema `barewire-host/1`, which other runs may use as their reference."""
    return {
        "schema": HOST_SCHEMA,
        "run": run.id,
        "created": run.created,
        "complete": run.complete,
        "stopped_by": run.stopped_by,
        "seed": run.seed,
        "parameters": run.parameters,
        "environment": run.environment,
        "warnings": list(run.warnings),
        "reference": None if reference is None else {"source": reference.source, "run": reference.run},
        "measures": [
            with_interval_names(_plain(asdict(each)), run.confidence) for each in host_measures(run, reference)
        ],
        "crossovers": [
            with_interval_names(_plain(asdict(each)), run.confidence) for each in host_crossovers(frame, run.confidence)
        ],
    }


def read_reference(path: Path) -> Reference:
    """Read a document of `barewire bench host --json`; WrongUse if it is invalid."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WrongUse(f"cannot read the reference {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise WrongUse(f"the reference {path} is not JSON: {error}") from error
    if not isinstance(data, dict) or data.get("schema") != HOST_SCHEMA:
        raise WrongUse(f"the reference {path} is not a {HOST_SCHEMA} document: `barewire bench host --json` prints one")
    try:
        medians = {(measure["name"], measure["block_bytes"]): float(measure["median"]) for measure in data["measures"]}
        return Reference(str(path.name), data["run"], dict(data["environment"]), medians)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise WrongUse(f"the reference {path} is damaged: {error}") from error


def _measure(series: Series, reference: Reference | None) -> Measure:
    assert series.median is not None and series.min is not None and series.p99 is not None
    name, block = f"{series.test}/{series.subject}", series.message_bytes or None
    stored = reference.medians.get((name, block)) if reference is not None else None
    times = None
    if stored is not None and stored > 0:
        times = stored / series.median if series.unit in TIME_UNITS else series.median / stored
    return Measure(
        name,
        block,
        series.unit,
        series.median,
        series.interval,
        series.min,
        series.p99,
        series.launches,
        series.samples,
        times,
    )


def _costs(launch: pl.DataFrame) -> dict[tuple[str, int], float]:
    """Return a launch's cost by subject and size: a time, or the inverse of a rate."""
    medians = launch.group_by("subject", "message_bytes").agg(pl.col("value").median(), pl.col("unit").first())
    return {
        (str(subject), int(size)): float(value) if unit in TIME_UNITS else 1 / float(value)
        for subject, size, value, unit in medians.iter_rows()
    }


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in data.items()}
