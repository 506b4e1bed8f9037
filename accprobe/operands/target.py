"""Where two models differ: about which results, in which sums, and beside which floors and cuts."""

from __future__ import annotations

from typing import NamedTuple

from accprobe.model.features import parsed
from accprobe.model.record import Place
from accprobe.model.tree import DotModel, FloatArithmetic, FusedSum

FLOORS = (-126, -133, -149)  # Smallest alignment exponents that are looked about where neither model has one.


class Target(NamedTuple):
    """Where the difference of two models shows: at results of some size, and in which sums, as `nodes` has them.

    levels: exponents about which a floor is looked for. cuts: the alignment bits of the rival's sums, where they are others.
    """

    place: Place
    sums: tuple[int, ...]
    levels: tuple[int, ...] = ()
    cuts: tuple[int, ...] = ()

    @property
    def seed(self) -> tuple[int, ...]:
        """Another one for every place."""
        return int.from_bytes(self.place.encode()), *self.sums, *(level & 0xFFFF for level in self.levels), *self.cuts


def target(model: DotModel, alternative: DotModel, feature: str, narrow: bool) -> Target:
    """Where the difference of the two models in that feature shows; narrow: in the very sums, and about the rival's cut.

    Where results of normal size keep all that the alignment does, how they are rounded shows at small results alone.
    """
    what = parsed(feature)
    place = what.field.place if what.field else "anywhere"
    levels = (_levels(alternative) or _levels(model) or FLOORS) if place == "floor" else ()
    if narrow:
        sums, cuts = _sums_that_differ(model, alternative), tuple(sorted(_cuts(alternative) - _cuts(model)))
    else:
        of_role = [node.role == what.role for node in model.root.nodes()]
        sums, cuts = tuple(i for i, alike in enumerate(of_role) if alike) or tuple(range(len(of_role))), ()
    nodes = [node for x in (model, alternative) for i, node in enumerate(x.root.nodes()) if i in sums]
    if what.field and what.field.decides == "results" and not any(map(_rounds, nodes)):
        place = "underflow"
    return Target(place, sums, levels, cuts)


def _rounds(node: FusedSum) -> bool:
    """Whether a result of normal size may keep less than the alignment does; products lie below 4 times their exponents."""
    x = node.arithmetic
    if not isinstance(x, FloatArithmetic) or x.alignment_bits is None:
        return True
    return x.alignment_bits + 2 + len(node.terms).bit_length() > x.result_bits


def _cuts(model: DotModel) -> set[int]:
    sums = (x.alignment_bits for x in model.arithmetics if isinstance(x, FloatArithmetic))
    return {bits for bits in sums if bits is not None}


def _sums_that_differ(model: DotModel, alternative: DotModel) -> tuple[int, ...]:
    """Those of the model with another arithmetic than the rival's; all where the trees differ, or nothing else does."""
    ours, theirs = list(model.root.nodes()), list(alternative.root.nodes())
    everywhere = tuple(range(len(ours)))
    if len(ours) != len(theirs):
        return everywhere
    return tuple(i for i in everywhere if ours[i].arithmetic != theirs[i].arithmetic) or everywhere


def _levels(model: DotModel) -> tuple[int, ...]:
    floats_of = [x for x in model.arithmetics if isinstance(x, FloatArithmetic)]
    return tuple(x.min_exponent for x in floats_of if x.min_exponent is not None)
