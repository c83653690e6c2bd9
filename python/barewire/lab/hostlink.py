# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Sets one host's link down or up; run on that host: python -m barewire.lab.hostlink PLAN HOST up|down."""

import json
import sys
from pathlib import Path

from barewire.lab.network import set_host_link
from barewire.lab.plan import plan_from_json

if __name__ == "__main__":
    _, plan_file, host_name, state = sys.argv
    plan = plan_from_json(json.loads(Path(plan_file).read_text()))
    set_host_link(plan, plan.host(host_name), up=state == "up")
