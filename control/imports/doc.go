// Package imports turns documents and manifests that people send into published tools:
// it plans what an OpenAPI document would become, and publishes batches of manifests,
// all or none or each by itself. It works on bytes and writes no files.
package imports
