# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The wire's limit compared with frames counted by hand and well-known figures."""

import pytest

from barewire.models.verdict import floor_verdict, fraction_of_limit, protocol_of, wire_verdict
from barewire.models.wire import (
    Frames,
    Link,
    frames_of_message,
    latency_limit_us,
    rate_limit_mbit_s,
    wire_bytes,
    wire_limit,
    wire_time_ns,
)

GIGABIT = 1e9


def test_1400_bytes_raw_at_1_gbit_take_11_5_us_so_a_round_trip_of_11_us_is_impossible():
    # Paz 2010 reports 11 µs for the round trip of 1400 bytes at 1 Gb/s.
    one_way_us = latency_limit_us(1400, "raw", 1500, GIGABIT)
    assert one_way_us == pytest.approx(11.504)
    assert wire_verdict(11 / 2, one_way_us, lower_is_better=True) == "impossible"
    assert wire_verdict(11.0, 2 * one_way_us, lower_is_better=True) == "impossible"
    assert wire_verdict(11.6, one_way_us, lower_is_better=True) == "ok"


def test_the_shortest_frame_takes_84_byte_times_and_the_longest_1538():
    # 1 Gb/s carries 1 488 095 minimum frames per second: 672 ns each.
    assert wire_time_ns(0, "raw", 1500, GIGABIT) == 672
    assert wire_time_ns(46, "raw", 1500, GIGABIT) == 672
    assert wire_time_ns(47, "raw", 1500, GIGABIT) == 680
    assert wire_time_ns(1500, "raw", 1500, GIGABIT) == 1538 * 8


def test_a_tag_costs_four_bytes_except_where_it_replaces_padding():
    assert wire_bytes(Frames(1, 1500), vlan=True) == 1542
    assert wire_bytes(Frames(1, 42), vlan=True) == 84
    assert wire_bytes(Frames(1, 43), vlan=True) == 85


def test_raw_messages_are_split_at_the_mtu():
    assert frames_of_message(1500, "raw", 1500) == [Frames(1, 1500)]
    assert frames_of_message(1501, "raw", 1500) == [Frames(1, 1500), Frames(1, 1)]
    assert frames_of_message(4500, "raw", 1500) == [Frames(3, 1500)]
    assert frames_of_message(0, "raw", 1500) == [Frames(1, 0)]


def test_udp_fits_1472_bytes_and_is_split_into_multiples_of_8_above():
    assert frames_of_message(1472, "udp", 1500) == [Frames(1, 1500)]
    assert frames_of_message(1473, "udp", 1500) == [Frames(1, 1500), Frames(1, 21)]
    # RFC 791: 1482 is not a multiple of 8; all but the last fragment carry 1480.
    assert frames_of_message(1475, "udp", 1502) == [Frames(1, 1500), Frames(1, 23)]
    assert frames_of_message(65507, "udp", 65535) == [Frames(1, 65535)]
    # Larger than one datagram: a full one, and the rest in another.
    assert frames_of_message(65508, "udp", 65535) == [Frames(1, 65535), Frames(1, 29)]
    assert frames_of_message(3 * 65507, "udp", 65535) == [Frames(3, 65535)]


@pytest.mark.parametrize("mtu", [576, 1500, 1502, 9000])
@pytest.mark.parametrize("size", [0, 1, 1471, 1473, 2953, 9001, 65507])
def test_every_datagram_byte_is_in_exactly_one_fragment(mtu, size):
    frames = frames_of_message(size, "udp", mtu)
    assert sum(fragment.count * (fragment.payload_bytes - 20) for fragment in frames) == size + 8
    assert all(20 < fragment.payload_bytes <= mtu for fragment in frames)
    assert all((fragment.payload_bytes - 20) % 8 == 0 for fragment in frames[:-1])


def test_tcp_segments_carry_1448_bytes():
    assert frames_of_message(1448, "tcp", 1500) == [Frames(1, 1500)]
    assert frames_of_message(1449, "tcp", 1500) == [Frames(1, 1500), Frames(1, 53)]


def test_tcp_goodput_at_a_gigabit_is_the_well_known_941():
    assert rate_limit_mbit_s("stream", 65536, "tcp", 1500, GIGABIT) == pytest.approx(941.48, abs=0.01)
    small = rate_limit_mbit_s("stream", 1, "tcp", 1500, GIGABIT)
    assert small == pytest.approx(941.48, abs=0.01), "a stream may coalesce small messages"


def test_raw_and_udp_streams_pay_for_every_frame():
    assert rate_limit_mbit_s("stream", 1500, "raw", 1500, GIGABIT) == pytest.approx(1500 / 1538 * 1000)
    assert rate_limit_mbit_s("stream", 1, "raw", 1500, GIGABIT) == pytest.approx(1 / 84 * 1000)
    assert rate_limit_mbit_s("stream", 1472, "udp", 1500, GIGABIT) == pytest.approx(957.09, abs=0.01)


def test_both_directions_of_a_full_duplex_link_add_up():
    one_way = rate_limit_mbit_s("stream", 1500, "raw", 1500, GIGABIT)
    assert rate_limit_mbit_s("bidirectional", 1500, "raw", 1500, GIGABIT) == 2 * one_way


def test_a_larger_message_never_takes_less_time():
    for protocol in ("raw", "udp", "tcp"):
        times = [wire_time_ns(size, protocol, 1500, GIGABIT) for size in range(0, 6000, 7)]
        assert times == sorted(times)


def test_unknown_limits_are_none():
    assert wire_limit("pingpong", 64, "raw", Link(rate_bit_s=None)) is None
    assert wire_limit("stream", 0, "raw", Link(GIGABIT)) is None
    assert wire_limit("pingpong", 0, "raw", Link(GIGABIT)) == pytest.approx(0.672)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((-1, "raw", 1500), "0 bytes"), ((1, "raw", 67), "MTU"), ((1, "raw", 65536), "MTU"), ((1, "ipx", 1500), "ipx")],
)
def test_frames_of_invalid_messages_are_rejected(arguments, message):
    with pytest.raises(ValueError, match=message):
        frames_of_message(*arguments)


def test_rates_of_invalid_links_and_tests_are_rejected():
    with pytest.raises(ValueError, match="rate"):
        wire_time_ns(1, "raw", 1500, 0)
    with pytest.raises(ValueError, match="pingpong"):
        rate_limit_mbit_s("pingpong", 1, "raw", 1500, GIGABIT)


def test_the_fraction_is_one_at_the_limit_for_times_and_rates():
    assert fraction_of_limit(20, 10, lower_is_better=True) == 0.5
    assert fraction_of_limit(500, 1000, lower_is_better=False) == 0.5
    with pytest.raises(ValueError, match="above 0"):
        fraction_of_limit(0, 10, lower_is_better=True)


def test_the_wire_tolerates_half_a_percent_and_no_more():
    assert wire_verdict(1004, 1000, lower_is_better=False) == "ok"
    assert wire_verdict(1006, 1000, lower_is_better=False) == "impossible"
    assert wire_verdict(9.9, 10, lower_is_better=True) == "impossible"


def test_only_raw_frames_are_bound_by_the_floor_of_raw_frames():
    floor = (1.0, 1.1)
    assert floor_verdict("raw", (0.8, 0.9), floor, lower_is_better=True) == "impossible"
    assert floor_verdict("raw/block", (0.8, 0.9), floor, lower_is_better=True) == "impossible"
    assert floor_verdict("tcp", (0.8, 0.9), floor, lower_is_better=True) == "faster than floor"
    assert floor_verdict("raw", (0.9, 1.05), floor, lower_is_better=True) == "ok", "overlapping intervals prove nothing"
    assert floor_verdict("udp", (1.2, 1.3), floor, lower_is_better=False) == "faster than floor"


def test_a_subject_with_unknown_frames_has_no_protocol():
    assert protocol_of("tcp/busypoll") == "tcp"
    assert protocol_of("floor") == "raw"
    assert protocol_of("llc2") == "raw"
    assert protocol_of("quic") is None
