-- +goose Up
-- Succeeded calls of one tool or one agent are counted in its index, without reading the calls. An update of the state
-- writes into every index anyway, for conditions of some depend on it.
-- Nothing reads or writes calls while the indexes are made.
DROP INDEX invocations_tool;
DROP INDEX invocations_subject;
CREATE INDEX invocations_tool ON invocations (tenant, tool, created) INCLUDE (state);
CREATE INDEX invocations_subject ON invocations (tenant, subject, created) INCLUDE (state);
-- The last one, as in step 11: PostgreSQL takes the newest where the others seem to cost the same.
ALTER TABLE invocations DROP CONSTRAINT invocations_pkey, ADD CONSTRAINT invocations_pkey PRIMARY KEY (tenant, id);

-- +goose Down
DROP INDEX invocations_tool;
DROP INDEX invocations_subject;
CREATE INDEX invocations_tool ON invocations (tenant, tool, created);
CREATE INDEX invocations_subject ON invocations (tenant, subject, created);
-- Their names of before.
ALTER INDEX IF EXISTS invocations_first_tenant_tool_created_idx RENAME TO invocations_first_tool;
ALTER INDEX IF EXISTS invocations_first_tenant_subject_created_idx RENAME TO invocations_first_subject;
ALTER TABLE invocations DROP CONSTRAINT invocations_pkey, ADD CONSTRAINT invocations_pkey PRIMARY KEY (tenant, id);
