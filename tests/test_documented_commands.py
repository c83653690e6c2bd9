# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The commands in code blocks of README.md and docs, run page by page with less effort than printed.

`make test` runs those that only read results, on results made here. `make matrix` runs all, in the order of the page:
each reads what those before it left. What cannot run is listed with its reason.
"""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import foreign_outputs
import pytest
from conftest import BAREWIRE, ROOT, barewire
from documented import block, pages
from mpi_libraries import library, program
from synthetic import synthetic_run
from synthetic_mpi import subject, synthetic_mpi
from test_scoreboard import campaign, measured

from barewire.study import tables
from barewire.study.plan import read_plan
from barewire.study.steps import begin

pytestmark = pytest.mark.usefixtures("lab_allowed", "nothing_left")
PAGES = pages()

# What is not run, by a part of the command.
NOT_RUN = {
    r"--(hosts|hostfile) '?(?!localhost)": "names other machines, which tests/test_cluster.py makes",
    r"barewire cluster check$": "reads a file of other machines; tests/test_cluster.py",
    r"SLURM_NTASKS|--slurm|\$run\b": "needs Slurm; tests/test_cluster.py",
    r"^sudo |disable$": "as root, changes this machine; python/tests/test_enable.py",
    r"--install-completion|--show-completion": "asks which shell it is typed in; python/tests/test_command_line.py",
    r"--library intel": "needs Intel's library, which nothing installs unasked; tests/test_mpi.py",
    r"--delay 50us": "needs an emulator that not every kernel has; tests/test_lab_wire.py",
    r"--emulated": "boots two machines, which not every machine can; tests/test_emulated.py",
    r"cpu_allreduce_test": "needs oneCCL, which no package has",
    r"mpi applications(?! --list)": "needs 3 GB of programs; tests/test_applications.py",
    r"barewire tune$": "takes six minutes; tests/test_tune_lab.py",
    r"scoreboard (-o|--resume) runs/full": "takes hours; tests/test_mpi_scoreboard.py",
    r"study run watter2006": "takes minutes in its shortest form; tests/test_study_run.py",
    r"--library /opt": "needs two versions of a library; python/tests/test_compare.py",
    r"(?<!/)…": "needs what it leaves out",
    r"sdn start --listen": "needs switches of a real network; tests/test_sdn.py and tests/test_sdn_failover.py",
    r"sdn announce": "needs the controller of a real network; tests/test_sdn.py",
    r"sdn learn": "needs scikit-learn, which nothing installs unasked; python/tests/test_sdn_learn.py",
    r"--shuffler dask": "needs Dask, which nothing installs unasked; tests/test_sdn_dask_and_spark.py",
}
# What a command says besides success.
EXIT_CODES = {
    "barewire bench pingpong --transport tpc": 2,
    # Answers to two of five questions.
    "bin/barewire exercise check frame answers.toml runs/frame": 1,
    "bin/barewire profile -n 2 --lab pair --limit 60 -- ./hangs": 1,
}
MPI_EFFORT = "--launches 1 --seconds 0.002 --samples 1 --warmup 1 --budget 20"
SDN_EFFORT = (
    "--blocks 1 --rings 1 --measurements 1 --exchanges 1 --iterations 1 --rate 25mbit --message-bytes 50000 "
    "--shape 8x2 --volume-bytes 2000000"
)
# What is added to commands that begin like this; the longest beginning counts.
EFFORT = {
    "bench": "--launches 2 --seconds 0.005 --samples 5 --warmup 1 --blocks 2",
    "bench budget": "--launches 1 --seconds 0.005 --samples 5 --warmup 1 --library openmpi",
    "bench host": "--launches 1 --seconds 0.001 --largest-block 67108864",
    "mpi": MPI_EFFORT,
    # These take a curve of each size.
    **dict.fromkeys(
        ["mpi pingpong,exchange,stream,logp", "mpi logp,overhead", "mpi nonblocking"],
        f"{MPI_EFFORT} --sizes 8,1KiB,64KiB",
    ),
    "mpi overlap,overhead,logp": f"{MPI_EFFORT} --sizes 1KiB",
    "mpi applications": "",
    # Refining needs four launches.
    "mpi pingpong --sizes 1..128KiB --refine": MPI_EFFORT.replace("--launches 1", "--launches 4"),
    "mpi scoreboard": "--testbeds pair --patterns pingpong --sizes 64 --launches 1 --budget 10",
    "mpi scoreboard runs": "",
    "profile": "--limit 3",
    "sdn bench": f"--host-counts 4 {SDN_EFFORT}",
    "sdn bench --workload mixed": f"--host-counts 8 {SDN_EFFORT}",
    "sdn simulate": "--seeds 2",
    "sdn simulate --workload ring": "--seeds 1 --host-counts 4 --strategy stp,ecmp",
    "try": "--launches 2 --budget 20",
}
# What is added to those that would take all there are.
FEWER = {"mpi": ("--library", "openmpi"), "sdn bench": ("--strategy", "ecmp")}
# These take a second: they measure and model nothing, and need no lab.
CHEAP = re.compile(
    r"account|compare|enable|exercise|export|import|modulefile"
    r"|mpi (applications|scoreboard runs)|report|sdn simulate|status|study (list|report)|trajectory"
)


def named(command: str) -> str:
    """The command without its program and that one's environment."""
    return re.split(r'barewire"? ', command, maxsplit=1)[-1]


def is_cheap(command: str) -> bool:
    return CHEAP.match(named(command)) is not None


COMMANDS = [command for commands in PAGES.values() for command in commands]
RUN = {
    page: [command for command in commands if not any(re.search(part, command) for part in NOT_RUN)]
    for page, commands in PAGES.items()
}


def test_what_is_listed_stands_on_a_page() -> None:
    assert [part for part in NOT_RUN if not any(re.search(part, command) for command in COMMANDS)] == []
    assert EXIT_CODES.keys() <= {*COMMANDS}
    assert [start for start in EFFORT if not any(named(command).startswith(start) for command in COMMANDS)] == []
    assert len(COMMANDS) > 200 and sum(map(len, RUN.values())) > 150


@pytest.mark.parametrize("page", [page for page, commands in RUN.items() if any(map(is_cheap, commands))])
def test_commands_that_read_results_do_what_their_page_says(page: str, tmp_path: Path) -> None:
    run_page([command for command in RUN[page] if is_cheap(command)], tmp_path)


@pytest.mark.matrix
@pytest.mark.parametrize("page", [page for page, commands in RUN.items() if not all(map(is_cheap, commands))])
def test_commands_of_a_page_run_in_its_order(page: str, tmp_path: Path) -> None:
    run_page(RUN[page], tmp_path)


def run_page(commands: Sequence[str], folder: Path) -> None:
    """Run all of them in a folder of their own; in the end none may have failed."""
    for name in ("target", "tests", ".mpi"):
        (folder / name).symlink_to(ROOT / name)
    with contextlib.ExitStack() as until_then:
        session = Session(folder, until_then)
        until_then.callback(barewire, "lab", "down", "--all")
        failures = [failure for command in commands if (failure := session.run(command))]
    assert failures == [], "\n\n".join(failures)


class Session:
    """What a reader of one page has in front of them: a folder, variables, a running lab and a controller."""

    def __init__(self, folder: Path, until_then: contextlib.ExitStack) -> None:
        self.folder, self.until_then = folder, until_then
        self.variables: dict[str, str] = {}
        self.lab = ""
        self.controller: subprocess.Popen[str] | None = None

    def run(self, command: str) -> str | None:
        """Run a printed command to its end, or to its first words if it goes on; how it failed, or None."""
        words = shlex.split(command)
        assigned = {}
        while words and "=" in words[0]:
            name, value = words.pop(0).split("=", 1)
            assigned[name] = value
        if not words:
            self.variables |= assigned
            return None
        environment = os.environ | {"HOME": str(self.folder)} | assigned
        arguments, output = self._arguments(words[1:])
        begun = time.monotonic()
        if arguments[:2] == ["sdn", "start"] or arguments[-1] == "&":
            self._start([word for word in arguments if word != "&"], environment)
            return None
        if arguments[:2] == ["lab", "up"]:
            barewire("lab", "down", "--all")
        # Python reads PYTHONPATH when it starts.
        done = (started if assigned else barewire)(*arguments, env=environment, cwd=self.folder, timeout=600)
        print(f"{time.monotonic() - begun:.1f} s: {command}")
        if (up := re.match("lab ([0-9a-f]+): ", done.stdout)) is not None:
            self.lab = up[1]
        if output is not None:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(done.stdout)
        right = done.returncode == EXIT_CODES.get(command, 0) and "Traceback" not in done.stderr
        return None if right else f"{command}\n{shlex.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"

    def _arguments(self, words: list[str]) -> tuple[list[str], Path | None]:
        """Words with less effort, real names of labs, what variables and patterns stand for; and the file of `>`."""
        expanded = [
            part
            for before, word in zip(["", *words], words, strict=False)
            for part in ([word] if before == "-o" else self._expanded(word))
        ]
        output = None
        if ">" in expanded:
            at = expanded.index(">")
            output = self.folder / expanded[at + 1].lstrip("/")
            expanded = expanded[:at]
        end = expanded.index("--") if "--" in expanded else len(expanded)
        return [*expanded[:end], *effort(expanded[:end]), *expanded[end:]], output

    def _expanded(self, word: str) -> list[str]:
        if word.startswith("$"):
            return self.variables[word[1:]].split()
        if word in ("1f2e3d4c", "ID"):
            return [self.lab]
        if word.startswith("["):
            return []
        path = self.folder / word
        if word in FILES and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            FILES[word](path)
        return sorted(str(file.relative_to(self.folder)) for file in self.folder.glob(word)) if "*" in word else [word]

    def _start(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """A program that goes on until the page ends; of controllers, which have one address, the last."""
        if self.controller is not None and arguments[0] == "sdn":
            end(self.controller)
        process = subprocess.Popen(
            [BAREWIRE, *arguments],
            env=dict(environment),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.until_then.callback(end, process)
        assert process.stdout is not None
        first = process.stdout.readline()
        assert process.poll() is None and first, f"{shlex.join(arguments)}: {first}{process.stdout.read()}"
        if arguments[0] == "sdn":
            self.controller = process


def started(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([BAREWIRE, *arguments], capture_output=True, text=True, check=False, **options)


def end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    process.communicate(timeout=30)


def effort(words: Sequence[str]) -> list[str]:
    """Options that override those of `words`, which the command takes the last of."""
    fitting = [start for start in EFFORT if " ".join(words).startswith(start)]
    added = shlex.split(EFFORT[max(fitting, key=len)]) if fitting else []
    for start, (option, value) in FEWER.items():
        if added and " ".join(words).startswith(start) and option not in {*words, *added}:
            added += [option, value]
    return added


# Files that pages speak of and do not make. In `make test` also those of commands that it leaves out.


def bare_run(path: Path) -> None:
    synthetic_run(
        path, launches=10, samples_per_launch=10, sizes=(64, 256, 1400), seed=int(path.name.encode().hex(), 16)
    )


def mpi_run(*tests: str, ranks: tuple[int, ...] = (2,), launches: int = 6) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.mkdir()
        synthetic_mpi(path, *tests, ranks=ranks, launches=launches)

    return make


def two_versions(path: Path) -> None:
    path.mkdir()
    old = subject("mpich-5", "tcp")
    versions = [replace(old, library=replace(old.library, name=f"mpich-5.{minor}")) for minor in (0, 1)]
    synthetic_mpi(path, "pingpong", subjects=tuple(versions))


def osu_outputs(path: Path) -> None:
    for number in range(6):
        text = foreign_outputs.osu_latency({8: 1 + number / 100, 64: 1.2 + number / 100})
        (path.parent / path.name.replace("*", str(number))).write_text(text)


def copy_of(path: Path) -> Callable[[Path], object]:
    return lambda target: shutil.copy(path, target)


def built(source: str) -> Callable[[Path], object]:
    return lambda target: shutil.copy(program("mpich-5", source), target)


HANGS = """#include <mpi.h>
int main(int count, char **arguments) {
  MPI_Init(&count, &arguments);
  MPI_Recv(&count, 1, MPI_INT, MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
"""


def hanging(path: Path) -> None:
    (path.parent / "hangs.c").write_text(HANGS)
    compiler = library("mpich-5").program("mpicc")
    subprocess.run([compiler, str(path.parent / "hangs.c"), "-o", str(path)], check=True, capture_output=True)


FILES: dict[str, Callable[[Path], object]] = {
    **dict.fromkeys(["OLD", "NEW", "runs/…", "runs/old", "runs/new", "runs/frame", "runs/window"], bare_run),
    **dict.fromkeys(["runs/two", "runs/messages", "runs/exchange", "runs/logp"], mpi_run("pingpong", "logp")),
    **dict.fromkeys(["RUN1", "RUN2", "RUN3", *(f"runs/{number}" for number in range(1, 6))], bare_run),
    **dict.fromkeys(["runs/measured", "runs/kernels"], mpi_run("fft", "radix", ranks=(4, 8), launches=7)),
    **dict.fromkeys(["job.pcapng", "one.pcapng"], copy_of(ROOT / "python/tests/captures/tcp.pcapng")),
    **dict.fromkeys(["osu_latency-*.txt", "osu_latency-tcp-*.txt", "osu_latency-barewire-*.txt"], osu_outputs),
    **dict.fromkeys(["./program", "./one_size"], built("one_size")),
    "RUN": mpi_run("pingpong", "fft"),
    "PAIR": mpi_run("pingpong"),
    "runs/versions": two_versions,
    "runs": lambda path: bare_run(path / "first"),
    **dict.fromkeys(["runs/computation", "runs/single"], mpi_run("fft", "radix", "krylov", ranks=(1, 2))),
    "runs/eager": mpi_run("pingpong"),
    "runs/overlap": mpi_run("overlap"),
    "runs/full": lambda path: measured(path, campaign()),
    "runs/watter2006-quick": lambda path: begin(read_plan("watter2006"), path, "quick", None),
    "paper.csv": copy_of(Path(tables.__file__).parent / "published/paz2010_pingpong.csv"),
    "answers.toml": lambda path: path.write_text(block("classroom/README.md", "toml")),
    "ecmp,planned,mine:Mine": lambda path: (path.parent / "mine.py").write_text(
        block("classroom/strategy.md", "python")
    ),
    "./pingpong": built("pingpong"),
    "./solve": built("messages"),
    "./hangs": hanging,
    "solve.py": lambda path: path.write_text(
        "import ctypes\n\nmpi = ctypes.CDLL('libmpi.so.40')\nmpi.MPI_Init(0, 0)\nmpi.MPI_Finalize()\n"
    ),
}
