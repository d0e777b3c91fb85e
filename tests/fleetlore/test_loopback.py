"""An endpoint refuses requests of web pages in a local browser and serves programs."""

import httpx2
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from fleetlore.loopback import past_proxies, without_pages
from tests.rows import for_each


@for_each(
    "environ, spared",
    ({}, "localhost,127.0.0.1,::1"),
    ({"no_proxy": "corp.example"}, "corp.example,localhost,127.0.0.1,::1"),
    ({"NO_PROXY": "corp.example,127.0.0.1", "no_proxy": ""}, "corp.example,127.0.0.1,localhost,::1"),
    ({"no_proxy": "*"}, "*"),
)
def test_no_proxy_is_asked_for_this_machine(environ: dict[str, str], spared: str) -> None:
    assert past_proxies(environ) == {"no_proxy": spared, "NO_PROXY": spared}


@for_each(
    "headers, status",
    ({}, 200),
    *(({"origin": each}, 200) for each in ("http://localhost:6274", "http://127.0.0.1:4318")),
    *(({"origin": each}, 403) for each in ("https://evil.example", "http://rebound.example:4318", "null")),
    ({"origin": "http://localhost.evil.example"}, 403),
    *(({"host": each}, 200) for each in ("127.0.0.1", "127.0.0.1:7411", "localhost:7411", "LOCALHOST")),
    *(({"host": each}, 200) for each in ("[::1]", "[::1]:7411")),
    *(({"host": each}, 421) for each in ("evil.example", "evil.example:7411", "127.0.0.1.nip.io")),
    *(({"host": each}, 421) for each in ("localhost.evil.example", "0.0.0.0", "[::1", "")),
    ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
    ({"sec-fetch-site": "Cross-Site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, 403),
    ({"sec-fetch-site": "cross-site", "origin": "https://evil.example"}, 403),
    ({"sec-fetch-site": "same-origin", "origin": "https://evil.example"}, 403),
    ({"sec-fetch-site": "cross-site", "origin": "http://localhost:3000"}, 200),
    ({"sec-fetch-site": "same-site"}, 200),
    ({"sec-fetch-site": "same-origin"}, 200),
    ({"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}, 200),
)
async def test_requests_of_other_sites_and_by_other_names_are_refused(headers: dict[str, str], status: int) -> None:
    app = without_pages(Starlette(routes=[Route("/", lambda _: PlainTextResponse("served"))]))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1") as client:
        answer = await client.get("/", headers=headers)
    assert answer.status_code == status
    assert (answer.text == "served") == (status == 200)
