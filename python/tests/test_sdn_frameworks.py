# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What Dask and Spark say of their shuffles, as announcements; the frameworks themselves run in tests/."""

import logging
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barewire.errors import MachineCannot, MeasurementFailed, WrongUse
from barewire.sdn.classify.jobs import Jobs, parse_job
from barewire.sdn.frameworks import cluster, spark_shuffles
from barewire.sdn.frameworks.announcer import Announcer
from barewire.sdn.frameworks.cluster import FrameworkJob
from barewire.sdn.frameworks.spark_shuffles import ShuffleListener

HOSTS = {"10.0.0.1": "h1", "10.0.0.2": "h2", "10.0.0.3": "h3"}


class FakeClient:
    """A controller's API that checks announcements as the real one does."""

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.is_gone = False
        self.announced = 0

    def get(self, name: str) -> Any:
        assert name == "hosts"
        return {"hosts": [{"name": name, "addresses": [address], "tagged": []} for address, name in HOSTS.items()]}

    def announce(self, job: Mapping[str, Any]) -> Any:
        if self.is_gone:
            raise MeasurementFailed("no answer from the controller")
        made = self.jobs.add(parse_job(job, HOSTS.values()), 0.0)
        self.announced += 1
        return {"id": made.id, "lease_s": made.lease_s}

    def withdraw(self, job: str) -> None:
        self.jobs.withdraw(job)


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


@pytest.fixture
def announcer(client: FakeClient) -> Iterator[Announcer]:
    announcer = Announcer(client)  # type: ignore[arg-type]
    yield announcer
    announcer.close()


def done(announcer: Announcer) -> None:
    """Wait until everything before has been said."""
    announcer._thread.submit(lambda: None).result(10)


def test_a_shuffle_is_announced_by_names_with_ports_and_replaced_and_withdrawn(
    announcer: Announcer, client: FakeClient
) -> None:
    for size in (1000.4, 2000.0):
        announcer.announce("one", {("10.0.0.1", "10.0.0.2"): size, ("10.0.0.2", "10.0.0.2"): 5.0}, [41001, 40001])
    announcer.announce("two", {("10.0.0.3", "10.0.0.1"): 7.0}, [])
    done(announcer)
    first, second = client.jobs.all
    assert first.patterns == ({("h1", "h2"): 2000},) and first.profile == "hadoop" and first.hosts == {"h1", "h2"}
    assert first.traffic[0].ports == ((40001, 40001), (41001, 41001)) and second.traffic == ()
    announcer.withdraw("one")
    announcer.withdraw("never announced")
    done(announcer)
    assert client.jobs.all == [second]
    announcer.close()
    assert not client.jobs.all


def test_what_waits_to_be_announced_at_the_end_is_withdrawn_too(client: FakeClient) -> None:
    """A controller that answers slowly: the framework ends before its last shuffle is announced."""
    announcer = Announcer(client)  # type: ignore[arg-type]
    announcer._thread.submit(time.sleep, 0.2)
    announcer.announce("late", {("10.0.0.1", "10.0.0.2"): 5.0}, [])
    announcer.close()
    assert client.announced == 1 and not client.jobs.all


def test_a_controller_that_is_gone_and_a_host_that_it_does_not_know_are_logged_and_no_error(
    announcer: Announcer, client: FakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    client.is_gone = True
    with caplog.at_level(logging.WARNING):
        announcer.announce("gone", {("10.0.0.1", "10.0.0.2"): 5.0}, [])
        done(announcer)
        client.is_gone = False
        announcer.announce("foreign", {("10.0.0.1", "10.9.9.9"): 5.0, ("10.0.0.1", "10.0.0.3"): 6.0}, [])
        done(announcer)
    assert "no answer from the controller" in caplog.text and "10.9.9.9" in caplog.text
    assert [job.patterns for job in client.jobs.all] == [({("h1", "h3"): 6},)]


def test_workers_that_are_known_by_name_are_announced(
    announcer: Announcer, client: FakeClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By the controller's own name, and by one that has the address of one of its hosts as its second."""

    def resolved(name: str, _: None) -> list[Any]:
        if name != "node3.cluster":
            raise socket.gaierror
        return [(0, 0, 0, "", (address, 0)) for address in ("192.168.0.3", "10.0.0.3")]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    volumes = {("h1", "node3.cluster"): 5.0, ("10.0.0.2", "node4.cluster"): 6.0, ("h1", "10.0.0.1"): 7.0}
    announcer.announce("named", volumes, [])
    done(announcer)
    assert [job.patterns for job in client.jobs.all] == [({("h1", "h3"): 5},)]
    assert "node4.cluster" in caplog.text and "node3" not in caplog.text


def test_without_a_controller_in_the_environment_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BAREWIRE_SDN", raising=False)
    with pytest.raises(WrongUse, match="set BAREWIRE_SDN"):
        Announcer.of_environment()


class Said:
    """An announcer that remembers."""

    def __init__(self) -> None:
        self.said: dict[str, tuple[Mapping[tuple[str, str], float], Sequence[int]]] = {}

    def announce(self, key: str, volumes: Mapping[tuple[str, str], float], ports: Sequence[int]) -> None:
        self.said[key] = {ends: size for ends, size in volumes.items() if size}, sorted(ports)

    def withdraw(self, key: str) -> None:
        self.said.pop(key, None)


def test_sparks_volumes_are_what_a_stages_tasks_wrote_by_host_shared_by_executors() -> None:
    said = Said()
    listener = ShuffleListener(said)  # type: ignore[arg-type]
    for host, port in (("10.0.0.1", 1), ("10.0.0.2", 2), ("10.0.0.2", 3), ("10.0.0.3", 4)):
        listener.executor(host, port)
    listener.executor_lost("10.0.0.3", 4)
    listener.writes(0, 7)
    listener.began(0, [])
    listener.wrote(0, 0, "10.0.0.1", 300)
    listener.wrote(0, 1, "10.0.0.1", 300)
    listener.wrote(0, 2, "10.0.0.3", 30)
    listener.ended(0)
    assert not said.said, "a stage that reads nothing is no shuffle"
    listener.began(1, [0])
    volumes = {("10.0.0.1", "10.0.0.2"): 400, ("10.0.0.3", "10.0.0.1"): 10, ("10.0.0.3", "10.0.0.2"): 20}
    assert said.said == {"spark stage 1": (volumes, [1, 2, 3])}
    listener.ended(1)
    assert not said.said
    assert listener.onJobEnd(object()) is None, "other events are ignored"
    with pytest.raises(AttributeError):
        listener.other  # noqa: B018


def test_sparks_shuffle_that_a_later_job_reads_again_is_announced_again_and_a_task_that_runs_again_counts_once() -> (
    None
):
    """Job 2's stage 2 writes the same shuffle as stage 0, so Spark skips it, and stage 3 reads what stage 0 wrote."""
    said = Said()
    listener = ShuffleListener(said)  # type: ignore[arg-type]
    listener.executor("10.0.0.1", 1)
    listener.executor("10.0.0.2", 2)
    listener.writes(0, 7)
    listener.wrote(0, 0, "10.0.0.1", 400)
    listener.wrote(0, 1, "10.0.0.2", 100)
    listener.wrote(0, 1, "10.0.0.1", 100)
    listener.began(1, [0])
    expected = {("10.0.0.1", "10.0.0.2"): 250}, [1, 2]
    assert said.said == {"spark stage 1": expected}
    listener.ended(1)
    listener.writes(2, 7)
    listener.began(3, [2])
    assert said.said == {"spark stage 3": expected}


def test_what_spark_wrote_is_forgotten_when_it_becomes_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shuffle that was read last stays."""
    monkeypatch.setattr(spark_shuffles, "_PARTITIONS_MAX", 4)
    monkeypatch.setattr(spark_shuffles, "_STAGES_MAX", 100)
    listener = ShuffleListener(Said())  # type: ignore[arg-type]
    listener.executor("10.0.0.1", 1)
    for stage in range(1000):
        listener.writes(stage, stage)
        for partition in range(2):
            listener.wrote(stage, partition, "10.0.0.1", 300)
        listener.began(stage + 1, [stage])
    assert list(listener._written) == [998, 999] and len(listener._shuffles) == 100


def test_dasks_shuffles_are_announced_when_they_send_again_when_doubled_and_withdrawn_at_their_barrier() -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: run setup/setup.sh bigdata")
    from barewire.sdn.frameworks.dask_shuffles import ShuffleAnnouncer

    workers = [f"tcp://10.0.0.{number}:{40000 + number}" for number in (1, 2, 3)]
    said = Said()
    plugin = ShuffleAnnouncer(said)  # type: ignore[arg-type]
    worker_for = {0: workers[0], 1: workers[1], 2: workers[1], 3: workers[2]}
    state = SimpleNamespace(run_id=7, archived=False, run_spec=SimpleNamespace(worker_for=worker_for))
    shuffles = SimpleNamespace(active_shuffles={"abc": state}, heartbeats={})
    barrier = SimpleNamespace(state="waiting")
    tasks = {"shuffle-barrier-abc": barrier}
    plugin._scheduler = SimpleNamespace(plugins={"shuffle": shuffles}, tasks=tasks, workers=workers)
    plugin.look()
    assert not said.said, "nobody has reported"
    shuffles.heartbeats = {"abc": {workers[0]: {"comm": {"total": 400}}, workers[1]: {"disk": {}}}}
    plugin.look()
    expected = {("10.0.0.1", "10.0.0.2"): 200.0, ("10.0.0.1", "10.0.0.3"): 100.0}
    assert said.said == {"dask abc 7": (expected, [40001, 40002, 40003])}
    said.said.clear()
    shuffles.heartbeats["abc"][workers[0]]["comm"]["total"] = 799
    plugin.look()
    assert not said.said
    shuffles.heartbeats["abc"][workers[1]] = {"comm": {"total": 1}}
    plugin.look()
    assert said.said["dask abc 7"][0]["10.0.0.2", "10.0.0.1"] == 0.25
    barrier.state = "memory"
    plugin.look()
    assert not said.said


def test_a_row_of_dasks_job_is_as_long_as_the_volume_counts_it() -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: run setup/setup.sh bigdata")
    import pandas
    from distributed.shuffle._shuffle import split_by_worker

    from barewire.sdn.frameworks import dask_program

    rows, column = 20_000, "_partitions"
    frame = dask_program.part(3, rows, 1)
    assert len(frame) == rows and not frame.equals(dask_program.part(4, rows, 1))
    frame[column] = (frame["key"] % 6).astype("int8")
    workers = pandas.Series({number: f"worker {number % 3}" for number in range(6)}, name="_workers").astype("category")
    sent = split_by_worker(frame, column, frame.iloc[:0], workers)
    assert len(sent) == 3
    assert sum(table.nbytes for table in sent.values()) == pytest.approx(rows * dask_program._ROW_BYTES, rel=0.01)


@pytest.mark.parametrize("kind", ["shuffle", "groupby", "merge"])
def test_dask_leaves_no_column_of_a_job_out_of_the_shuffle(kind: str) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: run setup/setup.sh bigdata")
    import dask
    import dask.dataframe
    from dask.dataframe.dask_expr._merge import HashJoinP2P
    from dask.dataframe.dask_expr._shuffle import P2PShuffle

    from barewire.sdn.frameworks import dask_program

    class Local:
        def frame(self, rows: int, seed: int) -> Any:
            return dask.dataframe.from_pandas(dask_program.part(0, 4 * rows, seed), npartitions=4)

    facts = {"workers": 2, "kind": kind, "volume_bytes": 100_000}
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        plan = dask_program.job(Local(), facts, 1).optimize(fuse=False).expr  # type: ignore[arg-type]
    shuffled = [one.frame for one in plan.find_operations(P2PShuffle)]
    shuffled += [frame for one in plan.find_operations(HashJoinP2P) for frame in (one.left, one.right)]
    row_bytes = [sum(kind.itemsize for kind in frame._meta.dtypes) for frame in shuffled]
    assert len(row_bytes) == (2 if kind == "merge" else 1)
    assert all(size + 9 >= dask_program._ROW_BYTES for size in row_bytes), "all but the index and the partition"


def test_a_program_that_does_not_answer_hangs_after_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cluster has started; the program reads its input, and answers nothing."""
    monkeypatch.setattr(cluster, "require", lambda framework: None)
    lab: Any = SimpleNamespace(directory=Path("/nowhere"))
    started = cluster.Cluster(lab, ["h1"], 1, FrameworkJob("dask", "shuffle", 1), patience_s=0.2)
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        started._processes["program"] = process
        with pytest.raises(MeasurementFailed, match=r"dask's program hangs: no answer for 0\.2 s"):
            started.run()
        process.kill()


def test_a_patience_of_years_is_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll takes milliseconds as a C int."""
    monkeypatch.setattr(cluster, "require", lambda framework: None)
    lab: Any = SimpleNamespace(directory=Path("/nowhere"))
    started = cluster.Cluster(lab, ["h1"], 1, FrameworkJob("dask", "shuffle", 1))
    with subprocess.Popen(["echo", "ready"], stdout=subprocess.PIPE, text=True) as process:
        assert started._line(process, "echo", 1e9) == "ready\n"


def test_a_framework_that_is_not_installed_and_a_job_that_it_does_not_have_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(cluster.shutil, "which", lambda name: None)
    with pytest.raises(MachineCannot, match=r"spark needs pyspark, java: run setup/setup\.sh bigdata"):
        cluster.require("spark")
    with pytest.raises(WrongUse, match=r"shufle.*shuffle"):
        FrameworkJob("dask", "shufle", 1)
    with pytest.raises(WrongUse, match="flink"):
        FrameworkJob("flink", "sort", 1)
