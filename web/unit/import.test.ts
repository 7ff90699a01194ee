import assert from 'node:assert/strict'
import { test } from 'node:test'
import { pairs, sealed, secretNameOf, servers } from '../src/areas/import/read.ts'

test('a client file is read with comments, and what looks like a secret is kept apart', () => {
  const [files, tracker, remote, odd] = servers(`{
    // Claude's
    "mcpServers": {
      "files": { "command": "npx", "args": ["-y", "server-filesystem", "/srv // not a comment"], "env": { "LEVEL": "debug", "API_KEY": "s3cr3t" } },
      "My Tracker": { "url": "https://tracker.example/mcp", "headers": { "Authorization": "Bearer abc", "X-Team": "red" } },
      "old": { "url": "https://old.example/sse", "type": "sse", "headers": { "Authorization": "Bearer env://TOKEN" } },
      "odd": { "command": "run", "args": ["\${input:key}"] }, /* the last */
    },
  }`)
  assert.deepEqual(files!.definition, { transport: 'stdio', command: ['npx', '-y', 'server-filesystem', '/srv // not a comment'], env: { LEVEL: 'debug' } })
  assert.deepEqual(files!.secrets, [{ where: 'env', name: 'API_KEY', value: 's3cr3t' }])
  assert.equal(tracker!.name, 'my_tracker')
  assert.deepEqual(tracker!.definition, { transport: 'http', url: 'https://tracker.example/mcp', headers: { 'X-Team': 'red' } })
  const definition = sealed(tracker!, (s) => `secret://${secretNameOf('tracker', s.name)}`)
  assert.deepEqual(definition.headers, { 'X-Team': 'red', Authorization: 'secret://tracker.authorization' })
  assert.ok(!JSON.stringify(definition).includes('abc'))
  assert.equal(remote!.definition.transport, 'sse')
  assert.deepEqual(remote!.secrets, [])
  assert.match(odd!.fault!, /\$\{input:key\}/)
})

test('other clients, and files that are none', () => {
  assert.equal(servers('{"servers":{"a":{"command":"x"}}}').length, 1)
  assert.deepEqual(servers('{"context_servers":{"z":{"command":{"path":"bin","args":["1"],"env":{}}}}}')[0]!.definition, { transport: 'stdio', command: ['bin', '1'] })
  assert.throws(() => servers('{"other":{}}'), /mcpServers/)
  assert.match(servers('{"mcpServers":{"n":5}}')[0]!.fault!, /object/)
})

test('a secret in place of a reference is refused and not repeated', () => {
  assert.deepEqual(pairs('api_key=secret://pets\n\n oauth = env://TOKEN '), { values: { api_key: 'secret://pets', oauth: 'env://TOKEN' } })
  const wrong = pairs('api_key=hunter2hunter2')
  assert.match(wrong.fault!, /reference/)
  assert.ok(!wrong.fault!.includes('hunter2'))
})
