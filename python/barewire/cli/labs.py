# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The lab that a command runs in: one made for this run alone, or one that stands."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from barewire.errors import WrongUse
from barewire.lab import Lab, LinkSpec, Topology, parse_topology
from barewire.lab.spec import topology_of

LAB_HELP = "pair, star:N or FILE.toml for this run alone, or the id of a lab that stands"
_ID = re.compile(r"[0-9a-f]{8}")
_ANY_LINK = LinkSpec()
_LINK_OPTIONS = "--rate, --mtu, --loss, --offloads and --receive-on"


@dataclass(frozen=True)
class LabChoice:
    """What `--lab` names: a topology and its links, and the lab itself if it stands already."""

    topology: Topology
    link: LinkSpec
    standing: Lab | None = None

    @contextmanager
    def entered(self) -> Iterator[Lab]:
        """The lab; one that is made for the block ends with it.

        Nobody gives its switches a controller, so they must do without.
        """
        if self.standing is not None:
            yield self.standing
            return
        with Lab.up(self.topology, self.link, standalone=True) as lab:
            yield lab


def choose_lab(text: str, link: LinkSpec = _ANY_LINK) -> LabChoice:
    """Read `--lab`; `link` is what the command line says about links, which a lab that stands has already."""
    if _ID.fullmatch(text) is None:
        return LabChoice(parse_topology(text), link)
    lab = Lab.open(text)
    if lab.status != "running":
        raise WrongUse(f"lab {text} is {lab.status}; `barewire lab list` shows those that run")
    if link != _ANY_LINK:
        raise WrongUse(f"lab {text} stands, with links of its own: leave out {_LINK_OPTIONS}")
    network = lab.network
    topology = parse_topology(lab.topology) if network is None else topology_of(network, lab.topology)
    return LabChoice(topology, lab.link, lab)


def lab_if_asked(text: str | None, link: LinkSpec) -> LabChoice | None:
    """Read `--lab` where it may be missing; links of no lab are refused."""
    if text is not None:
        return choose_lab(text, link)
    if link != _ANY_LINK:
        raise WrongUse(f"{_LINK_OPTIONS} are of a lab's links: give --lab, too")
    return None
