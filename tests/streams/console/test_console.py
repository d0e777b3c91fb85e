"""The page as a user opens it: the command beside a real stack, in a real browser."""

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import pytest_asyncio

import fleetlore
from streams.embedded.stack import Stack

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# A browser that reaches out to its maker at every start only waits where it cannot.
SWITCHES = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]

pytestmark = pytest.mark.long
# These tests share one stack.
sharing = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    async with Stack(tmp_path_factory.mktemp("stack"), trainer=False, console_port=0) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def browser() -> AsyncIterator[Any]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
    async with playwright.async_playwright() as driver:
        running = await driver.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield running
        await running.close()


async def fail(stack: Stack, error: str, tool: str = "sql") -> str:
    """A session of a new agent in which a call fails; its id."""
    async with fleetlore.Fleet("probe", data=stack.data) as fleet:
        async with fleet.session(goal="count the cars") as session:
            with pytest.raises(RuntimeError):
                async with session.action(tool, {"query": "SELECT 1 FROM cars"}):
                    raise RuntimeError(error)
            session.fail()
        return session.id


async def page(stack: Stack, path: str = "") -> str:
    def get() -> str:
        with urlopen(stack.console + path, timeout=5) as response:
            return str(response.read().decode())

    return await asyncio.to_thread(get)


async def until_shown(stack: Stack, text: str, path: str = "", seconds: float = 60.0) -> str:
    async with asyncio.timeout(seconds):
        while True:
            try:
                shown = await page(stack, path)
            except OSError:  # it has not started yet, or no such page yet
                shown = ""
            if text in shown:
                return shown
            await asyncio.sleep(0.1)


@sharing
async def test_what_an_agent_met_is_on_the_page_and_leads_to_its_session(stack: Stack) -> None:
    session = await fail(stack, "no such table: cars")
    await until_shown(stack, "no such table: cars")
    shown = await until_shown(stack, "count the cars", f"sessions/{session}")
    assert "probe" in shown and "SELECT 1 FROM cars" in shown
    assert "1 of 1 answer" in await until_shown(stack, "1 of 1 answer")


def test_a_taken_port_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run = subprocess.run(
            [sys.executable, "-m", "fleetlore.cli.main", "console", "--broker", "127.0.0.1:1", "--port", str(port)],
            capture_output=True,
            text=True,
        )
    assert run.returncode == 1
    assert (
        run.stderr
        == f"fleetlore: 127.0.0.1:{port} cannot be listened on: Address already in use; choose another port\n"
    )


def test_a_given_token_is_asked_for_and_not_printed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("of-a-secret\n")
    command = ["console", "--broker", "127.0.0.1:1", "--host", "0.0.0.0", "--port", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "fleetlore.cli.main", *command],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "FLEETLORE_CONSOLE_TOKEN_FILE": str(file)},
    ) as served:
        try:
            assert served.stdout is not None
            said = served.stdout.readline()
            port = re.fullmatch(r"console http://127\.0\.0\.1:(\d+)/\n", said)
            assert port, said
            address = f"http://127.0.0.1:{port[1]}/"
            with_token = Request(address, headers={"Authorization": "Bearer of-a-secret"})
            assert [status_of(each) for each in (address, with_token, address + "livez")] == [401, 200, 200]
        finally:
            served.terminate()


@sharing
async def test_a_browser_shows_a_failure_and_finds_no_fault(stack: Stack, browser: Any) -> None:
    await until_shown(stack, "Alive?")
    for scheme in ("light", "dark"):
        await _check(await browser.new_page(color_scheme=scheme), stack, scheme)
    abroad = await browser.new_page(timezone_id="Asia/Kathmandu", locale="en-GB")
    await abroad.goto(stack.console + "patterns")
    times = await abroad.evaluate("[...document.querySelectorAll('time')].map(each => [each.title, each.innerText])")
    assert times and all(in_kathmandu(utc) == shown for utc, shown in times), times
    narrow = await browser.new_page(viewport={"width": 390, "height": 800})
    for path, table in (("", "#block-breaks table"), ("patterns", "main > table")):
        await narrow.goto(stack.console + path)
        assert await narrow.evaluate("document.documentElement.scrollWidth") == 390
        row = f"{table} tbody th"
        await narrow.locator(row).first.wait_for()
        # In one step of the page: between two, news may put another block in the place of the one that was found.
        width = await narrow.evaluate("row => document.querySelector(row).getBoundingClientRect().width", row)
        assert width >= 200, "words are cut into letters"
        await clean(narrow)


@sharing
async def test_in_a_browser_a_pattern_is_revoked_and_an_agent_distrusted_and_both_undone(
    stack: Stack, browser: Any
) -> None:
    await fail(stack, "no such column: colour", "columns")
    shown = await browser.new_page(color_scheme="dark")
    await until_shown(stack, "no such column: colour", "patterns")
    await shown.goto(stack.console + "patterns")
    await shown.get_by_role("link", name="columns: RuntimeError").click()
    pattern = shown.url
    await shown.get_by_role("link", name="Revoke it").click()
    await decide(shown, "Revoke", "it misleads")
    await shown.get_by_text("it misleads").wait_for()
    await until_answer(pattern, 404)
    await clean(shown)
    await shown.get_by_role("link", name="Show pattern").click()
    await decide(shown, "Show", "it is right after all")
    await until_answer(pattern, 200)

    await until_shown(stack, "failure", "agents/probe")
    await shown.goto(stack.console + "agents/probe")
    await clean(shown)
    await shown.get_by_role("link", name="Distrust it").click()
    await decide(shown, "Distrust", "it lies")
    await until_shown(stack, "considered again", "decisions")
    await until_answer(pattern, 404)  # nobody else has met it
    await shown.goto(stack.console + "agents/probe")
    await shown.get_by_role("link", name="Trust it again").click()
    await decide(shown, "Trust", "it did not")
    await until_answer(pattern, 200)


def in_kathmandu(utc: str) -> str:
    there = datetime.strptime(utc, "%Y-%m-%d %H:%M:%S UTC") + timedelta(hours=5, minutes=45)
    return f"{there.day} {there:%b %Y, %H:%M:%S}"


async def get_past(stack: Stack, agent: str, *, asks: bool = False) -> str:
    """A session in which a call fails and another gets past it; the agent asks for advice between them if `asks`."""
    async with fleetlore.Fleet(agent, data=stack.data, holdout_share=0.0) as fleet:
        async with fleet.session(goal="count the makers", task="makers") as session:
            with pytest.raises(RuntimeError):
                async with session.action("shell", {"command": "pip instal numpy"}):
                    raise RuntimeError("ERROR: unknown command 'instal'")
            if asks:
                assert session.advise(), "nobody has told how to get past it"
            async with session.action("shell", {"command": "pip install numpy"}) as action:
                action.result = "Successfully installed"
            session.succeed()
        return session.id


@sharing
async def test_a_person_finds_what_broke_why_an_agent_was_told_and_how_to_take_it_back(
    stack: Stack, browser: Any
) -> None:
    """By links and words on the page alone, from its first page, each within a minute."""
    for agent in ("ann", "bob", "eve"):
        await get_past(stack, agent)
    await until_shown(stack, "unknown command", "items")
    session = await get_past(stack, "xaver", asks=True)
    await until_shown(stack, "Told", f"sessions/{session}")
    await until_shown(stack, "xaver", "agents")
    shown = await browser.new_page()
    shown.set_default_timeout(30_000)
    start = time.monotonic()
    await shown.goto(stack.console)
    await shown.get_by_role("link", name="Changes").click()
    await shown.get_by_role("heading", name="What changed in the last hour?").wait_for()
    await clean(shown)
    await shown.get_by_role("link", name="unknown command").first.click()
    await shown.get_by_text("Seen by").wait_for()
    assert time.monotonic() - start < 60
    start = time.monotonic()
    await shown.goto(stack.console)
    await shown.get_by_role("link", name="Agents").click()
    await shown.get_by_role("link", name="xaver").click()
    await shown.get_by_role("table").get_by_role("link").first.click()
    await shown.get_by_role("heading", name="Why it was shown what it was shown").wait_for()
    told = shown.locator(".hint", has_text="Told:").first
    assert "agents in" in await told.inner_text() and "Next:" in await told.inner_text()
    await clean(shown)
    assert time.monotonic() - start < 60
    start = time.monotonic()
    await told.get_by_role("link").click()
    item = shown.url
    # The keyboard alone is enough.
    await shown.get_by_role("link", name="Revoke it").focus()
    await shown.keyboard.press("Enter")
    await shown.wait_for_url("**/decide/**")
    await decide(shown, "Revoke", "it misleads")
    await until_shown(stack, "No agent is shown this item", item.removeprefix(stack.console))
    assert time.monotonic() - start < 60
    for path in ("tools", "changes?since=all", "sessions", "agents"):
        await shown.goto(stack.console + path)
        await clean(shown)


async def decide(shown: Any, action: str, why: str) -> None:
    await clean(shown)
    await shown.get_by_label("Why").fill(why)
    assert await shown.get_by_text("are kept with the decision").is_visible()  # with the name of this machine's user
    await shown.get_by_role("button", name=action).click()
    await shown.wait_for_url("**/decisions")


async def clean(shown: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.async_playwright", reason="axe is not installed").Axe()
    await shown.wait_for_load_state()  # without its style sheet a dark page has light links on white
    results = await axe.run(shown)
    assert results.violations_count == 0, results.generate_report()


def status_of(request: str | Request) -> int:
    try:
        with urlopen(request, timeout=10) as response:
            return int(response.status)
    except HTTPError as refused:
        with refused:
            return refused.code


async def until_answer(address: str, status: int) -> None:
    async with asyncio.timeout(60):
        while await asyncio.to_thread(status_of, address) != status:
            await asyncio.sleep(0.1)


async def _check(shown: Any, stack: Stack, scheme: str) -> None:
    said: list[str] = []
    shown.on("console", lambda message: said.append(message.text))
    await shown.goto(stack.console)
    await _seconds_until_shown(shown, stack, f"{scheme}_table")
    for path in ("", "patterns", "items"):
        await shown.goto(stack.console + path)
        await clean(shown)
    assert not said


@sharing
@pytest.mark.slow
async def test_a_browser_shows_a_failure_within_two_seconds(stack: Stack, browser: Any) -> None:
    await until_shown(stack, "Alive?")
    shown = await browser.new_page()
    await shown.goto(stack.console)
    times = [await _seconds_until_shown(shown, stack, f"table_{letter * 4}") for letter in "abcdefghij"]
    assert sorted(times)[8] < 2.0, times


async def _seconds_until_shown(shown: Any, stack: Stack, table: str) -> float:
    error = f"no such table: {table}"
    await fail(stack, error, f"sql_{table}")
    start = time.monotonic()
    await shown.get_by_text(error).first.wait_for(timeout=60_000)
    return time.monotonic() - start
