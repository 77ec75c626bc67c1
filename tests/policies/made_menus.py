"""Made-up samples of several modes, for tests of policies over a menu."""

import numpy as np

from adacompute.pool import Ballots


def make_menu_ballots(
    accuracies: dict[str, float],
    *,
    problems: int = 40,
    samples: int = 12,
    seed: int = 0,
    logprobs: bool = True,
    graded: bool = True,
) -> Ballots:
    """Problems of different difficulty; a mode is right as often as its accuracy says, on average.

    Class 0 is right; wrong answers are spread over three classes. Sure samples are right more often.
    """
    rng = np.random.default_rng(seed)
    difficulty = rng.normal(0.0, 1.5, problems)
    parts = []
    for accuracy in accuracies.values():
        sureness = rng.normal(0.0, 1.0, (problems, samples))
        odds = np.log(accuracy / (1 - accuracy)) - difficulty[:, None] + sureness
        right = rng.random((problems, samples)) < 1 / (1 + np.exp(-odds))
        wrong = 1 + np.minimum(rng.geometric(0.6, (problems, samples)) - 1, 2)
        classes = np.where(right, 0, wrong).astype(np.int32)
        classes[rng.random((problems, samples)) < 0.05] = -1
        tokens = np.full((problems, samples), 10.0)
        parts.append(
            Ballots(
                ids=tuple(f"p{k}" for k in range(problems)),
                prompts=tuple(f"question {k} of {problems}" for k in range(problems)),
                subjects=(None,) * problems,
                levels=(None,) * problems,
                gold_known=np.full(problems, graded),
                classes=classes,
                correct=(classes == 0).astype(np.float32)
                if graded
                else np.full(classes.shape, np.nan, np.float32),
                tokens=tokens,
                logprob=-np.exp(-0.5 * sureness) * tokens / 4 if logprobs else np.full(tokens.shape, np.nan),
                entropy=np.full(tokens.shape, np.nan),
            )
        )
    return Ballots.join(dict(zip(accuracies, parts, strict=True)))
