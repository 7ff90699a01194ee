/** The parts of a score, and what each counts, as a search with explain=true answers. */
export interface Parts { semantic: number; keyword: number; history: number; success: number; complexity: number; action: number; learned: number; named: boolean }
export interface Weights { semantic: number; keyword: number; history: number; success: number; complexity: number }

/** One piece of a score: what it adds, or takes off. */
export interface Piece { name: string; means: string; part: number; weight: number; adds: number }

const actionWeight = 0.05 // as the document says of the part

/** The pieces of a score in the order in which they are drawn. Those that are 0 are there too. */
export function pieces(parts: Parts, weights: Weights): Piece[] {
  const one = (name: string, means: string, part: number, weight: number): Piece => ({ name, means, part, weight, adds: part * weight })
  return [
    one('words', 'how well the words fit', parts.keyword, weights.keyword),
    one('meaning', 'how much query and tool mean alike', parts.semantic, weights.semantic),
    one('history', 'how much it belongs to what was called before', parts.history, weights.history),
    one('success', "share of your tenant's calls that succeeded", parts.success, weights.success),
    one('action', 'whether it does what the query wants done', parts.action, actionWeight),
    one('complexity', 'taken off where a tool is complex', parts.complexity, -weights.complexity),
  ]
}

/** What the drawn pieces take of the room, as percent; full is the largest sum of the list. */
export function widths(list: Piece[], full: number): number[] {
  return list.map((p) => (full <= 0 ? 0 : (Math.max(0, p.adds) / full) * 100))
}

/** The sum of what adds, by which a list of scores is drawn to one scale. */
export const sum = (list: Piece[]) => list.reduce((all, p) => all + Math.max(0, p.adds), 0)
