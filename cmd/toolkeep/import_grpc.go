package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog/source"
	"github.com/toolkeep/toolkeep/catalog/source/grpc"
	"github.com/toolkeep/toolkeep/egress"
)

func (a *app) importGRPCCmd() *cobra.Command {
	o := grpc.Options{}
	var choice importChoice
	var protoset, ca, cert, key, secret, auth string
	var fixed, reflected []string
	var settings serveFlags
	c := &cobra.Command{
		Use:   "grpc HOST:PORT",
		Short: "Turn every method of a gRPC server into a tool",
		Long: `Turn every method of a gRPC server into a tool. The methods come from the server's reflection, or
from one of these instead:

  --protoset  a FileDescriptorSet, as protoc --include_imports --descriptor_set_out=FILE and
              buf build -o FILE write it.
  --proto     .proto files below the folders of --import-path; nothing outside of them is read.
              Comments become descriptions, which reflection does not have.

Calls go to HOST:PORT over TLS unless --plaintext is given. Secrets are never given on the
command line: --secret names where the server finds the secret for calls, --reflect-metadata where this
command finds it for reflection. Imported again, unchanged methods keep their version.

Reflection goes through the proxy of the setting egress.proxy, as calls do, where this command is
given it: by --config, --set or TOOLKEEP_EGRESS_PROXY.`,
		Example: `  toolkeep import grpc greeter.example.com:443 --dry-run
  toolkeep import grpc localhost:50051 --plaintext --service 'acme.*' --method 'Get*'
  toolkeep import grpc greeter.example.com:443 --proto acme/greet.proto --import-path ./proto --secret env://TOOLKEEP_SECRET_GREET
  toolkeep import grpc greeter.example.com:443 --protoset greet.binpb --ca ca.pem --secret secret://greet-mtls --auth mtls`,
		Args: arguments(1, 1, "the server as HOST:PORT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkNamespace(o.Namespace); err != nil {
				return err
			}
			o.Target = args[0]
			var err error
			if o.Metadata, err = a.metadataPairs("--metadata", fixed, false); err != nil {
				return err
			}
			if o.ReflectMetadata, err = a.metadataPairs("--reflect-metadata", reflected, true); err != nil {
				return err
			}
			if o.Auth, err = grpcAuth(auth, secret); err != nil {
				return err
			}
			if err := readGRPCFiles(&o, protoset, ca, cert, key); err != nil {
				return err
			}
			if o.Dial, err = a.reflectionDialer(cmd, &settings, o.Target); err != nil {
				return err
			}
			return a.importSource(cmd.Context(), o.Target, choice, func(previous source.Previous) (*source.Plan, error) {
				o.Previous = previous
				return grpc.Read(cmd.Context(), o)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&o.Namespace, "namespace", "", "namespace of the tools; made from the services' package if absent")
	f.StringVar(&protoset, "protoset", "", "read a FileDescriptorSet from this file instead of reflection")
	f.StringArrayVar(&o.Protos, "proto", nil, "read this .proto file below an import path instead of reflection; repeatable")
	f.StringArrayVar(&o.ImportPaths, "import-path", nil, "folder of .proto files and what they import; repeatable")
	f.StringArrayVar(&o.Services, "service", nil, "import services that match the pattern; repeatable")
	f.StringArrayVar(&o.Methods, "method", nil, "import methods that match the pattern, Method or Service/Method; repeatable")
	f.BoolVar(&o.Plaintext, "plaintext", false, "connect without TLS")
	f.StringVar(&o.ServerName, "server-name", "", "name that the server's certificate must have, if not HOST")
	f.StringVar(&ca, "ca", "", "file of authorities in PEM form to trust instead of the system's")
	f.StringVar(&cert, "cert", "", "client certificate in PEM form, for reflection alone")
	f.StringVar(&key, "key", "", "key of --cert")
	f.StringArrayVar(&fixed, "metadata", nil, "metadata of every call, `NAME=VALUE`, no secrets; repeatable")
	f.StringArrayVar(&reflected, "reflect-metadata", nil, "metadata for reflection, `NAME=env://VAR` or NAME=file:///PATH; repeatable")
	f.StringVar(&secret, "secret", "", "secret that calls need, env://NAME, file:///PATH or another reference")
	f.StringVar(&auth, "auth", "bearer", "how it is sent: bearer, basic, metadata:NAME or mtls")
	f.DurationVar(&o.Deadline, "deadline", 0, "deadline of each call that is sent to the server; the call's own if absent")
	f.IntVar(&o.MaxFrames, "max-frames", 0, "messages of a stream that are collected; 1000 if absent")
	importFlags(c, &choice)
	settings.addSettings(c)
	return a.withJSON(c)
}

// reflectionDialer connects through egress.proxy, like the tools' calls; nil if the settings name no proxy.
func (a *app) reflectionDialer(cmd *cobra.Command, f *serveFlags, target string) (func(context.Context, string) (net.Conn, error), error) {
	if f.file == "" && len(f.set) == 0 && os.Getenv("TOOLKEEP_EGRESS_PROXY") == "" {
		return nil, nil
	}
	c, err := a.load(cmd, f)
	if err != nil || c.Egress.Proxy == "" {
		return nil, err
	}
	through, err := c.Egress.Pool()
	if err != nil {
		return nil, &failure{code: exitUsage, err: err}
	}
	// The user of this command names the target, so an internal address is intended.
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return nil, nil // the import reports it better
	}
	return through.Dialer(&egress.Guard{Allow: []toolkeep.HostPort{{Host: host}}, ConnectTimeout: c.Egress.ConnectTimeout}), nil
}

// readGRPCFiles reads the files named in the options.
func readGRPCFiles(o *grpc.Options, protoset, ca, cert, key string) (err error) {
	if protoset != "" {
		if o.Protoset, err = readFile(protoset); err != nil {
			return usagef("--protoset: %v", err)
		}
		if len(o.Protoset) == 0 {
			return usagef("%s is empty; --protoset is a FileDescriptorSet", protoset)
		}
	}
	if ca != "" {
		if o.CA, err = readFile(ca); err != nil {
			return usagef("--ca: %v", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(o.CA) { // an empty file would fall back to the system's CAs
			return usagef("--ca: %s holds no certificate in PEM form", ca)
		}
	}
	if (cert == "") != (key == "") {
		return usagef("--cert and --key belong together")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return usagef("--cert and --key: %v", err)
		}
		o.Certificate = &pair
	}
	return nil
}

// metadataPairs parses NAME=VALUE, or NAME=REFERENCE of a secret that this process can read.
func (a *app) metadataPairs(flag string, list []string, secret bool) (map[string]string, error) {
	out := map[string]string{}
	for _, entry := range list {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || name == "" {
			return nil, usagef("%s: write NAME=VALUE", flag)
		}
		if secret {
			var err error
			if value, err = a.localSecret(value); err != nil {
				return nil, usagef("%s %s: %v", flag, name, err)
			}
		}
		out[strings.ToLower(name)] = value
	}
	return out, nil
}

// localSecret reads a secret from this process's environment or, unless a folder names it, a file.
func (a *app) localSecret(ref string) (string, error) {
	scheme, rest, _ := strings.Cut(ref, "://")
	switch scheme {
	case "env":
		if v, ok := a.variable(rest); ok {
			return v, nil
		}
		return "", fmt.Errorf("there is no variable %s in the environment", rest)
	case "file":
		if a.mayRead != nil {
			return "", fmt.Errorf("a folder's imports read no secrets from files: write env://NAME, and allow the variable with --env NAME")
		}
		raw, err := readFile(rest)
		return strings.TrimRight(string(raw), "\r\n"), err
	}
	return "", fmt.Errorf("write a reference, env://NAME or file:///PATH; never give the secret itself on the command line")
}

// grpcAuth parses where a secret goes. Without a secret nothing is sent.
func grpcAuth(how, secret string) (*toolkeep.AuthSpec, error) {
	if secret == "" {
		if how != "bearer" {
			return nil, usagef("--auth %s says how a secret is sent; name the secret with --secret", how)
		}
		return nil, nil
	}
	if !strings.Contains(secret, "://") {
		return nil, usagef("--secret: write a reference such as env://NAME or file:///PATH; never give the secret itself on the command line")
	}
	if name, ok := strings.CutPrefix(how, "metadata:"); ok && name != "" {
		return &toolkeep.AuthSpec{Type: "api_key", Secret: secret, In: "header", Name: strings.ToLower(name)}, nil
	}
	switch how {
	case "bearer", "basic", "mtls":
		return &toolkeep.AuthSpec{Type: how, Secret: secret}, nil
	}
	return nil, usagef("--auth is bearer, basic, metadata:NAME or mtls, not %q", how)
}
