# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The latency budgets of a run: one for each message size, from the launches' medians."""

from typing import Any, Final

from barewire.models.budget import Budget, Layer, budget
from barewire.models.wire import Link, wire_limit
from barewire.results.run import Run

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
            budgets.append(budget(size, medians, wire_limit(_TEST, size, "raw", link)))
        except ValueError:
            # The run ended before the first launch of any layer.
            continue
    return budgets


def document(budgets: list[Budget]) -> list[dict[str, Any]]:
    """Return the budgets as plain JSON; times in µs, one way."""
    return [
        {
            "message_bytes": each.message_bytes,
            "unit": "us",
            "limit": each.limit_us,
            **{
                name: [_layer(layer) for layer in layers]
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
        "total_ci95": step.total_ci95,
        "added": step.added,
        "added_ci95": step.added_ci95,
        "is_told_apart": step.is_told_apart,
        "rounds": step.rounds,
    }
