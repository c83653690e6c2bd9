# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Numbers as a paper prints them: whether they agree with each other, and what their intervals imply.

Numbers are given as text, so that their last digit is known: an exact value may differ from the printed one by half of
it, and so may each number from which it is computed.
"""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import numpy as np


def difference_flaw(first: str, second: str, printed: str) -> str | None:
    """Return why `printed` cannot be `first` - `second`; None if it can. ValueError for text that is not a number."""
    a, b, found = map(_number, (first, second, printed))
    if abs(a - b - found) <= _rounding(a) + _rounding(b) + _rounding(found):
        return None
    return f"{first} − {second} is {_plain(a - b)}, not {printed}"


def interval_flaw(first: str, second: str, low: str, high: str) -> str | None:
    """Return why a t interval `low` … `high` cannot be that of `first` - `second`; None if it can.

    Its middle is the difference of the means. If it is so with the opposite sign of one end, that is the reason.
    ValueError for text that is not a number.
    """
    a, b, bottom, top = map(_number, (first, second, low, high))
    allowed = _rounding(a) + _rounding(b) + (_rounding(bottom) + _rounding(top)) / 2

    def fits(bottom: Decimal, top: Decimal) -> bool:
        return bottom <= top and abs((bottom + top) / 2 - (a - b)) <= allowed

    if fits(bottom, top):
        return None
    for end, as_printed, bounds in (("lower", low, (-bottom, top)), ("upper", high, (bottom, -top))):
        if fits(*bounds):
            sign = "lacks its minus sign" if _number(as_printed) > 0 else "has a minus sign too many"
            return f"the {end} end {as_printed} {sign}: the middle must be {first} − {second} = {_plain(a - b)}"
    if bottom > top:
        return f"the lower end {low} is above the upper one {high}"
    return f"the middle is {_plain((bottom + top) / 2)}, but {first} − {second} is {_plain(a - b)}"


def gain_flaw(better: str, worse: str, percent: str) -> str | None:
    """Return why `better` cannot be less than `worse` by `percent`; None if it can. Truncated digits are accepted.

    ValueError for text that is not a number, or numbers that are not above 0.
    """
    a, b, found = map(_number, (better, worse, percent))
    if not (a > 0 and b > 0):
        raise ValueError("a gain needs numbers above 0")
    exact = 100 * (1 - a / b)
    allowed = 100 * a / b * (_rounding(a) / a + _rounding(b) / b) + 2 * _rounding(found)
    if abs(exact - found) <= allowed:
        return None
    digits = Decimal(1).scaleb(int(found.as_tuple().exponent))
    return f"{better} is {exact.quantize(digits)} % less than {worse}, not {percent} %"


def p_flaw(low: str, high: str, printed: str, *, counts: Sequence[int], confidence: float) -> str | None:
    """Return why the p of Welch's test cannot be as printed beside the t interval `low` … `high`; None if it can.

    "<2.2e-16" is what R prints for anything smaller. ValueError as by `implied_p`, and for text that is not a number.
    """
    bottom, top, found = map(_number, (low, high, printed.removeprefix("<")))
    least, most = implied_p(float(bottom), float(top), counts, confidence=confidence)
    is_bound, allowed = printed.startswith("<"), _rounding(found)
    if least <= found + allowed and (is_bound or most >= found - allowed):
        return None
    between = f"{least:.3g}" if f"{least:.3g}" == f"{most:.3g}" else f"between {least:.3g} and {most:.3g}"
    return f"the interval {low} to {high} has p {between}, not {printed}"


def implied_p(low: float, high: float, counts: Sequence[int], *, confidence: float) -> tuple[float, float]:
    """Return the range of p of Welch's test that follows from the t interval of a difference.

    The interval has the test's standard error, up to the degrees of freedom: these lie between the smaller of `counts`
    (the sizes of the two samples) minus 1, and both minus 2. ValueError for samples below 2, ends that do not ascend,
    or a confidence outside 0 … 1.
    """
    if min(counts) < 2 or not low < high or not 0 < confidence < 1:
        raise ValueError("need an ascending interval, a confidence between 0 and 1, and two values of each side")
    from scipy import stats  # imported late, as in `intervals`

    df = np.array([min(counts) - 1, sum(counts) - 2], dtype=np.float64)
    error = (high - low) / 2 / stats.t.ppf((1 + confidence) / 2, df)
    p_values = [float(p) for p in np.asarray(2 * stats.t.sf(abs(low + high) / 2 / error, df))]
    return min(p_values), max(p_values)


def _number(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a number") from None
    if not number.is_finite():
        raise ValueError(f"{text!r} is not a finite number")
    return number


def _rounding(number: Decimal) -> Decimal:
    """Return half of the last printed digit."""
    return Decimal(1).scaleb(int(number.as_tuple().exponent)) / 2


def _plain(number: Decimal) -> str:
    return f"{float(number):.10g}"
