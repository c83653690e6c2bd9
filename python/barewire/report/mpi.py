# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Results of MPI runs beyond tables of series: parameters, laws of latency, phases of kernels.

Content only; the terminal and the page do the formatting.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from barewire.models.breakpoints import Break, Piece
from barewire.models.causes import Limit, explanations
from barewire.models.derived import DERIVED_TESTS
from barewire.report.words import bounds, message_size, number, subject_name, test_title
from barewire.results import Place, Run, Series
from barewire.results.laws import Law
from barewire.results.limits import limits_of
from barewire.results.quantities import KERNEL_TOTAL, has_own_sizes, is_kernel, is_phase

# For each test with derived parameters: variant, quantity, heading.
_COLUMNS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "logp": (
        ("logp", "eel", "EEL µs"),
        ("logp", "os", "Os µs"),
        ("logp", "or", "Or µs"),
        ("logp", "gap", "g µs"),
        ("logp", "opportunity", "2·EEL − (Os + Or) µs"),
    ),
    "overhead": (
        ("gap-send", "overhead", "Os µs"),
        ("gap-isend", "overhead", "Os, Isend µs"),
        ("gap-receive", "overhead", "Or µs"),
        ("call-send", "overhead", "Os by the call µs"),
        ("call-receive", "overhead", "Or by the call µs"),
        ("gap-send", "gap", "g µs"),
    ),
    "overlap": (
        ("pingpong", "hidden", "ping-pong hides µs"),
        ("local-standard", "hidden", "Isend hides µs"),
        ("local-synchronous", "hidden", "Issend hides µs"),
        ("local-receive", "hidden", "Irecv hides µs"),
        ("pingpong", "hidden_share", "ping-pong %"),
        ("local-standard", "hidden_share", "Isend %"),
        ("local-synchronous", "hidden_share", "Issend %"),
        ("local-receive", "hidden_share", "Irecv %"),
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
    """One table per test with derived parameters, number of ranks and subject; yields test and ranks first."""
    derived = [s for s in run.series if s.test in DERIVED_TESTS]
    for test, ranks, subject in dict.fromkeys((s.test, s.ranks, s.subject) for s in derived):
        of_subject = [s for s in derived if (s.test, s.ranks, s.subject) == (test, ranks, subject)]
        yield test, ranks, _parameters(test, ranks, subject, of_subject)


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


def task_name(series: Series) -> str:
    """The task shared by variants of a test: the value of its parameter and, if variants share it, the size."""
    parts = [] if series.parameter_value is None else [f"{series.parameter} {series.parameter_value:g}"]
    return ", ".join(parts if has_own_sizes(series.test) else [*parts, message_size(series.message_bytes)])


def _parameters(test: str, ranks: int, subject: str, series: Sequence[Series]) -> TextTable:
    known = {(s.variant, s.quantity, s.message_bytes): s for s in series}
    columns = [column for column in _COLUMNS[test] if any(key[:2] == column[:2] for key in known)]
    headings = ["message", *(heading for _, _, heading in columns)]
    with_bound = test == "logp"
    rows = []
    for size in sorted({s.message_bytes for s in series}):
        cells = [_value(known.get((variant, quantity, size))) for variant, quantity, _ in columns]
        cells += [_bound(known.get(("logp", "opportunity", size)))] if with_bound else []
        rows.append((message_size(size), *cells))
    notes = []
    if with_bound:
        headings.append(_BOUND)
        notes += [
            f"L = {_value(s)} µs, from messages of {message_size(s.message_bytes)}"
            for s in series
            if s.quantity == "latency"
        ]
    title = f"{test_title(test)}: {subject_name(subject)}, {ranks} ranks, median [95 % interval]"
    return TextTable(title, tuple(headings), tuple(rows), tuple(notes))


def _bound(opportunity: Series | None) -> str:
    """Whether the sum of both overheads is within a round trip, judged by the interval."""
    if opportunity is None or opportunity.median is None:
        return "–"
    low, high = opportunity.ci95 or (min(opportunity.launch_medians), max(opportunity.launch_medians))
    return "kept" if low >= 0 else "broken" if high < 0 else "undecided"


def _value(series: Series | None) -> str:
    if series is None or series.median is None:
        return "–"
    return f"{signed(series.median)} {bounds(series.ci95)}".rstrip()


def signed(value: float) -> str:
    """A number with a minus sign, not a hyphen."""
    return f"−{number(-value)}" if value < 0 else number(value)


def _law(law: Law, limits: list[Limit]) -> TextTable:
    rows = []
    for piece, after in zip_longest(law.fit.pieces, law.fit.breaks):
        rows.append((*_piece(piece), *_break(after, limits)))
    of = [subject_name(law.subject), *([law.variant] if law.variant else [])]
    of += [f"{law.place.ranks} ranks"] if law.place.ranks else []
    title = f"Law of the latency: {', '.join(of)}; within {law.fit.error:.1%} of what was measured"
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
        ("Slowest rank: median [95 % interval]. Phases: means over the ranks.",),
    )
