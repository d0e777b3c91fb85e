/** An agent with a loop of its own: each call of its tool goes through the client, which may answer it instead. */

import OpenAI from "openai";
import type { ChatCompletionMessageParam, ChatCompletionTool } from "openai/resources/chat/completions";

import { CallHeld, Relay } from "../src/index.js";

const tools: ChatCompletionTool[] = [
  {
    type: "function",
    function: { name: "search", parameters: { type: "object", properties: { index: { type: "string" } } } },
  },
];

function search({ index }: { index: string }): string {
  console.log(index);
  if (index === "products") throw new Error("index products does not exist, it was split into products-eu and products-us");
  return "three chairs";
}

const goal = "find a chair";
const relay = new Relay({ url: process.env["FLEETLORE_RELAY"], agent: process.env["AGENT"] ?? "shop-7" });
const session = relay.session({ goal, task: "shop" });
const messages: ChatCompletionMessageParam[] = [
  { role: "system", content: await session.prompt(["search"]) },
  { role: "user", content: goal },
];
const client = new OpenAI();
for (;;) {
  const answer = await client.chat.completions.create({ model: process.env["MODEL"] ?? "gpt-5-nano", messages, tools });
  const message = answer.choices[0]!.message;
  messages.push(message);
  if (!message.tool_calls?.length) break;
  for (const call of message.tool_calls) {
    if (call.type !== "function") continue;
    let content: string;
    try {
      content = await session.call("search", JSON.parse(call.function.arguments) as { index: string }, search);
    } catch (error) {
      content = error instanceof CallHeld ? error.message : `${error}\n\n${(await session.advise()).text}`;
    }
    messages.push({ role: "tool", tool_call_id: call.id, content });
  }
}
await session.succeed();
await relay.close();
