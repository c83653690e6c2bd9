# SPDX-License-Identifier: Apache-2.0 OR MIT
"""docs/settings.md has every variable and parameter that the program reads, the pages that it names every key."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from barewire.cluster.hosts import ClusterHost
from barewire.sdn.classify import tenants
from barewire.sdn.classify.policy import Behaviour, Traffic, parse_policy
from barewire.study.plan import Claim, Plan, Step, StepTable
from barewire.topology import custom

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SETTINGS = (DOCS / "settings.md").read_text()
# A Rust string may be continued in the next line, whose indentation is not part of it.
CONTINUED = re.compile(r"\\\n\s*")
# Names of the provider's symbols, and what tests set.
NO_VARIABLES = re.compile(r"pub static (BAREWIRE_\w+)|in_dll\(library, \"(BAREWIRE_\w+)|\"(BAREWIRE_UPDATE_\w+)")


def section(page: str, heading: str) -> str:
    """The text below a heading, up to the next one of its level or a higher one."""
    text = (DOCS / page).read_text()
    found = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    assert found is not None, f"docs/{page} has no section '{heading}'"
    below = text[found.end() :]
    # Comments in code begin as headings do.
    without_code = re.sub(r"^```.*?^```", lambda block: " " * len(block[0]), below, flags=re.MULTILINE | re.DOTALL)
    end = re.search(rf"^#{{1,{len(found[1])}}} ", without_code, re.MULTILINE)
    return below[: end.start()] if end else below


def code(text: str) -> str:
    """What is code in Markdown: blocks, and spans in the text between them."""
    blocks = re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    return "\n".join(blocks + spans)


def rust_fields(struct: str) -> list[str]:
    text = (ROOT / "crates/broker/src/policy.rs").read_text()
    found = re.search(rf"^struct {struct} {{(.*?)^}}", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return re.findall(r"^ {4}(\w+):", found[1], re.MULTILINE)


def names(*kinds: type) -> list[str]:
    return [field.name for kind in kinds for field in fields(kind)]  # type: ignore[arg-type]  # all are dataclasses


def plan_keys() -> list[str]:
    tables = {"steps": "step", "claims": "claim", "tables": "table"}
    found = [tables.get(name, name) for name in names(Plan) if name not in ("name", "digest")]
    return found + names(Step, Claim, StepTable)


KEYS = {
    ("settings.md", "broker.toml"): [*rust_fields("FileText"), *rust_fields("RuleText")],
    ("settings.md", "cluster.toml"): ["hosts", *names(ClusterHost)],
    ("lab.md", "A topology file"): [*custom._KEYS, *custom._LINK_KEYS],
    ("sdn.md", "The policy file"): ["strategies", "signature", "behaviour", *names(Traffic, Behaviour)],
    ("sdn.md", "Tenants"): ["tenant", *tenants._KEYS],
    ("studies.md", "A plan of your own"): plan_keys(),
}


@pytest.mark.parametrize(("page", "heading"), KEYS)
def test_every_key_of_a_file_is_on_its_page(page: str, heading: str) -> None:
    keys, words = KEYS[page, heading], set(re.findall(r"\w+", code(section(page, heading))))
    assert len(keys) > 3
    assert not [key for key in keys if key not in words], f"docs/{page}, {heading}: these keys are missing"


def test_the_pages_example_of_a_policy_is_one() -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", section("sdn.md", "The policy file"), re.MULTILINE | re.DOTALL)
    assert parse_policy(example, "example").behaviours


def provider_parameters() -> Iterator[tuple[str, str]]:
    """Name and description of each parameter, in the order shown."""
    source = CONTINUED.sub("", (ROOT / "crates/provider/src/parameters.rs").read_text())
    constants = dict(re.findall(r'^const (\w+): &CStr = c"(\w+)";', source, re.MULTILINE))
    string = r'("(?:[^"\\]|\\.)*")'
    first, tuned = source.split("const TUNED:")
    for name, text in re.findall(rf"\(\s*([A-Z]+),\s*{string},?\s*\)", first.split("const ALL:")[1]):
        yield constants[name], json.loads(text)
    for name, _, text in re.findall(rf'\(\s*c"(\w+)",\s*"(\w+)",\s*{string},?\s*\)', tuned.split("];")[0]):
        yield name, json.loads(text)


def test_the_table_of_provider_parameters_is_that_of_the_provider() -> None:
    found = list(provider_parameters())
    source = (ROOT / "crates/provider/src/parameters.rs").read_text()
    counts = re.findall(r"^const (?:ALL|TUNED): \[.*?; (\d+)\]", source, re.MULTILINE)
    assert len(found) == sum(map(int, counts))
    rows = [f"| `FI_BAREWIRE_{name.upper()}` | {text} |" for name, text in found]
    table = "\n".join(["| variable | meaning |", "| --- | --- |", *rows])
    assert f"<!-- parameters -->\n\n{table}\n\n" in SETTINGS, f"docs/settings.md: paste\n{table}"


def test_every_environment_variable_is_on_the_page() -> None:
    read: set[str] = set()
    for folder, pattern in (("python/barewire", "*.py"), ("crates", "src/**/*.rs"), ("mpi", "*.c")):
        for file in (ROOT / folder).rglob(pattern):
            text = file.read_text()
            others = {name for match in NO_VARIABLES.findall(text) for name in match}
            read |= {*re.findall(r"(?<![A-Za-z_])BAREWIRE_[A-Z_]*[A-Z]", text)} - others
    listed = re.findall(r"`(BAREWIRE_[A-Z_]+)`", section("settings.md", "Environment variables"))
    assert set(listed) == read and len(listed) > 8
