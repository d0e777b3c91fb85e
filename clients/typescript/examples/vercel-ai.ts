/** An agent on the Vercel AI SDK: what joins it to the fleet is the address. Run it behind `fleetlore relay`. */

import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, tool } from "ai";
import { z } from "zod";

const openai = createOpenAI({
  baseURL: `${process.env["FLEETLORE_RELAY"] ?? "http://127.0.0.1:7411"}/openai/v1`,
  headers: { "Fleetlore-Agent": process.env["AGENT"] ?? "shop-7", "Fleetlore-Task": "shop" },
});

function find(index: string): string {
  console.log(index);
  if (index === "products") throw new Error("index products does not exist, it was split into products-eu and products-us");
  return "three chairs";
}

const search = tool({
  description: "Search an index.",
  inputSchema: z.object({ index: z.string() }),
  execute: ({ index }) => {
    try {
      return find(index);
    } catch (error) {
      // The SDK gives a model the bare message; "Error: …" says to everyone who reads it that the call failed.
      throw new Error(String(error));
    }
  },
});

const { text } = await generateText({
  model: openai.chat(process.env["MODEL"] ?? "gpt-5-nano"),
  tools: { search },
  stopWhen: stepCountIs(6),
  prompt: "find a chair",
});
console.log(text);
