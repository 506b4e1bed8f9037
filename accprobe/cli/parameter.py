"""The base of the command line's own types of parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click import ParamType as ParamType
else:

    class ParamType(click.ParamType):
        """Click's, which may be subscripted here with those versions too in which its own may not."""

        def __class_getitem__(cls, converted: type) -> type:
            return cls
