# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Training of a classifier from recordings, and its evaluation on runs that it was not trained on. Needs scikit-learn.

Probabilities are calibrated, and everything is reported, on *held-out* runs: each run is classified by trees that saw
no row of it. All conversations of a run depend on each other, so rows drawn at random would flatter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from barewire.errors import MachineCannot, WrongUse
from barewire.sdn.classify.features import FEATURES
from barewire.sdn.classify.model import Model, calibrated
from barewire.sdn.classify.policy import PROFILE
from barewire.sdn.classify.recording import COLUMNS
from barewire.sdn.flow import DEFAULT_PROFILE

THRESHOLD = 0.9
# Trees: enough that more do not help, and small enough that the controller evaluates a flow in microseconds.
_TREES, _LEAVES, _LEAF_ROWS, _DEPTH = 40, 80, 4, 14
_FOLDS = 10
_SEED = 1
_BINS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
UNSURE = "unsure"
Probabilities = NDArray[np.float64]


@dataclass(frozen=True)
class Recorded:
    """Rows of recordings: `frame` has the columns of COLUMNS."""

    frame: pl.DataFrame

    @property
    def rows(self) -> NDArray[np.float32]:
        """The features, as a matrix with one row for each of the frame's."""
        return self.frame.select(FEATURES).to_numpy().astype(np.float32)

    def labels(self, classes: Sequence[str]) -> NDArray[np.intp]:
        """The numbers of the rows' profiles in `classes`."""
        number_of = {name: number for number, name in enumerate(classes)}
        return np.array([number_of[profile] for profile in self.frame["profile"]], dtype=np.intp)

    @property
    def classes(self) -> tuple[str, ...]:
        """The profiles, sorted, always with `default`."""
        return tuple(sorted({*self.frame["profile"].to_list(), DEFAULT_PROFILE}))

    def only(self, keep: NDArray[np.bool_]) -> "Recorded":
        """Return some rows."""
        return Recorded(self.frame.filter(pl.Series(keep)))


@dataclass(frozen=True)
class Evaluation:
    """How a classifier did on runs that it was not trained on.

    `confusion[actual][said]` counts conversations by their last row; `said` is a class, that of the conversation's
    service if it is itself not sure, or `unsure`. `calibration` has
    a mapping for each range of probabilities: rows, their mean probability, and the share of them that was right.
    """

    confusion: Mapping[str, Mapping[str, int]]
    calibration: Sequence[Mapping[str, float]]
    calibration_error: float
    by_application: Mapping[str, Mapping[str, Any]]

    @property
    def recognised(self) -> Mapping[str, float]:
        """For each profile the share of conversations that were classified right; for `default` those left alone."""
        return {actual: correct(actual, said) / max(sum(said.values()), 1) for actual, said in self.confusion.items()}

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return {
            "confusion": {actual: dict(said) for actual, said in self.confusion.items()},
            "recognised": dict(self.recognised),
            "calibration": [dict(part) for part in self.calibration],
            "calibration_error": self.calibration_error,
            "by_application": {name: dict(facts) for name, facts in self.by_application.items()},
        }


def correct(actual: str, said: Mapping[str, int]) -> int:
    """Return how many conversations of a profile were classified right; those left alone are right for `default`."""
    return said.get(actual, 0) + (said.get(UNSURE, 0) if actual == DEFAULT_PROFILE else 0)


def read_recordings(files: Sequence[Path]) -> Recorded:
    """Read recordings. WrongUse if one is none, is of other features, or holds what no recording does."""
    frames = []
    for file in files:
        try:
            frame = pl.read_csv(
                file,
                # A name such as `a[1].csv` is a file's, not a pattern.
                glob=False,
                schema_overrides=dict.fromkeys(FEATURES, pl.Float32)
                | dict.fromkeys(("run", "application", "profile"), pl.String)
                | dict.fromkeys(("round", "conversation", "service"), pl.Int64),
            )
        except OSError as error:
            raise WrongUse(f"cannot read the recording {file}: {error}") from None
        except (pl.exceptions.PolarsError, ValueError) as error:
            raise WrongUse(
                f"{file} is no recording of `barewire sdn start --record`: {str(error).splitlines()[0]}"
            ) from None
        if tuple(frame.columns) != COLUMNS:
            odd = ", ".join(sorted(set(frame.columns) ^ set(COLUMNS))[:5]) or "another order"
            raise WrongUse(f"{file}: not the columns of this version ({odd}); record again with `sdn start --record`")
        if sum(frame.null_count().row(0)):
            raise WrongUse(
                f"{file}: a value is missing; if its controller was killed, remove the last line, else record again"
            )
        values = frame.select(FEATURES).to_numpy()
        if not np.isfinite(values.astype(float)).all():
            raise WrongUse(f"{file}: a feature is not a number; record again with `sdn start --record`")
        for profile in frame["profile"].unique():
            if profile is None or not PROFILE.fullmatch(profile):
                raise WrongUse(f"{file}: '{profile}' is no profile: letters, digits, . _ -, at most 63")
        frames.append(frame)
    recorded = Recorded(pl.concat(frames))
    if recorded.frame.is_empty():
        raise WrongUse("the recordings are empty: announce jobs while `barewire sdn start --record` runs")
    return recorded


def train(recorded: Recorded, threshold: float = THRESHOLD) -> tuple[Model, Evaluation]:
    """Train on all runs; evaluate and calibrate on held-out ones. WrongUse if there are too few runs."""
    if not 0.5 <= threshold <= 1:
        raise WrongUse(
            f"the threshold is 0.5 to 1, not {threshold}: a class below a half may be less likely than another"
        )
    classes = recorded.classes
    frame = recorded.frame
    runs_of = frame.group_by("profile").agg(pl.col("run").n_unique().alias("runs"))
    few = [f"{row['profile']} ({row['runs']})" for row in runs_of.iter_rows(named=True) if row["runs"] < 2]
    if len(runs_of) < 2 or few:
        raise WrongUse(
            "a classifier needs two profiles or more with two runs or more each, to be tested on runs that it was not "
            f"trained on; too few are of: {', '.join(sorted(few)) or 'any other profile'}. Record more runs; other "
            f"traffic is announced with profile '{DEFAULT_PROFILE}'"
        )
    held_out = _held_out(recorded, classes)
    labels = recorded.labels(classes)
    temperature = _temperature(held_out, labels, _weights(recorded))
    evaluation = evaluated(recorded, classes, calibrated(held_out, temperature), threshold)
    facts = {
        "rows": len(frame),
        "conversations": frame.select(pl.struct("run", "conversation").n_unique()).item(),
        "runs": frame["run"].n_unique(),
        "applications": sorted(frame["application"].unique().to_list()),
        "held_out": {"recognised": dict(evaluation.recognised), "calibration_error": evaluation.calibration_error},
    }
    return _model(_fitted(recorded, classes), classes, threshold, temperature, facts), evaluation


def tested(model: Model, recorded: Recorded) -> Evaluation:
    """Evaluate a classifier on other recordings. WrongUse if they have a profile that it does not know."""
    if unknown := sorted(set(recorded.frame["profile"]) - set(model.classes)):
        raise WrongUse(f"the classifier knows no {', '.join(unknown)}; it knows {', '.join(model.classes)}")
    return evaluated(recorded, model.classes, model.probabilities(recorded.rows), model.threshold)


def evaluated(recorded: Recorded, classes: Sequence[str], found: Probabilities, threshold: float) -> Evaluation:
    """Compare probabilities, of shape (rows, classes), with the labels."""
    best, sure = found.argmax(axis=1), found.max(axis=1)
    said = [classes[number] if share >= threshold else UNSURE for number, share in zip(best, sure, strict=True)]
    right = best == recorded.labels(classes)
    frame = recorded.frame.drop(FEATURES).with_columns(said=pl.Series(said))
    last = _with_service(frame.sort("round").unique(["run", "conversation"], keep="last", maintain_order=True), frame)
    confusion = {
        actual: {name: len(last.filter(profile=actual, said=name)) for name in (*classes, UNSURE)}
        for actual in classes
        if actual in frame["profile"]
    }
    bins = np.digitize(sure, _BINS[1:-1])
    calibration = [
        {
            "from": _BINS[number],
            "to": _BINS[number + 1],
            "rows": int((bins == number).sum()),
            "probability": float(sure[bins == number].mean()),
            "right": float(right[bins == number].mean()),
        }
        for number in range(len(_BINS) - 1)
        if (bins == number).any()
    ]
    error = sum(abs(part["probability"] - part["right"]) * part["rows"] for part in calibration) / len(frame)
    return Evaluation(confusion, calibration, error, _by_application(last))


def _with_service(last: pl.DataFrame, frame: pl.DataFrame) -> pl.DataFrame:
    """Give conversations that are not sure the last sure class of their service, as a controller does.

    Rows of a run are in the order of time.
    """
    of_service = (
        frame.filter(pl.col("said") != UNSURE)
        .unique(["run", "service"], keep="last", maintain_order=True)
        .select("run", "service", of_service="said")
    )
    joined = last.join(of_service, on=["run", "service"], how="left", maintain_order="left")
    own = pl.col("said") != UNSURE
    return joined.with_columns(said=pl.when(own).then("said").otherwise(pl.coalesce("of_service", "said")))


def _by_application(last: pl.DataFrame) -> dict[str, dict[str, Any]]:
    found = {}
    for (application, profile), rows in last.group_by("application", "profile"):
        right = rows["said"].is_in([profile, UNSURE] if profile == DEFAULT_PROFILE else [profile])
        found[str(application)] = {
            "profile": profile,
            "runs": rows["run"].n_unique(),
            "conversations": len(rows),
            "recognised": float(right.cast(pl.Float64).mean() or 0.0),  # type: ignore[arg-type]
        }
    return dict(sorted(found.items()))


def _held_out(recorded: Recorded, classes: Sequence[str]) -> Probabilities:
    """Each row's probabilities by trees that were trained without its run."""
    runs = recorded.frame["run"].to_numpy()
    names = np.random.default_rng(_SEED).permutation(np.unique(runs))
    found = np.zeros((len(runs), len(classes)))
    rows = recorded.rows
    for part in np.array_split(names, min(_FOLDS, len(names))):
        out = np.isin(runs, part)
        model = _model(_fitted(recorded.only(~out), classes), classes, THRESHOLD, 1.0, {})
        found[out] = model.raw(rows[out])
    return found


def _weights(recorded: Recorded) -> NDArray[np.float64]:
    """Rows' weights: equal for all profiles, within these for all applications, within these for all runs."""
    frame = recorded.frame
    weights = np.ones(len(frame))
    for groups in (["profile", "application", "run"], ["profile", "application"], ["profile"]):
        sums = (
            frame.select(groups).with_columns(w=pl.Series(weights)).with_columns(total=pl.col("w").sum().over(groups))
        )
        weights = weights / sums["total"].to_numpy()
    normal: NDArray[np.float64] = weights / weights.mean()
    return normal


def _temperature(raw: Probabilities, labels: NDArray[np.intp], weights: NDArray[np.float64]) -> float:
    """The temperature at which the labels are likeliest."""
    from scipy.optimize import minimize_scalar  # imported late, as in `barewire.stats.intervals`

    def loss(logarithm: float) -> float:
        shares = calibrated(raw, float(np.exp(logarithm)))[np.arange(len(labels)), labels]
        return float(-(weights * np.log(np.maximum(shares, 1e-9))).mean())

    return round(float(np.exp(minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded").x)), 4)


def _fitted(recorded: Recorded, classes: Sequence[str]) -> Any:
    try:
        from sklearn.ensemble import RandomForestClassifier
    except ImportError:
        raise MachineCannot(
            "training needs scikit-learn, which is not installed: run setup/setup.sh bigdata, or install it with pip"
        ) from None
    forest = RandomForestClassifier(
        n_estimators=_TREES,
        max_leaf_nodes=_LEAVES,
        min_samples_leaf=_LEAF_ROWS,
        max_depth=_DEPTH,
        random_state=_SEED,
    )
    return forest.fit(recorded.rows, recorded.labels(classes), sample_weight=_weights(recorded))


def _model(
    forest: Any, classes: Sequence[str], threshold: float, temperature: float, facts: Mapping[str, Any]
) -> Model:
    """The forest's trees as arrays of one numbering."""
    roots: list[int] = []
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in ("feature", "bound", "left", "right", "leaf")}
    begin = 0
    for tree in (estimator.tree_ for estimator in forest.estimators_):
        numbers = np.arange(tree.node_count)
        is_leaf = tree.children_left < 0
        roots.append(begin)
        parts["feature"].append(np.where(is_leaf, 0, tree.feature))
        parts["bound"].append(np.where(is_leaf, 0.0, tree.threshold))
        parts["left"].append(begin + np.where(is_leaf, numbers, tree.children_left))
        parts["right"].append(begin + np.where(is_leaf, numbers, tree.children_right))
        shares = np.zeros((tree.node_count, len(classes)))
        # A fold without a class has no column for it.
        shares[:, forest.classes_] = tree.value[:, 0, :] / tree.value[:, 0, :].sum(axis=1, keepdims=True)
        shares[~is_leaf] = 0.0
        parts["leaf"].append(shares)
        begin += tree.node_count
    joined = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    return Model(
        tuple(classes),
        threshold,
        temperature,
        np.array(roots, dtype=np.intp),
        joined["feature"].astype(np.intp),
        joined["bound"].astype(np.float32),
        joined["left"].astype(np.intp),
        joined["right"].astype(np.intp),
        joined["leaf"].astype(np.float32),
        facts,
    )
