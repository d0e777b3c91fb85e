"""Run a command of `fleetlore` as its user does, in this process."""

import asyncio

from typer.testing import CliRunner, Result

from fleetlore.cli.app import build_app


def run(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(build_app(), list(arguments), env=environ)


async def run_beside(*arguments: str, **environ: str) -> Result:
    """On a thread, for the command has a loop of its own."""
    return await asyncio.to_thread(run, *arguments, **environ)
