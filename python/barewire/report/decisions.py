# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a run's models mean for its user, in sentences; only what the intervals support."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from barewire.models.naming import is_floor
from barewire.models.times import Interval
from barewire.report.versus import Settings, Versus, compare_in_run, has_baseline
from barewire.report.words import interval, message_size, number, subject_name, title_of, verdict_word
from barewire.results.fits import LatencyFit
from barewire.results.limits import eager_limit
from barewire.results.quantities import is_detail
from barewire.results.run import Place, Run, Series

_BASELINE = "tcp"
# Less is not worth the work of hiding it.
_SHARE_MIN = 5.0
_EAGER = "eager limit"
# A limit this close to where it should be makes no difference to a program.
_EAGER_MARGIN = 0.1


def decisions(run: Run, fits: Sequence[LatencyFit], baseline: str | None = None) -> list[str]:
    """Return one sentence per decision: who is faster at which sizes, where eager should end, what overlap hides."""
    return [*_faster(run, baseline), *_eager(run, fits), *_overlap(run)]


def _faster(run: Run, baseline: str | None) -> list[str]:
    subjects = list(dict.fromkeys(each.subject for each in run.series))
    chosen = baseline or (_BASELINE if has_baseline(run, _BASELINE) else subjects[0] if subjects else "")
    if len(subjects) < 2:
        return []
    groups: dict[tuple[Place, str, float | None, str], list[Versus]] = {}
    for versus in compare_in_run(run, chosen, Settings(confidence=run.confidence)):
        a = versus.a
        if not is_detail(a.test, a.quantity) and a.message_bytes and not is_floor(a.subject):
            groups.setdefault((a.place, a.variant, a.parameter_value, a.subject), []).append(versus)
    return [
        f"{_what(compared[0].a)}: {_who(compared[0])}: {_ranges(compared)}"
        for compared in groups.values()
        if any(versus.result.verdict != "undecided" for versus in compared)
    ]


def _what(series: Series) -> str:
    parts = [title_of(series.place), series.variant]
    parts += [] if series.parameter_value is None else [f"{series.parameter} {series.parameter_value:g}"]
    return ", ".join(part for part in parts if part)


def _who(versus: Versus) -> str:
    return f"{subject_name(versus.a.subject)} against {subject_name(versus.b.subject)}"


def _ranges(compared: list[Versus]) -> str:
    ordered = sorted(compared, key=lambda versus: versus.a.message_bytes)
    parts = []
    for word, group in groupby(ordered, key=lambda versus: verdict_word(versus.result.verdict, versus.a)):
        sizes = [versus.a.message_bytes for versus in group]
        parts.append(f"{word} {_span(sizes, [versus.a.message_bytes for versus in ordered])}")
    return "; ".join(parts)


def _span(sizes: Sequence[int], all_sizes: Sequence[int]) -> str:
    first, last = sizes[0], sizes[-1]
    if len(sizes) == len(all_sizes) > 1:
        return f"at all sizes, {message_size(first)} to {message_size(last)}"
    if first == last:
        return f"at {message_size(first)}"
    if first == all_sizes[0]:
        return f"up to {message_size(last)}"
    return (
        f"from {message_size(first)} on" if last == all_sizes[-1] else f"{message_size(first)} … {message_size(last)}"
    )


def _eager(run: Run, fits: Iterable[LatencyFit]) -> list[str]:
    sentences = []
    for fit in fits:
        limit = eager_limit(run, fit.subject)
        if isinstance(fit.pieces, str) or limit is None:
            continue
        for found, crossing in zip(fit.pieces.breaks, fit.pieces.crossings, strict=True):
            if not any(cause.endswith(_EAGER) for cause in found.causes):
                continue
            of = f"{subject_name(fit.subject)}, {fit.variant or 'ping-pong'}"
            meeting = None if crossing is None else crossing.interval
            if crossing is not None and meeting is not None and _is_elsewhere(meeting, limit):
                sentences.append(
                    f"{of}: eager should end at {_size(crossing.value)} [{_size(meeting[0])}, "
                    f"{_size(meeting[1])}], not at {message_size(limit)}: there its line meets the rendezvous's"
                )
            elif crossing is None and found.step_us.interval is not None and found.step_us.interval[0] > 0:
                sentences.append(
                    f"{of}: the rendezvous costs {number(found.step_us.value)} {interval(found.step_us.interval)} µs "
                    f"above {message_size(limit)}, and no longer message makes up for it: eager may end later"
                )
    return sentences


def _is_elsewhere(meeting: Interval, limit: int) -> bool:
    """Whether the whole interval lies beyond a margin around the limit."""
    return meeting[1] < limit * (1 - _EAGER_MARGIN) or meeting[0] > limit * (1 + _EAGER_MARGIN)


def _overlap(run: Run) -> list[str]:
    shares: dict[tuple[str, str, int], list[Series]] = {}
    for each in run.series:
        if each.quantity == "hidden_share" and each.median is not None and each.interval is not None:
            shares.setdefault((each.subject, f"{each.test} {each.variant}", each.ranks), []).append(each)
    sentences = []
    for (subject, what, ranks), series in shares.items():
        hidden = [s for s in series if s.interval and s.interval[0] >= _SHARE_MIN]
        of = f"{subject_name(subject)}, {what}, {ranks} ranks"
        if hidden:
            parts = (
                f"{number(s.median, 2)} % {interval(s.interval, 2)} of {message_size(s.message_bytes)}" for s in hidden
            )
            sentences.append(f"{of}: overlap can hide {', '.join(parts)}")
        elif all(s.interval and s.interval[1] < _SHARE_MIN for s in series):
            sentences.append(f"{of}: overlap hides nothing worth the work, at most {_SHARE_MIN:g} %")
    return sentences


def _size(message_bytes: float) -> str:
    """A size that no measurement chose, in round numbers."""
    if message_bytes < 1024:
        return f"{message_bytes:.0f} B"
    kib = message_bytes / 1024
    return f"{number(kib)} KiB" if kib < 1024 else f"{number(kib / 1024)} MiB"
