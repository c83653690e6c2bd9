# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What --json prints: one object for each command, whose first field names its schema and version.

A version grows when a field is removed or changes its meaning; new fields may come at any time. Loads nothing that
`barewire run` would have to wait for.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any, TextIO

ERROR_SCHEMA = "barewire-error/1"
# By the words of the command; every command with --json is here. docs/reference.md has the same table.
SCHEMAS = {
    "doctor": "barewire-doctor/1",
    "lab up": "barewire-lab/1",
    "lab show": "barewire-topology/1",
    "lab list": "barewire-labs/1",
    "lab down": "barewire-lab-down/1",
    "bench": "barewire-run/1",
    "bench host": "barewire-host/1",
    "bench budget": "barewire-run/1",
    "mpi": "barewire-run/1",
    "mpi scoreboard": "barewire-scoreboard/1",
    "mpi applications": "barewire-applications/1",
    "run": "barewire-launch/1",
    "enable": "barewire-enable/1",
    "disable": "barewire-enable/1",
    "status": "barewire-status/1",
    "modulefile": "barewire-modulefile/1",
    "try": "barewire-try/2",
    "profile": "barewire-profile/1",
    "cluster init": "barewire-cluster-hosts/1",
    "cluster check": "barewire-cluster/1",
    "tune": "barewire-tune/1",
    "compare": "barewire-compare/3",
    "model": "barewire-model/1",
    "predict": "barewire-prediction/1",
    "trajectory": "barewire-trajectory/1",
    "report": "barewire-report/1",
    "export": "barewire-export/1",
    "import": "barewire-run/1",
    "account": "barewire-account/1",
    "study list": "barewire-studies/1",
    "study run": "barewire-study/1",
    "study report": "barewire-study/1",
    "exercise list": "barewire-exercises/1",
    "exercise check": "barewire-exercise/1",
    "sdn start": "barewire-sdn-event/1",
    "sdn announce": "barewire-sdn-job/1",
    "sdn withdraw": "barewire-sdn-withdraw/1",
    "sdn flows": "barewire-sdn-flows/1",
    "sdn status": "barewire-sdn-status/1",
    "sdn simulate": "barewire-simulate/1",
    "sdn bench": "barewire-run/1",
    "sdn learn": "barewire-sdn-learn/1",
}

_printed = False


def print_document(command: str, document: Mapping[str, Any], *, to: TextIO | None = None) -> None:
    """Print a command's document in one line, with its schema; on standard output unless `to` is given."""
    global _printed
    schema = SCHEMAS[command]
    if document.get("schema", schema) != schema:
        raise ValueError(f"`barewire {command} --json` prints {schema}, not {document['schema']}")
    text = json.dumps({"schema": schema, **document}, allow_nan=False, ensure_ascii=not _is_unicode(to))
    print(text, file=to, flush=True)
    _printed = _printed or to is None


def print_error(message: str, hint: str | None, exit_code: int, *, as_json: bool) -> None:
    """Print an error on standard error, and with --json an object on standard output unless the document is there."""
    print(f"barewire: {message}", *([hint] if hint else []), sep="\n", file=sys.stderr)
    if as_json and not _printed:
        error = {"schema": ERROR_SCHEMA, "message": message, "hint": hint, "exit_code": exit_code}
        print(json.dumps(error, ensure_ascii=not _is_unicode(None)), flush=True)


def _is_unicode(to: TextIO | None) -> bool:
    """Whether a stream, by default standard output, has all signs; otherwise a document needs escapes."""
    encoding = (sys.stdout if to is None else to).encoding
    return encoding is None or encoding.lower().replace("-", "") == "utf8"
