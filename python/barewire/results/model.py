# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A model: the measured functions of all subjects, and the kernels' computations; from runs, or from a document.

The document keeps every launch's median, so that a prediction from it has the same intervals as one from the runs.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from barewire.errors import WrongUse
from barewire.results.computations import Computation, computations_of
from barewire.results.functions import MAY_BE_NEGATIVE, Function, functions_of, subjects_of
from barewire.results.published import read_table
from barewire.results.run import Run

SCHEMA_NAME = "barewire-model"
SCHEMA = f"{SCHEMA_NAME}/1"
# Facts that must be equal in runs whose times are used together.
_SAME_MACHINE = ("kernel", "cpu", "cores")
_Count = Annotated[int, Meta(ge=1)]


@dataclass(frozen=True, eq=False)
class Model:
    """`functions` by subject and name; `rate_bit_s` is None for a link without a rate.

    `mtu` is a list where the run has several: subjects have theirs in their names.

    `cores`: those that all ranks share, in a lab or on one host; None for real hosts, where each rank has its own.
    """

    runs: tuple[str, ...]
    rate_bit_s: float | None
    mtu: int | list[int] | None
    cores: int | None
    functions: Mapping[str, Mapping[str, Function]]
    computations: tuple[Computation, ...]

    def to_json(self) -> dict[str, Any]:
        """Return one JSON object."""
        return {
            "schema": SCHEMA,
            "runs": list(self.runs),
            "rate_bit_s": self.rate_bit_s,
            "mtu": self.mtu,
            "cores": self.cores,
            "functions": {
                subject: {name: function.to_json() for name, function in functions.items()}
                for subject, functions in self.functions.items()
            },
            "computations": [each.to_json() for each in self.computations],
        }

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Inverse of `to_json`; WrongUse for any other document."""
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, dict) else type(data).__name__
            raise WrongUse(f"this is no model but {found!r}: give a run, or what `barewire model RUN --json` printed")
        try:
            return cls(
                runs=tuple(data["runs"]),
                rate_bit_s=msgspec.convert(data["rate_bit_s"], Annotated[float, Meta(gt=0)] | None),
                mtu=msgspec.convert(data["mtu"], _Count | list[_Count] | None),
                cores=msgspec.convert(data["cores"], _Count | None),
                functions={
                    subject: {
                        name: Function.from_json(function, may_be_negative=name in MAY_BE_NEGATIVE)
                        for name, function in functions.items()
                    }
                    for subject, functions in data["functions"].items()
                },
                computations=tuple(Computation.from_json(each) for each in data["computations"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise WrongUse(f"the model is damaged: {error!r}") from error


def model_of(runs: Sequence[Run]) -> Model:
    """Gather what the runs measured; of several runs with the same function the first one counts.

    WrongUse if they come from different machines, or have messages over different links.
    """
    functions: dict[str, dict[str, Function]] = {}
    computations: list[Computation] = []
    with_messages: list[Run] = []
    for run in runs:
        _check_machine(runs[0], run)
        found = {subject: functions_of(run, subject) for subject in subjects_of(run)}
        if found:
            with_messages.append(run)
        for subject, of_subject in found.items():
            functions[subject] = {**of_subject, **functions.get(subject, {})}
        computations += computations_of(run, shared_cores(run))
    links = [(run.parameters.get("rate_bit_s"), run.parameters.get("mtu")) for run in with_messages]
    if any(link != links[0] for link in links):
        raise WrongUse("the runs have messages over different links: give those of one rate and MTU")
    rate_bit_s, mtu = links[0] if links else (None, None)
    return Model(
        runs=tuple(run.id for run in runs),
        rate_bit_s=rate_bit_s,
        mtu=mtu,
        cores=next((cores for run in runs if (cores := shared_cores(run)) is not None), None),
        functions=functions,
        computations=tuple(computations),
    )


def model_of_table(path: Path, rate_bit_s: float | None, mtu: int) -> Model:
    """Make a model of a table of latencies (`results/published.py`), over a link of this rate and MTU."""
    functions = {subject: {"latency": Function("table", times)} for subject, times in read_table(path).items()}
    return Model((str(path),), rate_bit_s, mtu, None, functions, ())


def read_model(path: Path) -> Model:
    """Read a model's document; WrongUse with the reason if it is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WrongUse(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise WrongUse(f"{path} is not JSON ({error}): give a run, or the output of `model RUN --json`") from error
    try:
        return Model.from_json(data)
    except WrongUse as error:
        raise WrongUse(f"{path}: {error}") from error


def shared_cores(run: Run) -> int | None:
    """Return the number of cores that all ranks of a run share; None on real hosts."""
    cores = run.environment.get("cores")
    on_one_machine = run.lab is not None or run.parameters.get("hosts") == 1
    return cores if on_one_machine and isinstance(cores, int) else None


def _check_machine(first: Run, other: Run) -> None:
    different = [name for name in _SAME_MACHINE if first.environment.get(name) != other.environment.get(name)]
    if different:
        raise WrongUse(f"{first.id} and {other.id} are of different machines ({', '.join(different)} differ)")
