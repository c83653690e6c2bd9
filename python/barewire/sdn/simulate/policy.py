# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The strategies of profiles in one command-line word: `ecmp`, `mpi=planned+bigdata=least-loaded`."""

from barewire.errors import WrongUse
from barewire.sdn.flow import DEFAULT_PROFILE
from barewire.sdn.simulate.control import Policy
from barewire.sdn.simulate.workload import BIG_DATA, HPC
from barewire.sdn.strategies import Strategy, named

_PROFILES = (HPC, BIG_DATA, DEFAULT_PROFILE)


def read_policy(text: str) -> Policy:
    """Parse one strategy for all profiles, or one per profile; the first is the default."""
    parts = text.split("+")
    if len(parts) == 1 and _profile(parts[0]) is None:
        return {DEFAULT_PROFILE: named(text)}
    strategies: dict[str, Strategy] = {}
    for part in parts:
        profile = _profile(part)
        if profile is None or profile in strategies:
            raise WrongUse(
                f"'{text}' is no policy: write one strategy, or each profile ({', '.join(_PROFILES)}) once, "
                "as in mpi=planned+bigdata=ecmp"
            )
        strategies[profile] = named(part.partition("=")[2])
    return {DEFAULT_PROFILE: next(iter(strategies.values())), **strategies}


def _profile(part: str) -> str | None:
    """The profile before the first `=`, unless that belongs to a parameter after a colon."""
    profile, equals, _ = part.partition("=")
    return profile if equals and profile in _PROFILES else None
