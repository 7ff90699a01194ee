module github.com/hashicorp/go-kms-wrapping/wrappers/gcpckms/v2

go 1.26

require github.com/hashicorp/go-kms-wrapping/v2 v2.0.18
