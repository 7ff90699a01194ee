/** The mark of Toolkeep: the tower of a keep. */
export function Logo({ size = 22 }: { size?: number }) {
  return <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" fill="var(--accent)" /><path d="M9 23V13h3v3h2.500v-3h3v3H20v-3h3v10h-4.500v-3a2.500 2.500 0 0 0-5 0v3z" fill="var(--on-accent)" /></svg>
}
