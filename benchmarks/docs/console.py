"""Photograph the console while the demo's agents work beside it.

    python -m benchmarks.docs.console docs/guide/console

Needs Chromium. The pictures of the documentation show only what the page of a real stack showed.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, async_playwright

from benchmarks.demo.arms import FleetArm, Plan
from fleetlore.config import DEFAULT_TENANT
from streams.embedded.stack import Stack
from streams.offline.drain import wait_drained

PLAN = Plan(agents=16, sessions=2, stagger_seconds=0.2)
WIDTH, HEIGHT = 1280, 900
QUALITY = 80
MOST_BYTES = 150_000
DRAIN_SECONDS = 60.0
# The events of the last seconds are scraped, and the rate has a line.
SETTLE_SECONDS = 10.0


async def photograph(folder: Path) -> list[Path]:
    """Write `overview.webp` and `item.webp`; return the files.

    Raises:
        RuntimeError: Chromium is missing, or a picture is too large for a page.
    """
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise RuntimeError("chromium is not installed")
    with tempfile.TemporaryDirectory(prefix="fleetlore-console-") as data:
        async with Stack(Path(data), console_port=0) as stack, FleetArm(PLAN, Path(data), lambda: None) as arm:
            await arm.work()
            await wait_drained(stack.settings, DEFAULT_TENANT, DRAIN_SECONDS)
            await asyncio.sleep(SETTLE_SECONDS)
            async with async_playwright() as driver:
                browser = await driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                made = await _pages(browser, stack.console, folder)
                await browser.close()
                return made


async def _pages(browser: Browser, address: str, folder: Path) -> list[Path]:
    page = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    await page.goto(address)
    made = [await _save(page, folder / "overview.webp")]
    await page.locator("#block-learned tbody a").first.click()
    made.append(await _save(page, folder / "item.webp"))
    await page.close()
    return made


async def _save(page: Any, file: Path) -> Path:
    client = await page.context.new_cdp_session(page)
    taken = await client.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    picture = base64.b64decode(taken["data"])
    if len(picture) > MOST_BYTES:
        raise RuntimeError(f"{file.name} has {len(picture):,} bytes; a page takes at most {MOST_BYTES:,}")
    file.write_bytes(picture)
    return file


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for each in asyncio.run(photograph(Path(sys.argv[1]))):
        print(each)
