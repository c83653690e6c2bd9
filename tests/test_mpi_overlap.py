# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What messages hide of computations, LogP's parameters, b_eff's rings: under real MPI libraries in the lab, and over a
transport whose parameters are known, which must be found within 5 %.
"""

import functools
import json
import os
import re
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from conftest import ROOT, barewire
from mpi_libraries import library, measurement, needs, run_here
from test_models_derived import derived_value

from barewire.models.derived import Findings, Point, derived

# One library over Barewire; the other pairs in `make matrix`. Not Debian's MPICH: over UCX some jobs never
# leave MPI_Finalize, after their last record.
PAIRS = [
    ("openmpi", "barewire"),
    *(
        pytest.param(*pair, marks=pytest.mark.matrix)
        for pair in (
            *(("openmpi", "tcp"), ("mpich-5", "barewire"), ("mpich-5", "tcp")),
            *(("openmpi-5", "barewire"), ("openmpi-5", "tcp")),
        )
    ),
]
# Options that make each as short as it gets, and what it then measures besides the time.
VARIANTS: dict[str, dict[str, str | None]] = {
    "overlap": {
        "pingpong": None,
        **{
            f"pingpong-{call}-{mode}": None
            for call in ("irecv", "isend")
            for mode in ("standard", "synchronous", "buffered", "ready")
        },
        **dict.fromkeys(("local-standard", "local-synchronous", "local-receive"), "wait"),
    },
    "overhead": {
        **{f"{name}{mode}": "single" for name in ("gap-send", "gap-isend") for mode in ("", "-synchronous")},
        **{f"{name}{mode}": None for name in ("gap-receive", "gap-receive-irecv") for mode in ("", "-synchronous")},
        **dict.fromkeys(("call-send", "call-send-synchronous", "call-receive", "call-receive-irecv")),
    },
    "logp": {
        f"{name}{mode}": part
        for mode in ("", "-synchronous", "-irecv")
        for name, part in (("roundtrip", None), ("gap", "single"), ("gap-send", "single"), ("gap-receive", None))
    },
    "availability": {"send": None, "receive": None},
}
LOGP = ("roundtrip", "gap", "gap-send", "gap-receive")
WALKED = {
    "overlap": ("pingpong", "pingpong-irecv-ready", "pingpong-isend-buffered", "local-synchronous", "local-receive"),
    "overhead": ("gap-send", "gap-isend-synchronous", "gap-receive-irecv", "call-send", "call-receive-irecv"),
    "logp": ("roundtrip-irecv", "gap", "gap-receive"),
}
WITHOUT_COMPUTATION = {
    *("call-send", "call-send-synchronous"),
    *(f"{name}{mode}" for name in LOGP[:2] for mode in ("", "-synchronous", "-irecv")),
}
POINTS, SAMPLES = 4, 3
SHORT = ("--points", str(POINTS), "--samples", str(SAMPLES), "--seconds", "0", "--warmup", "1", "--train", "16")

# The synthetic transport's parameters. Large against what a busy machine adds.
OS_NS, OR_NS, L_NS, G_NS, MESSAGE_BYTES = 400_000, 500_000, 250_000, 600, 1000
WIRE_NS = G_NS * MESSAGE_BYTES
EEL_NS = OS_NS + WIRE_NS + L_NS + OR_NS
TOLERANCE = 0.05
LAUNCHES_MAX = 12


def records(output: str) -> list[dict[str, Any]]:
    """All records of a run, which must be complete."""
    found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert found[0]["record"] == "start" and found[0]["schema"] == "barewire-mpi/1"
    assert found[-1] == {"record": "end", "complete": True}
    return found


def points_of(found: list[dict[str, Any]]) -> Iterator[Point]:
    for one in found:
        if one["record"] == "samples" and one["phase"] == "measure":
            parameter = one.get("computation_ns", one.get("ring"))
            names = ("variant", "quantity", "message_bytes", "rank")
            yield Point(*(one[name] for name in names), parameter, one["values"])


@pytest.mark.usefixtures("lab_allowed", "nothing_left")
@pytest.mark.parametrize("program", VARIANTS)
@pytest.mark.parametrize(("name", "fabric"), PAIRS)
def test_every_curve_is_recorded_over_every_fabric(name: str, fabric: str, program: str) -> None:
    """Each variant has its grid; contents are checked by the programs."""
    needs(fabric)
    built = measurement(name, program)
    done = barewire("run", "-n", "2", "--lab", "pair", "--fabric", fabric, "--", built, "--sizes", "20000", *SHORT)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    judge(program, list(points_of(records(done.stdout))), 20000, VARIANTS[program])


@pytest.mark.parametrize("program", VARIANTS)
def test_every_curve_is_recorded_of_no_byte_and_of_buffers_that_walk(program: str) -> None:
    """Also beside a third rank, which has nothing to do, but polls: it may hold up one run, and not each of three.

    One variant for each way to send and to receive; the third rank makes each take long.
    """
    variants = WALKED.get(program, tuple(VARIANTS[program]))
    for runs_left in (2, 1, 0):
        selected = ("--variants", ",".join(variants))
        done = run_here(program, "--sizes", "0,1", "--walk-bytes", "1000", *SHORT, *selected, ranks=3)
        assert done.returncode == 0, done.stderr
        points = list(points_of(records(done.stdout)))
        assert {one.rank for one in points if one.variant != "calibration"} <= {0, 2}
        try:
            for size in (0, 1):
                judge(program, points, size, variants)
            return
        except AssertionError:
            if not runs_left:
                raise


def judge(program: str, points: list[Point], size: int, variants: Iterable[str]) -> None:
    """All quantities of these variants are there, of one rank each, over the whole grid; and no others."""
    assert {one.quantity for one in points if one.variant == "calibration"} == {"operation", "clock"}
    assert {one.variant for one in points} == {*variants, "calibration"}
    for variant in variants:
        part = VARIANTS[program][variant]
        measured = [one for one in points if (one.variant, one.message_bytes) == (variant, size)]
        grid = variant not in WITHOUT_COMPUTATION
        assert {one.quantity for one in measured} == {"time"} | ({"computation"} if grid else set()) | (
            {part} if part else set()
        )
        assert len({one.rank for one in measured}) == 1 and all(len(one.values) == SAMPLES for one in measured)
        # The time of a train is what is left without a single message's, which a busy machine can make longer.
        times = [value for one in measured if one.quantity == "time" for value in one.values]
        assert part == "single" or min(times) > 0
        coordinates = {one.parameter_value for one in measured}
        if not grid:
            assert coordinates == {None}
        elif not variant.startswith("call-"):
            none, *others = sorted(coordinates)  # type: ignore[type-var]
            assert len(others) == POINTS - 1 and none < others[0] / 10  # type: ignore[operator]


@pytest.mark.usefixtures("lab_allowed", "nothing_left")
@pytest.mark.parametrize(("name", "fabric"), PAIRS)
def test_rings_are_recorded_over_every_fabric(name: str, fabric: str) -> None:
    needs(fabric)
    built = measurement(name, "beff")
    options = ("--sizes", "8,20000", "--rings", "2", "--exchanges", "2")
    done = barewire("run", "-n", "3", "--lab", "star:3", "--fabric", fabric, "--", built, *options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = derived("beff", points_of(records(done.stdout)))
    for ring in ("natural", "random"):
        assert derived_value(found, ring, "bandwidth", 20000) == pytest.approx(
            20000e9 / derived_value(found, ring, "latency", 20000)
        )
        assert derived_value(found, ring, "latency", 8) > 0


def test_rings_follow_from_the_seed() -> None:
    """All ranks in each, the natural one in order; equal for equal seeds, whatever else is asked for."""

    def rings(*options: str) -> dict[tuple[str, float | None], list[float]]:
        done = run_here("beff", "--sizes", "8", "--exchanges", "1", *options, ranks=5)
        assert done.returncode == 0, done.stderr
        points = points_of(records(done.stdout))
        return {(one.variant, one.parameter_value): list(one.values) for one in points if one.quantity == "order"}

    first, longer, other = (
        rings("--rings", "4"),
        rings("--rings", "5", "--samples", "1"),
        rings("--rings", "4", "--seed", "2"),
    )
    assert len(first) == 2 * (1 + 4) and first.items() <= longer.items()
    assert first["natural-sendrecv", 0] == [0, 1, 2, 3, 4] == other["natural-nonblocking", 0]
    assert all(sorted(order) == [0, 1, 2, 3, 4] for order in first.values())
    assert first != other and len({tuple(order) for order in first.values()}) > 2


@pytest.mark.parametrize("program", [*VARIANTS, "beff"])
def test_a_flipped_byte_is_found_by_each_program(program: str) -> None:
    done = run_here(program, "--sizes", "1000", "--corrupt", "7", *(() if program == "beff" else SHORT))
    assert done.returncode == 1
    found = re.search(r"(\S+): rank (\d), seed 1: WRONG RESULT: (\S+), message from rank (\d): (.*) is", done.stderr)
    assert found and (found[1], found[5]) == (program, "byte 500 of 1000") and found[2] != found[4], done.stderr


@pytest.mark.parametrize(
    ("program", "options", "says"),
    [
        ("overlap", ("--points", "3"), "--points must be from 4"),
        ("overlap", ("--reach", "0"), "--reach must be above 0"),
        ("overlap", ("--variants", "gap-send"), "no variant 'gap-send'; --help lists them"),
        ("overhead", ("--train", "2"), "--train must be 16 or more"),
        ("beff", ("--rings", "100000"), "--rings must be at most 10000"),
        ("beff", ("--exchanges", "0"), "--exchanges must be 1 or more"),
        ("beff", ("--walk-bytes", "1000000"), "--walk-bytes does not apply to rings"),
    ],
)
def test_wrong_use_says_what_to_do(program: str, options: tuple[str, ...], says: str) -> None:
    done = run_here(program, *options)
    assert done.returncode == 2 and says in done.stderr, done.stderr


@pytest.mark.parametrize("program", [*VARIANTS, "beff"])
def test_one_rank_is_too_few(program: str) -> None:
    done = run_here(program, ranks=1)
    assert done.returncode == 2 and "needs 2 ranks or more, not 1" in done.stderr


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The transport with known delays, as a library to be loaded before MPI's."""
    built = tmp_path_factory.mktemp("synthetic") / "libsynthetic.so"
    source = ROOT / "tests" / "mpi" / "synthetic.c"
    flags = ["-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command = [library("mpich-5").program("mpicc"), *flags, str(source), "-o", str(built)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(built)


@functools.cache
def real_time() -> tuple[str, ...]:
    """What starts a program at real-time priority, where that is allowed: other work then disturbs its times less."""
    start = ("chrt", "-r", "1")
    allowed = (
        shutil.which("chrt") and subprocess.run([*start, "true"], capture_output=True, check=False).returncode == 0
    )
    return start if allowed else ()


def over_synthetic(synthetic: str, program: str, progress: str, *variants: str) -> list[Point]:
    parameters = {"OS_NS": OS_NS, "OR_NS": OR_NS, "L_NS": L_NS, "G_NS": G_NS, "PROGRESS": progress}
    settings = [f"SYNTHETIC_{name}={value}" for name, value in parameters.items()]
    # Medians of a few are enough: the delays are exact, and what disturbs them is rare.
    options = ("--points", "7", "--reach", "1.5", "--samples", "9", "--warmup", "0", "--train", "16")
    options += ("--variants", ",".join(variants))
    under = (*real_time(), "env", f"LD_PRELOAD={synthetic}", *settings)
    done = run_here(program, "--sizes", str(MESSAGE_BYTES), *options, under=under)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return list(points_of(records(done.stdout)))


def agree(measure: Callable[[], dict[str, float]], expected: dict[str, float], scale: dict[str, float]) -> None:
    """Each is within 5 % of `scale` (what is expected unless given) in one launch at least; else one more launch.

    A machine that others use disturbs launches, and always the same way; a wrong method is wrong in each.
    """
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two ranks that compute at once need two cores")
    launches: list[dict[str, float]] = []
    while len(launches) < LAUNCHES_MAX:
        launches.append(measure())
        nearest = {
            name: min((one[name] for one in launches), key=lambda found: abs(found - value))
            for name, value in expected.items()
        }
        wrong = {
            name: (nearest[name], value)
            for name, value in expected.items()
            if abs(nearest[name] - value) > TOLERANCE * scale.get(name, value)
        }
        if not wrong:
            return
    pytest.fail(f"found and injected, in ns, after {LAUNCHES_MAX} launches: {wrong}")


def found_in(findings: Findings, *names: tuple[str, str]) -> dict[str, float]:
    return {f"{variant} {name}": derived_value(findings, variant, name, MESSAGE_BYTES) for variant, name in names}


def test_the_overlap_tests_find_a_known_opportunity(synthetic: str) -> None:
    """Messages leave by themselves: all but the overheads can be hidden, and time inside Wait goes to nothing."""
    variants = ("pingpong", "local-standard", "local-synchronous", "local-receive")
    expected = {
        "pingpong hidden": 2 * EEL_NS - (OS_NS + OR_NS),
        "local-standard hidden": WIRE_NS,
        "local-synchronous hidden": WIRE_NS + 2 * L_NS,
        # From the word that the receive is posted, which the sender takes in first.
        "local-receive hidden": L_NS + OR_NS + OS_NS + WIRE_NS + L_NS,
        "pingpong uncomputed": 2 * EEL_NS,
        "local-standard last wait": 0,
    }

    def measure() -> dict[str, float]:
        points = over_synthetic(synthetic, "overlap", "background", *variants)
        names = (*((variant, "hidden") for variant in variants), ("pingpong", "uncomputed"))
        return found_in(derived("overlap", points), *names) | {"local-standard last wait": last_wait(points)}

    agree(measure, expected, {"local-standard last wait": WIRE_NS})


def test_the_overlap_tests_find_no_opportunity_where_messages_leave_only_inside_calls(synthetic: str) -> None:
    """The sender sends in its own time: local hides nothing, and all of it is time inside Wait."""
    expected = {
        "local-standard hidden": 0,
        "local-standard last wait": WIRE_NS,
        "pingpong hidden": 2 * EEL_NS - (OS_NS + WIRE_NS + OR_NS),
    }

    def measure() -> dict[str, float]:
        points = over_synthetic(synthetic, "overlap", "calls", "local-standard", "pingpong")
        names = (("local-standard", "hidden"), ("pingpong", "hidden"))
        return found_in(derived("overlap", points), *names) | {"local-standard last wait": last_wait(points)}

    agree(measure, expected, {"local-standard hidden": WIRE_NS})


def last_wait(points: list[Point]) -> float:
    """Median time inside Wait after the longest computation."""
    waits = [one for one in points if (one.variant, one.quantity) == ("local-standard", "wait")]
    return statistics.median(max(waits, key=lambda one: one.parameter_value or 0).values)


@pytest.mark.matrix  # beside other tests its times are not those that were injected
def test_logp_finds_known_parameters(synthetic: str) -> None:
    expected = {
        "logp eel": EEL_NS,
        "logp gap": WIRE_NS,
        "logp os": OS_NS,
        "logp or": OR_NS,
        "logp latency": WIRE_NS + L_NS,
        "logp opportunity": 2 * EEL_NS - (OS_NS + OR_NS),
    }

    def measure() -> dict[str, float]:
        findings = derived("logp", over_synthetic(synthetic, "logp", "background", *LOGP))
        return found_in(findings, *(("logp", name.split()[1]) for name in expected))

    agree(measure, expected, {})


@pytest.mark.matrix  # beside other tests its times are not those that were injected
def test_overheads_and_availability_are_the_injected_ones(synthetic: str) -> None:
    """Hidden computation and call timing agree here, where a call takes what it costs."""
    # The word that the receive is posted, the message, and both overheads on each side.
    iteration_ns = 2 * (OS_NS + OR_NS + L_NS) + WIRE_NS
    expected = {
        "gap-isend gap": OS_NS + WIRE_NS,
        "gap-isend overhead": OS_NS,
        "call-send overhead": OS_NS,
        "call-receive overhead": OR_NS,
        "send overhead": OS_NS + OR_NS,
        "receive overhead": OS_NS + OR_NS,
        "send uncomputed": iteration_ns,
        "send availability": 1 - (OS_NS + OR_NS) / iteration_ns,
        "receive availability": 1 - (OS_NS + OR_NS) / iteration_ns,
    }

    def measure() -> dict[str, float]:
        overhead = derived(
            "overhead", over_synthetic(synthetic, "overhead", "background", "gap-isend", "call-send", "call-receive")
        )
        availability = derived(
            "availability", over_synthetic(synthetic, "availability", "background", "send", "receive")
        )
        names = [tuple(name.split()) for name in expected]
        halves = [(overhead, "-"), (availability, "")]
        return {
            f"{variant} {quantity}": derived_value(findings, variant, quantity, MESSAGE_BYTES)
            for findings, mark in halves
            for variant, quantity in names
            if ("-" in variant) == bool(mark)
        }

    agree(measure, expected, {})


@pytest.mark.matrix
def test_synchronous_mode_and_posted_receives_have_their_own_parameters(synthetic: str) -> None:
    """A blocking synchronous send occupies its program until the acknowledgement, a non-blocking one only for Os."""
    acknowledged_ns = OS_NS + WIRE_NS + 2 * L_NS
    expected = {
        "pingpong-irecv-synchronous hidden": 2 * EEL_NS - (acknowledged_ns + OR_NS),
        "pingpong-isend-synchronous hidden": 2 * EEL_NS - (OS_NS + OR_NS),
        "gap-isend-synchronous gap": acknowledged_ns,
        "gap-isend-synchronous overhead": OS_NS,
        "gap-receive-irecv gap": WIRE_NS,
        "gap-receive-irecv overhead": OR_NS,
        "call-send-synchronous overhead": acknowledged_ns,
        "call-receive-irecv overhead": OR_NS,
    }
    names = [(variant, quantity) for variant, quantity in map(str.split, expected)]

    def measure() -> dict[str, float]:
        found: dict[str, float] = {}
        for program in ("overlap", "overhead"):
            of_program = [name for name in names if name[0] in VARIANTS[program]]
            variants = dict.fromkeys(variant for variant, _ in of_program)
            found |= found_in(
                derived(program, over_synthetic(synthetic, program, "background", *variants)), *of_program
            )
        return found

    agree(measure, expected, {})


@pytest.mark.matrix  # ten seconds a launch
@pytest.mark.parametrize(
    ("mode", "send_ns", "gap_ns"),
    [("-synchronous", OS_NS + WIRE_NS + 2 * L_NS, OS_NS + WIRE_NS + 2 * L_NS), ("-irecv", OS_NS, WIRE_NS)],
)
def test_logp_finds_the_parameters_of_each_mode(synthetic: str, mode: str, send_ns: int, gap_ns: int) -> None:
    expected = {"eel": EEL_NS, "gap": gap_ns, "os": send_ns, "or": OR_NS, "latency": EEL_NS - send_ns - OR_NS}

    def measure() -> dict[str, float]:
        points = over_synthetic(synthetic, "logp", "background", *(f"{name}{mode}" for name in LOGP))
        findings = derived("logp", points)
        return {name: derived_value(findings, f"logp{mode}", name, MESSAGE_BYTES) for name in expected}

    agree(measure, expected, {"latency": EEL_NS})
