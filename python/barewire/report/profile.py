# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A program's profile in sentences and tables, for the terminal and for the page."""

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
# Smaller shares are not mentioned.
_WORTH_SAYING = 0.02
_LEAST_SHARE = 0.0005
_DASH, _NO_BREAK = "–", "\u00a0"


@dataclass(frozen=True)
class TextTable:
    """A table of text: title, caption, headings and rows; the first column is left-aligned."""

    title: str
    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def seconds(value: float | None, interval: tuple[float, float] | None = None) -> str:
    """A time with a suitable unit, and its interval in the same unit."""
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
    """Two or three sentences: the share of MPI, the largest call, and the load balance."""
    if not profile.ranks:
        return [f"{name} left no profile."]
    mean = profile.mean
    total_s = mean.outside_s + mean.mpi_s
    if total_s <= 0:
        return [f"{name} spent no measurable time after MPI_Init."]
    sentences = [
        f"{name} is in MPI for {percent(profile.mpi_share)} of its time between MPI_Init and MPI_Finalize "
        f"({seconds(profile.main_s)}): {percent(mean.waiting_s / total_s)} waiting, {percent(mean.moving_s / total_s)} "
        f"moving messages, {percent(mean.asking_s / total_s)} testing for completion."
    ]
    if profile.calls:
        largest = profile.calls[0]
        size = size_class(largest.row.bytes_from, largest.row.bytes_below)
        of_size = "" if size == _DASH else f" of {size}"
        share = largest.row.time_s / len(profile.ranks) / total_s
        sentences.append(f"Most of it is {largest.row.call}{of_size}: {percent(share)} in {largest.row.calls} calls.")
    if profile.late_s > _WORTH_SAYING * total_s and len(profile.ranks) > 1:
        sentences.append(
            f"Ranks compute for unequal times: on average a rank waits {seconds(profile.late_s)} "
            f"({percent(profile.late_s / total_s)}) for the busiest, over any network."
        )
    return sentences


def calls_table(profile: JobProfile, most: int | None = None) -> TextTable:
    """Calls by kind and message size, sorted by time."""
    chosen = profile.calls[:most]
    unlisted = len(profile.calls) - len(chosen)
    caption = "Time is the mean over ranks; shortest and longest are single calls of any rank." + (
        f" {unlisted} more rows with less time are in profile.json." if unlisted else ""
    )
    headings = ("call", "message", "calls", "time", "of all", "waiting", "shortest", "mean", "longest")
    return TextTable("Calls", caption, headings, tuple(_call_row(profile, call) for call in chosen))


def ranks_table(profile: JobProfile, most: int | None = None) -> TextTable:
    """The parts of each rank's time."""
    chosen = profile.ranks[:most]
    headings = ("rank", "host", "init", "main", "outside", "waiting", "asking", "moving", "finalize")
    unlisted = len(profile.ranks) - len(chosen)
    caption = "Main: from MPI_Init's end to MPI_Finalize, of which outside: outside MPI." + (
        f" {unlisted} more are in profile.json." if unlisted else ""
    )
    return TextTable("Ranks", caption, headings, tuple(_rank_row(rank) for rank in chosen))


def waits_table(profile: JobProfile, most: int | None = None) -> TextTable:
    """The longest single waits."""
    headings = ("call", "rank", "message", "peer", "took", "began")
    caption = "Began: time since the start of MPI_Init. Peer: the rank in the call's communicator."
    return TextTable("Longest waits", caption, headings, tuple(_wait_row(wait) for wait in profile.longest[:most]))


def cost_sentence(profile: JobProfile) -> str:
    """The overhead of the profiler."""
    total_s = max(profile.main_s, 1e-9)
    return (
        f"{profile.recorded_calls} calls were recorded, at {profile.cost_per_call_s * 1e9:.0f} ns each as measured "
        f"before MPI_Init: {seconds(profile.cost_s)} of the mean rank, {percent(profile.cost_s / total_s)}."
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
    for text_table in tables:
        if text_table.rows:
            console.print(rich_table(text_table, without="mean"))
    console.print(f"The profiler: {cost_sentence(profile)}", markup=False)


def rich_table(text_table: TextTable, *, without: str = "") -> Table:
    """The table for the terminal, optionally `without` one of the columns."""
    shown = [at for at, heading in enumerate(text_table.headings) if heading != without]
    table = Table(
        title=text_table.title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title_style="bold"
    )
    for at in shown:
        table.add_column(text_table.headings[at], justify="left" if at == 0 else "right", overflow="fold")
    for row in text_table.rows:
        table.add_row(*(escape(row[at]).replace(" ", _NO_BREAK) for at in shown))
    return table


def _call_row(profile: JobProfile, call: JobCall) -> tuple[str, ...]:
    row, count = call.row, max(1, len(profile.ranks))
    mean = profile.mean
    total_s = (mean.outside_s + mean.mpi_s) * count
    return (
        row.call,
        size_class(row.bytes_from, row.bytes_below),
        str(row.calls),
        seconds(row.time_s / count),
        percent(row.time_s / total_s) if total_s else _DASH,
        seconds(call.waiting_s / count) if row.waits else _DASH,
        seconds(row.shortest_s),
        seconds(row.time_s / row.calls),
        seconds(row.longest_s),
    )


def _rank_row(rank: RankParts) -> tuple[str, ...]:
    parts = rank.parts
    times = (
        rank.init_s,
        rank.main_s,
        parts.outside_s,
        parts.waiting_s,
        parts.asking_s,
        parts.moving_s,
        rank.finalize_s,
    )
    return (f"{'spawned ' if rank.spawned else ''}{rank.rank}", rank.host, *map(seconds, times))


def _wait_row(wait: Wait) -> tuple[str, ...]:
    size = _DASH if wait.bytes is None else message_size(wait.bytes)
    peer = _DASH if wait.peer is None else str(wait.peer)
    return wait.call, str(wait.rank), size, peer, seconds(wait.time_s), seconds(wait.at_s)
