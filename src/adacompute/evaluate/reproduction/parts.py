"""The headings of the page, in the paper's order, and how to read it. Knows no number."""

from dataclasses import dataclass

__all__ = ["PARTS", "READ", "Part"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A heading of the page, and what stands below it."""

    key: str  # of the claims
    title: str
    tables: tuple[str, ...] = ()  # keys
    words: str = ""


_MAIN = """\
The second table is what the paper doesn't have: the same classifiers on the problems that they haven't
learned from, beside all alike at the classifier's own cost, free to mix two budgets by lot. Intervals are 95%
over problems."""
_GAP = """\
Most problems have the oracle's budget b = 1, so imitation means little without what always answering the
commonest budget imitates. The second table is an inference from the paper's own numbers: if Table 5 is
scored on all 200 problems, and the 160 learned from are imitated perfectly, or as well as ours are, so much
is left for the other 40. How well they were imitated the paper doesn't say."""
_THREE = """\
The paper pools three models on the same questions. We have no three models on the same questions, so three
recordings of one model are pooled."""
_LAWS = """\
Every statement tried on the recordings' own tables. Proofs and counter-examples are in
[theory.md](theory.md); what is tried on a classifier is tried in both readings."""
_SETS = """\
Coarse is {1, 8, 16}, default {1, 2, 4, 8, 16}, fine {1, 2, 3, 4, 6, 8, 12, 16}. More budgets are more luck to
choose from, so the cross-fitted oracle stands beside."""

_GROUPS = """\
Recordings without levels are cut into fifths by one-sample accuracy. There the ends have no room to gain, so
that the middle gains most by definition: the statements are counted only where levels are recorded."""

PARTS = (
    Part(
        key="solve",
        title="Sections 3 and 4.4, appendix G.1, Figure 2: the price, the cost and the theorems",
        tables=("laws",),
        words=_LAWS,
    ),
    Part(
        key="main",
        title="Section 5.2, Table 1: main results",
        tables=("main", "main-held-out"),
        words=_MAIN,
    ),
    Part(key="pareto", title="Section 5.3, Figure 4: Pareto frontiers", tables=("pareto",)),
    Part(
        key="gap",
        title="Section 5.4, appendix F.3, Table 5: oracle gap and imitation",
        tables=("gap", "implied"),
        words=_GAP,
    ),
    Part(
        key="ablation",
        title="Section 5.5, appendix H.1, Tables 2 and 7, Figure 10: classifier ablation",
        tables=("ablation",),
        words=_THREE,
    ),
    Part(
        key="heatmap",
        title="Section 5.6, appendices F.4 and F.5, Figures 5 and 6: who gets how much",
        tables=("heat", "fifths"),
    ),
    Part(
        key="levels",
        title="Appendix F.1, Table 3: accuracy by level",
        tables=("levels",),
        words=_GROUPS,
    ),
    Part(key="labels", title="Appendix F.2, Table 4: oracle label distribution", tables=("labels",)),
    Part(key="archetypes", title="Appendix F.6, Figures 1 and 7: archetypes", tables=("archetypes",)),
    Part(key="search", title="Appendix G.2, Table 6, Figure 8: λ search", tables=("search",)),
    Part(key="mechanism", title="Appendix G.3, Figure 9: the price at work", tables=("mechanism",)),
    Part(
        key="efficiency",
        title="Appendix H.2, Figure 11: data efficiency",
        tables=("efficiency", "efficiency-cost"),
    ),
    Part(
        key="granularity",
        title="Appendix H.3, Figure 12: budget sets",
        tables=("granularity",),
        words=_SETS,
    ),
    Part(key="importance", title="Appendix H.4, Figure 13: feature importance", tables=("importance",)),
)
READ = """\
How to read it:

- **scored as the paper does**: on all problems, the 80% learned from included, by the paper's disjoint
  windows of samples. The paper doesn't say on which problems its tables are scored; what it shows comes out
  this way.
- **held-out**: the same classifiers on the other 20% of the problems, over all subsets of their samples. The
  oracle's labels are of all problems together in both, as in the paper.
- Statements about the oracle alone are told from the windows and, as a second reading, over all subsets.
- **agrees**: on four fifths of the recordings or more, in the second reading where there is one. **only
  in-sample**: on half of them or more scored as the paper does, and on half or fewer held-out. **doesn't**:
  on a fifth or fewer. Else **in part**.
- **only with the same question on both sides**: as *only in-sample*, where rows are split at random, so that
  none is judged that was learned from, but most questions stand on both sides at another B.
- When a statement is taken to hold stands beside it (*Holds where*). These thresholds are ours: the paper's
  own number where it has one, else what its words would bear. They were chosen with our numbers in sight.
- Nothing here is a fit to the paper's data: other models, other questions. Agreement is of patterns. Figure
  3, the pipeline, states nothing to be checked."""
