"""Ray's processors: vLLM on workers with a GPU, or requests over HTTP. Knows nothing of problems or pools.

Both are built in one way and fed with the same rows, so what is tested with the one holds for the other.
"""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from adacompute.errors import EngineUnavailable, ScaleError
from adacompute.scale.batch.rows import chat_payload, chat_told, vllm_request, vllm_told

__all__ = ["CONCURRENT", "check_vllm", "http_config", "processor_of", "vllm_config"]

CONCURRENT = 256  # samples at the same time in one engine

Shape = Callable[[Mapping[str, Any]], dict[str, Any]]


def check_vllm() -> None:
    """EngineUnavailable where there is no vLLM."""
    for name in ("ray", "vllm"):
        if find_spec(name) is None:
            raise _lacking(ImportError(name=name))


def _lacking(exc: ImportError) -> EngineUnavailable:
    return EngineUnavailable(
        f"--vllm: {exc.name or exc} is not installed; pip install 'ray[llm]' here and on the workers, or "
        "give the --endpoint of a server"
    )


def vllm_config(model: str, *, engines: int, options: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - Ray's
    """The configuration of so many engines; `options` are vLLM's own, e.g. tensor_parallel_size."""
    try:
        from ray.data.llm import vLLMEngineProcessorConfig

        return vLLMEngineProcessorConfig(
            model_source=model,
            # samples of one problem share its prompt, which is worked through once
            engine_kwargs={"enable_prefix_caching": True, "disable_log_stats": True, **(options or {})},
            concurrency=engines,
            batch_size=1,  # a larger one would wait for rows of the next wave
            max_concurrent_batches=CONCURRENT,
            should_continue_on_error=True,  # a row that fails is a failure, and the others go on
            detokenize_stage=False,  # the engine does
            log_engine_metrics=False,
        )
    except ImportError as exc:
        raise _lacking(exc) from exc
    except ValueError as exc:  # pydantic's
        said = " ".join(str(exc).split())[:300]
        raise ScaleError(f"--vllm {model!r}: Ray can't take these settings ({said}); change them") from exc


def http_config(url: str, *, workers: int) -> Any:  # noqa: ANN401 - Ray's
    """The configuration of so many workers that ask a chat completions endpoint."""
    from ray.data.llm import HttpRequestProcessorConfig

    return HttpRequestProcessorConfig(url=url, concurrency=workers, batch_size=1)


def processor_of(config: Any) -> Any:  # noqa: ANN401 - Ray's
    """The processor: rows in, what came of them out."""
    from ray.data.llm import build_processor

    before, after = _SHAPES[type(config).__name__]
    try:
        return build_processor(config, preprocess=before, postprocess=after)
    except ImportError as exc:
        raise _lacking(exc) from exc


_SHAPES: dict[str, tuple[Shape, Shape]] = {
    "vLLMEngineProcessorConfig": (vllm_request, vllm_told),
    "HttpRequestProcessorConfig": (chat_payload, chat_told),
}
