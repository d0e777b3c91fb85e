/** Write and judge hints of persons through `fleetlore relay`, with a token that its `--tokens` calls an operator's. */

import type { components } from "./api.js";

type Schemas = components["schemas"];
export type Decision = Schemas["Decision"];
export type Draft = Schemas["Draft"];
export type HintsAnswer = Schemas["HintsAnswer"];
export type Judgment = Schemas["JudgeRequest"]["judgment"];

export interface HintsOptions {
  /** Address of the relay; `http://127.0.0.1:7411` by default. */
  url?: string;
  token: string;
  timeoutMs?: number;
}

export class Hints {
  readonly #options: Required<HintsOptions>;

  constructor({ url = "http://127.0.0.1:7411", token, timeoutMs = 15_000 }: HintsOptions) {
    this.#options = { url: url.replace(/\/+$/, ""), token, timeoutMs };
  }

  /** The hints that agents are shown, and the learned lessons that wait for a person. */
  list(): Promise<HintsAnswer> {
    return this.#ask<HintsAnswer>("GET", "/v1/hints");
  }

  /** Write a hint; with an id, change it or correct a memory item. */
  write(draft: Draft): Promise<Decision> {
    return this.#ask<Decision>("POST", "/v1/hints", draft);
  }

  /** Approve, reject or expire a hint or a learned lesson. To approve, give the `wording` that `list` named for it. */
  judge(id: string, judgment: Judgment, why: string, wording = ""): Promise<Decision> {
    return this.#ask<Decision>("POST", `/v1/hints/${encodeURIComponent(id)}/judge`, { judgment, why, wording });
  }

  /** @throws {Error} with the relay's reason, where it refuses. */
  async #ask<Answer>(method: string, path: string, body?: object): Promise<Answer> {
    const { url, token, timeoutMs } = this.#options;
    const answer = await fetch(url + path, {
      method,
      headers: { "content-type": "application/json", "fleetlore-token": token },
      signal: AbortSignal.timeout(timeoutMs),
      ...(body && { body: JSON.stringify(body) }),
    });
    const told: unknown = await answer.json();
    if (!answer.ok) throw new Error((told as Schemas["Problem"]).detail);
    return told as Answer;
  }
}
