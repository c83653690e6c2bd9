# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Injects faults into a running lab's network, and repairs them:

python -m barewire.lab.fault LAB_DIRECTORY interfaces up|down NAME…    run in the namespace of the interfaces
python -m barewire.lab.fault LAB_DIRECTORY switch up|down NAME
"""

import json
import sys
from pathlib import Path

from barewire.errors import BarewireError
from barewire.lab import openvswitch
from barewire.lab.network import set_interfaces
from barewire.lab.plan import plan_from_json


def main(arguments: list[str]) -> None:
    """Execute the command line."""
    directory, kind, state, *names = arguments
    scratch = Path(directory)
    if kind == "interfaces":
        set_interfaces(names, up=state == "up")
    elif state == "up":
        openvswitch.add_switch(plan_from_json(json.loads((scratch / "plan.json").read_text())), scratch, *names)
    else:
        openvswitch.remove_switch(scratch, *names)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BarewireError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
