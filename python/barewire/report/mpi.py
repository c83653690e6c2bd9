# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a run of MPI libraries tells beyond tables of series: parameters, laws of latency, phases of kernels.

Content here, as words; how it looks is the terminal's and the page's business.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from barewire.models.breakpoints import Break, Piece
from barewire.models.derived import DERIVED_TESTS
from barewire.report.words import bounds, message_size, number, subject_name, test_title
from barewire.results import Place, Run, Series
from barewire.results.laws import Law, explanation, laws_of
from barewire.results.quantities import KERNEL_TOTAL, has_own_sizes, is_kernel, is_phase

# Of each test from which parameters are derived: variant, quantity, heading. Empty: all variants.
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
class Words:
    """A table in words: rows of cells under their headings, the first of which says what a row is; notes below it."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def by_place(run: Run) -> list[tuple[Place, list[Series]]]:
    """Series that stand in tables of rows and subjects: not phases, and not parameters, which have their own."""
    shown = [one for one in run.series if one.test not in DERIVED_TESTS and not is_phase(one.test, one.quantity)]
    return [
        (place, [one for one in shown if one.place == place]) for place in dict.fromkeys(one.place for one in shown)
    ]


def parameter_tables(run: Run) -> Iterator[tuple[str, int, Words]]:
    """One table for each test that parameters are derived from, number of ranks and subject; test and ranks first."""
    derived = [one for one in run.series if one.test in DERIVED_TESTS]
    for test, ranks, subject in dict.fromkeys((one.test, one.ranks, one.subject) for one in derived):
        of_subject = [one for one in derived if (one.test, one.ranks, one.subject) == (test, ranks, subject)]
        yield test, ranks, _parameters(test, ranks, subject, of_subject)


def law_tables(run: Run) -> list[Words]:
    """Of ping-pongs over many sizes: the pieces of each subject's law, and the breaks between them."""
    mtu = run.parameters.get("mtu")
    return [_law(law, mtu if isinstance(mtu, int) else None) for law in laws_of(run)]


def phase_tables(run: Run) -> Iterator[tuple[str, int, Words, Times]]:
    """Where a kernel's time goes: per number of ranks and parameter; kernel and ranks first, the series last."""
    kernels = [one for one in run.series if is_kernel(one.test) and one.median is not None]
    tasks: dict[tuple[str, int, str], Times] = {}
    for one in kernels:
        task = tasks.setdefault((one.test, one.ranks, task_name(one)), {})
        task.setdefault((one.subject, one.variant), {})[one.quantity] = one
    for (test, ranks, name), times in tasks.items():
        words = _phases(f"{test_title(test)}, {ranks} ranks, {name}", times)
        yield test, ranks, replace(words, notes=(*words.notes, *_choices(run, test, ranks))), times


def task_name(one: Series) -> str:
    """What variants of a test do alike: the value of its parameter and, where variants share it, the size."""
    parts = [] if one.parameter_value is None else [f"{one.parameter} {one.parameter_value:g}"]
    return ", ".join(parts if has_own_sizes(one.test) else [*parts, message_size(one.message_bytes)])


def _parameters(test: str, ranks: int, subject: str, series: Sequence[Series]) -> Words:
    known = {(one.variant, one.quantity, one.message_bytes): one for one in series}
    columns = [column for column in _COLUMNS[test] if any(key[:2] == column[:2] for key in known)]
    headings = ["message", *(heading for _, _, heading in columns)]
    with_bound = test == "logp"
    rows = []
    for size in sorted({one.message_bytes for one in series}):
        cells = [_value(known.get((variant, quantity, size))) for variant, quantity, _ in columns]
        cells += [_bound(known.get(("logp", "opportunity", size)))] if with_bound else []
        rows.append((message_size(size), *cells))
    notes = []
    if with_bound:
        headings.append(_BOUND)
        notes += [
            f"L = {_value(one)} µs, from messages of {message_size(one.message_bytes)}"
            for one in series
            if one.quantity == "latency"
        ]
    title = f"{test_title(test)}: {subject_name(subject)}, {ranks} ranks, median [95 % interval]"
    return Words(title, tuple(headings), tuple(rows), tuple(notes))


def _bound(opportunity: Series | None) -> str:
    """Whether both overheads together are within a round trip, as sure as the interval is."""
    if opportunity is None or opportunity.median is None:
        return "–"
    low, high = opportunity.ci95 or (min(opportunity.launch_medians), max(opportunity.launch_medians))
    return "kept" if low >= 0 else "broken" if high < 0 else "undecided"


def _value(one: Series | None) -> str:
    if one is None or one.median is None:
        return "–"
    return f"{_signed(one.median)} {bounds(one.ci95)}".rstrip()


def _signed(value: float) -> str:
    return f"−{number(-value)}" if value < 0 else number(value)


def _law(law: Law, mtu: int | None) -> Words:
    rows = []
    for piece, after in zip_longest(law.fit.pieces, law.fit.breaks):
        rows.append((*_piece(piece), *_break(after, law.subject, mtu)))
    of = [subject_name(law.subject), *([law.variant] if law.variant else [])]
    of += [f"{law.place.ranks} ranks"] if law.place.ranks else []
    title = f"Law of the latency: {', '.join(of)}; within {law.fit.error:.1%} of what was measured"
    headings = ("from", "to", "α µs", "1/β Mbit/s", "break above [95 %]", "step µs", "known to change there")
    return Words(title, headings, tuple(rows))


def _choices(run: Run, test: str, ranks: int) -> list[str]:
    """What a variant that chooses by itself took, of every subject and size, and what it said of that first."""
    chosen: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for launch in run.launches:
        if launch.test == test and launch.details.get("start", {}).get("ranks") == ranks:
            for one in launch.details.get("choices", ()):
                chosen.setdefault((launch.subject, one["variant"], one["message_bytes"]), []).append(one)
    notes = []
    for (subject, variant, size), choices in chosen.items():
        counts = Counter(one["chosen"] for one in choices)
        taken = ", ".join(f"{name} in {count} of {len(choices)} launches" for name, count in counts.most_common())
        where = f"{subject_name(subject)}, {message_size(size)}"
        notes.append(f"{where}: {variant} took {taken}; the first time: {choices[0]['reason']}")
    return notes


def _piece(piece: Piece) -> tuple[str, ...]:
    rate = "–" if piece.per_byte <= 0 else number(8 / piece.per_byte, _DIGITS)
    return message_size(piece.first_bytes), message_size(piece.last_bytes), _signed(piece.alpha), rate


def _break(one: Break | None, subject: str, mtu: int | None) -> tuple[str, ...]:
    if one is None:
        return "", "", ""
    where = f"{message_size(one.last_before)} [{message_size(one.low)}, {message_size(one.high)}]"
    step = _signed(one.jump) if one.jump < 0 else f"+{number(one.jump)}"
    return where, step, explanation(one, subject, mtu)


def _phases(title: str, times: Times) -> Words:
    names = list(dict.fromkeys(name for of_one in times.values() for name in of_one if name != KERNEL_TOTAL))
    rows = [("slowest rank", *(_value(of_one.get(KERNEL_TOTAL)) for of_one in times.values()))]
    for name in names:
        cells = ("–" if (phase := of_one.get(name)) is None else number(phase.median) for of_one in times.values())
        rows.append((name.replace("_", " "), *cells))
    headings = ("ms", *(f"{subject_name(subject)} {variant}" for subject, variant in times))
    return Words(
        f"Where the time goes: {title}",
        headings,
        tuple(rows),
        ("Slowest rank: median [95 % interval]. Phases: means over the ranks.",),
    )
