// Vercel's ai: openai(NAME) by default (the responses API); variants `chat` and `compatible`.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embed, generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import * as cases from "./cases.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const settings = { baseURL: cases.baseURL, apiKey: cases.apiKey };
const openai = createOpenAI(settings);
const compatible = createOpenAICompatible({ name: "scripted", supportsStructuredOutputs: true, ...settings });
const models = { chat: openai.chat, compatible: compatible.chatModel };
const choose = models[cases.variant] ?? openai;
const model = choose(cases.model);
const maxRetries = 0;
const multiply = tool({
  description: "Multiplies two numbers.",
  inputSchema: z.object({ a: z.number().int(), b: z.number().int() }),
  execute: async ({ a, b }) => String(a * b),
});

const ask = async (prompt, name = cases.model) =>
  (await generateText({ model: choose(name), prompt, maxRetries })).text;

async function* stream(prompt) {
  const { fullStream } = streamText({ model, prompt, maxRetries, onError: () => {} });
  for await (const part of fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") yield part.text;
  }
}

async function callTool(prompt) {
  const tools = { multiply };
  return (await generateText({ model, prompt, tools, stopWhen: stepCountIs(3), maxRetries })).text;
}

async function parse(prompt) {
  const output = Output.object({ schema: z.object({ answer: z.number().int() }) });
  return (await generateText({ model, prompt, output, maxRetries })).output.answer;
}

async function other() {
  const provider = cases.variant === "compatible" ? compatible : openai;
  const name = "text-embedding-3-small";
  const { embedding } = await embed({ model: provider.textEmbeddingModel(name), value: "hello", maxRetries });
  return { facts: { embedding: embedding.map((x) => x.toFixed(4)) } };
}

await cases.run({
  plain: () => cases.askAll(ask),
  stream: () => cases.readStreams(stream),
  tools: () => cases.askAll(callTool, cases.called),
  structured: () => cases.askAll(parse, cases.typed),
  errors: () => cases.collectErrors((text) => ask(text, cases.failing)),
  "at once": () => cases.askAtOnce(ask),
  "other routes": other,
});
