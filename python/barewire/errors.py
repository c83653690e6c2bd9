# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The three kinds of failure of a command, by whose fault it is, each with an exit code."""


class BarewireError(Exception):
    """Base of all errors that the command line prints as one message. The message says how to fix the problem."""

    exit_code = 1


class MeasurementFailed(BarewireError):
    """The measured system failed: a host is down, a peer does not answer, an interface vanished. Exit code 1."""


class WrongUse(BarewireError):
    """The caller asked for something that does not exist or is invalid. Exit code 2."""

    exit_code = 2


class MachineCannot(BarewireError):
    """This machine lacks what the command needs; the message says how to get it. Exit code 3."""

    exit_code = 3
