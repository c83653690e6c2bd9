# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The record of a run, `run.json`: typed here, as plain JSON on disk."""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Literal, NamedTuple, Self

from barewire.errors import WrongUse
from barewire.models.verdict import LimitKind, Verdict
from barewire.results.quantities import is_lower_better

SCHEMA_NAME = "barewire-run"
SCHEMA_VERSION = 1
SCHEMA = f"{SCHEMA_NAME}/{SCHEMA_VERSION}"

Stop = Literal["converged", "budget", "incomplete"]


class Place(NamedTuple):
    """What series that stand in one table have in common.

    `ranks` is 0 where no MPI job was measured. `parameter` names one more coordinate besides the size, "" for none.
    """

    test: str
    pairs: int = 1
    processes: int = 1
    ranks: int = 0
    quantity: str = ""
    parameter: str = ""


class Row(NamedTuple):
    """What tells the rows of such a table apart; `value` is the parameter's."""

    variant: str
    message_bytes: int
    value: float | None

    @property
    def order(self) -> tuple[str, int, float]:
        """Sorting key."""
        return self.variant, self.message_bytes, -1.0 if self.value is None else self.value


@dataclass(frozen=True)
class Launch:
    """One start of the probe for one subject: the experimental unit. `started` is ISO 8601 UTC.

    `details` keeps whatever else the runner wrote about it.
    """

    index: int
    subject: str
    test: str
    complete: bool = True
    error: str | None = None
    started: str | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The launch as one flat JSON object."""
        flat = asdict(self)
        return {**flat.pop("details"), **flat}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; KeyError when `index`, `subject` or `test` is missing."""
        known = {one.name for one in fields(cls)} - {"details"}
        for name in ("index", "subject", "test"):
            _ = data[name]
        details = {key: value for key, value in data.items() if key not in known}
        return cls(**{key: data[key] for key in known if key in data}, details=details)


@dataclass(frozen=True)
class Series:
    """One test of one subject with one message size and one number of pairs or processes; all values in `unit`.

    Of an MPI job also of one number of ranks, one variant of the test, one quantity, and one value of its parameter.

    `median` is the median of `launch_medians`, `ci95` its exact interval (None below 6 launches); `mean` is the
    mean of the launches' means, `mean_ci95` its Student interval. The quantiles, `min` and `max` are over the
    pooled samples. `samples` counts what was used and `samples_measured` what was measured after warm-up; the
    difference are lossy or invalid ones. `lost` counts messages. All values are None when no sample can be used.
    """

    test: str
    subject: str
    pairs: int
    message_bytes: int
    unit: str
    median: float | None
    ci95: tuple[float, float] | None
    mean: float | None
    mean_ci95: tuple[float, float] | None
    min: float | None
    max: float | None
    p01: float | None
    p25: float | None
    p75: float | None
    p99: float | None
    launches: int
    samples: int
    samples_measured: int
    lost: int
    lossy_samples: int
    limit: float | None
    limit_kind: LimitKind | None
    fraction_of_limit: float | None
    verdict: Verdict
    stop: Stop
    launch_medians: tuple[float, ...]
    processes: int = 1
    ranks: int = 0
    variant: str = ""
    quantity: str = ""
    parameter: str = ""
    parameter_value: float | None = None

    @property
    def lower_is_better(self) -> bool:
        """True for times, False for rates."""
        return is_lower_better(self.quantity, self.unit)

    @property
    def place(self) -> Place:
        """Which table it stands in."""
        return Place(self.test, self.pairs, self.processes, self.ranks, self.quantity, self.parameter)

    @property
    def row(self) -> Row:
        """Which row of it."""
        return Row(self.variant, self.message_bytes, self.parameter_value)

    def to_json(self) -> dict[str, Any]:
        """The series as one JSON object; intervals and medians are lists."""
        data = {one.name: getattr(self, one.name) for one in fields(self)}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in data.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; KeyError when a field is missing, unknown fields are ignored."""
        since = {one.name: one.default for one in fields(cls) if one.default is not MISSING}
        values: dict[str, Any] = {one.name: {**since, **data}[one.name] for one in fields(cls)}
        tuples: dict[str, Any] = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
        return cls(**{**values, **tuples})


@dataclass(frozen=True)
class Shared:
    """How so many processes shared an interface, in one test of one subject with one message size.

    `median` is what they got together: the sum of their rates, or the latency of all pooled; `each` is every process's
    own, and `each_ci95` its interval. `ratio_to_one` is `median` by that of one process of the same run. A process's
    share is its own value by the mean of all, within a launch; the smallest and the largest of each launch are
    summarised as medians of the launches. Intervals are None below 6 launches, everything where no sample can be used.
    """

    test: str
    subject: str
    message_bytes: int
    processes: int
    unit: str
    median: float | None
    ci95: tuple[float, float] | None
    ratio_to_one: float | None
    ratio_to_one_ci95: tuple[float, float] | None
    smallest_share: float | None
    smallest_share_ci95: tuple[float, float] | None
    largest_share: float | None
    largest_share_ci95: tuple[float, float] | None
    each: tuple[float | None, ...]
    each_ci95: tuple[tuple[float, float] | None, ...]
    launches: int

    def to_json(self) -> dict[str, Any]:
        """One JSON object; tuples are lists."""
        return {one.name: _as_lists(getattr(self, one.name)) for one in fields(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; KeyError when a field is missing."""
        return cls(**{one.name: _as_tuples(data[one.name]) for one in fields(cls)})


@dataclass(frozen=True)
class Run:
    """Everything known about one run except its raw samples.

    `environment["fingerprint"]` is a hash of what must be equal for two runs to be comparable. `lab` is None
    between real machines. `warnings` are the runner's own sentences for the reader (cores oversubscribed …).
    """

    id: str
    created: str
    command: tuple[str, ...]
    seed: int
    complete: bool
    stopped_by: str | None
    parameters: dict[str, Any]
    environment: dict[str, Any]
    lab: dict[str, Any] | None
    launches: tuple[Launch, ...]
    series: tuple[Series, ...]
    warnings: tuple[str, ...] = ()
    shared: tuple[Shared, ...] = ()

    @property
    def kind(self) -> str:
        """What was measured: "host", a machine; "mpi", MPI libraries; "bench", transports between two machines."""
        return str(self.parameters.get("kind", "bench"))

    def to_json(self) -> dict[str, Any]:
        """The content of `run.json`, schema version first."""
        return {
            "schema": SCHEMA,
            "id": self.id,
            "created": self.created,
            "command": list(self.command),
            "seed": self.seed,
            "complete": self.complete,
            "stopped_by": self.stopped_by,
            "warnings": list(self.warnings),
            "parameters": self.parameters,
            "environment": self.environment,
            "lab": self.lab,
            "launches": [launch.to_json() for launch in self.launches],
            "series": [one.to_json() for one in self.series],
            "shared": [one.to_json() for one in self.shared],
        }

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Inverse of `to_json`. WrongUse for anything that is no run, or one of a newer schema."""
        if not isinstance(data, dict):
            raise WrongUse("run.json holds no JSON object, so this is no Barewire run")
        _check_schema(data.get("schema"))
        try:
            return cls(
                id=data["id"],
                created=data["created"],
                command=tuple(data["command"]),
                seed=data["seed"],
                complete=data["complete"],
                stopped_by=data["stopped_by"],
                parameters=dict(data["parameters"]),
                environment=dict(data["environment"]),
                lab=data["lab"],
                launches=tuple(Launch.from_json(launch) for launch in data["launches"]),
                series=tuple(Series.from_json(one) for one in data["series"]),
                warnings=tuple(data.get("warnings", ())),
                shared=tuple(Shared.from_json(one) for one in data.get("shared", ())),
            )
        except KeyError as error:
            raise WrongUse(f"run.json lacks {error}: it is damaged or was not written by Barewire") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise WrongUse(f"run.json is damaged: {error}") from error


def _as_lists(value: Any) -> Any:
    return [_as_lists(one) for one in value] if isinstance(value, tuple) else value


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(one) for one in value) if isinstance(value, list) else value


def _check_schema(schema: object) -> None:
    name, _, version = str(schema).partition("/")
    if name != SCHEMA_NAME or not version.isdecimal():
        raise WrongUse(f"run.json has the schema {schema!r}, not {SCHEMA!r}: this is no Barewire run")
    if int(version) > SCHEMA_VERSION:
        raise WrongUse(f"this run was written by a newer Barewire ({schema}; this one reads {SCHEMA}): update Barewire")
