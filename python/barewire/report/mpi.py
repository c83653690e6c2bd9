# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Results of MPI runs beyond tables of series: parameters, laws of latency, phases of kernels.

Content only; the terminal and the page do the formatting.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

from barewire.models.breakpoints import Break, Piece
from barewire.models.causes import Limit, explanations
from barewire.models.derived import DERIVED_TESTS
from barewire.report.words import (
    bounds,
    interval_heading,
    logp_mode,
    message_size,
    number,
    percent,
    subject_name,
    test_title,
)
from barewire.results.laws import Law
from barewire.results.limits import limits_of
from barewire.results.quantities import KERNEL_TOTAL, has_own_sizes, is_kernel, is_phase
from barewire.results.run import Place, Run, Series
from barewire.results.speedups import Speedup, speedups

_OVERLAPPED = {
    "pingpong": "ping-pong",
    "pingpong-irecv-standard": "ping-pong, Irecv,",
    "pingpong-irecv-synchronous": "ping-pong, Irecv and Ssend,",
    "pingpong-irecv-buffered": "ping-pong, Irecv and Bsend,",
    "pingpong-irecv-ready": "ping-pong, Irecv and Rsend,",
    "pingpong-isend-standard": "ping-pong, Isend,",
    "pingpong-isend-synchronous": "ping-pong, Issend,",
    "pingpong-isend-buffered": "ping-pong, Ibsend,",
    "pingpong-isend-ready": "ping-pong, Irsend,",
    "local-standard": "Isend",
    "local-synchronous": "Issend",
    "local-receive": "Irecv",
}
# For each test with derived parameters: variant, quantity, heading. Those of logp have one variant in each table.
_COLUMNS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "logp": (
        ("", "eel", "EEL µs"),
        ("", "os", "Os µs"),
        ("", "or", "Or µs"),
        ("", "gap", "g µs"),
        ("", "opportunity", "2·EEL − (Os + Or) µs"),
    ),
    "overhead": (
        ("gap-send", "overhead", "Os µs"),
        ("gap-send-synchronous", "overhead", "Os, Ssend µs"),
        ("gap-isend", "overhead", "Os, Isend µs"),
        ("gap-isend-synchronous", "overhead", "Os, Issend µs"),
        ("gap-receive", "overhead", "Or µs"),
        ("gap-receive-synchronous", "overhead", "Or of Ssend µs"),
        ("gap-receive-irecv", "overhead", "Or, Irecv µs"),
        ("gap-receive-irecv-synchronous", "overhead", "Or, Irecv, of Ssend µs"),
        ("call-send", "overhead", "Os by the call µs"),
        ("call-send-synchronous", "overhead", "Os by the call, Ssend µs"),
        ("call-receive", "overhead", "Or by the call µs"),
        ("call-receive-irecv", "overhead", "Or by the calls, Irecv µs"),
        ("gap-send", "gap", "g µs"),
        ("gap-send-synchronous", "gap", "g, Ssend µs"),
        ("gap-receive-irecv", "gap", "g, Irecv µs"),
        ("gap-receive-irecv-synchronous", "gap", "g, Irecv, of Ssend µs"),
    ),
    "overlap": (
        *((variant, "hidden", f"{name} hides µs") for variant, name in _OVERLAPPED.items()),
        *((variant, "hidden_share", f"{name} %") for variant, name in _OVERLAPPED.items()),
    ),
    "availability": (
        ("send", "availability", "left to a sender %"),
        ("receive", "availability", "left to a receiver %"),
        ("send", "overhead", "sender's overhead µs"),
        ("receive", "overhead", "receiver's overhead µs"),
    ),
    "beff": (
        ("natural", "latency", "natural ring µs"),
        ("random", "latency", "random rings µs"),
        ("natural", "bandwidth", "natural ring Mbit/s"),
        ("random", "bandwidth", "random rings Mbit/s"),
    ),
}
_BOUND = "Os + Or ≤ 2·EEL"
_DIGITS = 3
# By subject and variant, then by quantity.
Times = dict[tuple[str, str], dict[str, Series]]


@dataclass(frozen=True)
class TextTable:
    """A table of text: rows of cells under headings, the first column names the row; notes below it."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def by_place(run: Run) -> list[tuple[Place, list[Series]]]:
    """Series for tables of rows and subjects, without phases and parameters, which have separate tables."""
    shown = [s for s in run.series if s.test not in DERIVED_TESTS and not is_phase(s.test, s.quantity)]
    return [(place, [s for s in shown if s.place == place]) for place in dict.fromkeys(s.place for s in shown)]


def parameter_tables(run: Run) -> Iterator[tuple[str, int, TextTable]]:
    """One table per test with derived parameters, number of ranks, subject and, for logp, mode.

    Yields test and ranks first.
    """
    tables: dict[tuple[str, int, str, str], list[Series]] = {}
    for s in run.series:
        if s.test in DERIVED_TESTS:
            tables.setdefault((s.test, s.ranks, s.subject, s.variant if s.test == "logp" else ""), []).append(s)
    for (test, ranks, subject, mode), series in tables.items():
        yield test, ranks, _parameters(test, ranks, subject, mode, series)


def law_tables(run: Run, laws: Sequence[Law]) -> list[TextTable]:
    """For ping-pongs over many sizes: the pieces of each subject's law, and the breaks between them."""
    return [_law(law, limits_of(run, law.subject)) for law in laws]


def phase_tables(run: Run) -> Iterator[tuple[str, int, TextTable, Times]]:
    """Where a kernel's time goes: per number of ranks and parameter; kernel and ranks first, the series last."""
    kernels = [s for s in run.series if is_kernel(s.test) and s.median is not None]
    tasks: dict[tuple[str, int, str], Times] = {}
    for s in kernels:
        task = tasks.setdefault((s.test, s.ranks, task_name(s)), {})
        task.setdefault((s.subject, s.variant), {})[s.quantity] = s
    for (test, ranks, name), times in tasks.items():
        text_table = _phases(f"{test_title(test)}, {ranks} ranks, {name}", times)
        yield test, ranks, replace(text_table, notes=(*text_table.notes, *_choices(run, test, ranks))), times


def speedup_tables(
    run: Run, published: Mapping[str, Mapping[int, float]] = MappingProxyType({})
) -> Iterator[TextTable]:
    """Speed-up and efficiency of each kernel and task that the run has on several numbers of ranks.

    `published` has times by heading and number of ranks, in any unit; their speed-ups are further columns.
    """
    tasks: dict[tuple[str, str, int], list[Speedup]] = {}
    for each in speedups(run):
        tasks.setdefault((each.test, task_name(each), each.base_ranks), []).append(each)
    for (test, name, base), found in tasks.items():
        cells = {(each.ranks, each.subject, each.variant): each for each in found}
        columns = list(dict.fromkeys((each.subject, each.variant) for each in found))
        rows = []
        for ranks in sorted({each.ranks for each in found if each.ranks > base}):
            of_ranks = [cells.get((ranks, *column)) for column in columns]
            then = [_published_speedup(times, base, ranks, weak=found[0].weak) for times in published.values()]
            of_ideal = (None if each is None else each * base / ranks for each in then)
            rows.append((f"{ranks}: speed-up", *(_factor(each, "speedup") for each in of_ranks), *map(number, then)))
            rows.append(("efficiency", *(_factor(each, "efficiency") for each in of_ranks), *map(number, of_ideal)))
        headings = ("ranks", *(f"{subject_name(subject)} {variant}" for subject, variant in columns), *published)
        weak = "the problem grows with the ranks" if found[0].weak else "one problem for all ranks"
        ranks_of_base = f"{base} rank{'' if base == 1 else 's, the fewest of this run'}"
        note = f"Relative to {ranks_of_base}; {weak}. [{percent(found[0].confidence)}]"
        yield TextTable(f"Speed-up: {test_title(test)}, {name}", headings, tuple(rows), (note,))


def _published_speedup(times: Mapping[int, float], base: int, ranks: int, *, weak: bool) -> float | None:
    if base not in times or ranks not in times:
        return None
    return times[base] / times[ranks] * (ranks / base if weak else 1)


def _factor(speedup: Speedup | None, name: str) -> str:
    if speedup is None:
        return "–"
    return f"{number(getattr(speedup, name))} {bounds(getattr(speedup, f'{name}_interval'))}".rstrip()


def task_name(series: Series | Speedup) -> str:
    """The task shared by variants of a test: the value of its parameter and, if variants share it, the size."""
    parts = []
    if series.parameter_value is not None:
        parts.append(f"{series.parameter.replace('_', ' ')} {series.parameter_value:g}")
    if series.message_bytes is not None and not has_own_sizes(series.test):
        parts.append(message_size(series.message_bytes))
    return ", ".join(parts)


def _parameters(test: str, ranks: int, subject: str, mode: str, series: Sequence[Series]) -> TextTable:
    known = {("" if mode else s.variant, s.quantity, s.message_bytes): s for s in series}
    columns = [column for column in _COLUMNS[test] if any(key[:2] == column[:2] for key in known)]
    headings = ["message", *(heading for _, _, heading in columns)]
    with_bound = test == "logp"
    rows = []
    for size in sorted({s.message_bytes for s in series}):
        cells = [_value(known.get((variant, quantity, size))) for variant, quantity, _ in columns]
        cells += [_bound(known.get(("", "opportunity", size)))] if with_bound else []
        rows.append((message_size(size), *cells))
    notes = []
    if with_bound:
        headings.append(_BOUND)
        notes += [
            f"L = {_value(s)} µs, from messages of {message_size(s.message_bytes)}"
            for s in series
            if s.quantity == "latency"
        ]
    of = ", ".join([subject_name(subject), *logp_mode(mode), f"{ranks} ranks"])
    title = f"{test_title(test)}: {of}, median [{interval_heading(series[0].confidence)}]"
    return TextTable(title, tuple(headings), tuple(rows), tuple(notes))


def _bound(opportunity: Series | None) -> str:
    """Whether the sum of both overheads is within a round trip, judged by the interval."""
    if opportunity is None or opportunity.median is None:
        return "–"
    low, high = opportunity.interval or (min(opportunity.launch_medians), max(opportunity.launch_medians))
    return "kept" if low >= 0 else "broken" if high < 0 else "undecided"


def _value(series: Series | None) -> str:
    if series is None or series.median is None:
        return "–"
    return f"{signed(series.median)} {bounds(series.interval)}".rstrip()


def signed(value: float) -> str:
    """A number with a minus sign, not a hyphen."""
    return f"−{number(-value)}" if value < 0 else number(value)


def _law(law: Law, limits: list[Limit]) -> TextTable:
    rows = []
    for piece, after in zip_longest(law.fit.pieces, law.fit.breaks):
        rows.append((*_piece(piece), *_break(after, limits)))
    of = [subject_name(law.subject), *([law.variant] if law.variant else [])]
    of += [f"{law.place.ranks} ranks"] if law.place.ranks else []
    title = f"Law of the latency: {', '.join(of)}; off by {law.fit.error:.1%} (root mean square)"
    headings = ("from", "to", "α µs", "1/β Mbit/s", "break above [95 %]", "step µs", "known cause")
    return TextTable(title, headings, tuple(rows))


def _choices(run: Run, test: str, ranks: int) -> list[str]:
    """The choices of `auto` for every subject and size, and the reason of the first choice."""
    chosen: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for launch in run.launches:
        if launch.test == test and launch.details.get("start", {}).get("ranks") == ranks:
            for choice in launch.details.get("choices", ()):
                chosen.setdefault((launch.subject, choice["variant"], choice["message_bytes"]), []).append(choice)
    notes = []
    for (subject, variant, size), choices in chosen.items():
        counts = Counter(choice["chosen"] for choice in choices)
        taken = ", ".join(f"{name} in {count} of {len(choices)} launches" for name, count in counts.most_common())
        where = f"{subject_name(subject)}, {message_size(size)}"
        notes.append(f"{where}: {variant} chose {taken}; first launch: {choices[0]['reason']}")
    return notes


def _piece(piece: Piece) -> tuple[str, ...]:
    rate = "–" if piece.per_byte <= 0 else number(8 / piece.per_byte, _DIGITS)
    return message_size(piece.first_bytes), message_size(piece.last_bytes), signed(piece.alpha), rate


def _break(point: Break | None, limits: list[Limit]) -> tuple[str, ...]:
    if point is None:
        return "", "", ""
    where = f"{message_size(point.last_before)} [{message_size(point.low)}, {message_size(point.high)}]"
    step = signed(point.jump) if point.jump < 0 else f"+{number(point.jump)}"
    return where, step, ", ".join(explanations(point, limits))


def _confidence(times: Times) -> float:
    return next(series.confidence for phases in times.values() for series in phases.values())


def _phases(title: str, times: Times) -> TextTable:
    names = list(dict.fromkeys(name for phases in times.values() for name in phases if name != KERNEL_TOTAL))
    rows = [("slowest rank", *(_value(phases.get(KERNEL_TOTAL)) for phases in times.values()))]
    for name in names:
        cells = ("–" if (phase := phases.get(name)) is None else number(phase.median) for phases in times.values())
        rows.append((name.replace("_", " "), *cells))
    headings = ("ms", *(f"{subject_name(subject)} {variant}" for subject, variant in times))
    return TextTable(
        f"Where the time goes: {title}",
        headings,
        tuple(rows),
        (f"Slowest rank: median [{interval_heading(_confidence(times))}]. Phases: means over the ranks.",),
    )
