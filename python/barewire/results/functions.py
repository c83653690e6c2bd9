# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Times as functions of the message size, gathered from the series of a run: what models are fitted to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from barewire.errors import WrongUse
from barewire.models.times import CannotSay, Times
from barewire.results.quantities import US_OF
from barewire.results.run import Run, Series
from barewire.stats.confidence import CONFIDENCE

_RATE = "Mbit/s"
# Between two ranks, or two sides of the probe, which has no ranks.
_TWO = (0, 2)


class _Source(NamedTuple):
    """Where a function may come from, best first; `quantity` is only checked if it is not empty."""

    test: str
    variants: tuple[str, ...]
    quantity: str = ""
    # Messages for which a rate counts the bytes.
    messages: int = 1


# The functions by name: latency EEL(m), exchanged, both_ways, gap g(m), send Os(m), receive Or(m).
_SOURCES: Mapping[str, tuple[_Source, ...]] = {
    "latency": (
        _Source("pingpong", ("blocking-standard", "nonblocking-standard", "")),
        _Source("logp", ("logp",), "eel"),
    ),
    # Imported exchanges also have the mean over the ranks, and the fastest rank's time.
    "exchanged": (_Source("exchange", ("sendrecv", "nonblocking-receive-standard", "blocking-receive"), "exchange"),),
    "both_ways": (_Source("bidirectional", ("nonblocking-send", "blocking-send", ""), messages=2),),
    "gap": (
        _Source("stream", ("blocking-receive", "nonblocking-receive", "")),
        _Source("bandwidth", ("queue-8", "queue-4", "blocking")),
        _Source("logp", ("logp",), "gap"),
    ),
    "send": (_Source("logp", ("logp",), "os"), _Source("overhead", ("gap-send",), "overhead")),
    "receive": (_Source("logp", ("logp",), "or"), _Source("overhead", ("gap-receive",), "overhead")),
}
MAY_BE_NEGATIVE = ("send", "receive")


@dataclass(frozen=True, eq=False)
class Function:
    """One measured function and the test that it comes from, with its variant."""

    source: str
    times: Times

    def to_json(self) -> dict[str, Any]:
        """Return one JSON object; launches are rows, in µs."""
        return {"source": self.source, "sizes": list(self.times.sizes), "launches_us": self.times.values.tolist()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, may_be_negative: bool) -> Self:
        """Inverse of `to_json`; KeyError, TypeError or ValueError for anything else."""
        columns = np.array(data["launches_us"], dtype=np.float64).T.tolist()
        launches = dict(zip(data["sizes"], columns, strict=True))
        return cls(str(data["source"]), Times.of(launches, may_be_negative=may_be_negative))


def subjects_of(run: Run) -> list[str]:
    """Return the subjects with at least one function."""
    return [name for name in dict.fromkeys(each.subject for each in run.series) if functions_of(run, name)]


def functions_of(run: Run, subject: str) -> dict[str, Function]:
    """Return the functions of one subject that the run has measured between two ranks, by name."""
    functions = {}
    for name, sources in _SOURCES.items():
        for source in sources:
            found = _from_source(run, subject, source, may_be_negative=name in MAY_BE_NEGATIVE)
            if found is not None:
                functions[name] = found
                break
    return functions


def latency_variants(run: Run, subject: str) -> dict[str, Times]:
    """Return the latencies of every variant of the ping-pong, by variant."""
    of_test = [each for each in _between_two(run, subject) if each.test == "pingpong"]
    variants = dict.fromkeys(each.variant for each in of_test)
    return {name: times_of([each for each in of_test if each.variant == name]) for name in variants}


def logp_functions(run: Run, subject: str, variant: str) -> dict[str, Times]:
    """Return EEL, Os, Or and g, by quantity, of one of a subject's `LOGP_VARIANTS`; those that could be derived."""
    of_test = [each for each in _between_two(run, subject) if (each.test, each.variant) == ("logp", variant)]
    quantities = {name: [each for each in of_test if each.quantity == name] for name in ("eel", "os", "or", "gap")}
    measured = {name: series for name, series in quantities.items() if series}
    return {name: times_of(series, may_be_negative=name in ("os", "or")) for name, series in measured.items()}


def times_of(series: Iterable[Series], *, messages: int = 1, may_be_negative: bool = False) -> Times:
    """Return the times in µs of one test's series of several sizes; a rate becomes the time of `messages` messages.

    WrongUse if the series mix times and rates, or for invalid values: the run is damaged.
    """
    of_test = list(series)
    name = f"{of_test[0].test} of {of_test[0].subject}" if of_test else "the run"
    if len({each.unit == _RATE for each in of_test}) > 1:
        raise WrongUse(f"{name}: the series mix times and rates; measure again")
    try:
        launches = _of_common_launches({each.message_bytes: _in_us(each, messages) for each in of_test})
        confidence = of_test[0].confidence if of_test else CONFIDENCE
        return Times.of(launches, may_be_negative=may_be_negative, confidence=confidence)
    except (ValueError, ZeroDivisionError) as error:
        raise WrongUse(f"{name}: {error}") from error


def _of_common_launches(sizes: Mapping[int, Mapping[int, float]]) -> dict[int, list[float]]:
    """Return each size's times by launch, of the launches that all sizes have which most launches have.

    So a launch without a time for one size does not shift the later ones. The sizes of a refined run are measured in
    other launches each; then the order pairs them.
    """
    most = max(map(len, sizes.values()), default=0)
    kept = {size: launches for size, launches in sizes.items() if 2 * len(launches) > most}
    common = set.intersection(*map(set, kept.values())) if kept else set[int]()
    if 2 * len(common) <= min(map(len, kept.values()), default=0):
        return {size: list(launches.values()) for size, launches in sizes.items()}
    return {size: [launches[number] for number in sorted(common)] for size, launches in kept.items()}


def in_us(value: float, unit: str) -> float:
    """Convert a time to µs; CannotSay for another unit."""
    if unit not in US_OF:
        raise CannotSay(f"{unit} is not a unit of time: models need {', '.join(US_OF)}")
    return value * US_OF[unit]


def _from_source(run: Run, subject: str, source: _Source, *, may_be_negative: bool) -> Function | None:
    for variant in source.variants:
        series = [
            each
            for each in _between_two(run, subject)
            if (each.test, each.variant) == (source.test, variant) and source.quantity in ("", each.quantity)
        ]
        if series:
            times = times_of(series, messages=source.messages, may_be_negative=may_be_negative)
            return Function(f"{source.test} {variant}".strip(), times)
    return None


def _between_two(run: Run, subject: str) -> list[Series]:
    return [
        each
        for each in run.series
        if each.subject == subject
        and each.launch_medians
        and each.ranks in _TWO
        and each.pairs == 1
        and each.processes == 1
        and not each.parameter
    ]


def _in_us(series: Series, messages: int) -> dict[int, float]:
    """Return the times by launch."""
    if series.unit == _RATE:
        # 10^6 bits per second are bits per µs.
        return {launch: messages * series.message_bytes * 8 / value for launch, value in series.by_launch.items()}
    return {launch: in_us(value, series.unit) for launch, value in series.by_launch.items()}
