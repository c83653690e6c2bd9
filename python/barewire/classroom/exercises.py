# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The exercises: what each asks, and what is right for the student's own run.

An answer is compared with theory, or with what the run itself shows, so that answers are as individual as machines.
`docs/classroom` has a page for each.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barewire.errors import WrongUse
from barewire.measure.recover import recover_run
from barewire.models.wire import frames_of_message, latency_limit_us, wire_bytes
from barewire.results.laws import laws_of
from barewire.results.run import Run

_VALUE_SHOWN = 40


@dataclass(frozen=True)
class Question:
    """A number to find. `expected` takes the material; answers within `tolerance`, a share, are right.

    `hint` is for those who are not right yet: it says where to look, and not the number. Below `least` the material
    itself is not good enough.
    """

    name: str
    text: str
    unit: str
    expected: Callable[[Any], float]
    tolerance: float
    hint: str
    least: float | None = None


@dataclass(frozen=True)
class Exercise:
    """`material` is "run", the directory of a run, or "document", a file that `sdn simulate --json` printed."""

    name: str
    title: str
    material: str
    command: str
    questions: tuple[Question, ...]

    def read(self, path: Path) -> Any:
        """Read the student's material; WrongUse if it is none."""
        if self.material == "run":
            return recover_run(path)
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise WrongUse(f"{path} is not what `{self.command}` prints: {error}") from error
        if not isinstance(found, dict) or not _are_simulated(found.get("series")):
            raise WrongUse(f"{path} is not what `{self.command}` prints")
        return found


def _are_simulated(series: Any) -> bool:
    """Whether these are series of a simulation, and not those of another document."""
    return isinstance(series, list) and all(
        isinstance(each, dict) and {"strategy", "workload"} <= each.keys() and _is_number(each.get("mean"))
        for each in series
    )


def _is_number(value: Any) -> bool:
    """Whether it can be compared: neither infinite nor more than a float holds."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _median(run: Run, **wanted: Any) -> float:
    """The median of the only series with these fields. WrongUse if the run has none."""
    for series in run.series:
        if all(getattr(series, name) == value for name, value in wanted.items()) and series.median is not None:
            return series.median
    said = ", ".join(f"{name} {value}" for name, value in wanted.items())
    raise WrongUse(f"the run has no series with {said}: measure with the exercise's own command")


def _wire(message_bytes: int, protocol: Any) -> float:
    return float(sum(wire_bytes(frames) for frames in frames_of_message(message_bytes, protocol, 1500)))


def _slope_mbit_s(run: Run) -> float:
    short, long = (_median(run, subject="raw", message_bytes=size) for size in (256, 1400))
    if long <= short:
        raise WrongUse("in this run 1400 B take no longer than 256 B: measure again on a quieter machine")
    return (1400 - 256) * 8 / (long - short)


def _window_ratio(run: Run) -> float:
    def of(window: int) -> float:
        for series in run.series:
            if f"window={window}" in series.subject.split("+")[1:] and series.median is not None:
                return series.median
        raise WrongUse(f"the run has no window of {window}: measure with the exercise's own command")

    return of(63) / of(2)


def _first_break(run: Run) -> Any:
    laws = [law for law in laws_of(run) if "eager=4096" in law.subject]
    breaks = [
        each for law in laws for each in law.fit.breaks if each.low <= 4096 <= each.high or 2048 < each.low < 8192
    ]
    if not breaks:
        raise WrongUse("in this run the eager limit of 4 KiB makes no break: measure again on a quieter machine")
    return max(breaks, key=lambda each: abs(each.jump))


def _hidden(run: Run, progress: str) -> float:
    for series in run.series:
        is_wanted = series.quantity == "hidden_share" and series.subject.endswith(f"progress={progress}")
        if is_wanted and series.median is not None:
            return series.median
    raise WrongUse(f"the run has no hidden share with --progress {progress}: measure with the exercise's own command")


def _share(document: Mapping[str, Any], strategy: str) -> float:
    for series in document["series"]:
        if series["strategy"] == strategy and series["workload"] == "permutation":
            return float(series["mean"])
    raise WrongUse(f"the document has no permutations by {strategy}: simulate with the exercise's own command")


def _gain(document: Mapping[str, Any]) -> float:
    own = [series["strategy"] for series in document["series"] if series["strategy"] not in ("ecmp", "planned")]
    if not own:
        raise WrongUse("the document has no strategy of yours: --strategy ecmp,planned,mine:Mine")
    ecmp = _share(document, "ecmp")
    if not ecmp > 0:
        raise WrongUse("in this document ecmp has no rate to compare with: simulate with the exercise's own command")
    return _share(document, own[0]) / ecmp


EXERCISES = (
    Exercise(
        "frame",
        "What a frame costs",
        "run",
        "barewire bench pingpong --transport raw,tcp --sizes 1,64,256,1400 --lab pair --rate 10mbit -o runs/frame",
        (
            Question(
                "wire_bytes_1",
                "Bytes that a raw frame with one byte of payload occupies on the wire, with preamble and gap.",
                "B",
                lambda _: _wire(1, "raw"),
                0.0,
                "A frame has at least 64 bytes with its check sequence; preamble and gap come on top.",
            ),
            Question(
                "wire_bytes_1400_tcp",
                "The same for 1400 bytes in one TCP segment.",
                "B",
                lambda _: _wire(1400, "tcp"),
                0.0,
                "IP has 20 bytes, TCP 20 and 12 more for Linux's time stamps.",
            ),
            Question(
                "wire_us_1400",
                "Time that a raw frame of 1400 bytes occupies a link of 10 Mb/s.",
                "µs",
                lambda _: latency_limit_us(1400, "raw", 1500, 10e6),
                0.01,
                "Bytes on the wire times 8, divided by the rate.",
            ),
            Question(
                "rate_mbit_s",
                "Rate of the link from the run: the slope of raw frames between 256 and 1400 bytes.",
                "Mbit/s",
                _slope_mbit_s,
                0.05,
                "Bits of the difference in size, divided by that of the medians, which are one way.",
            ),
            Question(
                "software_us",
                "What of the 64 bytes' one-way time is not the wire's: software, for raw frames.",
                "µs",
                lambda run: _median(run, subject="raw", message_bytes=64) - latency_limit_us(64, "raw", 1500, 10e6),
                0.25,
                "The median of the run minus the time of the frame on the wire.",
            ),
        ),
    ),
    Exercise(
        "window",
        "Windows and loss",
        "run",
        "barewire bench stream --transport endpoint --tuned window=2,63 --tuned acknowledge_every=1 --sizes 1400 "
        "--lab pair -o runs/window",
        (
            Question(
                "frames_in_flight",
                "Frames of 1538 bytes on the wire that must be in flight to fill 1 Gb/s with a round trip of 100 µs.",
                "frames",
                lambda _: 9.0,
                0.0,
                "Rate times round trip are the bytes in flight; a part of a frame is a frame.",
            ),
            Question(
                "gain",
                "Goodput with a window of 63, divided by that with a window of 2, in the run.",
                "×",
                _window_ratio,
                0.1,
                "Divide the two medians.",
            ),
            Question(
                "repeated",
                "Frames that go-back-N sends again for one loss with 63 in flight, if the first of them is lost.",
                "frames",
                lambda _: 63.0,
                0.0,
                "The receiver keeps nothing behind the gap.",
            ),
        ),
    ),
    Exercise(
        "eager",
        "Eager and rendezvous",
        "run",
        "barewire mpi pingpong --library openmpi --fabric tcp --eager default,4KiB --sizes 64..64KiB -o runs/eager",
        (
            Question(
                "messages",
                "Messages of the protocol that a rendezvous needs until the receiver has the data.",
                "messages",
                lambda _: 3.0,
                0.0,
                "The sender asks, the receiver answers, then the data comes.",
            ),
            Question(
                "break_bytes",
                "Size at which the curve with an eager limit of 4 KiB has its largest step.",
                "B",
                lambda run: (_first_break(run).low + _first_break(run).high) / 2,
                0.5,
                "`barewire model runs/eager` lists the break points of each subject.",
            ),
            Question(
                "step_us",
                "How much longer a message takes there.",
                "µs",
                lambda run: float(_first_break(run).jump),
                0.3,
                "It is the step at that break point, in the same list.",
            ),
        ),
    ),
    Exercise(
        "overlap",
        "Overlap",
        "run",
        "barewire mpi overlap --library mpich-5 --fabric barewire --variants local-standard --sizes 256KiB "
        "--progress manual,auto -o runs/overlap",
        (
            Question(
                "hidden_manual",
                "Share of the message's time that a computation hides if nothing makes progress meanwhile, in percent.",
                "%",
                lambda run: _hidden(run, "manual"),
                0.15,
                "The row `hidden share` of the subject with progress=manual.",
            ),
            Question(
                "hidden_auto",
                "The same with a progress thread.",
                "%",
                lambda run: _hidden(run, "auto"),
                0.15,
                "The row `hidden share` of the subject with progress=auto.",
            ),
        ),
    ),
    Exercise(
        "collisions",
        "Why equal-cost paths collide",
        "document",
        "barewire sdn simulate --workload permutation --strategy ecmp,planned --host-counts 16 --seeds 20 --json "
        "> collisions.json",
        (
            Question(
                "paths",
                "Shortest paths between hosts of different pods in a fat-tree of switches with 4 ports.",
                "paths",
                lambda _: 4.0,
                0.0,
                "Two switches above the edge, each with two above it.",
            ),
            Question(
                "collision",
                "Probability that of two flows of one edge switch, hashed at random, both take the same uplink.",
                "",
                lambda _: 0.5,
                0.0,
                "An edge switch of this tree has two uplinks.",
            ),
            Question(
                "ecmp",
                "Mean share of a line's rate that a flow of a random permutation gets with ecmp.",
                "",
                lambda document: _share(document, "ecmp"),
                0.02,
                "The mean of the series of ecmp in the document.",
            ),
            Question(
                "planned",
                "The same where paths are planned.",
                "",
                lambda document: _share(document, "planned"),
                0.02,
                "Any permutation fits a fat-tree.",
            ),
        ),
    ),
    Exercise(
        "strategy",
        "A strategy of your own",
        "document",
        "PYTHONPATH=. barewire sdn simulate --workload permutation --strategy ecmp,planned,mine:Mine --host-counts 16 "
        "--seeds 20 --json > mine.json",
        (
            Question(
                "gain",
                "Mean rate with your strategy divided by that with ecmp.",
                "×",
                _gain,
                0.02,
                "Both means are in the document.",
                least=1.1,
            ),
        ),
    ),
)


@dataclass(frozen=True)
class Checked:
    """What became of an answer; `says` is for the student."""

    question: Question
    right: bool
    says: str


def check(exercise: Exercise, material: Any, answers: Mapping[str, Any]) -> list[Checked]:
    """Compare answers by name of question with what is right. WrongUse for an unknown name, or no number."""
    known = {question.name for question in exercise.questions}
    for name, value in answers.items():
        if name not in known:
            raise WrongUse(f"the exercise {exercise.name} has no question '{name}'; it has {', '.join(sorted(known))}")
        if not _is_number(value):
            raise WrongUse(f"the answer to '{name}' is a number, not {repr(value)[:_VALUE_SHOWN]}")
    return [_checked(question, material, answers.get(question.name)) for question in exercise.questions]


def _checked(question: Question, material: Any, given: float | None) -> Checked:
    if given is None:
        return Checked(question, False, f"not answered; {question.hint}")
    expected = question.expected(material)
    # An expected value that is no number is not reached.
    if not abs(given - expected) <= question.tolerance * abs(expected) + 1e-9:
        return Checked(question, False, f"not yet: {question.hint}")
    if question.least is not None and expected < question.least:
        return Checked(question, False, f"right, but it must reach {question.least:g}")
    return Checked(question, True, "right")
