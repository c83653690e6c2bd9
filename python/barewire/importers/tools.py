# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The tools whose outputs can be imported, and how a file's tool is found out."""

from barewire.errors import WrongUse, unknown
from barewire.importers.fabtests import FABTESTS
from barewire.importers.hpcc import HPCC
from barewire.importers.imb import IMB
from barewire.importers.nccl_tests import NCCL_TESTS
from barewire.importers.netpipe import NETPIPE
from barewire.importers.osu import OSU
from barewire.importers.output import Text, Tool

AUTO = "auto"
# NetPIPE's np.out has no heading, so it comes last: any table of three numbers resembles it.
TOOLS = {tool.name: tool for tool in (OSU, IMB, HPCC, FABTESTS, NCCL_TESTS, NETPIPE)}


def tool_of(text: Text, name: str) -> Tool:
    """Return the tool that printed `text`; WrongUse if it is not `name`, none that is known, or several."""
    if name != AUTO and name not in TOOLS:
        raise unknown("--format", name, (AUTO, *TOOLS))
    found = [tool for tool in TOOLS.values() if tool.recognises(text)]
    if len(found) > 1:
        raise WrongUse(
            f"{text.path} has output of {' and of '.join(tool.title for tool in found)}: split it into one file for "
            "each tool"
        )
    if name == AUTO and not found:
        marks = "; ".join(f"{tool.title}: {tool.mark}" for tool in TOOLS.values())
        raise WrongUse(f"{text.path} is not the output of a known tool. Recognised by {marks}")
    if name == AUTO or [TOOLS[name]] == found:
        return found[0]
    what = f"looks like {found[0].title}" if found else f"has not {TOOLS[name].mark}"
    raise WrongUse(f"{text.path} is not the output of {TOOLS[name].title}: it {what}")
