import type { components } from '../../core/schema'

// Shapes of answers that the document gives as objects without members: what a manifest says, and a dry run.

type Schemas = components['schemas']
export type ToolAnswer = Schemas['ToolAnswer']
export type Answer = Schemas['InvokeResponse']
export type Invocation = Schemas['InvocationAnswer']
export type Auth = NonNullable<Schemas['ToolSummary']['authentication']>

export interface Example { scenario?: string; name?: string; description?: string; input?: unknown; output?: unknown; explanation?: string }
export interface Named { [name: string]: unknown }

/** The members of a manifest that the pages show; all but the first may be absent. */
export interface Manifest {
  tool_id: string
  tool_name?: string
  description?: string
  short_description?: string
  explanation?: string
  input_guidance?: string
  category?: string
  tags?: string[]
  capabilities?: string[]
  complexity?: string
  parameters_schema?: unknown
  result_schema?: unknown
  side_effects?: string
  idempotent?: boolean
  risk?: string
  requires_approval?: boolean
  required_roles?: string[]
  permission_levels?: string[]
  auth?: { type?: string }[]
  execution?: { type?: string; kind?: string; timeout_ms?: number } & Named
  retry?: Named
  rate_limit?: Named
  cache?: Named
  cost?: Named
  fallback?: string
  examples?: Example[]
  use_cases?: string[]
  common_errors?: { error?: string; resolution?: string }[]
  release_notes?: string
  migration_guide?: string
  redact?: string[]
  source?: Named
}

/** What a dry run says of one of the twelve steps. */
export interface StepVerdict {
  step: string
  verdict: 'pass' | 'wait' | 'refuse' | 'unknown' | 'not_run'
  code?: string
  name?: string
  reason?: string
  checks?: { check: string; allowed: boolean; reason: string; rule?: string }[]
  details?: { errors?: { pointer?: string; message?: string }[] } & Named
}

/** What a dry run says of a call. */
export interface Explanation {
  caller: string
  on_behalf_of?: string
  tool: string
  version?: string
  would_execute: boolean
  steps: StepVerdict[]
  warnings?: { code: string; message: string }[]
  fallback?: { tool?: string } & Named
}

/** The manifest of an answer, of which nothing is believed but its shape. */
export const manifestOf = (tool: { manifest: unknown }): Manifest => tool.manifest as Manifest
