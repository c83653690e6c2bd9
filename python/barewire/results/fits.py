# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Every model fitted to a run's subjects, with the names of the break points; what cannot be said is a sentence."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from barewire.errors import WrongUse
from barewire.models.breakpoints import Break, Piecewise, find_breakpoints
from barewire.models.causes import Limit, explanations
from barewire.models.derived import LOGP_VARIANTS
from barewire.models.hockney import Hockney, fit_hockney
from barewire.models.loggp import LogGP, fit_loggp, piece_lines
from barewire.models.times import CannotSay, Estimate, Floats, Times, estimate
from barewire.models.verdict import protocol_of
from barewire.models.wire import latency_limit_us
from barewire.results.functions import latency_variants, logp_functions
from barewire.results.laws import SIZES_MIN
from barewire.results.limits import limits_of, link_mtu
from barewire.results.run import Run
from barewire.stats.confidence import CONFIDENCE, with_interval_names

# More than a shaper's rounding.
_RATE_TOLERANCE = 0.005

FittedT = TypeVar("FittedT")


@dataclass(frozen=True)
class NamedBreak:
    """A break point with the step of the time above it, and what is known to change there."""

    point: Break
    step_us: Estimate
    causes: tuple[str, ...]


@dataclass(frozen=True)
class Pieces:
    """A law in pieces; `crossings`, by break: the size at which the lines before and after it meet, with interval."""

    law: Piecewise
    breaks: tuple[NamedBreak, ...]
    crossings: tuple[Estimate | None, ...]


@dataclass(frozen=True)
class LatencyFit:
    """Models of one variant's latency; a sentence in place of one that cannot be fitted."""

    subject: str
    variant: str
    sizes: tuple[int, ...]
    launches: int
    hockney: Hockney | str
    pieces: Pieces | str
    impossible: tuple[str, ...]
    confidence: float = CONFIDENCE

    def to_json(self) -> dict[str, Any]:
        """Return one JSON object."""
        return {
            "subject": self.subject,
            "variant": self.variant,
            "sizes": list(self.sizes),
            "launches": self.launches,
            "hockney": as_document(self.hockney, self.confidence),
            "pieces": as_document(self.pieces, self.confidence),
            "impossible": list(self.impossible),
        }


@dataclass(frozen=True)
class LogpFit:
    """The LogP family of one subject and variant of logp; a sentence in place of what cannot be fitted."""

    subject: str
    variant: str
    loggp: LogGP | str
    confidence: float = CONFIDENCE

    def to_json(self) -> dict[str, Any]:
        """Return one JSON object."""
        loggp = as_document(self.loggp, self.confidence)
        return {"subject": self.subject, "variant": self.variant, "loggp": loggp}


def as_document(fitted: Any, confidence: float) -> Any:
    """Return a fitted model as plain JSON, or the reason why there is none."""
    return {"cannot_say": fitted} if isinstance(fitted, str) else with_interval_names(asdict(fitted), confidence)


def latency_fits(run: Run) -> list[LatencyFit]:
    """Return the models of every subject's ping-pong, for each variant."""
    rate = run.parameters.get("rate_bit_s")
    fits = []
    for subject in dict.fromkeys(each.subject for each in run.series):
        mtu = link_mtu(run, subject)
        for variant, times in latency_variants(run, subject).items():
            fits.append(fit_latency(subject, variant, times, limits_of(run, subject), rate, mtu))
    return fits


def fit_latency(
    subject: str, variant: str, times: Times, limits: list[Limit], rate_bit_s: float | None, mtu: int | None
) -> LatencyFit:
    """Fit one latency; `rate_bit_s` and `mtu` are those of the link, by which impossible times are recognised."""
    hockney = _or_reason(lambda: fit_hockney(times))
    return LatencyFit(
        subject=subject,
        variant=variant,
        sizes=times.sizes,
        launches=times.launches,
        hockney=hockney,
        pieces=_or_reason(lambda: _pieces(times, limits)),
        impossible=tuple(_impossible(subject, times, hockney, rate_bit_s, mtu)),
        confidence=times.confidence,
    )


def logp_fits(run: Run) -> list[LogpFit]:
    """Return the LogP family of every subject whose overheads were measured, for each mode separately."""
    fits = []
    for subject in dict.fromkeys(each.subject for each in run.series):
        for variant in LOGP_VARIANTS:
            try:
                functions = logp_functions(run, subject, variant)
            except WrongUse as error:  # noise can make a gap negative, which is a train's time minus a message's
                fits.append(LogpFit(subject, variant, str(error), run.confidence))
                continue
            if functions:
                fitted = _or_reason(partial(_loggp, functions, limits_of(run, subject)))
                fits.append(LogpFit(subject, variant, fitted, run.confidence))
    return fits


def _loggp(functions: Mapping[str, Times], limits: Sequence[Limit]) -> LogGP:
    def is_frame(point: Break) -> bool:
        return any(name.endswith("frame") for name in explanations(point, limits))

    missing = [name for name in ("eel", "os", "or", "gap") if name not in functions]
    if missing:
        raise CannotSay(f"{', '.join(missing)} could not be derived; measure all variants of logp, with more --seconds")
    sizes = set.intersection(*(set(times.sizes) for times in functions.values()))
    if not sizes:
        raise CannotSay("no size has EEL, Os, Or and g; measure logp with more --seconds")
    eel, send, receive, gap = (functions[name].at(sizes) for name in ("eel", "os", "or", "gap"))
    return fit_loggp(eel, send, receive, gap, is_frame=is_frame)


def _pieces(times: Times, limits: list[Limit]) -> Pieces:
    if len(times.sizes) < SIZES_MIN:
        raise CannotSay(
            f"break points need {SIZES_MIN} sizes or more, not {len(times.sizes)}; measure with more --sizes"
        )
    law = find_breakpoints(times.sizes, times.by_size())
    draws = times.draws(np.random.default_rng(0))
    breaks, crossings = [], []
    for number, point in enumerate(law.breaks):
        (a0, b0), (a1, b1) = (piece_lines(law, each, times, draws) for each in (number, number + 1))
        step = estimate(a1 - a0 + (b1 - b0) * point.first_after, times.launches, times.confidence)
        breaks.append(NamedBreak(point, step, explanations(point, limits)))
        crossings.append(_crossing(a0, b0, a1, b1, times.launches, times.confidence))
    return Pieces(law, tuple(breaks), tuple(crossings))


def _crossing(a0: Floats, b0: Floats, a1: Floats, b1: Floats, launches: int, confidence: float) -> Estimate | None:
    """Return where two lines meet; None if they do not at a positive size, or only in some resamples."""
    steeper, higher = b0 - b1, a1 - a0
    if not ((steeper > 0).all() and (higher > 0).all()):
        return None
    return estimate(higher / steeper, launches, confidence)


def _impossible(
    subject: str, times: Times, hockney: Hockney | str, rate_bit_s: float | None, mtu: int | None
) -> list[str]:
    """Return a sentence for everything that is faster than the link allows."""
    if rate_bit_s is None or mtu is None:
        return []
    # No protocol needs fewer bytes than plain frames.
    protocol = protocol_of(subject) or "raw"
    limits = [latency_limit_us(size, protocol, mtu, rate_bit_s) for size in times.sizes]
    shares = {
        size: (float(time), limit)
        for size, time, limit in zip(times.sizes, times.medians, limits, strict=True)
        if time < limit * (1 - _RATE_TOLERANCE)
    }
    sentences = []
    if shares:
        worst = min(shares, key=lambda size: shares[size][0] / shares[size][1])
        time, limit = shares[worst]
        others = f"; so are those of {len(shares) - 1} other sizes" if len(shares) > 1 else ""
        sentences.append(
            f"{time:.4g} µs one way for {worst} B is impossible: its frames alone take {limit:.4g} µs at "
            f"{rate_bit_s / 1e6:g} Mbit/s{others}"
        )
    if not isinstance(hockney, str) and hockney.is_good and hockney.rate_mbit_s is not None:
        rate = hockney.rate_mbit_s
        low = rate.value if rate.interval is None else rate.interval[0]
        if low > rate_bit_s / 1e6 * (1 + _RATE_TOLERANCE):
            sentences.append(
                f"a rate of {rate.value:.4g} Mbit/s is impossible on a link of {rate_bit_s / 1e6:g} Mbit/s"
            )
    return sentences


def _or_reason(fit: Callable[[], FittedT]) -> FittedT | str:
    try:
        return fit()
    except CannotSay as reason:
        return str(reason)
