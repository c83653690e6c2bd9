# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The profiler in mpi/profiler: built on demand, preloaded into a job's ranks."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from barewire import installed
from barewire.errors import MachineCannot, MeasurementFailed
from barewire.mpi.fabrics import Setting
from barewire.mpi.job import Job
from barewire.mpi.libraries import Library

SOURCES = installed.MPI_SOURCES / "profiler"
BUILT = installed.built_mpi() / "profiler"
PROFILER_FILE = "libbarewire-profile.so"
# Environment of the ranks: the folder for each rank's file, and whether only milestones are recorded.
FOLDER, MODE = "BAREWIRE_PROFILE", "BAREWIRE_PROFILE_MODE"
LIGHT = "light"
_PRELOAD = "LD_PRELOAD"
_LINES_SHOWN = 8
# Between the files of LD_PRELOAD, and in rules of make.
_SEPARATORS = re.compile(r"[\s:]")
_OTHER_FOLDER = "set XDG_CACHE_HOME to another folder, or " if installed.IS_PACKAGE else "move the checkout, or "


def build_profiler(library: Library) -> Path:
    """Build the profiler for a library if necessary, and return its file.

    It needs a C compiler but no mpicc: the sources depend on no library's types, only on the set of its functions.
    MachineCannot if the compiler is missing, or a path has characters that LD_PRELOAD and make take for separators.
    """
    make = shutil.which("make")
    if make is None or shutil.which("cc") is None or shutil.which("nm") is None:
        raise MachineCannot(
            "make and a C compiler are missing, which build the profiler: apt install make gcc; "
            "`barewire try --no-profile` runs without it"
        )
    file = library.file.resolve()
    # Library names are the user's; two folders may contain libraries of the same name. Another package has its own.
    identity = f"{file}{installed.sources_version()}"
    folder = BUILT / f"{library.name}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
    for path, way_out in ((folder, _OTHER_FOLDER), (file, "")):
        if _SEPARATORS.search(str(path)):
            raise MachineCannot(
                f"the profiler cannot be built and preloaded, because {path} has white space or a colon: {way_out}"
                "use `barewire try --no-profile`, which runs without it"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Serializes concurrent builds.
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            command = [make, "-C", str(SOURCES), f"LIBRARY={file}", f"OUT={folder}"]
            completed = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise MeasurementFailed(
            f"cannot build in {error.filename or folder}: {error.strerror}{installed.NOT_WRITABLE}"
        ) from error
    if completed.returncode != 0:
        errors = "\n".join(completed.stderr.strip().splitlines()[-_LINES_SHOWN:])
        raise MachineCannot(f"the profiler in {SOURCES} does not build:\n{errors}")
    return folder / PROFILER_FILE


def with_profiler(job: Job, profiler: Path, folder: Path, *, light: bool = False) -> Job:
    """Return the same job with the profiler preloaded first; each rank writes a file to `folder`."""
    settings = {setting.name: setting for setting in job.settings}
    preloaded = settings[_PRELOAD].value if _PRELOAD in settings else os.environ.get(_PRELOAD)
    settings[_PRELOAD] = Setting(_PRELOAD, ":".join(filter(None, (str(profiler), preloaded))), "profiler")
    # Programs may change their directory before MPI_Init.
    settings[FOLDER] = Setting(FOLDER, str(folder.absolute()), "profiler")
    if light:
        settings[MODE] = Setting(MODE, LIGHT, "profiler")
    return replace(job, settings=tuple(settings.values()))
