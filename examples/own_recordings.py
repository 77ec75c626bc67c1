"""From questions of your own to a verdict: record samples, and see whether adaptive sampling pays on them."""

import os
import tempfile
from pathlib import Path

import adacompute as ac
from adacompute.evaluate import judge_pool

ENDPOINT = os.environ.get("ENDPOINT", "http://127.0.0.1:8081/v1")
MODEL = os.environ.get("MODEL", "SmolLM2-135M-Instruct-Q4_1")
PROBLEMS = int(os.environ.get("PROBLEMS", "40"))  # in earnest: some hundreds, 16 samples each or more

problems = ac.read_problems("facts", limit=PROBLEMS).problems  # or a file of yours: .jsonl, .csv, .parquet
asking = ac.Asking(
    model=MODEL,
    template=ac.Template.named("answer-line"),
    sampling={"temperature": 0.7, "max_tokens": 24},
)
plan = ac.SourcePlan(endpoint=ac.Endpoint(url=ENDPOINT), asking=asking, samples=8)
with (
    tempfile.TemporaryDirectory() as folder,
    ac.open_pool(Path(folder, "pool.sqlite"), create=True) as pool,
):
    collected = ac.collect(problems, pool, plan)  # run again, it draws what is missing
    print(f"{collected.stored} samples in the pool")
    print(judge_pool(pool).sentence)
    policy = ac.StoppingPolicy(longest=8).fit(pool)
    price = ac.calibrate(policy, pool, budget=2.0)
    result = ac.replay(policy, pool, price=price)
    print(f"at {result.cost:.2f} samples on average, right: {result.accuracy.mean:.1%}")
