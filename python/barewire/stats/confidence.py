# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Levels of confidence: their bounds, the launches that they need, and their names in documents. Imports no numpy."""

import math
from collections.abc import Mapping
from typing import Any

CONFIDENCE = 0.95
CONFIDENCE_MIN, CONFIDENCE_MAX = 0.5, 0.999


def share_of(percent: float) -> float:
    """Return a confidence in percent as a share; without rounding 99.9 % would be more than 0.999."""
    return round(percent / 100, 12)


def launches_for_interval(confidence: float = CONFIDENCE) -> int:
    """Return how many launches an interval of the median needs: with fewer not even their range is that certain.

    The range of n contains the median with a confidence of 1 - 2 * 0.5**n. ValueError outside 0.5 … 0.999.
    """
    if not CONFIDENCE_MIN <= confidence <= CONFIDENCE_MAX:
        raise ValueError(f"the confidence must be from {CONFIDENCE_MIN} to {CONFIDENCE_MAX}, not {confidence}")
    return math.ceil(math.log2(2 / (1 - confidence)))


LAUNCHES_FOR_INTERVAL = launches_for_interval()


def interval_name(confidence: float = CONFIDENCE) -> str:
    """Return the name that intervals have in documents and tables: ci95, ci99."""
    return f"ci{round(confidence * 100, 6):g}"


def with_interval_names(data: Any, confidence: float = CONFIDENCE) -> Any:
    """Return plain data in which what is named `interval`, or ends in it, says its confidence: `mean_ci95`."""
    if isinstance(data, Mapping):
        name = interval_name(confidence)
        return {
            f"{key.removesuffix('interval')}{name}" if key == "interval" or key.endswith("_interval") else key: (
                with_interval_names(value, confidence)
            )
            for key, value in data.items()
        }
    return [with_interval_names(value, confidence) for value in data] if isinstance(data, list | tuple) else data


def without_interval_names(data: Mapping[str, Any], confidence: float = CONFIDENCE) -> dict[str, Any]:
    """Inverse of `with_interval_names` for one object: `mean_ci95` is `mean_interval`."""
    name = interval_name(confidence)
    return {
        f"{key.removesuffix(name)}interval" if key == name or key.endswith(f"_{name}") else key: value
        for key, value in data.items()
    }
