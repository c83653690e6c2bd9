# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Sets this network namespace's loopback interface up, then executes the given command."""

import os
import sys

from pyroute2 import IPRoute

with IPRoute() as route:
    route.link("set", index=route.link_lookup(ifname="lo")[0], state="up")
os.execvp(sys.argv[1], sys.argv[1:])
