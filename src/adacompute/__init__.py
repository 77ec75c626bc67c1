"""Vote over LLM samples within an average budget, spent where it helps, and measure the gain.

Importing the package imports nothing else of it. A public name is imported from its module when it is first
used (PEP 562), so that a program, and `adacompute --version`, load only what they need.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; `_MODULES` says the same to the interpreter
    from adacompute.answers import (
        Tally,
        Task,
        Vote,
        VoteWeights,
        extract_answer,
        read_answers,
        same_answer,
        vote,
    )
    from adacompute.client import Endpoint, RateLimits
    from adacompute.client.local import local_model
    from adacompute.config import AnswersConfig, Config, EndpointConfig, ServeConfig, VerifierConfig
    from adacompute.errors import AdacomputeError
    from adacompute.evaluate import Evaluation, evaluate
    from adacompute.policies import (
        ClassifierPolicy,
        CurvePolicy,
        Draw,
        MenuPolicy,
        Policy,
        StoppingPolicy,
        load_policy,
    )
    from adacompute.pool import (
        Ballots,
        Menu,
        Mode,
        Pool,
        bundled,
        bundled_names,
        export_file,
        import_file,
        join_pools,
        open_pool,
    )
    from adacompute.problems import Template, read_problems, read_samples
    from adacompute.records import AccuracyTable, Budget, Failure, Problem, Recorded, Sample, TokenPrices
    from adacompute.replay import Replayed, calibrate, replay
    from adacompute.sampling import Answers, Asking, Collected, SourcePlan, answer, collect, write_answers
    from adacompute.score import Summary, halves, score, summarise
    from adacompute.serve.ask.asker import Asker, ask
    from adacompute.serve.ask.prompt_engine import Reply
    from adacompute.serve.http.asgi import gateway
    from adacompute.solve import Allocation, Cap, Frontier, frontier, solve

__version__ = "0.1.0"

__all__ = [
    "AccuracyTable",
    "AdacomputeError",
    "Allocation",
    "Answers",
    "AnswersConfig",
    "Asker",
    "Asking",
    "Ballots",
    "Budget",
    "Cap",
    "ClassifierPolicy",
    "Collected",
    "Config",
    "CurvePolicy",
    "Draw",
    "Endpoint",
    "EndpointConfig",
    "Evaluation",
    "Failure",
    "Frontier",
    "Menu",
    "MenuPolicy",
    "Mode",
    "Policy",
    "Pool",
    "Problem",
    "RateLimits",
    "Recorded",
    "Replayed",
    "Reply",
    "Sample",
    "ServeConfig",
    "SourcePlan",
    "StoppingPolicy",
    "Summary",
    "Tally",
    "Task",
    "Template",
    "TokenPrices",
    "VerifierConfig",
    "Vote",
    "VoteWeights",
    "__version__",
    "answer",
    "ask",
    "bundled",
    "bundled_names",
    "calibrate",
    "collect",
    "evaluate",
    "export_file",
    "extract_answer",
    "frontier",
    "gateway",
    "halves",
    "import_file",
    "join_pools",
    "load_policy",
    "local_model",
    "open_pool",
    "read_answers",
    "read_problems",
    "read_samples",
    "replay",
    "same_answer",
    "score",
    "solve",
    "summarise",
    "vote",
    "write_answers",
]

_MODULES = {  # the public names of each module
    "adacompute.answers": (
        "Tally",
        "Task",
        "Vote",
        "VoteWeights",
        "extract_answer",
        "read_answers",
        "same_answer",
        "vote",
    ),
    "adacompute.client": ("Endpoint", "RateLimits"),
    "adacompute.client.local": ("local_model",),
    "adacompute.config": ("AnswersConfig", "Config", "EndpointConfig", "ServeConfig", "VerifierConfig"),
    "adacompute.errors": ("AdacomputeError",),
    "adacompute.evaluate": ("Evaluation", "evaluate"),
    "adacompute.policies": (
        "ClassifierPolicy",
        "CurvePolicy",
        "Draw",
        "MenuPolicy",
        "Policy",
        "StoppingPolicy",
        "load_policy",
    ),
    "adacompute.pool": (
        "Ballots",
        "Menu",
        "Mode",
        "Pool",
        "bundled",
        "bundled_names",
        "export_file",
        "import_file",
        "join_pools",
        "open_pool",
    ),
    "adacompute.problems": ("Template", "read_problems", "read_samples"),
    "adacompute.records": (
        "AccuracyTable",
        "Budget",
        "Failure",
        "Problem",
        "Recorded",
        "Sample",
        "TokenPrices",
    ),
    "adacompute.replay": ("Replayed", "calibrate", "replay"),
    "adacompute.sampling": (
        "Answers",
        "Asking",
        "Collected",
        "SourcePlan",
        "answer",
        "collect",
        "write_answers",
    ),
    "adacompute.serve.ask.asker": ("Asker", "ask"),
    "adacompute.serve.ask.prompt_engine": ("Reply",),
    "adacompute.score": ("Summary", "halves", "score", "summarise"),
    "adacompute.serve.http.asgi": ("gateway",),
    "adacompute.solve": ("Allocation", "Cap", "Frontier", "frontier", "solve"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

if not TYPE_CHECKING:  # a type checker would take any name for one that is there

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever has that name
        """Import a public name when it is first used."""
        if name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """The package itself: `adacompute.solve` stays the function where the subpackage `solve` is imported.

    Importing a subpackage binds its name in the package. Four of them (evaluate, replay, score, solve) have
    the name of a public function, which has to win.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in _HOMES):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
