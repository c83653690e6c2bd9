# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Captions of a run's figures: each says what that figure shows, and only that."""

from collections import Counter
from collections.abc import Sequence

from barewire.report.figures import DISTRIBUTIONS_MAX
from barewire.report.mpi import task_name
from barewire.report.versus import MARGIN, Versus
from barewire.report.words import message_size, number, percent, subject_name, verdict_word
from barewire.results.quantities import TIME_UNITS
from barewire.results.run import Series, Shared
from barewire.stats.confidence import launches_for_interval

# Samples of the slowest percent that are so much longer than the median are worth a word.
_TAIL = 2.0


def size_caption(series: Sequence[Series]) -> str:
    """Of medians against message size."""
    limit = " Dashed: the wire’s limit." if any(s.limit_kind == "wire" and s.limit for s in series) else ""
    hidden = without_place([s for s in series if s.message_bytes])
    return f"Medians of {_launches([s.launches for s in series])}. {_bands(series)}{limit}{hidden}"


def variants_caption(series: Sequence[Series]) -> str:
    """Of variants side by side."""
    sure = series[0].confidence
    bars = f"Bars: {percent(sure)} intervals." if any(s.interval for s in series) else _few(sure)
    tasks: dict[str, list[Series]] = {}
    for s in series:
        tasks.setdefault(task_name(s), []).append(s)
    hidden = without_place(*tasks.values(), intervals="Bars")
    return f"Medians of {_launches([s.launches for s in series])}. {bars}{hidden}"


def ratio_caption(comparisons: Sequence[Versus], base: str) -> str:
    """Of ratios to a baseline: which side is the faster one, and how many points are beyond doubt."""
    side = "Below" if comparisons[0].a.lower_is_better else "Above"
    counts = Counter(verdict_word(versus.verdict, versus.a) for versus in comparisons)
    found = ", ".join(f"{count} {word}" for word, count in counts.most_common())
    sure = comparisons[0].result.confidence
    has_intervals = any(versus.result.ratio_interval for versus in comparisons)
    bars = f"bars: {percent(sure)} intervals" if has_intervals else _few(sure).lower()[:-1]
    word = verdict_word("A faster", comparisons[0].a)
    points = f"{len(comparisons)} point{'s' if len(comparisons) != 1 else ''}"
    return f"{side} 1 is {word} than {base}; {bars}; grey: ±{percent(MARGIN)}. Of {points}: {found}."


def distribution_caption(series: Sequence[Series]) -> str:
    """Of distributions: how many samples, and how long the tails are."""
    used = [s for s in series if s.samples]
    counts = sorted({s.samples for s in used})
    span = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
    text = f"All samples after warm-up, {span} for each subject and row."
    rows = {s.row for s in series}
    if len(rows) > DISTRIBUTIONS_MAX:
        text += f" {DISTRIBUTIONS_MAX} of {len(rows)} rows; samples.parquet has all."
    ends = [[(s.min or 0.0, s.max or 0.0) for s in used if s.row == row] for row in rows]
    if any(min(low for low, _ in each) <= 0 < max(high for _, high in each) for each in ends if each):
        text += " Samples of 0 or less count, but have no place on this axis."
    if used[0].unit in TIME_UNITS:
        worst = max(used, key=lambda s: (s.p99 or 0.0) / (s.median or 1.0))
        ratio = (worst.p99 or 0.0) / (worst.median or 1.0)
        if ratio >= _TAIL:
            where = f"{subject_name(worst.subject)} at {message_size(worst.message_bytes)}"
            text += (
                f" The longest tail: {where}, whose slowest percent takes more than {number(ratio)} times the median."
            )
        else:
            text += f" No tail: the slowest percent takes less than {number(_TAIL, 1)} times the median everywhere."
    return text


def processes_caption(shared: Sequence[Shared]) -> str:
    """Of totals against the number of processes."""
    return f"Medians of {_launches([row.launches for row in shared])}. {_bands(shared)}"


def without_place(*figures: Sequence[Series], intervals: str = "Bands") -> str:
    """What a logarithmic axis, which a figure has if any median is above 0, does not show of medians and intervals."""
    drawn = [[s for s in series if s.median is not None] for series in figures]
    logarithmic = [s for series in drawn if any((s.median or 0.0) > 0 for s in series) for s in series]
    hidden = [s for s in logarithmic if (s.median or 0.0) <= 0]
    text = ""
    if hidden:
        have = "values of 0 or less have" if len(hidden) > 1 else "value of 0 or less has"
        text = f" {len(hidden)} {have} no place on this axis."
    if any(s.interval and s.interval[0] <= 0 for s in logarithmic if s not in hidden):
        text += f" {intervals} that reach 0 are cut off."
    return text


def _launches(counts: Sequence[int]) -> str:
    few, many = min(counts), max(counts)
    return f"{few} launch{'es' if few != 1 else ''}" if few == many else f"{few} to {many} launches"


def _bands(shown: Sequence[Series | Shared]) -> str:
    known, sure = [each.interval is not None for each in shown], shown[0].confidence
    if all(known):
        return f"Bands: {percent(sure)} intervals."
    return f"Bands: {percent(sure)} intervals, where there are enough launches." if any(known) else _few(sure)


def _few(confidence: float) -> str:
    return f"No intervals: fewer than {launches_for_interval(confidence)} launches."
