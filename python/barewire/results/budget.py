# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The latency budgets of a run: one for each message size, from the launches' medians."""

from collections.abc import Sequence
from typing import Any, Final

from barewire.models.budget import Budget, Layer, budget
from barewire.models.wire import Link, wire_limit
from barewire.results.run import Run, Series
from barewire.stats.confidence import CONFIDENCE, with_interval_names

KIND = "budget"
_TEST: Final = "pingpong"


def budgets_of(run: Run) -> list[Budget]:
    """Return no budgets for a run of another kind, or one that ended before any layer of the path was measured."""
    if run.kind != KIND:
        return []
    link = Link(run.parameters["rate_bit_s"], run.parameters["mtu"])
    budgets = []
    for size in sorted({measured.message_bytes for measured in run.series if measured.test == _TEST}):
        series = [
            measured
            for measured in run.series
            if measured.test == _TEST and measured.message_bytes == size and measured.launch_medians
        ]
        medians = _of_common_rounds(run, series)
        try:
            budgets.append(budget(size, medians, wire_limit(_TEST, size, "raw", link), run.confidence))
        except ValueError:
            # The run ended before the first launch of any layer.
            continue
    return budgets


def _of_common_rounds(run: Run, series: Sequence[Series]) -> dict[str, Sequence[float]]:
    """Return each subject's medians of the rounds that all have; by their order if the run does not know its rounds."""
    by_round = {measured.subject: run.by_round(measured) for measured in series}
    known = {subject: medians for subject, medians in by_round.items() if medians is not None}
    if len(known) < len(by_round):
        return {measured.subject: measured.launch_medians for measured in series}
    rounds = sorted(set.intersection(*map(set, known.values()))) if known else []
    return {subject: [medians[number] for number in rounds] for subject, medians in known.items()}


def document(budgets: list[Budget], confidence: float = CONFIDENCE) -> list[dict[str, Any]]:
    """Return the budgets as plain JSON; times in µs, one way. `confidence` is that of their intervals."""
    return [
        {
            "message_bytes": each.message_bytes,
            "unit": "us",
            "limit": each.limit_us,
            **{
                name: [with_interval_names(_layer(layer), confidence) for layer in layers]
                for name, layers in (
                    ("path", each.path),
                    ("libraries", each.libraries),
                    ("yardsticks", each.yardsticks),
                )
            },
        }
        for each in budgets
    ]


def _layer(layer: Layer) -> dict[str, Any]:
    step = layer.step
    return {
        "subject": layer.subject,
        "below": layer.below,
        "total": step.total,
        "total_interval": step.total_interval,
        "added": step.added,
        "added_interval": step.added_interval,
        "is_told_apart": step.is_told_apart,
        "rounds": step.rounds,
    }
