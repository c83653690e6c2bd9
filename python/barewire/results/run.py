# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The record of a run, `run.json`: typed in memory, plain JSON on disk."""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Literal, NamedTuple, Self, get_type_hints

import msgspec

from barewire.errors import WrongUse
from barewire.models.verdict import LimitKind, Verdict
from barewire.results.quantities import is_lower_better
from barewire.stats.confidence import CONFIDENCE, with_interval_names, without_interval_names

SCHEMA_NAME = "barewire-run"
SCHEMA_VERSION = 1
SCHEMA = f"{SCHEMA_NAME}/{SCHEMA_VERSION}"

# The field of records that names what is not stored with each of them.
_CONFIDENCE = "confidence"

Stop = Literal["converged", "budget", "incomplete"]


class Place(NamedTuple):
    """Coordinates that all series of one table share.

    `ranks` is 0 without an MPI job. `parameter` names a further coordinate besides the size, "" for none.
    """

    test: str
    pairs: int = 1
    processes: int = 1
    ranks: int = 0
    quantity: str = ""
    parameter: str = ""


class Row(NamedTuple):
    """Coordinates that distinguish the rows of such a table; `value` is the parameter's."""

    variant: str
    message_bytes: int
    value: float | None

    @property
    def order(self) -> tuple[str, int, float]:
        """Sorting key."""
        return self.variant, self.message_bytes, -1.0 if self.value is None else self.value


@dataclass(frozen=True)
class Launch:
    """One start of both sides of a subject, the experimental unit. `started` is ISO 8601 UTC.

    `round` counts from 0: launches of one round are those that were made beside each other; None if that is unknown.
    `details` contains whatever else the runner recorded.
    """

    index: int
    subject: str
    test: str
    complete: bool = True
    error: str | None = None
    started: str | None = None
    round: int | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the launch as one flat JSON object."""
        flat = asdict(self)
        return {**flat.pop("details"), **flat}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; KeyError if `index`, `subject` or `test` is missing."""
        field_names = {item.name for item in fields(cls)} - {"details"}
        for name in ("index", "subject", "test"):
            _ = data[name]
        details = {key: value for key, value in data.items() if key not in field_names}
        return cls(**{key: data[key] for key in field_names if key in data}, details=details)


@dataclass(frozen=True)
class Series:
    """One test of one subject with one message size and one number of pairs or processes; all values in `unit`.

    For an MPI job also of one number of ranks, one variant of the test, one quantity, and one value of its parameter.

    `median` is the median of `launch_medians`, `interval` its exact interval of this `confidence` (None below 6
    launches, 8 at 99 %); `mean` is the mean of the launches' means, `mean_interval` its Student interval.
    `launch_numbers` are the indices of the launches of these medians, which not all launches have (empty in runs of
    older versions). The quantiles, `min` and `max` are over the pooled samples. `samples` counts the used samples,
    `samples_measured` all those after warm-up; the difference is lossy or invalid samples. `lost` counts messages. All
    values are None if no sample can be used. `launches_to_converge` is the number of launches after which the median
    was precise for the first time, `samples_to_converge` that of samples in a launch after which its median changes
    no more (median of the launches); None if they were too few.
    """

    test: str
    subject: str
    pairs: int
    message_bytes: int
    unit: str
    median: float | None
    interval: tuple[float, float] | None
    mean: float | None
    mean_interval: tuple[float, float] | None
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
    launches_to_converge: int | None = None
    samples_to_converge: int | None = None
    launch_numbers: tuple[int, ...] = ()
    confidence: float = CONFIDENCE

    @property
    def lower_is_better(self) -> bool:
        """True for times, False for rates."""
        return is_lower_better(self.quantity, self.unit)

    @property
    def place(self) -> Place:
        """The coordinates of its table."""
        return Place(self.test, self.pairs, self.processes, self.ranks, self.quantity, self.parameter)

    @property
    def row(self) -> Row:
        """The coordinates of its row."""
        return Row(self.variant, self.message_bytes, self.parameter_value)

    @property
    def by_launch(self) -> dict[int, float]:
        """The medians by the number of their launch; by their order in runs of older versions."""
        return dict(zip(self.launch_numbers or range(len(self.launch_medians)), self.launch_medians, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return the series as one JSON object; intervals, named by their confidence, and medians are lists."""
        return _document(self, self.confidence)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json` at 95 %; KeyError if a field is missing, unknown fields are ignored."""
        data = without_interval_names(data)
        defaults = {item.name: item.default for item in fields(cls) if item.default is not MISSING}
        values: dict[str, Any] = {item.name: {**defaults, **data}[item.name] for item in fields(cls)}
        tuples: dict[str, Any] = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
        return cls(**{**values, **tuples})


@dataclass(frozen=True)
class Shared:
    """How several processes shared an interface, in one test of one subject with one message size.

    `median` is their combined value: the sum of their rates, or the latency of all pooled. `each` has every process's
    own value, and `each_interval` its interval; all have this `confidence`. `ratio_to_one` is `median` divided by that
    of one process in the same run.
    A process's share is its value divided by the mean of all, within a launch; smallest and largest shares are medians
    over the launches. Intervals are None below 6 launches, all values if no sample can be used.
    """

    test: str
    subject: str
    message_bytes: int
    processes: int
    unit: str
    median: float | None
    interval: tuple[float, float] | None
    ratio_to_one: float | None
    ratio_to_one_interval: tuple[float, float] | None
    smallest_share: float | None
    smallest_share_interval: tuple[float, float] | None
    largest_share: float | None
    largest_share_interval: tuple[float, float] | None
    each: tuple[float | None, ...]
    each_interval: tuple[tuple[float, float] | None, ...]
    launches: int
    confidence: float = CONFIDENCE

    def to_json(self) -> dict[str, Any]:
        """Return one JSON object; tuples become lists, intervals are named by their confidence."""
        return _document(self, self.confidence)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json` at 95 %; KeyError if a field is missing."""
        plain = without_interval_names(data)
        return cls(**{item.name: _as_tuples(plain[item.name]) for item in fields(cls) if item.name != _CONFIDENCE})


@dataclass(frozen=True)
class Run:
    """Everything known about one run except its raw samples.

    `environment["fingerprint"]` is a hash of the facts that must be equal in comparable runs. `lab` is None for real
    machines. `warnings` are sentences for the reader (cores oversubscribed …). `confidence` is that of all intervals
    and comparisons; on disk it is 95 %, and `at_confidence` makes another.
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
    confidence: float = CONFIDENCE

    @property
    def kind(self) -> str:
        """Kind of the run: "host", a machine; "mpi", MPI libraries; "bench", transports between two machines."""
        return str(self.parameters.get("kind", "bench"))

    def by_round(self, series: Series) -> dict[int, float] | None:
        """Return the medians of a series of this run by round; None if the run does not say which rounds they are of.

        That is so in runs of older versions, and in runs that were killed.
        """
        rounds = {launch.index: launch.round for launch in self.launches}
        found = {
            number: value for launch, value in series.by_launch.items() if (number := rounds.get(launch)) is not None
        }
        return found if series.launch_numbers and len(found) == len(series.launch_medians) else None

    def to_json(self) -> dict[str, Any]:
        """Return the content of `run.json`, schema version first."""
        return {
            "schema": SCHEMA,
            "id": self.id,
            "created": self.created,
            "command": list(self.command),
            "seed": self.seed,
            "complete": self.complete,
            "stopped_by": self.stopped_by,
            "warnings": list(self.warnings),
            "confidence": self.confidence,
            "parameters": self.parameters,
            "environment": self.environment,
            "lab": self.lab,
            "launches": [launch.to_json() for launch in self.launches],
            "series": [each.to_json() for each in self.series],
            "shared": [each.to_json() for each in self.shared],
        }

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Inverse of `to_json`. WrongUse if this is not a run, or one of a newer schema."""
        if not isinstance(data, dict):
            raise WrongUse("run.json contains no JSON object, so this is not a Barewire run")
        _check_schema(data.get("schema"))
        try:
            run = cls(
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
                series=tuple(Series.from_json(each) for each in data["series"]),
                warnings=tuple(data.get("warnings", ())),
                shared=tuple(Shared.from_json(each) for each in data.get("shared", ())),
            )
        except KeyError as error:
            raise WrongUse(f"run.json lacks {error}: it is damaged or was not written by Barewire") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise WrongUse(f"run.json is damaged: {error}") from error
        _check_types(run, "")
        for name in ("launches", "series", "shared"):
            for number, record in enumerate(getattr(run, name)):
                _check_types(record, f"{name} {number}, ")
        return run


# The types of a record's fields, without the records within a run, which are checked by themselves.
_TYPES: dict[type, dict[str, Any]] = {
    kind: {
        name: hint
        for name, hint in get_type_hints(kind).items()
        if kind is not Run or name not in ("launches", "series", "shared")
    }
    for kind in (Run, Launch, Series, Shared)
}


def _check_types(record: Run | Launch | Series | Shared, where: str) -> None:
    """Raise WrongUse, with where it is, for a field of another type, or medians without their launches."""
    for name, hint in _TYPES[type(record)].items():
        try:
            msgspec.convert(getattr(record, name), hint)
        except msgspec.ValidationError as error:
            on_disk = next(iter(with_interval_names({name: None})))
            raise WrongUse(f"run.json is damaged: {where}{on_disk}: {error}") from error
    if isinstance(record, Series) and len(record.launch_numbers) not in (0, len(record.launch_medians)):
        raise WrongUse(f"run.json is damaged: {where}launch_numbers: not one for each of launch_medians")


def _document(record: Series | Shared, confidence: float) -> dict[str, Any]:
    plain = {item.name: getattr(record, item.name) for item in fields(record) if item.name != _CONFIDENCE}
    return dict(with_interval_names(plain, confidence))


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(item) for item in value) if isinstance(value, list) else value


def _check_schema(schema: object) -> None:
    name, _, version = str(schema).partition("/")
    if name != SCHEMA_NAME or not version.isdecimal():
        raise WrongUse(f"run.json has the schema {schema!r}, not {SCHEMA!r}: this is not a Barewire run")
    if int(version) > SCHEMA_VERSION:
        raise WrongUse(f"this run was written by a newer Barewire ({schema}; this one reads {SCHEMA}): update Barewire")
