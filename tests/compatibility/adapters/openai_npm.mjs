// openai from npm: chat completions, or with the variant `responses` the responses API.
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import * as cases from "./cases.mjs";

const client = new OpenAI({ baseURL: cases.baseURL, apiKey: cases.apiKey, maxRetries: 0 });
const { model } = cases;
const Product = z.object({ answer: z.number().int() });
const numbers = { a: { type: "integer" }, b: { type: "integer" } };
const multiply = {
  name: "multiply",
  description: "Multiplies two numbers.",
  parameters: { type: "object", properties: numbers, required: ["a", "b"], additionalProperties: false },
  strict: true,
};
const product = (text) => {
  const { a, b } = JSON.parse(text);
  return String(a * b);
};
const user = (content) => [{ role: "user", content }];

const chat = {
  ask: async (text, name = model) =>
    (await client.chat.completions.create({ model: name, messages: user(text) })).choices[0].message.content,
  async *stream(text) {
    const chunks = await client.chat.completions.create({ model, messages: user(text), stream: true });
    for await (const chunk of chunks) yield chunk.choices[0]?.delta?.content ?? "";
  },
  async callTool(text) {
    const messages = user(text);
    const tools = [{ type: "function", function: multiply }];
    const { message } = (await client.chat.completions.create({ model, messages, tools })).choices[0];
    const [call] = message.tool_calls;
    messages.push(message, { role: "tool", tool_call_id: call.id, content: product(call.function.arguments) });
    return (await client.chat.completions.create({ model, messages, tools })).choices[0].message.content;
  },
  async parse(text) {
    const response_format = zodResponseFormat(Product, "product");
    const reply = await client.chat.completions.parse({ model, messages: user(text), response_format });
    return reply.choices[0].message.parsed.answer;
  },
};

const responses = {
  ask: async (text, name = model) => (await client.responses.create({ model: name, input: text })).output_text,
  async *stream(text) {
    for await (const event of await client.responses.create({ model, input: text, stream: true })) {
      if (event.type === "response.output_text.delta") yield event.delta;
    }
  },
  async callTool(text) {
    const input = user(text);
    const tools = [{ type: "function", ...multiply }];
    const first = await client.responses.create({ model, input, tools });
    const call = first.output.find((item) => item.type === "function_call");
    input.push(...first.output);
    input.push({ type: "function_call_output", call_id: call.call_id, output: product(call.arguments) });
    return (await client.responses.create({ model, input, tools })).output_text;
  },
  async parse(text) {
    const format = zodTextFormat(Product, "product");
    return (await client.responses.parse({ model, input: text, text: { format } })).output_parsed.answer;
  },
};

const way = cases.variant === "responses" ? responses : chat;
await cases.run({
  plain: () => cases.askAll(way.ask),
  stream: () => cases.readStreams(way.stream),
  tools: () => cases.askAll(way.callTool, cases.called),
  structured: () => cases.askAll(way.parse, cases.typed),
  errors: () => cases.collectErrors((text) => way.ask(text, cases.failing)),
  "at once": () => cases.askAtOnce(way.ask),
  "other routes": async () => {
    const input = "hello";
    const { data } = await client.embeddings.create({ model: "text-embedding-3-small", input });
    const found = await client.models.retrieve(model);
    return { facts: { embedding: data[0].embedding.map((x) => x.toFixed(4)), model: found } };
  },
});
