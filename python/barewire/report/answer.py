# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The first screen of a page: the question, the answer in one sentence, and the figure that shows it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from barewire.models.naming import read_mpi_subject
from barewire.report import budget
from barewire.report.captions import ratio_caption, size_caption
from barewire.report.figures import Figure, against_size, ratio_rows, ratios
from barewire.report.findings import headline_subject, headlines, times_limit
from barewire.report.versus import MARGIN, Versus
from barewire.report.words import (
    message_size,
    number,
    p_value,
    percent,
    quantity,
    row_name,
    subject_name,
    title_of,
    verdict_word,
)
from barewire.results.quantities import has_own_sizes, is_detail
from barewire.results.run import Place, Run, Series
from barewire.stats.confidence import launches_for_interval

_FIRST_TESTS = ("pingpong", "stream")
# Fits a frame of minimum length, and is the most frequent size in programs.
_SHORT_BYTES = 64
# A figure with one line for each row is not legible with more.
_ROWS_MAX = 16


@dataclass(frozen=True)
class Answer:
    """`figure` is None if nothing can be drawn, and `more` what else was found, in sentences."""

    question: str
    sentence: str
    more: tuple[str, ...] = ()
    title: str = ""
    caption: str = ""
    figure: Figure | None = None


def answer(run: Run, comparisons: Sequence[Versus], baseline: str) -> Answer:
    """The answer of a run of messages; `baseline` is what subjects are compared with, as readers know it."""
    if of_budget := budget.headlines(run):
        (section,) = budget.sections(run)
        first = section["figures"][0]
        question = "Where does the time of a message go?"
        return Answer(question, of_budget[0], tuple(of_budget[1:]), first["title"], "", first["figure"])
    main = _main(comparisons)
    if main:
        others = tuple(s for s in run.series if not _is_told(s, main[0].a.place))
        more = headlines(replace(run, series=others), comparisons)
        return replace(_compared(main, baseline), more=tuple(more))
    found = headlines(run, comparisons)
    if not found:
        return Answer("", "This run has no result.")
    return replace(_alone(run, found[0]), more=tuple(found[1:]))


def _is_told(series: Series, place: Place) -> bool:
    """Whether a series is of the table, or of ping-pongs and streams the test, that the answer is about."""
    return series.test == place.test if place.test in _FIRST_TESTS else series.place == place


def _main(comparisons: Sequence[Versus]) -> list[Versus]:
    """All subjects' comparisons of the first test's main quantity: of one place, and of the first variant."""
    candidates = [versus for versus in comparisons if not is_detail(versus.a.test, versus.a.quantity)]
    if not candidates:
        return []
    tests = {versus.a.test for versus in candidates}
    test = next((name for name in _FIRST_TESTS if name in tests), candidates[0].a.test)
    place = _first_place([versus.a.place for versus in candidates if versus.a.test == test])
    of_place = [versus for versus in candidates if versus.a.place == place]
    if has_own_sizes(test):
        return of_place
    return [versus for versus in of_place if versus.a.variant == of_place[0].a.variant]


def _first_place(places: Sequence[Place]) -> Place:
    def order(place: Place) -> tuple[int, int, int]:
        # Of ping-pongs and streams one pair alone, of patterns and kernels the most ranks.
        return place.processes, place.pairs, place.ranks if place.test in _FIRST_TESTS else -place.ranks

    return min(places, key=order)


def _compared(main: Sequence[Versus], baseline: str) -> Answer:
    place = main[0].a.place
    subject = headline_subject({versus.a.subject for versus in main}, main)
    points = [versus for versus in main if versus.a.subject == subject]
    sizes = {versus.a.message_bytes for versus in main}
    if has_own_sizes(place.test) or len(sizes) == 1:
        shown = points[:_ROWS_MAX] if len(points) > _ROWS_MAX else list(main)
        rows = [row_name(versus.a.row, place) for versus in shown]
        figure = ratio_rows(shown, baseline, rows)
    else:
        shown = [versus for versus in main if versus.a.message_bytes]
        figure = ratios(shown, baseline)
    word = "faster" if points[0].a.lower_is_better or points[0].a.unit.endswith("/s") else "better"
    question = f"Is {_name(points[0].a, is_first=False)} {word} than {subject_name(points[0].b.subject)}?"
    title = f"{title_of(place)}: ratio to {baseline}"
    return Answer(question, _sentence(points), (), title, ratio_caption(shown, baseline), figure)


def _sentence(points: Sequence[Versus]) -> str:
    point = _point(points)
    a, result = point.a, point.result
    where = "" if a.test in _FIRST_TESTS else f"{title_of(a.place)}: "
    row = message_size(a.message_bytes).replace(" ", "\u00a0") if a.test in _FIRST_TESTS else row_name(a.row, a.place)
    value = f"{_verb(a)} {quantity(a.median, a.unit)}{_way(a)} at {row}"
    if a.verdict == "impossible":
        value += ", which is impossible: better than the limit,"
    launches = min(result.launches_a, result.launches_b)
    each = f"{launches}\u00a0launch{'es' if launches != 1 else ''} each"
    if result.ratio_interval is None:
        sure = f"{each}: too few for an interval, which needs {launches_for_interval(result.confidence)}"
    else:
        low, high = map(number, result.ratio_interval)
        p = p_value(min(p for p in (result.log_welch_p_holm, result.rank_test_p_holm) if p is not None))
        smallest = p.removeprefix("<")
        p = f"p\u00a0{'<' if p != smallest else '='}\u00a0{smallest}"
        sure = f"{percent(result.confidence)} interval {low} to {high}, {p}, {each}"
    base = f"{subject_name(point.b.subject)}’s {quantity(point.b.median, a.unit)}"
    text = f"{where}{_name(a, is_first=not where)} {value}, {number(result.ratio)}\u00a0× {base} ({sure}): "
    of_limit = f"; it is {limit}" if (limit := times_limit(a)) else ""
    return f"{text}{_verdict(point)}{_overall(points)}{of_limit}."


def _verdict(point: Versus) -> str:
    word = verdict_word(point.verdict, point.a)
    return {
        "no difference": f"no difference of more than {percent(MARGIN)}",
        "undecided": "undecided",
    }.get(word, word)


def _overall(points: Sequence[Versus]) -> str:
    """What holds at how many of the sizes, or other rows."""
    if len(points) == 1:
        return ""
    counts = Counter(verdict_word(versus.verdict, versus.a) for versus in points)
    if has_own_sizes(points[0].a.test):
        rows = "variants"
        span = ""
    else:
        sizes = [versus.a.message_bytes for versus in points]
        rows = "sizes"
        span = f", {message_size(min(sizes))} to {message_size(max(sizes))}"
    if len(counts) == 1:
        return f", and {next(iter(counts))} at all {len(points)} {rows}{span}"
    parts = ", ".join(f"{word} at {count}" for word, count in counts.most_common())
    return f"; of all {len(points)} {rows}{span}, {parts}"


def _point(points: Sequence[Versus]) -> Versus:
    """The comparison that is told: at 64 bytes for times, with the longest messages for rates, of kernels the best."""
    if has_own_sizes(points[0].a.test):
        return min(points, key=lambda versus: versus.a.median or 0.0)
    if points[0].a.lower_is_better:
        return min(points, key=lambda versus: abs(versus.a.message_bytes - _SHORT_BYTES))
    return max(points, key=lambda versus: versus.a.message_bytes)


def _alone(run: Run, sentence: str) -> Answer:
    """Without a baseline: the values of the first test."""
    series = [s for s in run.series if s.median is not None and not is_detail(s.test, s.quantity)]
    tests = {s.test for s in series}
    test = next((name for name in _FIRST_TESTS if name in tests), series[0].test)
    place = _first_place([s.place for s in series if s.test == test])
    of_place = [s for s in series if s.place == place]
    shown = [s for s in of_place if s.variant == of_place[0].variant and s.message_bytes]
    is_time = of_place[0].lower_is_better
    question = (
        "How long does a message take?"
        if test == "pingpong"
        else f"{title_of(place)}: how {'long' if is_time else 'much'}?"
    )
    if has_own_sizes(test) or len({s.message_bytes for s in shown}) < 2:
        return Answer(question, sentence)
    figure = against_size(shown, "median time" if shown[0].lower_is_better else "median rate")
    return Answer(question, sentence, (), title_of(place), size_caption(shown), figure)


def _name(series: Series, *, is_first: bool) -> str:
    name = subject_name(series.subject)
    # The name of an MPI subject is typed as is, so it is not capitalised.
    return name if not is_first or read_mpi_subject(series.subject) else name[:1].upper() + name[1:]


def _verb(series: Series) -> str:
    return "takes" if series.lower_is_better else "carries" if series.test == "stream" else "reaches"


def _way(series: Series) -> str:
    return " one way" if series.test == "pingpong" else " in one direction" if series.test == "stream" else ""
