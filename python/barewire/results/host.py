# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a host's run says: its measures, its crossovers, and both beside a stored reference."""

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
from barewire.stats import crossover, median_interval

HOST_SCHEMA = "barewire-host/1"
STORED_REFERENCE = Path(__file__).with_name("host_reference.json")
HOST_TEST_ORDER = ("memory", "syscall", "switch", "wakeup", "file", "send")


@dataclass(frozen=True)
class Measure:
    """One number of a host; `block_bytes` is None where no size applies. Values in `unit`: ns, or MB/s (10^6).

    `times_reference` says how many times better than the reference it is: its time divided by ours, or our rate by
    its; None without one, or where the reference lacks this measure.
    """

    name: str
    block_bytes: int | None
    unit: str
    median: float
    ci95: tuple[float, float] | None
    min: float
    p99: float
    launches: int
    samples: int
    times_reference: float | None = None


@dataclass(frozen=True)
class Crossover:
    """The size up to which `first` is cheaper than `second`: the median of the launches' own, with its interval.

    An end that equals `smallest_bytes` or `largest_bytes` stands for all that lies beyond it.
    """

    name: str
    first: str
    second: str
    bytes: float
    ci95: tuple[float, float] | None
    smallest_bytes: int
    largest_bytes: int
    launches: int


@dataclass(frozen=True)
class Reference:
    """A stored document of another run: where it was measured, and its measures by name and block."""

    source: str
    run: str
    environment: dict[str, Any]
    medians: dict[tuple[str, int | None], float]


# Name, test, the first way, the second.
_CROSSOVERS = (
    ("copy crossover", "send", "copied", "gathered"),
    ("copy crossover, message not in the cache", "send", "copied/cold", "gathered/cold"),
    ("read against map", "file", "read", "map"),
)


def host_measures(run: Run, reference: Reference | None = None) -> list[Measure]:
    """All measures of `run`, in the order of `HOST_TEST_ORDER`; a series without a usable sample is none."""
    order = {test: place for place, test in enumerate(HOST_TEST_ORDER)}
    series = sorted(run.series, key=lambda one: (order.get(one.test, len(order)), one.subject, one.message_bytes))
    return [_measure(one, reference) for one in series if one.median is not None]


def host_crossovers(frame: pl.DataFrame) -> list[Crossover]:
    """Of the samples of a host's run, columns of `SAMPLE_SCHEMA`: one crossover for each launch that has both ways."""
    found = []
    used = frame.filter((pl.col("phase") == "measure") & (pl.col("value") > 0))
    for name, test, first, second in _CROSSOVERS:
        of_test = used.filter((pl.col("test") == test) & pl.col("subject").is_in([first, second]))
        sizes: set[int] = set()
        values = []
        for (_,), launch in of_test.partition_by("launch", as_dict=True, maintain_order=True).items():
            costs = _costs(launch)
            common = sorted({size for way, size in costs if (first, size) in costs and (second, size) in costs})
            if len(common) > 1:
                sizes |= {*common}
                ways = ([costs[way, size] for size in common] for way in (first, second))
                values.append(crossover(common, *ways))
        if values:
            median, ends = float(np.median(values)), (min(sizes), max(sizes))
            found.append(Crossover(name, first, second, median, median_interval(values), *ends, len(values)))
    return found


def host_document(run: Run, frame: pl.DataFrame, reference: Reference | None = None) -> dict[str, Any]:
    """The run as one document of schema `barewire-host/1`; another run can take it as its reference."""
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
        "measures": [_plain(asdict(one)) for one in host_measures(run, reference)],
        "crossovers": [_plain(asdict(one)) for one in host_crossovers(frame)],
    }


def read_reference(path: Path) -> Reference:
    """A document that `barewire bench host --json` printed; WrongUse when it is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WrongUse(f"cannot read the reference {path}: {error.strerror}") from error
    except ValueError as error:
        raise WrongUse(f"the reference {path} is not JSON: {error}") from error
    if not isinstance(data, dict) or data.get("schema") != HOST_SCHEMA:
        raise WrongUse(f"the reference {path} is no {HOST_SCHEMA}: `barewire bench host --json` prints one")
    try:
        medians = {(one["name"], one["block_bytes"]): float(one["median"]) for one in data["measures"]}
        return Reference(str(path.name), data["run"], dict(data["environment"]), medians)
    except (KeyError, TypeError, ValueError) as error:
        raise WrongUse(f"the reference {path} is damaged: {error}") from error


def _measure(one: Series, reference: Reference | None) -> Measure:
    assert one.median is not None and one.min is not None and one.p99 is not None
    name, block = f"{one.test}/{one.subject}", one.message_bytes or None
    stored = reference.medians.get((name, block)) if reference is not None else None
    times = None
    if stored is not None and stored > 0:
        times = stored / one.median if one.unit in TIME_UNITS else one.median / stored
    return Measure(name, block, one.unit, one.median, one.ci95, one.min, one.p99, one.launches, one.samples, times)


def _costs(launch: pl.DataFrame) -> dict[tuple[str, int], float]:
    """By subject and size, what one launch took: a time, or the inverse of a rate."""
    medians = launch.group_by("subject", "message_bytes").agg(pl.col("value").median(), pl.col("unit").first())
    return {
        (str(subject), int(size)): float(value) if unit in TIME_UNITS else 1 / float(value)
        for subject, size, value, unit in medians.iter_rows()
    }


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in data.items()}
