"""The gateway: an OpenAI-compatible server in front of one upstream that keeps its average cost on target.

It knows nothing about offline collection or evaluation.

A chat completion request passes through these folders in order:

- `http`: the client's connection (uvicorn's, with limits on slow clients); routes, keys, errors (starlette);
- `routes`: the endpoint, and the `Gateway` shared by all requests;
- `messages`: the validated `ChatRequest`, and its `Route`: policy, budget, mode and deadline;
- `pricing`: the policy, and its current price;
- `voting`: waves of samples until the policy stops, if there is anything to vote on;
- `spending`: the ledger, which records what was spent, and the caps, which limit it;
- `messages` again: the outcome, and the client's completion, stream or error;
- `watching`: metrics, logs and records.

`routes.lifespan` opens all of these from the settings. `http.asgi` is the gateway as an application to mount,
and `ask` uses the `Gateway` and everything that it calls as a function call, without a server.
"""
