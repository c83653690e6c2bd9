# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A trained classifier as a file: trees in JSON, checked as a whole before use, evaluated by numpy alone.

{"format": "barewire traffic classifier", "version": 1, "features_version": 1, "features": […], "classes": […],
 "threshold": 0.9, "temperature": 0.8, "trained": {…}, "trees": {"roots", "feature", "bound", "left", "right", "leaf"},
 "sha256": "…"}

Node n of all trees tests `feature[n] <= bound[n]` and leads to `left[n]`, else `right[n]`; a leaf leads to itself, and
`leaf[n]` are its classes' probabilities. Children have larger numbers than their parents, so that no walk is endless.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barewire.errors import WrongUse
from barewire.sdn.classify.features import FEATURES, FEATURES_VERSION, Matrix
from barewire.sdn.classify.policy import PROFILE

FORMAT, VERSION = "barewire traffic classifier", 1
BUILT_IN = "model.json"
# Bounds on what the controller evaluates while it does nothing else, and on the file.
NODES_MAX, TREES_MAX, DEPTH_MAX, CLASSES_MAX, FILE_BYTES_MAX = 100_000, 500, 40, 50, 20_000_000
_KEYS = {
    "format", "version", "features_version", "features", "classes", "threshold", "temperature", "trained", "trees",
    "sha256",
}  # fmt: skip
_TREE_KEYS = ("roots", "feature", "bound", "left", "right", "leaf")
_RETRAIN = "train one with `barewire sdn learn`"


@dataclass(frozen=True)
class Model:
    """A classifier. `threshold` is the probability below which a flow's class is not sure.

    Arrays by node: `feature`, `bound`, `left`, `right`, and `leaf` of shape (nodes, classes); `roots` by tree.
    `temperature` divides the logarithms of the trees' mean probabilities, which calibrates them.
    """

    classes: tuple[str, ...]
    threshold: float
    temperature: float
    roots: NDArray[np.intp]
    feature: NDArray[np.intp]
    bound: NDArray[np.float32]
    left: NDArray[np.intp]
    right: NDArray[np.intp]
    leaf: NDArray[np.float32]
    trained: Mapping[str, Any] = field(default_factory=dict)

    def probabilities(self, rows: Matrix) -> NDArray[np.float64]:
        """Return each row's calibrated probabilities, of shape (rows, classes)."""
        return calibrated(self.raw(rows), self.temperature)

    def raw(self, rows: Matrix) -> NDArray[np.float64]:
        """Return the trees' mean probabilities."""
        nodes = np.tile(self.roots, (len(rows), 1))
        every = np.arange(len(rows))[:, np.newaxis]
        for _ in range(DEPTH_MAX):
            goes_left = rows[every, self.feature[nodes]] <= self.bound[nodes]
            children = np.where(goes_left, self.left[nodes], self.right[nodes])
            if np.array_equal(children, nodes):
                break
            nodes = children
        mean: NDArray[np.float64] = self.leaf[nodes].mean(axis=1, dtype=np.float64)
        return mean

    def document(self) -> dict[str, Any]:
        """Return the file's content, with its hash."""
        trees = {
            "roots": self.roots.tolist(),
            "feature": self.feature.tolist(),
            "bound": [float(str(bound)) for bound in self.bound],
            "left": self.left.tolist(),
            "right": self.right.tolist(),
            # Nodes that are no leaves have none.
            "leaf": [
                [round(share, 4) for share in leaf] if left == number else []
                for number, (leaf, left) in enumerate(zip(self.leaf.tolist(), self.left.tolist(), strict=True))
            ],
        }
        document = {
            "format": FORMAT,
            "version": VERSION,
            "features_version": FEATURES_VERSION,
            "features": list(FEATURES),
            "classes": list(self.classes),
            "threshold": self.threshold,
            "temperature": self.temperature,
            "trained": dict(self.trained),
            "trees": trees,
        }
        return {**document, "sha256": _hash(document)}

    def write(self, file: Path) -> None:
        """Write the file. WrongUse if the system refuses."""
        try:
            file.write_text(json.dumps(self.document(), separators=(",", ":")) + "\n")
        except OSError as error:
            raise WrongUse(f"cannot write the classifier {file}: {error.strerror or error}") from error


def calibrated(probabilities: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """Return probabilities sharpened (a temperature below 1) or flattened (above 1)."""
    logarithms = np.log(np.maximum(probabilities, 1e-4)) / temperature
    powers: NDArray[np.float64] = np.exp(logarithms - logarithms.max(axis=1, keepdims=True))
    shares: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return shares


@cache
def built_in() -> Model:
    """Return the classifier that comes with the package."""
    file = resources.files(__package__).joinpath(BUILT_IN)
    return parse_model(file.read_bytes(), f"built-in {BUILT_IN}")


def read_model(file: Path) -> Model:
    """Read a classifier. WrongUse if the file is of another version, was changed, or is none."""
    try:
        with file.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise WrongUse(f"cannot read the classifier {file}: {error.strerror or error}") from error
    return parse_model(content, str(file))


def parse_model(content: bytes, name: str) -> Model:
    """Read and check a file's content; nothing in it is executed."""
    if len(content) > FILE_BYTES_MAX:
        raise WrongUse(f"classifier {name}: longer than {FILE_BYTES_MAX} bytes; {_RETRAIN}")
    try:
        document = json.loads(content, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise WrongUse(f"classifier {name}: not JSON ({error}); {_RETRAIN}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise WrongUse(f"classifier {name}: not a file of `barewire sdn learn`, which writes '{FORMAT}'")
    if document.get("version") != VERSION:
        raise WrongUse(
            f"classifier {name}: its version is {document.get('version')!r}, this program reads {VERSION}; {_RETRAIN}"
        )
    if document.get("features_version") != FEATURES_VERSION or document.get("features") != list(FEATURES):
        raise WrongUse(
            f"classifier {name}: trained on features of version {document.get('features_version')!r}, this program "
            f"counts those of {FEATURES_VERSION}; record again and {_RETRAIN}"
        )
    if document.keys() != _KEYS:
        odd = ", ".join(sorted(document.keys() ^ _KEYS))
        raise WrongUse(f"classifier {name}: lacks or adds {odd}; {_RETRAIN}")
    if document["sha256"] != _hash({key: value for key, value in document.items() if key != "sha256"}):
        raise WrongUse(
            f"classifier {name}: changed since it was trained, its hash does not match; restore it, or {_RETRAIN}"
        )
    try:
        return _checked(document)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise WrongUse(f"classifier {name}: {error}; {_RETRAIN}") from None


def _checked(document: Mapping[str, Any]) -> Model:
    """Build the model. ValueError for what would lead an evaluation astray; the hash may be right all the same."""
    classes = document["classes"]
    if (
        not isinstance(classes, list)
        or not 2 <= len(classes) <= CLASSES_MAX
        or not all(isinstance(name, str) and PROFILE.fullmatch(name) for name in classes)
        or len(set(classes)) != len(classes)
    ):
        raise ValueError(f"classes are 2 to {CLASSES_MAX} different names of profiles")
    threshold, temperature = (_number(document[name], name) for name in ("threshold", "temperature"))
    if not 0.5 <= threshold <= 1 or not 0.01 <= temperature <= 100:
        raise ValueError("the threshold is 0.5 to 1, the temperature 0.01 to 100")
    trees = document["trees"]
    if not isinstance(trees, dict) or tuple(trees) != _TREE_KEYS or not isinstance(document["trained"], dict):
        raise ValueError(f"trees have {', '.join(_TREE_KEYS)}")
    roots, feature, left, right = (_integers(trees[name], name) for name in ("roots", "feature", "left", "right"))
    nodes = len(feature)
    if not 1 <= len(roots) <= TREES_MAX or not 1 <= nodes <= NODES_MAX:
        raise ValueError(f"{len(roots)} trees with {nodes} nodes; at most {TREES_MAX} and {NODES_MAX}")
    numbers = np.arange(nodes)
    is_leaf = left == numbers
    for name, values, least, most in (
        ("roots", roots, 0, nodes - 1),
        ("feature", feature, 0, len(FEATURES) - 1),
        ("left", left, numbers + ~is_leaf, nodes - 1),
        ("right", right, numbers + ~is_leaf, nodes - 1),
    ):
        if values.shape != (len(values),) or np.any(values < least) or np.any(values > most):
            raise ValueError(f"trees: {name} is beyond its range")
    if len(left) != nodes or len(right) != nodes or np.any((right == numbers) != is_leaf):
        raise ValueError("trees: a node has one child")
    bound = np.array([_number(value, "a bound") for value in trees["bound"]], dtype=np.float32)
    leaf = _leaves(trees["leaf"], is_leaf, len(classes))
    if len(bound) != nodes:
        raise ValueError("trees: a node has no bound")
    model = Model(tuple(classes), threshold, temperature, roots, feature, bound, left, right, leaf, document["trained"])
    if _depth(model) > DEPTH_MAX:
        raise ValueError(f"trees: deeper than {DEPTH_MAX}")
    return model


def _leaves(given: Sequence[Any], is_leaf: NDArray[np.bool_], classes: int) -> NDArray[np.float32]:
    if len(given) != len(is_leaf):
        raise ValueError("trees: a node has no leaf")
    leaves = np.zeros((len(given), classes), dtype=np.float32)
    for number, (shares, expected) in enumerate(zip(given, is_leaf, strict=True)):
        if expected:
            values = [_number(share, "a probability") for share in shares]
            if len(values) != classes or min(values) < 0 or abs(sum(values) - 1) > 0.01:
                raise ValueError("trees: a leaf's probabilities do not add to 1")
            leaves[number] = np.array(values) / sum(values)
        elif shares != []:
            raise ValueError("trees: probabilities at a node that is no leaf")
    return leaves


def _depth(model: Model) -> int:
    depths = np.zeros(len(model.feature), dtype=np.int64)
    for number, (left, right) in enumerate(zip(model.left.tolist(), model.right.tolist(), strict=True)):
        if left != number:
            depths[[left, right]] = np.maximum(depths[[left, right]], depths[number] + 1)
    return int(depths.max())


def _integers(given: object, name: str) -> NDArray[np.intp]:
    if not isinstance(given, list) or not all(type(value) is int and abs(value) <= NODES_MAX for value in given):
        raise ValueError(f"trees: {name} are whole numbers")
    return np.array(given, dtype=np.intp)


def _number(given: object, name: str) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
        raise ValueError(f"{name} is a number, not {str(given)[:50]!r}")
    return float(given)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _hash(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
