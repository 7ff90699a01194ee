const paths = {
  check: 'M3 8.500l3.200 3.200L13 5',
  cross: 'M4 4l8 8M12 4l-8 8',
  warn: 'M8 2.500L14.500 13.500h-13zM8 6.500v3.500M8 11.700v.1',
  info: 'M8 7.200v4M8 4.800v.1M8 1.700a6.300 6.300 0 1 1 0 12.600a6.300 6.300 0 0 1 0-12.600z',
  wait: 'M4 2h8M4 14h8M5 2c0 4 6 8 6 12M11 2c0 4-6 8-6 12',
  dash: 'M3.500 8h9',
  dot: 'M8 6.500a1.500 1.500 0 1 1 0 3a1.500 1.500 0 0 1 0-3z',
  right: 'M6 3.500L10.500 8L6 12.500',
  down: 'M3.500 6L8 10.500L12.500 6',
  copy: 'M5.500 5.500v-3h8v8h-3M2.500 5.500h8v8h-8z',
  search: 'M7 2.500a4.500 4.500 0 1 1 0 9a4.500 4.500 0 0 1 0-9zM10.500 10.500L14 14',
  menu: 'M2 4h12M2 8h12M2 12h12',
  tools: 'M2.500 2.500h4.500v4.500H2.500zM9 2.500h4.500v4.500H9zM2.500 9h4.500v4.500H2.500zM9 9h4.500v4.500H9z',
  play: 'M4.500 2.500v11l8.500-5.500z',
  down_tray: 'M8 2v8M4.500 6.500L8 10l3.500-3.500M2.500 13.500h11',
  plug: 'M5 2v4M11 2v4M3.500 6h9v2a4.500 4.500 0 0 1-9 0zM8 12.500V15',
  chart: 'M2 14h12M4 11V8M8 11V3M12 11V6',
  calls: 'M2 4h9M2 8h12M2 12h7',
  server: 'M2.500 2.500h11v4.500h-11zM2.500 9h11v4.500h-11zM5 4.800v.1M5 11.300v.1',
  queue: 'M2.500 4h11M2.500 8h11M2.500 12h5M11 10v4M9 12h4',
  gauge: 'M2.500 12.500a6 6 0 1 1 11 0M8 11l3-4.500',
  system: 'M8 5.500a2.500 2.500 0 1 1 0 5a2.500 2.500 0 0 1 0-5zM8 1.500v2M8 12.500v2M1.500 8h2M12.500 8h2M3.400 3.400l1.400 1.400M11.200 11.200l1.400 1.400M3.400 12.600l1.400-1.400M11.200 4.800l1.400-1.400',
  approve: 'M8 1.500l5.500 2v4c0 3.500-2.500 6-5.500 7c-3-1-5.500-3.500-5.500-7v-4zM5.500 8l2 2l3.500-3.500',
  audit: 'M3.500 1.500h9v13h-9zM6 5h4M6 8h4M6 11h2',
  access: 'M5 8.500a3 3 0 1 1 2.600-1.500L14 13.500l-1 1h-2v-2H9v-2L7.600 9',
  agents: 'M8 2v2.500M3.500 4.500h9v8h-9zM6 8v1M10 8v1M1.500 8v2M14.500 8v2',
  out: 'M9 2.500h4.500v4.500M13.500 2.500L7.500 8.500M11.500 9v4.500h-9v-9H7',
} as const

export type IconName = keyof typeof paths

/** A sign of 16 pixels, beside words that say the same. */
export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg className="icon" width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth="1.500" strokeLinecap="round" strokeLinejoin="round" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  )
}
