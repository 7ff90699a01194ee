import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'

const css = readFileSync('src/tokens.css', 'utf8')

// themes are the light tokens and the dark ones, which are written twice: for the system's wish and for the person's.
function themes(): Record<string, Map<string, string>> {
  const blocks = [...css.matchAll(/([^{}]+)\{([^{}]+)\}/g)].map(([, selector, body]) => ({ selector: selector!.trim(), tokens: new Map([...body!.matchAll(/--([a-z-]+):\s*(#[0-9a-f]{6})/g)].map(([, name, value]) => [name!, value!])) })).filter((b) => b.tokens.size > 0)
  assert.equal(blocks.length, 3)
  return { light: blocks[0]!.tokens, 'dark by the system': blocks[1]!.tokens, dark: blocks[2]!.tokens }
}

function luminance(hex: string): number {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  return 0.2126 * r! + 0.7152 * g! + 0.0722 * b!
}

function contrast(a: string, b: string): number {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y)
  return (high! + 0.05) / (low! + 0.05)
}

test('text has a contrast of 4.5 and controls of 3 on all that they stand on, in both themes', () => {
  for (const [theme, tokens] of Object.entries(themes())) {
    const check = (front: string, backs: string[], least: number) => {
      for (const back of backs) {
        const is = contrast(tokens.get(front)!, tokens.get(back)!)
        assert.ok(is >= least, `${theme}: ${front} on ${back} is ${is.toFixed(2)}, not ${least}`)
      }
    }
    check('text', ['bg', 'raised', 'sunk', 'accent-bg', 'ok-bg', 'warn-bg', 'bad-bg', 'info-bg'], 4.5)
    check('soft', ['bg', 'raised', 'sunk'], 4.5)
    check('accent', ['bg', 'raised', 'sunk', 'accent-bg'], 4.5)
    check('on-accent', ['accent'], 4.5)
    for (const tone of ['ok', 'warn', 'bad', 'info']) check(tone, ['bg', 'raised', `${tone}-bg`], 4.5)
    check('control', ['bg', 'raised'], 3)
    check('focus', ['bg', 'raised'], 3)
  }
})

test('the dark theme is the same by the wish of the system and of the person', () => {
  const all = themes()
  assert.deepEqual([...all.dark!], [...all['dark by the system']!])
})
