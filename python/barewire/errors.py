# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The three kinds of failure of a command, by whose fault it is, each with an exit code."""

from collections.abc import Iterable
from math import inf


class BarewireError(Exception):
    """Base of all errors that the command line prints as one message. The message says how to fix the problem."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        """`hint` is what the caller probably meant, if that is known."""
        super().__init__(message)
        self.hint = hint
        # Whether --json was given, so that the error is an object, too.
        self.as_json = False


class MeasurementFailed(BarewireError):
    """The measured system failed: a host is down, a peer does not answer, an interface vanished. Exit code 1."""


class WrongUse(BarewireError):
    """The caller asked for something that does not exist or is invalid. Exit code 2."""

    exit_code = 2


class MachineCannot(BarewireError):
    """This machine lacks what the command needs; the message says how to get it. Exit code 3."""

    exit_code = 3


def finite_above_0(option: str, value: float, what: str = "a number of seconds") -> None:
    """Raise WrongUse for an option's value that is 0 or less, infinite, or not a number."""
    if not 0 < value < inf:
        raise WrongUse(f"{option} must be {what} above 0, not {value:g}")


def unknown(kind: str, name: str, known: Iterable[str], also: str = "") -> WrongUse:
    """Return the error for a name that is none of the `known` ones of its kind; `also` says what else is allowed."""
    names = list(dict.fromkeys(known))
    close = closest(name, names)
    hint = None if close is None else f"did you mean '{close}'?"
    return WrongUse(f"unknown {kind} '{name}'; there are: {', '.join(names) or 'none'}{also}", hint)


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar; None if none is."""
    # Local: `barewire run` imports this module before every launch of a program.
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(known), n=1)), None)
