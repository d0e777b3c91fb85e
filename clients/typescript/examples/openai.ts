/** An agent on the official OpenAI SDK: what joins it to the fleet is the address. Run it behind `fleetlore relay`. */

import OpenAI from "openai";
import type { ChatCompletionMessageParam, ChatCompletionTool } from "openai/resources/chat/completions";

const client = new OpenAI({
  baseURL: `${process.env["FLEETLORE_RELAY"] ?? "http://127.0.0.1:7411"}/openai/v1`,
  defaultHeaders: { "Fleetlore-Agent": process.env["AGENT"] ?? "shop-7", "Fleetlore-Task": "shop" },
});

const tools: ChatCompletionTool[] = [
  {
    type: "function",
    function: { name: "search", parameters: { type: "object", properties: { index: { type: "string" } } } },
  },
];

function search(index: string): string {
  if (index === "products") throw new Error("index products does not exist, it was split into products-eu and products-us");
  return "three chairs";
}

const messages: ChatCompletionMessageParam[] = [{ role: "user", content: "find a chair" }];
for (;;) {
  const answer = await client.chat.completions.create({ model: process.env["MODEL"] ?? "gpt-5-nano", messages, tools });
  const message = answer.choices[0]!.message;
  messages.push(message);
  if (!message.tool_calls?.length) break;
  for (const call of message.tool_calls) {
    if (call.type !== "function") continue;
    const { index } = JSON.parse(call.function.arguments) as { index: string };
    let content: string;
    try {
      content = search(index);
    } catch (error) {
      content = String(error); // "Error: …"
    }
    console.log(index, content);
    messages.push({ role: "tool", tool_call_id: call.id, content });
  }
}
