# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The three ways a command can fail, sorted by whose fault it is; each is an exit code."""


class BarewireError(Exception):
    """Base of all errors that the command line prints as one message; says what to do about it."""

    exit_code = 1


class MeasurementFailed(BarewireError):
    """The measured thing failed: a host is down, no peer answers, an interface vanished. Exit code 1."""


class WrongUse(BarewireError):
    """The caller asked for something that does not exist or does not fit. Exit code 2."""

    exit_code = 2


class MachineCannot(BarewireError):
    """This machine lacks what the command needs; the message says how to get it. Exit code 3."""

    exit_code = 3
