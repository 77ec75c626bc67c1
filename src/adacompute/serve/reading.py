"""Response -> Sample with its answer, without holding the event loop. Knows nothing of votes or requests."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from adacompute.answers import Task, extract_answer
from adacompute.answers.apart import extract_apart
from adacompute.endpoint import Response
from adacompute.records import Sample

__all__ = ["read", "read_waiting"]

# Characters that are read here: a hostile text takes up to 1 µs a character, an ordinary one a fourth of it,
# while a process apart costs half a millisecond to ask
_HERE = 2_000
_THREADS = 2  # that wait for a process apart

_waiting: tuple[int, ThreadPoolExecutor] | None = None  # with the process it was made in


async def read(response: Response, task: Task) -> Sample:
    """The response as a sample, with its answer; one that takes too long to read abstains."""
    if _is_cheap(response.text, task):
        return read_waiting(response, task)
    return await asyncio.get_running_loop().run_in_executor(_executor(), read_waiting, response, task)


def read_waiting(response: Response, task: Task) -> Sample:
    """As `read`, for a thread that may wait."""
    sample = response.sample()
    text = sample.text or ""  # as it can be stored
    extract = extract_answer if _is_cheap(text, task) else extract_apart
    answer = extract(text, task, finished=sample.finished is not False)
    if answer is None:  # said so, lest a pool read the text once more
        return replace(sample, extra={**sample.extra, "answer": None})
    return replace(sample, answer=answer)


def _is_cheap(text: str, task: Task) -> bool:
    own = not isinstance(task.extract, str) or task.extract.startswith("regex:")
    return len(text) <= _HERE and not own  # an operator's own pattern may take for ever on any text


def _executor() -> ThreadPoolExecutor:
    """Threads of our own, so that slow texts don't hold up what else the event loop's own threads do."""
    global _waiting
    if _waiting is None or _waiting[0] != os.getpid():
        _waiting = (os.getpid(), ThreadPoolExecutor(_THREADS, thread_name_prefix="adacompute-reading"))
    return _waiting[1]
