# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The lab as an ordinary user: the tests of hosts, frames, names, shaping and cleaning once more, unprivileged."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NOBODY = 65534
# All that a user namespace could make different; the rest is pure Python and was tested already.
SELECTED = (
    "find_each_other and pair or not_ip and pair or mtu and 65535 or offloads or rate_of_a_wire and 200000000 "
    "or receivers_core or was_down or signal_to_the_handle or keeper_was_killed or process_that_made_it "
    "or leaves_no_process "
    "or interrupt_at_any_moment and 90 or command_line_makes or persistent "
    "or four_hosts_find_each_other or name_needs_no_option or launcher_in_one_host "
    "or fat_tree_stands or only_where_flows_lead or that_is_pulled or without_a_controller_learn"
)


def test_an_ordinary_user_has_the_same_lab() -> None:
    if os.geteuid() != 0:
        pytest.skip("already an ordinary user: the other lab tests just ran as one")
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("setpriv(1) is missing: apt install util-linux")
    root = Path(__file__).parent.parent
    as_nobody = [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    readable = subprocess.run([*as_nobody, "test", "-r", __file__, "-a", "-x", sys.executable], cwd="/")
    if readable.returncode != 0:
        pytest.skip("nobody cannot read this checkout: clone it below a directory that all users may enter")
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_RUNTIME_DIR")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", "-k", SELECTED]
    files = [str(root / "tests" / f"test_{name}.py") for name in ("lab_network", "lab_life", "lab_switches", "names")]
    done = subprocess.run(
        [*as_nobody, *command, *files],
        cwd=root,
        env=environment | {"PYTHONPATH": str(root / "python"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    print(done.stdout[-4000:])
    summary = done.stdout.strip().splitlines()[-1]
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    if "skipped" in summary:
        pytest.skip(f"no lab for ordinary users on this machine: {done.stdout[-1500:]}")
    assert int(summary.split()[0]) >= 24, summary
