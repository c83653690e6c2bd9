# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The JSON schema of `run.json`, derived from the types in `run.py`.

docs/run.schema.json is this document: `python -m barewire.results.run_schema > docs/run.schema.json`.
"""

import json
import types
from dataclasses import MISSING, fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from barewire.results.run import SCHEMA, Launch, Run, Series, Shared
from barewire.stats.confidence import with_interval_names

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}
# What the types do not say. Values and intervals are in the series' `unit`.
_MEANINGS = {
    "Run": {
        "id": "unique; begins with the start in UTC",
        "created": "ISO 8601, UTC",
        "command": "the command line",
        "seed": "of the order of launches and the contents of messages",
        "complete": "false if the run ended early, or an imported output is not whole",
        "stopped_by": "why it ended early",
        "confidence": "of all intervals: 0.95",
        "parameters": "what was asked for; `kind` is bench if missing",
        "environment": "machine and software; runs of one `fingerprint` are comparable",
        "lab": "the emulated cluster, null on real machines",
        "warnings": "sentences that qualify the results",
        "shared": "how several processes shared an interface",
    },
    "Launch": {
        "index": "`launch` of its samples",
        "started": "ISO 8601, UTC",
        "error": "why it failed",
        "round": "from 0; null if unknown",
    },
    "Series": {
        "unit": "of all values: us, ns, ms, s, Mbit/s (10^6 bit/s), MB/s (10^6 B/s), messages/s, KiB, % …",
        "median": "median of `launch_medians`; null if no sample can be used",
        "ci95": "exact 95 % interval of the median; null below 6 launches",
        "mean": "mean of the launches' means",
        "mean_ci95": "its 95 % interval, by Student",
        "p01": "quantile over all samples, as p25, p75, p99, min and max",
        "samples": "used ones",
        "samples_measured": "all after the warm-up; the others are lossy or invalid",
        "lost": "messages",
        "limit": "physical limit in `unit`",
        "limit_kind": "wire: of the frames on the link; floor: measured",
        "fraction_of_limit": "1 is the limit, above 1 is better than it",
        "stop": "why no more launches were made",
        "launch_medians": "one for each launch, in their order: the experimental units",
        "launch_numbers": "`index` of the launches of these medians",
        "ranks": "0 without an MPI job, or if unknown",
        "parameter_value": "a further coordinate, named by `parameter`",
    },
}


def run_schema() -> dict[str, Any]:
    """Return the schema of `run.json` as JSON Schema, draft 2020-12."""
    run = _object(Run)
    properties = {"schema": {"const": SCHEMA}, **run["properties"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        **run,
        "properties": properties,
        "required": ["schema", *run["required"]],
        "$defs": {kind.__name__: _object(kind) for kind in (Launch, Series, Shared)},
    }


def _object(kind: type) -> dict[str, Any]:
    """Return the schema of a dataclass. Fields that older versions lack are not required, unknown ones are allowed."""
    hints, meanings = get_type_hints(kind), _MEANINGS.get(kind.__name__, {})
    # A launch's details are further keys of its object.
    left_out = {"details"} if kind is Run else {"details", "confidence"}
    kept = [item for item in fields(kind) if item.name not in left_out]
    # On disk all intervals are of 95 %.
    named = {name: next(iter(with_interval_names({name: None}))) for name in (item.name for item in kept)}
    properties = {
        named[item.name]: _described(_value(hints[item.name]), meanings.get(named[item.name])) for item in kept
    }
    required = [named[item.name] for item in kept if item.default is MISSING]
    return {"type": "object", "properties": properties, "required": required}


def _described(schema: dict[str, Any], meaning: str | None) -> dict[str, Any]:
    return schema if meaning is None else schema | {"description": meaning}


def _value(hint: Any) -> dict[str, Any]:
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if hint is Any:
        return {}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_value(argument) for argument in arguments]}
    if origin is dict:
        return {"type": "object"}
    if origin is tuple and arguments[-1] is Ellipsis:
        return {"type": "array", "items": _value(arguments[0])}
    if origin is tuple:
        return {"type": "array", "prefixItems": [_value(argument) for argument in arguments], "items": False}
    return {"$ref": f"#/$defs/{hint.__name__}"}


def text() -> str:
    """Return the document as a file's content."""
    return json.dumps(run_schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(text(), end="")
