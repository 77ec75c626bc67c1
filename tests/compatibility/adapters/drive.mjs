// drive.py, for clients in JavaScript: node drive.mjs RESET ADAPTER VARIANT URL …
import { use } from "./cases.mjs";

const [reset, adapter, variant, ...urls] = process.argv.slice(2);
for (const url of urls) {
  await fetch(reset, { method: "POST" });
  console.log(`SERVER ${url}`);
  use(url, variant);
  await import(`./${adapter}?${encodeURIComponent(url)}`); // by another name, so that it is run again
}
