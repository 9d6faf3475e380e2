// A client made with the official TypeScript SDK: subscribes, observes, edits a file by hand; prints what it hears.
//   node subscribe.mjs COMMAND WORKSPACE
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { ResourceUpdatedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const [command, workspace] = process.argv.slice(2);
const uri = "context://compiled/from-typescript";
const waiting = [];
let last = 0;

function updated() {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("no update within 10 s")), 10_000);
    waiting.push(() => { clearTimeout(timer); resolve(); });
  });
}

async function quiet() {
  while (Date.now() - last < 1500) await new Promise((resolve) => setTimeout(resolve, 100));
}

const client = new Client({ name: "typescript-test", version: "1" });
await client.connect(new StdioClientTransport({
  command, args: ["-m", "mcp_server", "--workspace", workspace], env: process.env, stderr: "inherit",
}));
client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => {
  last = Date.now();
  if (params.uri === uri) waiting.splice(0).forEach((wake) => wake());
});
await client.subscribeResource({ uri });

let next = updated();
await client.callTool({ name: "observe", arguments: { role: "user", content: "Hello", session: "from-typescript" } });
await next;
console.log("updated after an observe");

await quiet();
next = updated();
await writeFile(join(workspace, "knowledge", "memory", "MEMORY.md"), "# Memory\n\n- The boat is blue.\n");
await next;
console.log("updated after an edit by hand");

const { contents } = await client.readResource({ uri });
console.log(contents[0].mimeType);
await client.close();
