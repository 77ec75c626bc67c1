"""The gateway: an OpenAI-compatible server in front of an upstream; keeps the average cost on budget.

A chat completion request passes through these folders in order:

- `http`: the client's connection (uvicorn's, with limits on slow clients), routing and errors;
- `routes`: the endpoint, and the `Gateway` shared by all requests;
- `messages`: `ChatRequest`, the validated request, and its `Route`: policy, budget, mode and deadline;
- `pricing`: the policy, and its current price;
- `voting`: waves of samples until the policy stops, or one sample if there is nothing to vote on;
- `spending`: the ledger, which records what was spent, and the caps on spending;
- `messages` again: the outcome, and the client's reply: a completion, stream or error;
- `watching`: metrics, logs and records.

`routes.lifespan` opens all of these from the settings. `http.asgi` is the gateway as an application to mount.
`ask` calls the `Gateway` as a function, without a server.
"""
