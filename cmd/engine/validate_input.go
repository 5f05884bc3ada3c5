// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/document"
	"example.com/bothy/engine/problem"
	reporting "example.com/bothy/engine/report"
)

// unsetVariable is the code of a variable that is not set.
const unsetVariable = "unset-variable"

// input is one file that validate reads.
type input struct {
	name   string
	text   []byte
	found  problem.List // why there is no text
	config *config.Config
}

// inputs reads the files that were named, each once, or the one of --config. With --definitions alone, a
// consumers.yaml that is not there is not missed.
func (f *validateFlags) inputs(cmd *cobra.Command, files []string) []input {
	named := len(files) > 0 || cmd.Flags().Changed("config")
	if len(files) == 0 {
		files = []string{f.config}
	}
	var inputs []input
	var seen []os.FileInfo
	for _, name := range files {
		if info, err := os.Stat(name); err == nil && name != "-" {
			if slices.ContainsFunc(seen, func(other os.FileInfo) bool { return os.SameFile(info, other) }) {
				continue
			}
			seen = append(seen, info)
		}
		in := input{name: name}
		text, found := readInput(cmd, name)
		if found != nil && !named && found.Code == "no-file" {
			if f.definitions != "" {
				continue
			}
			found.Fix = "run engine init to make one, or name the file: engine validate FILE"
		}
		if found != nil {
			in.found = problem.List{*found}
		}
		in.text = text
		inputs = append(inputs, in)
	}
	return inputs
}

// readInput is the text of a file, or of the standard input that the command was given.
func readInput(cmd *cobra.Command, name string) ([]byte, *problem.Problem) {
	if name != "-" {
		return document.ReadFile(name, defaultConfig)
	}
	text, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), config.MaxSize+1))
	if err != nil {
		return nil, &problem.Problem{
			At: problem.Position{File: name, Line: 1, Col: 1}, Severity: problem.Error, Code: "unreadable-file",
			What: fmt.Sprintf("the standard input cannot be read: %v", err), Fix: "pipe the file in again",
		}
	}
	return text, nil
}

// check reads a file that need not run here: a variable that is not set is a warning, and the values of the others are
// checked.
func check(cmd *cobra.Command, file string, env lookupEnv) (*config.Config, problem.List) {
	text, found := readInput(cmd, file)
	if found != nil {
		return nil, problem.List{*found}
	}
	return config.Preview(file, text, env)
}

// check checks a file, and asks its database when database is set. The database needs every variable.
func (in *input) check(ctx context.Context, database bool, env lookupEnv) (problem.List, error) {
	if in.found != nil {
		return in.found, nil
	}
	parse := config.Preview
	if database {
		parse = config.Parse
	}
	cfg, found := parse(in.name, in.text, env)
	if database && cfg != nil {
		more, err := engine.CheckDatabase(ctx, cfg)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", in.name, err)
		}
		found = append(found, more...)
	}
	if found.Errors() == 0 {
		in.config = cfg
	}
	return found, nil
}

// described are the inputs as a report wants them, and the tables that something was found in. Those of the program are
// no files of the user: no line of them is shown.
func (f *validateFlags) described(inputs []input, tables problem.List, env lookupEnv) []reporting.File {
	var files []reporting.File
	for _, in := range inputs {
		file := reporting.File{Name: in.name, Path: placeOf(in.name, env), Text: in.text, Shown: config.Shown, Consumers: -1}
		if in.config != nil {
			file.Consumers = len(in.config.Consumers)
		}
		files = append(files, file)
	}
	for _, p := range tables {
		name := p.At.File
		if slices.ContainsFunc(files, func(f reporting.File) bool { return f.Name == name }) {
			continue
		}
		var text []byte
		if f.definitions != "" {
			text, _ = document.ReadFile(name, "round.yaml") // one that cannot be read shows no line
		}
		files = append(files, reporting.File{
			Name: name, Path: placeOf(name, env), Text: text, Consumers: -1,
			Shown: func(string) bool { return true }, // a table has no key for a secret
		})
	}
	return files
}

// placeOf is the path of a file below the root of the repository, with slashes, or an absolute one outside of it. In CI
// the root is known; elsewhere it is the current directory.
func placeOf(name string, env lookupEnv) string {
	if name == "-" {
		return name
	}
	absolute, err := filepath.Abs(name)
	if err != nil {
		return filepath.ToSlash(name)
	}
	root, err := os.Getwd()
	if err != nil {
		return filepath.ToSlash(name)
	}
	for _, variable := range []string{"GITHUB_WORKSPACE", "CI_PROJECT_DIR"} {
		if value, set := env(variable); set && filepath.IsAbs(value) {
			root = value
			break
		}
	}
	for _, at := range [][2]string{{root, absolute}, {resolved(root), filepath.Join(resolved(filepath.Dir(absolute)), filepath.Base(absolute))}} {
		if relative, err := filepath.Rel(at[0], at[1]); err == nil && filepath.IsLocal(relative) {
			return filepath.ToSlash(relative)
		}
	}
	return filepath.ToSlash(absolute)
}

// resolved is a path without symbolic links, or the path itself.
func resolved(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}
