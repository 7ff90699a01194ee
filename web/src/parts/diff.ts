export interface Line { old?: string; new?: string }
const most = 4000

/** The lines of two texts beside each other: equal ones have both sides, others one. Long texts are compared line by line. */
export function diffLines(before: string, after: string): Line[] {
  const a = before.split('\n')
  const b = after.split('\n')
  let start = 0
  while (start < a.length && start < b.length && a[start] === b[start]) start++
  let end = 0
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++
  const both = (line: string): Line => ({ old: line, new: line })
  return [...a.slice(0, start).map(both), ...middle(a.slice(start, a.length - end), b.slice(start, b.length - end)), ...a.slice(a.length - end).map(both)]
}

function middle(a: string[], b: string[]): Line[] {
  if (a.length * b.length > most * most / 4) return pair(a, b)
  // Longest common subsequence, from the end.
  const width = b.length + 1
  const length = new Uint16Array((a.length + 1) * width)
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      length[i * width + j] = a[i] === b[j] ? length[(i + 1) * width + j + 1]! + 1 : Math.max(length[(i + 1) * width + j]!, length[i * width + j + 1]!)
    }
  }
  const lines: Line[] = []
  let gone: string[] = []
  let come: string[] = []
  let i = 0
  let j = 0
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push(...pair(gone, come), { old: a[i++], new: b[j++] })
      gone = []
      come = []
    } else if (j >= b.length || (i < a.length && length[(i + 1) * width + j]! >= length[i * width + j + 1]!)) {
      gone.push(a[i++]!)
    } else {
      come.push(b[j++]!)
    }
  }
  lines.push(...pair(gone, come))
  return lines
}

// pair sets changed lines beside each other.
function pair(gone: string[], come: string[]): Line[] {
  return Array.from({ length: Math.max(gone.length, come.length) }, (_, i) => ({ old: gone[i], new: come[i] }))
}
