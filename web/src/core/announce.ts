/** Lets a screen reader say something: 'polite' when it has time, 'assertive' at once. */
export function announce(text: string, how: 'polite' | 'assertive' = 'polite') {
  const region = document.getElementById(`live-${how}`)
  if (!region) return
  region.textContent = ''
  requestAnimationFrame(() => { region.textContent = text })
}
