# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Fitted models as tables: parameters with intervals, pieces with the names of their breaks, residuals."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from types import MappingProxyType

from barewire.models.hockney import SIZES_MIN, Hockney, fit_hockney
from barewire.models.loggp import LogGP
from barewire.models.times import Estimate, Times
from barewire.report.mpi import TextTable, signed
from barewire.report.words import (
    bounds,
    interval_heading,
    logp_mode,
    message_size,
    number,
    percent,
    subject_name,
)
from barewire.results.fits import LatencyFit, LogpFit, Pieces
from barewire.stats.confidence import launches_for_interval

_DASH = "–"
_CANNOT = "cannot say: "


def hockney_table(fits: Sequence[LatencyFit], published: Mapping[str, Times] = MappingProxyType({})) -> TextTable:
    """One row for each subject and variant; reasons and impossible values are notes.

    `published` times, by name, are further rows. Where they have too few sizes for a line, they stand in columns of
    their sizes, beside the times of the lines.
    """
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    few = {name: times for name, times in published.items() if len(times.sizes) < SIZES_MIN}
    sizes = sorted({size for times in few.values() for size in times.sizes})
    for fit in fits:
        name = _name(fit)
        if isinstance(fit.hockney, str):
            rows.append((name, *(_DASH,) * (4 + len(sizes))))
            notes.append(f"{name}: {_CANNOT}{fit.hockney}")
        else:
            rows.append((name, *_hockney(fit.hockney), *(_at(fit.hockney, size) for size in sizes)))
            notes += [f"{name}: {_CANNOT}{reason}" for reason in fit.hockney.unsaid]
            if not fit.hockney.is_good:
                notes.append(f"{name}: one line does not describe these times; see the pieces")
        notes += [f"{name}: {sentence}" for sentence in fit.impossible]
        if fit.launches < launches_for_interval(fit.confidence):
            notes.append(f"{name}: no interval with fewer than {launches_for_interval(fit.confidence)} launches")
    for name, times in published.items():
        printed = dict(zip(times.sizes, times.medians, strict=True))
        fitted = None if name in few else fit_hockney(times)
        cells = (_DASH,) * 4 if fitted is None else _hockney(fitted)
        rows.append((name, *cells, *(number(printed.get(size), 4) for size in sizes)))
        if fitted is not None and not fitted.is_good:
            notes.append(f"{name}: one line does not describe these times")
    headings = ("", "α µs", "rate Mbit/s", "n½", "largest residual", *(f"µs at {message_size(size)}" for size in sizes))
    return TextTable(
        f"Hockney: t = α + s / rate [{interval_heading(fits[0].confidence)}]", headings, tuple(rows), tuple(notes)
    )


def piece_tables(fits: Iterable[LatencyFit]) -> Iterator[TextTable]:
    """A table of pieces for each subject and variant that has any; the break after a piece is in its row."""
    for fit in fits:
        if not isinstance(fit.pieces, str):
            yield _pieces(f"Pieces: {_name(fit)}", fit.pieces, fit.confidence)


def piece_notes(fits: Iterable[LatencyFit]) -> list[str]:
    """Why the others have none."""
    return [f"{_name(fit)}: {_CANNOT}{fit.pieces}" for fit in fits if isinstance(fit.pieces, str)]


def loggp_table(fits: Sequence[LogpFit]) -> TextTable:
    """One row for each subject: L, overheads, g, G and S."""
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    for fit in fits:
        name = ", ".join([subject_name(fit.subject), *logp_mode(fit.variant)])
        if isinstance(fit.loggp, str):
            rows.append((name, *(_DASH,) * 7))
            notes.append(f"{name}: {_CANNOT}{fit.loggp}")
        else:
            rows.append((name, *_loggp(fit.loggp)))
            notes += [f"{name}: {_CANNOT}{reason}" for reason in fit.loggp.unsaid]
    headings = ("", "L µs", "Os µs", "Or µs", "g µs", "G ns/B", "S", "largest residual of o + L + (m − 1)·G + o")
    return TextTable(
        f"LogP, LogGP, LogGPS [{interval_heading(fits[0].confidence)}]", headings, tuple(rows), tuple(notes)
    )


def value(estimated: Estimate | None, factor: float = 1.0) -> str:
    """`12.3 [12.1, 12.6]`, or a dash."""
    if estimated is None:
        return _DASH
    interval = estimated.interval
    scaled = None if interval is None else (interval[0] * factor, interval[1] * factor)
    return f"{signed(estimated.value * factor)} {bounds(scaled)}".rstrip()


def _name(fit: LatencyFit) -> str:
    return ", ".join([subject_name(fit.subject), *([fit.variant] if fit.variant else [])])


def _hockney(fitted: Hockney) -> tuple[str, ...]:
    worst = fitted.worst
    return (
        value(fitted.alpha_us),
        value(fitted.rate_mbit_s),
        _DASH if fitted.half_bytes is None else f"{fitted.half_bytes.value:.0f} B",
        f"{worst.relative:+.1%} at {message_size(worst.message_bytes)}",
    )


def _at(fitted: Hockney, message_bytes: int) -> str:
    """The line's time at a size."""
    if fitted.alpha_us is None or fitted.us_per_byte is None:
        return _DASH
    return number(fitted.alpha_us.value + fitted.us_per_byte.value * message_bytes, 4)


def _pieces(title: str, pieces: Pieces, confidence: float) -> TextTable:
    rows = []
    for piece, after in zip_longest(pieces.law.pieces, pieces.breaks):
        rate = number(8 / piece.per_byte) if piece.per_byte > 0 else _DASH
        row = (message_size(piece.first_bytes), message_size(piece.last_bytes), signed(piece.alpha), rate)
        if after is None:
            rows.append((*row, "", "", ""))
            continue
        point = after.point
        where = f"{message_size(point.last_before)} [{message_size(point.low)}, {message_size(point.high)}]"
        rows.append((*row, where, value(after.step_us), ", ".join(after.causes) or "unknown"))
    headings = ("from", "to", "α µs", "rate Mbit/s", "break above [95 %]", f"step µs [{percent(confidence)}]", "cause")
    return TextTable(f"{title}; off by {pieces.law.error:.1%} (root mean square)", headings, tuple(rows))


def _loggp(fitted: LogGP) -> tuple[str, ...]:
    s, worst = fitted.synchronisation, fitted.residual
    return (
        value(fitted.latency_us),
        value(fitted.send_overhead_us),
        value(fitted.receive_overhead_us),
        value(fitted.gap_us),
        value(fitted.us_per_byte, 1e3),
        _DASH if s is None else f"above {message_size(s.last_eager_bytes)}, {value(s.step_us)} µs",
        _DASH if worst is None else f"{worst.relative:+.1%} at {message_size(worst.message_bytes)}",
    )
