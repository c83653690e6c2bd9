# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Emulated machines: Debian's kernel under qemu, with nothing installed, for what only a whole kernel has."""

from barewire.guests.debian import CannotBuild
from barewire.guests.machines import EmulatedPair

__all__ = ["CannotBuild", "EmulatedPair"]
