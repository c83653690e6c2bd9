# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Classification that learns: features, the model's file, recognition in a controller, training and its evaluation."""

import csv
import errno
import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_switches import acquainted, tcp
from typer.testing import CliRunner

from barewire.cli.commands import app
from barewire.errors import WrongUse
from barewire.sdn.classify import model as model_module
from barewire.sdn.classify.features import FEATURES, FEATURES_VERSION, Conversations
from barewire.sdn.classify.jobs import parse_job
from barewire.sdn.classify.model import DEPTH_MAX, Model, _hash, built_in, parse_model
from barewire.sdn.classify.recognition import STEP, Recognition
from barewire.sdn.classify.recording import COLUMNS, Recording
from barewire.sdn.controller.outbox import Event
from barewire.sdn.daemon import _complete
from barewire.sdn.flow import FlowKey

Document = dict[str, Any]
# Below what was measured (docs/sdn.md), so that another version of scikit-learn may differ a little.
HELD_OUT_MIN = 0.93
INTERVAL_S = 2.0


def stump(feature: str, bound: float, classes: tuple[str, ...] = ("default", "hadoop"), sure: float = 0.99) -> Model:
    """One tree: `classes[1]` above the bound, else `classes[0]`."""
    leaf = np.zeros((3, len(classes)), dtype=np.float32)
    leaf[1, 0] = leaf[2, 1] = sure
    leaf[1, 1] = leaf[2, 0] = 1 - sure
    whole = {"roots": [0], "feature": [FEATURES.index(feature), 0, 0], "left": [1, 1, 2], "right": [2, 1, 2]}
    arrays = {name: np.array(values, dtype=np.intp) for name, values in whole.items()}
    return Model(classes, 0.9, 1.0, bound=np.array([bound, 0, 0], dtype=np.float32), leaf=leaf, **arrays)


def flow(source: str, destination: str, source_port: int = 40000, port: int = 41001) -> FlowKey:
    return FlowKey(source, destination, "tcp", source_port, port)


# Features


def test_features_are_those_of_the_conversation_its_service_and_its_hosts() -> None:
    """Three clients of one service, of which one is idle, and one conversation of a client elsewhere."""
    seen = Conversations(INTERVAL_S)
    for second in (2.0, 4.0):
        for number in (2, 3, 4):
            key = flow(f"h{number}", "h1", 40000 + 2 * number)
            packets = 10 * int(second) if number < 4 else 10
            seen.counted(key, packets, 100 * packets, 0.0, second)
            seen.counted(key.reversed(), packets, 1000 * packets, 0.0, second)
        seen.counted(flow("h2", "h5", 50000, 80), 1, 60, 0.0, second)
        features = seen.round(second).features()
    table = {
        key.source: dict(zip(FEATURES, row, strict=True))
        for key, row in zip(features.keys, features.rows.tolist(), strict=True)
        if key.destination == "h1"
    }
    busy, idle = table["h2"], table["h4"]
    assert set(features.services) == {("h1", 41001, "tcp"), ("h5", 80, "tcp")}
    assert busy["up_bytes"] == pytest.approx(np.log2(1 + 4000)) and busy["down_packet_bytes"] == 1000
    assert (busy["active_share"], idle["active_share"]) == (1.0, 0.5)
    assert (busy["gap_s"], idle["gap_s"]) == (0.0, pytest.approx(np.log2(1 + 2)))
    assert busy["service_conversations"] == busy["service_clients"] == 2.0 and busy["service_port"] == pytest.approx(
        np.log2(41002)
    )
    assert busy["server_services"] == 1.0 and busy["server_peers"] == 2.0
    assert busy["server_idle_share"] == pytest.approx(1 / 3)
    assert (busy["client_uses"], idle["client_uses"]) == (pytest.approx(np.log2(3)), 1.0)
    assert busy["client_hub"] == 2.0 and busy["server_hub"] == 0.0 and busy["client_low_services"] == 0.0
    assert busy["balance"] < 0, "more comes down than goes up"


def test_a_flow_that_is_placed_again_counts_on_and_one_that_is_silent_ends() -> None:
    seen = Conversations(INTERVAL_S)
    key = flow("h1", "h2")
    seen.counted(key, 10, 1000, 0.0, 2.0)
    first = seen.round(2.0).features()
    # Once it is counted before it has sent as much as before, once after.
    seen.counted(key, 2, 200, 2.5, 3.0)
    seen.counted(key, 3, 300, 2.5, 3.4)
    seen.counted(key, 30, 3000, 3.5, 4.0)
    second = seen.round(4.0).features()
    assert 2 ** second.rows[0, FEATURES.index("up_bytes")] - 1 == pytest.approx(4300, rel=1e-3)
    assert first.numbers == second.numbers
    assert not seen.round(4.1 + 3.5 * INTERVAL_S).features().keys and not len(seen)
    seen.counted(key, 1, 100, 20.0, 21.0)
    assert seen.round(21.0).features().numbers != first.numbers, "it is another conversation"


@pytest.mark.parametrize(
    ("ports", "service"),
    [((40000, 80), 80), ((80, 40000), 80), ((40000, 41001), 41001), ((41001, 40000), 41001), ((40001, 41001), 40001)],
)
def test_the_service_is_found_whichever_direction_was_counted_first(ports: tuple[int, int], service: int) -> None:
    seen = Conversations(INTERVAL_S)
    seen.counted(flow("h1", "h2", *ports), 1, 100, 0.0, 1.0)
    assert [end[1] for end in seen.round(1.0).features().services] == [service]


def test_protocols_without_ports_have_no_features() -> None:
    seen = Conversations(INTERVAL_S)
    seen.counted(FlowKey("h1", "h2", "llc"), 1, 100, 0.0, 1.0)
    assert not seen.round(1.0).features().keys


def test_what_has_ended_is_forgotten_ahead_of_the_round_that_tells_it_once() -> None:
    """With new numbers of all ends, since most of the old ones have ended."""
    seen, lives = Conversations(INTERVAL_S), flow("h3", "h4")
    for port in range(500):
        seen.counted(flow("h1", "h2", port + 1), 1, 100, 0.0, 0.0)
    seen.counted(lives, 1, 100, 0.0, 100.0)
    seen.forget(100.0)
    assert len(seen) == 1 and len(seen._end_ids) == 2
    interval = seen.round(100.1)
    assert len(interval.ended) == 500 and not seen.round(102.0).ended
    features = interval.features()
    assert features.keys == [lives] and features.services == [("h4", 41001, "tcp")]


def test_memory_is_bounded_by_what_lives() -> None:
    seen = Conversations(INTERVAL_S)
    for number in range(200):
        for port in range(50):
            seen.counted(flow("h1", "h2", 1024 + number * 50 + port), 1, 100, 0.0, 10.0 * number)
        seen.round(10.0 * number).features()
    assert len(seen) == 50 and len(seen._keys) <= 256 and len(seen._end_ids) <= 4 * 50 + 256 + 100


# The file


def test_a_model_survives_its_file_and_walks_its_trees() -> None:
    model = stump("up_bytes", 10.5)
    again = parse_model(json.dumps(model.document()).encode(), "file")
    rows = np.zeros((3, len(FEATURES)), dtype=np.float32)
    rows[:, FEATURES.index("up_bytes")] = 10.4, 10.5, 10.6
    assert again.raw(rows).argmax(axis=1).tolist() == [0, 0, 1]
    assert again.probabilities(rows) == pytest.approx(model.probabilities(rows), abs=1e-4)
    assert (again.classes, again.threshold) == (model.classes, model.threshold)


def _changed(change: Callable[[Document], object], *, hashed: bool) -> bytes:
    document = json.loads(json.dumps(stump("up_bytes", 10.5).document()))
    change(document)
    if hashed:
        document["sha256"] = _hash({key: value for key, value in document.items() if key != "sha256"})
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("change", "hashed", "says"),
    [
        (lambda d: d["trees"]["bound"].__setitem__(0, 3.0), False, "changed since it was trained"),
        (lambda d: d.update(threshold=0.6), False, "changed since it was trained"),
        (lambda d: d.update(version=2), True, "its version is 2, this program reads 1"),
        (lambda d: d.update(features_version=FEATURES_VERSION + 1), True, "record again"),
        (lambda d: d.update(features=d["features"][1:]), True, "record again"),
        (lambda d: d.update(format="other"), True, "not a file of `barewire sdn learn`"),
        (lambda d: d.update(more=1), True, "lacks or adds more"),
        (lambda d: d.pop("trained"), True, "lacks or adds trained"),
        (lambda d: d.update(classes=["default", "a b"]), True, "names of profiles"),
        (lambda d: d.update(classes=["default", "default"]), True, "names of profiles"),
        (lambda d: d.update(threshold=2), True, "threshold is 0.5 to 1"),
        (lambda d: d.update(temperature=True), True, "temperature is a number"),
        (lambda d: d["trees"].update(roots=[5]), True, "roots is beyond its range"),
        (lambda d: d["trees"]["feature"].__setitem__(0, len(FEATURES)), True, "feature is beyond its range"),
        (lambda d: d["trees"]["left"].__setitem__(0, -1), True, "left is beyond its range"),
        (lambda d: d["trees"]["right"].__setitem__(2, 0), True, "right is beyond its range"),
        (lambda d: d["trees"]["right"].__setitem__(1, 2), True, "one child"),
        (lambda d: d["trees"]["left"].__setitem__(0, "1"), True, "whole numbers"),
        (lambda d: d["trees"]["leaf"].__setitem__(1, [0.9, 0.9]), True, "do not add to 1"),
        (lambda d: d["trees"]["leaf"].__setitem__(1, [1.0]), True, "do not add to 1"),
        (lambda d: d["trees"]["leaf"].__setitem__(0, [1.0, 0.0]), True, "no leaf"),
        (lambda d: d["trees"]["bound"].pop(), True, "has no bound"),
        (lambda d: d["trees"]["bound"].__setitem__(0, "x"), True, "a bound is a number"),
    ],
)
def test_a_file_that_was_changed_or_is_of_another_version_says_so(
    change: Callable[[Document], object], hashed: bool, says: str
) -> None:
    """A right hash is no proof: whoever changes a file can also compute it, so everything is checked."""
    assert parse_model(_changed(lambda _: None, hashed=False), "file")
    with pytest.raises(WrongUse, match=says) as refused:
        parse_model(_changed(change, hashed=hashed), "file")
    assert "barewire sdn learn" in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"\x80\x04\x95pickle", b"[]", b'{"format": NaN}', b"[" * 100_000, b"\xff"])
def test_what_is_no_model_at_all_is_refused(content: bytes) -> None:
    with pytest.raises(WrongUse, match="classifier file"):
        parse_model(content, "file")


def test_a_tree_that_is_too_deep_is_refused() -> None:
    nodes = DEPTH_MAX + 2
    spine = list(range(nodes))
    leaf = np.zeros((2 * nodes + 1, 2), dtype=np.float32)
    left = [number + 1 for number in spine] + list(range(nodes, 2 * nodes + 1))
    right = [nodes + number for number in spine] + list(range(nodes, 2 * nodes + 1))
    left[nodes - 1], leaf[nodes:, 0] = 2 * nodes, 1.0
    arrays = [np.array(values, dtype=np.intp) for values in ([0], [0] * len(left), left, right)]
    roots, feature, left_, right_ = arrays
    bound = np.zeros(len(left), dtype=np.float32)
    model = Model(("default", "mpi"), 0.9, 1.0, roots, feature, bound, left_, right_, leaf)
    with pytest.raises(WrongUse, match="deeper than"):
        parse_model(json.dumps(model.document()).encode(), "file")


# Recognition


def _count(recognition: Recognition, key: FlowKey, carried: int, now: float) -> None:
    recognition.counted(key, carried // 1000, carried, 0.0, now)


def test_sure_flows_are_recognised_in_steps_and_unsure_ones_stay_as_they_were() -> None:
    recognition = Recognition(stump("up_bytes", 12.0), INTERVAL_S)
    flows = [flow("h1", "h2", 40000 + 2 * number, 10001 + number) for number in range(STEP + 5)]
    for key in flows:
        _count(recognition, key, 100_000, 2.0)
    recognition.evaluated(recognition.round(2.0)(), 2.0)
    first, more = recognition.step(2.0)
    assert len(first) == STEP and more
    second, more = recognition.step(2.0)
    assert len(second) == 5 and not more
    assert {recognition.profile_of(key) for key in flows} == {"hadoop"}
    assert recognition.profile_of(flows[0].reversed()) == "hadoop"
    recognition.model = stump("up_bytes", 12.0, sure=0.8)
    for key in flows:
        _count(recognition, key, 200_000, 4.0)
    recognition.evaluated(recognition.round(4.0)(), 4.0)
    assert recognition.step(4.0) == ([], True) and recognition.profile_of(flows[0]) == "hadoop"


def test_unsure_means_no_profile() -> None:
    recognition = Recognition(stump("up_bytes", 12.0, sure=0.89), INTERVAL_S)
    _count(recognition, flow("h1", "h2"), 100_000, 2.0)
    recognition.evaluated(recognition.round(2.0)(), 2.0)
    assert recognition.step(2.0) == ([], False)
    assert recognition.profile_of(flow("h1", "h2")) is None


def test_a_new_flow_to_a_recognised_service_belongs_to_it_at_once_until_it_is_forgotten() -> None:
    recognition = Recognition(stump("up_bytes", 12.0), INTERVAL_S)
    _count(recognition, flow("h1", "h2"), 100_000, 2.0)
    recognition.evaluated(recognition.round(2.0)(), 2.0)
    recognition.step(2.0)
    new = flow("h3", "h2", 50000)
    assert recognition.profile_of(new) == recognition.profile_of(new.reversed()) == "hadoop"
    assert recognition.profile_of(flow("h3", "h2", 50000, 5)) is None
    recognition.evaluated(recognition.round(1000.0)(), 1000.0)
    assert recognition.profile_of(new) is None
    assert not recognition._verdicts and not recognition._services, "what has ended is forgotten"


def test_a_service_that_turns_out_to_be_other_traffic_is_forgotten() -> None:
    """Its first conversation looks like Big Data at first, and later like other traffic."""
    recognition = Recognition(stump("up_bytes", 12.0), INTERVAL_S)
    _count(recognition, flow("h1", "h2"), 100_000, 2.0)
    recognition.evaluated(recognition.round(2.0)(), 2.0)
    recognition.step(2.0)
    assert recognition.profile_of(flow("h3", "h2", 50000)) == "hadoop"
    recognition.model = stump("up_bytes", 30.0)
    recognition.evaluated(recognition.round(4.0)(), 4.0)
    assert recognition.step(4.0) == ([flow("h1", "h2")], False)
    assert recognition.profile_of(flow("h3", "h2", 50000)) is None


def test_a_step_takes_a_controllers_loop_milliseconds_and_a_flow_microseconds() -> None:
    """Of 5000 conversations; the best of some, because other programs share the cores."""
    recognition = Recognition(stump("up_bytes", 12.0), INTERVAL_S)
    keys = [flow(f"h{number % 50}", f"h{50 + number % 49}", 30000 + number) for number in range(5000)]
    rounds, steps = [], []
    for now in (2.0, 4.0, 6.0):
        for key in keys:
            _count(recognition, key, 1000 * int(now), now)
        began = time.perf_counter()
        recognition.evaluated(recognition.round(now)(), now)
        rounds.append(time.perf_counter() - began)
        more = True
        while more:
            began = time.perf_counter()
            _, more = recognition.step(now)
            steps.append(time.perf_counter() - began)
    assert min(rounds) / len(keys) < 20e-6
    assert min(steps) < 5e-3


def test_the_controller_moves_a_flow_that_it_recognises_and_announcements_come_first() -> None:
    """The first counts make it sure; both directions get the other profile's strategy, and no packet is lost."""
    from barewire.sdn.classify.policy import Policy

    world = acquainted(flow_statistics_s=2.0)
    world.controller.policy = Policy({"default": "stp", "hadoop": "dmodk"}, ())
    world.controller.recognition.model = stump("age_s", 1.0)
    frame = tcp("h1", "h16")
    world.send("h1", frame)
    world.settle()
    route = world.controller.router.routes.get(FlowKey("h1", "h16", "tcp", 1000, 2000))
    assert route is not None and route.placed.flow.profile == "default" and route.known_by == "nothing"
    for _ in range(12):
        world.pass_time(0.5)
        assert world.where("h1", frame) == "h16"
    assert (route.placed.flow.profile, route.known_by) == ("hadoop", "learnt")
    job = {"profile": "mpi", "hosts": ["h1", "h16"]}
    world.controller.jobs.add(parse_job(job, world.controller.hosts.by_name.keys()), world.now)
    world.controller.jobs_changed(world.now)
    world.settle()
    assert (route.placed.flow.profile, route.known_by) == ("mpi", "announced")


# Recordings and training


def test_a_recording_has_labelled_conversations_at_doubling_rounds_and_no_names_of_hosts(tmp_path: Path) -> None:
    file = tmp_path / "run.csv"
    recording = Recording(file, lambda key: ("ring", "mpi") if key.source != "h9" else None)
    recognition = Recognition(None, INTERVAL_S)
    recognition.observed = recording.add
    for second in range(1, 9):
        _count(recognition, flow("h1", "h2"), 1000 * second, float(second))
        _count(recognition, flow("h9", "h8"), 1000 * second, float(second))
        recognition.evaluated(recognition.round(float(second))(), float(second))
    recording.close()
    rows = list(csv.DictReader(file.open()))
    assert [row["round"] for row in rows] == ["1", "2", "4", "8"]
    assert {(row["application"], row["profile"]) for row in rows} == {("ring", "mpi")}
    assert "h1" not in file.read_text().split("\n", 1)[1]
    with pytest.raises(WrongUse, match="exists"):
        Recording(file, lambda _: None)


def write_recording(file: Path, run: str, conversations: Mapping[str, int], rng: np.random.Generator) -> Path:
    """A run in which `mpi` and `hadoop` differ by two features, and overlap a little in each."""
    with file.open("w") as opened:
        lines = csv.writer(opened)
        lines.writerow(COLUMNS)
        number = 0
        for profile, count in conversations.items():
            middle = {"mpi": 3.0, "hadoop": 6.0, "default": 9.0}[profile]
            for _ in range(count):
                number += 1
                values = rng.normal(0, 1, len(FEATURES))
                values[:2] = rng.normal(middle, 0.4, 2)
                lines.writerow(
                    [run, 1, f"program of {profile}", profile, number, number, *(f"{value:.4g}" for value in values)]
                )
    return file


def test_training_recognises_held_out_runs_and_random_labels_are_not_learnt(tmp_path: Path) -> None:
    """The same rows with shuffled labels must come out unsure: the evaluation can fail."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: run setup/setup.sh bigdata")
    from barewire.sdn.classify.learn import Recorded, read_recordings, tested, train

    rng = np.random.default_rng(1)
    counts = {"mpi": 20, "hadoop": 20, "default": 20}
    files = [write_recording(tmp_path / f"{run}.csv", f"run{run}", counts, rng) for run in range(6)]
    model, evaluation = train(read_recordings(files[:4]))
    assert min(evaluation.recognised.values()) > 0.9 and evaluation.calibration_error < 0.1
    again = tested(parse_model(json.dumps(model.document()).encode(), "again"), read_recordings(files[4:]))
    assert min(again.recognised.values()) > 0.9
    assert sum(sum(said.values()) for said in again.confusion.values()) == 2 * 60
    frame = read_recordings(files).frame
    _, by_chance = train(Recorded(frame.with_columns(profile=frame["profile"].shuffle(seed=1))))
    assert max(by_chance.recognised["mpi"], by_chance.recognised["hadoop"]) < 0.1


def test_training_refuses_what_it_cannot_test(tmp_path: Path) -> None:
    from barewire.sdn.classify.learn import read_recordings, train

    rng = np.random.default_rng(1)
    one = write_recording(tmp_path / "one.csv", "run1", {"mpi": 20, "hadoop": 20}, rng)
    with pytest.raises(WrongUse, match=r"two runs or more each.*hadoop \(1\), mpi \(1\)"):
        train(read_recordings([one]))
    two = [write_recording(tmp_path / f"{run}.csv", run, {"mpi": 20}, rng) for run in ("a", "b")]
    with pytest.raises(WrongUse, match="any other profile"):
        train(read_recordings(two))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace("up_bytes", "upbytes"), "not the columns of this version"),
        (lambda text: text.replace(",mpi,1,", ",m p i,1,"), "is no profile"),
        (lambda text: re.sub(r",mpi,1,1,[^,]*,", ",mpi,1,1,nan,", text, count=1), "not a number"),
        (lambda text: text.replace(",mpi,1,", ",mpi,1,word", 1), "no recording"),
        (lambda text: text.replace("\nrun,", "\n,", 1), "a value is missing"),
        (lambda text: text[: text.rindex("\nrun,") + 6], "remove the last line"),
        (lambda text: text.split("\n", 1)[0] + "\n", "are empty"),
        (lambda _: "", "no recording"),
    ],
)
def test_a_recording_that_is_none_is_named(tmp_path: Path, change: Callable[[str], str], says: str) -> None:
    from barewire.sdn.classify.learn import read_recordings

    file = write_recording(tmp_path / "run.csv", "run", {"mpi": 3}, np.random.default_rng(1))
    file.write_text(change(file.read_text()))
    with pytest.raises(WrongUse, match=says):
        read_recordings([file])
    with pytest.raises(WrongUse, match="cannot read"):
        read_recordings([tmp_path / "missing.csv"])


# The built-in classifier

RECORDINGS, HELD_OUT = Path(model_module.__file__).with_name("recordings.csv.gz"), "recordings-held-out.csv.gz"


def test_the_built_in_classifier_is_that_of_the_recordings_beside_it() -> None:
    """It knows their applications, and classifies what it was trained on; the held-out shares are in its file."""
    from barewire.sdn.classify.learn import read_recordings, tested

    recorded = read_recordings([RECORDINGS])
    model = built_in()
    assert model.classes == ("default", "hadoop", "mpi")
    assert model.trained["rows"] == len(recorded.frame) and model.trained["runs"] == recorded.frame["run"].n_unique()
    assert model.trained["applications"] == sorted(recorded.frame["application"].unique())
    assert min(tested(model, recorded).recognised.values()) > 0.98
    assert min(model.trained["held_out"]["recognised"].values()) > HELD_OUT_MIN


def test_the_built_in_classifier_recognises_runs_that_it_was_not_trained_on() -> None:
    from barewire.sdn.classify.learn import read_recordings, tested

    trained, held_out = (read_recordings([RECORDINGS.with_name(name)]) for name in (RECORDINGS.name, HELD_OUT))
    assert not set(trained.frame["run"]) & set(held_out.frame["run"])
    evaluation = tested(built_in(), held_out)
    assert evaluation.recognised.keys() == set(built_in().classes) and min(evaluation.recognised.values()) >= 0.98


@pytest.mark.matrix
def test_the_built_in_classifier_can_be_trained_again() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: run setup/setup.sh bigdata")
    from barewire.sdn.classify.learn import read_recordings, train

    _, evaluation = train(read_recordings([RECORDINGS]))
    assert dict(evaluation.recognised) == pytest.approx(built_in().trained["held_out"]["recognised"], abs=0.02)


def test_the_command_trains_evaluates_and_refuses_with_the_remedy(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: run setup/setup.sh bigdata")
    rng = np.random.default_rng(2)
    counts = {"mpi": 15, "hadoop": 15, "default": 15}
    files = [str(write_recording(tmp_path / f"{run}.csv", f"run{run}", counts, rng)) for run in range(4)]
    model = tmp_path / "own.json"
    run = CliRunner()
    trained = run.invoke(app, ["sdn", "learn", *files[:3], "-o", str(model), "--json"])
    document = json.loads(trained.stdout)
    assert trained.exit_code == 0 and document["schema"] == "barewire-sdn-learn/1"
    assert document["trained"]["runs"] == 3 and document["confusion"]["mpi"]["mpi"] > 30
    evaluated = run.invoke(app, ["sdn", "learn", files[3], "--evaluate", str(model)])
    assert evaluated.exit_code == 0 and "Calibration" in evaluated.stdout and "program of hadoop" in evaluated.stdout
    for words, says in (
        ([files[0]], "give --output FILE to train"),
        ([files[0], "-o", str(model), "--evaluate", str(model)], "give --output FILE to train"),
        ([files[0], "-o", str(model)], "two runs or more each"),
        ([*files, "-o", str(tmp_path / "no" / "folder.json")], "cannot write the classifier"),
        ([*files, "--evaluate", str(tmp_path / "none.json")], "cannot read the classifier"),
    ):
        refused = run.invoke(app, ["sdn", "learn", *words])
        assert isinstance(refused.exception, WrongUse) and says in str(refused.exception)
    assert run.invoke(app, ["sdn", "learn", *files, "-o", str(model), "--threshold", "nan"]).exit_code == 2


def test_an_output_that_cannot_be_written_is_refused_before_training_and_later_the_evaluation_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one disappears while it trains."""
    from barewire.sdn.classify import learn

    recording = str(write_recording(tmp_path / "run.csv", "run", {"mpi": 2}, np.random.default_rng(2)))
    folder = tmp_path / "later"
    folder.mkdir()
    trained: list[float] = []

    def train(recorded: Any, threshold: float) -> Any:
        trained.append(threshold)
        folder.rmdir()
        return built_in(), learn.tested(built_in(), recorded)

    monkeypatch.setattr(learn, "train", train)
    for output in (tmp_path / "no" / "folder.json", tmp_path):
        refused = CliRunner().invoke(app, ["sdn", "learn", recording, "-o", str(output)])
        assert isinstance(refused.exception, WrongUse) and "cannot write the classifier" in str(refused.exception)
    assert not trained
    refused = CliRunner().invoke(app, ["sdn", "learn", recording, "-o", str(folder / "own.json")])
    assert isinstance(refused.exception, WrongUse) and "cannot write the classifier" in str(refused.exception)
    assert trained == [0.9] and "Calibration" in refused.stdout


def test_brackets_in_names_of_files_and_jobs_are_no_patterns_and_no_markup(tmp_path: Path) -> None:
    recording = write_recording(tmp_path / "a[1].csv", "run", {"mpi": 2}, np.random.default_rng(2))
    recording.write_text(recording.read_text().replace("program of mpi", "job[a]"))
    built_in().write(tmp_path / "model.json")
    words = ["sdn", "learn", str(recording), "--evaluate", str(tmp_path / "model.json")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.exception
    assert " job[a] " in done.stdout


def test_a_threshold_beside_evaluate_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "own.json"
    built_in().write(model)
    recording = str(write_recording(tmp_path / "run.csv", "run", {"mpi": 2}, np.random.default_rng(2)))
    words = ["sdn", "learn", recording, "--evaluate", str(model)]
    assert CliRunner().invoke(app, words).exit_code == 0
    refused = CliRunner().invoke(app, [*words, "--threshold", "0.6"])
    assert isinstance(refused.exception, WrongUse) and "--threshold is for --output" in str(refused.exception)


def test_a_recording_whose_end_finds_no_room_is_told_and_no_error(tmp_path: Path) -> None:
    class Full(Recording):
        def close(self) -> None:
            super().close()
            raise OSError(errno.ENOSPC, "No space left on device")

    told: list[Event] = []
    _complete(Full(tmp_path / "monday.csv", lambda _: None), tmp_path / "monday.csv", told.append)
    assert [event.kind for event in told] == ["recording ended"] and "is not complete: No space" in told[0].text
