"""The gateway: an OpenAI-compatible server in front of one upstream that keeps its average cost on target.

It knows nothing of how samples are collected offline or how policies are evaluated.

A request for a chat completion passes through these files, in this order:

- `server` (uvicorn's) and `client_connection`: the client's connection, with limits on slow clients;
- `app`: routes, keys and errors (starlette);
- `chat`: the endpoint, and the `Gateway` that all requests share;
- `request_parser`: the checked `ChatRequest`, and its `Route`: policy, budget, mode and deadline;
- `policy_registry` and `pacer`: the policy that decides, and the price that it decides at;
- `sample_loop`: waves of samples until the policy stops, with `ledger` and `local_ledger` (or `fleet`) for
  the caps and `vote_eligibility` for whether there is anything to vote on;
- `reply`: the outcome, and the completion, stream or error that the client gets;
- `observability`, `recorder` and `logs`: what is kept of it afterwards; `telemetry`: what OpenTelemetry gets.

`lifespan` opens all of these from the settings; `asgi` is the gateway as an application to be mounted,
and `asker` uses all this from `chat` on as a function call, without a server.
"""
