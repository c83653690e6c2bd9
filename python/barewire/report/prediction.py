# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Predictions as tables: times with intervals, and beside measurements their errors."""

from collections.abc import Sequence

from barewire.models.times import Estimate
from barewire.report.mpi import TextTable
from barewire.report.words import bounds, message_size, number, percent, subject_name
from barewire.results.held_out import Checked, Errors
from barewire.results.prediction import Prediction

_MS_US = 1e3


def prediction_tables(predictions: Sequence[Prediction]) -> list[TextTable]:
    """One table for each kernel and subject."""
    tables = []
    for kernel, subject in dict.fromkeys((each.kernel, each.subject) for each in predictions):
        of_table = [each for each in predictions if (each.kernel, each.subject) == (kernel, subject)]
        rows = tuple(
            (_what(each), str(each.ranks), each.way, time(each.time_us), ", ".join(each.marks)) for each in of_table
        )
        title = f"{kernel}, {subject_name(subject)}: predicted"
        sure = of_table[0].confidence
        headings = ("", "ranks", "by", f"time [{percent(sure)}]", "beware")
        tables.append(TextTable(title, headings, rows, (_intervals(sure),)))
    return tables


def checked_tables(checked: Sequence[Checked], summary: Sequence[Errors]) -> list[TextTable]:
    """One table for each kernel and subject, with the measured times; the mean and the worst error below it."""
    tables = []
    for kernel, subject in dict.fromkeys((each.prediction.kernel, each.prediction.subject) for each in checked):
        rows = tuple(
            (
                _what(each.prediction),
                str(each.prediction.ranks),
                each.prediction.way,
                time(each.prediction.time_us),
                time(each.measured_us),
                f"{each.error:+.1%}",
                ", ".join(each.prediction.marks),
            )
            for each in checked
            if (each.prediction.kernel, each.prediction.subject) == (kernel, subject)
        )
        notes = [errors_text(each) for each in summary if each.kernel == kernel]
        sure = checked[0].prediction.confidence
        headings = ("", "ranks", "by", *(f"{what} [{percent(sure)}]" for what in ("predicted", "measured")))
        title = f"{kernel}, {subject_name(subject)}: predicted and measured"
        tables.append(TextTable(title, (*headings, "error", "beware"), rows, (*notes, _intervals(sure))))
    return tables


def _intervals(confidence: float) -> str:
    return f"Intervals: {percent(confidence)}, of the parameters; the model's own error is not part of them."


def errors_text(errors: Errors) -> str:
    """Mean and worst error in words."""
    return f"{errors.kernel}: mean error {errors.mean:.1%}, worst {errors.worst:.1%}, of {errors.count} predictions"


def time(estimate: Estimate) -> str:
    """A time in µs, from 10 ms on in ms, with its interval."""
    factor, unit = (1 / _MS_US, "ms") if estimate.value >= 10 * _MS_US else (1.0, "µs")
    interval = None if estimate.interval is None else (estimate.interval[0] * factor, estimate.interval[1] * factor)
    return f"{number(estimate.value * factor)} {bounds(interval)}".rstrip() + f" {unit}"


def _what(prediction: Prediction) -> str:
    match prediction.kernel:
        case "fft":
            return f"order {prediction.parameter:g}"
        case "radix":
            return f"{prediction.parameter:g} keys, {message_size(prediction.message_bytes)}"
        case "krylov":
            return f"{prediction.grid.replace('_', ' ')} {prediction.parameter:g}"
        case _:
            return message_size(prediction.message_bytes)
