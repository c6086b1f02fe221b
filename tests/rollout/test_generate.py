"""One rollout: identity, failures that cost nothing else, and sessions that never stay behind."""

import asyncio
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest

from miles_sim.rollout.collect import collect
from miles_sim.rollout.errors import AssemblyError, RolloutIdentityError, SessionError, SettingsError, WireError
from miles_sim.rollout.generate import GenerateInput, GenerateOutput, generate, request_kwargs, session_server
from miles_sim.rollout.sample import RESERVED, Sample, Status
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.rollout.wire import encode_samples


@dataclass
class Server:
    """A session server that serves the records of `forest`, and does as it is told."""

    forest: Any
    settings: RolloutSettings
    open: set[str] = field(default_factory=set)
    asked: dict[str, Any] = field(default_factory=dict)
    instead: Callable[[httpx.Request], Any] | None = None
    """Answers, or raises, in place of the request to collect."""
    held: str | None = None
    """Path of a request that waits after it has arrived."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        if request.url.path == "/sessions":
            self.open.add("/sessions/s1")
        if request.url.path == self.held:
            self.arrived.set()
            await self.released.wait()
        if request.method == "DELETE":
            self.open.remove(request.url.path)
            return httpx.Response(204)
        if request.url.path == "/sessions":
            return httpx.Response(200, json={"session_id": "s1"})
        self.asked = json.loads(request.content)
        if self.instead is not None:
            return await self.instead(request)  # type: ignore[no-any-return]
        found = collect(
            self.forest.records,
            settings=self.settings,
            tokenizer=self.forest.tokenizer,
            max_seq_len=self.asked["max_seq_len"],
            agent_metadata=self.asked.get("metadata"),
        )
        session = self.settings.session
        return httpx.Response(
            200, content=encode_samples(found.samples, found.session_metadata, found.empty_reason, session=session)
        )


@pytest.fixture
def server(forest: Any, settings: RolloutSettings) -> Server:
    return Server(forest, settings)


async def run(server: Server, sample: Sample | None = None, agent: Any = None, **settings: Any) -> GenerateOutput:
    async def idle(**kwargs: Any) -> None:
        return None

    session_url = settings.pop("session_url", "http://sessions/")
    server.settings = replace(server.settings, **settings)
    async with httpx.AsyncClient(transport=httpx.MockTransport(server)) as client:
        return await generate(
            GenerateInput(
                settings=server.settings,
                sample=sample if sample is not None else Sample(index=7),
                sampling_params={"max_new_tokens": 8, "sampling_seed": 3, "temperature": 1.0},
                agent=agent or idle,
                session_url=session_url,
                client=client,
            )
        )


def two_leaves(forest: Any) -> None:
    forest.grow(text="one")
    forest.grow(text="two")


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (Sample(index=7), 7),
        (Sample(index=0), 0),
        (Sample(index=7, rollout_id=11), 11),
        (Sample(index=7, rollout_id=0), 0),
        (Sample(rollout_id=5), 5),
    ],
)
async def test_siblings_carry_one_effective_id(server: Server, sample: Sample, expected: int) -> None:
    two_leaves(server.forest)
    output = await run(server, sample)
    assert [s.rollout_id for s in output.as_list] == [expected, expected]
    assert [s.index for s in output.as_list] == [sample.index] * 2


@pytest.mark.parametrize(("identity", "expected"), [("always", 7), ("several_leaves", None)])
async def test_single_leaf_goes_by_the_policy(server: Server, identity: str, expected: int | None) -> None:
    server.forest.grow()
    (sample,) = (await run(server, identity=identity)).as_list
    assert sample.rollout_id == expected


async def test_several_leaves_share_an_id_under_either_policy(server: Server) -> None:
    two_leaves(server.forest)
    output = await run(server, identity="several_leaves")
    assert [sample.rollout_id for sample in output.as_list] == [7, 7]


@pytest.mark.parametrize("identity", ["always", "several_leaves"])
async def test_missing_identity_is_refused_before_the_agent_runs(server: Server, identity: str) -> None:
    async def agent(**kwargs: Any) -> None:
        pytest.fail("the agent ran")

    with pytest.raises(RolloutIdentityError, match=r"rollout_id.*index"):
        await run(server, Sample(), agent, identity=identity)
    assert not server.open


async def test_linear_session_gives_one_sample_and_leaves_the_id(server: Server) -> None:
    server.forest.grow()
    output = await run(server, Sample(), session="v1")
    assert isinstance(output.samples, Sample)
    assert output.samples.rollout_id is None
    assert output.samples.status is Status.COMPLETED


async def test_agent_gets_what_it_needs_and_cannot_reach_the_input(server: Server) -> None:
    server.forest.grow()
    seen: dict[str, Any] = {}

    async def agent(**kwargs: Any) -> dict[str, Any]:
        seen.update(copy.deepcopy(kwargs))
        kwargs["metadata"]["own"].append(1)
        kwargs["prompt"][0]["content"] = "other"
        kwargs["prompt"].append(1)
        return {"reward": 1.0, "agent_metrics": {"total_tool_time": 2.5}}

    given = Sample(index=7, prompt=[{"role": "user", "content": "hi"}], metadata={"own": []}, label="l")
    before = copy.deepcopy(given)
    (sample,) = (await run(server, given, agent, max_seq_len=1000)).as_list
    assert given == before
    assert seen["base_url"] == "http://sessions/sessions/s1"
    assert seen["prompt"] == given.prompt
    assert seen["request_kwargs"] == {"max_tokens": 8, "seed": 3, "temperature": 1.0}
    assert seen["metadata"] == {"own": [], "max_seq_len": 1000, "session_server_id": "sessions"}
    assert (sample.reward, sample.non_generation_time, sample.label) == (1.0, 2.5, "l")
    assert sample.metadata["own"] == []
    assert server.asked["max_seq_len"] == 1000


async def test_outputs_share_nothing_mutable(server: Server) -> None:
    two_leaves(server.forest)
    given = Sample(index=7, metadata={"own": []}, train_metadata={"a": []})
    first, second = (await run(server, given)).as_list
    mutable = [value for s in (first, second, given) for value in vars(s).values() if isinstance(value, list | dict)]
    assert len({id(value) for value in mutable}) == len(mutable)
    assert first.metadata["own"] is not second.metadata["own"]


async def test_agent_that_raises_loses_nothing_that_was_generated(server: Server) -> None:
    async def agent(**kwargs: Any) -> None:
        raise KeyError("tool")

    two_leaves(server.forest)
    output = await run(server, agent=agent)
    assert [sample.status for sample in output.as_list] == [Status.COMPLETED] * 2
    for sample in output.as_list:
        assert sample.metadata["agent_error"] == {"type": "KeyError", "message": "'tool'"}
    assert not server.open


async def test_agent_that_raises_a_cancellation_of_its_own_loses_nothing_either(server: Server) -> None:
    async def agent(**kwargs: Any) -> None:
        task = asyncio.ensure_future(asyncio.sleep(1))
        task.cancel()
        await task

    two_leaves(server.forest)
    for sample in (await run(server, agent=agent)).as_list:
        assert sample.status is Status.COMPLETED
        assert sample.metadata["agent_error"] == {"type": "CancelledInsideError", "message": "cancelled from within"}
    assert not server.open


async def test_nothing_generated_is_one_aborted_copy_with_identity(server: Server) -> None:
    async def agent(**kwargs: Any) -> None:
        raise OSError("gone")

    given = Sample(index=7, metadata={"own": [1]})
    (sample,) = (await run(server, given, agent)).as_list
    assert (sample.status, sample.rollout_id, sample.tokens) == (Status.ABORTED, 7, [])
    assert sample.metadata == {"own": [1], "agent_error": {"type": "OSError", "message": "gone"}}
    assert sample.metadata["own"] is not given.metadata["own"]
    assert given.status is Status.PENDING


async def test_all_truncated_is_aborted(server: Server) -> None:
    server.forest.grow()
    (sample,) = (await run(server, max_seq_len=1)).as_list
    assert sample.status is Status.ABORTED


async def broken(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("connection reset")


async def silent(request: httpx.Request) -> httpx.Response:
    await asyncio.Event().wait()
    raise RuntimeError("never reached")


async def miscoded(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"no gzip"))


@pytest.mark.parametrize("fault", [broken, silent, miscoded])
async def test_failed_collect_costs_this_rollout_only(server: Server, fault: Any) -> None:
    server.forest.grow()
    server.instead = fault
    (sample,) = (await run(server, collect_timeout=0.01)).as_list
    assert (sample.status, sample.rollout_id) == (Status.ABORTED, 7)
    assert not server.open


class Breaks:
    """Fails the first `times` requests of a method, then lets them through."""

    def __init__(self, server: Server, method: str, path: str, times: int, error: type[httpx.TransportError]) -> None:
        self.server, self.method, self.path, self.times, self.error = server, method, path, times, error
        self.asked = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if (request.method, request.url.path) == (self.method, self.path):
            self.asked += 1
            if self.asked <= self.times:
                raise self.error("broken")
        return await self.server(request)


def input_of(server: Server, client: httpx.AsyncClient, url: str = "http://sessions") -> GenerateInput:
    return GenerateInput(
        settings=server.settings,
        sample=Sample(index=7),
        sampling_params={},
        agent=lambda **kwargs: asyncio.sleep(0),
        session_url=url,
        client=client,
    )


async def broken_run(server: Server, breaks: Breaks, **settings: Any) -> GenerateOutput:
    server.settings = replace(server.settings, **settings)
    async with httpx.AsyncClient(transport=httpx.MockTransport(breaks)) as client:
        asked = input_of(server, client)
        return await generate(asked)


@pytest.mark.parametrize(("method", "path"), [("POST", "/sessions/s1/samples"), ("DELETE", "/sessions/s1")])
@pytest.mark.parametrize("error", [httpx.ReadError, httpx.ConnectError, httpx.RemoteProtocolError])
async def test_what_changes_nothing_is_asked_again_where_its_connection_breaks(
    server: Server, method: str, path: str, error: type[httpx.TransportError]
) -> None:
    server.forest.grow()
    breaks = Breaks(server, method, path, 2, error)
    (sample,) = (await broken_run(server, breaks)).as_list
    assert (sample.status, breaks.asked) == (Status.COMPLETED, 3)
    assert not server.open


@pytest.mark.parametrize(("tries", "asked"), [(1, 1), (5, 5)])
async def test_collecting_is_given_up_after_so_many_tries(server: Server, tries: int, asked: int) -> None:
    server.forest.grow()
    breaks = Breaks(server, "POST", "/sessions/s1/samples", 99, httpx.ReadError)
    output = await broken_run(server, breaks, collect_tries=tries)
    assert (output.as_list[0].status, output.empty_reason) == (Status.ABORTED, "collect_failed")
    assert breaks.asked == asked


async def test_what_timed_out_is_not_asked_again(server: Server) -> None:
    server.forest.grow()
    breaks = Breaks(server, "POST", "/sessions/s1/samples", 1, httpx.ReadTimeout)
    assert (await broken_run(server, breaks)).as_list[0].status is Status.ABORTED
    assert breaks.asked == 1


async def test_to_open_is_never_asked_again(server: Server) -> None:
    breaks = Breaks(server, "POST", "/sessions", 1, httpx.ReadError)
    with pytest.raises(SessionError, match="broken"):
        await broken_run(server, breaks)
    assert breaks.asked == 1


@pytest.mark.parametrize(("status", "error"), [(422, AssemblyError), (500, SessionError), (404, SessionError)])
async def test_refusal_to_collect_is_a_typed_error(server: Server, status: int, error: type[Exception]) -> None:
    async def refuse(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, text="record 3: finish_reason")

    server.instead = refuse
    with pytest.raises(error, match="record 3: finish_reason"):
        await run(server)
    assert not server.open


async def test_nonsense_from_the_server_is_a_wire_error(server: Server) -> None:
    async def nonsense(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=b"nonsense")

    server.instead = nonsense
    with pytest.raises(WireError, match="payload"):
        await run(server)
    assert not server.open


@pytest.mark.parametrize(
    "returned", [{"x": {1}}, {"x": float("nan")}, [1], {"agent_metrics": {"total_tool_time": "1"}}]
)
async def test_unusable_agent_metadata_is_refused_by_name(server: Server, returned: Any) -> None:
    async def agent(**kwargs: Any) -> Any:
        return returned

    server.forest.grow()
    with pytest.raises(AssemblyError, match="agent metadata"):
        await run(server, agent=agent)
    assert not server.open


async def test_input_with_computed_values_is_refused_before_a_session_opens(server: Server) -> None:
    with pytest.raises(WireError, match="weight_versions"):
        await run(server, Sample(index=7, weight_versions=["1"]))
    assert not server.open


async def test_server_that_cannot_be_reached_is_a_session_error(server: Server) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as client:
        arguments = input_of(server, client)
        with pytest.raises(SessionError, match="refused"):
            await generate(arguments)


@pytest.mark.parametrize("url", ["http://sessions", "http://["])
async def test_opening_that_gives_nothing_readable_is_a_session_error(server: Server, url: str) -> None:
    async with httpx.AsyncClient(transport=httpx.MockTransport(miscoded)) as client:
        arguments = input_of(server, client, url)
        with pytest.raises(SessionError, match=r"^open session: "):
            await generate(arguments)


async def test_a_session_that_cannot_be_deleted_leaves_a_cancellation_what_it_is(server: Server) -> None:
    client = httpx.AsyncClient(transport=httpx.MockTransport(server))
    closed = asyncio.Event()

    async def agent(**kwargs: Any) -> None:
        await client.aclose()
        closed.set()
        await asyncio.Event().wait()

    arguments = GenerateInput(
        settings=server.settings,
        sample=Sample(index=7),
        sampling_params={},
        agent=agent,
        session_url="http://sessions",
        client=client,
    )
    task = asyncio.ensure_future(generate(arguments))
    await closed.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


@pytest.mark.parametrize("status", [422, 500])
async def test_an_opening_that_is_refused_leaves_a_cancellation_what_it_is(server: Server, status: int) -> None:
    arrived, released = asyncio.Event(), asyncio.Event()

    async def refuse(request: httpx.Request) -> httpx.Response:
        arrived.set()
        await released.wait()
        return httpx.Response(status)

    async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as client:
        arguments = input_of(server, client)
        task = asyncio.ensure_future(generate(arguments))
        await arrived.wait()
        task.cancel()
        await asyncio.sleep(0)
        released.set()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("held", ["/sessions", "/sessions/s1"])
async def test_cancelling_while_a_session_opens_or_closes_leaves_none(server: Server, held: str) -> None:
    server.forest.grow()
    server.held = held
    task = asyncio.ensure_future(run(server))
    await server.arrived.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    server.released.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not server.open


@pytest.mark.parametrize("turns", range(6))
async def test_session_is_deleted_whenever_the_rollout_is_cancelled(server: Server, turns: int) -> None:
    """`turns`: rounds of the event loop before the cancellation, from opening to collecting."""

    async def agent(**kwargs: Any) -> None:
        await asyncio.sleep(0)

    server.forest.grow()
    server.instead = silent
    task = asyncio.ensure_future(run(server, agent=agent))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not server.open


def test_sampling_parameters_become_request_keywords() -> None:
    params = {
        "max_new_tokens": 8,
        "max_tokens": 5,
        "min_new_tokens": 1,
        "sampling_seed": 0,
        "stop": ["x"],
        "top_k": None,
        "model": "m",
        "messages": [],
        "stream": True,
        "input_ids": [1],
        "unknown": 1,
    }
    kwargs = request_kwargs(params)
    assert kwargs == {"max_tokens": 5, "min_tokens": 1, "seed": 0, "stop": ["x"]}
    assert kwargs["stop"] is not params["stop"]


@pytest.mark.parametrize("key", sorted(RESERVED))
async def test_metadata_that_assembly_would_overwrite_is_refused_before_the_agent_runs(
    server: Server, key: str
) -> None:
    async def agent(**kwargs: Any) -> None:
        pytest.fail("the agent ran")

    with pytest.raises(AssemblyError, match=rf"metadata\.{key}"):
        await run(server, Sample(index=1, metadata={key: 1}), agent, record_messages=True)
    assert not server.open


async def test_a_datasets_messages_stay_where_none_are_recorded(server: Server) -> None:
    server.forest.grow()
    (sample,) = (await run(server, Sample(index=1, metadata={"messages": ["mine"]}))).as_list
    assert sample.metadata["messages"] == ["mine"]


async def test_the_session_is_told_beside_the_samples(server: Server) -> None:
    two_leaves(server.forest)
    output = await run(server)
    assert [leaf["node_id"] for leaf in output.session_metadata["tree"]["leaves"]] == [0, 1]
    assert output.empty_reason is None


async def test_why_nothing_came_is_told(server: Server) -> None:
    assert (await run(server)).empty_reason == "no_records"
    server.forest.grow()
    assert (await run(server, max_seq_len=1)).empty_reason == "all_truncated"

    async def broken(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("gone")

    server.instead = broken
    assert (await run(server)).empty_reason == "collect_failed"


def test_sessions_go_round_the_servers_by_what_the_sample_is() -> None:
    urls = ["a", "b", "c"]
    assert [session_server(urls, Sample(index=n)) for n in range(6)] == urls * 2
    assert session_server(urls, Sample(index=1, rollout_id=5)) == "c"
    by_key = {key: session_server(urls, Sample(index=n, routing_key=key)) for n, key in enumerate("abcdefgh")}
    assert set(by_key.values()) == set(urls)
    assert all(
        session_server(urls, Sample(index=n, routing_key=key)) == by_key[key] for n, key in enumerate("hgfedcba")
    )
    assert session_server("only", Sample()) == "only"
    assert session_server(urls, Sample()) == "a"
    with pytest.raises(SettingsError, match="session_url"):
        session_server([], Sample())


async def test_a_rollout_stays_with_the_server_it_opened_its_session_on(server: Server) -> None:
    hosts = []

    async def agent(base_url: str, metadata: Any, **kwargs: Any) -> None:
        hosts.append((httpx.URL(base_url).host, metadata["session_server_id"]))

    for index in range(3):
        await run(server, Sample(index=index), agent, session_url=["http://one", "http://two/"])
    assert hosts == [("one", "one"), ("two", "two"), ("one", "one")]
    assert not server.open


@pytest.mark.parametrize("value", ["7", 7.0, True, float("nan")])
@pytest.mark.parametrize("name", ["index", "rollout_id"])
async def test_an_identity_is_a_whole_number(server: Server, name: str, value: Any) -> None:
    with pytest.raises(RolloutIdentityError, match=f"{name}: "):
        await run(server, Sample(**{name: value}))
    assert not server.open


async def test_sampling_parameters_that_cannot_be_sent_are_refused_before_a_session_opens(server: Server) -> None:
    async with httpx.AsyncClient(transport=httpx.MockTransport(server)) as client:
        asked = GenerateInput(
            settings=server.settings,
            sample=Sample(index=1),
            sampling_params={"temperature": float("nan")},
            agent=pytest.fail,  # type: ignore[arg-type]
            session_url="http://sessions",
            client=client,
        )
        with pytest.raises(SettingsError, match="temperature"):
            await generate(asked)
    assert not server.open


async def test_each_request_waits_as_long_as_the_settings_say(server: Server) -> None:
    seen: dict[tuple[str, str], set[float]] = {}
    answered = server.__call__

    async def noting(request: httpx.Request) -> httpx.Response:
        seen[request.method, request.url.path] = set(request.extensions["timeout"].values())
        return await answered(request)

    server.forest.grow()
    async with httpx.AsyncClient(transport=httpx.MockTransport(noting)) as client:
        await generate(
            GenerateInput(
                settings=replace(server.settings, collect_timeout=12.5),
                sample=Sample(index=7),
                sampling_params={},
                agent=lambda **kwargs: asyncio.sleep(0),
                session_url="http://sessions",
                client=client,
            )
        )
    assert seen == {
        ("POST", "/sessions"): {12.5},
        ("POST", "/sessions/s1/samples"): {12.5},
        ("DELETE", "/sessions/s1"): {12.5},
    }


async def test_a_refusal_says_at_which_step_and_under_which_status(server: Server) -> None:
    async def refuse(request: httpx.Request) -> httpx.Response:
        return httpx.Response(500, text="x" * 3000)

    server.instead = refuse
    with pytest.raises(SessionError, match=r"^collect session: status 500: x{2000}$"):
        await run(server)
    async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as client:
        asked = input_of(server, client)
        with pytest.raises(SessionError, match=r"^open session: status 500: x"):
            await generate(asked)


@pytest.mark.parametrize("seconds", [0, 0.0, 1e-9])
async def test_an_agent_whose_tools_took_no_time_may_say_so(server: Server, seconds: float) -> None:
    async def agent(**kwargs: Any) -> dict[str, Any]:
        return {"agent_metrics": {"total_tool_time": seconds}}

    server.forest.grow()
    output = await run(server, agent=agent, session="v1")
    assert output.as_list == [output.samples]
    assert output.as_list[0].non_generation_time == seconds
