# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The API's documents: their only description. Server, client and OpenAPI document use it."""

from typing import Annotated

from msgspec import Meta, Struct

from barewire.sdn.classify.announcement import Announcement, PatternDocument, TrafficDocument

# The header in which a standby names the leader's API, which may be at a Unix socket.
LEADER_HEADER = "Barewire-Leader"


class Error(Struct, forbid_unknown_fields=True):
    """A refusal: what is wrong, and what to do."""

    error: str


class Step(Struct, forbid_unknown_fields=True):
    """The number of a pattern, from 0; without it the next one."""

    to: Annotated[int, Meta(ge=0)] | None = None


class Patterns(Struct, forbid_unknown_fields=True):
    """Further patterns of a job."""

    patterns: list[PatternDocument]


class Turn(Struct, forbid_unknown_fields=True):
    """Whether a job wants to send its current pattern, or has sent it."""

    wants: bool


class Granted(Struct, forbid_unknown_fields=True):
    """Whether it may send now; if not, ask again soon."""

    goes: bool


class ChosenStrategy(Struct, forbid_unknown_fields=True):
    """A profile's strategy, one of GET /v1/strategies with its parameters."""

    strategy: str


class Job(Struct, forbid_unknown_fields=True):
    """An announced job."""

    id: str
    name: str
    profile: str
    hosts: list[str]
    ranks: Annotated[int, Meta(description="number of ranks")]
    traffic: list[TrafficDocument]
    patterns: Annotated[int, Meta(description="number of patterns")]
    current: Annotated[int, Meta(description="the number of the current pattern")]
    lease_s: float
    ends_in_s: float


class Jobs(Struct, forbid_unknown_fields=True):
    """All announced jobs."""

    jobs: list[Job]


class Status(Struct, forbid_unknown_fields=True):
    """Counts of everything."""

    switches: int
    connected: int
    links: int
    hosts: int
    flows: int
    being_installed: Annotated[int, Meta(description="flows with unconfirmed rules, plans being made, and labels")]
    jobs: int
    counts: dict[str, int]


class Pair(Struct, forbid_unknown_fields=True):
    """Which controller leads."""

    role: Annotated[str, Meta(description="leader or standby; single: it has no peer")]
    since_s: Annotated[float, Meta(description="how long it has this role")]
    leader: Annotated[str | None, Meta(description="the leader's API, as configured here; null if it is not known")]
    peer: Annotated[str | None, Meta(description="the other controller's API")]
    peer_answers: bool
    generation: Annotated[str | None, Meta(description="OpenFlow's generation of its latest claim, hexadecimal")]
    switches: Annotated[int, Meta(description="connected switches")]


class SwitchPort(Struct, forbid_unknown_fields=True):
    """A switch's port; it leads to another switch's port, or to a host."""

    number: int
    name: str
    up: bool
    leads_to: str | None


class Switch(Struct, forbid_unknown_fields=True):
    """A switch."""

    name: str
    connected: bool
    flows: int
    ports: list[SwitchPort]


class Switches(Struct, forbid_unknown_fields=True):
    """All switches."""

    switches: list[Switch]


class TaggedAddress(Struct, forbid_unknown_fields=True):
    """An address in a VLAN."""

    vlan: int
    address: str


class Host(Struct, forbid_unknown_fields=True):
    """A host; its switch port if known."""

    name: str
    mac: str
    addresses: Annotated[list[str], Meta(description="of IPv4 and IPv6, without a tag")]
    tagged: list[TaggedAddress]
    port: str | None


class Hosts(Struct, forbid_unknown_fields=True):
    """All hosts, or those that the jobs of the tenant whose token it is may have."""

    hosts: list[Host]


class Link(Struct, forbid_unknown_fields=True, rename={"source": "from"}):
    """A direction of a link between switches."""

    source: str
    to: str
    rate_bit_s: int | None


class Links(Struct, forbid_unknown_fields=True):
    """All links."""

    links: list[Link]


class Load(Struct, forbid_unknown_fields=True):
    """What a switch port sends and receives."""

    port: str
    sent_byte_s: int
    received_byte_s: int


class Loads(Struct, forbid_unknown_fields=True):
    """All ports' loads."""

    loads: list[Load]


class Flow(Struct, forbid_unknown_fields=True):
    """A placed flow."""

    source: str
    destination: str
    protocol: str
    source_port: int
    destination_port: int
    profile: str
    known_by: str
    path: Annotated[list[str], Meta(description="the output port of each switch")]
    why: str
    installed: Annotated[bool, Meta(description="whether all its rules are confirmed")]
    age_s: float
    rate_byte_s: int
    bytes: int
    packets: int
    reserved_s: Annotated[float | None, Meta(description="null: for the flow's lifetime")]


class Flows(Struct, forbid_unknown_fields=True):
    """All placed flows."""

    flows: list[Flow]


class Tenant(Struct, forbid_unknown_fields=True):
    """A tenant, and what its flows carry."""

    name: str
    hosts: list[str]
    share: Annotated[float, Meta(description="guaranteed fraction of each link")]
    ceiling: Annotated[float, Meta(description="largest fraction of each link")]
    jobs: int
    jobs_max: int
    sent_bit_s: Annotated[int, Meta(description="what its flows carry")]
    limited: Annotated[list[str], Meta(description="the ports at which it is limited now")]


class Tenants(Struct, forbid_unknown_fields=True):
    """All tenants, or the one whose token it is."""

    tenants: list[Tenant]


class Strategies(Struct, forbid_unknown_fields=True):
    """Names of strategies."""

    strategies: list[str]


class Signature(Struct, forbid_unknown_fields=True):
    """Traffic of a profile."""

    profile: str
    protocol: str | None
    ports: list[str]


class Policy(Struct, forbid_unknown_fields=True):
    """The policy in force: each profile's strategy, and how flows are classified."""

    strategies: dict[str, str]
    signatures: list[Signature]
    behaviours: list[dict[str, float | str]]
    labels: Annotated[
        dict[str, str],
        Meta(
            description="VLAN identifiers, as in 3840-3843, of each profile whose frames may choose their paths by them"
        ),
    ]
    labels_pending: Annotated[bool, Meta(description="the labels will change soon, or their rules are being installed")]


ALL = (
    Announcement,
    Error,
    Step,
    Patterns,
    Turn,
    Granted,
    ChosenStrategy,
    Job,
    Jobs,
    Status,
    Pair,
    Switches,
    Hosts,
    Links,
    Loads,
    Flows,
    Tenants,
    Strategies,
    Policy,
)
