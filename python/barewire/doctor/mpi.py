# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The MPI libraries of this machine, and whether messages use our provider under each: tried in a lab."""

from barewire.doctor.finding import Finding, Status
from barewire.errors import BarewireError
from barewire.installed import MPI_FIX
from barewire.lab import Lab, LinkSpec
from barewire.mpi import FabricOptions, Library, explain, installed_libraries, start
from barewire.mpi.prepare import prepare

_AREA = "MPI"


def mpi_findings() -> list[Finding]:
    """Find libraries, and exchange messages between two ranks of each over barewire."""
    libraries = installed_libraries()
    if not libraries:
        return [Finding(_AREA, "libraries", Status.WARNING, "none found; raw measuring works", MPI_FIX)]
    return [finding for library in libraries for finding in (_parts(library), _over_barewire(library))]


def _parts(library: Library) -> Finding:
    netmods = f", for {', '.join(library.netmods)}" if library.netmods else ""
    detail = f"{library}{netmods} ({library.file})"
    try:
        return Finding(_AREA, library.name, Status.OK, f"{detail}; {library.program('mpirun')}")
    except BarewireError as error:
        return Finding(_AREA, library.name, Status.WARNING, detail, str(error))


def _over_barewire(library: Library) -> Finding:
    what = f"{library.name} over barewire"
    requested = FabricOptions()
    try:
        with Lab.up("pair", LinkSpec()) as lab:
            job = prepare(library, requested, [(host.name, 1) for host in lab.hosts], ["true"], lab)
            evidence, output = start.witness(job, lab)
    except BarewireError as error:
        return Finding(_AREA, what, Status.WARNING, "not tried", str(error))
    return judge(what, explain.rows(job, requested, "", evidence), output)


def judge(what: str, rows: list[explain.Row], output: str) -> Finding:
    """Return a finding about a path: the path of two ranks, or what is wrong with it."""
    wrong = [f"{row.what}: {row.wrong}" for row in rows if row.wrong]
    if not wrong:
        taken = {row.what: row.taken for row in rows}
        return Finding(_AREA, what, Status.OK, f"two ranks exchanged messages: {taken['layer']}, {taken['provider']}")
    last_line = (output.strip().splitlines() or ["nothing"])[-1]
    fix = f"barewire run -n 2 --lab pair --library {what.split()[0]} --explain -- sh -c true"
    return Finding(_AREA, what, Status.MISSING, f"{'; '.join(wrong)}; last output: {last_line}", fix)
