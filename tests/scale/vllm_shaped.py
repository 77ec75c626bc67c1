"""Stages that take and give rows as Ray's stages for vLLM do, without a model: for machines without a GPU.

What they give is `vLLMOutputData` of ray.llm, field by field, with token ids as keys of log-probabilities.
"""

from collections.abc import AsyncIterator
from typing import Any


def stages() -> list[Any]:
    """One for the chat template, one for the engine; seed 9 is one that the engine can't draw."""
    import ray
    from ray.llm._internal.batch.stages.base import StatefulStage, StatefulStageUDF

    class Template(StatefulStageUDF):  # in here, so that it travels to workers by value
        async def udf(self, rows: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
            for row in rows:
                messages = row["messages"].tolist() if hasattr(row["messages"], "tolist") else row["messages"]
                prompt = "".join(f"<{one['role']}>{one['content']}" for one in messages)
                yield {self.IDX_IN_BATCH_COLUMN: row[self.IDX_IN_BATCH_COLUMN], "prompt": prompt}

    class Drawn(StatefulStageUDF):
        async def udf(self, rows: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
            for row in rows:
                seed, failed = row["sampling_params"]["seed"], row["sampling_params"]["seed"] == 9
                each = [{seed: {"logprob": -0.5, "rank": 1}, 1000 + seed: {"logprob": -1.5, "rank": 2}}]
                yield {
                    self.IDX_IN_BATCH_COLUMN: row[self.IDX_IN_BATCH_COLUMN],
                    "prompt": row.pop("prompt"),
                    "prompt_token_ids": None if failed else [1, 2, 3],
                    "num_input_tokens": 0 if failed else 3,
                    "generated_tokens": [] if failed else [seed],
                    "generated_text": "" if failed else f"Answer: {seed}",
                    "num_generated_tokens": 0 if failed else 1,
                    "embeddings": None,
                    "metrics": None,
                    "logprobs": None if failed else each,
                    "prompt_logprobs": None,
                    "request_id": -1 if failed else seed,
                    "batch_uuid": "0",
                    "time_taken_llm": -1 if failed else 0.25,
                    "params": "",
                    "__inference_error__": "ValueError: no room" if failed else "",
                }

    class TemplateStage(StatefulStage):
        fn: type[StatefulStageUDF] = Template

        def get_required_input_keys(self) -> dict[str, str]:
            return {"messages": "as ChatTemplateStage wants them"}

    class DrawnStage(StatefulStage):
        fn: type[StatefulStageUDF] = Drawn

        def get_required_input_keys(self) -> dict[str, str]:
            return {"prompt": "as vLLMEngineStage wants it", "sampling_params": "likewise"}

    how = {"compute": ray.data.ActorPoolStrategy(min_size=1, max_size=1), "num_cpus": 0.5}
    return [
        stage(fn_constructor_kwargs={}, map_batches_kwargs={"zero_copy_batch": True, **how})
        for stage in (TemplateStage, DrawnStage)
    ]
