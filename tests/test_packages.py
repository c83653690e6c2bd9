# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What `make packages` does where it cannot try everything; the packages themselves are tried by it alone."""

import os
import subprocess
from pathlib import Path

from conftest import ROOT


def test_containers_that_cannot_be_started_are_no_success(tmp_path: Path) -> None:
    """Beside a podman that only fails."""
    podman = tmp_path / "podman"
    podman.write_text("#!/bin/sh\necho 'no user namespaces'\nexit 125\n")
    podman.chmod(0o755)
    (tmp_path / "base.tar").touch()
    done = subprocess.run(
        [ROOT / "setup/packages/try_containers.sh", tmp_path, tmp_path / "base.tar"],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 3, done.stdout + done.stderr
    assert "not tried: podman cannot start one here: no user namespaces" in done.stderr
    assert 'make packages KINDS="deb wheel"' in done.stderr
