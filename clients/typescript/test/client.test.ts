/** The client against a real relay, whose address and knowledge the environment gives: see test_typescript.py. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "vitest";

import { CallHeld, Relay } from "../src/index.js";

const url = process.env["FLEETLORE_RELAY"] ?? "http://127.0.0.1:7411";
const search = (given: { index: string }): string => {
  if (given.index === "products") throw new TypeError("index products does not exist");
  return "three chairs";
};

test("calls are recorded, the one that threw too", async () => {
  const relay = new Relay({ url, agent: "recorder" });
  const session = relay.session({ goal: "find a chair", task: "shop", id: "ts-recorded", place: "eu" });
  session.message("user", "find a chair");
  await assert.rejects(session.call("lookup", { index: "products" }, search), TypeError);
  assert.equal(await session.call("lookup", { index: "products-eu" }, search), "three chairs");
  assert.equal(await session.succeed(1), true);
  session.message("user", "too late");
  await relay.close();
  assert.equal(relay.dropped, 0);
});

test("a call that is sure to fail is held once, and the model is told before", async () => {
  const relay = new Relay({ url, agent: "told" });
  const session = relay.session({ goal: "find a chair" });
  const prompt = await session.prompt(["search"]);
  assert.match(prompt, /Use `index=products-eu`/);
  assert.equal(await session.prompt(["search"]), prompt);
  await assert.rejects(session.call("search", { index: "products" }, search), (error: Error) => {
    assert.ok(error instanceof CallHeld);
    return error.message.includes("products-eu") && error.message.includes("not made");
  });
  await assert.rejects(session.call("search", { index: "products" }, search), TypeError);
  const advice = await relay.session({ goal: "another" }).advise("search", { index: "products" });
  assert.deepEqual(advice.call, { index: "products-eu" });
  await session.fail();
  await relay.close();
});

test("what a relay had taken when it was killed is sent to the next one", async () => {
  let process = "first";
  let stored = false;
  const taken: Record<string, number[]> = { first: [], second: [] };
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (part) => (body += part));
    request.on("end", () => {
      taken[process]!.push(...(JSON.parse(body) as { sequence: number }[]).map((each) => each.sequence));
      response.writeHead(202).end(JSON.stringify({ stored, relay: process }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const relay = new Relay({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
  const session = relay.session({ goal: "g" });
  session.message("user", "hello");
  assert.equal(await relay.flush(200), false, "taken is not stored");
  [process, stored] = ["second", true];
  session.message("user", "again");
  assert.equal(await relay.flush(5_000), true);
  assert.deepEqual([...new Set(taken["first"])], [0, 1]);
  assert.deepEqual([...new Set(taken["second"])].sort(), [0, 1, 2]);
  await relay.close();
  assert.equal(relay.dropped, 0);
  server.close();
});

test("who always has something to send still learns what is stored", async () => {
  const server = createServer((request, response) => {
    request.resume().on("end", () => setTimeout(() => response.writeHead(202).end('{"stored":true,"relay":"r"}'), 20));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const relay = new Relay({ url, maxBuffered: 400 });
  const session = relay.session({ goal: "g" });
  for (let sent = 0; sent < 600; sent += 2) {
    for (const word of ["one", "two"]) session.message("user", word);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  assert.equal(relay.dropped, 0);
  await relay.close();
  server.close();
});

test("a relay that is away, full or mistaken loses nothing silently, and nobody waits", async () => {
  const taken = new Set<number>();
  const answers = [503, 429, 202, 400, 202, 400];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (part) => (body += part));
    request.on("end", () => {
      const events = JSON.parse(body) as { sequence: number }[];
      const status = events.length === 0 ? 202 : (answers.shift() ?? 202);
      if (status === 202) events.forEach((each) => taken.add(each.sequence));
      response.writeHead(status, { "retry-after": "0" }).end('{"stored":true,"relay":"r"}');
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const relay = new Relay({ url: address, maxBuffered: 3 });
  const session = relay.session({ goal: "g" });
  for (let number = 0; number < 5; number += 1) session.message("user", `${number}`);
  assert.equal(relay.dropped, 3, "what does not fit is counted");
  assert.equal(await relay.flush(), true);
  assert.deepEqual([...taken], [0, 1, 2]);
  session.message("user", "good");
  session.message("user", "bad");
  await relay.flush();
  assert.deepEqual([...taken], [0, 1, 2, 3], "beside one that is refused the others are taken");
  assert.equal(relay.dropped, 4);
  server.close();
  const away = new Relay({ url: "http://127.0.0.1:1", timeoutMs: 100 });
  const begun = performance.now();
  assert.equal(await away.session({ goal: "g" }).call("search", { index: "eu" }, search), "three chairs");
  assert.ok(performance.now() - begun < 5_000);
  await away.close(50);
  assert.equal(away.dropped, 2);
});
