// The cases of cases.py, for clients in JavaScript; drive.mjs says by which server.
export let baseURL, variant;
export const use = (url, name) => ([baseURL, variant] = [url, name]);
export const apiKey = "sk-none";
export const model = "gpt-4o-mini";
export const failing = "gpt-4o"; // the model whose requests are refused, so that the other one stays well
export const story = "Write a long story of a sailor.";
const errors = {
  context_length_exceeded: "maximum context length",
  model_not_found: "does not exist",
  content_filter: "content management policy",
  rate_limit_exceeded: "Rate limit reached",
  server_error: "The server had an error",
};
const pairs = (from, to, factor) => Array.from({ length: to - from }, (_, i) => [from + i, factor]);
export const plain = pairs(11, 21, 7);
export const streamed = pairs(11, 17, 13);
export const called = pairs(11, 17, 17);
export const typed = pairs(11, 17, 19);
export const many = pairs(11, 31, 23);

export const question = ([a, b]) => `What is ${a} times ${b}?`;

export function score(asked, answers) {
  const right = asked.filter(([a, b], i) => String(answers[i]).includes(String(a * b)));
  return { right: right.length, of: asked.length };
}

export async function askAll(ask, asked = plain) {
  const answers = [];
  for (const pair of asked) answers.push(await ask(question(pair)));
  return score(asked, answers);
}

export async function askAtOnce(ask) {
  return score(many, await Promise.all(many.map((pair) => ask(question(pair)))));
}

// `stream` is an async generator of texts.
export async function readStreams(stream) {
  const answers = [];
  for (const pair of streamed) {
    let text = "";
    for await (const piece of stream(question(pair))) text += piece;
    answers.push(text);
  }
  const began = performance.now();
  const times = [];
  for await (const piece of stream(story)) if (piece) times.push(performance.now() - began);
  return { ...score(streamed, answers), pieces: times.length, early: times[0] < 0.6 * times.at(-1) };
}

export async function collectErrors(ask) {
  const facts = {};
  for (const [code, words] of Object.entries(errors)) {
    try {
      facts[code] = { answered: String(await ask(`Fail with ${code}.`)).slice(0, 200) };
    } catch (error) {
      facts[code] = describe(error, words);
    }
  }
  return { facts };
}

function describe(error, words) {
  const inner = error.data?.error ?? error;
  return {
    class: error.constructor.name,
    says: String(error.message).includes(words),
    status: error.status ?? error.statusCode,
    code: inner.code ?? null,
    type: inner.type ?? null,
    param: inner.param ?? null,
  };
}

export async function run(cases) {
  for (const [name, one] of Object.entries(cases)) {
    let outcome;
    try {
      outcome = await one();
    } catch (error) {
      outcome = { failed: `${error.constructor.name}: ${error.message}`.slice(0, 400) };
    }
    console.log("CASE " + JSON.stringify({ case: name, ...outcome }));
  }
}
