# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A trajectory on the terminal: a table for each subject, rows × runs, and every step as a sentence."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from barewire.report.trajectory import Track, Trajectory
from barewire.report.words import bounds, message_size, number, percent, row_name, series_name, subject_name, title_of
from barewire.results.run import Place
from barewire.stats.changes import Change

# Columns of the newest runs; the JSON document has all.
_RUNS_SHOWN = 10


def print_trajectory(console: Console, found: Trajectory) -> None:
    """Print the runs by number, the tables and the steps."""
    for count, run in enumerate(found.runs, 1):
        stopped = "" if run.complete else f", incomplete (stopped by {run.stopped_by})"
        console.print(f"{count}: {run.id}, {run.created}{stopped}", markup=False)
    families: dict[tuple[Place, str], list[Track]] = {}
    for track in found.tracks:
        families.setdefault((track.series.place, track.series.subject), []).append(track)
    for tracks in families.values():
        console.print(_table(tracks, len(found.runs)))
    for sentence in steps(found):
        console.print(sentence, markup=False)


def steps(found: Trajectory) -> list[str]:
    """A sentence for each run with which a subject became faster or slower, at any sizes; or that none did.

    And one about rows of which that is not decided.
    """
    groups: dict[tuple[str, int, Place, str], list[tuple[Track, Change]]] = {}
    for track in found.tracks:
        for change in track.changes:
            word = "slower" if track.is_slower(change) else "faster"
            groups.setdefault((word, change.at, track.series.place, track.series.subject), []).append((track, change))
    sentences = [_sentence(word, found.runs[at].id, changes) for (word, at, _, _), changes in groups.items()]
    sure = f"over {len(found.runs)} runs ({percent(found.settings.confidence)} confidence)"
    undecided = [series_name(track.series) for track in found.tracks if track.is_undecided]
    others = len(found.tracks) - len(undecided)
    if not sentences and others:
        sentences.append(f"no step in {others} rows {sure}")
    if undecided:
        more = f" and {len(undecided) - 1} more" if len(undecided) > 1 else ""
        why = "runs differ, in each all launches are equal, and there are too few to tell"
        sentences.append(f"not decided {sure}: {undecided[0]}{more}: {why}")
    return sentences


def _sentence(word: str, run: str, changes: Sequence[tuple[Track, Change]]) -> str:
    tracks, found = zip(*changes, strict=True)
    series = tracks[0].series
    what = series_name(series)
    ratio = f"{number(found[0].ratio)} {bounds(found[0].interval)}"
    if len(tracks) > 1:
        sizes = [track.series.message_bytes for track in tracks]
        what = f"{title_of(series.place)}: {subject_name(series.subject)}, {len(tracks)} rows, "
        what += f"{message_size(min(sizes))} to {message_size(max(sizes))}"
        ratio = " to ".join(number(end(change.ratio for change in found)) for end in (min, max))
    unit = "times as long" if series.lower_is_better else "times as much"
    return f"{word} from {run} on: {what}: {ratio} {unit}{', by the floor' if tracks[0].normalised else ''}"


def _table(tracks: Sequence[Track], count: int) -> Table:
    series, shown = tracks[0].series, range(max(0, count - _RUNS_SHOWN), count)
    by_floor = ", by the floor" if any(track.normalised for track in tracks) else ""
    title = f"{title_of(series.place)}: {subject_name(series.subject)}: ratio to the first run{by_floor}"
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD)
    for heading in ("message", *(str(run + 1) for run in shown)):
        table.add_column(heading, justify="right", no_wrap=True)
    for track in tracks:
        table.add_row(escape(row_name(track.series.row, series.place)), *_cells(track, shown))
    return table


def _cells(track: Track, shown: Sequence[int]) -> list[str]:
    """The ratio of each run to the row's first; in bold where a step begins."""
    levels = {point.run: point.level / track.points[0].level for point in track.points}
    begins = {change.at for change in track.changes}
    texts = {run: number(level) for run, level in levels.items()}
    return [f"[bold]{texts[run]}[/]" if run in begins else texts.get(run, "–") for run in shown]
