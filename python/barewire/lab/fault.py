# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Breaks a running lab's network, and mends it; run in its switches' namespace:

python -m barewire.lab.fault LAB_DIRECTORY link ONE OTHER up|down
python -m barewire.lab.fault LAB_DIRECTORY switch NAME up|down
"""

import json
import sys
from pathlib import Path

from barewire.errors import BarewireError, WrongUse
from barewire.lab import openvswitch
from barewire.lab.network import set_interfaces
from barewire.lab.plan import Plan, plan_from_json
from barewire.lab.switched import interfaces_of_link


def main(arguments: list[str]) -> None:
    """Do what the command line says."""
    directory, kind, *names, state = arguments
    scratch = Path(directory)
    plan = plan_from_json(json.loads((scratch / "plan.json").read_text()))
    if kind == "link":
        set_interfaces(interfaces_of_link(plan, *names), up=state == "up")
    else:
        _set_switch(plan, scratch, names[0], up=state == "up")


def _set_switch(plan: Plan, scratch: Path, name: str, up: bool) -> None:
    """A switch that is off takes the carrier from all of its links, too."""
    assert plan.switched is not None
    network = plan.switched.network
    if name not in network.switches:
        raise WrongUse(f"the network has no switch {name}; there are: {', '.join(network.switches)}")
    if up:
        openvswitch.add_switch(plan, scratch, name)
    else:
        openvswitch.remove_switch(scratch, name)
    for port in network.ports[name]:
        set_interfaces(interfaces_of_link(plan, str(port), str(network.peers[port])), up)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BarewireError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
