# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The latency budgets of a run: one for each message size, from the launches' medians."""

from typing import Any, Final

from barewire.models.budget import Budget, Layer, budget
from barewire.models.wire import Link, wire_limit
from barewire.results.run import Run
from barewire.stats.intervals import CONFIDENCE, with_interval_names

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
        medians = {measured.subject: measured.launch_medians for measured in series}
        try:
            budgets.append(budget(size, medians, wire_limit(_TEST, size, "raw", link), run.confidence))
        except ValueError:
            # The run ended before the first launch of any layer.
            continue
    return budgets


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
