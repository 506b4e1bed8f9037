"""The files that name a field of the model: what a new one like it would touch.

python tests/support/files_of_field.py zero_terms
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUFFIXES = (".py", ".cu", ".cuh", ".json")


def files_of(field: str, *others: str) -> list[str]:
    """Files of `accprobe/` and `probes/` with the field's name, also as the name of a type or a macro, or one of `others`."""
    forms = (field, field.title().replace("_", ""), field.upper(), *others)
    named = re.compile(rf"(?<![A-Za-z_])({'|'.join(map(re.escape, forms))})(?![A-Za-z_])")
    every = (path for room in ("accprobe", "probes") for path in sorted((ROOT / room).rglob("*")) if path.suffix in SUFFIXES)
    return [str(path.relative_to(ROOT)) for path in every if named.search(path.read_text())]


if __name__ == "__main__":
    for field in sys.argv[1:]:
        found = files_of(field)
        print(f"{field}: {len(found)} files", *found, sep="\n  ")
