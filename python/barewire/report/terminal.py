# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tables on the terminal: results, then comparisons; readable at 80 columns."""

from collections.abc import Iterator, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from barewire.models.derived import DERIVED_TESTS
from barewire.models.naming import is_floor
from barewire.report import mpi
from barewire.report.versus import Settings, Versus, compare_in_run, has_baseline
from barewire.report.words import (
    MARKS,
    baseline_name,
    bounds,
    convergence,
    interval,
    interval_heading,
    marks_of,
    message_size,
    number,
    p_value,
    percent,
    row_name,
    subject_name,
    test_title,
    title_of,
    unit_name,
    verdict_word,
)
from barewire.results.laws import laws_of
from barewire.results.quantities import is_detail
from barewire.results.run import Place, Row, Run, Series, Shared
from barewire.stats.comparison import Comparison
from barewire.stats.confidence import launches_for_interval

_BASELINE = "tcp"
_SIZE_COLUMNS = 10
_PADDING = 3
_WORD_COLUMNS = 3  # around a variant's or a parameter's word
_RATIO_COLUMNS = 24  # "0.331 [0.330, 0.333]" under a heading
_CELL_COLUMNS = 22  # "41015 [40846, 41156]" with its padding
_MARK_STYLES = {"impossible": "bold red", "faster than floor": "cyan", "lossy": "yellow", "incomplete": "yellow"}
_VERDICT_STYLES = {"A faster": "green", "B faster": "red", "undecided": "dim", "no difference": "default"}


def print_run(console: Console, run: Run) -> None:
    """Print the run's series, then every subject against TCP if the run has it."""
    for table in sharing_tables(run) if run.shared else run_tables(run, width=console.width):
        console.print(table)
    if run.parameters.get("refinement"):
        for table in convergence_tables(run, width=console.width):
            console.print(table)
    for text_table in _text_tables(run):
        for table in rich_tables(text_table, console.width):
            console.print(table)
    if run.shared:
        console.print("[dim]Shares: smallest and largest of any process, relative to the launch's mean.[/]")
    for key in sorted({mark for s in run.series for mark in marks_of(s)}, key=list(MARKS).index):
        console.print(f"[{_MARK_STYLES[key]}]{MARKS[key][0]}[/] {MARKS[key][1]}")
    if not run.complete:
        console.print(f"[yellow]This run is incomplete (stopped by {escape(str(run.stopped_by))}).[/]")
    if any(s.interval is None and s.median is not None for s in run.series):
        console.print(
            f"[dim]No interval where fewer than {launches_for_interval(run.confidence)} launches were made.[/]"
        )
    if not run.shared and has_baseline(run, _BASELINE):
        # The floor is a reference, not a subject to compare.
        comparisons = [
            versus
            for versus in compare_in_run(run, _BASELINE, Settings(confidence=run.confidence))
            if not is_floor(versus.a.subject)
        ]
        for table in ratio_tables(comparisons, width=console.width):
            console.print(table)


def run_tables(run: Run, *, width: int = 100) -> list[Table]:
    """Per place, a table of rows × subjects; split if the subjects need more columns than `width`."""
    tables = []
    for place, series in mpi.by_place(run):
        subjects = list(dict.fromkeys(s.subject for s in series))
        for part in _parts(subjects, [s.row for s in series], width, _CELL_COLUMNS):
            chosen = [s for s in series if s.subject in part]
            cells = {(s.row, s.subject): _cell(s) for s in chosen}
            tables.append(_matrix(_title(chosen), place, part, cells))
    return tables


def convergence_tables(run: Run, *, width: int = 100) -> list[Table]:
    """Per place, rows × subjects: launches until the interval was narrow enough, and samples in each of them."""
    tables = []
    for place, series in mpi.by_place(run):
        subjects = list(dict.fromkeys(s.subject for s in series))
        title = f"{title_of(place)}: launches until within ± {run.parameters['precision']:.1%} × samples of a launch"
        for part in _parts(subjects, [s.row for s in series], width, _CELL_COLUMNS):
            cells = {(s.row, s.subject): Text(convergence(s)) for s in series if s.subject in part}
            tables.append(_matrix(title, place, part, cells))
    return tables


def _text_tables(run: Run) -> Iterator[mpi.TextTable]:
    yield from (text_table for _, _, text_table in mpi.parameter_tables(run))
    yield from (text_table for _, _, text_table, _ in mpi.phase_tables(run))
    yield from mpi.speedup_tables(run)
    yield from mpi.law_tables(run, laws_of(run))


def rich_tables(text_table: mpi.TextTable, width: int) -> Iterator[Table]:
    """The table, split by columns to fit the width; each part repeats the first column."""
    columns = list(zip(text_table.headings, *text_table.rows, strict=True))
    needs = [max(len(word) for text in (heading.split(), cells) for word in text) for heading, *cells in columns]
    start = 1
    while start < len(columns):
        end, room = start + 1, width - needs[0] - needs[start] - 2 * _PADDING
        while end < len(columns) and needs[end] + _PADDING <= room:
            room -= needs[end] + _PADDING
            end += 1
        notes = text_table.notes if end == len(columns) else ()
        yield _table_of(text_table.title, [columns[0], *columns[start:end]], "\n".join(notes))
        start = end


def _table_of(title: str, columns: Sequence[Sequence[str]], notes: str) -> Table:
    left: JustifyMethod = "left"
    caption = escape(notes) or None
    table = Table(title=escape(title), title_justify=left, caption=caption, caption_justify=left, box=SIMPLE_HEAD)
    for place, (heading, *_) in enumerate(columns):
        table.add_column(escape(heading), justify="right" if place else left, overflow="fold")
    for cells in zip(*(cells for _, *cells in columns), strict=True):
        table.add_row(*map(escape, cells))
    return table


def sharing_tables(run: Run) -> list[Table]:
    """Per test, size and subject: totals and shares by number of processes."""
    tables, sure = [], percent(run.confidence)
    for test, size, subject in dict.fromkeys((row.test, row.message_bytes, row.subject) for row in run.shared):
        rows = [row for row in run.shared if (row.test, row.message_bytes, row.subject) == (test, size, subject)]
        is_rate = test != "pingpong"
        what = f"{test_title(test)}, {message_size(size)}, {subject_name(subject)}, in {unit_name(rows[0].unit)}"
        table = Table(title=escape(what), title_justify="left", box=SIMPLE_HEAD)
        total_heading = f"{'in total' if is_rate else 'all'} [{sure}]"
        for name in ("processes", total_heading, "to one", "shares", f"each [{sure}]"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*_sharing_cells(row))
        tables.append(table)
    return tables


def _sharing_cells(row: Shared) -> list[str | Text]:
    if row.median is None:
        return [str(row.processes), Text("no loss-free sample", style="yellow"), "–", "–", "–"]
    each = (f"{number(value)} {bounds(ends)}".rstrip() for value, ends in zip(row.each, row.each_interval, strict=True))
    return [
        str(row.processes),
        Text(f"{number(row.median)} {bounds(row.interval)}".rstrip(), style="bold"),
        number(row.ratio_to_one),
        f"{number(row.smallest_share)}, {number(row.largest_share)}",
        "\n".join(each),
    ]


def versus_tables(
    comparisons: Sequence[Versus], *, a_name: str | None = None, b_name: str | None = None, with_tests: bool = False
) -> list[Table]:
    """Per test and subject: both medians, ratio with interval, corrected p values, verdict about A.

    The names of the sides default to the names of their subjects. `with_tests` adds the differences and the tests
    as papers print them.
    """
    families: dict[tuple[Place, str, str], list[Versus]] = {}
    for versus in comparisons:
        families.setdefault((versus.a.place, versus.a.subject, versus.a.variant), []).append(versus)
    tables = []
    for (place, subject, variant), family in families.items():
        what, base = title_of(place), family[0].b
        if a_name is None and base.subject == subject:
            # Variants of one subject.
            what, a_label, b_label = f"{what}, {subject_name(subject)}", variant, base.variant
        else:
            a_label, b_label = a_name or subject_name(subject), b_name or subject_name(base.subject)
            what = ", ".join([what, *([subject_name(subject)] if a_name else []), *([variant] if variant else [])])
        better = "below" if family[0].a.lower_is_better else "above"
        title = f"{what}: {a_label} / {b_label} ({better} 1: {a_label} is {verdict_word('A faster', family[0].a)})"
        tables.append(_versus_table(title, family))
        if with_tests:
            tables += _tests_tables(f"{what}: {a_label} − {b_label}", family)
    return tables


def _versus_table(title: str, family: Sequence[Versus]) -> Table:
    """Both medians, ratio, corrected p values or, of two runs, the ratio by their floors; the verdict."""
    unit, sure = unit_name(family[0].a.unit), percent(family[0].result.confidence)
    with_floors = any(versus.normalised for versus in family)
    ratios = ["A/B", f"by floors [{sure}]"] if with_floors else [f"A/B [{sure}]", "p Welch", "p rank"]
    table = _numbers_table(title, ["message", f"A {unit}", f"B {unit}", *ratios])
    table.add_column("A is", no_wrap=True)
    for versus in family:
        table.add_row(*_versus_cells(versus, with_floors=with_floors))
    return table


def _tests_tables(title: str, family: Sequence[Versus]) -> list[Table]:
    """Differences in their unit with their intervals; both tests as papers print them, uncorrected, then corrected."""
    unit, sure = unit_name(family[0].a.unit), percent(family[0].result.confidence)
    differences = _numbers_table(f"{title} in {unit} [{sure}]", ("message", "of medians, bootstrap", "of means, Welch"))
    tests = _numbers_table(
        f"{title}: t, df, p of means; U, p of ranks; p of equivalence; p by Holm",
        ("message", "t", "df", "p", "U", "p", "TOST p", "Welch", "rank"),
    )
    for versus in family:
        result, welch = versus.result, versus.result.welch
        of_means, of_t = "–", ["–"] * 3
        if welch is not None:
            of_means = f"{number(welch.difference)} {bounds(welch.interval)}"
            of_t = [f"{welch.t:.2f}", f"{welch.df:.1f}", p_value(welch.p)]
        of_medians = f"{number(result.difference)} {bounds(result.difference_interval)}".rstrip()
        differences.add_row(_row_of(versus), of_medians, of_means)
        ranks = [f"{result.rank_test.u:g}", p_value(result.rank_test.p)]
        tests.add_row(_row_of(versus), *of_t, *ranks, p_value(result.equivalence_p), *_corrected(versus))
    return [differences, tests]


def _numbers_table(title: str, headings: Sequence[str]) -> Table:
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD)
    for heading in headings:
        table.add_column(escape(heading), justify="right", no_wrap=True)
    return table


def ratio_tables(comparisons: Sequence[Versus], *, width: int) -> list[Table]:
    """Per test, sizes × subjects: the ratio to the baseline with its interval and the verdict in one word."""
    tables = []
    for place in dict.fromkeys(
        versus.a.place for versus in comparisons if not is_detail(versus.a.test, versus.a.quantity)
    ):
        chosen = [versus for versus in comparisons if versus.a.place == place]
        better = "below" if chosen[0].a.lower_is_better else "above"
        subjects = list(dict.fromkeys(versus.a.subject for versus in chosen))
        bases = {versus.b.subject for versus in chosen}
        base = subject_name(bases.pop()) if len(bases) == 1 else baseline_name(_BASELINE, subjects)
        title = f"{title_of(place)}: ratio to {base} ({better} 1 is {verdict_word('A faster', chosen[0].a)})"
        for part in _parts(subjects, [versus.a.row for versus in chosen], width, _RATIO_COLUMNS):
            rows = {
                (versus.a.row, versus.a.subject): _ratio_cell(versus) for versus in chosen if versus.a.subject in part
            }
            tables.append(_matrix(title, place, part, rows))
    return tables


def _parts(subjects: Sequence[str], rows: Sequence[Row], width: int, cell_columns: int) -> list[Sequence[str]]:
    """Split the subjects into groups that fit the width, after the columns that identify a row."""
    fixed_width = _SIZE_COLUMNS
    fixed_width += max((len(row.variant) + _WORD_COLUMNS for row in rows if row.variant), default=0)
    fixed_width += _SIZE_COLUMNS if any(row.value is not None for row in rows) else 0
    per_table = max(1, (width - fixed_width) // cell_columns)
    return [subjects[start : start + per_table] for start in range(0, len(subjects), per_table)]


def _matrix(title: str, place: Place, subjects: Sequence[str], cells: Mapping[tuple[Row, str], Text]) -> Table:
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD)
    rows = sorted({row for row, _ in cells}, key=lambda row: row.order)
    with_variant, with_value = any(row.variant for row in rows), any(row.value is not None for row in rows)
    if with_variant:
        table.add_column("variant")
    if with_value:
        table.add_column(escape(place.parameter), justify="right")
    table.add_column("message", justify="right")
    for subject in subjects:
        table.add_column(escape(subject_name(subject)), justify="right")
    shown = None
    for row in rows:
        what = [] if not with_variant else ["" if row.variant == shown else escape(row.variant)]
        what += [] if not with_value else ["" if row.value is None else f"{row.value:g}"]
        shown = row.variant
        values = [cells.get((row, subject), Text("–", style="dim")) for subject in subjects]
        table.add_row(*what, message_size(row.message_bytes), *values)
    return table


def _title(series: Sequence[Series]) -> str:
    first = series[0]
    # The tail matters for the time of single messages; a rate is an aggregate of many.
    tail = ["p99"] if _has_tail(first) else []
    shares = [f"share of the {kind}" for kind in sorted({s.limit_kind for s in series if s.limit_kind})]
    below = f"; below it {', '.join(tail + shares)}" if tail or shares else ""
    return f"{title_of(first.place)}: median [{interval_heading(first.confidence)}] in {unit_name(first.unit)}{below}"


def _cell(series: Series) -> Text:
    cell = Text()
    if series.median is None:
        cell.append("no loss-free sample", style="yellow")
    else:
        cell.append(number(series.median), style="bold")
        cell.append(f" {interval(series.interval)}" if series.interval else "")
    details = [f"p99 {number(series.p99)}"] if _has_tail(series) and series.p99 is not None else []
    if series.fraction_of_limit is not None and not is_floor(series.subject):
        details.append(f"{series.fraction_of_limit:.0%}")
    marks = marks_of(series)
    if not (details or marks):
        return cell
    cell.append("\n" + " · ".join(details), style="dim")
    for mark in marks:
        cell.append(f" {MARKS[mark][0]}", style=_MARK_STYLES[mark])
    return cell


def _has_tail(series: Series) -> bool:
    """Whether values are times of single messages or executions; derived tests have one value per launch."""
    return series.lower_is_better and series.test not in DERIVED_TESTS


def _ratio_cell(versus: Versus) -> Text:
    result = versus.result
    cell = Text(_ratio(result))
    return cell.append(f"\n{verdict_word(result.verdict, versus.a)}", style=_VERDICT_STYLES[result.verdict])


def _row_of(versus: Versus) -> str:
    return row_name(Row("", versus.a.message_bytes, versus.a.parameter_value), versus.a.place)


def _versus_cells(versus: Versus, *, with_floors: bool) -> list[str | Text]:
    if with_floors:
        by_floors = "–" if versus.normalised is None else _ratio(versus.normalised)
        ratios = [number(versus.result.ratio), by_floors]
    else:
        ratios = [_ratio(versus.result), *_corrected(versus)]
    verdict = Text(verdict_word(versus.verdict, versus.a), style=_VERDICT_STYLES[versus.verdict])
    return [_row_of(versus), number(versus.a.median), number(versus.b.median), *ratios, verdict]


def _corrected(versus: Versus) -> list[str]:
    """The corrected p values of the comparison that gives the verdict."""
    return [p_value(versus.deciding.log_welch_p_holm), p_value(versus.deciding.rank_test_p_holm)]


def _ratio(result: Comparison) -> str:
    return f"{number(result.ratio)} {bounds(result.ratio_interval)}".rstrip()
