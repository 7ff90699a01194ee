// Builds the console into face/console/dist: the files as Toolkeep embeds them, compressed by brotli, and routes.json, the
// paths that are answered with the page. It fails where the whole or the first page is above its budget, and where the
// source has a word that puts text of others into the page as markup.
//   node build.mjs          writes dist
//   node build.mjs --check  builds beside it and fails where dist is not what comes out
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync, mkdirSync, existsSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { brotliCompressSync, brotliDecompressSync, constants } from 'node:zlib'
import { build } from 'vite'

const web = dirname(fileURLToPath(import.meta.url))
const dist = join(web, '../face/console/dist')
const budget = { all: 1_000_000, first: 250_000 }
const forbidden = /dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|new Function|\beval\(/

function files(dir) {
  return existsSync(dir) ? readdirSync(dir, { withFileTypes: true, recursive: true }).filter((f) => f.isFile()).map((f) => relative(dir, join(f.parentPath ?? f.path, f.name))).sort() : []
}

function fail(message) {
  process.stderr.write(`console: ${message}\n`)
  process.exitCode = 1
}

for (const file of files(join(web, 'src'))) {
  if (file === 'core/schema.d.ts' || !/\.(ts|tsx)$/.test(file)) continue
  const text = readFileSync(join(web, 'src', file), 'utf8').replaceAll('(never innerHTML)', '')
  const line = text.split('\n').findIndex((l) => forbidden.test(l))
  if (line >= 0) fail(`src/${file}:${line + 1} has ${text.split('\n')[line].match(forbidden)[0]}: text of others is shown through the part Text`)
}

const out = mkdtempSync(join(tmpdir(), 'toolkeep-console-'))
try {
  await build({ root: web, logLevel: 'error', build: { outDir: out, emptyOutDir: true, manifest: 'manifest.json' } })
  const manifest = JSON.parse(readFileSync(join(out, 'manifest.json'), 'utf8'))
  rmSync(join(out, 'manifest.json'))
  writeFileSync(join(out, 'assets/licenses.txt'), licenses())
  const made = new Map(files(out).map((file) => [file, readFileSync(join(out, file))]))
  made.set('routes.json', Buffer.from(`${JSON.stringify(routes(), null, 1)}\n`))

  // What the browser fetches before the login can be seen.
  const first = new Set(['index.html'])
  function follow(name) {
    const chunk = manifest[name]
    if (!chunk || first.has(chunk.file)) return
    first.add(chunk.file)
    for (const css of [...(chunk.css ?? []), ...(chunk.assets ?? [])]) first.add(css)
    for (const other of chunk.imports ?? []) follow(other)
  }
  follow('index.html')

  const check = process.argv.includes('--check')
  const packed = new Map([...made].map(([file, bytes]) => file === 'routes.json' ? [file, bytes]
    : [`${file}.br`, check ? kept(`${file}.br`) : brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length } })]))
  const all = [...packed.values()].reduce((sum, bytes) => sum + bytes.length, 0)
  const begin = [...first].reduce((sum, file) => sum + packed.get(`${file}.br`).length, 0)
  process.stdout.write(`console: ${packed.size} files, ${all} bytes compressed (at most ${budget.all}), ${begin} of them for the first page (at most ${budget.first})\n`)
  if (all > budget.all) fail('the files are too large')
  if (begin > budget.first) fail('the first page is too large')
  if (check) compare(made)
  else if (!process.exitCode) write(packed)
} finally {
  rmSync(out, { recursive: true })
}

function kept(file) {
  return existsSync(join(dist, file)) ? readFileSync(join(dist, file)) : Buffer.alloc(0)
}

// write replaces what is in dist but its README.
function write(packed) {
  for (const file of files(dist)) if (file !== 'README.md') rmSync(join(dist, file))
  for (const [file, bytes] of packed) {
    mkdirSync(dirname(join(dist, file)), { recursive: true })
    writeFileSync(join(dist, file), bytes)
  }
}

// compare holds what is in dist against what was built, uncompressed: another zlib may pack differently.
function compare(made) {
  const left = new Map(files(dist).filter((file) => file !== 'README.md').map((file) => [file.replace(/\.br$/, ''), file]))
  const wrong = []
  for (const [file, bytes] of made) {
    const name = left.get(file)
    left.delete(file)
    if (!name) { wrong.push(`${file} is missing`); continue }
    const there = kept(name)
    if (!bytes.equals(name.endsWith('.br') ? brotliDecompressSync(there) : there)) wrong.push(`${file} differs`)
  }
  for (const name of left.values()) wrong.push(`${name} is left over`)
  if (wrong.length > 0) fail(`face/console/dist is not what web/ builds: ${wrong.slice(0, 5).join(', ')}${wrong.length > 5 ? `, and ${wrong.length - 5} more` : ''}; run make console`)
}

// routes are the paths of the areas' pages, and of the shell's.
function routes() {
  const paths = new Set(['/login', '/agents'])
  for (const area of readdirSync(join(web, 'src/areas'))) {
    const file = join(web, 'src/areas', area, 'routes.ts')
    if (!existsSync(file)) continue
    for (const found of readFileSync(file, 'utf8').matchAll(/\bpath: '([^']+)'/g)) paths.add(found[1])
  }
  return [...paths].sort()
}

// licenses are those of what is in the files.
function licenses() {
  const lock = JSON.parse(readFileSync(join(web, 'package-lock.json'), 'utf8')).packages
  const parts = []
  for (const [path, of] of Object.entries(lock)) {
    if (path === '' || of.dev || of.optional || of.peer) continue
    const dir = join(web, path)
    const file = existsSync(dir) && readdirSync(dir).sort().find((name) => /^(licen[cs]e|copying|notice)(\.|$)/i.test(name))
    parts.push({ name: `${path.replace(/^.*node_modules\//, '')} ${of.version}`, text: file ? readFileSync(join(dir, file), 'utf8').trim() : `License: ${of.license}` })
  }
  // Many packages have the same text.
  const by = new Map()
  for (const { name, text } of parts.sort((a, b) => (a.name < b.name ? -1 : 1))) by.set(text, [...(by.get(text) ?? []), name])
  return [...by].map(([text, names]) => `${names.join(', ')}\n\n${text}\n`).join(`\n${'-'.repeat(72)}\n\n`)
}
