# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Rates of links as text: parsing, validation, formatting."""

import re

from barewire.errors import WrongUse

# Below, one full frame takes longer than a ping-pong's time-out; above, no machine can emulate it.
RATE_BIT_S_MIN, RATE_BIT_S_MAX = 64_000, 400_000_000_000

UNSHAPED = "unshaped"
_RATE = re.compile(r"(\d{1,18}(?:\.\d+)?)\s*([kmgt]?)(?:bit(?:/s|ps)?|(?-i:b/s))", re.IGNORECASE)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def parse_rate(text: str) -> int | None:
    """Parse `1gbit`, `2.5Gbit/s`, `1 Gb/s`, `100mbit` as bit/s, `unshaped` as None; `check_rate` validates it."""
    if text.strip().lower() == UNSHAPED:
        return None
    match = _RATE.fullmatch(text.strip())
    if match is None:
        # "1gbps" means bytes to tc and bits elsewhere, so the unit must be spelt out.
        raise WrongUse(f"unknown rate '{text}'; write it as 100mbit, 1gbit, 2.5Gb/s or {UNSHAPED}")
    return round(float(match[1]) * _UNITS[match[2].lower()])


def check_rate(rate_bit_s: int | None) -> None:
    """Reject a rate out of range."""
    if rate_bit_s is not None and not RATE_BIT_S_MIN <= rate_bit_s <= RATE_BIT_S_MAX:
        bounds = f"{format_rate(RATE_BIT_S_MIN)} to {format_rate(RATE_BIT_S_MAX)}"
        raise WrongUse(f"rate {rate_bit_s} bit/s is outside {bounds}; for no limit use '{UNSHAPED}'")


def format_rate(rate_bit_s: int | None) -> str:
    """Format a rate so that `parse_rate` reads the same number."""
    if rate_bit_s is None:
        return UNSHAPED
    for prefix in "tgmk":
        if rate_bit_s >= _UNITS[prefix]:
            return f"{rate_bit_s / _UNITS[prefix]:.12g}{prefix}bit"
    return f"{rate_bit_s}bit"
