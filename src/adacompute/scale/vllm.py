"""Samples drawn by Ray Data's LLM processor: vLLM on the cluster's GPUs.

One dataset lasts for the whole run and is fed row by row, because a model takes minutes to load. A row is
one sample. At most `width` samples are in the dataset at a time: those, and what is not yet on the disk,
are what `kill -9` can lose.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import orjson

from adacompute.answers import Task
from adacompute.answers.equal import DEFAULT_TASK
from adacompute.answers.signals import NO_TOKENS, summarise_tokens
from adacompute.client.client import step_seed
from adacompute.client.response_parser import (
    Response,
    one_line,
    read_token_cap,
)
from adacompute.errors import EngineUnavailable, ScaleError
from adacompute.pool import DrawnSamples, Pool
from adacompute.records import Call, Failure, Sample, Signals
from adacompute.sampling import Asking
from adacompute.sampling.plan import CostBudget, SampleRun
from adacompute.sampling.workers import PoolWriter, Sampler, read_responses
from adacompute.scale.cluster import cluster, raise_worker_error
from adacompute.scale.collect import SamplingCounts

ProcessorRow = Mapping[str, Any]
SampleKey = tuple[str, int]  # problem id, index
ERROR_COLUMN = "__inference_error__"  # Ray's column with the reason why a row failed
SAMPLES_AN_ENGINE = 256  # samples at the same time in one engine
_MAX_FAILING_ROWS = 8  # problems that fail without a success in between: then the workers are at fault
_END_SECONDS = 30.0  # seconds for a dataset to end
_PARALLEL_OPTIONS = ("tensor_parallel_size", "pipeline_parallel_size")  # their product: GPUs an engine needs


class RowFeed:
    """Rows in a fixed order, kept in a Ray actor for whoever reads them.

    A task that Ray runs again reads the same rows.
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._ended = False
        self._more = asyncio.Condition()

    async def put(self, rows: Sequence[dict[str, Any]]) -> None:
        """More rows."""
        async with self._more:
            self._rows.extend(rows)
            self._more.notify_all()

    async def end(self) -> None:
        """No more rows."""
        async with self._more:
            self._ended = True
            self._more.notify_all()

    async def after(self, start: int) -> list[dict[str, Any]]:
        """The rows from a position on, as soon as there are some; none: that was all."""
        async with self._more:
            await self._more.wait_for(lambda: self._ended or len(self._rows) > start)
            return self._rows[start:]


def build_dataset(feed: Any) -> Any:  # noqa: ANN401 - Ray's
    """A dataset of the rows of a feed, each a block of its own, so that each moves on at once."""
    from ray.data import DataContext, Datasource, ReadTask, read_datasource
    from ray.data.block import BlockMetadata

    class Source(Datasource):
        def estimate_inmemory_data_size(self) -> int | None:
            return None

        def get_read_tasks(self, *_: object, **__: object) -> list[ReadTask]:
            unknown = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
            return [ReadTask(lambda: _read_blocks(feed), unknown)]

    context = DataContext.get_current().copy()
    context.target_max_block_size = 1  # bytes: else rows wait until a block is full
    context.target_min_block_size = 1
    with DataContext.current(context):
        source: Any = Source  # it has no types
        return read_datasource(source(), override_num_blocks=1, num_cpus=0)


def _read_blocks(feed: Any) -> Iterator[Any]:  # noqa: ANN401 - Ray's
    import pyarrow as pa
    import ray

    start = 0
    while rows := ray.get(feed.after.remote(start)):
        start += len(rows)
        for row in rows:
            yield pa.Table.from_pylist([row])


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    """The result of a row, as it is sent back."""

    sample: dict[str, Any] | None = None
    seconds: float = 0.0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    error: str | None = None

    def to_row(self, source: ProcessorRow) -> dict[str, Any]:
        encoded = orjson.dumps(asdict(self)).decode()
        return {"problem": source["problem"], "index": int(source["index"]), "result": encoded}


def build_rows(
    runs: Sequence[SampleRun], asking: Asking, task: Task = DEFAULT_TASK
) -> Iterator[dict[str, Any]]:
    """A row for each sample of some runs, in order, with the request for it and how its answer is read."""
    for run in runs:
        body = asking.body(run.problem)
        for index in range(run.first, run.first + run.count):
            encoded = orjson.dumps(dict(step_seed(body, index))).decode()
            yield {
                "problem": run.problem.id,
                "index": index,
                "request": encoded,
                "extract": task.extract,
            }


def build_vllm_request(row: ProcessorRow) -> dict[str, Any]:
    """A row as vLLM's stages expect it: messages for the chat template, parameters for the engine."""
    body = orjson.loads(row["request"])
    messages, logprobs = body.pop("messages"), body.pop("logprobs", None)
    top = body.pop("top_logprobs", 0)
    body.pop("model")
    if "max_completion_tokens" in body:
        body["max_tokens"] = body.pop("max_completion_tokens")
    if logprobs:
        body["logprobs"] = top  # vLLM's 0: that of the token itself
    return {"messages": messages, "sampling_params": body}


def parse_vllm_row(row: ProcessorRow) -> dict[str, Any]:
    """Turns a row with vLLM's output into its result.

    Ray doesn't pass on why a response ended: one that has all the tokens it may have counts as cut off.
    """
    body = orjson.loads(row["request"])
    cap, count = read_token_cap(body), int(row["num_generated_tokens"])
    tokens = _read_vllm_tokens(row, alternatives=bool(body.get("top_logprobs")))
    summary = NO_TOKENS if tokens is None else summarise_tokens(tokens)
    response = Response(
        text=row["generated_text"],
        finish_reason=None if cap is None else "length" if count >= cap else "stop",
        tokens=count,
        logprob=summary.logprob,
        entropy=summary.entropy,
        signals=summary.signals,
        logprobs=None if tokens is None else {"content": tokens},
    )
    seconds = max(0.0, float(row.get("time_taken_llm") or 0.0))
    return replace(
        build_result(response, row, prompt_tokens=int(row["num_input_tokens"]), completion_tokens=count),
        seconds=seconds,
    ).to_row(row)


def build_record(row: ProcessorRow) -> DrawnSamples:
    """The record of a row that came back, with or without a sample, as a pool stores it."""
    index, error = int(row["index"]), row.get(ERROR_COLUMN) or None
    result = RowResult(error=one_line(str(error))) if error else RowResult(**orjson.loads(row["result"]))
    at = time.time()
    call = Call(
        at=at - result.seconds,
        seconds=result.seconds,
        asked=1,
        got=int(result.sample is not None),
        kind="ok" if result.sample is not None else "worker",
        paid="yes" if result.sample is not None else "no",
        prompt_tokens=result.prompt_tokens,
        completion_tokens=result.completion_tokens,
    )
    if result.sample is None:
        failure = Failure(index=index, kind="worker", message=result.error, at=at)
        return DrawnSamples(row["problem"], (), [failure], [call])
    signals = result.sample.get("signals")
    sample = Sample(**result.sample | {"signals": None if signals is None else Signals(**signals)})
    return DrawnSamples(row["problem"], [(index, sample)], (), [call])


def build_result(
    response: Response, row: ProcessorRow, *, prompt_tokens: int | None, completion_tokens: int | None
) -> RowResult:
    task = Task(row.get("extract") or DEFAULT_TASK.extract)
    answer = None if response.signals is None else read_responses([response], "", task)[0]
    sample = response.to_sample(answer=answer)
    fields = {name: value for name, value in asdict(sample).items() if value is not None}
    return RowResult(sample=fields, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)


def _read_vllm_tokens(row: ProcessorRow, *, alternatives: bool) -> list[dict[str, Any]] | None:
    """vLLM's log-probabilities, by token and by id, in the shape of a chat completion's."""
    logprobs = to_plain(row.get("logprobs"))
    if not logprobs:
        return None
    tokens = []
    for id_, known in zip(to_plain(row["generated_tokens"]), logprobs, strict=False):
        # Arrow may have turned an id into text, and added empty entries for the ids of other tokens
        values = {str(key): value["logprob"] for key, value in known.items() if value is not None}
        texts = {str(key): value.get("decoded_token") for key, value in known.items() if value is not None}
        if str(id_) not in values:
            return None
        token: dict[str, Any] = {"logprob": values[str(id_)], "token": texts.get(str(id_))}
        if alternatives:
            token["top_logprobs"] = [{"logprob": value} for value in values.values()]
        tokens.append(token)
    return tokens or None


def to_plain(value: Any) -> Any:  # noqa: ANN401 - whatever Arrow made of JSON data
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return to_plain(value.tolist())
    return [to_plain(item) for item in value] if isinstance(value, list | tuple) else value


def check_vllm() -> None:
    """EngineUnavailable where there is no vLLM."""
    for name in ("ray", "vllm"):
        if find_spec(name) is None:
            raise _build_missing_error(ImportError(name=name))


def _build_missing_error(exc: ImportError) -> EngineUnavailable:
    return EngineUnavailable(
        f"--vllm: {exc.name or exc} is not installed; pip install 'ray[llm]' here and on the workers, or "
        "give the --endpoint of a server"
    )


def build_vllm_config(model: str, *, engines: int, options: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - Ray's
    """The configuration of so many engines; `options` are vLLM's own, e.g. tensor_parallel_size."""
    try:
        from ray.data.llm import vLLMEngineProcessorConfig

        return vLLMEngineProcessorConfig(
            model_source=model,
            # samples of one problem share its prompt, which is worked through once
            engine_kwargs={"enable_prefix_caching": True, "disable_log_stats": True, **(options or {})},
            concurrency=engines,
            batch_size=1,  # a larger one would wait for rows of the next wave
            max_concurrent_batches=SAMPLES_AN_ENGINE,
            should_continue_on_error=True,  # a row that fails doesn't stop the others
            detokenize_stage=False,  # the engine does
            log_engine_metrics=False,
        )
    except ImportError as exc:
        raise _build_missing_error(exc) from exc
    except ValueError as exc:  # pydantic's
        reason = " ".join(str(exc).split())[:300]
        raise ScaleError(f"--vllm {model!r}: Ray can't take these settings ({reason}); change them") from exc


def build_vllm_processor(config: Any) -> Any:  # noqa: ANN401 - Ray's
    """The processor, which turns rows into rows with results."""
    from ray.data.llm import build_processor

    try:
        return build_processor(config, preprocess=build_vllm_request, postprocess=parse_vllm_row)
    except ImportError as exc:
        raise _build_missing_error(exc) from exc


class ProcessorSampler(SamplingCounts):
    """A sampler: `draw` returns when its runs have been through the processor, and are in the pool."""

    def __init__(
        self,
        pool: Pool,
        *,
        asking: Asking,
        cost_budget: CostBudget,
        on_progress: Callable[[], None],
        processor: Callable[[], Any],
        width: int,
    ) -> None:
        super().__init__(cost_budget)
        self._asking = asking
        self._on_progress = on_progress
        self._processor = processor  # called when it is needed, because it starts Ray
        self._width = width
        self._loop = asyncio.get_running_loop()
        self._writer = PoolWriter(pool, model=asking.model, parameters=asking.parameters)
        self._in_flight: set[SampleKey] = set()  # samples that were sent and are not stored yet
        self._changed = asyncio.Event()
        self._error: BaseException | None = None
        self._feed: Any = None
        self._reader: threading.Thread | None = None

    async def draw(self, runs: Iterator[SampleRun]) -> None:
        """Draws all runs; once it is stopped, only what has been sent already."""
        rows = deque(build_rows(tuple(runs), self._asking, self._writer.task))
        if rows and self.stopped is None and self._feed is None:
            self._start()
        while True:
            if self.stopped is not None:
                rows.clear()
            if more := [rows.popleft() for _ in range(min(len(rows), self._width - len(self._in_flight)))]:
                self._in_flight |= {(row["problem"], row["index"]) for row in more}
                self._feed.put.remote(more)
            if not self._in_flight:
                return
            self._changed.clear()
            await self._changed.wait()
            if self._error is not None:
                raise_worker_error(self._error)

    async def close(self, *, at_once: bool = False) -> None:
        """Stores what has come, and ends the dataset, with its model."""
        if self._feed is not None:
            import ray

            self._feed.end.remote()
            if self._reader is not None and not at_once and not self._in_flight:
                await asyncio.to_thread(self._reader.join, _END_SECONDS)
            ray.kill(self._feed)
        await self._writer.close()

    def _start(self) -> None:
        import ray

        dataset = self._processor()
        actor_class: Any = ray.remote(num_cpus=0)(RowFeed)
        self._feed = actor_class.remote()
        results = dataset(build_dataset(self._feed))
        self._reader = threading.Thread(target=self._read_results, args=(results,), daemon=True)
        self._reader.start()

    def _read_results(self, results: Any) -> None:  # noqa: ANN401 - Ray's
        """Runs in a thread of its own, and passes results on as they come."""
        try:
            for block in results.iter_batches(batch_size=None, prefetch_batches=0, batch_format="pyarrow"):
                self._call_in_loop(self._handle_records, [build_record(row) for row in block.to_pylist()])
        except BaseException as exc:  # noqa: BLE001 - raised again where the wave is waited for
            self._call_in_loop(self._set_error, exc)

    def _call_in_loop(self, function: Callable[[Any], None], argument: object) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nobody waits any more
            self._loop.call_soon_threadsafe(function, argument)

    def _handle_records(self, records: list[DrawnSamples]) -> None:
        for record in records:
            if self._sample_keys(record) <= self._in_flight:  # else Ray ran a task twice
                self._writer.add(record).add_done_callback(partial(self._handle_stored, record))

    def _handle_stored(self, record: DrawnSamples, future: "asyncio.Future[DrawnSamples]") -> None:
        """Counts a record, now that it is stored."""
        if future.cancelled():
            return
        self._in_flight -= self._sample_keys(record)
        self._changed.set()
        if (error := future.exception()) is not None:
            self._set_error(error)
            return
        stored = future.result()
        self._calls += len(stored.calls)
        self.added += len(stored.samples)
        self._tokens += sum(sample.tokens or 0 for _, sample in stored.samples)
        if stored.samples:
            self._failing_problems.clear()
            self.logprobs = all(sample.logprob is not None for _, sample in stored.samples)
        elif record.problem_id is not None:
            self._record_failure(
                record.problem_id, f"{stored.failures[0].kind}: {stored.failures[0].message}"
            )
        self._on_progress()

    def _record_failure(self, problem: str, why: str) -> None:
        self._missing += 1
        self.errors["worker"] += 1
        self.failures[problem] = why
        self._failing_problems.add(problem)
        if len(self._failing_problems) >= _MAX_FAILING_ROWS:
            self.stop("endpoint", why)

    def _set_error(self, error: BaseException) -> None:
        self._error = self._error or error
        self._changed.set()

    @staticmethod
    def _sample_keys(record: DrawnSamples) -> set[SampleKey]:
        indexes = [index for index, _ in record.samples] + [failure.index for failure in record.failures]
        return {(record.problem_id or "", index) for index in indexes}


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmEngine:
    """Draws from a model that vLLM runs on the cluster's workers with a GPU: `SourcePlan(endpoint=…)`.

    The model is loaded once, and stays for all waves. EngineUnavailable where vLLM isn't installed.
    """

    model: str  # a folder that all workers see, or a name that they can load
    workers: int | None = None  # engines; None: as many as the cluster's GPUs allow
    options: Mapping[str, Any] = field(default_factory=dict)  # vLLM's own, e.g. tensor_parallel_size

    def __post_init__(self) -> None:
        check_vllm()
        for name in _PARALLEL_OPTIONS:
            if type(value := self.options.get(name, 1)) is not int or value < 1:
                raise ScaleError(
                    f"vLLM's option {name} {value!r} can't be used; give a whole number from 1 up"
                )

    @property
    def width(self) -> int:
        """Samples at the same time, at most."""
        return SAMPLES_AN_ENGINE * (self.workers or 1)

    def build_processor(self, processors: int) -> Any:  # noqa: ANN401, ARG002 - Ray's
        """The processor of the engines, for a cluster of so many processors."""
        engines = self.workers or self._count_engines()
        return build_vllm_processor(build_vllm_config(self.model, engines=engines, options=self.options))

    def _count_engines(self) -> int:
        import ray

        gpus = 1
        for name in _PARALLEL_OPTIONS:
            gpus *= self.options.get(name, 1)
        resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
        return max(1, int(resources.get("GPU", 0)) // gpus)

    @asynccontextmanager
    async def open_sampler(
        self,
        pool: Pool,
        *,
        asking: Asking,
        cost_budget: CostBudget,
        on_progress: Callable[[], None],
    ) -> AsyncIterator[Sampler]:
        """A sampler; on leaving, everything that came is stored, and the processor is gone."""
        with ExitStack() as stack:
            sampler = ProcessorSampler(
                pool,
                asking=asking,
                cost_budget=cost_budget,
                on_progress=on_progress,
                processor=lambda: self.build_processor(stack.enter_context(cluster())),
                width=self.width,
            )
            try:
                yield sampler
            except BaseException:
                await asyncio.shield(sampler.close(at_once=True))
                raise
            await sampler.close()
