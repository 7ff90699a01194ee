//go:build !unix

package egress

func maxDescriptors() uint64 { return 0 }
