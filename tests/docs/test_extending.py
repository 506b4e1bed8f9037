"""docs/extending.md: a toy of each kind, added to a copy of the tree in exactly the files that the page lists, works there."""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from block_forms import ROOT
from toys import DEVICE, FAMILY, FIELD, FORMAT, INSTRUCTION, NEW, Edits

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
FOLDERS = ("accprobe", "probes", "reports")

WRITTEN_AGAIN = "accprobe/report/report.schema.json"
"""By a program, from the rest."""


class Tree:
    """A copy of what is installed, compiled as it may be, and of the contracts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in FOLDERS:
            shutil.copytree(ROOT / name, root / name, symlinks=True, ignore=shutil.ignore_patterns("*.pyc.*", "*.nb?"))
        shutil.copyfile(ROOT / "pyproject.toml", root / "pyproject.toml")

    def add(self, edits: Edits) -> None:
        for name, places in edits.items():
            path = self.root / name
            text = path.read_text(encoding="utf-8") if path.exists() else NEW
            for old, new in places:
                assert text.count(old) == 1, (name, old)
                text = text.replace(old, new)
            path.write_text(text, encoding="utf-8")
        if WRITTEN_AGAIN in edits:
            self.python("from accprobe.report import schema; schema.FILE.write_text(schema.text(), encoding='utf-8')")

    def changed(self) -> set[str]:
        """Files that are not as they were, but for what Python keeps of them."""
        files = [path.relative_to(self.root) for path in self.root.rglob("*") if path.is_file() and path.suffix != ".pyc"]
        same = filecmp.cmpfiles(self.root, ROOT, files, shallow=False)[0]
        return {str(file) for file in set(files) - set(same)}

    def python(self, program: str) -> str:
        return self._run("-c", program)

    def accprobe(self, *arguments: str, status: int = 0) -> str:
        return self._run("-m", "accprobe", *arguments, status=status)

    def _run(self, *arguments: str, status: int = 0) -> str:
        environment = os.environ | {"PYTHONPATH": str(self.root)}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        return done.stdout


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def listed(heading: str) -> set[str]:
    """The files that the page lists under a heading, for a toy."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return {path.replace("{name}", "toy") for path in re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)}


def test_an_instruction(tree: Tree) -> None:
    tree.add(INSTRUCTION)
    assert tree.changed() == listed("An instruction")
    name = "mma.sync.m16n8k32.f32.bf16.bf16.f32"
    assert f"{name}\tprobe never run on hardware\n" in tree.accprobe("list", "--instructions", "sm_90a")
    program = f"from accprobe.build.probes import source; import accprobe; print(source(accprobe.parse({name!r})))"
    assert "mma.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, " in tree.python(program)


def test_an_instruction_family(tree: Tree) -> None:
    tree.add(FAMILY)
    assert tree.changed() == listed("An instruction family")
    name = "toy.m16n8k16.f32.f16.f16.f32"
    assert f"{name}\tprobe never run on hardware\n" in tree.accprobe("list", "--instructions", "sm_90a")
    program = f"""
import accprobe
from accprobe.build.probes import Part, source
inst = accprobe.parse({name!r})
for part in (Part.SHARE, Part.PRODUCT):
    print(source(inst, part))
"""
    written = tree.python(program)
    assert '#define MULTIPLY(d, a, b, c) asm("toy.m16n8k16;" : "=r"(d[0]), "=r"(d[1]) : "r"(a[0]), "r"(a[1]))' in written
    assert written.index("// The toy's dot products.") < written.index("#define TILES 4") < written.index("// The toy's matrix")
    (row,) = json.loads(tree.accprobe("run", "--device", "sim:h100", "--select", "toy.*", "--format", "json"))["instructions"]
    assert (row["name"], row["status"], row["opcodes"]) == (name, "simulated", ["TOYHMMA"])


FIELD_PROGRAM = """
import json
from dataclasses import replace
import numpy as np
import accprobe
from accprobe.evaluate import rounding, steps
from accprobe.evaluate.cuda import source
from accprobe.infer.alternatives.single import alternatives
from accprobe.render.content.glossary import GLOSSARY
from accprobe.report.report import Report

inst = accprobe.parse("mma.sync.m16n8k8.f32.bf16.bf16.f32")
device = accprobe.open_device("sim:h100")
result = accprobe.characterise(device, inst)
kept = result.model.with_arithmetic(lambda has: replace(has, toy_sign="kept"))
infinities = {}
for word, model in (("positive", result.model), ("kept", kept)):
    arithmetic = model.root.arithmetic
    total, exponent = np.array([-3.0, 3.0, -3.0]), np.array([127, 127, 0])
    by_numpy = rounding.encode(total, exponent, arithmetic)
    infinities[word] = by_numpy.tolist(), steps.step_of(model, inst) is not None
print(json.dumps({
    "finding": [result.findings["toy_sign"].value, result.findings["toy_sign"].bound],
    "model": result.model == device.model(inst),
    "alternatives": [rival.changes for rival in alternatives(result.model, result.findings) if rival.field == "toy_sign"],
    "infinities": infinities,
    "glossary": GLOSSARY["toy sign"],
    "recorded": len(Report.load("h200").measured),
    "source": source.source(result.model, inst),
}))
"""


def test_a_model_field(tree: Tree) -> None:
    tree.add(FIELD)
    assert tree.changed() == listed("A model field")
    told = json.loads(tree.python(FIELD_PROGRAM))
    assert told["finding"] == ["positive", "exact"]
    assert told["model"]
    assert told["alternatives"] == [[["toy_sign", "kept"]]]
    infinity, negative, finite = 0x7F800000, 0xFF800000, 0xC0400000
    assert told["infinities"]["positive"] == [[infinity, infinity, finite], False]
    assert told["infinities"]["kept"] == [[negative, infinity, finite], True]
    assert told["glossary"] == "sign of a sum that is too large"
    assert told["recorded"]
    schema = json.loads((tree.root / WRITTEN_AGAIN).read_text(encoding="utf-8"))
    assert '"toy_sign": {"enum": ["kept", "positive"]}' in json.dumps(schema)
    if compiler := shutil.which("g++"):
        main = """#include <cstdio>
int main() { printf("%llx %llx", encode<Rules0>(true, 3, 127), encode_real<Rules0>(-0x3p127, true)); }"""
        (tree.root / "toy.cpp").write_text(told["source"] + main, encoding="utf-8")
        subprocess.run([compiler, "-std=c++17", "-w", "-o", "toy", "toy.cpp"], cwd=tree.root, check=True)
        done = subprocess.run([tree.root / "toy"], capture_output=True, text=True, check=True)
        assert done.stdout == f"{infinity:x} {infinity:x}"


def test_a_device(tree: Tree) -> None:
    tree.add(DEVICE)
    assert tree.changed() == listed("A device")
    assert "toy:box\twhat it says\n" in tree.accprobe("list", "--devices")
    printed = tree.accprobe("run", "--device", "toy:box", "--select", "mma*", "--format", "json", status=1)
    report = json.loads(printed)
    assert (report["device"]["kind"], report["device"]["name"]) == ("toy", "toy box")
    (row,) = report["instructions"]
    assert row["status"] == "unverified"
    assert '"toy"' in (tree.root / WRITTEN_AGAIN).read_text(encoding="utf-8")


def test_a_report_format(tree: Tree) -> None:
    tree.add(FORMAT)
    assert tree.changed() == listed("A report format")
    printed = tree.accprobe("show", "h200", "wgmma.m64n8k32.f32.e4m3.e4m3", "--format", "toy")
    assert printed == "wgmma.m64n8k32.f32.e4m3.e4m3: confirmed\n"
    assert "Contracts: 3 kept, 0 broken." in tree.python(
        "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"
    )
