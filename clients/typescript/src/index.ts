/** Record what an agent does, and be told what its fleet knows, through `fleetlore relay`. */

import { randomUUID } from "node:crypto";

import type { components } from "./api.js";
import { plain, plainFields, textOf } from "./plain.js";

type Schemas = components["schemas"];
type Event = Schemas["CloudEvent"];
type Data = Record<string, unknown>;
export type Advice = Schemas["AdviceAnswer"];
export type Outcome = "success" | "failure" | "unknown";

export interface RelayOptions {
  /** Address of the relay; `http://127.0.0.1:7411` by default. */
  url?: string;
  /** Name of the agent; a token says it too. */
  agent?: string;
  token?: string;
  tenant?: string;
  /** How many events wait for the relay at the most. */
  maxBuffered?: number;
  /** How long advice is waited for; after that there is none. */
  timeoutMs?: number;
}

export interface SessionOptions {
  /** What is to be done, in words. */
  goal: string;
  /** Name of the kind of task; sessions of one task are compared. */
  task?: string;
  /** Where it acts: a database, a repository, a host. */
  place?: string;
  /** Unique in the tenant; made up by default. */
  id?: string;
}

/** A call that was not made, for it is sure to fail: give the message to the model as its answer. */
export class CallHeld extends Error {
  override name = "CallHeld";
}

const SILENCE: Advice = { text: "", introduction: "", tips: [], risk: null, sure: false, held: false, call: null };
const BATCH = 256;
const MOST_WAIT_MS = 5_000;
const STORE_SECONDS = 4; // of them, for the relay's broker
/** What the relay will never take, however often it is sent. */
const REFUSED = new Set([400, 403, 413]);

/** An agent's connection to a relay. It holds no socket; `close` sends what waits. */
export class Relay {
  /** Events that were given up: the buffer was full, or the relay refused them. */
  dropped = 0;
  /** What the relay said of the last one that it refused. */
  refusal = "";
  readonly #options: Required<Pick<RelayOptions, "url" | "maxBuffered" | "timeoutMs">>;
  readonly #headers: Record<string, string>;
  /** What the broker is not known to have; the first `#taken` of them the relay has, of the process `#process`. */
  #waiting: Event[] = [];
  #taken = 0;
  #process = "";
  #sending: Promise<void> | undefined;
  #storing: Promise<void> | undefined;
  #closed = false;
  #away = false;

  constructor(options: RelayOptions = {}) {
    const url = (options.url ?? "http://127.0.0.1:7411").replace(/\/+$/, "");
    this.#options = { maxBuffered: 10_000, timeoutMs: 1_000, ...options, url };
    this.#headers = { "content-type": "application/json" };
    if (options.agent) this.#headers["fleetlore-agent"] = options.agent;
    if (options.token) this.#headers["fleetlore-token"] = options.token;
    if (options.tenant) this.#headers["fleetlore-tenant"] = options.tenant;
  }

  /** A new session: one attempt at a goal. */
  session(options: SessionOptions): Session {
    return new Session(this, options);
  }

  /** Wait until the broker has all events so far; false when the time is up. */
  async flush(timeoutMs = 2_000): Promise<boolean> {
    const until = performance.now() + timeoutMs;
    while (this.#waiting.length > 0 && performance.now() < until) {
      await within(Promise.all([this.#sending, this.#storing]), until - performance.now());
    }
    return this.#waiting.length === 0;
  }

  /** Send what waits within the limit; the rest counts as dropped. */
  async close(timeoutMs = 2_000): Promise<void> {
    await this.flush(timeoutMs);
    this.#closed = true;
    this.dropped += this.#waiting.length;
    [this.#waiting, this.#taken] = [[], 0];
  }

  /** @internal False where the buffer is full: the event is dropped, and its number is free. */
  emit(event: Event): boolean {
    if (this.#closed || this.#waiting.length >= this.#options.maxBuffered) {
      this.dropped += 1;
      return false;
    }
    this.#waiting.push(event);
    this.#begin();
    return true;
  }

  /** @internal What the relay answers; undefined where it does not, in time. */
  async ask(path: string, body: object): Promise<Advice | undefined> {
    if (this.#away) return undefined; // until it takes what waits nothing is waited for
    await within(this.#sending, this.#options.timeoutMs); // it tells by what it was told
    try {
      const answer = await this.#post(path, body, this.#options.timeoutMs);
      return answer.ok ? ((await answer.json()) as Advice) : undefined;
    } catch {
      return undefined;
    }
  }

  #post(path: string, body: object, timeoutMs: number): Promise<Response> {
    const signal = AbortSignal.timeout(timeoutMs);
    return fetch(this.#options.url + path, { method: "POST", headers: this.#headers, body: JSON.stringify(body), signal });
  }

  #begin(): void {
    this.#sending ??= this.#send();
    this.#storing ??= this.#store();
  }

  /** Give the relay what it has not taken. */
  async #send(): Promise<void> {
    await Promise.resolve(); // what is emitted at once goes together
    for (let tries = 0, most = BATCH; this.#taken < this.#waiting.length; ) {
      const batch = this.#waiting.slice(this.#taken, this.#taken + most);
      const answer = await this.#say(batch, 0);
      if (answer?.ok) {
        [tries, most] = [0, BATCH];
        if (answer.same) this.#taken += batch.length;
      } else if (answer && REFUSED.has(answer.status) && (batch.length === 1 || answer.status === 403)) {
        this.refusal = answer.text;
        this.dropped += batch.length;
        this.#waiting.splice(this.#taken, batch.length);
      } else if (answer && REFUSED.has(answer.status)) {
        most = 1; // all but the culprit
      } else {
        tries += 1;
        await pause(Math.max(answer?.retryMs ?? 0, Math.min(MOST_WAIT_MS, 50 * 2 ** tries)));
      }
    }
    this.#sending = undefined;
  }

  /** Keep what the relay has taken until the broker has it: the relay's own buffer ends with its process. */
  async #store(): Promise<void> {
    while (this.#waiting.length > 0) {
      await within(this.#sending, 50); // who always sends has to ask too
      const count = this.#taken;
      const answer = count > 0 ? await this.#say([], STORE_SECONDS) : undefined;
      if (answer?.same && answer.stored) {
        this.#waiting.splice(0, count);
        this.#taken -= count;
      } else if (!answer?.ok) await pause(50);
      if (this.#taken < this.#waiting.length) this.#sending ??= this.#send();
    }
    this.#storing = undefined;
  }

  /** What the relay answers to events; undefined where it is away. Another process of it is sent all of them again. */
  async #say(events: Event[], seconds: number) {
    const asked = this.#process;
    try {
      const answer = await this.#post(`/v1/events?wait=${seconds}`, events, MOST_WAIT_MS);
      const [text, retryMs] = [await answer.text(), Number(answer.headers.get("retry-after") ?? 0) * 1_000];
      this.#away = false;
      if (!answer.ok) return { ok: false, status: answer.status, text, retryMs, same: false, stored: false };
      const { relay = "", stored = false } = JSON.parse(text) as { relay?: string; stored?: boolean };
      if (this.#process !== asked) return { ok: true, status: answer.status, text, retryMs, same: false, stored };
      const same = relay === asked || asked === "";
      if (!same) this.#taken = 0;
      this.#process = relay;
      return { ok: true, status: answer.status, text, retryMs, same, stored };
    } catch {
      this.#away = true;
      return undefined;
    }
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms).unref());
}

async function within(done: Promise<unknown> | undefined, timeoutMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, timeoutMs)));
  await Promise.race([done, late]);
  clearTimeout(timer);
}

/** One attempt at a goal. What it records is sent in the background; what it asks is empty where nothing is known. */
export class Session {
  readonly id: string;
  readonly #relay: Relay;
  readonly #about: { session: string; goal: string; task: string; place: string };
  #sequence = 0;
  #prompt: string | undefined;
  #ended = false;

  /** @internal */
  constructor(relay: Relay, { goal, task = "", place = "", id = randomUUID() }: SessionOptions) {
    this.#relay = relay;
    this.id = id;
    this.#about = { session: id, goal, task, place };
    const told = { "fleetlore.goal": goal, "fleetlore.task": task, ...(place && { "fleetlore.place": place }) };
    this.#emit("session.started", told);
  }

  /** What to tell a model before it chooses a call of these tools. */
  async brief(tools: string[] = []): Promise<Advice> {
    return (await this.#relay.ask("/v1/brief", { ...this.#about, tools })) ?? SILENCE;
  }

  /** For the system message: how to read advice, and the brief. The same text each time, as prompts are cached. */
  async prompt(tools: string[] = []): Promise<string> {
    if (this.#prompt === undefined) {
      const { introduction, text } = await this.brief(tools);
      this.#prompt = [introduction, text].filter(Boolean).join("\n\n");
    }
    return this.#prompt;
  }

  /** What the fleet knows of a call that is about to be made; without one, of the session, as after a failure. */
  async advise(tool?: string, given?: unknown, callId = ""): Promise<Advice> {
    const asked = { ...this.#about, tool: tool ?? null, arguments: plain(given), call_id: callId };
    return (await this.#relay.ask("/v1/advise", asked)) ?? SILENCE;
  }

  /**
   * Make a call and record how it ended. What it throws passes through, recorded.
   *
   * @throws {CallHeld} once, in place of a call that is sure to fail.
   */
  async call<Given, Result>(tool: string, given: Given, make: (given: Given) => Promise<Result> | Result): Promise<Result> {
    const asked = { ...this.#about, tool, arguments: plain(given), hold: true };
    const advice = (await this.#relay.ask("/v1/advise", asked)) ?? SILENCE;
    if (advice.held) throw new CallHeld(advice.text);
    const begun = performance.now();
    try {
      const result = await make(given);
      this.record(tool, given, { result, seconds: (performance.now() - begun) / 1_000 });
      return result;
    } catch (error) {
      this.record(tool, given, { error, seconds: (performance.now() - begun) / 1_000 });
      throw error;
    }
  }

  /** Record a call that is over; `error` is what it threw, or the text of its failure. */
  record(tool: string, given: unknown, ended: { result?: unknown; error?: unknown; seconds?: number; callId?: string }): void {
    const data: Data = { "gen_ai.tool.name": tool, "gen_ai.tool.call.arguments": given ?? null };
    if (ended.callId) data["gen_ai.tool.call.id"] = ended.callId;
    if (ended.seconds !== undefined) data["fleetlore.duration_seconds"] = ended.seconds;
    if (ended.error instanceof Error) {
      data["error.type"] = ended.error.name;
      data["error.message"] = ended.error.message;
    } else if (ended.error !== undefined) data["error.message"] = textOf(ended.error);
    else data["gen_ai.tool.call.result"] = ended.result ?? null;
    this.#emit("outcome", data);
  }

  /** Record what a person or the model said between two calls. */
  message(role: string, content: string): void {
    this.#emit("message", { "fleetlore.role": role, "fleetlore.content": content });
  }

  /** Say that the goal was reached; `reward` where the environment gave one. */
  succeed(reward?: number): Promise<boolean> {
    return this.end("success", reward);
  }

  /** Say that the goal was missed. */
  fail(reward?: number): Promise<boolean> {
    return this.end("failure", reward);
  }

  /** End the session, once, and wait for the broker to have all events; false where it has not within two seconds. */
  async end(outcome: Outcome = "unknown", reward?: number): Promise<boolean> {
    const data: Data = { "fleetlore.outcome": outcome, ...(reward !== undefined && { "fleetlore.reward": reward }) };
    if (!this.#ended) this.#emit("session.ended", data);
    this.#ended = true;
    return this.#relay.flush();
  }

  #emit(kind: string, data: Data): void {
    const about = { specversion: "1.0", type: `ai.fleetlore.${kind}.v1`, session: this.id, sequence: this.#sequence };
    const event = { ...about, time: new Date().toISOString(), data: plainFields(data) } as Event;
    if (!this.#ended && this.#relay.emit(event)) this.#sequence += 1;
  }
}
