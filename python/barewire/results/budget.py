# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The latency budgets of a run: one for each message size, from the launches' medians."""

from typing import Any, Final

from barewire.models.budget import Budget, Layer, budget
from barewire.models.wire import Link, wire_limit
from barewire.results.run import Run

KIND = "budget"
_TEST: Final = "pingpong"


def budgets_of(run: Run) -> list[Budget]:
    """Empty for a run of another kind, or one that broke off before any layer of the path was measured."""
    if run.kind != KIND:
        return []
    link = Link(run.parameters["rate_bit_s"], run.parameters["mtu"])
    found = []
    for size in sorted({one.message_bytes for one in run.series if one.test == _TEST}):
        series = [one for one in run.series if one.test == _TEST and one.message_bytes == size and one.launch_medians]
        medians = {one.subject: one.launch_medians for one in series}
        try:
            found.append(budget(size, medians, wire_limit(_TEST, size, "raw", link)))
        except ValueError:
            # Broken off before the first launch of any layer.
            continue
    return found


def document(budgets: list[Budget]) -> list[dict[str, Any]]:
    """The budgets as plain JSON; times in µs, one way."""
    return [
        {
            "message_bytes": one.message_bytes,
            "unit": "us",
            "limit": one.limit_us,
            **{
                name: [_layer(layer) for layer in layers]
                for name, layers in (("path", one.path), ("libraries", one.libraries), ("yardsticks", one.yardsticks))
            },
        }
        for one in budgets
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
