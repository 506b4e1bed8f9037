"""Architecture look-ups by name, by compile target and by compute capability."""

from __future__ import annotations

import pytest

from accprobe.errors import UnknownName
from accprobe.isa import architectures
from accprobe.isa.architectures import ARCHITECTURES, Architecture


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=str)
def test_look_ups_agree(architecture: Architecture) -> None:
    assert architectures.get(architecture.name) is architecture
    assert architectures.get(architecture.target) is architecture
    assert architectures.from_compute_capability(*architecture.compute_capability) is architecture
    assert architecture.name == "sm_{}{}".format(*architecture.compute_capability)


@pytest.mark.parametrize("name", ["sm_89a", "sm_99", "hopper", ""])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(UnknownName, match=rf"^unknown architecture '{name}'; "):
        architectures.get(name)


def test_unknown_compute_capability() -> None:
    with pytest.raises(
        UnknownName, match=r"^no known architecture has compute capability 6\.1; accprobe knows sm_70 to sm_121$"
    ):
        architectures.from_compute_capability(6, 1)
