# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Subjects: combinations of transport, link and wait, and that names parse to the same subject."""

import pytest

from barewire.errors import WrongUse
from barewire.measure.session import launch_file_name, parse_launch_file_name
from barewire.measure.subjects import Subject, floors_of, parse_subjects
from barewire.models.naming import is_floor, read_subject
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
    ],
)
def test_a_name_parses_to_the_same_subject(subject: Subject, name: str, words: str) -> None:
    assert subject.name == name
    assert read_subject(name) == (subject.transport, subject.link, subject.wait)
    assert subject_name(name) == words
    assert parse_launch_file_name(launch_file_name(7, "stream", name)) == (7, "stream", name)
    assert protocol_of(name) == ("tcp" if subject.transport == "tcp" else "udp" if subject.link == "udp" else "raw")
