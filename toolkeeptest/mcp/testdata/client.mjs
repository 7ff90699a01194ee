// Uses a server as a program with one of the TypeScript SDK's clients would, and
// prints what it saw as one JSON object. Its argument is a JSON object:
//
//   modules   folder of the npm packages
//   sdk       1 (@modelcontextprotocol/sdk) or 2 (@modelcontextprotocol/client)
//   revision  of the protocol
//   url, key  of the server; or command, a list, of one over stdio
//   api, admin, manifest   what is published, where, with which key
import { pathToFileURL } from 'node:url';

const config = JSON.parse(process.argv[2]);
const load = file => import(pathToFileURL(`${config.modules}/@modelcontextprotocol/${file}`));
const modern = config.revision >= '2026';

async function transportOf() {
  if (config.command) {
    const { StdioClientTransport } = await load(config.sdk === 1 ? 'sdk/dist/esm/client/stdio.js' : 'client/dist/stdio.mjs');
    const [command, ...args] = config.command;
    return new StdioClientTransport({ command, args, env: process.env });
  }
  const { StreamableHTTPClientTransport } = await load(config.sdk === 1 ? 'sdk/dist/esm/client/streamableHttp.js' : 'client/dist/index.mjs');
  return new StreamableHTTPClientTransport(new URL(config.url), { requestInit: { headers: { Authorization: `Bearer ${config.key}` } } });
}

const saw = { progress: [], asked: [] };
let toldOfChange;
const changed = new Promise(resolve => { toldOfChange = resolve; });
const answer = request => {
  saw.asked.push(request.params.message);
  return { action: 'accept', content: { name: 'Ada', check: true } };
};

async function connect() {
  const who = { name: 'client.mjs', version: '1' };
  const capabilities = { elicitation: {} };
  let client;
  if (config.sdk === 1) {
    const { Client } = await load('sdk/dist/esm/client/index.js');
    const { ElicitRequestSchema, ToolListChangedNotificationSchema } = await load('sdk/dist/esm/types.js');
    client = new Client(who, { capabilities });
    client.setRequestHandler(ElicitRequestSchema, answer);
    client.setNotificationHandler(ToolListChangedNotificationSchema, toldOfChange);
  } else {
    const { Client } = await load('client/dist/index.mjs');
    client = new Client(who, { capabilities, versionNegotiation: modern ? { mode: { pin: config.revision } } : { mode: 'legacy' } });
    client.setRequestHandler('elicitation/create', answer);
    client.setNotificationHandler('notifications/tools/list_changed', toldOfChange);
  }
  const transport = await transportOf();
  transport.setProtocolVersion ??= revision => { saw.revision = revision; }; // the first SDK tells its transport alone
  await client.connect(transport);
  saw.revision ??= client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion;
  return client;
}

const text = result => result.content.filter(c => c.type === 'text').map(c => c.text).join('\n');
// The two packages differ in whether callTool takes a schema before its options.
const call = (client, name, args, options) => {
  const params = { name, arguments: args };
  return config.sdk === 1 ? client.callTool(params, undefined, options) : client.callTool(params, options);
};
const names = async client => (await client.listTools()).tools.map(t => t.name);

const client = await connect();
saw.server = client.getServerVersion()?.name;
saw.tools = await names(client);
saw.echo = text(await call(client, 'everything__echo', { message: 'hello' }));
saw.structured = (await call(client, 'everything__get-structured-content', { location: 'Chicago' })).structuredContent;
saw.long = text(await call(client, 'everything__trigger-long-running-operation', { duration: 0.4, steps: 4 },
  { onprogress: p => saw.progress.push(p.progress) }));

const listening = modern ? await client.listen({ toolsListChanged: true }) : undefined;
const published = await fetch(config.api, { method: 'POST', body: config.manifest,
  headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${config.admin}` } });
if (!published.ok) throw new Error(`not published: ${published.status} ${await published.text()}`);
await changed;
saw.after = await names(client);
await listening?.close();

saw.elicited = text(await call(client, 'everything__trigger-elicitation-request', {}));

const given = new AbortController();
try {
  await call(client, 'everything__trigger-long-running-operation', { duration: 20, steps: 200 },
    { signal: given.signal, onprogress: () => given.abort('enough') });
  saw.cancelled = 'it was answered';
} catch (e) {
  saw.cancelled = `given up: ${e?.message ?? e}`;
}
saw.still = text(await call(client, 'everything__echo', { message: 'still here' }));
await client.close();
console.log(JSON.stringify(saw));
