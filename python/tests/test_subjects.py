# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Subjects: combinations of transport, link and wait, and that names parse to the same subject."""

import pytest

from barewire.errors import WrongUse
from barewire.measure.session import launch_file_name, parse_launch_file_name
from barewire.measure.subjects import Subject, floors_of, parse_subjects, swept
from barewire.models.naming import baseline_of, is_floor, mtu_of, read_subject
from barewire.models.verdict import protocol_of
from barewire.report.words import subject_name


def names(*arguments: str) -> list[str]:
    return [subject.name for subject in parse_subjects(*arguments)]


def test_links_are_combined_with_transports_that_have_a_choice() -> None:
    assert names("tcp,raw,llc2", "spin", "packet,xdp") == ["tcp", "raw", "xdp", "llc2", "llc2+xdp"]
    assert names("xdp", "spin") == ["xdp"]
    assert names("raw,xdp", "spin", "xdp,xdp-native") == ["xdp", "xdp-native"]
    assert names("raw,udp,xdp,llc2", "spin", "udp") == ["raw+udp", "udp", "xdp", "llc2+udp"]
    with pytest.raises(WrongUse, match="xdp-generic"):
        parse_subjects("raw", "spin", "dpdk")


def test_subjects_without_busy_polling_are_left_out() -> None:
    assert names("raw,udp", "busypoll", "packet,xdp") == ["xdp/busypoll", "udp/busypoll"]
    with pytest.raises(WrongUse, match="busy-polled"):
        parse_subjects("raw,llc2", "busypoll", "packet,udp")


def test_every_link_for_frames_has_a_separate_floor() -> None:
    floors = floors_of(parse_subjects("tcp,raw,llc2", "spin", "udp,packet,xdp-native"))
    assert [floor.name for floor in floors] == ["floor", "floor+xdp-native"]
    assert all(floor.is_floor and is_floor(floor.name) for floor in floors) and not is_floor("xdp")


@pytest.mark.parametrize(
    ("subject", "name", "words"),
    [
        (Subject("raw", link="xdp"), "xdp", "AF_XDP"),
        (Subject("raw", "block", "xdp-native"), "xdp-native/block", "native AF_XDP, blocking"),
        (Subject("llc2", link="xdp"), "llc2+xdp", "LLC 2 over AF_XDP"),
        (Subject("raw", link="udp"), "raw+udp", "raw Ethernet over UDP"),
        (Subject("llc2", "block", "udp"), "llc2+udp/block", "LLC 2 over UDP, blocking"),
        (Subject("tcp", "block"), "tcp/block", "TCP, blocking"),
        (Subject("floor", link="xdp"), "floor+xdp", "floor over AF_XDP"),
        (Subject("tcp", "block", mtu=9000), "tcp+mtu=9000/block", "TCP, MTU 9000, blocking"),
        (Subject("raw", link="xdp", mtu=1500), "xdp+mtu=1500", "AF_XDP, MTU 1500"),
        (
            Subject("messages", link="udp", tuned=(("eager_bytes", 0),), mtu=9000),
            "messages+udp+eager_bytes=0+mtu=9000",
            "messages over UDP, eager_bytes 0, MTU 9000",
        ),
    ],
)
def test_a_name_parses_to_the_same_subject(subject: Subject, name: str, words: str) -> None:
    assert subject.name == name
    read = read_subject(name)
    assert (read.transport, read.link, read.wait) == (subject.transport, subject.link, subject.wait)
    assert str(read) == name and mtu_of(name) == subject.mtu
    assert subject_name(name) == words
    assert parse_launch_file_name(launch_file_name(7, "stream", name)) == (7, "stream", name)
    assert protocol_of(name) == ("tcp" if subject.transport == "tcp" else "udp" if subject.link == "udp" else "raw")


def test_factors_are_combined_with_the_subjects_that_have_them() -> None:
    subjects = swept(parse_subjects("tcp,messages", "spin"), {"eager_bytes": (4096, 65536)}, (1500, 9000))
    assert [subject.name for subject in subjects] == [
        *("tcp+mtu=1500", "tcp+mtu=9000"),
        *(f"messages+eager_bytes={eager}+mtu={mtu}" for eager in (4096, 65536) for mtu in (1500, 9000)),
    ]
    assert [floor.name for floor in floors_of(subjects)] == ["floor+mtu=1500", "floor+mtu=9000"]
    assert [subject.name for subject in swept(subjects[:1], {}, (None,))] == ["tcp"]


@pytest.mark.parametrize(
    ("subject", "baseline", "name"),
    [
        ("messages+eager_bytes=4096+mtu=9000", "tcp", "tcp+mtu=9000"),
        ("raw+mtu=9000", "tcp/block", "tcp+mtu=9000/block"),
        ("raw+mtu=9000", "raw+mtu=1500", "raw+mtu=1500"),
        ("openmpi/barewire+eager=4096+mtu=9000", "tcp", "openmpi/tcp+mtu=9000"),
        ("openmpi/barewire+mtu=9000", "mpich-5/tcp", "mpich-5/tcp+mtu=9000"),
        ("openmpi/barewire+mtu=9000", "tcp+mtu=1500", "openmpi/tcp+mtu=1500"),
    ],
)
def test_the_baseline_has_the_same_link_unless_it_names_one(subject: str, baseline: str, name: str) -> None:
    assert baseline_of(subject, baseline) == name
