# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where a program's time goes, in sentences and tables; for the terminal and for the page."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from barewire.report.words import message_size, number
from barewire.results.job_profile import JobCall, JobProfile, RankParts
from barewire.results.profile import Wait

CALLS_SHOWN = 12
RANKS_SHOWN = 16
WAITS_SHOWN = 5
# Less than this is not worth a sentence.
_WORTH_SAYING = 0.02
_LEAST_SHARE = 0.0005
_DASH, _NO_BREAK = "–", "\u00a0"


@dataclass(frozen=True)
class Words:
    """A table of words: its title, a caption, headings and rows; the first column is text."""

    title: str
    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def seconds(value: float | None, interval: tuple[float, float] | None = None) -> str:
    """A time with a unit that suits it, and its interval in the same unit."""
    if value is None:
        return _DASH
    if value == 0:
        return "0 s"
    factor, unit = next(((f, u) for f, u in ((1.0, "s"), (1e3, "ms")) if value * f >= 1), (1e6, "µs"))
    spread = "" if interval is None else f" [{number(interval[0] * factor)}, {number(interval[1] * factor)}]"
    return f"{number(value * factor)} {unit}{spread}"


def percent(share: float) -> str:
    """A share, 0 to 1, as a whole or a tenth of a percent."""
    if 0 < share < _LEAST_SHARE:
        return "<0.1 %"
    return f"{share * 100:.0f} %" if share >= 0.0995 or share == 0 else f"{share * 100:.1f} %"


def size_class(bytes_from: int | None, bytes_below: int | None) -> str:
    """`4–8 KiB`: from the first to below the second."""
    if bytes_from is None or bytes_below is None:
        return _DASH
    if bytes_below - bytes_from == 1:
        return message_size(bytes_from)
    low, high = message_size(bytes_from), message_size(bytes_below)
    same_unit = low.split()[1] == high.split()[1]
    return f"{low.split()[0] if same_unit else low}{_DASH}{high}"


def headlines(profile: JobProfile, name: str) -> list[str]:
    """Two or three sentences: how much is MPI, what of it, and whether the ranks are even."""
    if not profile.ranks:
        return [f"{name} left no profile."]
    mean = profile.mean
    whole = mean.outside_s + mean.mpi_s
    if whole <= 0:
        return [f"{name} called MPI_Init and nothing that takes time after it."]
    said = [
        f"{name} is in MPI for {percent(profile.mpi_share)} of its time between MPI_Init and MPI_Finalize "
        f"({seconds(profile.main_s)}): {percent(mean.waiting_s / whole)} waiting, {percent(mean.moving_s / whole)} "
        f"moving messages, {percent(mean.asking_s / whole)} asking whether something has come."
    ]
    if profile.calls:
        largest = profile.calls[0]
        size = size_class(largest.row.bytes_from, largest.row.bytes_below)
        of_size = "" if size == _DASH else f" of {size}"
        share = largest.row.time_s / len(profile.ranks) / whole
        said.append(f"Most of it is {largest.row.call}{of_size}: {percent(share)} in {largest.row.calls} calls.")
    if profile.late_s > _WORTH_SAYING * whole and len(profile.ranks) > 1:
        said.append(
            f"Ranks do not work equally long outside MPI: the mean rank must wait {seconds(profile.late_s)} "
            f"({percent(profile.late_s / whole)}) for the busiest, over any network."
        )
    return said


def calls_table(profile: JobProfile, most: int | None = None) -> Words:
    """Calls by kind and message size, those of most time first."""
    chosen = profile.calls[:most]
    left = len(profile.calls) - len(chosen)
    caption = "Time is of the mean rank; shortest and longest are single calls of any rank." + (
        f" {left} more rows of less time are in profile.json." if left else ""
    )
    headings = ("call", "message", "calls", "time", "of all", "waiting", "shortest", "mean", "longest")
    return Words("Calls", caption, headings, tuple(_call_row(profile, one) for one in chosen))


def ranks_table(profile: JobProfile, most: int | None = None) -> Words:
    """Where each rank's time goes, and how even they are."""
    chosen = profile.ranks[:most]
    headings = ("rank", "host", "init", "main", "outside", "waiting", "asking", "moving", "finalize")
    left = len(profile.ranks) - len(chosen)
    caption = "Main: from MPI_Init's end to MPI_Finalize, of which outside: outside MPI." + (
        f" {left} more are in profile.json." if left else ""
    )
    return Words("Ranks", caption, headings, tuple(_rank_row(one) for one in chosen))


def waits_table(profile: JobProfile, most: int | None = None) -> Words:
    """The longest single waits."""
    headings = ("call", "rank", "message", "peer", "took", "began")
    caption = "Began: after the begin of MPI_Init. The peer is the rank that the call names, in its communicator."
    return Words("Longest waits", caption, headings, tuple(_wait_row(one) for one in profile.longest[:most]))


def cost_sentence(profile: JobProfile) -> str:
    """What the profiler itself took."""
    whole = max(profile.main_s, 1e-9)
    return (
        f"{profile.recorded_calls} calls were recorded, at {profile.cost_per_call_s * 1e9:.0f} ns each as measured "
        f"before MPI_Init: {seconds(profile.cost_s)} of the mean rank, {percent(profile.cost_s / whole)}."
    )


def print_profile(console: Console, profile: JobProfile, fabric: str, notes: Sequence[str]) -> None:
    """The summary in a terminal."""
    for note in notes:
        console.print(f"! {note}", markup=False)
    if not profile.ranks:
        return
    for sentence in headlines(profile, f"The program over {fabric}"):
        console.print(sentence, markup=False)
    tables = (
        calls_table(profile, CALLS_SHOWN),
        ranks_table(profile, RANKS_SHOWN),
        waits_table(profile, WAITS_SHOWN),
    )
    for words in tables:
        if words.rows:
            console.print(rich_table(words, without="mean"))
    console.print(f"The profiler: {cost_sentence(profile)}", markup=False)


def rich_table(words: Words, *, without: str = "") -> Table:
    """A table for the terminal, which may have no room for one of the columns."""
    shown = [at for at, heading in enumerate(words.headings) if heading != without]
    table = Table(title=words.title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title_style="bold")
    for at in shown:
        table.add_column(words.headings[at], justify="left" if at == 0 else "right", overflow="fold")
    for row in words.rows:
        table.add_row(*(escape(row[at]).replace(" ", _NO_BREAK) for at in shown))
    return table


def _call_row(profile: JobProfile, one: JobCall) -> tuple[str, ...]:
    row, count = one.row, max(1, len(profile.ranks))
    mean = profile.mean
    whole = (mean.outside_s + mean.mpi_s) * count
    return (
        row.call,
        size_class(row.bytes_from, row.bytes_below),
        str(row.calls),
        seconds(row.time_s / count),
        percent(row.time_s / whole) if whole else _DASH,
        seconds(one.waiting_s / count) if row.waits else _DASH,
        seconds(row.shortest_s),
        seconds(row.time_s / row.calls),
        seconds(row.longest_s),
    )


def _rank_row(one: RankParts) -> tuple[str, ...]:
    parts = one.parts
    times = (one.init_s, one.main_s, parts.outside_s, parts.waiting_s, parts.asking_s, parts.moving_s, one.finalize_s)
    return (f"{'spawned ' if one.spawned else ''}{one.rank}", one.host, *map(seconds, times))


def _wait_row(one: Wait) -> tuple[str, ...]:
    size = _DASH if one.bytes is None else message_size(one.bytes)
    peer = _DASH if one.peer is None else str(one.peer)
    return one.call, str(one.rank), size, peer, seconds(one.time_s), seconds(one.at_s)
