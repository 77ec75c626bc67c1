"""The `Gateway` shared by all requests; it turns a request with its `Route` into a `RequestOutcome`.

Policies, kept in a registry, decide when to stop; pacers set prices; a ledger enforces spending caps. A
`SampleLoop` draws each request's samples. The `Reporter` passes ended requests to metrics, recorder and log.
"""

import asyncio
import logging
import os
import random
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from adacompute.client import ModelList
from adacompute.client.large_json import run_in_thread
from adacompute.config import EVERY_MODE, Config, KeyConfig, ServeConfig, average_budget
from adacompute.errors import EndpointError, Overloaded, ServeError, WeakVote
from adacompute.policies.quality import QualityCost
from adacompute.records import GUESSED_PROMPT, GUESSED_RESPONSE, Budget, BudgetUnit
from adacompute.serve.messages.reply import (
    CLIENT_GONE_STATUS,
    ModeUse,
    RequestOutcome,
    Usage,
    build_chunks,
    build_error,
    build_extra,
    build_usage,
    find_error_code,
)
from adacompute.serve.messages.request_parser import ChatRequest, Route, choose_route, list_max_budgets
from adacompute.serve.messages.stream import Delivery, StreamRelay, keep_alive
from adacompute.serve.pricing.pacer import (
    EARLY_REQUESTS,
    Average,
    MeanCosts,
    Pacer,
    PacerProtocol,
    Pacers,
    check_budget,
    choose_average,
)
from adacompute.serve.pricing.policy_registry import PolicyRegistry, ServedPolicy, settle_quality
from adacompute.serve.spending.ledger import NO_PROMPT_COST, Spend
from adacompute.serve.voting.event_queue import EventQueue
from adacompute.serve.voting.request_votes import STREAMED_REASON, TEXT_REASON, GatewayResources
from adacompute.serve.voting.sample_loop import SampleLoop
from adacompute.serve.watching.logs import ObserverGuard, Reporter
from adacompute.serve.watching.observability import Observability

if TYPE_CHECKING:
    from adacompute.serve.watching.telemetry import RequestSpan, Telemetry

_log = logging.getLogger("adacompute.serve")
_MAX_LISTED = 200  # maximum number of models offered by the playground
_TOKEN_BYTES = 4  # mean bytes per token of a prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRequest:
    """A request in flight."""

    id: str
    at: float  # arrival, in seconds since 1970
    started: float  # arrival, by the event loop's clock
    sampling: SampleLoop
    pacer: PacerProtocol | None  # sets the price; it is told this request's cost afterwards
    price: float | None  # the price at arrival; the price used differs from it slightly, at random
    delivery: Delivery  # how the request's stream is delivered
    span: "RequestSpan | None" = None


@dataclass(eq=False, kw_only=True)
class Gateway:
    """The state shared by all requests. Opened and closed by `lifespan.open_gateway`."""

    config: Config
    resources: GatewayResources
    model_list: ModelList
    policy_registry: PolicyRegistry
    pacers: Pacers
    keys: Sequence[KeyConfig]  # clients' keys; if empty, clients need no key
    observability: Observability
    reporter: Reporter
    # set if the settings give the budget as a quality, such as "as good as 8 samples", not as an amount
    quality_of_settings: QualityCost | None = None
    telemetry: "Telemetry | None" = None  # None if telemetry is disabled
    # makes a pacer whose price several gateways share through Redis; None if this gateway is alone
    make_fleet_pacer: Callable[..., PacerProtocol] | None = None
    # map: mode -> mean cost of its samples; "" -> mean cost of all modes' samples
    costs: defaultdict[str, MeanCosts] = field(default_factory=lambda: defaultdict(MeanCosts))
    explore: float = 0.0  # share of requests for which the maximum number of samples is drawn
    guard: ObserverGuard = field(default_factory=ObserverGuard)
    rng: random.Random = field(default_factory=random.Random)
    model: str = ""  # model for requests that name none: the operator's, or the upstream's only one
    ready: bool = False  # if False, refuses new requests but finishes those in flight
    under_way: int = 0
    # adds the other workers' numbers to this process's dashboard data; None if there are no other workers
    add_workers: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]] | None = None
    logs_failures: bool = True  # whether to log upstream failures
    has_warned_of_shortfall: bool = False
    # budget set by an operator until the next restart; "": the settings' budget applies
    patched_budget: str = ""
    # sends a budget set by an operator to all gateways that share it through Redis; None without Redis
    share_budget: Callable[[str], Awaitable[None]] | None = None
    # reloads the settings, and returns a log line for each change; None: they can't be reloaded
    reload_settings: Callable[[], list[str]] | None = None
    # ended requests that `learn` hasn't processed yet, and their outcomes
    unlearned: list[tuple[ActiveRequest, RequestOutcome]] = field(default_factory=list)

    @cached_property
    def settings(self) -> ServeConfig:
        """The gateway's settings with the current budget."""
        return self.config.serve

    @cached_property
    def budget(self) -> Budget:
        """The average cost per request that the gateway aims for; a request may have its own budget."""
        return average_budget(self.config)

    @property
    def average(self) -> Average:
        """Which requests must meet the budget on average: all, or only those that can be voted on."""
        return choose_average(self.settings.average, self.budget.unit)

    def set_budget(self, patched: str, **settings: float | str) -> None:
        """Changes the budget for new requests; an invalid one raises ConfigError and changes nothing.

        `patched` is a budget set by an operator through the API, or "" for the budget in the settings.
        `settings` are new values for the settings `budget` and `max_budget`.
        """
        serve = replace(self.config.serve, **settings)  # type: ignore[arg-type]
        config, quality = settle_quality(replace(self.config, serve=serve))
        if (config, patched) == (self.config, self.patched_budget):
            return
        serve = replace(config.serve, budget=patched) if patched else config.serve
        budget, registry = average_budget(replace(config, serve=serve)), self.policy_registry
        longest = registry.get(registry.default).policy.longest
        check_budget(budget, serve, longest=longest, modes=self.resources.modes)
        self.config, self.patched_budget, self.settings, self.budget = config, patched, serve, budget
        if "budget" in settings:
            self.quality_of_settings = quality
        self.has_warned_of_shortfall = False
        self.pacers.set_permanent([(name, budget.amount) for name in registry.names], budget.unit)
        self.observability.on_budget(budget)
        self.announce_policies()
        self.restore_prices({})

    def choose_route(
        self, request: ChatRequest, headers: Mapping[str, str], *, settings: ServeConfig, key: str
    ) -> Route:
        """Chooses the route of a request; raises RequestInvalid if a gateway option isn't possible here."""
        return choose_route(
            request,
            headers,
            settings=settings,
            budget=self.budget,
            key=key,
            policies=self.policy_registry.names,
            default=self.policy_registry.default,
            modes=self.resources.modes,
        )

    def begin(self, request: ChatRequest, route: Route, *, prefix: str = "chatcmpl-") -> ActiveRequest:
        """Chooses a request's policy and price; sends nothing yet. The reply's id begins with `prefix`."""
        if self.unlearned:  # first, so that this request's price depends on every request that has ended
            self.learn()
        served, explore = self.policy_registry.get(route.policy), self.explore
        pacer, price = self._find_price(served, request, route)
        dial = None if price is None else served.policy.spread_price(price, self.rng.random())
        span = None if self.telemetry is None else self.guard(self.telemetry.begin, request, route)
        sampling = SampleLoop(
            request,
            route,
            served=served,
            dial=dial,
            resources=self.resources,
            explore=explore > 0 and self.rng.random() < explore,
            tracer=None if span is None else lambda resends: self.guard(span.begin_attempt, resends),
        )
        longest = served.policy.longest
        if pacer is not None and (route.unit != "samples" or route.budget > longest):
            budget = Budget(route.budget, route.unit, self.config.endpoint.currency)
            if note := self.find_shortfall(budget) or self.costs[""].describe_surplus(budget, longest):
                sampling.notes.append(note)
        active = ActiveRequest(
            id=f"{prefix}{os.urandom(16).hex()}",
            at=time.time(),
            started=sampling.now,
            sampling=sampling,
            pacer=pacer,
            price=price,
            delivery=self._choose_delivery(sampling) if request.stream else "wait",
            span=span,
        )
        self.under_way += 1  # counts the request last, after everything that can fail
        self.observability.on_request_start()
        return active

    async def complete(self, active: ActiveRequest) -> RequestOutcome:
        """Serves a request, or raises EndpointError or ServeError. Cancelling ends its upstream calls."""
        try:
            await active.sampling.run()
            self._check_vote(active.sampling)
        except BaseException as exc:
            self._finish(active, exc)
            raise
        return self._finish(active)

    @contextmanager
    def _finishing(self, active: ActiveRequest) -> Iterator[None]:
        """Ends the request if the code inside the `with` block fails."""
        try:
            yield
        except BaseException as exc:
            self._finish(active, exc)
            raise

    def stream(self, active: ActiveRequest) -> AsyncGenerator[bytes, None]:
        """Yields the events of a request's stream. Errors before the first event are raised."""
        if active.sampling.request.options.events:
            return self._stream_events(active)
        if active.delivery == "wait":
            return self._stream_winner(active)
        return self._stream_when_clear(active) if active.delivery == "hold" else self._stream_sample(active)

    async def _stream_winner(self, active: ActiveRequest) -> AsyncGenerator[bytes, None]:
        """Streams the winner once it is known; until then, comments keep the connection alive."""
        with self._finishing(active):
            async with aclosing(keep_alive(self._hold_vote(active.sampling))) as comments:
                async for comment in comments:
                    yield comment
        async for event in self._send_winner(active.sampling.request, self._finish(active)):
            yield event

    async def _stream_events(self, active: ActiveRequest) -> AsyncGenerator[bytes, None]:
        """Streams samples and decisions as they happen, then the winner."""
        sampling = active.sampling
        events = EventQueue(sampling, self.resources, name=active.id, at=active.at)
        with self._finishing(active):
            async with aclosing(events.follow(self._hold_vote(sampling))) as happening:
                async for event in happening:
                    yield event
        outcome = self._finish(active)
        yield events.build_end(outcome, self.costs)
        async for event in self._send_winner(sampling.request, outcome):
            yield event

    async def _send_winner(
        self, request: ChatRequest, outcome: RequestOutcome
    ) -> AsyncGenerator[bytes, None]:
        """Yields a completion's events. Large events are encoded in a thread, so other requests can go on."""
        events = build_chunks(outcome, request, unit=self.settings.unit)
        if not outcome.is_large:
            for event in events:
                yield event
            return
        for event in await run_in_thread(list, events):
            await self.resources.client.share.take_turn()
            yield event

    async def _stream_sample(self, active: ActiveRequest) -> AsyncGenerator[bytes, None]:
        """Streams the first sample as it arrives: the only sample, or one that is followed by a vote."""
        sampling, relay = active.sampling, StreamRelay(active.sampling.request)
        try:
            votes = active.delivery == "first"
            async with sampling.stream(ahead=votes) as stream, aclosing(relay.events(stream)) as events:
                async for event in events:
                    yield event
            if votes:
                async with aclosing(keep_alive(sampling.run())) as comments:
                    async for comment in comments:
                        yield comment
            else:
                sampling.end_round()
            self._check_vote(sampling)
        except BaseException as exc:
            await sampling.drop_ahead()
            self._finish(active, exc)
            raise
        yield self._finish_relay(relay, self._finish(active))

    async def _stream_when_clear(self, active: ActiveRequest) -> AsyncGenerator[bytes, None]:
        """Streams the first sample once it is clear that there is no vote, otherwise the vote's winner."""
        sampling, relay = active.sampling, StreamRelay(active.sampling.request)
        with self._finishing(active):
            async with AsyncExitStack() as stack:
                async with aclosing(keep_alive(self._hold_sample(active, relay, stack))) as comments:
                    async for comment in comments:
                        yield comment
                if relay.is_open:
                    sampling.skip_vote(STREAMED_REASON)
                    async with aclosing(relay.rest()) as events:
                        async for event in events:
                            yield event
            async with aclosing(keep_alive(self._hold_vote(sampling))) as comments:
                async for comment in comments:
                    yield comment
        outcome = self._finish(active)
        if outcome.agreement is not None:
            async for event in self._send_winner(sampling.request, outcome):
                yield event
            return
        for event in relay.release():
            yield event
        yield self._finish_relay(relay, outcome)

    async def _hold_sample(self, active: ActiveRequest, relay: StreamRelay, stack: AsyncExitStack) -> None:
        """Starts the first sample's stream, and holds it back until it ends or no vote is possible."""
        stream = await stack.enter_async_context(active.sampling.stream())
        await relay.hold(stream, self.resources.eligibility.make_gate(active.sampling.request))

    async def _hold_vote(self, sampling: SampleLoop) -> None:
        """Draws samples until the policy stops; raises WeakVote if the operator requires more agreement."""
        await sampling.run()
        self._check_vote(sampling)

    def _finish_relay(self, relay: StreamRelay, outcome: RequestOutcome) -> bytes:
        extra = build_extra(outcome, unit=self.settings.unit)
        several = outcome.waves > 1 or outcome.samples > outcome.n
        return relay.finish(extra, build_usage(outcome), several=several)

    async def list_models(self, *, refresh: bool = False) -> dict[str, dict[str, Any]]:
        """Lists models by name: the upstream's and the operator's. With `refresh`, ignores a cached error."""
        listed = await self.model_list.get_models(refresh=refresh)
        configured = self.config.endpoint.model
        self.model = configured or (next(iter(listed)) if len(listed) == 1 else "")
        return ({configured: {"id": configured}} if configured else {}) | listed

    async def describe_playground(self) -> dict[str, Any]:
        """The playground's data: the model, and the budgets to choose from."""
        settings, budget = self.settings, self.budget
        with suppress(EndpointError):  # ignored: the user will see the error after asking a question
            await self.list_models()
        served = self.policy_registry.get(self.policy_registry.default)
        modes = self.resources.modes if self.resources.has_choice else ()
        return {
            "policy": served.name,
            "mode": settings.mode,
            "model": EVERY_MODE if modes else self.model,
            "models": [name for name in dict.fromkeys([self.model, *self.model_list.known]) if name][
                :_MAX_LISTED
            ],
            "modes": modes,
            "every": EVERY_MODE,
            "keys": bool(self.keys),
            "adjustable": settings.price < 0 and served.bounds is not None,
            "budget": {
                "amount": budget.amount,
                "unit": budget.unit,
                "currency": self.config.endpoint.currency,
                "most": list_max_budgets(settings)[budget.unit].amount,
            },
        }

    def find_foreign_model(self) -> str:
        """Returns a warning if the policy was fitted on samples of a model not served here; otherwise ""."""
        models = [self.model] if self.model else list(self.model_list.known)
        return self.policy_registry.get(self.policy_registry.default).describe_foreign_model(models)

    async def describe_traffic(self, span: str = "") -> dict[str, Any]:
        """Returns the dashboard's data for a time span, of all workers; "" means since the start."""
        own = self.describe_own_traffic(span)
        return own if self.add_workers is None else await self.add_workers(span, own)

    def describe_own_traffic(self, span: str) -> dict[str, Any]:
        """Like `describe_traffic`, for this process alone."""
        self.reporter.report()
        return self.observability.dashboard_data(span) if span else self.observability.summarise()

    @property
    def is_upstream_resting(self) -> bool:
        """Whether all upstreams have failed, and aren't called for a while."""
        return all("" in source.client.resting for source in self.resources.sources.values())

    async def reload(self) -> list[str]:
        """Reloads policies and settings; returns log lines about what changed, and what couldn't be used."""
        reading = await asyncio.to_thread(self.policy_registry.read)
        lines = self.policy_registry.swap(reading)
        lines += [] if self.reload_settings is None else self.reload_settings()
        if lines and (note := self.find_foreign_model()):
            lines.append(note)
        self.announce_policies()
        self.observability.on_reload(ok=not reading.refused)
        return lines

    def announce_policies(self) -> None:
        """Tells metrics and dashboard which policies are loaded, and what agreement to expect of each."""
        for name in self.policy_registry.names:
            self.observability.on_policy(
                self.policy_registry.get(name), budget=self.budget.amount, unit=self.budget.unit
            )

    def restore_prices(self, prices: Mapping[str, Any]) -> None:
        """Restores stored prices; reports the price for the gateway's budget to metrics at once."""
        self.pacers.restore(prices)
        pacer, budget = self.find_pacer(), self.budget
        if pacer is not None and pacer.requests:
            self.observability.on_price(
                self.policy_registry.default, budget.amount, pacer.price, pacer.average, budget.unit
            )

    def find_pacer(self) -> PacerProtocol | None:
        """Returns the pacer for the default policy and the gateway's budget; None if the price is fixed."""
        served = self.policy_registry.get(self.policy_registry.default)
        return self._get_pacer(served, self.budget.amount, self.budget.unit)

    def find_shortfall(self, budget: Budget | None = None) -> str:
        """Returns a warning if a budget is below the cost of one sample; otherwise "".

        Also returns "" if this cost is unknown. Without `budget`, checks the gateway's budget.
        """
        budget = self.budget if budget is None else budget
        if budget.unit == "samples":
            return ""
        names = self.resources.modes if self.resources.has_choice else ("",)
        costs = [self.costs[name].find(budget.unit) for name in names]
        cost = None if None in costs else min(cost for cost in costs if cost is not None)
        if cost is None or cost <= budget.amount:
            return ""
        one_sample = Budget(float(f"{cost:.3g}"), budget.unit, budget.currency)
        return f"one sample costs {one_sample} on average, more than the budget of {budget}"

    def _find_price(
        self, served: ServedPolicy, request: ChatRequest, route: Route
    ) -> tuple[PacerProtocol | None, float | None]:
        """Returns a request's pacer, and the request's price before its random shift.

        The pacer is None if the price is fixed; both are None if no price is used.
        """
        if route.mode == "pass" or served.policy.dial is None:  # no price is used
            return None, None
        pacer = self._get_pacer(served, route.budget, route.unit, request)
        return pacer, max(0.0, self.settings.price) if pacer is None else pacer.price

    def _get_pacer(
        self, served: ServedPolicy, budget: float, unit: BudgetUnit, request: ChatRequest | None = None
    ) -> PacerProtocol | None:
        bounds = served.bounds
        if self.settings.price >= 0 or bounds is None:
            return None

        def make_pacer(target: float) -> PacerProtocol:
            start, low, high = self._find_start(served, target, unit, request)
            make = Pacer if self.make_fleet_pacer is None else partial(self.make_fleet_pacer, served.name)
            return make(target, dial=bounds[0], start=start, low=low, high=high, unit=unit)

        return self.pacers.get(served.name, budget, make_pacer, bounds=bounds, unit=unit)

    def _find_start(
        self, served: ServedPolicy, target: float, unit: BudgetUnit, request: ChatRequest | None = None
    ) -> tuple[float, float, float]:
        """Returns the initial, lowest and highest price of a new pacer, based on the cost per sample."""
        mode = served.names[-1] if served.names else ""
        rates = self.resources.sources[mode or self.resources.default].rates
        lengths = (GUESSED_PROMPT, GUESSED_RESPONSE)
        if request is not None:
            limit = request.max_tokens if request.has_token_limit else GUESSED_RESPONSE
            lengths = (max(1, request.prompt_tokens // _TOKEN_BYTES), min(limit, GUESSED_RESPONSE))
        average = Budget(target, unit, self.config.endpoint.currency)
        budget = served.convert_budget(average, self.costs[mode], rates, lengths)
        return served.find_start(budget) or (0.0, 0.0, 1.0)

    def _choose_delivery(self, sampling: SampleLoop) -> Delivery:
        """Chooses how a stream is delivered. If the prompt asks for free text, cancels the vote."""
        if sampling.request.options.events:
            return "wait"
        refuses = self._refuses_weak_vote(sampling)
        if sampling.is_single_round:
            return "wait" if refuses else "pass"
        hold_back = self.resources.eligibility.plan_stream(
            sampling.request, shape=sampling.votes.reader.shape
        )
        if hold_back == "nothing":
            sampling.skip_vote(TEXT_REASON)
            return "pass"
        if (sampling.request.options.stream_mode or self.settings.stream_mode) == "first":
            if not refuses:
                return "first"
            sampling.notes.append("the stream waits for the vote, because weak votes are refused")
        # With several modes, a first sample isn't streamed: the reply may have to come from another mode.
        return "hold" if hold_back == "beginning" and not self.resources.has_choice else "wait"

    def _check_vote(self, sampling: SampleLoop) -> None:
        """Marks the request if its vote is weak; then raises WeakVote if the operator refuses weak votes."""
        minimum = self.settings.min_agreement
        if not minimum or not sampling.votes.has_vote or sampling.route.mode != "adaptive":
            return
        tally = sampling.votes.tally
        if not tally.drawn:
            return
        share = tally.support  # the winner's share of all samples, even of those without an answer
        if tally.winner is not None and share >= minimum:
            return
        problem = f"the vote is weak: {share:.2f} of it is for the winner, below the operator's {minimum:g}"
        sampling.weak = True
        sampling.notes.append(problem)
        if self._refuses_weak_vote(sampling):
            raise WeakVote(f"{problem}; ask with a larger x-adacompute-budget")

    def _refuses_weak_vote(self, sampling: SampleLoop) -> bool:
        """Whether the reply is withheld if the vote is weak."""
        settings = self.settings
        refuses = settings.weak == "refuse" and settings.min_agreement > 0
        return refuses and sampling.votes.has_vote and sampling.route.mode == "adaptive"

    def _finish(self, active: ActiveRequest, error: BaseException | None = None) -> RequestOutcome:
        """Ends a request: builds its outcome, and reports it to observers."""
        self.under_way -= 1
        outcome = self._build_outcome(active, error)
        if isinstance(error, EndpointError) and self.logs_failures:
            _log_upstream_error(active.id, error)
        if not self.unlearned:  # calls `learn` in the next round of the event loop: this reply needn't wait
            asyncio.get_running_loop().call_soon(self.learn)
        self.unlearned.append((active, outcome))
        self.reporter.on_request_end(outcome, active.sampling, active.span)
        return outcome

    def learn(self) -> None:
        """Learns from ended requests: costs per sample, prices, vote weights, how to compare answers."""
        for active, outcome in self.unlearned:
            self.guard(active.sampling.votes.teach)
            if outcome.counts_as_voted:
                self.guard(self.learn_cost, outcome)
            if active.pacer is not None and outcome.moves_price and self.is_budgeted(outcome):
                self.guard(self._settle_price, active.pacer, outcome, active.price)
        self.unlearned.clear()

    def is_budgeted(self, outcome: RequestOutcome) -> bool:
        """Whether the average that must meet the budget includes a request.

        By the setting `average`, it includes all requests, or only those that can be voted on.
        """
        return outcome.decided or choose_average(self.settings.average, outcome.unit) == "all"

    def learn_cost(self, outcome: RequestOutcome) -> None:
        """Adds a request to the mean cost per sample; warns once if one sample costs more than the budget."""
        self.costs[""].add(outcome.spent)
        for use in outcome.modes:
            self.costs[use.name].add(use.spent)
        if self.has_warned_of_shortfall or not (shortfall := self.find_shortfall()):
            return
        self.has_warned_of_shortfall = True
        _log.warning(
            "%s: every request gets one sample; raise the budget, or draw shorter replies", shortfall
        )

    def _count_cost(
        self, unit: BudgetUnit, spent: Spend, rest: Spend, uses: Sequence[ModeUse]
    ) -> float | None:
        """Computes a request's cost in tokens or money for the average; None if `unit` is samples.

        `rest` is the maximum that calls of unknown cost can add to `spent`; each mode's part is in `uses`.
        Each sample in `rest` adds at most a sample's mean cost: the maximum would distort the average.
        """
        if unit == "samples":
            return None
        cost = spent.amount_in(unit)
        for use in uses:
            maybe = use.maybe.samples * (self.costs[use.name].estimate(unit) or 0.0)
            cost += min(maybe, use.maybe.amount_in(unit))
            rest -= use.maybe
        # with several modes, only a verifier's calls are left in `rest`: without samples, they add nothing
        maybe = rest.samples * (self.costs[""].estimate(unit) or 0.0)
        return cost + min(maybe, rest.amount_in(unit))

    def _settle_price(self, pacer: PacerProtocol, outcome: RequestOutcome, price: float | None) -> None:
        budget, unit, start = outcome.budget, outcome.unit, None
        if unit != "samples" and pacer.requests < EARLY_REQUESTS:
            start, _, _ = self._find_start(self.policy_registry.get(outcome.policy), budget, unit)
        self.pacers.settle(outcome.policy, budget, pacer, outcome.budget_cost, price, unit=unit, start=start)
        self.reporter.on_price(outcome.policy, outcome.budget, pacer.price, pacer.average, outcome.unit)

    def _build_outcome(self, active: ActiveRequest, error: BaseException | None = None) -> RequestOutcome:
        sampling = active.sampling
        request, route = sampling.request, sampling.route
        status, code = (200, "") if error is None else _find_status(error, closing=not self.ready)
        votes, drawer, calls, uses = sampling.votes, sampling.drawer, sampling.drawer.calls, sampling.uses
        spent, maybe = drawer.sum_costs()
        tally, best = votes.counted_tally, votes.representative
        answered_by, quirks = "" if best is None else votes.modes[best], self.resources.client.quirks
        return RequestOutcome(
            id=active.id,
            at=active.at,
            seconds=sampling.now - active.started,
            key=route.key,
            model=str(request.body.get("model", "")),
            policy=route.policy,
            mode=route.mode,
            budget=route.budget,
            unit=route.unit,
            cost=self._count_cost(route.unit, spent, maybe, uses),
            price=sampling.price,
            stream=request.stream,
            n=request.n,
            status=status,
            error=code,
            samples=max(len(votes.responses), sum([call.got for call in calls])),
            missing=drawer.missing,
            waves=sampling.waves,
            would=sampling.would,
            answer=None if tally is None else tally.winner,
            votes={} if tally is None else tally.votes,
            abstained=0 if tally is None else tally.abstained,
            agreement=None if tally is None else tally.support,
            answered_share=None if tally is None else tally.agreement,
            agreed=None
            if tally is None or active.delivery != "first"
            else tally.winner is not None and 0 in tally.supporters,
            weak=sampling.weak,
            certified=None if tally is None else sampling.is_certified,
            weighted=votes.is_weighted,
            explored=sampling.explored,
            decided=sampling.decided,
            notes=tuple(sampling.list_notes()),
            usage=Usage.from_calls(calls),
            spent=spent,
            prompt_cost=NO_PROMPT_COST  # needed only to compute what a vote saved
            if tally is None or self.resources.has_choice
            else self.resources.rates.compute_prompts(
                calls, choices=quirks.get(request.body.get("model")).max_choices
            ),
            modes=uses,
            response_modes=tuple(votes.modes) if self.resources.modes else (),
            answered_by=answered_by,
            maybe=maybe,
            verified=sampling.verified,
            responses=tuple(votes.responses),
            server_info=drawer.get_server_info(answered_by),
            quality=None if self.quality_of_settings is None else self.describe_quality(route),
            best=best,
            prompt=request.prompt,
        )

    @property
    def quality(self) -> QualityCost | None:
        """The quality that the budget asks for, such as "as good as 8 samples"; None if it is an amount."""
        return None if self.patched_budget else self.quality_of_settings

    def describe_quality(self, route: Route) -> dict[str, Any] | None:
        """Describes the quality that the budget asks for; None if a request has its own policy or budget."""
        own = (route.policy, route.budget) != (self.policy_registry.default, self.budget.amount)
        return None if self.quality is None or own else self.quality.to_dict()


def _log_upstream_error(request_id: str, error: EndpointError) -> None:
    """Logs an upstream error. Its text is only logged at debug level: it may quote the client's request."""
    if error.status is None:
        _log.warning("request %s: %s", request_id, error)
        return
    _log.warning("request %s: the upstream answered %d (%s)", request_id, error.status, error.kind)
    _log.debug("request %s: %s", request_id, error)


def _find_status(error: BaseException, *, closing: bool) -> tuple[int, str]:
    if isinstance(error, ServeError | EndpointError):
        return build_error(error)[0], find_error_code(error)
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return (Overloaded.status, Overloaded.code) if closing else (CLIENT_GONE_STATUS, "client_gone")
    return 500, "internal_error"
