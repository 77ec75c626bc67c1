"""The section on the paper's statements, tried on this pool's own table. Knows no proofs."""

from collections.abc import Mapping, Sequence

from adacompute.evaluate.exhibits import Column, Section, Table
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.fits import Fits
from adacompute.evaluate.paper.laws import OWN, Law, laws

__all__ = ["section", "table_of"]

_NONE = (
    "statements on the learned policy: no classifier was fitted, since B can't be reached; "
    "collect more samples of every problem"
)


def section(case: Case, fits: Mapping[float, Fits]) -> Section:
    """Every statement with a quantity, its bound, and whether it holds."""
    found = laws(case, fits)
    return Section(
        key="laws",
        title="The paper's statements, checked",
        words=_words(found),
        tables=(table_of(found),),
        missing=() if fits else (_NONE,),
    )


def table_of(found: Sequence[Law]) -> Table:
    """A row a statement and reading."""
    return Table(
        key="laws",
        title="Statements and bounds",
        protocol=(
            "By the paper's windows on all problems, and by all subsets on the problems not learned from "
            "(held-out); every B and every seed."
        ),
        columns=(
            Column(name="statement"),
            Column(
                name="form", about="as the paper states it, corrected, or the paper's own where that fails"
            ),
            Column(name="tried on"),
            Column(name="quantity", kind="price", about="in the tightest case"),
            Column(name="bound", kind="price", about="in the tightest case"),
            Column(name="cases", kind="count"),
            Column(name="held", kind="count"),
            Column(name="holds", kind="flag"),
        ),
        rows=tuple(
            (
                law.statement,
                law.form,
                law.protocol,
                _tidy(law.quantity),
                _tidy(law.bound),
                law.tried,
                law.held,
                law.holds,
            )
            for law in found
        ),
        note="Quantity and bound: of the case whose quantity comes nearest to its bound, or passes it."
        + _raised(found),
    )


def _raised(found: Sequence[Law]) -> str:
    """In how many cases B isn't the one that was asked for."""
    own = [law for law in found if law.raised]
    if not own:
        return ""
    return (
        " Held-out, Theorem 3 is tried with B raised to what the oracle's own budgets cost on the problems "
        f"judged, where that is more than B: in {own[0].raised} of {own[0].tried} cases."
    )


def _tidy(value: float) -> float:
    """Rounding errors of sums are no quantity."""
    return 0.0 if abs(value) < 1e-12 else value


def _words(found: Sequence[Law]) -> tuple[str, ...]:
    right = [law for law in found if law.form != OWN]
    own = [law for law in found if law.form == OWN]
    broken = [law for law in right if not law.holds]
    if broken:
        first = (
            f"{len(broken)} of {len(right)} statements fail here, which they can't: please report this pool."
        )
    else:
        first = f"All {len(right)} statements hold on this pool, in the form in which they can be proved."
    second = (
        "Two are listed once more in the paper's own form, which isn't true in general (docs/theory.md has "
        f"counter-examples). {' '.join(_told(law) for law in own)}"
    )
    return (first, second) if own else (first,)


def _told(law: Law) -> str:
    name = {"single": "The single price's labels being exact", "stated": "Near-optimality"}[law.key]
    where = "" if law.key == "single" else f", {law.protocol},"
    if law.holds:
        return f"{name}{where} happens to hold here ({law.held} of {law.tried} cases)."
    return f"{name}{where} fails here in {law.tried - law.held} of {law.tried} cases."
