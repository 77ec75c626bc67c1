"""The engine that draws by Ray's processors: vLLM on the cluster's workers. Knows nothing of plans."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from adacompute.collect import Asking
from adacompute.collect.engine import Drawer
from adacompute.collect.purse import Purse
from adacompute.collect.session import heeding
from adacompute.errors import ScaleError
from adacompute.pool import Pool
from adacompute.scale.batch.processor import CONCURRENT, check_vllm, http_config, vllm_config
from adacompute.scale.batch.waves import Waves
from adacompute.scale.cluster import cluster

__all__ = ["HttpEngine", "VllmEngine"]

_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size")  # options of vLLM: GPUs an engine, multiplied


class _Processed:
    """What both have in common: Ray from the first draw on, then waves through a processor."""

    __slots__ = ()

    @property
    def width(self) -> int:
        """Samples at the same time, at most."""
        raise NotImplementedError

    def config(self, there: int) -> Any:  # noqa: ANN401 - Ray's
        """The processor's configuration, where so many processors are."""
        raise NotImplementedError

    @asynccontextmanager
    async def drawing(
        self,
        pool: Pool,
        *,
        asking: Asking,
        purse: Purse,
        told: Callable[[Drawer], None],
        signals: Sequence[signal.Signals] = (),
    ) -> AsyncIterator[Drawer]:
        """Waves; on leaving, all that came is stored, and the processor is gone."""
        with ExitStack() as held:
            waves = Waves(
                pool,
                asking=asking,
                purse=purse,
                told=told,
                config=lambda: self.config(held.enter_context(cluster())),
                width=self.width,
            )
            try:
                async with heeding(signals, waves, told=lambda: told(waves)):
                    yield waves
            except BaseException:
                await asyncio.shield(waves.close(at_once=True))
                raise
            await waves.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmEngine(_Processed):
    """Draws from a model that vLLM runs on the cluster's workers with a GPU: `collect(endpoint=…)`.

    The model is loaded once, and stays for all waves. EngineUnavailable where vLLM isn't installed.
    """

    model: str  # a folder that all workers see, or a name that they can load
    workers: int | None = None  # engines; None: as many as the cluster's GPUs allow
    options: Mapping[str, Any] = field(default_factory=dict)  # vLLM's own, e.g. tensor_parallel_size

    def __post_init__(self) -> None:
        check_vllm()
        for name in _PARALLEL:
            if type(value := self.options.get(name, 1)) is not int or value < 1:
                raise ScaleError(
                    f"vLLM's option {name} {value!r} can't be used; give a whole number from 1 up"
                )

    @property
    def width(self) -> int:
        """Samples at the same time, at most."""
        return CONCURRENT * (self.workers or 1)

    def config(self, there: int) -> Any:  # noqa: ANN401, ARG002 - Ray's
        """So many engines."""
        return vllm_config(self.model, engines=self.workers or self._engines(), options=self.options)

    def _engines(self) -> int:
        import ray

        each = 1
        for name in _PARALLEL:
            each *= self.options.get(name, 1)
        resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
        return max(1, int(resources.get("GPU", 0)) // each)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpEngine(_Processed):
    """The same waves, from a chat completions endpoint without a key: Ray's own requests, not our client's.

    It shows on any machine what runs with vLLM on one with a GPU. For endpoints use `RayEngine`, which knows
    rates, retries, money and keys.
    """

    url: str  # with /v1
    workers: int = 1
    width: int = 8

    def config(self, there: int) -> Any:  # noqa: ANN401, ARG002 - Ray's
        """So many workers."""
        return http_config(f"{self.url.rstrip('/')}/chat/completions", workers=self.workers)
