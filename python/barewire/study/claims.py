# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Decides claims: what was published beside what was measured now, and a verdict with its reason.

Absolute values are not compared: the published ones are of other machines. A claim holds if what it says holds beyond
doubt today, at the plan's confidence, corrected over all rows of the claim; bounds are held against each row's own
interval.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from barewire.errors import WrongUse
from barewire.models.wire import latency_limit_us
from barewire.report.host import sentence
from barewire.report.words import message_size, number, percent
from barewire.results.host import host_crossovers
from barewire.results.laws import SIZES_MIN, Law, laws_of
from barewire.results.run import Place, Run, Series
from barewire.results.store import read_run, samples
from barewire.stats.comparison import Comparison, compare_over_sizes
from barewire.stats.confidence import interval_name, launches_for_interval
from barewire.stats.intervals import mean_interval, median_interval
from barewire.study.findings import (
    MARGIN,
    Finding,
    Interval,
    Row,
    Verdict,
    faster,
    grows,
    in_bounds,
    incomplete,
    named,
    place_of,
    published_ratio,
    told_apart,
)
from barewire.study.network_claims import judge_alike, judge_recognised, judge_simulated, judge_strategy
from barewire.study.plan import Claim, Plan
from barewire.study.steps import Record, document_of
from barewire.study.tables import as_number, factor_to, is_round_trip

# What tells series of one step apart.
_COORDINATES = (*Place._fields, "subject", "variant", "parameter_value", "message_bytes")


def judge(plan: Plan, directory: Path, record: Record) -> list[Finding]:
    """Return what became of each claim, in the plan's order."""
    runs: dict[str, Run] = {}
    return [_judge(claim, plan, directory, record, runs) for claim in plan.claims]


def _judge(claim: Claim, plan: Plan, directory: Path, record: Record, runs: dict[str, Run]) -> Finding:
    for step in claim.steps:
        done = record.steps.get(step)
        if done is None or done.state != "done":
            outcome, reason = ("was not run yet", "") if done is None else (done.outcome, done.reason)
            return Finding(claim, "cannot be decided", f"step '{step}' {outcome}{reason and f': {reason}'}")
        if plan.step(step).leaves_run and step not in runs:
            runs[step] = replace(read_run(directory / step), confidence=plan.confidence)
    match claim.kind:
        case "faster" | "no-difference" | "grows" | "ratio":
            return _of_pairs(claim, plan.confidence, runs)
        case "within":
            return _within(claim, runs, plan.confidence)
        case "break":
            return _break(claim, runs, plan.confidence)
        case "crossover":
            return _crossover(claim, directory, plan.confidence)
        case "strategy":
            if claim.step is not None and not plan.step(claim.step).leaves_run:
                return judge_simulated(claim, directory, plan.confidence)
            return judge_strategy(claim, directory, runs)
        case "alike":
            return judge_alike(claim, directory, runs)
        case "predicted":
            return _predicted(claim, directory, plan.confidence)
        case "recognised":
            return judge_recognised(claim, directory, plan.confidence)
        case "impossible":
            return _impossible(claim)
        case "bytes":
            return _bytes(claim, directory)


def _of_pairs(claim: Claim, confidence: float, runs: Mapping[str, Run]) -> Finding:
    pairs = _pairs(claim, runs)
    if not pairs:
        return Finding(claim, "cannot be decided", _nothing(claim, runs))
    _check_unit(claim, [series for pair in pairs for series in pair])
    results = compare_over_sizes(
        [(a.launch_medians, b.launch_medians) for a, b in pairs],
        lower_is_better=pairs[0][0].lower_is_better,
        margin=MARGIN,
        confidence=confidence,
    )
    labels = _labels(claim, *zip(*pairs, strict=True))
    rows = tuple(
        _compared(claim, label, a, b, result) for label, (a, b), result in zip(labels, pairs, results, strict=True)
    )
    names = _names(claim, pairs)
    if claim.kind == "grows":
        verdict, why = grows(rows, lower_is_better=pairs[0][0].lower_is_better)
    elif claim.kind == "faster":
        verdict, why = faster(rows)
    elif claim.kind == "ratio":
        rows = tuple(replace(row, says=place_of(claim, row.interval)) for row in rows)
        verdict, why = in_bounds(claim, rows)
    else:
        verdict, why = told_apart(rows, [row.label for row in rows if row.says in ("better", "worse")])
    finding = Finding(claim, verdict, f"{why} {_few(results, confidence)}".strip(), rows, names)
    return _with_lost(finding, runs, {_key(claim, a) for a, _ in pairs})


def _check_unit(claim: Claim, series: Sequence[Series]) -> None:
    """Raise WrongUse for values in several units."""
    units = {each.unit for each in series}
    if len(units) > 1:
        raise WrongUse(f"'{claim.text}' compares values in {' and '.join(sorted(units))}")


def _pairs(claim: Claim, runs: Mapping[str, Run]) -> list[tuple[Series, Series]]:
    def chosen(side: Mapping[str, Any] | None) -> list[Series]:
        assert side is not None
        return [series for series in _select(side, runs) if series.launch_medians and min(series.launch_medians) > 0]

    ours, others = chosen(claim.a), chosen(claim.b)
    if claim.kind == "ratio":
        ours, others = _best(claim, ours), _best(claim, others)
    found = [(a, b) for a in ours for b in others if _key(claim, a) == _key(claim, b)]
    if claim.beyond_limit:
        found = [(a, _later(b, a.limit)) for a, b in found if a.limit is not None and a.lower_is_better]
    return sorted(found, key=lambda pair: _key(claim, pair[0]))


def _later(series: Series, us: float) -> Series:
    """The same after a time."""
    assert series.median is not None
    return replace(series, median=series.median + us, launch_medians=tuple(each + us for each in series.launch_medians))


def _with_lost(finding: Finding, runs: Mapping[str, Run], used: Collection[tuple[float | str, ...]]) -> Finding:
    lost = _lost(finding.claim, runs, used)
    return incomplete(finding, f"No usable values at {named(lost)}.") if lost else finding


def _lost(claim: Claim, runs: Mapping[str, Run], used: Collection[tuple[float | str, ...]] = ()) -> list[str]:
    """Labels of where every side was measured, but one has no usable value: lost messages, or values of 0 or less."""
    sides = [_select(side, runs) for side in (claim.a, claim.b) if side is not None]
    measured = [{_key(claim, series): _label(claim, series) for series in side} for side in sides]
    return [measured[0][key] for key in sorted(set.intersection(*(set(side) for side in measured)) - {*used})]


def _nothing(claim: Claim, runs: Mapping[str, Run]) -> str:
    """Why a claim about runs has no rows."""
    for side in (claim.a, claim.b):
        if side is not None and not _select(side, runs):
            fields = [_selection_in_words(name, wanted) for name, wanted in side.items() if name != "step"]
            return f"step '{side['step']}' has no values" + (f" of {', '.join(fields)}" if fields else "")
    if (claim.of_limit or claim.beyond_limit) and not any(each.limit for each in _select(claim.a or {}, runs)):
        return "the link has no rate, so no limit of its wire is known"
    if lost := _lost(claim, runs):
        return f"no usable values at {named(lost)}"
    return "the runs have no values of both sides with the same key"


def _best(claim: Claim, side: Sequence[Series]) -> list[Series]:
    """The best series of each key."""
    medians = {id(series): median(series.launch_medians) for series in side}
    worst_first = sorted(side, key=lambda each: medians[id(each)] * (1 if each.lower_is_better else -1), reverse=True)
    return list({_key(claim, series): series for series in worst_first}.values())


def _select(side: Mapping[str, Any], runs: Mapping[str, Run]) -> list[Series]:
    return selected(side, runs[side["step"]])


def selected(side: Mapping[str, Any], run: Run) -> list[Series]:
    """Return series of a step's run by their fields."""
    wanted = {name: value for name, value in side.items() if name != "step"}
    return [series for series in run.series if _has(series, wanted)]


def _has(one: object, wanted: Mapping[str, Any]) -> bool:
    """Whether fields have these values; a list is any of its values."""
    return all(
        getattr(one, name) in value if isinstance(value, list) else getattr(one, name) == value
        for name, value in wanted.items()
    )


def _key(claim: Claim, series: Series) -> tuple[float | str, ...]:
    values = (getattr(series, name) for name in claim.key)
    return tuple(value if isinstance(value, str) else float(value or 0) for value in values)


def _at(claim: Claim, series: Series) -> float:
    return float(_key(claim, series)[-1])


def _names(claim: Claim, pairs: Sequence[tuple[Series, Series]]) -> tuple[str, str]:
    """What both sides are called: where that is the same, with the fields in which the claim tells them apart."""
    assert claim.a is not None and claim.b is not None
    first, second = (_name(claim, side) for side in zip(*pairs, strict=True))
    differing = [name for name in {**claim.a, **claim.b} if claim.a.get(name) != claim.b.get(name)]
    if first != second or not differing:
        return first, second
    told = [", ".join(_selection_in_words(name, side.get(name)) for name in differing) for side in (claim.a, claim.b)]
    return f"{first} ({told[0]})", f"{second} ({told[1]})"


def _selection_in_words(name: str, wanted: Any) -> str:
    words = name.replace("_", " ")
    if wanted is None:
        return f"any {words}"
    values = ", ".join(str(each) for each in wanted) if isinstance(wanted, list) else str(wanted)
    return values if name == "quantity" else f"{words} {values}"


def _name(claim: Claim, series: Sequence[Series]) -> str:
    """What a side is called: its subjects with their variants, if those are not in the key."""
    with_variant = "variant" not in claim.key
    return ", ".join(dict.fromkeys(f"{each.subject} {each.variant * with_variant}".strip() for each in series))


def _compared(claim: Claim, label: str, a: Series, b: Series, result: Comparison) -> Row:
    at = _at(claim, a)
    published = _published(claim, at, a.unit)
    row = Row(
        label,
        at,
        published,
        (a.median, b.median),
        a.unit,
        published_ratio(published),
        result.ratio,
        result.ratio_interval,
        {"A faster": "better", "B faster": "worse"}.get(result.verdict, result.verdict),
        result.welch.p if result.welch else None,
        result.welch.difference if result.welch else None,
        result.welch.interval if result.welch else None,
    )
    return _with_published_test(claim, row)


def _published(claim: Claim, at: float | None, unit: str) -> tuple[float | None, ...]:
    """The published values of each side in this row, times in today's unit."""
    return tuple(_published_value(claim, side, column, at, unit) for side, column in enumerate(claim.columns))


def _published_value(claim: Claim, side: int, column: str, at: float | None, unit: str) -> float | None:
    value = as_number(_published_row(claim, side, at).get(column))
    return None if value is None else value * factor_to(unit, column)


def _published_row(claim: Claim, side: int, at: float | None) -> Mapping[str, str]:
    """A side's row of the published table: that of the key, or the only one; empty if there is none."""
    table = claim.table_of(side)
    if table is None:
        return {}
    if claim.rows is None:
        return table.rows[0]
    return {} if at is None else table.row(claim.rows, at)


def _with_published_test(claim: Claim, row: Row) -> Row:
    """The row with the published difference, its interval and p, where the plan names their columns."""
    ends = [_published_value(claim, 0, column, row.at, row.unit) for column in claim.interval]
    low, high = ends or (None, None)
    first, second = row.published or (None, None)
    difference = None if first is None or second is None else first - second
    return replace(
        row,
        published_difference=difference if claim.interval else None,
        published_interval=None if low is None or high is None else (low, high),
        published_p=_published_row(claim, 0, row.at).get(claim.p) if claim.p else None,
    )


def _label(claim: Claim, series: Series) -> str:
    return ", ".join(_field_in_words(series, name) for name in claim.key)


def _field_in_words(series: Series, name: str) -> str:
    value, words = getattr(series, name), name.replace("_", " ")
    if value is None:
        return f"no {words}"
    if isinstance(value, str):
        return value
    return message_size(value) if name == "message_bytes" else f"{words} {value:g}"


def _labels(claim: Claim, *sides: Sequence[Series]) -> list[str]:
    """What the rows are called: by their key and, where keys repeat, by what else tells a side's series apart."""
    labels = [_label(claim, series) for series in sides[0]]
    if len(set(labels)) == len(labels):
        return labels
    further = [
        [f"{'against ' if number and each else ''}{each}" for each in _further(claim, side)]
        for number, side in enumerate(sides)
    ]
    return [", ".join(filter(None, parts)) for parts in zip(labels, *further, strict=True)]


def _further(claim: Claim, side: Sequence[Series]) -> list[str]:
    """Of each series, in words, the coordinates in which they differ, besides the key."""
    names = [
        name for name in _COORDINATES if name not in claim.key and len({getattr(series, name) for series in side}) > 1
    ]
    return [" ".join(_field_in_words(series, name) for name in names) for series in side]


def _within(claim: Claim, runs: Mapping[str, Run], confidence: float) -> Finding:
    assert claim.a is not None
    found = [series for series in _select(claim.a, runs) if series.median is not None]
    if claim.of_limit:
        found = [_of_limit(series, series.limit) for series in found if series.limit]
    if not found:
        return Finding(claim, "cannot be decided", _nothing(claim, runs))
    _check_unit(claim, found)
    found.sort(key=lambda each: _key(claim, each))
    rows = []
    for label, series in zip(_labels(claim, found), found, strict=True):
        interval = median_interval(series.launch_medians, confidence)
        at = _at(claim, series)
        published = _published(claim, at, series.unit)
        rows.append(
            Row(
                label,
                at,
                published,
                (series.median,),
                series.unit,
                published[0] if published else None,
                series.median,
                interval,
                place_of(claim, interval),
            )
        )
    verdict, why = in_bounds(claim, rows)
    few = (
        ""
        if all(row.interval is not None for row in rows)
        else f" With fewer than {launches_for_interval(confidence)} launches there is no interval."
    )
    finding = Finding(claim, verdict, f"{why}{few}", tuple(rows), (_name(claim, found),))
    return _with_lost(finding, runs, {_key(claim, series) for series in found})


def _of_limit(series: Series, limit: float) -> Series:
    """Values as shares of the wire's."""
    assert series.median is not None
    shares = tuple(each / limit for each in series.launch_medians)
    return replace(series, unit="of the limit", median=series.median / limit, launch_medians=shares)


def _break(claim: Claim, runs: Mapping[str, Run], confidence: float) -> Finding:
    assert claim.a is not None and claim.low is not None and claim.high is not None
    wanted = {name: claim.a[name] for name in ("subject", "variant") if name in claim.a}
    placed = {name: claim.a[name] for name in Place._fields if name in claim.a}
    run = runs[claim.a["step"]]
    laws = [law for law in laws_of(run) if _has(law, wanted) and _has(law.place, placed)]
    if not laws:
        few = f"break points need {SIZES_MIN} message sizes or more"
        return Finding(claim, "cannot be decided", few if _select(claim.a, runs) else _nothing(claim, runs))
    curves = {(law.place, law.subject, law.variant) for law in laws}
    medians = [each.launch_medians for each in run.series if (each.place, each.subject, each.variant) in curves]
    fewest = min(len(of_size) for of_size in medians if of_size)
    if fewest < launches_for_interval(confidence):
        why = f"With {_launches(fewest)} nothing is sure at {percent(confidence)}."
        return Finding(claim, "cannot be decided", why)
    found = [(_curve(law, laws), each) for law in laws for each in law.fit.breaks]
    published = _published(claim, None, "B")
    rows = tuple(
        Row(
            f"{curve}a step of {number(each.jump)} µs above",
            float(each.last_before),
            published,
            (float(each.last_before),),
            "B",
            published[0] if published else None,
            float(each.last_before),
            (float(each.low), float(each.high)),
            "here" if each.low <= claim.high and each.high >= claim.low else "elsewhere",
        )
        for curve, each in found
    )
    where = ", ".join(f"{curve}{_range(each.low, each.high)}" for curve, each in found) or "none"
    expected = _range(claim.low, claim.high)
    names = tuple(dict.fromkeys(law.subject for law in laws))
    if any(row.says == "here" for row in rows):
        return Finding(claim, "held", f"Breaks: {where}; one was expected between {expected}.", rows, names)
    return Finding(claim, "did not hold", f"Breaks: {where}; none between {expected}.", rows, names)


def _curve(law: Law, laws: Sequence[Law]) -> str:
    """The beginning of a label that says of which of several curves it is."""
    if len(laws) == 1:
        return ""
    ranks = f", {law.place.ranks} ranks" if len({each.place.ranks for each in laws}) > 1 else ""
    return f"{f'{law.subject} {law.variant}'.strip()}{ranks}: "


def _range(low: float, high: float) -> str:
    return f"{message_size(int(low))} to {message_size(int(high))}"


def _crossover(claim: Claim, directory: Path, confidence: float) -> Finding:
    """Whether one method is cheaper for small blocks, and another for large ones."""
    assert claim.step is not None
    crossovers = host_crossovers(samples(directory / claim.step), confidence)
    found = [each for each in crossovers if each.name == claim.crossover]
    if not found:
        return Finding(claim, "cannot be decided", f"the run has no {claim.crossover}: it needs a lab of this machine")
    crossover = found[0]
    low, high = crossover.interval or (0.0, float("inf"))
    verdict: Verdict = "cannot be decided"
    if crossover.smallest_bytes < low and high < crossover.largest_bytes:
        verdict = "held"
    elif crossover.interval is not None and (high <= crossover.smallest_bytes or low >= crossover.largest_bytes):
        verdict = "did not hold"
    published = ""
    if claim.low is not None and claim.high is not None:
        published = number(claim.low) if claim.low == claim.high else f"{number(claim.low)} to {number(claim.high)}"
    label = f"{crossover.first} or {crossover.second}" + (f", published {published} B" if published else "")
    says = {"held": "here", "did not hold": "one is always cheaper"}.get(verdict, "undecided")
    row = Row(label, None, (), (crossover.bytes,), "B", None, crossover.bytes, crossover.interval, says)
    return Finding(claim, verdict, f"{sentence(crossover, confidence)}.", (row,), (crossover.first, crossover.second))


def _predicted(claim: Claim, directory: Path, confidence: float) -> Finding:
    """Whether predictions miss what was measured by at most `high`: each one, or in the mean.

    The interval of an error is that of the measured time; that of the mean counts them as independent (Student).
    """
    assert claim.step is not None and claim.high is not None
    document = document_of(directory, claim.step)
    rows = [_error_row(claim, each, confidence) for each in document["predictions"]]
    if not rows:
        return Finding(claim, "cannot be decided", "; ".join(document["cannot_say"]) or "nothing was predicted")
    if claim.mean:
        errors = [row.ratio for row in rows if row.ratio is not None]
        interval = mean_interval(errors, confidence)
        mean = sum(errors) / len(errors)
        rows = [Row(f"{len(rows)} predictions", None, (), (mean,), "", None, mean, interval, place_of(claim, interval))]
    verdict, why = in_bounds(claim, rows)
    return Finding(claim, verdict, why, tuple(rows), ("predicted",))


def _error_row(claim: Claim, prediction: Mapping[str, Any], confidence: float) -> Row:
    """The magnitude of a prediction's error, between those that the bounds of the measured time would give."""
    predicted, measured = prediction["time_us"]["value"], prediction["measured_us"]
    interval: Interval = None
    if bounds_us := measured.get(interval_name(confidence)):
        low, high = (predicted / bound - 1 for bound in reversed(bounds_us))
        interval = (0.0 if low <= 0 <= high else min(abs(low), abs(high)), max(abs(low), abs(high)))
    error = abs(prediction["error"])
    return Row(
        f"{prediction['measured_as']}, {prediction['ranks']} ranks, {message_size(prediction['message_bytes'])}",
        None,
        (),
        (error,),
        "",
        None,
        error,
        interval,
        place_of(claim, interval),
    )


def _impossible(claim: Claim) -> Finding:
    """Whether the published values respect the wire. The claim is the paper's; physics decides it."""
    table = claim.table
    assert table is not None and claim.message_bytes is not None and claim.rate_bit_s is not None
    protocol: Any = claim.protocol
    limit = latency_limit_us(claim.message_bytes, protocol, 1500, claim.rate_bit_s)
    rows = []
    column = claim.columns[0]
    for found in table.rows:
        printed = as_number(found[column])
        if printed is None:
            continue
        one_way = printed * factor_to("us", column)
        says = "impossible" if one_way < limit else "possible"
        label = " ".join(value for name, value in found.items() if name != column)
        rows.append(Row(label, None, (one_way,), (limit,), "us", one_way, limit, None, says))
    if not rows:
        return Finding(claim, "cannot be decided", f"the table has no number in {column}")
    names = (f"one way, {'half of what' if is_round_trip(column) else 'as it'} was printed", "the wire's time")
    if any(row.says == "impossible" for row in rows):
        why = f"Its frames alone take {number(limit)} µs one way, so what was printed cannot be."
        return Finding(claim, "did not hold", why, tuple(rows), names)
    return Finding(claim, "held", "It is above the wire's time.", tuple(rows), names)


def _bytes(claim: Claim, directory: Path) -> Finding:
    assert claim.step is not None and claim.expected is not None
    document = document_of(directory, claim.step)
    rows = []
    for path, expected in claim.expected.items():
        value: Any = document
        for part in path.split("."):
            if isinstance(value, list):
                value = value[int(part)] if part.isdigit() and int(part) < len(value) else None
            else:
                value = value.get(part) if isinstance(value, dict) else None
        measured = float(value) if isinstance(value, int | float) else None
        says = "equal" if measured == expected else "missing" if measured is None else "another value"
        label = path.rpartition(".")[2].replace("_", " ")
        rows.append(Row(label, None, (expected,), (measured,), "B", expected, measured, None, says))
    if any(row.says == "missing" for row in rows):
        return Finding(claim, "cannot be decided", "the capture has no such bytes", tuple(rows))
    other = [row.label for row in rows if row.says != "equal"]
    if other:
        return Finding(claim, "did not hold", f"Other values: {named(other)}.", tuple(rows))
    return Finding(claim, "held", f"All {len(rows)} as published.", tuple(rows))


def _few(results: Sequence[Comparison], confidence: float) -> str:
    if any(result.ratio_interval is None for result in results):
        fewest = min(min(result.launches_a, result.launches_b) for result in results)
        return f"With {_launches(fewest)} there is no interval at {percent(confidence)}."
    return ""


def _launches(count: int) -> str:
    return f"{count} launch{'' if count == 1 else 'es'}"
