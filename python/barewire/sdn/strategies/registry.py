# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Strategies by name, with parameters: `ecmp`, `isolated:seconds=30`, `package.module:Class:limit=3`.

Other packages register entry points of the group `barewire.strategies`, or are named by module and class.
"""

import importlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib.metadata import entry_points
from typing import Any, get_type_hints

from barewire.errors import WrongUse, unknown
from barewire.sdn.strategies.afar import Afar
from barewire.sdn.strategies.dmodk import Dmodk
from barewire.sdn.strategies.ecmp import Ecmp
from barewire.sdn.strategies.ecmp_published import EcmpPublished
from barewire.sdn.strategies.hedera import Hedera
from barewire.sdn.strategies.isolated import Isolated
from barewire.sdn.strategies.lanes import Lanes
from barewire.sdn.strategies.least_loaded import LeastLoaded
from barewire.sdn.strategies.planned import Planned
from barewire.sdn.strategies.spray import Spray
from barewire.sdn.strategies.stp import Stp
from barewire.sdn.strategies.strategy import Strategy
from barewire.sdn.strategies.traffic import Traffic
from barewire.sdn.strategies.ugal import Ugal
from barewire.sdn.strategies.valiant import Valiant

ENTRY_POINTS = "barewire.strategies"
# The shortest period of a strategy: a shorter one would leave a controller time for nothing else.
PERIOD_MIN_S = 0.01

PUBLISHED: tuple[type[Any], ...] = (Stp, Traffic, EcmpPublished, Isolated)
OURS: tuple[type[Any], ...] = (Ecmp, Dmodk, LeastLoaded, Lanes, Hedera, Afar, Planned, Valiant, Ugal, Spray)


def names() -> list[str]:
    """All available strategies: the published ones, ours, then those of other packages."""
    built_in = [strategy.name for strategy in (*PUBLISHED, *OURS)]
    return built_in + sorted({entry.name for entry in entry_points(group=ENTRY_POINTS)} - set(built_in))


def named(text: str) -> Strategy:
    """Return the strategy with this name and parameters. WrongUse for unknown names or invalid parameters."""
    words = text.strip().split(":")
    named_by = 2 if len(words) > 1 and "=" not in words[1] else 1
    kind = _imported(*words[:2]) if named_by == 2 else _known(words[0])
    name = ":".join(words[:named_by])
    try:
        made: Strategy = kind(**_parameters(name, kind, words[named_by:]))
    except TypeError as error:  # a plug-in's class that needs more, or of which a parameter cannot be text
        raise WrongUse(f"strategy {name} cannot be made: {error}") from error
    period_s: Any = made.period_s
    if not (isinstance(period_s, int | float) and (period_s == 0 or period_s >= PERIOD_MIN_S)):
        allowed = f"at least {PERIOD_MIN_S}, or 0 for a strategy that never moves flows"
        raise WrongUse(f"{name}'s period_s is {allowed}, not {period_s!r}")
    return made


def _known(name: str) -> type[Any]:
    for kind in (*PUBLISHED, *OURS):
        if kind.name == name:
            return kind
    for entry in entry_points(group=ENTRY_POINTS, name=name):
        return _imported(entry.module, entry.attr)
    raise unknown("strategy", name, names(), ", or module:Class of a custom one")


def _imported(module: str, name: str) -> type[Any]:
    try:
        kind = getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever a plug-in's module does
        reason = str(error) or type(error).__name__
        raise WrongUse(
            f"strategy {module}:{name} cannot be loaded: {reason}; there are: {', '.join(names())}, "
            "and parameters are written name:key=value"
        ) from error
    lacks = [part for part in ("name", "period_s", "place", "rearrange") if not hasattr(kind, part)]
    if not isinstance(kind, type) or lacks:
        raise WrongUse(f"{module}:{name} is no strategy: it lacks {', '.join(lacks) or 'a class'}")
    return kind


def _parameters(name: str, kind: type[Any], words: list[str]) -> Mapping[str, Any]:
    takes = [field.name for field in fields(kind)] if is_dataclass(kind) else []
    types = get_type_hints(kind)
    values: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in takes:
            raise WrongUse(f"{name} does not take '{word}'; it takes: {', '.join(takes) or 'no parameters'}")
        try:
            values[key] = types[key](value)
        except ValueError:
            raise WrongUse(f"{name}'s {key} is of type {types[key].__name__}, not '{value}'") from None
    return values
