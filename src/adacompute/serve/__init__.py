"""The gateway: an OpenAI-compatible server in front of one upstream that keeps its average cost on target.

It knows nothing of how samples are collected offline or how policies are evaluated.

A request for a chat completion passes through these rooms, in this order:

- `http`: the client's connection (uvicorn's) with limits on slow clients; routes, keys, errors (starlette);
- `routes`: the endpoint, and the `Gateway` that all requests share;
- `messages`: the checked `ChatRequest`, and its `Route`: policy, budget, mode and deadline;
- `pricing`: the policy that decides, and the price that it decides at;
- `voting`: waves of samples until the policy stops, if there is anything to vote on;
- `spending`: the ledger, and the caps;
- `messages` again: the outcome, and the completion, stream or error that the client gets;
- `watching`: what is kept of it afterwards.

`routes.lifespan` opens all of these from the settings; `http.asgi` is the gateway as an application to be
mounted, and `ask` uses all this from `routes.gateway` on as a function call, without a server.
"""
