"""The client against llama.cpp's own server: `n` up to its slots, and usage that counts one choice."""

from client_runs import CountedClient, endpoint

from adacompute.client import Client, DrawSuccess, Retries, Timeouts
from adacompute.client.local import LocalModel

SLOTS = 8  # of the fixture's server
PATIENT = {
    "timeouts": Timeouts(connect=60.0, first_byte=120.0, total=240.0),
    "retries": Retries(deadline=300.0),
}
BODY = {
    "messages": [{"role": "user", "content": "Name a colour."}],
    "temperature": 1.0,
    "max_tokens": 6,
    "logprobs": True,
    "top_logprobs": 2,
    "seed": 1,
}


async def test_c05_the_real_server_is_understood(local_model: LocalModel):
    """It refuses n above its slots, naming them; it counts one choice; it lists the end token."""
    async with CountedClient(endpoint(local_model.url, **PATIENT)) as client:
        assert len(await client.models()) == 1
        events = [event async for event in client.draw(BODY, SLOTS + 2)]
        assert all(isinstance(event, DrawSuccess) for event in events)
        responses = [response for event in events for response in event.responses]
        assert len(responses) == SLOTS + 2
        assert client.quirks.max_choices == SLOTS
        assert client.quirks.logprobs is True
        assert client.quirks.get(None).per_choice is True
        assert client.totals.kinds == {"n-limit": 1, "ok": 2}
        for response in responses:
            assert response.tokens is not None
            assert 1 <= response.tokens <= 7
            assert response.logprob is not None
            assert response.entropy is not None
        counted = sum(response.tokens or 0 for response in responses)
        assert abs(client.totals.completion_tokens - counted) <= len(responses)
        assert len({response.text for response in responses}) > 1


async def test_a_stream_of_the_real_server_says_what_its_plain_reply_says(local_model: LocalModel):
    body = {**BODY, "temperature": 0.0, "max_tokens": 12}
    async with Client(endpoint(local_model.url, **PATIENT)) as client:
        plain = (await client.call(body)).responses[0]
        async with client.stream(body) as stream:
            events = [event async for event in stream]
        assert events[-1].data == b"[DONE]"
        assert len(events) > 5
        assert stream.responses[0].text == plain.text
        assert stream.responses[0].finish_reason == plain.finish_reason
        assert stream.responses[0].logprob is not None
        assert stream.call is not None
        assert stream.call.paid == "yes"
        assert stream.call.completion_tokens == plain.tokens
        assert not stream.call.estimated  # usage came
        async with client.stream({**body, "max_tokens": 500}) as stream:
            await anext(stream)
        assert stream.call is not None
        assert (stream.call.kind, stream.call.paid) == ("cancelled", "maybe")
