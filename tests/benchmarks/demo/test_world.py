"""The tool world: deterministic, solvable, with rules that depend on state and weather that does not."""

import json
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.demo.catalogue import CATALOGUE, Job
from benchmarks.demo.world import NETWORK, Call, Environment, Reply, Task, World
from benchmarks.rollouts import rollouts

JOBS = [job for jobs in CATALOGUE.domains.values() for job in jobs]
SEEDS = st.integers(0, 10_000)


def still(seed: int = 0) -> World:
    """A world without weather."""
    return World(seed, flakiness=0.0)


def world_where(job: Job, need: str) -> World:
    """The first world in which `need` holds back `job`."""
    return next(world for world in map(still, range(200)) if need in world.needs(job))


def follow(environment: Environment) -> list[Reply]:
    replies = []
    while not environment.done:
        replies.append(environment.perform(environment.solve()))
    return replies


def working_call(environment: Environment, job: Job) -> Call:
    value = next(value for value in job.values if not environment.world.refuses(job, value))
    return next(call for call in environment.step.attempts if call.arguments[job.choice] == value)


@given(seed=SEEDS, number=st.integers(0, 23), session=SEEDS)
def test_every_task_can_be_solved_within_its_budget_and_in_still_weather_without_an_error(
    seed: int, number: int, session: int
) -> None:
    world = still(seed)
    environment = world.open(world.tasks[number], session)
    replies = follow(environment)
    assert environment.succeeded
    assert not any(reply.failed for reply in replies)


@given(seed=SEEDS, session=SEEDS)
def test_weather_depends_on_the_place_in_the_session_and_not_on_what_was_done_before(seed: int, session: int) -> None:
    def storms(call_first: bool) -> list[bool | None]:
        world = World(seed, domains=["api"], flakiness=0.5)
        environment = world.open(world.tasks[0], session)
        seen: list[bool | None] = []
        for _ in range(environment.budget - len(environment.task.jobs)):
            step = environment.step
            # The world refuses an unknown value, so the state never changes; the other run prepares all it can.
            if call_first and environment.calls % 2 == 0:
                environment.perform(step.preparations[environment.calls % len(step.preparations)])
                seen.append(None)
            else:
                bad = Call(step.attempts[0].tool, step.attempts[0].arguments | {"customer": "none"})
                seen.append(environment.perform(bad).fault == NETWORK)
        return seen

    plain, prepared = storms(False), storms(True)
    assert all(one == other for one, other in zip(plain, prepared, strict=True) if other is not None)


def test_weather_comes_at_the_stated_rate_and_never_over_local_tools() -> None:
    networked = {World(5).tool(job.tool) for job in JOBS if job.networked}
    calls = [step for session in rollouts(5, 300) for step in session["steps"]]
    storms = [call for call in calls if call["error_type"] in {fault.kind for fault in CATALOGUE.flaky}]
    assert {call["tool"] for call in storms} <= networked
    rate = len(storms) / sum(call["tool"] in networked for call in calls)
    assert 0.02 < rate < 0.06


@pytest.mark.parametrize(
    ("job", "need"),
    [(job, need) for job in JOBS for need in job.needs],
    ids=lambda value: getattr(value, "tool", value),
)
def test_a_precondition_holds_a_job_back_until_the_remedy_that_helps(job: Job, need: str) -> None:
    world = world_where(job, need)
    environment = world.open(Task("one", (job,) * 4), 1)
    precondition = CATALOGUE.preconditions[need]
    failures = []
    while not environment.done:
        reply = environment.perform(working_call(environment, job))
        if reply.failed:
            failures.append(reply)
            environment.perform(environment.solve())
    assert environment.succeeded
    held_back = [reply for reply in failures if reply.fault == f"{world.tool(job.tool)}:{need}"]
    assert held_back, "the precondition never held the job back"
    assert {reply.error_type for reply in held_back} == {precondition.fault.kind}


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.tool)
def test_a_refused_value_fails_with_the_tools_own_error_and_changes_nothing(job: Job) -> None:
    world = next(w for w in map(still, range(200)) if not w.needs(job) and any(w.refuses(job, v) for v in job.values))
    environment = world.open(Task("one", (job,)), 3)
    refused = next(value for value in job.values if world.refuses(job, value))
    call = next(call for call in environment.step.attempts if call.arguments[job.choice] == refused)
    reply = environment.perform(call)
    assert (reply.error_type, reply.fault) == (job.refusal.kind, f"{call.tool}:{job.choice}")
    assert environment.reached == 0
    assert not environment.perform(working_call(environment, job)).failed
    assert environment.succeeded


def test_a_preparation_that_does_not_help_leaves_the_job_held_back() -> None:
    job = next(job for job in JOBS if job.tool.startswith("cloud_deploy"))
    world = world_where(job, "cloud-login")
    environment = world.open(Task("three", (job,) * 3), 1)
    helping = environment.solve()
    for call in environment.step.preparations:
        if call != helping:
            environment.perform(call)
            assert environment.perform(working_call(environment, job)).fault == f"{world.tool(job.tool)}:cloud-login"
    environment.perform(helping)
    environment.perform(working_call(environment, job))
    assert environment.reached == 1


def test_a_remedy_with_limited_uses_wears_off() -> None:
    job = next(job for job in JOBS if job.needs == ("rate-limit",))
    world = world_where(job, "rate-limit")
    environment = world.open(Task("four", (job,) * 4), 1)
    faults = []
    while not environment.done:
        reply = environment.perform(working_call(environment, job))
        if reply.failed:
            faults.append(environment.reached)
            environment.perform(environment.solve())
    assert faults == [1, 3]


def test_success_needs_every_subgoal_for_the_right_thing() -> None:
    job = next(job for job in JOBS if job.tool.startswith("file_write"))
    world = next(world for world in map(still, range(200)) if not world.needs(job))
    environment = world.open(Task("two", (job, job)), 1)
    call = working_call(environment, job)
    elsewhere = Call(call.tool, call.arguments | {"path": "/tmp/elsewhere.toml"})
    assert not environment.perform(elsewhere).failed
    assert environment.reached == 0
    environment.perform(call)
    assert environment.reached == 1
    environment.perform(working_call(environment, job))
    assert environment.succeeded
    assert environment.reached == 2


def test_a_session_ends_unsuccessfully_when_its_budget_is_spent() -> None:
    world = still(0)
    environment = world.open(world.tasks[0], 1)
    while not environment.done:
        environment.perform(Call("no_such_tool", {}))
    assert not environment.succeeded
    assert environment.calls == environment.budget
    with pytest.raises(RuntimeError, match="done"):
        _ = environment.step
    with pytest.raises(RuntimeError, match="done"):
        environment.perform(Call("no_such_tool", {}))


def test_unknown_tools_and_wrong_arguments_are_errors_of_their_own() -> None:
    world = still(0)
    environment = world.open(world.tasks[0], 1)
    assert environment.perform(Call("no_such_tool", {})).error_type == "UnknownTool"
    attempt = environment.step.attempts[0]
    reply = environment.perform(Call(attempt.tool, attempt.arguments | {"speed": 9}))
    assert (reply.error_type, "speed" in (reply.error_message or "")) == ("TypeError", True)


def test_error_texts_of_one_rule_vary_from_call_to_call() -> None:
    job = next(job for job in JOBS if job.needs == ("api-login",))
    environment = world_where(job, "api-login").open(Task("two", (job,) * 2), 1)
    texts = {environment.perform(working_call(environment, job)).error_message for _ in range(8)}
    assert len(texts) == 8


def test_worlds_of_other_seeds_have_other_rules_and_domains_can_be_chosen() -> None:
    rules = {tuple(repr(world.helps(need)) for need in CATALOGUE.preconditions) for world in map(still, range(20))}
    assert len(rules) > 15
    world = World(3, domains=["git"])
    assert {job.tool for task in world.tasks for job in task.jobs} <= {job.tool for job in CATALOGUE.domains["git"]}
    assert [world.needs(job) for job in CATALOGUE.domains["git"]] == [
        World(3).needs(job) for job in CATALOGUE.domains["git"]
    ]
    with pytest.raises(KeyError, match="astronomy"):
        World(0, domains=["astronomy"])


def test_rollouts_are_plain_reproducible_data_with_both_outcomes() -> None:
    sessions = list(rollouts(7, 120))
    assert sessions == list(islice(rollouts(7, 500), 120))
    assert sessions != list(rollouts(7, 120, seed=1))
    assert json.loads(json.dumps(sessions)) == sessions
    share = sum(session["outcome"] == "success" for session in sessions) / len(sessions)
    assert 0.3 < share < 0.9
    tools = {step["tool"] for session in sessions for step in session["steps"]}
    assert len(tools) >= 20
