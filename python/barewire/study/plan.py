# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Plans of studies: what is measured, and what was claimed. A plan is a TOML file; docs/studies.md describes it.

The shipped ones are in `plans`, the published tables in `published`.
"""

import hashlib
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from barewire.errors import WrongUse, unknown
from barewire.models.wire import Protocol
from barewire.results.run import Series
from barewire.stats.confidence import share_of
from barewire.study.tables import Table, read_table, time_factor

PLANS = Path(__file__).parent / "plans"

Form = Literal["quick", "full"]
Kind = Literal[
    "faster",
    "no-difference",
    "grows",
    "within",
    "ratio",
    "break",
    "crossover",
    "strategy",
    "alike",
    "predicted",
    "recognised",
    "impossible",
    "bytes",
]
TableKind = Literal["parameters", "speed-ups", "account"]
# Of each kind what it needs besides a text.
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "faster": ("a", "b"),
    "no-difference": ("a", "b"),
    "grows": ("a", "b", "key"),
    "within": ("a", "low", "high"),
    "ratio": ("a", "b"),
    "break": ("a", "low", "high"),
    "crossover": ("step", "crossover"),
    "strategy": ("step", "better", "worse", "quantity"),
    "alike": ("step", "strategies", "quantity"),
    "predicted": ("step", "high"),
    "recognised": ("step", "low"),
    "impossible": ("message_bytes", "protocol", "rate_bit_s", "published", "columns"),
    "bytes": ("step", "expected"),
}
# Commands that leave a run; the others print a document with --json.
_RUNS = (("mpi",), ("bench",), ("sdn", "bench"))
_COMMANDS = (*_RUNS, ("sdn", "simulate"), ("sdn", "learn"), ("account",), ("predict",), ("run",))
# Commands of the steps that claims of a kind are about; those of the other kinds are about runs.
_COMMANDS_OF: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "crossover": (("bench", "host"),),
    "strategy": (("sdn", "bench"), ("sdn", "simulate")),
    "alike": (("sdn", "bench"),),
    "predicted": (("predict",),),
    "recognised": (("sdn", "learn"),),
    "bytes": (("account",), ("sdn", "simulate"), ("sdn", "learn")),
}
# Of claims about runs, how many sides they have, each of which may have a published column.
_SIDES: Mapping[str, int] = {"faster": 2, "no-difference": 2, "grows": 2, "ratio": 2, "within": 1, "break": 1}
# Commands of the steps that tables of a kind show.
_COMMANDS_OF_TABLES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "parameters": (("mpi",), ("bench",)),
    "speed-ups": (("mpi",),),
    "account": (("account",),),
}
# What a step's document may not replace: study.json and study.html.
_RECORD = "study"
_TEXTS = ("step", "crossover", "better", "quantity", "published", "rows", "p")
_NUMBERS = ("low", "high", "rate_bit_s")
_BOOLEANS = ("beside", "of_limit", "beyond_limit", "mean")
# Fields of series by which claims select and compare.
_FIELDS = get_type_hints(Series)
_NUMERIC = {name for name, kind in _FIELDS.items() if kind in (int, float, float | None)}
_WORDS = {name for name, kind in _FIELDS.items() if name not in _NUMERIC and not str(kind).startswith("tuple")}


@dataclass(frozen=True)
class Step:
    """A command of barewire's, without `barewire`; `quick` and `full` are further options of the two forms.

    `lab` has the options that choose a lab, which `--hosts` replaces; a step with neither runs on this machine. In
    `command`, `{study}` is the study's directory, `{suite:LIBRARY}` that of the programs built for a library, and
    `{barewire}` that of Barewire's own files. The step is left out of forms that are not in `forms`.
    """

    name: str
    what: str
    command: tuple[str, ...]
    lab: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    full: tuple[str, ...] = ()
    forms: tuple[str, ...] = get_args(Form)

    @property
    def leaves_run(self) -> bool:
        """Whether its results are a run."""
        return self.begins_with(_RUNS)

    def begins_with(self, commands: Sequence[tuple[str, ...]]) -> bool:
        """Whether its command is one of these."""
        return any(self.command[: len(known)] == known for known in commands)


@dataclass(frozen=True)
class Claim:
    """What a study says, and how to decide it.

    `a` and `b` select series of a step by their fields: {"step": "netpipe", "subject": "openmpi/tcp"}; a list is any of
    its values. Series of both with equal `key` fields are compared. `published` is the table to show beside, with the
    columns of both sides (`columns`) and of the key (`rows`); without `rows` its only row is shown everywhere. `only`
    selects rows of the table, once or for each side; `interval` and `p` are columns of the published test: both ends of
    the interval of the difference, and its p. Strategies are compared alone, or `beside` another job.
    `low` and `high` are bounds, those of `crossover` the published ones. Of a `ratio`, a side that selects several
    series with equal `key` fields is the best of them, and `beyond_limit` adds to B the time that A's wire takes.
    `of_limit` makes a value `within` bounds a share of its wire's rate. `high` of `predicted` bounds each prediction's
    error, or their `mean`.
    """

    text: str
    kind: Kind
    a: Mapping[str, Any] | None = None
    b: Mapping[str, Any] | None = None
    key: tuple[str, ...] = ("message_bytes",)
    low: float | None = None
    high: float | None = None
    step: str | None = None
    crossover: str | None = None
    better: str | None = None
    worse: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()
    quantity: str | None = None
    beside: bool = False
    of_limit: bool = False
    beyond_limit: bool = False
    mean: bool = False
    message_bytes: int | None = None
    protocol: str | None = None
    rate_bit_s: float | None = None
    expected: Mapping[str, float] | None = None
    published: str | None = None
    rows: str | None = None
    columns: tuple[str, ...] = ()
    only: tuple[Mapping[str, Any], ...] = ()
    interval: tuple[str, ...] = ()
    p: str | None = None
    note: str = ""

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of the steps that it needs."""
        named = [None if side is None else side.get("step") for side in (self.a, self.b)]
        return tuple(dict.fromkeys(step for step in (*named, self.step) if step is not None))

    @property
    def table(self) -> Table | None:
        """The published table; None if it has none."""
        return self.table_of(0)

    def table_of(self, side: int) -> Table | None:
        """The published table with the rows of a side, 0 for A; None if it has none."""
        if self.published is None:
            return None
        return read_table(self.published).only(self.only[min(side, len(self.only) - 1)] if self.only else {})


@dataclass(frozen=True)
class StepTable:
    """A table of what a step measured, besides claims: see docs/studies.md for its kinds.

    `a` selects series of a step by their fields, as in a claim; of an account it has the step alone. `columns` names
    for each subject the column of the `published` table with its times, `rows` that of the message sizes or ranks, and
    `only` selects rows.
    """

    kind: TableKind
    a: Mapping[str, Any]
    published: str | None = None
    rows: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    only: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def step(self) -> str:
        """Name of the step that it shows."""
        return str(self.a["step"])

    @property
    def table(self) -> Table | None:
        """The published table; None if it has none."""
        return None if self.published is None else read_table(self.published).only(self.only)


@dataclass(frozen=True)
class Plan:
    """A study; `confidence` is that of its verdicts, as a share. `digest` identifies the file's content."""

    name: str
    title: str
    question: str
    source: str
    confidence: float
    steps: tuple[Step, ...]
    claims: tuple[Claim, ...]
    tables: tuple[StepTable, ...]
    digest: str

    def step(self, name: str) -> Step:
        """Return a step by name."""
        return next(step for step in self.steps if step.name == name)


def shipped() -> list[str]:
    """Names of the shipped plans."""
    return sorted(path.stem for path in PLANS.glob("*.toml"))


def read_plan(name: str) -> Plan:
    """Return the shipped plan of this name, or that of a file; WrongUse says what is wrong with it, and where."""
    path = PLANS / f"{name}.toml"
    if not path.is_file():
        path = Path(name)
        if path.suffix != ".toml":
            raise unknown("study", name, shipped(), "; or a file that ends in .toml")
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        raise WrongUse(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # ValueError also of a number of thousands of digits
        raise WrongUse(f"{path} is no TOML file: {error}") from error
    return _plan(path, content, hashlib.sha256(text.encode()).hexdigest())


def _plan(path: Path, content: dict[str, Any], digest: str) -> Plan:
    known = {"title", "question", "source", "confidence", "step", "claim", "table"}
    _refuse_unknown(f"{path}", content, known)
    steps = tuple(_step(f"{path}, step {number}", each) for number, each in enumerate(_list(path, content, "step"), 1))
    names = [step.name for step in steps]
    for name in names:
        if names.count(name) > 1:
            raise WrongUse(f"{path} has two steps named '{name}'")
    claims = tuple(
        _claim(f"{path}, claim {number}", each, steps) for number, each in enumerate(_list(path, content, "claim"), 1)
    )
    shown = _list(path, content, "table") if "table" in content else []
    tables = tuple(_table(f"{path}, table {number}", each, steps) for number, each in enumerate(shown, 1))
    confidence = content.get("confidence", 95)
    if not isinstance(confidence, int | float) or not 50 <= confidence <= 99.9:
        raise WrongUse(f"{path}: confidence is in percent, from 50 to 99.9, not {confidence!r}")
    texts = {key: _text(f"{path}", content, key) for key in ("title", "question", "source")}
    return Plan(
        path.stem, **texts, confidence=share_of(confidence), steps=steps, claims=claims, tables=tables, digest=digest
    )


def _list(path: Path, content: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = content.get(key)
    if not isinstance(found, list) or not found or not all(isinstance(each, dict) for each in found):
        raise WrongUse(f"{path} needs tables [[{key}]], at least one")
    return found


def _step(where: str, content: dict[str, Any]) -> Step:
    _refuse_unknown(where, content, {field.name for field in fields(Step)})
    texts = {key: _text(where, content, key) for key in ("name", "what")}
    if not texts["name"].replace("-", "").isalnum():
        raise WrongUse(f"{where}: a name has letters, digits and hyphens, not '{texts['name']}'")
    if texts["name"] == _RECORD:
        raise WrongUse(f"{where}: '{_RECORD}' is the name of the study's own files, not one for a step")
    words = {key: _words(where, content, key) for key in ("command", "lab", "quick", "full", "forms") if key in content}
    for form in words.get("forms", ()):
        if form not in get_args(Form):
            raise unknown("form", form, get_args(Form), f" ({where})")
    command = words.get("command", ())
    if not any(command[: len(known)] == known for known in _COMMANDS):
        raise WrongUse(f"{where}: command begins with one of {_listed(_COMMANDS)}")
    for each in (command, words.get("quick", ()), words.get("full", ())):
        options = each[: each.index("--")] if "--" in each else each
        if options[-1:] == ("--library",):
            raise WrongUse(f"{where}: --library needs the names of libraries behind it")
    return Step(
        texts["name"],
        texts["what"],
        command,
        lab=words.get("lab", ()),
        quick=words.get("quick", ()),
        full=words.get("full", ()),
        forms=words.get("forms", get_args(Form)),
    )


def _claim(where: str, content: dict[str, Any], steps: Sequence[Step]) -> Claim:
    _refuse_unknown(where, content, {field.name for field in fields(Claim)})
    _text(where, content, "text")
    kind = _text(where, content, "kind")
    if kind not in _NEEDS:
        raise WrongUse(f"{where}: kind is one of {', '.join(_NEEDS)}, not {kind!r}")
    for need in _NEEDS[kind]:
        if need not in content:
            raise WrongUse(f"{where}: a claim of kind '{kind}' needs '{need}'")
    if kind == "ratio" and not {"low", "high"} & content.keys():
        raise WrongUse(f"{where}: a claim of kind 'ratio' needs 'low', 'high', or both")
    _check_dicts(where, content, ("a", "b", "expected"))
    _check_values(where, content)
    several = ("key", "worse", "strategies", "columns", "interval")
    lists: dict[str, Any] = {key: _words(where, content, key) for key in several if key in content}
    sides = _SIDES.get(kind)
    if "only" in content:
        lists["only"] = _selections(where, content["only"], sides or 1)
    if kind in ("strategy", "alike"):
        _check_strategies(where, (content["better"], *lists["worse"]) if kind == "strategy" else lists["strategies"])
    if kind == "impossible" and (len(lists["columns"]) != 1 or time_factor(lists["columns"][0]) is None):
        raise WrongUse(f"{where}: columns needs the one of the published times, whose name ends in s, ms or us")
    if sides is not None and len(lists.get("columns", ())) not in (0, sides):
        raise WrongUse(f"{where}: a claim of kind '{kind}' has {sides} columns, one for each side")
    if kind == "break" and "rows" in content:
        raise WrongUse(f"{where}: a break has no key: omit 'rows', and choose the published row with 'only'")
    if ("interval" in content or "p" in content) and (sides != 2 or "columns" not in content):
        raise WrongUse(f"{where}: 'interval' and 'p' are of the difference of two sides, with 'columns' of both")
    if len(lists.get("interval", (0, 0))) != 2:
        raise WrongUse(f"{where}: interval needs two columns: the lower end and the upper one")
    claim = Claim(**{**content, **lists})
    # The last one is the number by which rows are found in the published table.
    for name in claim.key or ("",):
        if name not in _NUMERIC | _WORDS:
            raise unknown("key", name, sorted(_NUMERIC | _WORDS), f" ({where})")
    if claim.key[-1] not in _NUMERIC:
        raise WrongUse(f"{where}: the last key is a number, not '{claim.key[-1]}'")
    for side in (claim.a, claim.b):
        if side is not None:
            _check_side(where, side)
    _check_steps(where, claim, steps)
    used = (claim.rows, claim.p, *claim.columns, *claim.interval)
    for number in range(max(1, len(claim.only))):
        wanted = claim.only[number] if claim.only else {}
        rows = _check_published(where, claim.published, [name for name in used if name], wanted, claim.rows)
        if sides is not None and claim.columns and claim.rows is None and rows > 1:
            raise WrongUse(
                f"{where}: without 'rows', 'only' must leave one row of {claim.published}, not {rows}: "
                "its values are shown in every row of the claim"
            )
    return claim


def _table(where: str, content: dict[str, Any], steps: Sequence[Step]) -> StepTable:
    _refuse_unknown(where, content, {field.name for field in fields(StepTable)})
    kind = _text(where, content, "kind")
    if kind not in _COMMANDS_OF_TABLES:
        raise WrongUse(f"{where}: kind is one of {', '.join(_COMMANDS_OF_TABLES)}, not {kind!r}")
    if "a" not in content:
        raise WrongUse(f"{where}: a table needs 'a', with the step that it shows")
    _check_dicts(where, content, ("a", "columns", "only"))
    _check_values(where, content)
    found = StepTable(**content)
    _check_side(where, found.a)
    of_published = [name for name in ("published", "rows", "columns", "only") if name in content]
    if kind == "account" and (of_published or len(found.a) > 1):
        raise WrongUse(f"{where}: an account has no series and no published table: 'a' has only its step")
    if of_published and not {"published", "rows", "columns"} <= {*of_published}:
        raise WrongUse(f"{where}: a published table needs 'published', 'rows' and 'columns'")
    for subject, column in found.columns.items():
        if not isinstance(column, str):
            raise WrongUse(
                f"{where}: columns has the name of a column for each subject, not {column!r} for '{subject}'"
            )
    _check_step(f"{where}: a table of kind '{kind}'", where, found.step, _COMMANDS_OF_TABLES[kind], steps)
    used = [name for name in (found.rows, *found.columns.values()) if name]
    _check_published(where, found.published, used, found.only, found.rows)
    return found


def _check_dicts(where: str, content: Mapping[str, Any], keys: Sequence[str]) -> None:
    for key in keys:
        if key in content and not isinstance(content[key], dict):
            raise WrongUse(f'{where}: {key} is a table such as {{step = "netpipe", subject = "openmpi/tcp"}}')


def _selections(where: str, only: Any, sides: int) -> tuple[Mapping[str, Any], ...]:
    """Rows of the published table: one selection, or one for each side."""
    found = only if isinstance(only, list) else [only]
    if not all(isinstance(each, dict) for each in found) or len(found) not in (1, sides):
        raise WrongUse(
            f'{where}: only is a table such as {{program = "mpi_tcp"}}'
            + (", or a list of one for each side" * (sides > 1))
        )
    return tuple(found)


def _check_published(
    where: str, name: str | None, used: Sequence[str], only: Mapping[str, Any], key: str | None
) -> int:
    """Refuse columns and rows that a published table does not have, and rows that `key`, a column, does not tell apart.

    Return the number of rows selected.
    """
    if name is None:
        if used or only:
            raise WrongUse(f"{where}: {', '.join([*used, *only])}: columns of which table? It needs 'published'")
        return 0
    try:
        table = read_table(name)
    except WrongUse as error:
        raise WrongUse(f"{where}: {error}") from error
    missing = [column for column in (*used, *only) if column not in table.columns]
    if missing:
        raise WrongUse(f"{where}: {name} has no column {', '.join(missing)}; it has {', '.join(table.columns)}")
    rows = table.only(only).rows
    if not rows:
        raise WrongUse(f"{where}: {name} has no row with {dict(only)}")
    if key is not None and len({row[key] for row in rows}) < len(rows):
        raise WrongUse(f"{where}: {name} has several rows of the same {key}: leave one of each with 'only'")
    return len(rows)


def _check_values(where: str, content: Mapping[str, Any]) -> None:
    """Refuse values of the wrong type; tables and lists of texts are checked elsewhere."""
    for key in _TEXTS:
        if key in content:
            _text(where, content, key)
    for key in _NUMBERS:
        if key in content and not _is_number(content[key]):
            raise WrongUse(f"{where}: {key} must be a number, not {content[key]!r}")
    if "low" in content and "high" in content and content["low"] > content["high"]:
        raise WrongUse(f"{where}: low is above high")
    size = content.get("message_bytes", 0)
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise WrongUse(f"{where}: message_bytes must be a number of bytes, not {size!r}")
    if "protocol" in content and content["protocol"] not in get_args(Protocol):
        raise unknown("protocol", str(content["protocol"]), get_args(Protocol), f" ({where})")
    for key in _BOOLEANS:
        if not isinstance(content.get(key, False), bool):
            raise WrongUse(f"{where}: {key} must be true or false")
    if not isinstance(content.get("note", ""), str):
        raise WrongUse(f"{where}: note must be a text")
    for path, value in content.get("expected", {}).items():
        if not _is_number(value):
            raise WrongUse(f"{where}: expected '{path}' must be a number, not {value!r}")


def _check_strategies(where: str, names: Sequence[str]) -> None:
    """Refuse what cannot be compared: fewer than two, one with itself, and the references, which are no strategies."""
    from barewire.results.sdn import REFERENCES  # imported late: names of plans are completed without polars

    if len(names) < 2:
        raise WrongUse(f"{where}: strategies needs two at least")
    for name in names:
        if names.count(name) > 1:
            raise WrongUse(f"{where}: '{name}' is compared with itself")
        if name in REFERENCES:
            raise WrongUse(f"{where}: '{name}' is a reference network, not a strategy")


def _check_side(where: str, side: Mapping[str, Any]) -> None:
    if not isinstance(side.get("step"), str):
        raise WrongUse(f"{where}: a and b need the step that measures them")
    for name, value in side.items():
        if name == "step":
            continue
        if name not in _NUMERIC | _WORDS:
            raise unknown("field of series", name, sorted(_NUMERIC | _WORDS), f" ({where})")
        for each in value if isinstance(value, list) else [value]:
            if not (_is_number(each) if name in _NUMERIC else isinstance(each, str)):
                raise WrongUse(f"{where}: {name} must be a {'number' if name in _NUMERIC else 'text'}, not {each!r}")


def _check_steps(where: str, claim: Claim, steps: Sequence[Step]) -> None:
    what = f"{where}: a claim of kind '{claim.kind}'"
    for name in claim.steps:
        step = _check_step(what, where, name, _COMMANDS_OF.get(claim.kind, _RUNS), steps)
        if claim.kind == "recognised" and "--evaluate" not in step.command:
            raise WrongUse(f"{where}: '{name}' recognises nothing: sdn learn needs --evaluate")


def _check_step(what: str, where: str, name: str, commands: Sequence[tuple[str, ...]], steps: Sequence[Step]) -> Step:
    """Return a step by name, which must be of one of these commands."""
    by_name = {step.name: step for step in steps}
    if name not in by_name:
        raise unknown("step", name, by_name, f" ({where})")
    if not by_name[name].begins_with(commands):
        raise WrongUse(f"{what} is about a step of {_listed(commands)}, not '{name}'")
    return by_name[name]


def _is_number(value: object) -> bool:
    # Not isfinite, which takes no number of hundreds of digits.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _listed(commands: Sequence[tuple[str, ...]]) -> str:
    return ", ".join(" ".join(command) for command in commands)


def _refuse_unknown(where: str, content: Mapping[str, Any], known: set[str]) -> None:
    for key in content:
        if key not in known:
            error = unknown("entry", key, sorted(known))
            raise WrongUse(f"{where}: {error}", error.hint)


def _text(where: str, content: Mapping[str, Any], key: str) -> str:
    value = content.get(key)
    if not isinstance(value, str) or not value.strip():
        raise WrongUse(f"{where}: {key} must be a text")
    return value


def _words(where: str, content: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = content[key]
    if isinstance(value, str):
        value = value.split()
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise WrongUse(f"{where}: {key} must be a text, or a list of texts")
    return tuple(value)
