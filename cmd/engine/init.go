// SPDX-License-Identifier: Apache-2.0

package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"example.com/bothy/engine/config"
)

//go:embed init
var initFiles embed.FS

// commandModule is what go install needs to build this command.
const commandModule = "example.com/bothy/cmd/engine"

// The systems that init writes a step for.
const (
	ciGitHub = "github"
	ciGitLab = "gitlab"
	ciNone   = "none"
)

func initCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init",
		Short: "writes a first consumers.yaml with its test and the step for CI",
		Long: `init writes four files to begin with, each of which passes at once:

  consumers.yaml         one consumer
  consumers.test.yaml    what it has to do, for engine test
  consumers.schema.json  with which an editor completes and checks consumers.yaml
  the CI step            runs engine validate and engine test; it belongs to the folder that holds .git,
                         and stands in .github/workflows or .gitlab there (named after DIR, where that is below)

It overwrites nothing: when one of them exists, it writes none.`,
		Example: `  engine init
  engine init --dir services/notify --ci gitlab`,
		Args: arguments(),
	}
	dir := cmd.Flags().String("dir", ".", "write into `DIR`, which is made when it is missing")
	ci := cmd.Flags().String("ci", ciGitHub, "the `SYSTEM` of the CI step: github, gitlab or none")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		files, err := firstFiles(*dir, *ci)
		if err != nil {
			return err
		}
		if err := writeNew(files); err != nil {
			return err
		}
		stdout := cmd.OutOrStdout()
		for _, f := range files {
			fmt.Fprintf(stdout, "wrote %s\n", f.path)
		}
		if *dir != "." {
			fmt.Fprintf(stdout, "next, in %s:\n", *dir)
		} else {
			fmt.Fprintln(stdout, "next:")
		}
		fmt.Fprint(stdout, "    engine validate --strict\n    engine test\n    engine dev --once\n")
		return nil
	}
	return cmd
}

// newFile is a file that init writes.
type newFile struct {
	path string
	text []byte
}

// firstFiles are the files for a folder.
func firstFiles(dir, ci string) ([]newFile, error) {
	schema, err := config.Schema()
	if err != nil {
		return nil, err
	}
	files := []newFile{{path: filepath.Join(dir, "consumers.schema.json"), text: schema}}
	for _, name := range []string{"consumers.yaml", "consumers.test.yaml"} {
		text, err := initFiles.ReadFile("init/" + name)
		if err != nil {
			return nil, err
		}
		files = append(files, newFile{filepath.Join(dir, name), text})
	}
	root, below, err := repository(dir)
	if err != nil {
		return nil, err
	}
	var step string
	name := "consumers.yaml"
	if below != "." { // each service of a repository has a step of its own
		name = "consumers-" + strings.ReplaceAll(filepath.ToSlash(below), "/", "-") + ".yaml"
	}
	switch ci {
	case ciNone:
		return files, nil
	case ciGitHub:
		step = filepath.Join(".github", "workflows", name)
	case ciGitLab:
		step = filepath.Join(".gitlab", name)
	default:
		return nil, usagef("--ci is %q: write %s, %s or %s", ci, ciGitHub, ciGitLab, ciNone)
	}
	text, err := initFiles.ReadFile("init/" + ci + ".yaml")
	if err != nil {
		return nil, err
	}
	filled := strings.NewReplacer("{{module}}", commandModule, "{{dir}}", filepath.ToSlash(below), "{{file}}", filepath.ToSlash(step)).Replace(string(text))
	return append(files, newFile{filepath.Join(root, step), []byte(filled)}), nil
}

// repository is the folder around dir that holds .git, and dir as seen from there. Without one, dir is
// its own.
func repository(dir string) (root, below string, err error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", "", fmt.Errorf("folder of --dir: %w", err)
	}
	for at := absolute; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, ".git")); err == nil {
			below, err = filepath.Rel(at, absolute)
			if err != nil {
				return "", "", fmt.Errorf("folder of --dir: %w", err)
			}
			up, err := filepath.Rel(absolute, at)
			return filepath.Join(dir, up), below, err
		}
		if at == filepath.Dir(at) {
			return dir, ".", nil
		}
	}
}

// writeNew writes all of the files, or none when one is there already.
func writeNew(files []newFile) error {
	var there []string
	for _, f := range files {
		if _, err := os.Lstat(f.path); err == nil {
			there = append(there, f.path)
		}
	}
	if len(there) > 0 {
		return fmt.Errorf("nothing was written, since there is already: %s; move what is yours away, or name another folder with --dir", strings.Join(there, ", "))
	}
	for i, f := range files {
		if err := writeOne(f); err != nil {
			for _, written := range files[:i] {
				err = errors.Join(err, os.Remove(written.path))
			}
			return fmt.Errorf("nothing was written: %w", err)
		}
	}
	return nil
}

func writeOne(f newFile) error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already", f.path)
	}
	if err != nil {
		return err
	}
	_, err = file.Write(f.text)
	return errors.Join(err, file.Close())
}
