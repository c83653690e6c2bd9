# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The programs: description, command, reported figures, and checks of the results."""

from barewire.applications.application import NUMBER, AgreesWithSerial, Application, Figure, FileCheck, Prints
from barewire.applications.generate import PARTS, alignment, grid_graph, partition_is_fair

# Debian's own interpreter, for which its mpi4py is built.
_PYTHON = "/usr/bin/python3"
_WALL = Figure("wall time", "s", None)

_MOLECULES = (
    Application(
        name="lammps",
        what="molecular dynamics: Lennard-Jones, 864 atoms, 5000 steps",
        pattern="neighbour exchange, 1 to 8 KiB, each step",
        packages=("lammps",),
        command="lmp -in lj.in -log none",
        figures=(Figure("loop time", "s", rf"^Loop time of {NUMBER}"),),
        # Energy is conserved; temperatures are compared only while the trajectories have not diverged.
        checks=(
            AgreesWithSerial("total energy", rf"^ *\d+ +\S+ +-\S+ +{NUMBER} *$", 1e-3),
            AgreesWithSerial("temperature", rf"^ *\d+ +{NUMBER} +-\S+ +-\S+ *$", 1e-6, first=6),
        ),
    ),
    Application(
        name="gromacs",
        what="molecular dynamics: water with particle-mesh Ewald, 2000 steps",
        pattern="neighbour exchange and all-to-all, each step",
        packages=("gromacs",),
        prepare=(
            "gmx_mpi -quiet solvate -cs spc216.gro -box 2.4 2.4 2.4 -p water.top -o box.gro",
            "gmx_mpi -quiet grompp -f relax.mdp -c box.gro -p water.top -o relax.tpr",
            "gmx_mpi -quiet mdrun -s relax.tpr -c relaxed.gro -ntomp 1",
            "gmx_mpi -quiet grompp -f water.mdp -c relaxed.gro -p water.top -o water.tpr",
        ),
        command="gmx_mpi -quiet mdrun -s water.tpr -ntomp 1 -pin off -notunepme -g water.log -cpt -1",
        report="water.log",
        figures=(Figure("speed", "ns/day", rf"^Performance:\s+{NUMBER}", lower_is_better=False),),
        checks=(
            Prints(r"^Finished mdrun"),
            AgreesWithSerial(
                "potential energy at the start", rf"Potential.*\n(?:\s+\S+){{3}}\s+{NUMBER}", 1e-3, first=1
            ),
        ),
    ),
    Application(
        name="nwchem",
        what="quantum chemistry: MP2 of a water dimer",
        pattern="one-sided accesses of global arrays, shared counter",
        packages=("nwchem-openmpi",),
        command="nwchem.openmpi water.nw",
        figures=(Figure("wall time", "s", rf"Total times\s+cpu:\s+\S+\s+wall:\s+{NUMBER}s"),),
        checks=(
            AgreesWithSerial("SCF energy", rf"Total SCF energy =\s+{NUMBER}", 1e-9),
            AgreesWithSerial("MP2 energy", rf"Total MP2 energy\s+{NUMBER}", 1e-9),
        ),
    ),
)

_ELECTRONS = (
    Application(
        name="cp2k",
        what="density functional theory with plane waves and Gaussians: 4 molecules of water",
        pattern="all-to-all of the FFT, sparse matrices, broadcasts",
        packages=("cp2k", "cp2k-data"),
        command="cp2k -i water.inp",
        figures=(Figure("wall time", "s", rf"^ CP2K +\d+ .* {NUMBER}$"),),
        checks=(
            AgreesWithSerial("total energy", rf"^ ENERGY\|.*\s{NUMBER}$", 1e-8),
            Prints(r"SCF run converged"),
        ),
    ),
    Application(
        name="quantum-espresso",
        what="plane waves: self-consistent field of 8 silicon atoms",
        pattern="all-to-all of the FFT, reductions",
        packages=("quantum-espresso",),
        prepare=("ld1.x < si.ld1",),
        command="pw.x -in si.scf",
        figures=(Figure("wall time", "s", rf"^\s+PWSCF\s+:.*CPU\s+{NUMBER}s WALL"),),
        checks=(AgreesWithSerial("total energy", rf"^!\s+total energy\s+=\s+{NUMBER} Ry", 1e-8), Prints("JOB DONE")),
    ),
    Application(
        name="abinit",
        what="plane waves: self-consistent field of 2 silicon atoms, 10 k-points",
        pattern="reductions and broadcasts between k-points",
        packages=("abinit",),
        command="abinit si.abi",
        report="si.abo",
        figures=(Figure("wall time", "s", rf"^\+Overall time at end.*wall=\s+{NUMBER}"),),
        checks=(AgreesWithSerial("total energy", rf"^\s*etotal\s+{NUMBER}", 1e-8), Prints("Calculation completed")),
    ),
    Application(
        name="mpb",
        what="photonic bands of a diamond lattice, 16³ points, 5 bands",
        pattern="all-to-all of the FFT, small reductions",
        packages=("mpb-mpi",),
        command="mpb-mpi diamond.ctl",
        figures=(_WALL,),
        checks=(
            AgreesWithSerial(
                "frequencies", rf"^freqs:, \d+, \S+, \S+, \S+, \S+,(?: {NUMBER},?)" + rf"(?: {NUMBER},?)" * 4, 1e-3
            ),
        ),
    ),
)

_FIELDS = (
    Application(
        name="openfoam",
        what="fluid dynamics: a driven cavity, 64² cells, PISO, 200 steps",
        pattern="halo exchange of 512 bytes and an 8-byte reduction, each iteration of conjugate gradients",
        packages=("openfoam",),
        # Where its settings are, which Debian's package leaves to the user.
        environment={"WM_PROJECT_DIR": "/usr/share/openfoam"},
        prepare=("blockMesh", "decomposePar"),
        command="icoFoam",
        parallel=("-parallel",),
        figures=(_WALL,),
        checks=(
            AgreesWithSerial("Courant number", rf"^Courant Number mean: {NUMBER} max: {NUMBER}", 1e-4),
            Prints(r"^End$"),
        ),
    ),
    Application(
        name="dolfinx",
        what="finite elements: Poisson, 40,000 unknowns, PETSc's conjugate gradients",
        pattern="halo exchange and an 8-byte reduction, each iteration",
        packages=("fenicsx-performance-tests",),
        command="dolfinx-scaling-test --problem_type poisson --scaling_type strong --ndofs 40000"
        " -ksp_type cg -pc_type jacobi -ksp_rtol 1e-8",
        figures=(
            Figure("solve", "s", rf"^ZZZ Solve\s+\|.*\s{NUMBER}$"),
            Figure("mesh", "s", rf"^ZZZ Create Mesh\s+\|.*\s{NUMBER}$"),
        ),
        checks=(
            AgreesWithSerial("solution norm", rf"Solution norm:\s+{NUMBER}", 1e-5),
            AgreesWithSerial("unknowns", rf"Total degrees of freedom:\s+{NUMBER}", 0),
        ),
    ),
    Application(
        name="gerris",
        what="fluid dynamics: a driven cavity, multigrid, 100 steps",
        pattern="halo exchange of hundreds of bytes, thousands of times",
        packages=("gerris",),
        command="gerris2D cavity.gfs",
        figures=(Figure("wall time", "s", rf"^step:\s+\d+ .*real:\s+{NUMBER}"),),
        checks=(
            AgreesWithSerial("velocity", rf"^U .*first:\s+{NUMBER} second:\s+{NUMBER} infty:\s+{NUMBER}", 1e-3),
            Prints(r"^step:\s+100 "),
        ),
    ),
)

_ALGEBRA = (
    Application(
        name="hpcc",
        what="HPC Challenge: HPL (N = 2000), PTRANS, RandomAccess, FFT",
        pattern="panel broadcasts; transposition; tiny all-to-all messages",
        packages=("hpcc",),
        command="hpcc",
        report="hpccoutf.txt",
        figures=(
            Figure("HPL", "Tflop/s", rf"^HPL_Tflops={NUMBER}", lower_is_better=False),
            Figure("PTRANS", "GB/s", rf"^PTRANS_GBs={NUMBER}", lower_is_better=False),
            Figure("RandomAccess", "Gup/s", rf"^MPIRandomAccess_GUPs={NUMBER}", lower_is_better=False),
            Figure("FFT", "Gflop/s", rf"^MPIFFT_Gflops={NUMBER}", lower_is_better=False),
        ),
        checks=(
            Prints(r"^Success=1$", never="FAILED"),
            Prints(r"\|\|Ax-b\|\|.*PASSED"),
            Prints(r"^MPIRandomAccess_ErrorsFraction=0(?:\.0*)?\s*$"),
        ),
    ),
    Application(
        name="ptscotch",
        what=f"graph: a grid of 40,000 vertices, divided into {PARTS} parts",
        pattern="irregular all-to-all, graph halo",
        packages=("ptscotch",),
        generate=grid_graph,
        command=f"dgpart {PARTS} grid.grf grid.map -vt",
        figures=(Figure("mapping", "s", rf"^T\s+Mapping\s+min=\S+\s+max={NUMBER}"),),
        checks=(FileCheck(partition_is_fair),),
    ),
)

_OTHERS = (
    Application(
        name="neuron",
        what="neuroscience: 128 Hodgkin-Huxley cells, 2 s",
        pattern="spikes gathered from all ranks, 2000 times",
        packages=("neuron",),
        command="nrniv -mpi ring.hoc",
        figures=(Figure("time", "s", rf"^solved in {NUMBER} s"),),
        checks=(AgreesWithSerial("spikes and their times", rf"^spikes {NUMBER}, sum of their times {NUMBER}", 1e-9),),
    ),
    Application(
        name="iqtree",
        what="phylogenetics: maximum likelihood of 12 sequences",
        pattern="candidate trees exchanged between workers",
        packages=("iqtree",),
        generate=alignment,
        command="iqtree2-mpi -s alignment.phy -m GTR+G -seed 1 -nt 1 -redo",
        figures=(Figure("wall time", "s", rf"^Total wall-clock time used: {NUMBER} sec"),),
        checks=(AgreesWithSerial("log-likelihood", rf"^BEST SCORE FOUND : {NUMBER}", 1e-5),),
    ),
    Application(
        name="montecarlo",
        what="Monte Carlo in Python (mpi4py): 3000 pieces farmed out",
        pattern="master and workers, pickled messages of some bytes",
        packages=("python3-mpi4py",),
        command=f"{_PYTHON} montecarlo.py",
        figures=(Figure("time", "s", rf"^farmed in {NUMBER} s"),),
        checks=(Prints("^within 1 %$", times=5, never="WRONG"), Prints("^pieces done once each: 3000$")),
    ),
    Application(
        name="graph",
        what="breadth-first searches in Python (mpi4py): 20,000 vertices",
        pattern="all-to-all of pickled lists, a reduction each level",
        packages=("python3-mpi4py",),
        command=f"{_PYTHON} graph.py",
        figures=(Figure("time", "s", rf"^searched in {NUMBER} s"),),
        checks=(
            Prints("valid$", times=10, never="WRONG"),
            AgreesWithSerial("distances", rf"sum of distances {NUMBER}", 0),
        ),
    ),
)

APPLICATIONS = {
    application.name: application for application in (*_MOLECULES, *_ELECTRONS, *_FIELDS, *_ALGEBRA, *_OTHERS)
}
