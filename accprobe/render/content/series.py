"""Sweeps in short: configurations that gave the same numbers as one series, and one line an operand type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from accprobe.render.content.phrases import Phrase
from accprobe.render.content.sweeps import SweepLine, bits, is_promoted_sum, remarks
from accprobe.report.sweeps import OperandSet, SweepRecord
from accprobe.sass import opcodes

SUMMARY_HEADERS = ("operand\ntype", "\nbits kept", "relative\nerror", "TFLOP/s\nat most", "bits\ndiffer")


@dataclass(frozen=True)
class Series:
    """Records of one operand type and problem which agree in every error and every mask: other units, warps, promotions."""

    records: tuple[SweepRecord, ...]

    @property
    def normal_operands(self) -> OperandSet:
        """Normal ones, others where those were not swept."""
        swept = [each.operands for each in self.records]
        return "normal" if "normal" in swept else swept[0]

    @property
    def normal(self) -> dict[int, SweepRecord]:
        """By block-K the first record of these."""
        return self.of(self.normal_operands)

    def of(self, operands: OperandSet) -> dict[int, SweepRecord]:
        """By block-K the first record of these operands."""
        found: dict[int, SweepRecord] = {}
        for each in sorted(self.records, key=lambda each: each.block_k):
            if each.operands == operands:
                found.setdefault(each.block_k, each)
        return found

    @property
    def label(self) -> str:
        """ "QGMMA, 4 or 8 warps, promoted every 128"; "HMMA, 2 warps; HGMMA, 4 or 8 warps"."""
        units: dict[str, dict[int, None]] = {}
        for each in self.records:
            units.setdefault(unit(each), {})[each.num_warps] = None
        ran = "; ".join(f"{name}, {_either(warps)} warps" for name, warps in units.items())
        every = dict.fromkeys(each.promote_every for each in self.records)
        promoted = _either([size for size in every if size])
        if not promoted:
            return ran
        return f"{ran}, promoted or not" if None in every else f"{ran}, promoted every {promoted}"


def unit(record: SweepRecord) -> str:
    """What ran: "QGMMA"; without a matrix instruction "FFMA"."""
    return " + ".join(dict.fromkeys(map(opcodes.stem, record.opcodes))) or "FFMA"


def by_type(records: Iterable[SweepRecord]) -> dict[str, list[Series]]:
    """The series of what was measured, by operand type; where several problems were swept, of each by itself."""
    swept = [each for each in records if each.measured]
    several = len({_problem(each) for each in swept}) > 1
    found: dict[str, list[SweepRecord]] = {}
    for each in swept:
        found.setdefault(f"{each.dtype}, {_problem(each)}" if several else each.dtype, []).append(each)
    return {name: list(_series(group)) for name, group in found.items()}


def _series(records: Sequence[SweepRecord]) -> Iterator[Series]:
    """Those that agree wherever both were swept are one; the more was swept of one, the sooner others join it."""
    configured: dict[tuple[object, ...], list[SweepRecord]] = {}
    for each in records:
        configured.setdefault((unit(each), each.num_warps, each.promote_every), []).append(each)
    joined: list[list[SweepRecord]] = []
    for some in configured.values():
        same = next((others for others in joined if _agree(some, others)), None)
        if same is None:
            joined.append(list(some))
        else:
            same += some
    return (Series(tuple(every)) for every in joined)


def _agree(some: Sequence[SweepRecord], others: Sequence[SweepRecord]) -> bool:
    """Whether all that was swept of `some` was swept of the others, and came out the same."""
    known = {(each.operands, each.block_k): (each.relative_error, each.masks) for each in others}
    return all(known.get((each.operands, each.block_k)) == (each.relative_error, each.masks) for each in some)


def _problem(record: SweepRecord) -> str:
    size = f"m {record.m}, n {record.n}, k {record.k}, blocks of {record.block_m} × {record.block_n}"
    return f"{size}, rounded" if record.rounded else size


def _either(numbers: Iterable[int]) -> str:
    """ "2", "2 or 4", "2, 4 or 8"."""
    *some, last = map(str, numbers) if numbers else [""]
    return f"{', '.join(some)} or {last}" if some else last


def summary_lines(records: Sequence[SweepRecord]) -> Iterator[tuple[Phrase, ...]]:
    """One line an operand type, under `SUMMARY_HEADERS`; of types of which nothing was measured there is none."""
    for name, series in by_type(records).items():
        every = [each for one in series for each in one.records]
        normal = [each for one in series for each in one.records if each.operands == one.normal_operands]
        errors = [each.relative_error or 0.0 for each in normal]
        least, most = (f"{error:.1e}" for error in (min(errors), max(errors)))
        error = ("exact" if not max(errors) else least) if least == most else f"{least} to {most}"
        fastest = max((each.tflops for each in normal if each.tflops is not None), default=None)
        predicted = [each.prediction.differ for each in every if each.prediction]
        differ = Phrase(f"{sum(predicted):,}", "bad" if any(predicted) else "good") if predicted else Phrase("")
        yield Phrase(name), _kept(every), Phrase(error), Phrase("" if fastest is None else f"{fastest:.0f}"), differ


def _kept(records: Sequence[SweepRecord]) -> Phrase:
    """ "HMMA 23 (f32), QGMMA 13 (e8m13)": of each unit the fewest bits that its own sums were seen to have."""
    units: dict[str, list[Phrase]] = {}
    for each in records:
        if not is_promoted_sum(each) and (told := bits(each)).text:
            units.setdefault(unit(each), []).append(told)
    exact = {name: [told for told in every if not told.text.startswith("≥")] or every for name, every in units.items()}
    fewest = {name: min(every, key=lambda told: int(told.text.lstrip("≥").split()[0])) for name, every in exact.items()}
    alike: dict[Phrase, list[str]] = {}
    for name, told in fewest.items():
        alike.setdefault(told, []).append(name)
    text = ", ".join(
        f"{', '.join(names)} {told.text}" for told, names in sorted(alike.items(), key=lambda item: not item[0].tone)
    )
    return Phrase(text or "promoted sums alone", "narrow" if any(told.tone for told in alike) else "")


def summary_notes(records: Sequence[SweepRecord], simulated: bool) -> Iterator[Phrase]:
    """What nobody must miss of the sweeps."""
    every = remarks([SweepLine(tuple(records))], simulated)
    return (remark for remark in every if remark.tone in ("bad", "warning"))


def extent(records: Sequence[SweepRecord]) -> str:
    """ "63 configurations: block-K 32 to 512, 2, 4 or 8 warps, promoted every 32 or 128"."""
    swept = {each.model_copy(update={"operands": "normal"}).key for each in records}
    sizes = [each.block_k for each in records]
    warps = _either(sorted({each.num_warps for each in records}))
    promoted = _either(sorted({each.promote_every for each in records if each.promote_every}))
    size = f"block-K {min(sizes)} to {max(sizes)}" if min(sizes) < max(sizes) else f"block-K {sizes[0]}"
    text = f"{len(swept)} configuration{'s' * (len(swept) > 1)}: {size}, {warps} warps"
    return f"{text}, some promoted every {promoted}" if promoted else text
