// Command protogen writes proto/l03v1/*.pb.go from contracts/l03.proto, without
// protoc: the document is compiled here and handed to the pinned plugins of this
// module's tool block. It runs in its own folder: cd tools/protogen && go run .
//
// It is a module of its own, so that a compiler for protocol files is nothing
// that the program depends on.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

const (
	root   = "../.."
	source = "contracts/l03.proto"
	// name is the file's name in descriptors and reflection; it follows the package.
	name   = "agentic/l03/v1/l03.proto"
	module = "github.com/toolkeep/toolkeep"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	files, err := compile(ctx)
	if err != nil {
		return err
	}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := generate(ctx, plugin, files); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return nil
}

// compile returns the file and what it imports, imports first.
func compile(ctx context.Context) ([]*descriptorpb.FileDescriptorProto, error) {
	c := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
			Accessor: func(path string) (io.ReadCloser, error) {
				if path != name {
					return nil, os.ErrNotExist
				}
				return os.Open(filepath.Join(root, source))
			},
		}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := c.Compile(ctx, name)
	if err != nil {
		return nil, err
	}
	var all []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		all = append(all, protoutil.ProtoFromFileDescriptor(f))
	}
	for _, f := range compiled {
		add(f)
	}
	return all, nil
}

// generate runs one plugin and writes its output.
func generate(ctx context.Context, plugin string, files []*descriptorpb.FileDescriptorProto) error {
	request, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{name}, Parameter: proto.String("module=" + module), ProtoFile: files,
	})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(request), os.Stderr
	raw, err := cmd.Output()
	if err != nil {
		return err
	}
	var answer pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(raw, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return fmt.Errorf("%s", answer.GetError())
	}
	for _, f := range answer.File {
		path := filepath.Join(root, filepath.FromSlash(f.GetName()))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
