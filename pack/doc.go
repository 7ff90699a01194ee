// Package pack keeps the manifests of a large catalogue small, in memory and in a store: compressed, and with the larger
// definitions under $defs, which the operations of one document share, kept once per tenant.
//
// A version in the catalogue is an outline: a Tool whose Manifest lacks what Outline leaves out, and whose Packed has it.
// Lists, searches and contexts read outlines and Words; a call, a comparison or a description unpacks the whole manifest
// with Tool.Whole.
package pack
